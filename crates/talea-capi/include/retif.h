/*
 * retif.h - the ReTiF library's interface, served by Talea.
 *
 * Programs written for ReTiF compile, link and run: those of its papers (Serra, Ara, Fara, Cucinotta: J. Systems
 * Architecture 118, 2021, "J" below; ISORC 2020, "I"), and those written against the original header. Link with
 * -lretif (pkg-config retif). New programs should rather use talea.h: it says why something was refused.
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
 * Units. Every time is in microseconds, also in rtf_task_start and rtf_task_wait_period. The original took the
 * period for milliseconds there; with RETIF_PERIOD_MS=1 in the environment so does this library, there only.
 * 0 means "not declared".
 *
 * One type, three spellings: struct rtf_spec (J), struct rtf_task (the original) and struct rts_task (I) are the
 * same, and so are struct rtf_params and struct rts_params. Functions come as rtf_spec_*, rtf_task_*, rts_task_*
 * and rtf_params_*, rtf_param_*, rts_params_*, rts_param_*.
 *
 * Results. rtf_spec_create and rtf_spec_change tell refusals apart as J does. Every other call returns RTF_OK,
 * RTF_FAIL when it was refused, RTF_ERROR with errno when the daemon can't be reached. rtf_task_explain says why.
 *
 * Connection. The first request connects; rtf_connect does it earlier. No call takes longer than 2 seconds. When
 * the daemon dies, calls return RTF_ERROR; when it comes back, so do the tasks. No call raises a signal. Tasks
 * are released when the process ends. Any thread may call any function; what asks the daemon waits for other threads
 * that ask, behind a lock that does not inherit priorities. rtf_task_start and rtf_task_wait_period ask nobody.
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

/* Bytes of a plugin's name with its terminating zero. */
#define PLUGIN_MAX_NAME 32

/* Results. Exactly these tokens: programs define them again. */
#define RTF_OK 1
#define RTF_FAIL 0
#define RTF_ERROR -1

/* Answers of plugins. */
#define RTF_PARTIAL 0
#define RTF_NO -1

/* Results of rtf_spec_create and rtf_spec_change. What is not RTF_OK is not positive. */
typedef int rtf_result_t;
#define RTF_CONNECTION_ERR (-1)  /* the daemon can't be reached, or did not answer in time */
#define RTF_SCHEDULE_FAIL (0)    /* the parameters can't be guaranteed; others may be */
#define RTF_SCHEDULER_FAIL (0)   /* the same in J's text */
#define RTF_ACL_FAIL (-2)        /* access rules do not allow this */

/* Declared parameters. 0 means "not declared". */
struct rtf_params {
    uint64_t runtime;                   /* Q, us */
    uint64_t des_runtime;               /* Q^d, us */
    uint64_t period;                    /* T, us */
    uint64_t deadline;                  /* D, us; T when not declared */
    uint32_t priority;                  /* P, 1 (least) to 99 */
    char sched_plugin[PLUGIN_MAX_NAME]; /* the only plugin to ask */
    uint8_t ignore_admission;           /* accept although the plugin's test fails */
};

struct rtf_access;

/* A task. Its number names it to the library; programs may read the rest. */
struct rtf_task {
    uint32_t task_id;     /* from 1; 0: not accepted */
    uint32_t dmiss;       /* waits that began after the deadline of their job */
    uint64_t acc_runtime; /* accepted runtime when it was created or last changed, us */
    struct rtf_access *c; /* not used */
    struct rtf_params p;  /* as accepted */
    struct timespec at;   /* next activation */
    struct timespec dl;   /* deadline of the current job */
};

/* A connection of the daemon's. */
struct rtf_client_info {
    pid_t pid;
    int state; /* enum CLIENT_STATE */
};

