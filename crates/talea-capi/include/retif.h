/*
 * retif.h - the interface of the ReTiF library, implemented by Talea.
 *
 * Programs written for ReTiF compile, link and run: those of its papers (Serra, Ara, Fara,
 * Cucinotta: J. Systems Architecture 118, 2021, "J" below; ISORC 2020, "I"), and those written
 * against the original header. Link with -lretif (pkg-config retif). New programs should use
 * talea.h, whose functions return the reason of a refusal.
 *
 *     struct rtf_params p = RTF_PARAM_INIT;
 *     struct rtf_task t = RTF_TASK_INIT;
 *
 *     rtf_params_set_period(&p, 10000);
 *     rtf_params_set_runtime(&p, 2000);
 *     if (rtf_task_create(&t, &p) == RTF_OK && rtf_task_attach(&t, gettid()) == RTF_OK)
 *         for (rtf_task_start(&t); ; rtf_task_wait_period(&t))
 *             work();
 *
 * Units. Every time is in microseconds, also in rtf_task_start and rtf_task_wait_period. The
 * original takes the period as milliseconds in these two functions. With RETIF_PERIOD_MS=1 in the
 * environment this library does the same, in these two functions only. 0 means "not declared".
 *
 * One type, three spellings. struct rtf_spec (J), struct rtf_task (the original) and
 * struct rts_task (I) are one type, and so are struct rtf_params and struct rts_params. Functions
 * are named rtf_spec_*, rtf_task_*, rts_task_* and rtf_params_*, rtf_param_*, rts_params_*,
 * rts_param_*.
 *
 * Results. rtf_spec_* calls distinguish refusals as J does. Every other call returns RTF_OK,
 * RTF_FAIL if the request was refused, or RTF_ERROR with errno if the daemon cannot be reached.
 * rtf_task_explain returns the reason.
 *
 * Connection. The first request connects; rtf_connect connects earlier. No call takes longer than
 * 2 seconds. If the daemon dies, calls return RTF_ERROR; after its restart, the library claims the
 * tasks again. No call raises a signal. The end of the process releases its tasks.
 *
 * Threads. Any thread may call any function. Calls that send a request are serialised by a lock
 * without priority inheritance. rtf_task_start and rtf_task_wait_period take no lock and send no
 * request.
 */
#ifndef RETIF_LIB_H
#define RETIF_LIB_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RETIF_PUBLIC_TYPES
#define RETIF_PUBLIC_TYPES

/* Size of a plugin's name with its terminating zero, in bytes. */
#define PLUGIN_MAX_NAME 32

/* Results. Programs redefine these macros, so the tokens must be exactly these. */
#define RTF_OK 1
#define RTF_FAIL 0
#define RTF_ERROR -1

/* Answers of plugins. */
#define RTF_PARTIAL 0
#define RTF_NO -1

/* Results of the rtf_spec_* calls. Every result other than RTF_OK is 0 or negative. */
typedef int rtf_result_t;
#define RTF_CONNECTION_ERR (-1)  /* the daemon cannot be reached, or did not answer in time */
#define RTF_SCHEDULE_FAIL (0)    /* these parameters cannot be guaranteed; other ones may be */
#define RTF_SCHEDULER_FAIL (0)   /* spelling in the text of J */
#define RTF_ACL_FAIL (-2)        /* the access rules do not allow the request */

/* Declared parameters. 0 means "not declared". */
struct rtf_params {
    uint64_t runtime;                   /* Q, us */
    uint64_t des_runtime;               /* Q^d, us */
    uint64_t period;                    /* T, us */
    uint64_t deadline;                  /* D, us; T if not declared */
    uint32_t priority;                  /* P, 1 (lowest) to 99 (highest) */
    char sched_plugin[PLUGIN_MAX_NAME]; /* the only plugin to query */
    uint8_t ignore_admission;           /* accept even if the admission test fails */
};

struct rtf_access;

