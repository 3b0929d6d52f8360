/*
 * talea.h - real-time service from the Talea daemon, and applications of real-time tasks.
 * For C and C++.
 *
 * A program declares what a task needs: period, runtime, deadline, priority, or any subset of
 * these. The daemon selects a scheduling policy that can serve the task, proves that the task fits
 * beside all earlier grants, and configures a thread of the program.
 *
 *     talea_client *client;
 *     talea_grant *grant;
 *     talea_periodic clock = TALEA_PERIODIC_INIT;
 *     talea_spec spec = TALEA_SPEC_INIT;
 *
 *     spec.period_ns  = 10000000;
 *     spec.runtime_ns =  2000000;
 *     if (talea_connect(&client) != 0 || talea_create(client, &spec, &grant) != 0)
 *         return fprintf(stderr, "%s\n", talea_last_error()), 1;
 *     talea_attach(grant, 0);
 *     talea_periodic_start(&clock, spec.period_ns);
 *     for (;;) {
 *         work();
 *         talea_wait_period(&clock);
 *     }
 *
 * Link with -ltalea (pkg-config talea).
 *
 * Results. A function that returns int returns 0 on success, a positive number (TALEA_E_*) if the
 * daemon refused, and a negative errno on failure. A refusal is a normal answer:
 * talea_last_error() returns the reason as a sentence with the numbers that the daemon would
 * accept, and talea_refusal_get() returns these numbers.
 *
 * Time. Every duration ends in _ns and is in nanoseconds. 0 means "not declared". Points in time
 * are on CLOCK_MONOTONIC.
 *
 * Time-outs. No call waits longer than the time-out of its client (2 s by default). If the daemon
 * is dead, a call returns -ECONNREFUSED, -ENOENT, -ECONNRESET or -ETIMEDOUT. It never hangs and
 * raises no signal. After the connection breaks, the next call connects again and claims the
 * grants. A call that meets a restart of the daemon waits for the next daemon, within its time-out,
 * and has its effect exactly once. A call that has waited in vain is the last to wait until there
 * is a daemon again.
 *
 * Threads. Every thread may use every client and every grant. A thread must not use an object that
 * another thread is releasing (talea_release, talea_disown, talea_disconnect). Calls on one client
 * are serialised by a lock without priority inheritance, so a thread of high priority can wait
 * there for a thread of low priority and for the daemon. Use clients and grants before and after
 * the periodic loop, or give the urgent thread a client of its own. talea_wait_period takes no
 * lock and does not call the daemon. A child of fork() does not inherit grants: its calls open a
 * connection of their own.
 *
 * Structures begin with their size: initialise them with the matching INIT macro, or set the size
 * to sizeof the structure. Later versions only append fields, so a program works with an older and
 * with a newer library.
 *
 * Environment. TALEA_SOCKET is the path of the daemon's socket. TALEA_DISABLE=1 makes every
 * connection fail with -EOPNOTSUPP. Programs that run with more rights than their user ignore both
 * variables.
 */
#ifndef TALEA_H
#define TALEA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Refusals -------------------------------------------------------------------------------- */

#define TALEA_E_NOT_ALLOWED    1 /* no access rule allows this request to this user */
#define TALEA_E_RULE_BOUND     2 /* the request exceeds the bound of an access rule */
#define TALEA_E_RULE_OMISSION  3 /* an access rule bounds a parameter that the request omits */
#define TALEA_E_NO_PLUGIN      4 /* no plugin can serve the request */
#define TALEA_E_UNKNOWN_PLUGIN 5 /* the named plugin does not exist */
#define TALEA_E_NO_SUCH_SPEC   6 /* the spec does not exist, or this user may not see it */
#define TALEA_E_NOT_OWNER      7 /* the spec belongs to another user or connection */
#define TALEA_E_NO_SUCH_THREAD 8 /* the thread does not exist or has ended */
#define TALEA_E_FOREIGN_THREAD 9 /* the thread belongs to another user */
#define TALEA_E_THREAD_TAKEN  10 /* the thread is attached to another spec */
#define TALEA_E_SPEC_TAKEN    11 /* the spec has another thread */
#define TALEA_E_NOT_ATTACHED  12 /* the spec has no thread */
#define TALEA_E_KERNEL        13 /* the kernel refused; talea_refusal.kernel_errno says how */
#define TALEA_E_QUOTA         14 /* a quota is exhausted */
#define TALEA_E_MALFORMED     15 /* the request is malformed */
#define TALEA_E_VERSION       16 /* daemon and library have no protocol version in common */
#define TALEA_E_BAD_TOKEN     17 /* the token is wrong */
#define TALEA_E_NOT_ROOT      18 /* the request requires root */
#define TALEA_E_TID_NOT_ACCEPTED 19 /* the daemon runs in another PID namespace: pass a pidfd */
#define TALEA_E_STOPPING      20 /* the daemon is stopping */
#define TALEA_E_BUSY          21 /* another request for this spec is in progress */
#define TALEA_E_NOT_RECORDED  22 /* the daemon's state file cannot grow; kernel_errno says why */
#define TALEA_E_STARVATION    23 /* the user has starved this CPU: repeat in `limit` ns */
#define TALEA_E_NOT_FRONT_END 24 /* the connection may not act for this user */

