/*
 * yasmin.h - the interface of YASMIN, implemented by Talea.
 *
 * The calls, structures and macros of the paper (Rouxel, Altmeyer, Grelck: "YASMIN: a real-time
 * middleware for COTS heterogeneous platforms", Middleware 2021, Table 1, Listings 1 and 2). Link
 * with -ltalea (pkg-config talea). New programs should use talea.h, which has handles, several
 * applications in a program, and a result for every call.
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
 * Names. Every name has the prefix yas_. The names of the listings are also defined without the
 * prefix, unless YAS_PREFIXED_ONLY is defined before this header is included. This header does not
 * include unistd.h, because Listing 2 has a function called fork.
 *
 * Configuration. The program defines the macros below before it includes this header, usually in a
 * file config.h that begins with #include <yasmin_constants.h>. The original is compiled with these
 * macros; here init() passes them to the library, with their values in the file that calls init().
 *
 *     PERIODIC_TASK_SIZE     maximum number of tasks with a period
 *     NONPERIODIC_TASK_SIZE  maximum number of sporadic tasks and of tasks without a period
 *     CHANNEL_SIZE           maximum number of channels that connect tasks
 *     VERSION_MAX_SIZE       maximum number of versions of a task
 *     HWACCEL_SIZE           maximum number of accelerators
 *     THREADS_SIZE           number of workers, each on a CPU of its own
 *     VERSION_SELECTION, MAPPING_SCHEME, PRIORITY_ASSIGNMENT  see yasmin_constants.h
 *
 * The paper describes the following properties without names; the macros are Talea's, with their
 * default values in parentheses:
 *
 *     YAS_TIME_UNIT_NS       the unit of times in TData and VSelect, in nanoseconds (1000000)
 *     YAS_PREEMPTION         YAS_ON or YAS_OFF (YAS_ON)
 *     YAS_SPIN_NS            length of a dispatcher's busy wait before an event, at most 1 ms and
 *                            half of the wait; other threads do not get the CPU meanwhile (0: it
 *                            sleeps)
 *     YAS_WORKER_CPUS        bit k: CPU k has a worker (0: the first THREADS_SIZE CPUs that the
 *                            process may use)
 *     YAS_TRADE_OFF_WEIGHT   thousandths; 0: time only, 1000: energy only (500)
 *
 * Errors. The paper's calls have no results for errors. Here a call that returns a number returns
 * YAS_INVALID (-1), and a call that returns a bool returns false. If any declaration since init()
 * was refused, start() refuses to start: it returns false, and yas_message() returns the first
 * refusal as a sentence. A declaration beyond a limit above is refused, too. In jobs only
 * channel_push and channel_pop can fail: on a full and on an empty channel they return false, and
 * the report counts this.
 *
 * Rights. Workers have real-time priorities if the process has the right to them (CAP_SYS_NICE, or
 * RLIMIT_RTPRIO up to 94) or Talea's daemon grants them. Without either, the tasks run with
 * ordinary priorities; the library reports this once on standard error.
 *
 * Semantics that the paper leaves open:
 *
 * - The consumer can pop the elements of a job when that job has completed.
 * - A channel of size 0 passes a token without data at each completion of its source.
 * - A task with channels into it is activated when each of them has a token. It has the deadline of
 *   its graph and no period of its own (start() refuses a period).
 * - A task without a period and without channels into it is activated by task_activate.
 * - For any other task, task_activate adds one job to those of its period or its channels.
 *
 * Off-line schedules (section 3.4) have no call here: see talea_app_set_table in talea.h.
 *
 * Threads. Jobs may call task_activate, channel_push, channel_pop, yas_mode, yas_permit and
 * yas_battery; these do not block. channel_push is reserved for jobs of the channel's source, and
 * channel_pop for jobs of its destination: elsewhere they return false and move nothing. Jobs wait
 * for a device in talea_job_wait of talea.h, which leaves the CPU to other jobs. All other
 * calls are for the main program; in a job, and in a function that selects versions, they have no
 * effect.
 */
#ifndef YASMIN_H
#define YASMIN_H

#include "yasmin_constants.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(PERIODIC_TASK_SIZE) || !defined(NONPERIODIC_TASK_SIZE) || !defined(CHANNEL_SIZE) || \
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

/* ---- The library ----------------------------------------------------------------------------- */

/* Numbers of tasks, of versions of a task, and of accelerators: from 0 in order of declaration. */
typedef int32_t yas_TID;
typedef int32_t yas_VID;
typedef int32_t yas_HID;
#define YAS_INVALID (-1)

/* The function of a version. A job ends when it returns; it must not end by an exception or by
 * longjmp. */
typedef void (*yas_FuncPtr)(void *static_args);

