/*
 * talea.h - real-time service from Talea's daemon, and applications of real-time tasks; for C and C++.
 *
 * A program says what a task needs (a period, a runtime, a deadline, a priority: any of them, or none), the
 * daemon finds a scheduling policy that can serve it, proves that it fits, and makes a thread real-time.
 *
 *     talea_client *client;
 *     talea_grant *grant;
 *     talea_periodic clock = TALEA_PERIODIC_INIT;
 *     talea_spec spec = TALEA_SPEC_INIT;
 *
 *     spec.period_ns  = 10000000;
 *     spec.runtime_ns =  2000000;
 *     if (talea_connect(&client) != 0 || talea_create(client, &spec, &grant) != 0)
 *         return fprintf(stderr, "%s\n", talea_message()), 1;
 *     talea_attach(grant, 0);
 *     talea_periodic_start(&clock, spec.period_ns);
 *     for (;;) {
 *         work();
 *         talea_wait_period(&clock);
 *     }
 *
 * Link with -ltalea (pkg-config talea).
 *
 * Results. Every function that returns int returns 0 when it did what was asked; a positive number, one of
 * TALEA_E_*, when the daemon refused; a negative errno when something broke. Being refused is normal:
 * talea_message() says why in a sentence, with the numbers that would have been accepted, and
 * talea_refusal_get() gives the numbers.
 *
 * Time. Every duration ends in _ns and is in nanoseconds. 0 means "not declared". Clocks are CLOCK_MONOTONIC.
 *
 * Time-outs. No call waits longer than its client's time-out (2 s unless told otherwise), whatever the daemon
 * does; a dead daemon is -ECONNREFUSED, -ENOENT, -ECONNRESET or -ETIMEDOUT, never a hang and never a signal.
 * When the connection breaks, the next call makes a new one and takes the grants over again.
 *
 * Threads. Any thread may use any client and any grant, except that nobody may use what another thread is
 * giving back (talea_release, talea_leave, talea_disconnect). Calls on one client wait for each other, behind a
 * lock that does not inherit priorities: an urgent thread may wait there for a less urgent one, and with it for
 * the daemon. So use clients and grants before and after the loop, or give the urgent thread a client of its own;
 * in the loop talea_wait_period takes no lock and asks nobody. A child of fork() has no part in its parent's
 * grants: its calls make a connection of their own.
 *
 * Structures start with their size: set it with the matching INIT macro, or to sizeof the structure. Later
 * versions only append, so a program works with an older and with a newer library.
 *
 * Environment. TALEA_SOCKET names the daemon's socket; TALEA_DISABLE=1 makes every connection fail with
 * -EOPNOTSUPP. Programs with more rights than their user ignore both.
 */
#ifndef TALEA_H
#define TALEA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Refusals ------------------------------------------------------------------------------------------- */

#define TALEA_E_NOT_ALLOWED    1 /* no access rule lets this user ask for this */
#define TALEA_E_RULE_BOUND     2 /* an access rule's bound is exceeded */
#define TALEA_E_RULE_OMISSION  3 /* an access rule bounds a parameter that is not declared */
#define TALEA_E_NO_PLUGIN      4 /* no plugin can serve the request */
#define TALEA_E_UNKNOWN_PLUGIN 5 /* the named plugin does not exist */
#define TALEA_E_NO_SUCH_SPEC   6 /* there is no such spec, or it is not visible to this user */
#define TALEA_E_NOT_YOURS      7 /* the spec belongs to another user or connection */
#define TALEA_E_NO_SUCH_THREAD 8 /* the thread does not exist, or it has ended */
#define TALEA_E_OTHERS_THREAD  9 /* the thread belongs to another user */
#define TALEA_E_THREAD_TAKEN  10 /* the thread is attached to another spec */
#define TALEA_E_SPEC_TAKEN    11 /* the spec has another thread */
#define TALEA_E_NOT_ATTACHED  12 /* the spec has no thread */
#define TALEA_E_KERNEL        13 /* the kernel refused; talea_refusal.kernel_errno says how */
#define TALEA_E_QUOTA         14 /* a quota is exhausted */
#define TALEA_E_MALFORMED     15 /* the request makes no sense */
#define TALEA_E_VERSION       16 /* daemon and library have no protocol version in common */
#define TALEA_E_BAD_TOKEN     17 /* the token is wrong */
#define TALEA_E_NOT_ROOT      18 /* only root may ask this */
#define TALEA_E_BARE_TID      19 /* the daemon lives in another PID namespace and needs a pidfd */
#define TALEA_E_STOPPING      20 /* the daemon is stopping */
#define TALEA_E_BUSY          21 /* another request for this spec is under way */

