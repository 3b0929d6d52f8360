/* No memory is allocated while an application runs, whichever calls its jobs make. The functions
 * below replace those of the C library, also for libtalea, and count allocations. */
#include "counting.h"
#include <stddef.h>
#include <stdint.h>
#include <talea.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static int counting;
static uint64_t allocations, total;

static void allocated(void)
{
    __atomic_add_fetch(&total, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&counting, __ATOMIC_RELAXED))
        __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t size)
{
    allocated();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocated();
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    allocated();
    return __libc_realloc(old, size);
}

static talea_app *app;
static talea_channel *channel;
static uint32_t source, sink, chain;
static uint64_t completed, activated;

static int no_device(void *unused)
{
    (void)unused;
    return 0;
}

static void pushes_two(void *unused)
{
    talea_job job = TALEA_JOB_INIT;
    (void)unused;
    (void)talea_job_get(&job);
    (void)talea_channel_push(channel, &job.number, sizeof job.number);
    (void)talea_channel_push(channel, &job.number, sizeof job.number); /* full */
    (void)talea_app_activate(app, chain);
    (void)talea_app_activate(app, 99); /* no such task */
    (void)talea_app_mode(app, (uint32_t)(job.number & 1));
    (void)talea_app_battery(app, job.number);
    (void)talea_app_permit(app, job.number);
    (void)talea_job_wait(no_device, NULL);
}

static void pops_two(void *unused)
{
    uint64_t number;
    (void)unused;
    (void)talea_channel_pop(channel, &number, sizeof number);
    (void)talea_channel_pop(channel, &number, sizeof number); /* empty */
    (void)talea_channel_pop(channel, &number, 1);             /* wrong size */
    counts(&completed);
}

static void counts_activation(void *unused)
{
    (void)unused;
    counts(&activated);
}

static int32_t alternates(const talea_choice *choice, void *unused)
{
    (void)unused;
    return choice->job % 2;
}

int main(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    int i;

    begin_counting();
    CHECK(talea_app_new(&config, &app) == 0 && talea_app_choose(app, alternates, NULL) == 0);
    task.period_ns = 2000000;
    CHECK(talea_app_task(app, &task, &source) == 0);
    task.period_ns = 0;
    task.kind = TALEA_TASK_NODE;
    CHECK(talea_app_task(app, &task, &sink) == 0);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 50000000;
    CHECK(talea_app_task(app, &task, &chain) == 0);
    for (i = 0; i < 2; i++) {
        CHECK(talea_app_version(app, source, &version, pushes_two, NULL, NULL) == 0);
        CHECK(talea_app_version(app, sink, &version, pops_two, NULL, NULL) == 0);
        CHECK(talea_app_version(app, chain, &version, counts_activation, NULL, NULL) == 0);
    }
    CHECK(talea_app_channel(app, source, sink, sizeof(uint64_t), 1, 1, &channel) == 0);
    CHECK(total > 0);
    CHECK(talea_app_start(app) == 0);
    __atomic_store_n(&counting, 1, __ATOMIC_RELAXED);
    waits(&completed, 50);
    waits(&activated, 1);
    __atomic_store_n(&counting, 0, __ATOMIC_RELAXED);
    CHECK(talea_app_stop(app, NULL) == 0 && talea_app_free(app) == 0);
    printf("%lu allocations of %lu\n", (unsigned long)allocations, (unsigned long)total);
    return allocations != 0;
}