/* The field that a refusal is about. It determines the unit of the numbers. */
#define TALEA_FIELD_REQUEST           0
#define TALEA_FIELD_PERIOD            1 /* ns */
#define TALEA_FIELD_RUNTIME           2 /* ns */
#define TALEA_FIELD_DESIRED           3 /* ns */
#define TALEA_FIELD_DEADLINE          4 /* ns */
#define TALEA_FIELD_PRIORITY          5
#define TALEA_FIELD_UTILIZATION       6 /* millionths of a CPU */
#define TALEA_FIELD_IGNORE_ADMISSION  7
#define TALEA_FIELD_PLUGIN            8
#define TALEA_FIELD_CPUS              9
#define TALEA_FIELD_SPECS            10
#define TALEA_FIELD_SESSIONS         11
#define TALEA_FIELD_OWNER            12
#define TALEA_FIELD_THREAD           13
#define TALEA_FIELD_LEVELS           14
#define TALEA_FIELD_GROUP            15
#define TALEA_FIELD_MESSAGE          16
#define TALEA_FIELD_NICE             17 /* 20 - nice value: 1 to 40, as in RLIMIT_NICE */

/* The counterexample of an exact schedulability test: how a deadline would be missed. Or the delay
 * after which the request fits. */
#define TALEA_WITNESS_NONE   0
#define TALEA_WITNESS_LATE   1 /* response time above the deadline after a synchronous release */
#define TALEA_WITNESS_DEMAND 2 /* demand above supply within a window */
#define TALEA_WITNESS_HELD   3 /* the kernel still counts the bandwidth of an ended grant */

/* The numbers of a refusal. */
typedef struct talea_refusal {
    uint32_t size;
    int32_t code;         /* TALEA_E_* */
    uint32_t field;       /* TALEA_FIELD_* */
    int32_t kernel_errno; /* with TALEA_E_KERNEL */
    uint64_t asked;       /* the requested value */
    uint64_t limit;       /* the bound that the value exceeds */
    uint64_t fits;        /* the largest value of fits_field that a plugin would accept, or 0 */
    uint32_t fits_field;  /* TALEA_FIELD_*, determines the unit of `fits` */
    uint32_t index;       /* index of the refused task in its group */
    uint32_t witness;     /* TALEA_WITNESS_*, of the first plugin that gave one */
    uint32_t witness_own; /* LATE: 1 if the late task is the requested one */
    uint64_t witness_at_ns;    /* LATE: period of the late task; DEMAND: window; HELD: delay */
    uint64_t witness_needs_ns; /* LATE: its response time, 0 if unbounded; DEMAND: the demand */
    uint64_t witness_has_ns;   /* LATE: its deadline; DEMAND: the supply */
} talea_refusal;
#define TALEA_REFUSAL_INIT { sizeof(talea_refusal), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Returns the message of this thread's last call that did not return 0, as sentences. The pointer
 * is valid until the thread's next call and is never NULL. */
const char *talea_last_error(void);

/* Copies the numbers of this thread's last refusal. -ENOENT if its last call was not refused. */
int talea_refusal_get(talea_refusal *refusal);

/* Returns a stable name of a result, such as "no-plugin": "ok" for 0, "failed" for negative
 * results. Never NULL. */
const char *talea_result_name(int result);

/* ---- Connecting ------------------------------------------------------------------------------ */

/* A connection to the daemon. It reconnects by itself. */
typedef struct talea_client talea_client;

/* Connects to the daemon at TALEA_SOCKET, or to the system daemon. */
int talea_connect(talea_client **client);

/* Connects to the daemon at `path` (NULL: as talea_connect), with a time-out for each call (0:
 * 2 s). */
int talea_connect_to(const char *path, uint64_t timeout_ns, talea_client **client);

/* Releases a client. Its connection stays open as long as grants created through it exist. NULL is
 * ignored. */
void talea_disconnect(talea_client *client);

/* ---- Requests -------------------------------------------------------------------------------- */

/* Flags of a specification. */
#define TALEA_IGNORE_ADMISSION 1u /* accept even if the schedulability test fails; needs a rule */
#define TALEA_CPUS_MANDATORY   2u /* `cpus` is a requirement, not a preference */

/* The owner of a grant: the grant ends with its owner. */
#define TALEA_OWNER_SESSION 0u /* this connection */
#define TALEA_OWNER_PROCESS 1u /* this process, even if the connection breaks */
#define TALEA_OWNER_THREAD  2u /* the attached thread */

/* The declared parameters of a task. 0 means "not declared". */
typedef struct talea_spec {
    uint32_t size;
    uint32_t flags;       /* TALEA_IGNORE_ADMISSION, TALEA_CPUS_MANDATORY */
    uint64_t period_ns;   /* T: period, or minimum separation of releases */
    uint64_t runtime_ns;  /* Q: CPU time that each job needs */
    uint64_t desired_ns;  /* Q^d: CPU time that each job can make use of, at least Q */
    uint64_t deadline_ns; /* D: relative deadline; T if not declared */
    uint32_t priority;    /* P: 1 (lowest) to 99 (highest) */
    uint32_t owner;       /* TALEA_OWNER_* */
    char plugin[32];      /* the only plugin to query; zero-terminated; "": all */
    uint64_t cpus[16];    /* bit n % 64 of word n / 64 is CPU n; no bit: any CPU */
} talea_spec;
#define TALEA_SPEC_INIT { sizeof(talea_spec), 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } }

/* An accepted specification. It exists until it is released or its owner ends. */
typedef struct talea_grant talea_grant;

/* Requests the admission of a task. */
int talea_create(talea_client *client, const talea_spec *spec, talea_grant **grant);

/* Requests the admission of all of `count` tasks (at most 64) or of none; grants[i] belongs to
 * specs[i]. */
int talea_create_group(talea_client *client, const talea_spec *specs, size_t count,
                       talea_grant **grants);

/* Tests the admission of a task without changing anything. talea_last_error() returns the verdict
 * of each plugin. */
int talea_explain(talea_client *client, const talea_spec *spec);

/* Claims a grant of the same user, by the number and the token of its talea_granted. */
int talea_claim(talea_client *client, uint64_t spec_id, const uint8_t token[16],
                talea_grant **grant);

/* ---- Grants ---------------------------------------------------------------------------------- */

/* Attaches a thread to the grant: the daemon sets its policy, priority and affinity. `tid` is a
 * thread ID; a process ID selects the main thread; 0 selects the calling thread. The real,
 * effective and saved user ID of the thread must all be those of the grant's user. The daemon
 * detaches a thread that changes them, or leaves its CPU twice, or gets another policy. */
int talea_attach(talea_grant *grant, pid_t tid);

/* Attaches the thread of a pidfd. The caller keeps the descriptor. */
int talea_attach_pidfd(talea_grant *grant, int pidfd);

/* Detaches the thread: the daemon restores its previous attributes. Another thread can be attached
 * then. */
int talea_detach(talea_grant *grant);

/* Replaces the parameters. The grant may move to another plugin. A refusal changes nothing. `owner`
 * stays as it is. */
int talea_change(talea_grant *grant, const talea_spec *spec);

/* Releases the grant: the daemon reclaims its bandwidth and restores the thread. `grant` is invalid
 * afterwards, also on failure. NULL is ignored. */
int talea_release(talea_grant *grant);

/* Frees the handle and leaves the grant in force until its owner ends. `grant` is invalid
 * afterwards. `spec_id`, unless NULL, receives the number of the grant. */
int talea_disown(talea_grant *grant, uint64_t *spec_id);

/* The kernel mechanism of a grant. */
#define TALEA_FIFO            0u /* SCHED_FIFO on one CPU */
#define TALEA_RR              1u /* SCHED_RR on one CPU */
#define TALEA_DEADLINE_PINNED 2u /* SCHED_DEADLINE on one CPU */
#define TALEA_DEADLINE_GLOBAL 3u /* SCHED_DEADLINE over a whole root domain */

/* Caveats of a grant. */
#define TALEA_NOTE_NOT_PROVED          0x01u /* no schedulability test covers the task */
#define TALEA_NOTE_ADMISSION_IGNORED   0x02u /* the test failed; the request ignores it */
#define TALEA_NOTE_BELOW_DESIRED       0x04u /* accepted runtime below the desired runtime */
#define TALEA_NOTE_LEVEL_SHARED        0x08u /* other tasks share the kernel priority */
#define TALEA_NOTE_PARTIAL             0x10u /* the request omits a recommended parameter */
#define TALEA_NOTE_PREFERRED_CPUS_IGNORED 0x20u /* placed on a CPU outside `cpus` */
#define TALEA_NOTE_BUDGET_NOT_ENFORCED 0x40u /* the runtime is not enforced */
#define TALEA_NOTE_COMMON_LEVELS       0x80u /* one priority order for all CPUs of the plugin */
#define TALEA_NOTE_UNGRANTED_ABOVE     0x100u /* threads without a grant have a higher priority */
#define TALEA_NOTE_UNLIMITED           0x200u /* no runtime, period or rule limits its CPU time */
#define TALEA_NOTE_PENDING_WAKEUP      0x400u /* the thread becomes real-time when it wakes */
#define TALEA_NOTE_FRONT_END           0x800u /* a front end (D-Bus) made the request */

/* The granted terms. */
typedef struct talea_granted {
    uint32_t size;
    int32_t cpu;              /* placement; -1: all CPUs of the plugin */
    uint64_t spec_id;         /* number of the grant */
    uint64_t runtime_ns;      /* Q^a: accepted runtime; 0 if none was declared */
    uint64_t granularity_ns;  /* enforcement granularity of the runtime */
    uint64_t utilization_ppm; /* charge in millionths of a CPU, rounded up */
    uint32_t plugin;          /* index of the serving plugin */
    uint32_t priority;        /* kernel priority; 0 for SCHED_DEADLINE */
    uint32_t mechanism;       /* TALEA_FIFO ... */
    uint32_t notes;           /* TALEA_NOTE_* */
    uint8_t token[16];        /* required by talea_claim */
    uint32_t lost;            /* 1: the daemon no longer has the grant */
    uint32_t zero;
} talea_granted;
#define TALEA_GRANTED_INIT { sizeof(talea_granted), 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0 }