/* What a refusal is about; it also fixes the unit of the numbers. */
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

/* Why a deadline could be missed, where an exact test said so. */
#define TALEA_WITNESS_NONE   0
#define TALEA_WITNESS_LATE   1 /* released with all that is as urgent, a task would end after its deadline */
#define TALEA_WITNESS_DEMAND 2 /* within a window more would be due than there is */

/* The numbers of a refusal. */
typedef struct talea_refusal {
    uint32_t size;
    int32_t code;         /* TALEA_E_* */
    uint32_t field;       /* TALEA_FIELD_* */
    int32_t kernel_errno; /* with TALEA_E_KERNEL */
    uint64_t asked;       /* what was asked for ... */
    uint64_t limit;       /* ... and the bound that it met */
    uint64_t fits;        /* the most that a plugin would take instead, in the unit of fits_field; 0: unknown */
    uint32_t fits_field;  /* TALEA_FIELD_* */
    uint32_t index;       /* which task of a group */
    uint32_t witness;     /* TALEA_WITNESS_*; the first plugin's that gave one */
    uint32_t witness_own; /* with LATE: 1 if it is the task of the request, 0 if one that is served already */
    uint64_t witness_at_ns;    /* LATE: the period of that task; DEMAND: the window */
    uint64_t witness_needs_ns; /* LATE: from its release to its end, 0: without bound; DEMAND: what would be due */
    uint64_t witness_has_ns;   /* LATE: its deadline; DEMAND: what there is */
} talea_refusal;
#define TALEA_REFUSAL_INIT { sizeof(talea_refusal), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* What the last call of this thread that did not return 0 had to say, as sentences. Valid until the thread's
 * next call; never NULL. */
const char *talea_message(void);

/* The numbers of this thread's last refusal. -ENOENT when its last call was not refused. */
int talea_refusal_get(talea_refusal *refusal);

/* A stable word for a result, such as "no-plugin"; "ok" for 0 and "failed" for negative ones. Never NULL. */
const char *talea_word(int result);

/* ---- Connecting ----------------------------------------------------------------------------------------- */

/* A connection to the daemon, which heals itself. */
typedef struct talea_client talea_client;

/* Connects to the daemon that TALEA_SOCKET names, or to the system's. */
int talea_connect(talea_client **client);

/* The same with a socket's path (NULL: as above) and a time-out for every call (0: 2 s). */
int talea_connect_to(const char *path, uint64_t timeout_ns, talea_client **client);

/* Ends the use of a client. Its connection stays open for as long as there are grants that were got through
 * it. NULL is ignored. */
void talea_disconnect(talea_client *client);

/* ---- Asking --------------------------------------------------------------------------------------------- */

/* Flags of a specification. */
#define TALEA_IGNORE_ADMISSION 1u /* accept although the plugin's test fails; needs an access rule */
#define TALEA_CPUS_MANDATORY   2u /* `cpus` is a condition, not a wish */

/* Whose end ends the grant. */
#define TALEA_OWNER_SESSION 0u /* this connection's */
#define TALEA_OWNER_PROCESS 1u /* this process's, also if the connection breaks */
#define TALEA_OWNER_THREAD  2u /* the attached thread's */

/* What a task needs. 0 means "not declared". */
typedef struct talea_spec {
    uint32_t size;
    uint32_t flags;       /* TALEA_IGNORE_ADMISSION, TALEA_CPUS_MANDATORY */
    uint64_t period_ns;   /* T: distance between activations */
    uint64_t runtime_ns;  /* Q: CPU time that each activation needs */
    uint64_t desired_ns;  /* Q^d: CPU time that each could make use of, at least Q */
    uint64_t deadline_ns; /* D: relative deadline; T when not declared */
    uint32_t priority;    /* P: 1 (least) to 99 (most urgent) */
    uint32_t owner;       /* TALEA_OWNER_* */
    char plugin[32];      /* the only plugin to ask, with its terminating zero */
    uint64_t cpus[16];    /* bit n % 64 of word n / 64 is CPU n; no bit: anywhere */
} talea_spec;
#define TALEA_SPEC_INIT { sizeof(talea_spec), 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } }

