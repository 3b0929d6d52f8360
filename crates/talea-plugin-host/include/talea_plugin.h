/*
 * talea_plugin.h - the interface of a scheduling plugin for talead.
 *
 * A plugin is a shared object that exports one function, talea_plugin_entry(). It decides; it never
 * acts. The daemon asks it the questions of ReTiF's Table 4 (J. Systems Architecture 2021, section
 * 3.4), one at a time, and makes every system call itself: a plugin answers with a verdict and a
 * placement. It may grant a runtime up to the desired one, choose the parameters of the deadline
 * class, give its tasks new levels, and explain a rejection. The daemon checks each answer.
 *
 * Process. Each [[plugin]] entry of kind "foreign" gets a separate process (talea-plugin-host),
 * with no rights, no network, no files and no other processes: from its first instruction on it
 * reads libraries and itself only, so its configuration is its argument. The same .so under two
 * names runs twice and shares nothing. All calls come from one thread. It may use the C library,
 * allocate memory, and write to stderr (the daemon's log shows that output). A plugin that crashes,
 * exits or answers late is taken out of service until the daemon has started it again, after 100 ms
 * at first and 10 s at most; time without a CPU does not count as late. A plugin that answers
 * outside its bounds stays out of service. Meanwhile its tasks keep their threads' attributes, and
 * new requests skip it. The daemon passes the tasks of the plugin to the new process by schedule()
 * and attach().
 *
 * Order of calls.
 *
 *     talea_plugin_entry -> init
 *     -> { accept | change | (schedule | release | attach | detach) rank }* -> fini
 *
 *   accept(task)            whether the task could be served. Changes nothing: many questions lead
 *                           to no grant.
 *   change(id, task)        the same, as if task `id` were gone. Changes nothing.
 *   schedule(id, task, a)   the task is now the plugin's, placed as in `a`. A known `id` is
 *                           replaced.
 *   attach(id), detach(id)  a thread now runs, or no longer runs, under the task.
 *   release(id)             the task is no longer the plugin's.
 *   rank(ranks, room)       optional: new levels of tasks that the plugin holds.
 *
 * A plugin with a ledger updates it in schedule() and release(). The daemon calls accept() and
 * change() only after each earlier schedule() and release(). The placement in schedule() is one
 * that accept() or change() answered, with two exceptions. The access rules may have reduced the
 * granted runtime; it is never below the runtime of the task. The daemon passes tasks that outlive
 * it to the plugin of the next daemon by schedule().
 *
 * Binary interface. Everything here is plain C with fixed-width types. Every structure starts with
 * its size in bytes: a field may be read only if it lies within the size, and later versions only
 * append fields. The version of this file is TALEA_PLUGIN_ABI. A daemon of version 2 also loads a
 * plugin of version 1: it calls talea_plugin_entry(2), and then talea_plugin_entry(1). A plugin of
 * version 1 is called with the structures of version 1.
 */
#ifndef TALEA_PLUGIN_H
#define TALEA_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TALEA_PLUGIN_ABI 2

/* CPUs are numbered 0 .. TALEA_PLUGIN_CPUS-1, as the kernel numbers them. */
#define TALEA_PLUGIN_CPUS 1024

/* A set of CPUs: bit (cpu % 64) of word (cpu / 64). */
struct talea_plugin_cpus {
    uint64_t word[TALEA_PLUGIN_CPUS / 64];
};

/* Whether `cpu` is in the set. */
static inline int talea_plugin_has_cpu(const struct talea_plugin_cpus *set, int32_t cpu)
{
    return cpu >= 0 && cpu < TALEA_PLUGIN_CPUS && (set->word[cpu / 64] >> (cpu % 64) & 1) != 0;
}

/* What the administrator's file says about this instance. Valid during init() only. */
struct talea_plugin_setup {
    uint32_t size;                 /* sizeof(struct talea_plugin_setup) */
    int32_t priority_low;          /* the instance's kernel priorities: least urgent ... */
    int32_t priority_high;         /* ... and most urgent, 1..99 */
    uint32_t reserved;             /* 0 */
    struct talea_plugin_cpus cpus; /* where it may place tasks */
    const char *name;              /* the instance's name */
    const char *argument;          /* `argument` of its entry, "" if there is none */
    /* Since version 2. */
    uint32_t sched_class;          /* TALEA_PLUGIN_FIFO, _RR or _DEADLINE: `class` of its entry */
    uint32_t reserved2;            /* 0 */
    uint64_t deadline_share;       /* share of a CPU that the kernel admits to the deadline class,
                                      in units of 2^-64; UINT64_MAX for a whole CPU */
    uint64_t period_min_ns;        /* shortest ... */
    uint64_t period_max_ns;        /* ... and longest period of the deadline class */
};

