/*
 * yasmin.h - YASMIN's interface, served by Talea.
 *
 * The calls, structures and macros of the paper (Rouxel, Altmeyer, Grelck: "YASMIN: a real-time middleware for COTS
 * heterogeneous platforms", Middleware 2021, Table 1, Listings 1 and 2). Link with -ltalea (pkg-config talea). New
 * programs should rather use talea.h: it has handles, several applications in a program, and a result for every call.
 *
 *     #include "config.h"
 *     #include <yasmin.h>
 *
 *     init();
 *     TData data = YAS_TDATA_INIT;
 *     data.name = "blink"; data.period = 250;
 *     task_decl(&data, blink, NULL);
 *     if (!start())
 *         return puts(yas_message()), 1;
 *     sleep(10);
 *     stop();
 *     cleanup();
 *
 * Names. Everything is called yas_..., and also as in the listings, without; not so where YAS_PREFIXED_ONLY is defined
 * before this is included. This header does not include unistd.h: Listing 2 has a function called fork.
 *
 * Configuration. The macros below are defined before this is included, usually in a file config.h that begins with
 * #include <yasmin_constants.h>. YASMIN was compiled with them; here init() hands them to the library, so those count that the
 * file with init() sees.
 *
 *     PERIODIC_TASK_SIZE     tasks with a period, at most
 *     NONPERIODIC_TASK_SIZE  tasks without, and sporadic ones, at most
 *     CHANNEL_SIZE           channels that connect tasks, at most
 *     VERSION_MAX_SIZE       versions of a task, at most
 *     HWACCEL_SIZE           accelerators, at most
 *     THREADS_SIZE           workers: exactly so many CPUs
 *     VERSION_SELECTION, MAPPING_SCHEME, PRIORITY_ASSIGNMENT  see yasmin_constants.h
 *
 * and, with names of ours, because the paper describes but does not name them:
 *
 *     YAS_TIME_UNIT_NS       what 1 means in TData and VSelect, in nanoseconds (1000000: milliseconds)
 *     YAS_PREEMPTION         YAS_ON or YAS_OFF (YAS_ON)
 *     YAS_SPIN_NS            how long the scheduler waits awake before it has something to do, at most 1 ms and half of
 *                            the wait, and nobody else has the CPU meanwhile (0: it sleeps)
 *     YAS_WORKER_CPUS        bit k: CPU k has a worker; 0: the first THREADS_SIZE that the process may use (0)
 *     YAS_TRADE_OFF_WEIGHT   thousandths, 0 looks at time only, 1000 at energy only (500)
 *
 * Errors. The paper's calls have no results for them. Here what returns a number returns YAS_INVALID (-1), what returns a bool
 * false; and whatever was refused since init(), by a call with a result or without, too many of something among it, start() does
 * not start: it returns false, and yas_message() says in a sentence what was refused first. Jobs are refused nothing
 * else than room and data: channel_push is false when the channel is full and channel_pop when it is empty, and both are
 * counted.
 *
 * Rights. Workers have real-time priorities where the process has the right to them (CAP_SYS_NICE, or RLIMIT_RTPRIO up to 94), or
 * Talea's daemon gives it. Otherwise the tasks run as well as ordinary threads can, which is said once, on standard error.
 *
 * Semantics, where the paper leaves room: a job's pushes can be popped when it has ended; a channel of size 0 passes a token
 * without data at each end of its source; a task with channels into it is activated when each of them has a token, and is due
 * when its graph is, and has no period of its own (start() refuses one); one without channels into it and without a period is
 * activated by task_activate, which makes one job more of any other task, too, beside those of its period or its channels.
 * Off-line schedules (section 3.4) have no call here: Rust programs have `Table` for them. More in talea.h.
 *
 * Threads. task_activate, channel_push, channel_pop, yas_mode, yas_permit and yas_battery may be called by jobs: they wait for
 * nobody. channel_push is for jobs of the channel's source alone, and channel_pop for jobs of its destination: elsewhere they
 * are false, and nothing is moved. Everything else is for the main program; in a job, and in a function that chooses versions,
 * it does nothing.
 */
#ifndef YASMIN_H
#define YASMIN_H

#include "yasmin_constants.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(PERIODIC_TASK_SIZE) || !defined(NONPERIODIC_TASK_SIZE) || !defined(CHANNEL_SIZE) ||                 \
    !defined(VERSION_MAX_SIZE) || !defined(HWACCEL_SIZE) || !defined(THREADS_SIZE)
