/* What the calls of an application refuse, and how, with no need for the right to anything. */
#include "counting.h"
#include <stdint.h>
#include <string.h>
#include <talea.h>

static talea_app *app;

static void nothing(void *argument)
{
    (void)argument;
}

/* What only threads outside of jobs may call; what jobs may call. */
static int in_job = -1;
static void looks_around(void *argument)
{
    talea_job job = TALEA_JOB_INIT;
    uint32_t id;
    in_job = talea_app_stop(app, NULL) == -EDEADLK && talea_app_start(app) == -EDEADLK && talea_app_free(app) == -EDEADLK &&
             talea_app_accelerator(app, "late", &id) == -EDEADLK && talea_job_get(&job) == 0 && job.task == 0 &&
             job.number == 0 && job.version == 0;
    counts(argument);
}

static int said(const char *words)
{
    return strstr(talea_last_error(), words) != NULL;
}

static void y1_misuse_is_refused_with_a_sentence(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_channel *channel;
    talea_app *other = (talea_app *)&config;
    uint32_t id, a, b, gpu;

    config.mapping = 3;
    CHECK(talea_app_new(&config, &other) == -EINVAL && other == NULL && said("mapping is 3"));
    config.mapping = 0;
    config.flags = 32;
    CHECK(talea_app_new(&config, &other) == -EINVAL && said("0x20"));
    config.flags = 0;
    config.selection = TALEA_SELECT_USER;
    CHECK(talea_app_new(&config, &other) == -EINVAL && said("talea_app_choose"));
    config.selection = 6;
    CHECK(talea_app_new(&config, &other) == -EINVAL && said("selection is 6"));
    config.selection = 0;
    config.priorities = 4;
    CHECK(talea_app_new(&config, &other) == -EINVAL && said("priorities is 4"));
    config.priorities = 0;
    config.weight = 1001;
    CHECK(talea_app_new(&config, &other) == -EINVAL && said("thousandths"));
    config.weight = 0;
    config.rights = 4;
    CHECK(talea_app_new(&config, &other) == -EINVAL && said("rights is 4"));
    config.rights = 0;
    config.daemon_priority = 98;
    CHECK(talea_app_new(&config, &other) == -EINVAL && said("daemon_priority is 98"));
    config.daemon_priority = 0;
    config.workers = 5000;
    CHECK(talea_app_new(&config, &other) == -ENODEV && said("5000 CPUs"));
    config.workers = 0;
    config.size = 4;
    CHECK(talea_app_new(&config, &other) == -EINVAL);
    config.size = sizeof config;
    CHECK(talea_app_new(NULL, &other) == -EINVAL && talea_app_new(&config, NULL) == -EINVAL);
    CHECK(talea_app_new(&config, &other) == 0 && talea_app_free(other) == 0 && talea_app_free(NULL) == 0);
    CHECK(talea_app_new(&config, &app) == 0);

    CHECK(talea_app_task(app, &task, &id) == -EINVAL && said("task 0: its period_ns is not declared"));
    task.kind = 4;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && said("kind is 4"));
    task.kind = TALEA_TASK_ACTIVATED;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && said("deadline_ns"));
    task.kind = TALEA_TASK_NODE;
    task.period_ns = 1;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && said("period_ns is for periodic"));
    task.period_ns = 0;
    task.offset_ns = 1;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && said("offset_ns"));
    task.offset_ns = 0;
    task.priority = 256;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && said("priority is 256"));
    task.priority = 0;
    memset(task.name, 'x', sizeof task.name);
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && said("31 bytes"));
    memset(task.name, 0, sizeof task.name);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 1;
    strcpy(task.name, "a");
    CHECK(talea_app_task(app, &task, NULL) == -EINVAL && talea_app_task(NULL, &task, &id) == -EINVAL);
    CHECK(talea_app_task(app, &task, &a) == 0 && a == 0);
    strcpy(task.name, "b");
    CHECK(talea_app_task(app, &task, &b) == 0 && b == 1);
    CHECK(talea_app_replace_task(app, 2, &task) == -EINVAL && said("no task 2: 2 are declared"));

    CHECK(talea_app_version(app, 2, &version, nothing, NULL, &id) == -EINVAL);
    CHECK(talea_app_version(app, a, &version, NULL, NULL, &id) == -EINVAL && said("function is NULL"));
    CHECK(talea_app_version(app, a, &version, nothing, NULL, &id) == 0 && id == 0);
    CHECK(talea_app_start(app) == -EINVAL && said("task b: it has no version"));
    CHECK(talea_app_version(app, b, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_accelerator(app, NULL, &gpu) == -EINVAL);
    CHECK(talea_app_accelerator(app, "gpu", &gpu) == 0 && gpu == 0);
    CHECK(talea_app_uses(app, a, 0, 1) == -EINVAL && talea_app_uses(app, a, 1, 0) == -EINVAL);
    CHECK(said("task 0 has no version 1: it has 1") && talea_app_uses(app, a, 0, gpu) == 0);

    CHECK(talea_app_edge(app, a, 7) == -EINVAL && talea_app_edge(app, a, b) == 0);
    CHECK(talea_app_channel(app, a, b, 4, 0, 0, &channel) == -EINVAL && said("talea_app_edge"));
    CHECK(talea_app_channel(app, a, b, 0, 4, 0, &channel) == -EINVAL);
    CHECK(talea_app_channel(app, a, b, 4, 1u << 21, 0, &channel) == -ENOMEM);
    CHECK(talea_app_channel(app, a, b, SIZE_MAX, 2, 0, &channel) == -ENOMEM);
    CHECK(talea_app_edge(app, b, b) == 0);
    CHECK(talea_app_start(app) == -EINVAL && said("task ")); /* a circle */
    CHECK(talea_app_stop(app, NULL) == -ESRCH && talea_app_activate(app, a) == -ESRCH);
    CHECK(talea_app_battery(app, 1) == -ESRCH && talea_app_permit(app, 1) == -ESRCH);
    CHECK(talea_app_mode(app, 64) == -EINVAL && talea_app_mode(app, 1) == -ESRCH);
    CHECK(talea_app_report_get(app, NULL) == -ENOENT && said("has not run"));
    CHECK(talea_app_choose(app, NULL, NULL) == -EINVAL);
    CHECK(talea_app_free(app) == 0);
}