/* Kernel classes. An instance of the deadline class has no priorities: low and high are 0. */
#define TALEA_PLUGIN_FIFO 1u
#define TALEA_PLUGIN_RR 2u
#define TALEA_PLUGIN_DEADLINE 3u

/* A request. Undeclared parameters are 0. */
struct talea_plugin_task {
    uint32_t size;                 /* sizeof(struct talea_plugin_task) */
    uint32_t flags;                /* TALEA_PLUGIN_IGNORE_ADMISSION */
    uint64_t period_ns;            /* T */
    uint64_t runtime_ns;           /* Q: CPU time that each activation needs */
    uint64_t desired_ns;           /* Q^d: CPU time that it could use */
    uint64_t deadline_ns;          /* D */
    uint32_t priority;             /* P, 1..99 */
    uint32_t reserved;             /* 0 */
    struct talea_plugin_cpus cpus; /* where an answer would be accepted: never empty */
    /* Since version 2. */
    struct talea_plugin_cpus preferred; /* where the client prefers it; empty: no preference */
};

/* Accept the task although a test fails (the daemon has checked that the client may ask this). */
#define TALEA_PLUGIN_IGNORE_ADMISSION 1u

/* Longest reason of a rejection, in bytes with the terminator. */
#define TALEA_PLUGIN_REASON 96

/*
 * Where and how a task is placed. accept() and change() fill in cpu and priority, or for
 * TALEA_PLUGIN_NO reason. All other fields are 0 before the call, and may stay so.
 */
struct talea_plugin_place {
    uint32_t size;                 /* sizeof(struct talea_plugin_place) */
    int32_t cpu;                   /* one of the task's cpus; in schedule() -1: several */
    int32_t priority;              /* priority_low .. priority_high; 0 in the deadline class */
    uint32_t reserved;             /* 0 */
    /* Since version 2. */
    uint64_t runtime_ns;           /* Q^a: runtime_ns .. desired_ns of the task; 0: runtime_ns */
    uint64_t deadline_ns;          /* deadline class: at most D and T of the task; 0: D, or T */
    uint64_t period_ns;            /* deadline class: at most T of the task; 0: T */
    struct talea_plugin_cpus cpus; /* empty, or cpu alone; FIFO and RR: or all of the task's, if
                                      these are all of the setup's (cpu has no effect); deadline
                                      class over a root domain: empty, or all of the task's.
                                      In schedule(): the CPUs of the thread */
    char reason[TALEA_PLUGIN_REASON]; /* why not, for the client and the audit trail. The daemon
                                         replaces bytes that are not printable ASCII by '?'. */
};

/* A new level of a task that the plugin holds. */
struct talea_plugin_rank {
    uint64_t id;                   /* the task */
    int32_t priority;              /* priority_low .. priority_high */
    uint32_t reserved;             /* 0 */
};

/* Verdicts of accept() and change(); anything else takes the plugin out of service. */
#define TALEA_PLUGIN_OK 1      /* it can be served */
#define TALEA_PLUGIN_PARTIAL 0 /* its mandatory needs are met, something recommended is missing */
#define TALEA_PLUGIN_NO (-1)   /* no */

/*
 * The plugin. `self` is the pointer that init() has stored. No member may be NULL but fini and
 * rank.
 */
struct talea_plugin {
    uint32_t size; /* sizeof(struct talea_plugin) */
    uint32_t abi;  /* TALEA_PLUGIN_ABI */

    /* Once, before anything else. 0: ready. Else the daemon does not start and logs the value. */
    int32_t (*init)(const struct talea_plugin_setup *setup, void **self);
    /* Once, when the daemon ends in an orderly way; may be NULL. */
    void (*fini)(void *self);

    /* Pure questions: a TALEA_PLUGIN_* verdict, and for OK and PARTIAL a place. */
    int32_t (*accept)(void *self, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place);
    int32_t (*change)(void *self, uint64_t id, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place);

    /* Notifications. They cannot be refused. */
    void (*schedule)(void *self, uint64_t id, const struct talea_plugin_task *task,
                     const struct talea_plugin_place *place);
    void (*release)(void *self, uint64_t id);
    void (*attach)(void *self, uint64_t id);
    void (*detach)(void *self, uint64_t id);

    /*
     * Since version 2; may be NULL. The daemon calls it after each notification. It stores new
     * levels of tasks that the plugin holds, at most `room`, and returns their number. After
     * `room` levels the daemon calls it again for the rest. The daemon applies the levels of one
     * call in an order that inverts none of them meanwhile.
     */
    int32_t (*rank)(void *self, struct talea_plugin_rank *ranks, int32_t room);
};

/*
 * The one exported symbol. `abi` is a version of the daemon; return NULL if the plugin does not
 * support it. The returned table must stay valid as long as the object is loaded.
 */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct talea_plugin *talea_plugin_entry(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