#error "yasmin.h: define PERIODIC_TASK_SIZE, NONPERIODIC_TASK_SIZE, CHANNEL_SIZE, VERSION_MAX_SIZE, HWACCEL_SIZE and THREADS_SIZE, in a config.h that is included before"
#endif
#if !defined(MAPPING_SCHEME) || MAPPING_SCHEME < YAS_GLOBAL || MAPPING_SCHEME > YAS_PARTITIONED
#error "yasmin.h: define MAPPING_SCHEME as GLOBAL or PARTITIONED"
#endif
#if !defined(PRIORITY_ASSIGNMENT) || PRIORITY_ASSIGNMENT < YAS_EDF || PRIORITY_ASSIGNMENT > YAS_UDF
#error "yasmin.h: define PRIORITY_ASSIGNMENT as EDF, RM, DM or UDF"
#endif
#if !defined(VERSION_SELECTION) || VERSION_SELECTION < YAS_DECLARED || VERSION_SELECTION > YAS_USER
#error "yasmin.h: define VERSION_SELECTION as DECLARED, ENERGY, TRADE_OFF, MODE, BIT_MASK or USER"
#endif
#ifndef YAS_TIME_UNIT_NS
#define YAS_TIME_UNIT_NS 1000000
#endif
#ifndef YAS_PREEMPTION
#define YAS_PREEMPTION YAS_ON
#endif
#ifndef YAS_WORKER_CPUS
#define YAS_WORKER_CPUS 0
#endif
#ifndef YAS_SPIN_NS
#define YAS_SPIN_NS 0
#endif
#ifndef YAS_TRADE_OFF_WEIGHT
#define YAS_TRADE_OFF_WEIGHT 500
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The library ----------------------------------------------------------------------------------------- */

/* Numbers of tasks, of versions of a task, of accelerators: from 0 in the order of declaration. */
typedef int32_t yas_TID;
typedef int32_t yas_VID;
typedef int32_t yas_HID;
#define YAS_INVALID (-1)

/* What a version does. It returns when the job is done; no exception and no longjmp leaves it. */
typedef void (*yas_FuncPtr)(void *static_args);

/* A task. Times in units of YAS_TIME_UNIT_NS. */
typedef struct yas_TData {
    const char *name;        /* for reports and messages; NULL: its number */
    uint64_t period;         /* 0: it is activated, by its channels or by task_activate */
    uint64_t deadline;       /* relative, shorter or longer than the period; 0: the period, or that of the graph, or never */
    uint16_t virt_core_id;   /* which worker, from 0; with PARTITIONED */
    uint64_t release_offset; /* of the first job of a periodic task */
    /* Not in the paper's structure: */
    uint8_t priority; /* larger goes first; with UDF */
    uint8_t sporadic; /* 1: task_activate activates it, and its jobs are never nearer to each other than the period */
} yas_TData;
#define YAS_TDATA_INIT { NULL, 0, 0, 0, 0, 0, 0 }

/* What init() hands over. */
typedef struct yas_configuration {
    uint32_t size;
    uint32_t periodic_tasks, nonperiodic_tasks, channels, versions, accelerators, threads;
    uint32_t mapping, priorities, selection, preemption, trade_off_weight;
    uint64_t time_unit_ns;
    uint64_t worker_cpus;
    uint64_t spin_ns;
} yas_configuration;

/* What VSelect becomes, whatever it has. */
typedef struct yas_properties {
    uint32_t size;
    uint32_t zero;
    uint64_t energy, time, modes, permissions;
} yas_properties;
typedef uint64_t (*yas_battery_function)(void);
typedef yas_VID (*yas_select_function)(yas_TID task, uint64_t free_versions, uint64_t job);

/* The calls below as they are in the library. */
void yas_init_with(const yas_configuration *configuration);
yas_TID yas_task_declare(const yas_TData *data, size_t size);
void yas_task_change_to(yas_TID task, const yas_TData *data, size_t size);
yas_VID yas_version_declare(yas_TID task, yas_FuncPtr function, void *static_args, const yas_properties *properties,
                            yas_battery_function battery, yas_select_function select);

/* A channel, as yas_channel_decl defines it. */
typedef struct yas_channel {
    const char *name;
    size_t item_size;
    size_t length;
    void *connected; /* the library's */
} yas_channel;
void yas_channel_join(yas_TID source, yas_TID destination, yas_channel *channel, uint32_t tokens);
bool yas_channel_put(yas_channel *channel, const void *item, size_t size);
bool yas_channel_get(yas_channel *channel, void *item, size_t size);

/* Starts to execute the tasks: time zero is a moment later. */
bool yas_start(void);

/* No job comes any more; those that have come are done, with what their graphs activate. start() resumes, with a new time
 * zero and empty channels; before it the task set may be altered. */