/* An accepted specification. It lives until it is given back or its owner ends. */
typedef struct talea_grant talea_grant;

/* Asks for a task to be accepted. */
int talea_create(talea_client *client, const talea_spec *spec, talea_grant **grant);

/* Asks for all of `count` tasks or none (at most 64); grants[i] answers specs[i]. */
int talea_create_group(talea_client *client, const talea_spec *specs, size_t count, talea_grant **grants);

/* Would this be accepted? Nothing is changed; talea_message() says what each plugin says. */
int talea_explain(talea_client *client, const talea_spec *spec);

/* Takes over a grant of the same user, with what talea_granted said of it. */
int talea_claim(talea_client *client, uint64_t spec_id, const uint8_t token[16], talea_grant **grant);

/* ---- Holding a grant ------------------------------------------------------------------------------------ */

/* Makes a thread real-time. `tid` is a thread's number; a process's number means its main thread; 0 means the
 * calling thread. */
int talea_attach(talea_grant *grant, pid_t tid);

/* The same for the thread of a pidfd. The descriptor stays the caller's. */
int talea_attach_pidfd(talea_grant *grant, int pidfd);

/* Puts the thread back to what it was; another one can be attached. */
int talea_detach(talea_grant *grant);

/* Replaces the parameters; the grant may move to another plugin. When it is refused everything stays as it
 * was. `owner` is not changed. */
int talea_change(talea_grant *grant, const talea_spec *spec);

/* Gives the grant back: bandwidth returns, the thread goes back to what it was. `grant` is gone afterwards,
 * whatever is returned. NULL is ignored. */
int talea_release(talea_grant *grant);

/* Leaves the grant to its owner instead of giving it back; `grant` is gone afterwards. `spec_id`, unless NULL,
 * receives its number. */
int talea_leave(talea_grant *grant, uint64_t *spec_id);

/* How the kernel enforces a grant. */
#define TALEA_FIFO            0u /* SCHED_FIFO on one CPU */
#define TALEA_RR              1u /* SCHED_RR on one CPU */
#define TALEA_DEADLINE_PINNED 2u /* SCHED_DEADLINE on one CPU */
#define TALEA_DEADLINE_GLOBAL 3u /* SCHED_DEADLINE over a whole root domain */

/* What the holder of a grant should know. */
#define TALEA_NOTE_NOT_PROVED          0x01u /* no schedulability test covers the task */
#define TALEA_NOTE_ADMISSION_IGNORED   0x02u /* the test failed and was ignored on request */
#define TALEA_NOTE_BELOW_DESIRED       0x04u /* less than the desired runtime was accepted */
#define TALEA_NOTE_LEVEL_SHARED        0x08u /* others share the kernel priority */
#define TALEA_NOTE_PARTIAL             0x10u /* a recommended parameter is missing */
#define TALEA_NOTE_CPU_WISH_IGNORED    0x20u /* the wish for CPUs could not be met */
#define TALEA_NOTE_BUDGET_NOT_ENFORCED 0x40u /* the kernel does not enforce the runtime */
#define TALEA_NOTE_COMMON_LEVELS       0x80u /* its kernel priority has its place in one order for all CPUs of the plugin */

/* What was granted. */
typedef struct talea_granted {
    uint32_t size;
    int32_t cpu;              /* where; -1: over a whole domain */
    uint64_t spec_id;         /* its number */
    uint64_t runtime_ns;      /* Q^a: accepted runtime; 0 when none was declared */
    uint64_t grain_ns;        /* how coarsely the runtime is enforced */
    uint64_t utilization_ppm; /* what it costs, in millionths of a CPU, rounded up */
    uint32_t plugin;          /* index of the plugin that serves it */
    uint32_t priority;        /* kernel priority; 0 for SCHED_DEADLINE */
    uint32_t mechanism;       /* TALEA_FIFO ... */
    uint32_t notes;           /* TALEA_NOTE_* */
    uint8_t token[16];        /* needed to claim it */
    uint32_t lost;            /* 1: the daemon has forgotten it */
    uint32_t zero;
} talea_granted;
#define TALEA_GRANTED_INIT { sizeof(talea_granted), 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0 }

/* What was granted, without asking the daemon. -ECHILD in a child of the process that holds the grant. */
int talea_granted_get(const talea_grant *grant, talea_granted *granted);

/* Q^a: accepted runtime, between the runtime and the desired one; 0 when none was declared. */
uint64_t talea_accepted_runtime_ns(const talea_grant *grant);

