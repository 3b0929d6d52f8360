/*
 * A scheduling plugin for talead: fixed priority on the CPU with the fewest tasks.
 *
 * A task must declare a priority of 1..99, which is mapped in a straight line onto the priorities that the
 * administrator gave to this instance. Ties between CPUs go to the lowest number.
 *
 *     cc -Wall -Wextra -Werror -std=c11 -shared -fPIC -I../../crates/talea-plugin-host/include \
 *        -o least_loaded.so least_loaded.c
 */
#include <stdlib.h>
#include "talea_plugin.h"

struct task { uint64_t id; int32_t cpu; };

static int32_t low, high;
static uint32_t tasks_on[TALEA_PLUGIN_CPUS];
static struct task *tasks;
static size_t count, room;

static struct task *find(uint64_t id)
{
    for (size_t i = 0; i < count; i++)
        if (tasks[i].id == id)
            return &tasks[i];
    return NULL;
}

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self; /* one process an instance: plain variables are private */
    low = setup->priority_low;
    high = setup->priority_high;
    return 0;
}

static int32_t place(const struct talea_plugin_task *task, int32_t leaving, struct talea_plugin_place *place)
{
    if (task->priority < 1 || task->priority > 99)
        return TALEA_PLUGIN_NO;
    place->cpu = -1;
    uint32_t fewest = UINT32_MAX;
    for (int32_t cpu = 0; cpu < TALEA_PLUGIN_CPUS; cpu++) {
        uint32_t here = tasks_on[cpu] - (cpu == leaving);
        if (talea_plugin_has_cpu(&task->cpus, cpu) && here < fewest) {
            fewest = here;
            place->cpu = cpu;
        }
    }
    place->priority = low + (int32_t)(task->priority - 1) * (high - low) / 98;
    return place->cpu < 0 ? TALEA_PLUGIN_NO : TALEA_PLUGIN_OK;
}

static int32_t accept(void *self, const struct talea_plugin_task *task, struct talea_plugin_place *where)
{
    (void)self;
    return place(task, -1, where);
}

static int32_t change(void *self, uint64_t id, const struct talea_plugin_task *task,
                      struct talea_plugin_place *where)
{
    (void)self;
    struct task *old = find(id);
    return place(task, old ? old->cpu : -1, where);
}

static void release(void *self, uint64_t id)
{
    (void)self;
    struct task *old = find(id);
    if (!old)
        return;
    tasks_on[old->cpu]--;
    *old = tasks[--count];
}

static void schedule(void *self, uint64_t id, const struct talea_plugin_task *task,
                     const struct talea_plugin_place *where)
{
    (void)task;
    release(self, id);
    if (count == room && !(tasks = realloc(tasks, (room = 2 * room + 16) * sizeof *tasks)))
        abort(); /* talead takes the plugin out of service and goes on */
    tasks[count++] = (struct task){id, where->cpu};
    tasks_on[where->cpu]++;
}

static void nothing(void *self, uint64_t id) { (void)self, (void)id; }

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init, .accept = accept, .change = change,
        .schedule = schedule, .release = release, .attach = nothing, .detach = nothing,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}