/* A task. task_id identifies it; programs may read the other fields. */
struct rtf_task {
    uint32_t task_id;     /* from 1; 0: not accepted */
    uint32_t dmiss;       /* waits that began after the deadline of their job */
    uint64_t acc_runtime; /* accepted runtime at the creation or the last change, us */
    struct rtf_access *c; /* not used */
    struct rtf_params p;  /* the accepted parameters */
    struct timespec at;   /* next activation */
    struct timespec dl;   /* deadline of the current job */
};

/* A connection of the daemon. */
struct rtf_client_info {
    pid_t pid;
    int state; /* enum CLIENT_STATE */
};

/* A task of the daemon. */
struct rtf_task_info {
    pid_t tid;    /* the attached thread; 0: none */
    pid_t ppid;   /* the process that created it */
    int priority; /* kernel priority; 0: SCHED_DEADLINE */
    int period;   /* us */
    float util;   /* utilization; 1.0 is one CPU */
    int pluginid;
};

/* A plugin of the daemon. */
struct rtf_plugin_info {
    char name[PLUGIN_MAX_NAME];
    int cputot; /* number of CPUs that it may use */
};

/* A CPU of a plugin. */
struct rtf_cpu_info {
    int cpunum;  /* the CPU's number */
    float freeu; /* utilization that the plugin can still grant */
    int ntask;   /* number of tasks of the plugin on this CPU */
};

enum CLIENT_STATE {
    EMPTY = 0,
    CONNECTED = 1,
    DISCONNECTED = 2,
    ERROR = 3
};

#endif /* RETIF_PUBLIC_TYPES */

/* The other spellings. */
#define rtf_spec rtf_task
#define rts_task rtf_task
#define rts_params rtf_params
#define rts_result_t rtf_result_t
#define RTS_OK RTF_OK
#define RTS_FAIL RTF_FAIL
#define RTS_PARTIAL RTF_PARTIAL
#define RTS_NO RTF_NO

/* Values for initialisers and for assignments. */
#ifdef __cplusplus
static const struct rtf_params RTF_PARAM_INIT = {};
static const struct rtf_task RTF_TASK_INIT = {};
#else
static const struct rtf_params RTF_PARAM_INIT = { 0 };
static const struct rtf_task RTF_TASK_INIT = { 0 };
#endif
#define RTF_SPEC_INIT RTF_TASK_INIT
#define RTS_TASK_INIT RTF_TASK_INIT
#define RTS_PARAM_INIT RTF_PARAM_INIT

/* Conversions between units of time, as floating-point numbers. */
#define EXP3 1000.0
#define EXP6 1000000.0
#define EXP9 1000000000.0
#define SEC_TO_MILLI(time) ((time) * EXP3)
#define SEC_TO_MICRO(time) ((time) * EXP6)
#define SEC_TO_NANO(time) ((time) * EXP9)
#define MILLI_TO_SEC(time) ((time) / EXP3)
#define MILLI_TO_MICRO(time) ((time) * EXP3)
#define MILLI_TO_NANO(time) ((time) * EXP6)
#define MICRO_TO_SEC(time) ((time) / EXP6)
#define MICRO_TO_MILLI(time) ((time) / EXP3)
#define MICRO_TO_NANO(time) ((time) * EXP3)
#define NANO_TO_SEC(time) ((time) / EXP9)
#define NANO_TO_MILLI(time) ((time) / EXP6)
#define NANO_TO_MICRO(time) ((time) / EXP3)

/* ---- Connection ------------------------------------------------------------------------------ */

/* Connects, unless the process is connected. RTF_OK, or RTF_CONNECTION_ERR with errno. */
int rtf_connect(void);

/* ---- Parameters ------------------------------------------------------------------------------ */