/* ---- Looking -------------------------------------------------------------------------------------------- */

/* The daemon in numbers. */
typedef struct talea_status {
    uint32_t size;
    uint32_t pid;
    uint64_t instance; /* differs from one start of the daemon to the next */
    uint64_t uptime_ns;
    uint64_t requests; /* served since start ... */
    uint64_t refused;  /* ... and refused */
    uint64_t wakeups;  /* of the daemon's loop */
    uint32_t plugins;
    uint32_t sessions; /* connections now */
    uint32_t specs;    /* accepted specifications now */
    uint32_t attached; /* attached threads now */
    uint32_t adopted;  /* grants taken over from an earlier daemon */
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
    uint32_t priority_low;  /* its band; zeros for the deadline class */
    uint32_t priority_high;
    uint32_t specs;          /* that it serves now */
    uint32_t out_of_service; /* 1: it failed */
} talea_plugin_info;
#define TALEA_PLUGIN_INFO_INIT { sizeof(talea_plugin_info), 0, { 0 }, { 0 }, { 0 }, 0, 0, 0, 0 }

/* The `index`-th plugin. -ENOENT: there are not so many. */
int talea_plugin_get(talea_client *client, uint32_t index, talea_plugin_info *plugin);

/* A specification that the daemon has accepted, of this program or of another. */
typedef struct talea_info {
    uint32_t size;
    uint32_t uid; /* who created it ... */
    uint32_t pid; /* ... and which process */
    uint32_t tid; /* the attached thread; 0: none */
    uint64_t spec_id;
    uint64_t period_ns;
    uint64_t runtime_ns;
    uint64_t desired_ns;
    uint64_t deadline_ns;
    uint64_t accepted_ns; /* Q^a */
    uint32_t priority;    /* as declared */
    uint32_t kernel_priority;
    int32_t cpu; /* -1: over a whole domain */
    uint32_t mechanism;
    uint32_t notes;
    uint32_t owner;
    char plugin[32]; /* that serves it */
} talea_info;
#define TALEA_INFO_INIT { sizeof(talea_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 } }

/* The specification with the lowest number that is at least `from` and that this user may see. -ENOENT: there
 * is none. */
int talea_next_spec(talea_client *client, uint64_t from, talea_info *info);

/* ---- Periodic tasks ------------------------------------------------------------------------------------- */

#define TALEA_LATE_SKIP 1u /* leave out periods that have passed as a whole, and count them */

/* The releases of a periodic task: release k is at start_ns + k * period_ns, for ever. Needs no daemon. */
typedef struct talea_periodic {
    uint32_t size;
    uint32_t flags;     /* TALEA_LATE_SKIP; otherwise every period gets its job, late ones back to back */
    uint64_t start_ns;  /* on CLOCK_MONOTONIC */
    uint64_t period_ns;
    uint64_t index;     /* of the last release; 0: the start */
    uint64_t overruns;  /* waits that began after their release had passed */
    uint64_t skipped;   /* releases that were left out */
} talea_periodic;
#define TALEA_PERIODIC_INIT { sizeof(talea_periodic), 0, 0, 0, 0, 0, 0 }

/* Starts now. -EINVAL for a period of 0. */
int talea_periodic_start(talea_periodic *periodic, uint64_t period_ns);

/* Sleeps until the next release, absolute; signals do not shorten it. The first wait ends one period after the
 * start. Returns at once when the release has passed. -EINVAL when nothing was started. */
int talea_wait_period(talea_periodic *periodic);

/* ---- Applications of tasks ------------------------------------------------------------------------------ */

