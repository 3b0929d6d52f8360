/*
 * At most two control loops; the newest one has the higher priority.
 *
 *     cc -Wall -Wextra -Werror -std=c11 -shared -fPIC \
 *        -I../../../crates/talea-plugin-host/include -o two_loops.so two_loops.c
 */
#include <stdio.h>
#include "talea_plugin.h"

static int32_t low, high;
static uint64_t loop[2]; /* the newest first; 0: none */

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self;
    low = setup->priority_low;
    high = setup->priority_high;
    return 0;
}

static int32_t change(void *self, uint64_t id, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    (void)self;
    if (loop[1] && id != loop[0] && id != loop[1]) {
        snprintf(place->reason, sizeof place->reason, "two loops run; release one first");
        return TALEA_PLUGIN_NO;
    }
    for (place->cpu = 0; !talea_plugin_has_cpu(&task->cpus, place->cpu); place->cpu++)
        ;
    place->priority = high;
    place->runtime_ns = task->desired_ns; /* all that it could use; 0: its runtime */
    return TALEA_PLUGIN_OK;
}

static int32_t accept(void *self, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    return change(self, 0, task, place);
}

static void release(void *self, uint64_t id)
{
    (void)self;
    if (id == loop[0])
        loop[0] = loop[1];
    loop[1] = 0;
}

static void schedule(void *self, uint64_t id, const struct talea_plugin_task *task,
                     const struct talea_plugin_place *place)
{
    (void)self, (void)task, (void)place;
    if (id == loop[0] || id == loop[1])
        return;
    loop[1] = loop[0];
    loop[0] = id;
}

static void ignore(void *self, uint64_t id) { (void)self, (void)id; }

static int32_t rank(void *self, struct talea_plugin_rank *ranks, int32_t room)
{
    (void)self, (void)room;
    ranks[0] = (struct talea_plugin_rank){.id = loop[0], .priority = high};
    ranks[1] = (struct talea_plugin_rank){.id = loop[1], .priority = low};
    return loop[1] ? 2 : loop[0] ? 1 : 0;
}

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init,
        .accept = accept, .change = change, .schedule = schedule, .release = release,
        .attach = ignore, .detach = ignore, .rank = rank,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}
