/*
 * A scheduling plugin for talead: fixed priority on the CPU with the fewest tasks.
 *
 * A task must declare a priority of 1..99. The plugin maps it linearly to the priorities that the
 * administrator assigned to this instance. Ties between CPUs go to the lowest number.
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
static size_t count, capacity;

static struct task *find(uint64_t id)
{
    for (size_t i = 0; i < count; i++)
        if (tasks[i].id == id)
            return &tasks[i];
    return NULL;
}

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self; /* each instance has its own process, so static variables are private */
    low = setup->priority_low;
    high = setup->priority_high;
    return 0;
}

/* Places a task: sets CPU and priority. `old_cpu` is the present CPU of the task, or -1. */
static int32_t set_place(const struct talea_plugin_task *task, int32_t old_cpu,
                         struct talea_plugin_place *place)
{
    if (task->priority < 1 || task->priority > 99)
        return TALEA_PLUGIN_NO;
    place->cpu = -1;
    uint32_t fewest = UINT32_MAX;
    for (int32_t cpu = 0; cpu < TALEA_PLUGIN_CPUS; cpu++) {
        uint32_t others = tasks_on[cpu] - (cpu == old_cpu);
        if (talea_plugin_has_cpu(&task->cpus, cpu) && others < fewest) {
            fewest = others;
            place->cpu = cpu;
        }
    }
    place->priority = low + (int32_t)(task->priority - 1) * (high - low) / 98;
    return place->cpu < 0 ? TALEA_PLUGIN_NO : TALEA_PLUGIN_OK;
}

static int32_t accept(void *self, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    (void)self;
    return set_place(task, -1, place);
}

static int32_t change(void *self, uint64_t id, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    (void)self;
    struct task *old = find(id);
    return set_place(task, old ? old->cpu : -1, place);
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
                     const struct talea_plugin_place *place)
{
    (void)task;
    release(self, id);
    if (count == capacity) {
        capacity = 2 * capacity + 16;
        tasks = realloc(tasks, capacity * sizeof *tasks);
        if (!tasks)
            abort(); /* talead takes the plugin out of service and continues */
    }
    tasks[count++] = (struct task){id, place->cpu};
    tasks_on[place->cpu]++;
}

static void ignore(void *self, uint64_t id) { (void)self, (void)id; }

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init,
        .accept = accept, .change = change, .schedule = schedule, .release = release,
        .attach = ignore, .detach = ignore,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}