/*
 * An application declares tasks, what their versions do, which accelerators these need and which channels join
 * the tasks; its configuration says by which policy and on which CPUs they run (the model of YASMIN: Rouxel,
 * Altmeyer, Grelck, Middleware 2021; its names are in yasmin.h). Real-time priorities are the process's own right, or the daemon's
 * to give; without either the tasks run as well as ordinary threads can, which is said once, on standard error, and
 * in the report.
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
 *         return fprintf(stderr, "%s\n", talea_message()), 1;
 *     pause();
 *     talea_app_stop(app, NULL);
 *     talea_app_free(app);
 *
 * Functions are called by the application's threads, the jobs of one task one after the other, those of several
 * tasks at the same time. They are ordinary functions: they return when the job is done. Nothing may leave them in another
 * way: no exception (it aborts the program), no longjmp, no pthread_exit. What they and their arguments name must
 * live until the application is stopped.
 *
 * Threads. Of the calls below jobs may make talea_app_activate, talea_app_battery, talea_app_mode, talea_app_permit,
 * talea_channel_push, talea_channel_pop and talea_job_get: these take no lock, wait for nobody, allocate nothing and
 * leave talea_message() alone. Any other thread may make them, too, but for push and pop, which are for jobs of the channel's
 * source and of its sink alone (-EPERM). All others are -EDEADLK in a job and in a chooser; from other threads they wait for each other, but not for an application that is just being stopped (-EBUSY). Nobody may use
 * what another thread frees.
 *
 * Results are as above: 0, or a negative errno with a sentence in talea_message(). -EINVAL: what is declared makes
 * no sense; -EBUSY: the application runs, and nothing can be declared; -ECHILD: it belongs to the process that this one
 * was forked from.
 */
typedef struct talea_app talea_app;

/* Where tasks run. */
#define TALEA_MAPPING_GLOBAL      0u /* each job on any CPU of the application where there is room */
#define TALEA_MAPPING_PARTITIONED 1u /* each task on its `core` alone */
#define TALEA_MAPPING_CLUSTERED   2u /* each task on its `cores`, each job where there is room among these */

/* Which job goes first. */
#define TALEA_PRIORITIES_EDF                0u /* that with the earliest absolute deadline */
#define TALEA_PRIORITIES_RATE_MONOTONIC     1u /* that with the shortest period */
#define TALEA_PRIORITIES_DEADLINE_MONOTONIC 2u /* that with the shortest relative deadline */
#define TALEA_PRIORITIES_USER               3u /* that with the largest `priority` */

/* In which version a job is done: of those whose accelerators are free, or of all if none has its own. */
#define TALEA_SELECT_DECLARED  0u /* the first that was declared */
#define TALEA_SELECT_ENERGY    1u /* the largest `energy` that the battery holds; the least if it holds none */
#define TALEA_SELECT_TRADE_OFF 2u /* the least weight * energy + (1000 - weight) * time_ns */
#define TALEA_SELECT_MODE      3u /* the first whose `modes` have the current one; else the last */
#define TALEA_SELECT_MASK      4u /* the first whose `needs` are all permitted; else the last */
#define TALEA_SELECT_USER      5u /* what the function of talea_app_choose says; else the last */

/* Flags of a configuration. */
#define TALEA_APP_NON_PREEMPTIVE 1u /* no job is interrupted by another one */
#define TALEA_APP_NO_INHERITANCE 2u /* who waits for an accelerator lends no urgency to whoever holds it */
#define TALEA_APP_INSIST         4u /* without the right to real-time priorities, or to a shield that it wants, it does not start (-EPERM) */
#define TALEA_APP_KEEP_CHANNELS  8u /* what a stop leaves in channels is there at the next start, and activates again */
#define TALEA_APP_SHIELD        16u /* its CPUs are cleared of others' threads and interrupts while it runs, which takes root; one CPU at
                                       least must be left for those (-ENODEV) */

/* Whose right to real-time priorities it uses. */
#define TALEA_RIGHTS_ANY    0u /* the process's own (CAP_SYS_NICE, or RLIMIT_RTPRIO up to 94), else the daemon's, else none */
#define TALEA_RIGHTS_OWN    1u /* the process's own, else none */
#define TALEA_RIGHTS_DAEMON 2u /* the daemon's that TALEA_SOCKET names, or the system's; else none */
#define TALEA_RIGHTS_UNUSED 3u /* none */

/* By which rules the tasks run. All zero is preemptive global EDF on one CPU, in the first version. */
typedef struct talea_app_config {
    uint32_t size;
    uint32_t flags;      /* TALEA_APP_* */
    uint32_t mapping;    /* TALEA_MAPPING_* */
    uint32_t priorities; /* TALEA_PRIORITIES_* */
    uint32_t selection;  /* TALEA_SELECT_* */
    uint32_t weight;     /* TRADE_OFF: thousandths, 0 looks at time only, 1000 at energy only */
    uint32_t workers;    /* how many CPUs; 0: as many as `cpus` names, or 1 */
    uint32_t rights;     /* TALEA_RIGHTS_* */
    uint64_t cpus[16];   /* bit n % 64 of word n / 64 is CPU n; no bit: the first that the process may use */
    uint32_t daemon_priority; /* of jobs, 1 to 97, where the daemon is asked, dispatchers and the watchdog are above; 0: 50 */
    uint32_t zero;
    char daemon_plugin[32]; /* the only plugin that the daemon is to ask, with its terminating zero */
    uint64_t spin_ns; /* dispatchers wait awake for so long before they have something to do, at most 1 ms and half of
                         the wait, and nobody else has the CPU meanwhile; 0: they sleep */
} talea_app_config;
#define TALEA_APP_CONFIG_INIT { sizeof(talea_app_config), 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, { 0 }, 0 }