void yas_stop(void);

/* Stops, waits for the workers to end, and forgets everything that was declared; of a run that had to be ended before that, yas_message() says
 * why. In a child of fork(), as in a job, it does nothing. */
void yas_cleanup(void);

/* A job of a task without a period, or of a sporadic one. Ignored where nothing runs. */
void yas_task_activate(yas_TID task);

/* Declares an accelerator. */
yas_HID yas_hwaccel_decl(const char *name);

/* A version of a task uses an accelerator, from the begin of its jobs to their end. */
void yas_hwaccel_use(yas_TID task, yas_VID version, yas_HID accelerator);

/* Not in the paper's table. What was refused first; the same as talea_last_error(). */
const char *yas_message(void);

/* The application as talea.h knows it, until cleanup(): for its reports. Never to be freed. NULL before init(). */
struct talea_app;
struct talea_app *yas_application(void);

/* What has become of the world, while it runs: the execution mode (0 to 63; 0 at each start), the permissions (all at each
 * start), what the battery holds where no version has a function that says it (a full one at each start). */
bool yas_mode(uint32_t mode);
bool yas_permit(uint64_t permissions);
bool yas_battery(uint64_t energy);

#ifdef __cplusplus
}
#endif

/* ---- What depends on the configuration -------------------------------------------------------------------- */