/* Where a task may run is looked at when it starts. */
static void y2_a_task_has_one_of_the_cpus(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    uint32_t id;
    config.mapping = TALEA_MAPPING_CLUSTERED;
    task.period_ns = 5000000;
    task.cores = 2; /* the second; there is one */
    strcpy(task.name, "far");
    CHECK(talea_app_new(&config, &app) == 0 && talea_app_task(app, &task, &id) == 0);
    CHECK(talea_app_version(app, id, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_start(app) == -EINVAL && said("task far"));
    task.cores = 1;
    CHECK(talea_app_replace_task(app, id, &task) == 0 && talea_app_start(app) == 0 && talea_app_stop(app, NULL) == 0);
    task.cores = 2;
    config.mapping = TALEA_MAPPING_GLOBAL; /* where it is not asked for */
    CHECK(talea_app_replace_task(app, id, &task) == 0 && talea_app_configure(app, &config) == 0);
    CHECK(talea_app_start(app) == 0 && talea_app_stop(app, NULL) == 0 && talea_app_free(app) == 0);
}

static void y1_y14_while_it_runs_nothing_is_declared_and_then_it_is(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    talea_task_report one = TALEA_TASK_REPORT_INIT;
    talea_job job = TALEA_JOB_INIT;
    talea_channel *channel;
    uint64_t done = 0;
    uint32_t id;
    int item = 5;

    CHECK(talea_app_new(&config, &app) == 0);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 50000000;
    CHECK(talea_app_task(app, &task, &id) == 0);
    CHECK(talea_app_version(app, id, &version, looks_around, &done, NULL) == 0);
    CHECK(talea_app_start(app) == 0);
    CHECK(talea_app_start(app) == -EBUSY && said("stop it first"));
    CHECK(talea_app_task(app, &task, &id) == -EBUSY && talea_app_edge(app, 0, 0) == -EBUSY);
    CHECK(talea_app_configure(app, &config) == -EBUSY && talea_app_replace_task(app, 0, &task) == -EBUSY);
    CHECK(talea_app_activate(app, 1) == -ESRCH && talea_app_activate(app, 0) == 0);
    CHECK(talea_app_mode(app, 63) == 0 && talea_app_battery(app, 1) == 0 && talea_app_permit(app, 0) == 0);
    CHECK(talea_job_get(&job) == -ENOENT);
    waits(&done, 1);
    report.size = 3;
    CHECK(talea_app_stop(app, &report) == -EINVAL && talea_app_start(app) == -EBUSY); /* it runs still */
    report.size = sizeof report;
    CHECK(talea_app_stop(app, &report) == 0 && in_job == 1);
    CHECK(report.tasks == 1 && report.refused == 0 && report.length_ns > 0 && report.real_time <= 1);
    CHECK(talea_task_report_get(app, 0, &one) == 0 && one.jobs == 1 && one.versions == 1 && one.version_jobs[0] == 1);
    CHECK(strcmp(one.name, "task 0") == 0 && one.longest_ns >= one.mean_ns && one.mean_ns > 0);
    CHECK(talea_task_report_get(app, 1, &one) == -EINVAL);

    task.kind = TALEA_TASK_NODE;
    task.deadline_ns = 0;
    CHECK(talea_app_task(app, &task, &id) == 0 && id == 1);
    CHECK(talea_app_version(app, id, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_channel(app, 0, 1, sizeof item, 1, 0, &channel) == 0);
    /* From no job. */
    CHECK(talea_channel_pop(channel, &item, sizeof item) == -EPERM && item == 5);
    CHECK(talea_channel_push(channel, &item, 1) == -EMSGSIZE && talea_channel_pop(channel, &item, 8) == -EMSGSIZE);
    CHECK(talea_channel_push(NULL, &item, 4) == -EINVAL && talea_channel_push(channel, NULL, 4) == -EINVAL);
    CHECK(talea_channel_pop(NULL, &item, 4) == -EINVAL && talea_channel_pop(channel, NULL, 4) == -EINVAL);
    CHECK(talea_channel_push(channel, &item, 4) == -EPERM);
    done = 0;
    CHECK(talea_app_start(app) == 0 && talea_app_activate(app, 0) == 0);
    waits(&done, 1);
    /* One that runs is ended with its handle. */
    CHECK(talea_app_free(app) == 0);
}

/* Of two applications, channels from a first task to a second one with room for two. */
static talea_channel *own, *others;
static int misused;
static uint64_t pushed, popped;

static void pushes(void *unused)
{
    int item = 7;
    (void)unused;
    misused += talea_channel_pop(own, &item, sizeof item) != -EPERM || talea_channel_push(others, &item, sizeof item) != -EPERM;
    misused += talea_channel_push(own, &item, 1) != -EMSGSIZE;
    misused += talea_channel_push(own, &item, sizeof item) != 0 || talea_channel_push(own, &item, sizeof item) != 0;
    misused += talea_channel_push(own, &item, sizeof item) != -EAGAIN;
    counts(&pushed);
}

static void pops(void *unused)
{
    int item = 0;
    (void)unused;
    misused += talea_channel_push(own, &item, sizeof item) != -EPERM || talea_channel_pop(others, &item, sizeof item) != -EPERM;
    misused += talea_channel_pop(own, &item, sizeof item) != 0 || item != 7;
    if (popped % 2 == 1)
        misused += talea_channel_pop(own, &item, sizeof item) != -EAGAIN;
    counts(&popped);
}

static talea_app *of_two(talea_channel **channel)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_app *made;
    uint32_t from, to;
    CHECK(talea_app_new(&config, &made) == 0);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 50000000;
    CHECK(talea_app_task(made, &task, &from) == 0 && talea_app_version(made, from, &version, pushes, NULL, NULL) == 0);
    task.kind = TALEA_TASK_NODE;
    task.deadline_ns = 0;
    CHECK(talea_app_task(made, &task, &to) == 0 && talea_app_version(made, to, &version, pops, NULL, NULL) == 0);
    CHECK(talea_app_channel(made, from, to, sizeof(int), 2, 0, channel) == 0);
    return made;
}

static void y10_jobs_of_the_source_push_and_jobs_of_the_sink_pop_and_nobody_else(void)
{
    talea_app *other = of_two(&others);
    int round;
    app = of_two(&own);
    CHECK(talea_app_start(app) == 0);
    for (round = 1; round <= 20; round++) {
        CHECK(talea_app_activate(app, 0) == 0);
        waits(&popped, 2 * round);
        /* The room is there when the last one has ended. */
        CHECK(talea_app_stop(app, NULL) == 0 && talea_app_start(app) == 0);
    }
    CHECK(talea_app_free(app) == 0 && talea_app_free(other) == 0);
    CHECK(misused == 0 && pushed == 20 && popped == 40);
}

/* Whoever chooses stands within the scheduler: it may wait for nobody who waits for that. */
static uint64_t chosen, refused;
static int32_t stops(const talea_choice *choice, void *unused)
{
    talea_app_report report = TALEA_APP_REPORT_INIT;
    (void)choice;
    (void)unused;
    refused += talea_app_stop(app, NULL) == -EDEADLK && talea_app_free(app) == -EDEADLK && talea_app_start(app) == -EDEADLK &&
               talea_app_report_get(app, &report) == -EDEADLK;
    counts(&chosen);
    return 0;
}

static void y6_whoever_chooses_may_not_wait_for_the_application(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    uint32_t id;
    CHECK(talea_app_new(&config, &app) == 0 && talea_app_choose(app, stops, NULL) == 0);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 50000000;
    CHECK(talea_app_task(app, &task, &id) == 0);
    CHECK(talea_app_version(app, id, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_version(app, id, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_start(app) == 0 && talea_app_activate(app, id) == 0);
    waits(&chosen, 1);
    CHECK(talea_app_stop(app, NULL) == 0 && talea_app_free(app) == 0);
    CHECK(refused == chosen);
}

int main(void)
{
    begin_counting();
    y1_misuse_is_refused_with_a_sentence();
    y2_a_task_has_one_of_the_cpus();
    y1_y14_while_it_runs_nothing_is_declared_and_then_it_is();
    y10_jobs_of_the_source_push_and_jobs_of_the_sink_pop_and_nobody_else();
    y6_whoever_chooses_may_not_wait_for_the_application();
    return 0;
}
