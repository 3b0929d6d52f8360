/*
 * A plugin that answers one question well and then does what its argument says: "hang", "spin",
 * "crash", "exit", "lie-cpu", "lie-priority", "lie-verdict", "talk", "forge"; with "init" it
 * refuses to start, with "crash-init" it crashes at each start, with "late" it starts after three
 * seconds, and with "slow" it answers each question well after 35 ms.
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "talea_plugin.h"

static char how[64];
static int32_t low;
static int questions;

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self;
    snprintf(how, sizeof how, "%s", setup->argument);
    low = setup->priority_low;
    if (strcmp(how, "init") == 0) {
        fprintf(stderr, "no, I will not\n");
        return 42;
    }
    if (strcmp(how, "crash-init") == 0)
        *(volatile int *)8 = 0;
    if (strcmp(how, "late") == 0)
        usleep(3000000);
    return 0;
}

static int32_t judge(void *self, const struct talea_plugin_task *task,
                     struct talea_plugin_place *place)
{
    (void)self;
    for (place->cpu = 0; !talea_plugin_has_cpu(&task->cpus, place->cpu); place->cpu++)
        ;
    place->priority = low;
    if (strcmp(how, "talk") == 0)
        for (int i = 0; i < 1000; i++)
            fprintf(stderr, "line %d of question %d\n", i, questions);
    if (strcmp(how, "slow") == 0) {
        usleep(35000);
        return TALEA_PLUGIN_OK;
    }
    if (questions++ == 0)
        return TALEA_PLUGIN_OK;
    if (strcmp(how, "hang") == 0)
        for (;;)
            sleep(1000);
    if (strcmp(how, "spin") == 0)
        for (volatile int forever = 1; forever;)
            ;
    if (strcmp(how, "crash") == 0)
        *(volatile int *)8 = 0;
    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "forge") == 0) {
        /* It shares its process with its host, so it can answer in its place: `HostResponse` in
         * talea-proto, on descriptor 3. */
        const struct {
            uint64_t ticket;
            int32_t verdict, cpu, priority;
            uint32_t ranks;
            uint64_t runtime_ns, deadline_ns, period_ns, cpus[16];
            char reason[TALEA_PLUGIN_REASON];
        } answer = {
            .ticket = UINT64_MAX,
            .verdict = TALEA_PLUGIN_OK,
            .cpu = place->cpu,
            .priority = low,
        };
        send(3, &answer, sizeof answer, 0);
    }
    if (strcmp(how, "lie-cpu") == 0)
        place->cpu = 1000000;
    if (strcmp(how, "lie-priority") == 0)
        place->priority = 99;
    return strcmp(how, "lie-verdict") == 0 ? 7 : TALEA_PLUGIN_OK;
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

static void fini(void *self)
{
    (void)self;
    fprintf(stderr, "goodbye\n");
}

static void nothing(void *self, uint64_t id) { (void)self, (void)id; }

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI,
        .init = init, .fini = fini, .accept = judge, .change = change,
        .schedule = schedule, .release = nothing, .attach = nothing, .detach = nothing,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}