/* Copies the granted terms, without a request. -ECHILD in a child of the process that holds the
 * grant. */
int talea_granted_get(const talea_grant *grant, talea_granted *granted);

/* Returns Q^a, the accepted runtime: at least the runtime, at most the desired runtime. 0 if none
 * was declared. */
uint64_t talea_accepted_runtime_ns(const talea_grant *grant);

/* ---- Queries --------------------------------------------------------------------------------- */

/* Statistics of the daemon. */
typedef struct talea_status {
    uint32_t size;
    uint32_t pid;
    uint64_t instance; /* number of this start of the daemon */
    uint64_t uptime_ns;
    uint64_t requests; /* since the start */
    uint64_t refused;  /* refused since the start */
    uint64_t wakeups;  /* of the daemon's event loop */
    uint32_t plugins;
    uint32_t sessions; /* connections now */
    uint32_t specs;    /* accepted specifications now */
    uint32_t attached; /* attached threads now */
    uint32_t adopted;  /* grants adopted from an earlier daemon */
    uint32_t rules;    /* access rules in force */
} talea_status;
#define TALEA_STATUS_INIT { sizeof(talea_status), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
int talea_status_get(talea_client *client, talea_status *status);

/* A plugin. */
typedef struct talea_plugin_info {
    uint32_t size;
    uint32_t index; /* in order of precedence, from 0 */
    char name[32];
    char kind[32];
    uint64_t cpus[16];
    uint32_t priority_low;  /* its band of kernel priorities; 0 for SCHED_DEADLINE */
    uint32_t priority_high;
    uint32_t specs;          /* specifications that it serves now */
    uint32_t out_of_service; /* 1: it failed */
} talea_plugin_info;
#define TALEA_PLUGIN_INFO_INIT { sizeof(talea_plugin_info), 0, { 0 }, { 0 }, { 0 }, 0, 0, 0, 0 }

/* Describes plugin `index`. -ENOENT if `index` is not below the number of plugins. */
int talea_plugin_get(talea_client *client, uint32_t index, talea_plugin_info *plugin);