/* A task. Times are in units of YAS_TIME_UNIT_NS. */
typedef struct yas_TData {
    const char *name;        /* for reports and messages; NULL: its number */
    uint64_t period;         /* 0: its channels or task_activate activate the task */
    uint64_t deadline;       /* relative, shorter or longer than the period; 0: the period, or the
                              * deadline of the graph, or none */
    uint16_t virt_core_id;   /* number of the worker, from 0; with PARTITIONED */
    uint64_t release_offset; /* of the first job of a periodic task */
    /* Not in the paper's structure: */
    uint8_t priority; /* larger runs first; with UDF */
    uint8_t sporadic; /* 1: task_activate activates the task, and its jobs are released at least a
                       * period apart */
} yas_TData;
#define YAS_TDATA_INIT { NULL, 0, 0, 0, 0, 0, 0 }

/* The configuration that init() passes to the library. */
typedef struct yas_configuration {
    uint32_t size;
    uint32_t periodic_tasks, nonperiodic_tasks, channels, versions, accelerators, threads;
    uint32_t mapping, priorities, selection, preemption, trade_off_weight;
    uint64_t time_unit_ns;
    uint64_t worker_cpus;
    uint64_t spin_ns;
} yas_configuration;

/* VSelect in a form that does not depend on VERSION_SELECTION. */
typedef struct yas_properties {
    uint32_t size;
    uint32_t zero;
    uint64_t energy, time, modes, permissions;
} yas_properties;
typedef uint64_t (*yas_battery_function)(void);
typedef yas_VID (*yas_select_function)(yas_TID task, uint64_t free_versions, uint64_t job);

/* Functions of the library on which the calls below are built. */
void yas_init_with(const yas_configuration *configuration);
yas_TID yas_task_declare(const yas_TData *data, size_t size);
void yas_task_change_to(yas_TID task, const yas_TData *data, size_t size);
yas_VID yas_version_declare(yas_TID task, yas_FuncPtr function, void *static_args,
                            const yas_properties *properties, yas_battery_function battery,
                            yas_select_function select);

/* A channel; yas_channel_decl defines one. */
typedef struct yas_channel {
    const char *name;
    size_t item_size;
    size_t length;
    void *connected; /* for the library only */
} yas_channel;
void yas_channel_join(yas_TID source, yas_TID destination, yas_channel *channel, uint32_t tokens);
bool yas_channel_put(yas_channel *channel, const void *item, size_t size);
bool yas_channel_get(yas_channel *channel, void *item, size_t size);

/* Starts the tasks. Returns when time zero of all offsets is fixed in the near future. */
bool yas_start(void);

/* Stops the tasks: no new job arrives; pending jobs complete, and so do the jobs that their graphs
 * activate. The task set may be changed then. start() resumes with a new time zero and empty
 * channels. */
void yas_stop(void);

/* Stops the tasks, waits for the end of the workers, and removes all declarations. If the run has
 * ended early, yas_message() returns the reason. No effect in a child of fork() and in a job. */
void yas_cleanup(void);

/* Activates a sporadic task or a task without a period, or adds one job to any other task. No
 * effect while the tasks are stopped. */
void yas_task_activate(yas_TID task);

/* Declares an accelerator. */
yas_HID yas_hwaccel_decl(const char *name);

/* Declares that a version needs an accelerator, which its jobs hold from start to completion. */
void yas_hwaccel_use(yas_TID task, yas_VID version, yas_HID accelerator);

/* Returns the last message of this thread, as talea_last_error() does: after a refused start(), the
 * first refusal since init(). Not in the paper's table. */
const char *yas_message(void);

/* Returns the application, for the reports of talea.h. It exists until cleanup(); the program must
 * not free it. NULL before init(). */
struct talea_app;
struct talea_app *yas_application(void);

/* Set the state on which the selection of versions depends, while the tasks run: the execution mode
 * (0 to 63), the permissions, and the charge of the battery for tasks whose versions have no
 * get_battery_status. At each start the mode is 0, everything is permitted, and the battery is
 * full. */
bool yas_mode(uint32_t mode);
bool yas_permit(uint64_t permissions);
bool yas_battery(uint64_t energy);

#ifdef __cplusplus
}
#endif

/* ---- Definitions that depend on the configuration -------------------------------------------- */