/* By what versions are selected. */
#if VERSION_SELECTION == YAS_ENERGY
/* The largest budget that the battery still holds; the least, if it holds none of them. */
typedef struct yas_VSelect {
    uint64_t energy_budget;                  /* what a job uses up, in the unit of the battery */
    yas_battery_function get_battery_status; /* what the battery holds; the first that a version of the task has is asked */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_TRADE_OFF
/* The least weight * energy + (1000 - weight) * time, where time is in nanoseconds. */
typedef struct yas_VSelect {
    uint64_t energy; /* what a job uses up */
    uint64_t time;   /* what a job takes at most, in units of YAS_TIME_UNIT_NS. With the daemon's rights it is booked, too,
                      * as talea.h says of time_ns */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_MODE
/* The first that is meant for the current mode; else the last. */
typedef struct yas_VSelect {
    uint64_t modes; /* bit k: meant for mode k; 0: for all of them */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_BIT_MASK
/* The first all of whose needs are permitted; else the last. */
typedef struct yas_VSelect {
    uint64_t permissions; /* that it needs */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_USER
/* What the function says; the last, if that is none of those that are free. */
typedef struct yas_VSelect {
    yas_select_function select; /* the first that a version of the task has is asked; bit k of free_versions: version k */
} yas_VSelect;
#else
/* The first of those that are free. */
typedef struct yas_VSelect {
    uint64_t unused;
} yas_VSelect;
#endif
/* The functions above are called by the scheduler with its lock held: they must be short, must not block, and must call
 * nothing of this library. */

/* Initialises with this configuration. Forgets whatever was declared before. */
static inline void yas_init(void)
{
    yas_configuration configuration;
    configuration.size = sizeof configuration;
    configuration.periodic_tasks = PERIODIC_TASK_SIZE;
    configuration.nonperiodic_tasks = NONPERIODIC_TASK_SIZE;
    configuration.channels = CHANNEL_SIZE;
    configuration.versions = VERSION_MAX_SIZE;
    configuration.accelerators = HWACCEL_SIZE;
    configuration.threads = THREADS_SIZE;
    configuration.mapping = MAPPING_SCHEME;
    configuration.priorities = PRIORITY_ASSIGNMENT;
    configuration.selection = VERSION_SELECTION;
    configuration.preemption = YAS_PREEMPTION;
    configuration.trade_off_weight = YAS_TRADE_OFF_WEIGHT;
    configuration.time_unit_ns = YAS_TIME_UNIT_NS;
    configuration.worker_cpus = YAS_WORKER_CPUS;
    configuration.spin_ns = YAS_SPIN_NS;
    yas_init_with(&configuration);
}

/* yas_version_decl(task, function, static_args, props), or as in Listing 2 without static_args, which is NULL then. */
static inline yas_VID yas_version_decl4_(yas_TID task, yas_FuncPtr function, void *static_args, yas_VSelect props)
{
    yas_properties properties = { sizeof(yas_properties), 0, 0, 0, 0, 0 };
    yas_battery_function battery = NULL;
    yas_select_function select = NULL;
#if VERSION_SELECTION == YAS_ENERGY
    properties.energy = props.energy_budget;
    battery = props.get_battery_status;
#elif VERSION_SELECTION == YAS_TRADE_OFF
    properties.energy = props.energy;
    properties.time = props.time;
#elif VERSION_SELECTION == YAS_MODE
    properties.modes = props.modes;
#elif VERSION_SELECTION == YAS_BIT_MASK
    properties.permissions = props.permissions;
#elif VERSION_SELECTION == YAS_USER
    select = props.select;
#else
    (void)props;
#endif
    return yas_version_declare(task, function, static_args, &properties, battery, select);
}
static inline yas_VID yas_version_decl3_(yas_TID task, yas_FuncPtr function, yas_VSelect props)
{
    return yas_version_decl4_(task, function, NULL, props);
}

/* yas_task_decl(data), or as in Listing 2 yas_task_decl(data, function, static_args): with its only version. */
static inline yas_TID yas_task_decl1_(const yas_TData *data)
{
    return yas_task_declare(data, sizeof *data);
}
static inline yas_TID yas_task_decl3_(const yas_TData *data, yas_FuncPtr function, void *static_args)
{
    yas_properties properties = { sizeof(yas_properties), 0, 0, 0, 0, 0 };
    yas_TID task = yas_task_declare(data, sizeof *data);
    if (task != YAS_INVALID && yas_version_declare(task, function, static_args, &properties, NULL, NULL) == YAS_INVALID)
        return YAS_INVALID;
    return task;
}

/* Alters a task while nothing runs: when its jobs come, and how urgent they are. The paper has such a function, but does not
 * name it. */
static inline void yas_task_change(yas_TID task, const yas_TData *data)
{
    yas_task_change_to(task, data, sizeof *data);
}

#define YAS_FOURTH_(a, b, c, d, name, ...) name
#define yas_task_decl(...) YAS_FOURTH_(__VA_ARGS__, 0, yas_task_decl3_, 0, yas_task_decl1_, 0)(__VA_ARGS__)
#define yas_version_decl(...) YAS_FOURTH_(__VA_ARGS__, yas_version_decl4_, yas_version_decl3_, 0, 0, 0)(__VA_ARGS__)

/* Defines a channel for this file: of `size` elements of a type, which are copied. Size 0: a dependency without data. */
#if defined(__GNUC__)
#define YAS_UNUSED_ __attribute__((unused))
#else
#define YAS_UNUSED_
#endif
#define yas_channel_decl(CID, datatype, size)                                                                  \
    YAS_UNUSED_ static inline bool CID##_yas_push(yas_channel *to, datatype item)                              \
    {                                                                                                          \
        return yas_channel_put(to, &item, sizeof item);                                                        \
    }                                                                                                          \
    YAS_UNUSED_ static inline bool CID##_yas_pop(yas_channel *from, datatype *item)                            \
    {                                                                                                          \
        return yas_channel_get(from, item, sizeof *item);                                                      \
    }                                                                                                          \
    static yas_channel CID = { #CID, sizeof(datatype), (size), NULL }

/* An edge: a job of `destination` comes for every token of `source`; with yas_channel_connect_tokens for every so many. */
#define yas_channel_connect(source, destination, CID) yas_channel_join((source), (destination), &(CID), 1)
#define yas_channel_connect_tokens(source, destination, CID, tokens)                                           \
    yas_channel_join((source), (destination), &(CID), (tokens))

/* In functions of the source: puts a copy in; whether there was room. */
#define yas_channel_push(CID, value) (CID##_yas_push(&(CID), (value)))

/* In functions of the destination: takes the first out, to where `to` points; whether there was one. */
#define yas_channel_pop(CID, to) (CID##_yas_pop(&(CID), (to)))

/* ---- The names of the listings ---------------------------------------------------------------------------- */

#ifndef YAS_PREFIXED_ONLY
typedef yas_TID TID;
typedef yas_VID VID;
typedef yas_HID HID;
typedef yas_TData TData;
typedef yas_VSelect VSelect;
typedef yas_FuncPtr FuncPtr;
static inline void init(void)
{
    yas_init();
}
static inline bool start(void)
{
    return yas_start();
}
static inline void stop(void)
{
    yas_stop();
}
static inline void cleanup(void)
{
    yas_cleanup();
}
static inline void task_activate(yas_TID task)
{
    yas_task_activate(task);
}
static inline yas_HID hwaccel_decl(const char *name)
{
    return yas_hwaccel_decl(name);
}
static inline void hwaccel_use(yas_TID task, yas_VID version, yas_HID accelerator)
{
    yas_hwaccel_use(task, version, accelerator);
}
#define task_decl yas_task_decl
#define version_decl yas_version_decl
#define channel_decl yas_channel_decl
#define channel_connect yas_channel_connect
#define channel_push yas_channel_push
#define channel_pop yas_channel_pop
#endif

#endif