void rtf_params_init(struct rtf_params *p);
void rtf_params_set_runtime(struct rtf_params *p, uint64_t runtime);
uint64_t rtf_params_get_runtime(const struct rtf_params *p);
void rtf_params_set_des_runtime(struct rtf_params *p, uint64_t runtime);
uint64_t rtf_params_get_des_runtime(const struct rtf_params *p);
void rtf_params_set_period(struct rtf_params *p, uint64_t period);
uint64_t rtf_params_get_period(const struct rtf_params *p);
void rtf_params_set_deadline(struct rtf_params *p, uint64_t deadline);
uint64_t rtf_params_get_deadline(const struct rtf_params *p);
void rtf_params_set_priority(struct rtf_params *p, uint32_t priority);
uint32_t rtf_params_get_priority(const struct rtf_params *p);
/* Truncates a name to 31 bytes, the maximum of a plugin's name. NULL or "": any plugin. */
void rtf_params_set_scheduler(struct rtf_params *p, const char *sched_plugin);
/* Writes PLUGIN_MAX_NAME bytes. */
void rtf_params_get_scheduler(const struct rtf_params *p, char *sched_plugin);
void rtf_params_ignore_admission(struct rtf_params *p, uint8_t ignore_admission);
uint8_t rtf_params_get_ignore_admission(const struct rtf_params *p);

/* ---- Tasks ----------------------------------------------------------------------------------- */

void rtf_task_init(struct rtf_task *t);
int rtf_task_create(struct rtf_task *t, struct rtf_params *p);
/* A refusal leaves the parameters of the task unchanged. */
int rtf_task_change(struct rtf_task *t, struct rtf_params *p);
/* `pid` is a thread ID; a process ID selects the main thread, 0 the calling thread. */
int rtf_task_attach(struct rtf_task *t, pid_t pid);
int rtf_task_detach(struct rtf_task *t);
int rtf_task_release(struct rtf_task *t);
/* Sets the start of the first period to the current time. */
void rtf_task_start(struct rtf_task *t);
/* Sleeps until the next activation, an absolute time on CLOCK_MONOTONIC; signals do not shorten the
 * sleep. Returns at once if the activation has passed or no period was declared. */
void rtf_task_wait_period(struct rtf_task *t);
/* Returns the accepted runtime in us: at least the runtime, at most the desired runtime. 0 if no
 * runtime was declared. */
uint64_t rtf_task_get_accepted_runtime(struct rtf_task *t);
uint64_t rtf_task_get_accepted_budget(struct rtf_task *t);

/* Writes a terminated text of at most `size` bytes: the granted terms of an accepted task; for any
 * other task, why this thread's last request was refused or failed. Returns the length of the whole
 * text without the terminating zero. */
size_t rtf_task_explain(const struct rtf_task *t, char *text, size_t size);

/* ---- Queries --------------------------------------------------------------------------------- */

/* Return the number of items that this user may see and that the calls below find, or RTF_ERROR. */
int rtf_connections_info(void);
int rtf_plugins_info(void);
int rtf_tasks_info(void);

/* The queries below return RTF_OK, or RTF_ERROR if there is no such item. */
/* `desc` is an index from 0 into the result of this thread's last rtf_connections_info. */
int rtf_connection_info(unsigned int desc, struct rtf_client_info *data);
/* `desc` is the number of a task. */
int rtf_task_info(unsigned int desc, struct rtf_task_info *data);
/* `desc` is an index from 0, in order of precedence. */
int rtf_plugin_info(unsigned int desc, struct rtf_plugin_info *data);
/* `cpuid` is an index from 0 into the CPUs of plugin `desc`. */
int rtf_plugin_cpu_info(unsigned int desc, unsigned int cpuid, struct rtf_cpu_info *data);

/* ---- Spelling of J --------------------------------------------------------------------------- */

void rtf_spec_init(struct rtf_spec *s);
rtf_result_t rtf_spec_create(struct rtf_spec *s, struct rtf_params *p);
rtf_result_t rtf_spec_change(struct rtf_spec *s, struct rtf_params *p);
rtf_result_t rtf_spec_attach(struct rtf_spec *s, pid_t pid);
rtf_result_t rtf_spec_detach(struct rtf_spec *s);
rtf_result_t rtf_spec_release(struct rtf_spec *s);
void rtf_spec_start(struct rtf_spec *s);
void rtf_spec_wait_period(struct rtf_spec *s);
uint64_t rtf_spec_get_accepted_runtime(struct rtf_spec *s);
size_t rtf_spec_explain(const struct rtf_spec *s, char *text, size_t size);