/* A specification that the daemon has accepted, of this program or of another. */
typedef struct talea_info {
    uint32_t size;
    uint32_t uid; /* user that created it */
    uint32_t pid; /* process that created it */
    uint32_t tid; /* the attached thread; 0: none */
    uint64_t spec_id;
    uint64_t period_ns;
    uint64_t runtime_ns;
    uint64_t desired_ns;
    uint64_t deadline_ns;
    uint64_t accepted_ns; /* Q^a */
    uint32_t priority;    /* as declared */
    uint32_t kernel_priority;
    int32_t cpu; /* -1: all CPUs of the plugin */
    uint32_t mechanism;
    uint32_t notes;
    uint32_t owner;
    char plugin[32];          /* the serving plugin */
    uint64_t overruns;        /* times that the thread exceeded its runtime in a period */
    uint64_t last_overrun_ns; /* CLOCK_MONOTONIC; 0: never */
    uint32_t throttled;       /* 1: it waits at ordinary priority for its next refill */
    uint32_t reserved;
} talea_info;
#define TALEA_INFO_INIT \
    { sizeof(talea_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, 0, 0 }

/* Describes the specification of a grant, with the overruns of its thread. */
int talea_grant_status(talea_grant *grant, talea_info *info);

/* Describes the visible specification with the lowest number that is at least `from`. -ENOENT if
 * there is none. */
int talea_next_spec(talea_client *client, uint64_t from, talea_info *info);

/* ---- Periodic tasks -------------------------------------------------------------------------- */

#define TALEA_LATE_SKIP  1u /* skip and count the releases that have passed as a whole */
#define TALEA_LATE_SHIFT 2u /* move this release and all later ones to the end of the late job */

/* The releases of a periodic task: release k is at start_ns + k * period_ns. Needs no daemon. */
typedef struct talea_periodic {
    uint32_t size;
    uint32_t flags;     /* TALEA_LATE_...; 0: each period gets a job, late jobs run back to back */
    uint64_t start_ns;  /* CLOCK_MONOTONIC */
    uint64_t period_ns;
    uint64_t index;     /* number of the last release; 0: the start */
    uint64_t overruns;  /* waits that began after their release */
    uint64_t skipped;    /* skipped releases */
    uint64_t shifted_ns; /* by how much start_ns has moved */
} talea_periodic;
#define TALEA_PERIODIC_INIT { sizeof(talea_periodic), 0, 0, 0, 0, 0, 0, 0 }

/* Sets the start to the current time. -EINVAL for a period of 0. */
int talea_periodic_start(talea_periodic *periodic, uint64_t period_ns);

/* Sleeps until the next release, an absolute time; signals do not shorten the sleep. The first wait
 * ends one period after the start. Returns at once if the release has passed. -EINVAL before
 * talea_periodic_start. */
int talea_wait_period(talea_periodic *periodic);

/* ---- Applications of tasks ------------------------------------------------------------------- */

/*
 * An application declares tasks, the functions of their versions, the accelerators that versions
 * need, and the channels that join tasks. Its configuration selects the policy and the CPUs. The
 * model is that of YASMIN (Rouxel, Altmeyer, Grelck, Middleware 2021); yasmin.h has its names.
 * Real-time priorities come from the rights of the process or from the daemon. Without either, the
 * tasks run with ordinary priorities; the library reports this once on standard error and in the
 * report.
 *
 *     talea_app_config config = TALEA_APP_CONFIG_INIT;
 *     talea_task task = TALEA_TASK_INIT;
 *     talea_task_version version = TALEA_TASK_VERSION_INIT;
 *     talea_app *app;
 *     uint32_t id;
 *
 *     task.period_ns = 25000000;
 *     if (talea_app_new(&config, &app) || talea_app_task(app, &task, &id) ||
 *         talea_app_version(app, id, &version, work, NULL, NULL) || talea_app_start(app))
 *         return fprintf(stderr, "%s\n", talea_last_error()), 1;
 *     pause();
 *     talea_app_stop(app, NULL);
 *     talea_app_free(app);
 *
 * Functions. Threads of the application call the functions of versions. Jobs of one task run one
 * after the other; jobs of different tasks run concurrently. A function ends by returning. It must
 * not end by an exception (the library aborts the program), longjmp or pthread_exit. A function
 * and the object of its argument must exist until the application is stopped.
 *
 * Threads. A job may call talea_app_activate, talea_app_battery, talea_app_mode,
 * talea_app_permit, talea_channel_push, talea_channel_pop and talea_job_get: these take no lock,
 * do not block, allocate no memory and do not change talea_last_error(). Every other thread may
 * call them, too, except push and pop, which are reserved for jobs of the channel's source and of
 * its sink (-EPERM). All other calls return -EDEADLK in a job and in a chooser. From other threads
 * they are serialised; they return -EBUSY while another thread stops the application. A thread
 * must not use an object that another thread frees. A job waits for a device in talea_job_wait.
 *
 * Results. 0, or a negative errno with a sentence in talea_last_error(). -EINVAL: the declaration
 * is invalid. -EBUSY: the application runs, so its declarations cannot change. -ECHILD: the
 * application belongs to the parent of this child of fork().
 */
typedef struct talea_app talea_app;

/* Mapping of tasks to CPUs. */
#define TALEA_MAPPING_GLOBAL      0u /* each job runs on any free CPU of the application */
#define TALEA_MAPPING_PARTITIONED 1u /* each task runs on its `core` */
#define TALEA_MAPPING_CLUSTERED   2u /* each job runs on any free CPU among the task's `cores` */

/* Priority assignment: which job runs first. */
#define TALEA_PRIORITIES_EDF                0u /* earliest absolute deadline */
#define TALEA_PRIORITIES_RATE_MONOTONIC     1u /* shortest period */
#define TALEA_PRIORITIES_DEADLINE_MONOTONIC 2u /* shortest relative deadline */
#define TALEA_PRIORITIES_USER               3u /* largest `priority` */

/* Version selection. Candidates are the versions whose accelerators are free, or all versions if no
 * version has its accelerators. */
#define TALEA_SELECT_DECLARED  0u /* the first declared version */
#define TALEA_SELECT_ENERGY    1u /* the largest `energy` within the battery; else the smallest */
#define TALEA_SELECT_TRADE_OFF 2u /* the least weight * energy + (1000 - weight) * time_ns */
#define TALEA_SELECT_MODE      3u /* the first whose `modes` contain the mode; else the last */
#define TALEA_SELECT_MASK      4u /* the first whose `needs` are all permitted; else the last */
#define TALEA_SELECT_USER      5u /* the result of the chooser; else the last */

/* Flags of a configuration. */
#define TALEA_APP_NON_PREEMPTIVE 1u /* no job preempts another job */
#define TALEA_APP_NO_INHERITANCE 2u /* no priority inheritance between users of an accelerator */
/* -EPERM at the start without real-time priorities, or without the requested shield. */
#define TALEA_APP_REQUIRE_REAL_TIME 4u
/* Channels keep their elements from a stop to the next start; these activate their sinks again. */
#define TALEA_APP_KEEP_CHANNELS 8u
/* A shield moves foreign threads and interrupts off the application's CPUs while it runs. Requires
 * root and one more CPU (-ENODEV). */
#define TALEA_APP_SHIELD 16u

/* Source of the right to real-time priorities. */
#define TALEA_RIGHTS_ANY    0u /* the process's own, else the daemon's, else none */
#define TALEA_RIGHTS_OWN    1u /* the process's own (CAP_SYS_NICE, RLIMIT_RTPRIO), else none */
#define TALEA_RIGHTS_DAEMON 2u /* the daemon's (at TALEA_SOCKET, or the system daemon), else none */
#define TALEA_RIGHTS_UNUSED 3u /* none */

/* The configuration of an application. All zero: preemptive global EDF on one CPU, first declared
 * version. */
typedef struct talea_app_config {
    uint32_t size;
    uint32_t flags;      /* TALEA_APP_* */
    uint32_t mapping;    /* TALEA_MAPPING_* */
    uint32_t priorities; /* TALEA_PRIORITIES_* */
    uint32_t selection;  /* TALEA_SELECT_* */
    uint32_t weight;     /* TRADE_OFF: thousandths; 0: time only, 1000: energy only */
    uint32_t workers;    /* number of CPUs; 0: as many as `cpus` contains, or 1 */
    uint32_t rights;     /* TALEA_RIGHTS_* */
    uint64_t cpus[16];   /* bit n % 64 of word n / 64 is CPU n; no bit: the first CPUs that the
                          * process may use */
    uint32_t daemon_priority; /* priority that the daemon is asked for, 1 to 97; dispatchers and
                               * the watchdog are above it; 0: 50 */
    uint32_t zero;
    char daemon_plugin[32]; /* the only plugin that the daemon queries; zero-terminated; "": all */
    uint64_t spin_ns; /* length of a dispatcher's busy wait before an event, at most 1 ms and half
                       * of the wait; other threads do not get the CPU meanwhile; 0: sleep */
} talea_app_config;
#define TALEA_APP_CONFIG_INIT \
    { sizeof(talea_app_config), 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, { 0 }, 0 }

/* Creates an application. */
int talea_app_new(const talea_app_config *config, talea_app **app);

/* Frees an application and its channels, and stops it before if it runs: jobs that have not begun
 * do not run. A job that does not return within four seconds aborts the program. NULL is ignored.
 * -EDEADLK in a job and -ECHILD in a child of fork(); the application stays as it is then. */
int talea_app_free(talea_app *app);

/* Sets the configuration from the next start on. -EBUSY while the application runs. */
int talea_app_configure(talea_app *app, const talea_app_config *config);

/* The argument of a chooser: the state that a version is selected by. */
typedef struct talea_choice {
    uint32_t size;
    uint32_t task;
    uint64_t job;       /* number of the job in its task, from 0 */
    uint64_t free;      /* bit k: the accelerators of version k are free */
    uint64_t battery;   /* last value of talea_app_battery; UINT64_MAX after the start */
    uint64_t permitted; /* last value of talea_app_permit; all bits after the start */
    uint32_t mode;      /* last value of talea_app_mode; 0 after the start */
    uint32_t versions;  /* number of versions of the task */
} talea_choice;

/* A chooser: returns the number of a version, from 0. The scheduler calls it with its lock held: it
 * must be short and must not block. It must not call this library: calls that would wait for the
 * application return -EDEADLK. An exception aborts the program. */
typedef int32_t (*talea_chooser)(const talea_choice *choice, void *data);

/* Sets the chooser, and with it TALEA_SELECT_USER. */
int talea_app_choose(talea_app *app, talea_chooser choose, void *data);

/* Arrival model of a task. */
#define TALEA_TASK_PERIODIC  0u /* every period_ns, from offset_ns after the start on */
#define TALEA_TASK_SPORADIC  1u /* on activation; releases are at least period_ns apart */
#define TALEA_TASK_ACTIVATED 2u /* on activation */
#define TALEA_TASK_NODE      3u /* when each channel and edge into the task has enough tokens */

/* Value of `backlog`: a job that arrives while another job is pending is refused. */
#define TALEA_BACKLOG_NONE UINT32_MAX

/* A task. */
typedef struct talea_task {
    uint32_t size;
    uint32_t kind;        /* TALEA_TASK_* */
    uint64_t period_ns;   /* PERIODIC and SPORADIC: required; otherwise 0 */
    uint64_t deadline_ns; /* relative, shorter or longer than the period; 0: period_ns, or the
                           * deadline of the graph; required for ACTIVATED */
    uint64_t offset_ns;   /* of the first release; PERIODIC only */
    uint32_t priority;    /* 0 to 255, larger runs first; with TALEA_PRIORITIES_USER */
    uint32_t core;        /* CPU of the application, from 0; with TALEA_MAPPING_PARTITIONED */
    uint32_t backlog;     /* limit of jobs that wait behind the current job; 0: 64 */
    uint32_t server;      /* 1 + number of the task's server; 0: none */
    char name[32];        /* for reports and messages; zero-terminated; "": "task" and its number */
    uint64_t cores;       /* bit k: CPU k of the application; 0: all; with MAPPING_CLUSTERED */
} talea_task;
#define TALEA_TASK_INIT { sizeof(talea_task), 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0 }

/* Servers (reservations). All tasks of a server share budget_ns of CPU time every period_ns, and
 * interfere with other tasks by no more than that, however often they are activated. */
#define TALEA_SERVER_DEFERRABLE 0u /* keeps its budget until the end of the period */
#define TALEA_SERVER_POLLING    1u /* discards its budget when no task of it is ready */
#define TALEA_SERVER_SPORADIC   2u /* refills what was consumed one period later */
#define TALEA_SERVER_BANDWIDTH  3u /* hard constant bandwidth server; with TALEA_PRIORITIES_EDF */

/* Declares a server. Servers are numbered from 0. With TALEA_MAPPING_PARTITIONED a server is on the
 * `core` of its first task. All tasks of a server must have the same `core` under every mapping,
 * because the mapping can change (-EINVAL). */
int talea_app_server(talea_app *app, const char *name, uint32_t kind, uint64_t budget_ns,
                     uint64_t period_ns, uint32_t *id);

/* Declares a task. Tasks are numbered from 0. */
int talea_app_task(talea_app *app, const talea_task *task, uint32_t *id);

/* Replaces the declaration of a task from the next start on. Its versions, channels and edges stay.
 * TALEA_TASK_ACTIVATED makes a task rest. */
int talea_app_replace_task(talea_app *app, uint32_t id, const talea_task *task);

/* Use of the CPU of a job in talea_job_wait, while the job waits for a device. */
#define TALEA_WAIT_FREE 0u /* the job suspends itself: other jobs run meanwhile */
#define TALEA_WAIT_SPIN 1u /* the job polls: it keeps its CPU and consumes CPU time */
#define TALEA_WAIT_HOLD 2u /* the job sleeps and keeps its CPU: less urgent jobs do not run */

/* A version: one implementation of a task. Fields that the version selection does not use may stay
 * zero. */
typedef struct talea_task_version {
    uint32_t size;
    uint32_t wait;    /* TALEA_WAIT_* */
    uint64_t energy;  /* consumption of a job, in the unit of the battery; with ENERGY, TRADE_OFF */
    uint64_t time_ns; /* worst-case execution time; with TRADE_OFF, and for talea_app_describe. With
                       * the daemon's rights it is reserved on each CPU where the job may run */
    uint64_t modes;   /* bit k: meant for mode k; 0: all modes; with MODE */
    uint64_t needs;   /* required permissions, one bit each; with MASK */
    char name[32];
    uint64_t wait_ns; /* longest waits of a job in total, beside time_ns; for talea_app_describe */
} talea_task_version;
#define TALEA_TASK_VERSION_INIT { sizeof(talea_task_version), 0, 0, 0, 0, 0, { 0 }, 0 }

/* Adds a version to a task. Its jobs call function(argument). Versions of a task are numbered from
 * 0, at most 64, in order of preference; `id` may be NULL. */
int talea_app_version(talea_app *app, uint32_t task, const talea_task_version *version,
                      void (*function)(void *argument), void *argument, uint32_t *id);

/* Declares an accelerator; at most 64. */
int talea_app_accelerator(talea_app *app, const char *name, uint32_t *id);

/* Declares that a version needs an accelerator. A job holds all its accelerators from its start to
 * its end. */
int talea_app_uses(talea_app *app, uint32_t task, uint32_t version, uint32_t accelerator);

/* Declares a precedence edge: a job of `to` is released when a job of `from` has completed. */
int talea_app_edge(talea_app *app, uint32_t from, uint32_t to);

/* A bounded FIFO queue of elements of `item_size` bytes. The library copies elements. */
typedef struct talea_channel talea_channel;

/* Declares a channel with room for `length` elements (at most 1048576, and 1 GiB). A job of `to` is
 * released per `tokens` elements (0: 1). The channel exists as long as the application. It is empty
 * at each start, unless TALEA_APP_KEEP_CHANNELS is set. */
int talea_app_channel(talea_app *app, uint32_t from, uint32_t to, size_t item_size, uint32_t length,
                      uint32_t tokens, talea_channel **channel);

/* Appends a copy of `*item`, from a job of the source. The element is visible to the sink when that
 * job has completed. -EAGAIN: the channel is full (the report counts this). -EPERM: the calling
 * thread runs no job of the source. -EMSGSIZE: `size` is not the size of an element. */
int talea_channel_push(talea_channel *channel, const void *item, size_t size);

/* Removes the first element, from a job of the sink. Its room is free when that job has completed.
 * -EAGAIN: the channel is empty (the report counts this); `*item` is unchanged. -EPERM: the calling
 * thread runs no job of the sink. -EMSGSIZE: `size` is not the size of an element. */
int talea_channel_pop(talea_channel *channel, void *item, size_t size);

/* Starts the application. Returns when its start, time zero of all offsets, is fixed in the near
 * future. A failure leaves all declarations in place: -EINVAL, -ENODEV (the system does not have
 * these CPUs), -EPERM (with TALEA_APP_REQUIRE_REAL_TIME). */
int talea_app_start(talea_app *app);

/* The report of a run. */
typedef struct talea_app_report {
    uint32_t size;
    uint32_t real_time; /* 1: the threads had real-time priorities; 0: ordinary priorities */
    uint64_t length_ns;
    uint64_t refused; /* jobs refused because the backlog was full */
    uint64_t full;    /* elements refused because the channel was full */
    uint64_t empty;   /* pops from empty channels */
    uint32_t tasks;   /* number of tasks */
    uint32_t rights;  /* TALEA_RIGHTS_*: source of the real-time priorities; UNUSED: none */
    char rights_error[256]; /* why the application got none, if it asked for them; else "" */
    uint32_t shielded; /* 1: a shield was active during the run; with TALEA_APP_SHIELD */
    uint32_t moved_threads;    /* threads that the shield moved */
    uint32_t moved_interrupts; /* interrupts that the shield moved */
    uint32_t not_moved;        /* threads and interrupts that could not be moved */
    uint32_t foreign_threads;  /* foreign threads on the application's CPUs at the end */
    uint32_t not_restored;     /* moved ones that another program changed meanwhile, or whose
                                * restoration the kernel refused */
    char shield_error[256]; /* why no shield was active, if the application asked for it; else "" */
} talea_app_report;
#define TALEA_APP_REPORT_INIT \
    { sizeof(talea_app_report), 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, 0, 0, 0, 0, { 0 } }

/* Stops the application: no new job arrives; pending jobs complete, and so do the jobs that their
 * graphs activate. Afterwards the application can be changed and started again. Channels are empty
 * then, unless TALEA_APP_KEEP_CHANNELS is set. `report` may be NULL. -ESRCH: the application does
 * not run. -EPERM, -ENODEV or -EIO, with a sentence: the run ended early; the application is
 * stopped. */
int talea_app_stop(talea_app *app, talea_app_report *report);

/* Copies the report of the last stopped run. -ENOENT if there is none. */
int talea_app_report_get(talea_app *app, talea_app_report *report);

/* The report of a task of that run. */
typedef struct talea_task_report {
    uint32_t size;
    uint32_t versions;   /* number of versions */
    uint64_t jobs;       /* completed jobs */
    uint64_t late;       /* completed jobs that missed their deadlines */
    uint64_t longest_ns; /* longest response time */
    uint64_t mean_ns;    /* mean response time */
    uint64_t version_jobs[64]; /* [k]: jobs that started in version k */
    char name[32];
    int32_t policy;      /* kernel policy of the task's thread at the start of the run: SCHED_FIFO,
                          * SCHED_OTHER, ...; -1: unknown */
    uint32_t priority;   /* of SCHED_FIFO and SCHED_RR */
} talea_task_report;
#define TALEA_TASK_REPORT_INIT { sizeof(talea_task_report), 0, 0, 0, 0, 0, { 0 }, { 0 }, 0, 0 }
int talea_task_report_get(talea_app *app, uint32_t task, talea_task_report *report);

/* Activates a sporadic or activated task, or adds one job to any other task. -ESRCH: the
 * application does not run, or has no such task. -ECHILD in a child of fork(). The report counts
 * jobs that the backlog refuses. */
int talea_app_activate(talea_app *app, uint32_t task);

/* Sets an off-line schedule from the next start on, in place of the policy. `table` is the text of
 * a system file whose root has the policy "table" and whose tasks have the names of the
 * application's tasks: `talea analyze --synthesize table` makes one from talea_app_describe. NULL
 * selects the policy again. -EINVAL: the text has no such table, or names other tasks. */
int talea_app_set_table(talea_app *app, const char *table);

/* Writes the application as a system file, for `talea analyze`, `simulate` and `compare`: the text
 * and a terminating zero, at most `room` bytes. `length`, unless NULL, receives the length of the
 * text without the zero, also if there is not enough room. Every version must declare time_ns;
 * names of tasks and versions consist of letters, digits, `_`, `-` and `.`. Activated tasks have no
 * arrivals in the file. -ENOSPC: not enough room, nothing is written; `text` may be NULL if
 * `room` is 0. -EINVAL: a system file cannot express the application (a chooser, for example). */
int talea_app_describe(talea_app *app, char *text, size_t room, size_t *length);

/* Set the state that versions are selected by, from the next job on. At each start the battery is
 * full, the mode is 0 and everything is permitted. -ESRCH: the application does not run. */
int talea_app_battery(talea_app *app, uint64_t battery); /* charge, in the unit of `energy` */
int talea_app_mode(talea_app *app, uint32_t mode);       /* 0 to 63 */
int talea_app_permit(talea_app *app, uint64_t permitted);

/* The job of the calling thread. */
typedef struct talea_job {
    uint32_t size;
    uint32_t task;
    uint64_t number;  /* number of the job in its task, from 0 */
    uint32_t version; /* the selected version */
    uint32_t zero;
} talea_job;
#define TALEA_JOB_INIT { sizeof(talea_job), 0, 0, 0, 0 }

/* Describes the job of the calling thread. -ENOENT if it runs none. */
int talea_job_get(talea_job *job);

/* Waits for a device in a job: calls wait(argument), and returns its result. The field `wait` of
 * the job's version says what the CPU does meanwhile. The job continues when it is scheduled again,
 * and keeps its accelerators. The function should only wait, in a system call (or poll, with
 * TALEA_WAIT_SPIN): with TALEA_WAIT_FREE it runs above all jobs. It repeats a call that fails with
 * EINTR, and ends by returning. With the daemon's rights the job notices the end of a wait when the
 * job that has the CPU ends or waits. In a thread that runs no job, and within another wait, the
 * call has no other effect. -EINVAL: `wait` is NULL. */
int talea_job_wait(int (*wait)(void *argument), void *argument);

/* Returns the version of the library, such as "0.1.0". */
const char *talea_version(void);

#ifdef __cplusplus
}
#endif

#endif