/* Properties by which a version is selected among those whose accelerators are free. */
#if VERSION_SELECTION == YAS_ENERGY
/* Selects the largest budget within the charge of the battery; else the smallest. */
typedef struct yas_VSelect {
    uint64_t energy_budget; /* consumption of a job, in the unit of the battery */
    yas_battery_function get_battery_status; /* returns the charge of the battery; the first such
                                              * function of the versions of a task is called */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_TRADE_OFF
/* Selects the least weight * energy + (1000 - weight) * time, with time in nanoseconds. */
typedef struct yas_VSelect {
    uint64_t energy; /* consumption of a job */
    uint64_t time;   /* worst-case execution time, in units of YAS_TIME_UNIT_NS. With the daemon's
                      * rights it is reserved, as time_ns in talea.h */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_MODE
/* Selects the first version whose modes contain the current mode; else the last. */
typedef struct yas_VSelect {
    uint64_t modes; /* bit k: meant for mode k; 0: all modes */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_BIT_MASK
/* Selects the first version whose permissions are all given; else the last. */
typedef struct yas_VSelect {
    uint64_t permissions; /* required permissions, one bit each */
} yas_VSelect;
#elif VERSION_SELECTION == YAS_USER
/* Selects the result of the function; else the last version. */
typedef struct yas_VSelect {
    yas_select_function select; /* the first such function of the versions of a task is called; bit
                                 * k of free_versions: the accelerators of version k are free */
} yas_VSelect;
#else
/* Selects the first version. */
typedef struct yas_VSelect {
    uint64_t unused;
} yas_VSelect;
#endif
/* The scheduler calls the functions above with its lock held: they must be short, must not block,
 * and must not call this library. */

/* Initialises the library with this configuration, and removes all earlier declarations. */
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

/* yas_version_decl(task, function, static_args, props) declares a version of a task. Without
 * static_args, as in Listing 2, it is NULL. */
static inline yas_VID yas_version_decl4_(yas_TID task, yas_FuncPtr function, void *static_args,
                                         yas_VSelect props)
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

/* yas_task_decl(data) declares a task. yas_task_decl(data, function, static_args), as in Listing 2,
 * declares a task with its only version. */
static inline yas_TID yas_task_decl1_(const yas_TData *data)
{
    return yas_task_declare(data, sizeof *data);
}
static inline yas_TID yas_task_decl3_(const yas_TData *data, yas_FuncPtr function,
                                      void *static_args)
{
    yas_properties properties = { sizeof(yas_properties), 0, 0, 0, 0, 0 };
    yas_TID task = yas_task_declare(data, sizeof *data);
    yas_VID version;
    if (task == YAS_INVALID)
        return YAS_INVALID;
    version = yas_version_declare(task, function, static_args, &properties, NULL, NULL);
    return version == YAS_INVALID ? YAS_INVALID : task;
}

/* Changes the activation and the priority of a task while the tasks are stopped. The paper
 * describes this function without a name. */
static inline void yas_task_change(yas_TID task, const yas_TData *data)
{
    yas_task_change_to(task, data, sizeof *data);
}

#define YAS_FOURTH_(a, b, c, d, name, ...) name
#define yas_task_decl(...)                                                                         \
    YAS_FOURTH_(__VA_ARGS__, 0, yas_task_decl3_, 0, yas_task_decl1_, 0)                            \
    (__VA_ARGS__)
#define yas_version_decl(...)                                                                      \
    YAS_FOURTH_(__VA_ARGS__, yas_version_decl4_, yas_version_decl3_, 0, 0, 0)                      \
    (__VA_ARGS__)

/* Defines a channel of this file, with room for `size` elements of a type. The library copies
 * elements. Size 0: a dependency without data. */
#if defined(__GNUC__)
#define YAS_UNUSED_ __attribute__((unused))
#else
#define YAS_UNUSED_
#endif
#define yas_channel_decl(CID, datatype, size)                                                      \
    YAS_UNUSED_ static inline bool CID##_yas_push(yas_channel *to, datatype item)                  \
    {                                                                                              \
        return yas_channel_put(to, &item, sizeof item);                                            \
    }                                                                                              \
    YAS_UNUSED_ static inline bool CID##_yas_pop(yas_channel *from, datatype *item)                \
    {                                                                                              \
        return yas_channel_get(from, item, sizeof *item);                                          \
    }                                                                                              \
    static yas_channel CID = { #CID, sizeof(datatype), (size), NULL }

/* Connects two tasks: a job of `destination` is released per token of `source`, or per `tokens`
 * tokens with yas_channel_connect_tokens. */
#define yas_channel_connect(source, destination, CID)                                              \
    yas_channel_join((source), (destination), &(CID), 1)
#define yas_channel_connect_tokens(source, destination, CID, tokens)                               \
    yas_channel_join((source), (destination), &(CID), (tokens))

/* Appends a copy of a value, in a function of the source. False if the channel is full. */
#define yas_channel_push(CID, value) (CID##_yas_push(&(CID), (value)))

/* Removes the first element and copies it to `*to`, in a function of the destination. False if the
 * channel is empty. */
#define yas_channel_pop(CID, to) (CID##_yas_pop(&(CID), (to)))

/* ---- The names of the listings --------------------------------------------------------------- */

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