/* Makes an application. */
int talea_app_new(const talea_app_config *config, talea_app **app);

/* Gives it back with its channels. One that runs is ended first: jobs that have not begun are not done. A job
 * that does not return within four seconds can't be ended otherwise than with the program, which is aborted. NULL is
 * ignored. -EDEADLK in a job and -ECHILD in a child of fork(), where it stays as it is. */
int talea_app_free(talea_app *app);

/* Other rules from the next start on. -EBUSY while it runs. */
int talea_app_configure(talea_app *app, const talea_app_config *config);

/* What a function chooses from. */
typedef struct talea_choice {
    uint32_t size;
    uint32_t task;
    uint64_t job;       /* which of its task, from 0 */
    uint64_t free;      /* bit k: version k can be had */
    uint64_t battery;   /* as last said; UINT64_MAX from the start on */
    uint64_t permitted; /* as last said; all bits from the start on */
    uint32_t mode;      /* as last said; 0 from the start on */
    uint32_t versions;  /* how many the task has */
} talea_choice;

/* Says which version, from 0. Called by the scheduler with its lock held: it must be short, must not block, and must
 * call nothing of this library; calls that would wait for the application are -EDEADLK. No exception leaves it (it aborts
 * the program). */
typedef int32_t (*talea_chooser)(const talea_choice *choice, void *data);

/* Versions are chosen by this function: sets TALEA_SELECT_USER. */
int talea_app_choose(talea_app *app, talea_chooser choose, void *data);

/* When jobs of a task come. */
#define TALEA_TASK_PERIODIC  0u /* every period_ns, from offset_ns after the start on */
#define TALEA_TASK_SPORADIC  1u /* when activated; one within period_ns of the last is released that late */
#define TALEA_TASK_ACTIVATED 2u /* when activated */
#define TALEA_TASK_NODE      3u /* when each channel and edge into it has what it needs */

/* In `backlog`: a job that comes while another one is under way is refused. */
#define TALEA_BACKLOG_NONE UINT32_MAX

/* A task. */
typedef struct talea_task {
    uint32_t size;
    uint32_t kind;        /* TALEA_TASK_* */
    uint64_t period_ns;   /* PERIODIC and SPORADIC: required; otherwise 0 */
    uint64_t deadline_ns; /* from the release on, shorter or longer than the period. 0: period_ns, or that of the
                             graph; required for ACTIVATED */
    uint64_t offset_ns;   /* of the first release; PERIODIC only */
    uint32_t priority;    /* 0 to 255, larger goes first; with TALEA_PRIORITIES_USER */
    uint32_t core;        /* which CPU of the application, from 0; with TALEA_MAPPING_PARTITIONED */
    uint32_t backlog;     /* jobs that may wait behind the one under way, more are refused; 0: 64 */
    uint32_t server;      /* 1 + the number of the server that serves it; 0: none */
    char name[32];        /* for reports and messages, with its terminating zero; "": "task" and its number */
    uint64_t cores;       /* bit k: CPU k of the application, from 0; 0: all; with TALEA_MAPPING_CLUSTERED */
} talea_task;
#define TALEA_TASK_INIT { sizeof(talea_task), 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0 }

/* Servers of CPU time: the tasks that name one have budget_ns of a CPU every period_ns, all together, and others lose no more
 * than that to them. For tasks that somebody activates, however often. */
#define TALEA_SERVER_DEFERRABLE 0u /* keeps its budget until the period ends */
#define TALEA_SERVER_POLLING    1u /* loses it whenever nobody wants it */
#define TALEA_SERVER_SPORADIC   2u /* gets back what was used a period after that */
#define TALEA_SERVER_BANDWIDTH  3u /* a constant bandwidth server that waits for its next period; with TALEA_PRIORITIES_EDF */

