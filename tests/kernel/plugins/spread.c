/*
 * A plugin that places each task on all CPUs of its instance, or on the first CPU that is left if
 * these are not all. With the argument "blind" it always names all CPUs that are left.
 */
#include <string.h>
#include "talea_plugin.h"

static struct talea_plugin_setup own;
static int blind;

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self;
    own = *setup;
    blind = strcmp(setup->argument, "blind") == 0;
    return 0;
}

static int32_t judge(void *self, const struct talea_plugin_task *task,
                     struct talea_plugin_place *place)
{
    (void)self;
    for (place->cpu = 0; !talea_plugin_has_cpu(&task->cpus, place->cpu); place->cpu++)
        ;
    if (blind || memcmp(&task->cpus, &own.cpus, sizeof own.cpus) == 0)
        place->cpus = task->cpus;
    place->priority = own.priority_low;
    return TALEA_PLUGIN_OK;
}

static int32_t change(void *self, uint64_t id, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    (void)id;
    return judge(self, task, place);
}

static void schedule(void *self, uint64_t id, const struct talea_plugin_task *task,
                     const struct talea_plugin_place *place)
{
    (void)self, (void)id, (void)task, (void)place;
}

static void nothing(void *self, uint64_t id) { (void)self, (void)id; }

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init,
        .accept = judge, .change = change, .schedule = schedule, .release = nothing,
        .attach = nothing, .detach = nothing,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}
