/*
 * talea_sched.h - scheduling policies and servers in a shared object.
 *
 * An object exports one function, talea_sched_entry(), which returns a table of policies and
 * servers. `talea simulate --object FILE.so` and `talea execute --object FILE.so` add their names
 * to those of system files (`policy = "NAME"`, `server = "NAME"`). L3C (RTNS 2017, section 4.2)
 * calls these plug-ins; the functions are those of the Rust traits `Policy` and `Server` of
 * talea-core.
 *
 * Process. The object runs in the process of the command, with the rights of its user: a fault of
 * the object ends the command. The daemon and its plugin hosts never load such an object (their
 * interface is talea_plugin.h). Root loads only a file that no other user can change.
 *
 * Threads. The functions of one instance are never called at the same time. Different instances
 * may be called by different threads at the same time, so an object has no global variable that it
 * writes after talea_sched_entry().
 *
 * Time. A policy is called on the path of each scheduling decision. After create() and admit(), its
 * functions neither allocate memory, nor wait, nor make system calls.
 *
 * Before a policy is used, Talea checks the contract that the head comment of each function states,
 * by random sequences of calls on instances of its own.
 *
 * Binary interface. Everything here is plain C with fixed-width types. Every table starts with its
 * size in bytes. Later versions of this file append members only.
 */
#ifndef TALEA_SCHED_H
#define TALEA_SCHED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TALEA_SCHED_ABI 1

/* Times and durations are in nanoseconds. Times count from the start of the run. */
#define TALEA_SCHED_NEVER UINT64_MAX

/* Criteria by which a policy may order its children. */
struct talea_sched_criteria {
    uint64_t deadline_ns;          /* absolute deadline; TALEA_SCHED_NEVER: none */
    uint64_t arrival_ns;           /* arrival of the job */
    uint64_t period_ns;            /* T */
    uint64_t relative_deadline_ns; /* D */
    uint8_t priority;              /* 0..255, larger is more urgent */
    uint8_t criticality;           /* larger is more critical */
    uint8_t yields;                /* 1: behind the others of its priority */
    uint8_t reserved[5];           /* 0 */
};

/* A ready child. */
struct talea_sched_child {
    uint32_t child;     /* number, from 0, in the order of the system file */
    uint32_t job;       /* number of the current job, modulo 2^32; unchanged after a wait */
    uint64_t ready_seq; /* order in which children became ready */
    struct talea_sched_criteria criteria;
};

/* A child before the run. */
struct talea_sched_info {
    uint32_t child;   /* number, from 0 */
    uint32_t has_cost; /* 1: cost_ns is known */
    uint64_t cost_ns; /* largest cost of a job, or budget of a server */
    const char *name; /* valid during the call only */
    struct talea_sched_criteria criteria; /* constant criteria */
};

/* Result of a function that may change the first child or its allowance. */
#define TALEA_SCHED_KEEP 0 /* both are unchanged */
#define TALEA_SCHED_PICK 1 /* ask again */

/* Phases of one instant, in order. */
#define TALEA_SCHED_ENDS 0     /* ends of slots and of exhausted budgets */
#define TALEA_SCHED_ARRIVALS 1 /* arrivals of jobs */
#define TALEA_SCHED_STARTS 2   /* refills of budgets and starts of slots */

/* No child. */
#define TALEA_SCHED_NONE (-1)

/* A scheduling policy: a list of ready children, ordered (SF3P, RSP 2014, section V-B). */
struct talea_sched_policy {
    uint32_t size;    /* sizeof(struct talea_sched_policy) */
    uint32_t reserved; /* 0 */
    const char *name; /* name in system files: small letters, digits and dashes */

    /* An instance for a scheduler with this number of children; NULL: no memory. */
    void *(*create)(uint32_t children);
    void (*destroy)(void *self);

    /* Each child in order, before the run. NULL: accepted; else the reason, in static memory. May
     * be NULL: every child is accepted. */
    const char *(*admit)(void *self, const struct talea_sched_info *info);

    /* A child has become eligible, is no longer eligible, or has changed criteria (SF3P Table I).
     * Return TALEA_SCHED_PICK or TALEA_SCHED_KEEP. */
    int32_t (*ready)(void *self, uint64_t now_ns, const struct talea_sched_child *entry);
    int32_t (*finished)(void *self, uint64_t now_ns, uint32_t child);
    int32_t (*update)(void *self, uint64_t now_ns, const struct talea_sched_child *entry);

    /* The first ready child, or TALEA_SCHED_NONE. Ties go to the lowest number. */
    int64_t (*head)(const void *self, uint64_t now_ns);
    /* 1 if `a` comes before `b`: a strict order, of which head() is the minimum. Only the two
     * entries, earlier admit() calls and, with charge() or wake(), these calls may matter. */
    int32_t (*before)(const void *self, uint64_t now_ns, const struct talea_sched_child *a,
                      const struct talea_sched_child *b);

    /* `child` has consumed CPU time. NULL: the policy does not need it. A policy with charge() or
     * wake() serves roots with one CPU only. */
    int32_t (*charge)(void *self, uint64_t now_ns, uint32_t child, uint64_t used_ns);
    /* CPU time until the first child may change; TALEA_SCHED_NEVER: unlimited. May be NULL. */
    uint64_t (*allowance)(const void *self, uint64_t now_ns, uint32_t child);
    /* Next time at which the first child may change without a call, with its phase;
     * TALEA_SCHED_NEVER: none. Both are given or both are NULL. */
    uint64_t (*next_wakeup)(const void *self, uint32_t *phase);
    int32_t (*wake)(void *self, uint64_t now_ns, uint32_t phase);
};

/* A server: keeps a budget of CPU time in each period (L3C section 4.1). */
struct talea_sched_server {
    uint32_t size;    /* sizeof(struct talea_sched_server) */
    uint32_t reserved; /* 0 */
    const char *name; /* name in system files */

    /* An instance with budget Q, period T, relative deadline D and the start of the first period;
     * NULL: no memory. */
    void *(*create)(uint64_t budget_ns, uint64_t period_ns, uint64_t deadline_ns,
                    uint64_t offset_ns);
    void (*destroy)(void *self);

    /* The first client has become ready, or none is ready any more. */
    void (*wake)(void *self, uint64_t now_ns);
    void (*idle)(void *self, uint64_t now_ns);
    /* Clients have consumed CPU time: at most budget(). */
    void (*charge)(void *self, uint64_t now_ns, uint64_t used_ns);
    /* The budget is exhausted. */
    void (*exhausted)(void *self, uint64_t now_ns);
    /* The refill of next_refill() is due. */
    void (*refill)(void *self, uint64_t now_ns);
    /* CPU time that clients may consume now; 0: they wait. */
    uint64_t (*budget)(const void *self, uint64_t now_ns);
    /* Time of the next refill; TALEA_SCHED_NEVER: none. After refill(), it is later. */
    uint64_t (*next_refill)(const void *self, uint64_t now_ns);
    /* Deadline of the current budget. */
    uint64_t (*deadline)(const void *self);
};

/* All policies and servers of an object. */
struct talea_sched_object {
    uint32_t size; /* sizeof(struct talea_sched_object) */
    uint32_t abi;  /* TALEA_SCHED_ABI */
    const struct talea_sched_policy *const *policies; /* ends with NULL; NULL: none */
    const struct talea_sched_server *const *servers;  /* ends with NULL; NULL: none */
};

/*
 * The one exported symbol. `abi` is the version that Talea asks for; return NULL if the object does
 * not have it. The tables stay valid as long as the object is loaded.
 */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct talea_sched_object *talea_sched_entry(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