void rtf_param_init(struct rtf_params *p);
void rtf_param_set_runtime(struct rtf_params *p, uint64_t runtime);
uint64_t rtf_param_get_runtime(const struct rtf_params *p);
void rtf_param_set_des_runtime(struct rtf_params *p, uint64_t runtime);
uint64_t rtf_param_get_des_runtime(const struct rtf_params *p);
void rtf_param_set_period(struct rtf_params *p, uint64_t period);
uint64_t rtf_param_get_period(const struct rtf_params *p);
void rtf_param_set_deadline(struct rtf_params *p, uint64_t deadline);
uint64_t rtf_param_get_deadline(const struct rtf_params *p);
void rtf_param_set_priority(struct rtf_params *p, uint32_t priority);
uint32_t rtf_param_get_priority(const struct rtf_params *p);
void rtf_param_set_scheduler(struct rtf_params *p, const char *sched_plugin);
void rtf_param_get_scheduler(const struct rtf_params *p, char *sched_plugin);
void rtf_param_ignore_admission(struct rtf_params *p, uint8_t ignore_admission);
uint8_t rtf_param_get_ignore_admission(const struct rtf_params *p);

/* ---- Spelling of I --------------------------------------------------------------------------- */

int rts_connect(void);
void rts_task_init(struct rts_task *t);
rts_result_t rts_task_create(struct rts_task *t, struct rts_params *p);
rts_result_t rts_task_change(struct rts_task *t, struct rts_params *p);
rts_result_t rts_task_attach(struct rts_task *t, pid_t pid);
rts_result_t rts_task_detach(struct rts_task *t);
rts_result_t rts_task_release(struct rts_task *t);
void rts_task_start(struct rts_task *t);
void rts_task_wait_period(struct rts_task *t);
uint64_t rts_task_get_accepted_runtime(struct rts_task *t);

void rts_params_init(struct rts_params *p);
void rts_params_set_runtime(struct rts_params *p, uint64_t runtime);
uint64_t rts_params_get_runtime(const struct rts_params *p);
void rts_params_set_des_runtime(struct rts_params *p, uint64_t runtime);
uint64_t rts_params_get_des_runtime(const struct rts_params *p);
void rts_params_set_period(struct rts_params *p, uint64_t period);
uint64_t rts_params_get_period(const struct rts_params *p);
void rts_params_set_deadline(struct rts_params *p, uint64_t deadline);
uint64_t rts_params_get_deadline(const struct rts_params *p);
void rts_params_set_priority(struct rts_params *p, uint32_t priority);
uint32_t rts_params_get_priority(const struct rts_params *p);
void rts_params_set_scheduler(struct rts_params *p, const char *sched_plugin);
void rts_params_get_scheduler(const struct rts_params *p, char *sched_plugin);
void rts_params_ignore_admission(struct rts_params *p, uint8_t ignore_admission);

void rts_param_init(struct rts_params *p);
void rts_param_set_runtime(struct rts_params *p, uint64_t runtime);
uint64_t rts_param_get_runtime(const struct rts_params *p);
void rts_param_set_des_runtime(struct rts_params *p, uint64_t runtime);
uint64_t rts_param_get_des_runtime(const struct rts_params *p);
void rts_param_set_period(struct rts_params *p, uint64_t period);
uint64_t rts_param_get_period(const struct rts_params *p);
void rts_param_set_deadline(struct rts_params *p, uint64_t deadline);
uint64_t rts_param_get_deadline(const struct rts_params *p);
void rts_param_set_priority(struct rts_params *p, uint32_t priority);
uint32_t rts_param_get_priority(const struct rts_params *p);
void rts_param_set_scheduler(struct rts_params *p, const char *sched_plugin);
void rts_param_get_scheduler(const struct rts_params *p, char *sched_plugin);
void rts_param_ignore_admission(struct rts_params *p, uint8_t ignore_admission);

#ifdef __cplusplus
}
#endif

#endif /* RETIF_LIB_H */
