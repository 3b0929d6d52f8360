/*
 * tasks.h - the tasks of an example plugin, and the order in which it tries CPUs.
 */
#ifndef TASKS_H
#define TASKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "share.h"
#include "talea_plugin.h"

struct task {
    uint64_t id;
    int32_t cpu;
    int attached;
    uint64_t work;   /* granted runtime; 0 if none is declared */
    uint64_t span;   /* min(T, D) */
    uint64_t period; /* T */
    int32_t level;   /* kernel priority, as the daemon knows it */
};

static struct task *tasks;
static size_t task_count, capacity;
/* Room for the exact sums. */
static struct share *shares;
static uint64_t *rests;

static inline struct task *find(uint64_t id)
{
    for (size_t i = 0; i < task_count; i++)
        if (tasks[i].id == id)
            return &tasks[i];
    return NULL;
}

static inline void *resized(void *old, size_t size)
{
    void *new = realloc(old, size);
    if (!new)
        abort(); /* talead takes the plugin out of service and continues */
    return new;
}

static inline struct task *add(struct task task)
{
    if (!rests || task_count + 2 > capacity) {
        capacity = 2 * capacity + 64;
        tasks = resized(tasks, capacity * sizeof *tasks);
        shares = resized(shares, (capacity + 1) * sizeof *shares);
        rests = resized(rests, (capacity + 1) * sizeof *rests);
    }
    tasks[task_count] = task;
    return &tasks[task_count++];
}

static inline uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* min(T, D). */
static inline uint64_t span_of(const struct talea_plugin_task *task)
{
    return task->deadline_ns ? least(task->period_ns, task->deadline_ns) : task->period_ns;
}

/* Rejects a task with a reason. */
static inline int32_t no(struct talea_plugin_place *place, const char *why)
{
    snprintf(place->reason, sizeof place->reason, "%s", why);
    return TALEA_PLUGIN_NO;
}

/* Sum of the rounded shares on a CPU, without the task that leaves, and the number of tasks. */
static inline u128 load(int32_t cpu, const struct task *leaving, uint32_t *count)
{
    u128 sum = 0;
    *count = 0;
    for (size_t i = 0; i < task_count; i++)
        if (tasks[i].cpu == cpu && &tasks[i] != leaving) {
            sum += tasks[i].work ? share_up(tasks[i].work, tasks[i].span) : 0;
            ++*count;
        }
    return sum;
}

/* As many CPUs are tried, of the preferred ones and of the others. */
#define TRIED 8

/*
 * Stores the CPUs to be tried: the preferred ones first, by load, then by number of tasks, then by
 * number (worst fit; ReTiF, J. Systems Architecture 2021, section 5.1). Returns how many.
 */
static inline int worst_fit(const struct talea_plugin_task *task, const struct task *leaving,
                            int32_t order[2 * TRIED])
{
    int count = 0;
    for (int preferred = 1; preferred >= 0; preferred--) {
        u128 last_load = 0;
        int64_t last = -1;
        for (int tries = 0; tries < TRIED; tries++) {
            u128 best_load = 0;
            int64_t best = -1; /* number of tasks, then number of the CPU */
            for (int32_t cpu = 0; cpu < TALEA_PLUGIN_CPUS; cpu++) {
                uint32_t here;
                if (!talea_plugin_has_cpu(&task->cpus, cpu)
                    || talea_plugin_has_cpu(&task->preferred, cpu) != preferred)
                    continue;
                u128 sum = load(cpu, leaving, &here);
                int64_t key = (int64_t)here << 32 | cpu;
                int after = last < 0 || sum > last_load || (sum == last_load && key > last);
                if (after && (best < 0 || sum < best_load || (sum == best_load && key < best))) {
                    best_load = sum;
                    best = key;
                }
            }
            if (best < 0)
                break;
            order[count++] = (int32_t)(best & INT32_MAX);
            last_load = best_load;
            last = best;
        }
    }
    return count;
}

/* Stores the shares on a CPU and that of a new task; returns how many. */
static inline size_t shares_on(int32_t cpu, const struct task *leaving, struct share candidate)
{
    size_t count = 0;
    for (size_t i = 0; i < task_count; i++)
        if (tasks[i].cpu == cpu && &tasks[i] != leaving && tasks[i].work)
            shares[count++] = (struct share){tasks[i].work, tasks[i].span};
    shares[count++] = candidate;
    return count;
}

#endif