/* Declares a server. Servers are numbered from 0. With TALEA_MAPPING_PARTITIONED a server is on the `core` of the first task that
 * names it; all that it serves have the same `core` (-EINVAL otherwise, under every mapping, for that may be changed). */
int talea_app_server(talea_app *app, const char *name, uint32_t kind, uint64_t budget_ns, uint64_t period_ns, uint32_t *id);

/* Declares a task. Tasks are numbered from 0. */
int talea_app_task(talea_app *app, const talea_task *task, uint32_t *id);

/* Declares a task anew from the next start on; its versions, channels and edges stay. One that is to rest becomes
 * TALEA_TASK_ACTIVATED. */
int talea_app_redeclare(talea_app *app, uint32_t id, const talea_task *task);

/* A way to do what a task does. What is not selected by need not be declared. */
typedef struct talea_task_version {
    uint32_t size;
    uint32_t zero;
    uint64_t energy;  /* what a job uses up, in the unit of the battery; with ENERGY, TRADE_OFF */
    uint64_t time_ns; /* what a job takes at most; with TRADE_OFF, and for talea_app_describe. With the daemon's rights it is booked,
                         too, on each CPU where the job may run, and refused where others leave no room */
    uint64_t modes;   /* bit k: meant for mode k; 0: for all of them; with MODE */
    uint64_t needs;   /* permissions, a bit each; with MASK */
    char name[32];
} talea_task_version;
#define TALEA_TASK_VERSION_INIT { sizeof(talea_task_version), 0, 0, 0, 0, 0, { 0 } }

/* Adds a version to a task, and what its jobs do: function(argument). Versions of a task are numbered from 0, at
 * most 64, the first being preferred; `id` may be NULL. */
int talea_app_version(talea_app *app, uint32_t task, const talea_task_version *version,
                      void (*function)(void *argument), void *argument, uint32_t *id);

/* Declares an accelerator; at most 64. */
int talea_app_accelerator(talea_app *app, const char *name, uint32_t *id);

/* A version needs an accelerator: held from the begin of a job to its end, with all others that it needs. */
int talea_app_uses(talea_app *app, uint32_t task, uint32_t version, uint32_t accelerator);

/* A job of `to` comes when one of `from` has ended, without data. */
int talea_app_edge(talea_app *app, uint32_t from, uint32_t to);

/* A bounded first-in first-out queue of elements of `item_size` bytes, which are copied. */
typedef struct talea_channel talea_channel;

/* A channel with room for `length` elements (at most 1048576, and 1 GiB); a job of `to` comes for every `tokens` of
 * them (0: 1). It lives as long as the application, and is empty at each start but with TALEA_APP_KEEP_CHANNELS. */
int talea_app_channel(talea_app *app, uint32_t from, uint32_t to, size_t item_size, uint32_t length,
                      uint32_t tokens, talea_channel **channel);

/* Puts a copy of `*item` in, from a job of the source; it can be taken when that job has ended. -EAGAIN: the channel is
 * full, which the report counts; -EPERM: the calling thread does no job of the source; -EMSGSIZE: `size` is not that of its
 * elements. */
int talea_channel_push(talea_channel *channel, const void *item, size_t size);

/* Takes the first element out, from a job of the sink; its room is there when that job has ended. -EAGAIN: the channel is
 * empty, which the report counts, and `*item` stays as it was; -EPERM: the calling thread does no job of the sink; -EMSGSIZE: as above. */
int talea_channel_pop(talea_channel *channel, void *item, size_t size);

/* Runs it. Returns when its time zero is fixed, a moment ahead. When it can't be run everything stays declared:
 * -EINVAL, -ENODEV (the machine has not these CPUs), -EPERM (with TALEA_APP_INSIST). */
int talea_app_start(talea_app *app);

/* What became of a run. */
typedef struct talea_app_report {
    uint32_t size;
    uint32_t real_time; /* 1: its threads had real-time priorities; 0: it ran as well as ordinary threads can */
    uint64_t length_ns;
    uint64_t refused; /* activations without room in a backlog */
    uint64_t full;    /* elements that were pushed into full channels, and so not taken */
    uint64_t empty;   /* pops from empty channels */
    uint32_t tasks;   /* how many it had */
    uint32_t rights;  /* TALEA_RIGHTS_*: whose right to real-time priorities it was; UNUSED: it had none */
    char why_not[256]; /* why it had none, if it wanted them; else "" */
    uint32_t shielded; /* 1: its CPUs were cleared of others while it ran; with TALEA_APP_SHIELD */
    uint32_t moved_threads;    /* off these CPUs */
    uint32_t moved_interrupts; /* off these CPUs */
    uint32_t unmoved;          /* threads and interrupts that the kernel or somebody's promise kept there */
    uint32_t strangers;        /* that had come there by the end */
    uint32_t not_restored;     /* of what was moved: not put back, as somebody else has changed it meanwhile, or the kernel refused */
    char why_not_shielded[256]; /* why nothing was cleared, if it wanted that; else "" */
} talea_app_report;
#define TALEA_APP_REPORT_INIT { sizeof(talea_app_report), 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, 0, 0, 0, 0, { 0 } }

