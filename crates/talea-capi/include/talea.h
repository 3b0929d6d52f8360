/*
 * talea.h - ask Talea's daemon for real-time service, from C and C++.
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

/* The library's version, such as "0.1.0". */
const char *talea_version(void);

#ifdef __cplusplus
}
#endif

#endif