/* A task of the daemon's. */
struct rtf_task_info {
    pid_t tid;    /* the attached thread; 0: none */
    pid_t ppid;   /* the process that created it */
    int priority; /* kernel priority; 0: SCHED_DEADLINE */
    int period;   /* us */
    float util;   /* share of a CPU, 1.0 is a whole one */
    int pluginid;
};

/* A plugin of the daemon's. */
struct rtf_plugin_info {
    char name[PLUGIN_MAX_NAME];
    int cputot; /* CPUs that it may use */
};

/* What a plugin has on one CPU. */
struct rtf_cpu_info {
    int cpunum;  /* the CPU's number */
    float freeu; /* share that the plugin could still give out */
    int ntask;   /* tasks of the plugin there */
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

/* For initialisers and for assignments. */
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

/* Between units of time, as floating-point numbers. */
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

/* ---- Connection ----------------------------------------------------------------------------------------- */

/* Connects, if that has not happened: RTF_OK, or RTF_CONNECTION_ERR with errno. */
int rtf_connect(void);

/* ---- Parameters ----------------------------------------------------------------------------------------- */

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
/* A name of more than 31 bytes is cut, which no plugin's name is. NULL or "": any plugin. */
void rtf_params_set_scheduler(struct rtf_params *p, const char *sched_plugin);
/* Writes PLUGIN_MAX_NAME bytes. */
void rtf_params_get_scheduler(const struct rtf_params *p, char *sched_plugin);
void rtf_params_ignore_admission(struct rtf_params *p, uint8_t ignore_admission);
uint8_t rtf_params_get_ignore_admission(const struct rtf_params *p);

/* ---- Tasks ---------------------------------------------------------------------------------------------- */

void rtf_task_init(struct rtf_task *t);
int rtf_task_create(struct rtf_task *t, struct rtf_params *p);
/* When it is refused, the task keeps its parameters. */
int rtf_task_change(struct rtf_task *t, struct rtf_params *p);
/* A thread's number; a process's number means its main thread; 0 means the calling thread. */
int rtf_task_attach(struct rtf_task *t, pid_t pid);
int rtf_task_detach(struct rtf_task *t);
int rtf_task_release(struct rtf_task *t);
/* Marks the beginning of the first period. */
void rtf_task_start(struct rtf_task *t);
/* Sleeps until the next activation, absolute on CLOCK_MONOTONIC; signals do not shorten it. Returns at once when
 * it has passed, or when no period was declared. */
void rtf_task_wait_period(struct rtf_task *t);
/* us, at least the runtime and at most the desired one; 0 when no runtime was declared. */
uint64_t rtf_task_get_accepted_runtime(struct rtf_task *t);
uint64_t rtf_task_get_accepted_budget(struct rtf_task *t);

/* Writes up to `size` bytes of text, terminated: what was granted to an accepted task, or for others why this
 * thread's last request was refused or failed. Returns how many bytes the whole text has, without its end. */
size_t rtf_task_explain(const struct rtf_task *t, char *text, size_t size);

/* ---- The daemon's books --------------------------------------------------------------------------------- */

/* Counts, or RTF_ERROR. What is counted is what this user may see, and what the calls below then find. */
int rtf_connections_info(void);
int rtf_plugins_info(void);
int rtf_tasks_info(void);

/* By index from 0 as of this thread's last rtf_connections_info. RTF_OK, or RTF_ERROR for none. */
int rtf_connection_info(unsigned int desc, struct rtf_client_info *data);
/* By the task's number. */
int rtf_task_info(unsigned int desc, struct rtf_task_info *data);
/* By index from 0, in order of precedence. */
int rtf_plugin_info(unsigned int desc, struct rtf_plugin_info *data);
/* `cpuid` is an index from 0 into the CPUs of plugin `desc`. */
int rtf_plugin_cpu_info(unsigned int desc, unsigned int cpuid, struct rtf_cpu_info *data);

/* ---- J's spelling --------------------------------------------------------------------------------------- */

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

/* ---- I's spelling --------------------------------------------------------------------------------------- */

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