/* Stops it: no job comes any more, those that have come are done, with what their graphs activate. It may be changed and
 * started again then, with a new time zero and, but for TALEA_APP_KEEP_CHANNELS, empty channels. `report` may be NULL. -ESRCH: it does not run.
 * -EPERM, -ENODEV or -EIO, with a sentence: the run had to be ended before; it is over, and the application is stopped all the same. */
int talea_app_stop(talea_app *app, talea_app_report *report);

/* The last run that was stopped. -ENOENT: there is none. */
int talea_app_report_get(talea_app *app, talea_app_report *report);

/* What became of a task in it. */
typedef struct talea_task_report {
    uint32_t size;
    uint32_t versions;   /* how many it had */
    uint64_t jobs;       /* that have ended */
    uint64_t late;       /* of these, later than their deadlines */
    uint64_t longest_ns; /* from release to end */
    uint64_t mean_ns;
    uint64_t version_jobs[64]; /* jobs that began in version k */
    char name[32];
    int32_t policy;      /* of the thread of its jobs, as the kernel had it when the run began: SCHED_FIFO, SCHED_OTHER, ...; -1: not known */
    uint32_t priority;   /* of SCHED_FIFO and SCHED_RR */
} talea_task_report;
#define TALEA_TASK_REPORT_INIT { sizeof(talea_task_report), 0, 0, 0, 0, 0, { 0 }, { 0 }, 0, 0 }
int talea_task_report_get(talea_app *app, uint32_t task, talea_task_report *report);

/* Wants a job of a task that is sporadic or activated, or one more of any other. -ESRCH: the application does not run, or
 * has no such task; -ECHILD in a child of fork(). Whether there was room, the report says. */
int talea_app_activate(talea_app *app, uint32_t task);

/* Follows a table instead of a policy from the next start on: an off-line schedule, which says who has which CPU when, and in which version. `table` is
 * the text of a system file whose root has the policy "table", such as what `talea analyze --synthesize table` answers to
 * talea_app_describe; its tasks are called as the application's. NULL: by its policy again. -EINVAL: it has no such table, or one of others' tasks. */
int talea_app_follow(talea_app *app, const char *table);

/* The application as a system file, for `talea analyze`, `simulate` and `compare`: the text and a zero behind it, `room` bytes at most.
 * `length`, unless it is NULL, becomes how long the text is without that zero, whether there was room or not. Every version must say its time_ns; tasks and versions
 * have names, of letters, digits, `_`, `-` and `.`. Tasks that are activated do not come by themselves there. -ENOSPC: there is not enough room, and
 * nothing was written; `text` may be NULL if `room` is 0. -EINVAL: what a file can't say, such as a function that chooses versions. */
int talea_app_describe(talea_app *app, char *text, size_t room, size_t *length);

/* What has become of the world, for the versions of jobs from now on. At each start the battery is full, the mode is 0, and
 * everything is permitted. -ESRCH: the application does not run. */
int talea_app_battery(talea_app *app, uint64_t battery); /* what it holds, in the unit of `energy` */
int talea_app_mode(talea_app *app, uint32_t mode);       /* 0 to 63 */
int talea_app_permit(talea_app *app, uint64_t permitted);

/* The job that the calling thread is doing. */
typedef struct talea_job {
    uint32_t size;
    uint32_t task;
    uint64_t number;  /* which of its task, from 0 */
    uint32_t version; /* in which it is done */
    uint32_t zero;
} talea_job;
#define TALEA_JOB_INIT { sizeof(talea_job), 0, 0, 0, 0 }

/* -ENOENT: it is doing none. */
int talea_job_get(talea_job *job);

/* The library's version, such as "0.1.0". */
const char *talea_version(void);

#ifdef __cplusplus
}
#endif

#endif
