/* Refusals of the calls of an application. The program needs no rights. */
#include "counting.h"
#include <stdint.h>
#include <string.h>
#include <talea.h>

static talea_app *app;

static void nothing(void *argument)
{
    (void)argument;
}

/* Whether forbidden calls return -EDEADLK in a job, and talea_job_get describes the job. */
static int job_calls_are_right = -1;
static void makes_calls(void *argument)
{
    talea_job job = TALEA_JOB_INIT;
    uint32_t id;
    job_calls_are_right =
        talea_app_stop(app, NULL) == -EDEADLK && talea_app_start(app) == -EDEADLK &&
        talea_app_free(app) == -EDEADLK && talea_app_accelerator(app, "late", &id) == -EDEADLK &&
        talea_job_get(&job) == 0 && job.task == 0 && job.number == 0 && job.version == 0;
    counts(argument);
}

static int message_has(const char *text)
{
    return strstr(talea_last_error(), text) != NULL;
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
    CHECK(talea_app_new(&config, &other) == -EINVAL && other == NULL &&
          message_has("mapping is 3"));
    config.mapping = 0;
    config.flags = 32;
    CHECK(talea_app_new(&config, &other) == -EINVAL && message_has("0x20"));
    config.flags = 0;
    config.selection = TALEA_SELECT_USER;
    CHECK(talea_app_new(&config, &other) == -EINVAL && message_has("talea_app_choose"));
    config.selection = 6;
    CHECK(talea_app_new(&config, &other) == -EINVAL && message_has("selection is 6"));
    config.selection = 0;
    config.priorities = 4;
    CHECK(talea_app_new(&config, &other) == -EINVAL && message_has("priorities is 4"));
    config.priorities = 0;
    config.weight = 1001;
    CHECK(talea_app_new(&config, &other) == -EINVAL && message_has("thousandths"));
    config.weight = 0;
    config.rights = 4;
    CHECK(talea_app_new(&config, &other) == -EINVAL && message_has("rights is 4"));
    config.rights = 0;
    config.daemon_priority = 98;
    CHECK(talea_app_new(&config, &other) == -EINVAL && message_has("daemon_priority is 98"));
    config.daemon_priority = 0;
    config.workers = 5000;
    CHECK(talea_app_new(&config, &other) == -ENODEV && message_has("5000 CPUs"));
    config.workers = 0;
    config.size = 4;
    CHECK(talea_app_new(&config, &other) == -EINVAL);
    config.size = sizeof config;
    CHECK(talea_app_new(NULL, &other) == -EINVAL && talea_app_new(&config, NULL) == -EINVAL);
    CHECK(talea_app_new(&config, &other) == 0 && talea_app_free(other) == 0 &&
          talea_app_free(NULL) == 0);
    CHECK(talea_app_new(&config, &app) == 0);

    CHECK(talea_app_task(app, &task, &id) == -EINVAL &&
          message_has("task 0: its period_ns is not declared"));
    task.kind = 4;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && message_has("kind is 4"));
    task.kind = TALEA_TASK_ACTIVATED;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && message_has("deadline_ns"));
    task.kind = TALEA_TASK_NODE;
    task.period_ns = 1;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && message_has("period_ns is for periodic"));
    task.period_ns = 0;
    task.offset_ns = 1;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && message_has("offset_ns"));
    task.offset_ns = 0;
    task.priority = 256;
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && message_has("priority is 256"));
    task.priority = 0;
    memset(task.name, 'x', sizeof task.name);
    CHECK(talea_app_task(app, &task, &id) == -EINVAL && message_has("31 bytes"));
    memset(task.name, 0, sizeof task.name);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 1;
    strcpy(task.name, "a");
    CHECK(talea_app_task(app, &task, NULL) == -EINVAL &&
          talea_app_task(NULL, &task, &id) == -EINVAL);
    CHECK(talea_app_task(app, &task, &a) == 0 && a == 0);
    strcpy(task.name, "b");
    CHECK(talea_app_task(app, &task, &b) == 0 && b == 1);
    CHECK(talea_app_replace_task(app, 2, &task) == -EINVAL &&
          message_has("no task 2: 2 are declared"));

    CHECK(talea_app_version(app, 2, &version, nothing, NULL, &id) == -EINVAL);
    CHECK(talea_app_version(app, a, &version, NULL, NULL, &id) == -EINVAL &&
          message_has("function is NULL"));
    CHECK(talea_app_version(app, a, &version, nothing, NULL, &id) == 0 && id == 0);
    CHECK(talea_app_start(app) == -EINVAL && message_has("task b: it has no version"));
    CHECK(talea_app_version(app, b, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_accelerator(app, NULL, &gpu) == -EINVAL);
    CHECK(talea_app_accelerator(app, "gpu", &gpu) == 0 && gpu == 0);
    CHECK(talea_app_uses(app, a, 0, 1) == -EINVAL && talea_app_uses(app, a, 1, 0) == -EINVAL);
    CHECK(message_has("task 0 has no version 1: it has 1") && talea_app_uses(app, a, 0, gpu) == 0);

    CHECK(talea_app_edge(app, a, 7) == -EINVAL && talea_app_edge(app, a, b) == 0);
    CHECK(talea_app_channel(app, a, b, 4, 0, 0, &channel) == -EINVAL &&
          message_has("talea_app_edge"));
    CHECK(talea_app_channel(app, a, b, 0, 4, 0, &channel) == -EINVAL);
    CHECK(talea_app_channel(app, a, b, 4, 1u << 21, 0, &channel) == -ENOMEM);
    CHECK(talea_app_channel(app, a, b, SIZE_MAX, 2, 0, &channel) == -ENOMEM);
    CHECK(talea_app_edge(app, b, b) == 0);
    CHECK(talea_app_start(app) == -EINVAL && message_has("task ")); /* a cycle */
    CHECK(talea_app_stop(app, NULL) == -ESRCH && talea_app_activate(app, a) == -ESRCH);
    CHECK(talea_app_battery(app, 1) == -ESRCH && talea_app_permit(app, 1) == -ESRCH);
    CHECK(talea_app_mode(app, 64) == -EINVAL && talea_app_mode(app, 1) == -ESRCH);
    CHECK(talea_app_report_get(app, NULL) == -ENOENT && message_has("has not run"));
    CHECK(talea_app_choose(app, NULL, NULL) == -EINVAL);
    CHECK(talea_app_free(app) == 0);
}

/* The start tests whether each task has a CPU. */
static void y2_a_task_without_a_cpu_of_the_application_is_refused(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    uint32_t id;
    config.mapping = TALEA_MAPPING_CLUSTERED;
    task.period_ns = 5000000;
    task.cores = 2; /* the second CPU; the application has one */
    strcpy(task.name, "far");
    CHECK(talea_app_new(&config, &app) == 0 && talea_app_task(app, &task, &id) == 0);
    CHECK(talea_app_version(app, id, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_start(app) == -EINVAL && message_has("task far"));
    task.cores = 1;
    CHECK(talea_app_replace_task(app, id, &task) == 0 && talea_app_start(app) == 0 &&
          talea_app_stop(app, NULL) == 0);
    task.cores = 2;
    config.mapping = TALEA_MAPPING_GLOBAL; /* ignores `cores` */
    CHECK(talea_app_replace_task(app, id, &task) == 0 && talea_app_configure(app, &config) == 0);
    CHECK(talea_app_start(app) == 0 && talea_app_stop(app, NULL) == 0 && talea_app_free(app) == 0);
}

static void y1_y14_declarations_are_refused_during_a_run_and_accepted_after_it(void)
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
    CHECK(talea_app_version(app, id, &version, makes_calls, &done, NULL) == 0);
    CHECK(talea_app_start(app) == 0);
    CHECK(talea_app_start(app) == -EBUSY && message_has("stop it first"));
    CHECK(talea_app_task(app, &task, &id) == -EBUSY && talea_app_edge(app, 0, 0) == -EBUSY);
    CHECK(talea_app_configure(app, &config) == -EBUSY &&
          talea_app_replace_task(app, 0, &task) == -EBUSY);
    CHECK(talea_app_activate(app, 1) == -ESRCH && talea_app_activate(app, 0) == 0);
    CHECK(talea_app_mode(app, 63) == 0 && talea_app_battery(app, 1) == 0 &&
          talea_app_permit(app, 0) == 0);
    CHECK(talea_job_get(&job) == -ENOENT);
    waits(&done, 1);
    report.size = 3;
    /* The application still runs. */
    CHECK(talea_app_stop(app, &report) == -EINVAL && talea_app_start(app) == -EBUSY);
    report.size = sizeof report;
    CHECK(talea_app_stop(app, &report) == 0 && job_calls_are_right == 1);
    CHECK(report.tasks == 1 && report.refused == 0 && report.length_ns > 0 &&
          report.real_time <= 1);
    CHECK(talea_task_report_get(app, 0, &one) == 0 && one.jobs == 1 && one.versions == 1 &&
          one.version_jobs[0] == 1);
    CHECK(strcmp(one.name, "task 0") == 0 && one.longest_ns >= one.mean_ns && one.mean_ns > 0);
    CHECK(talea_task_report_get(app, 1, &one) == -EINVAL);

    task.kind = TALEA_TASK_NODE;
    task.deadline_ns = 0;
    CHECK(talea_app_task(app, &task, &id) == 0 && id == 1);
    CHECK(talea_app_version(app, id, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_channel(app, 0, 1, sizeof item, 1, 0, &channel) == 0);
    /* This thread runs no job. */
    CHECK(talea_channel_pop(channel, &item, sizeof item) == -EPERM && item == 5);
    CHECK(talea_channel_push(channel, &item, 1) == -EMSGSIZE &&
          talea_channel_pop(channel, &item, 8) == -EMSGSIZE);
    CHECK(talea_channel_push(NULL, &item, 4) == -EINVAL &&
          talea_channel_push(channel, NULL, 4) == -EINVAL);
    CHECK(talea_channel_pop(NULL, &item, 4) == -EINVAL &&
          talea_channel_pop(channel, NULL, 4) == -EINVAL);
    CHECK(talea_channel_push(channel, &item, 4) == -EPERM);
    done = 0;
    CHECK(talea_app_start(app) == 0 && talea_app_activate(app, 0) == 0);
    waits(&done, 1);
    /* talea_app_free stops a running application. */
    CHECK(talea_app_free(app) == 0);
}

/* Channels of two applications, each from a source to a sink with room for two elements. */
static talea_channel *own, *others;
static int unexpected;
static uint64_t pushed, popped;

static void pushes(void *unused)
{
    int item = 7;
    (void)unused;
    unexpected += talea_channel_pop(own, &item, sizeof item) != -EPERM ||
                  talea_channel_push(others, &item, sizeof item) != -EPERM;
    unexpected += talea_channel_push(own, &item, 1) != -EMSGSIZE;
    unexpected += talea_channel_push(own, &item, sizeof item) != 0 ||
                  talea_channel_push(own, &item, sizeof item) != 0;
    unexpected += talea_channel_push(own, &item, sizeof item) != -EAGAIN;
    counts(&pushed);
}

static void pops(void *unused)
{
    int item = 0;
    (void)unused;
    unexpected += talea_channel_push(own, &item, sizeof item) != -EPERM ||
                  talea_channel_pop(others, &item, sizeof item) != -EPERM;
    unexpected += talea_channel_pop(own, &item, sizeof item) != 0 || item != 7;
    if (popped % 2 == 1)
        unexpected += talea_channel_pop(own, &item, sizeof item) != -EAGAIN;
    counts(&popped);
}

static talea_app *source_and_sink(talea_channel **channel)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_app *made;
    uint32_t from, to;
    CHECK(talea_app_new(&config, &made) == 0);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 50000000;
    CHECK(talea_app_task(made, &task, &from) == 0 &&
          talea_app_version(made, from, &version, pushes, NULL, NULL) == 0);
    task.kind = TALEA_TASK_NODE;
    task.deadline_ns = 0;
    CHECK(talea_app_task(made, &task, &to) == 0 &&
          talea_app_version(made, to, &version, pops, NULL, NULL) == 0);
    CHECK(talea_app_channel(made, from, to, sizeof(int), 2, 0, channel) == 0);
    return made;
}

static void y10_only_jobs_of_the_source_push_and_only_jobs_of_the_sink_pop(void)
{
    talea_app *other = source_and_sink(&others);
    int round;
    app = source_and_sink(&own);
    CHECK(talea_app_start(app) == 0);
    for (round = 1; round <= 20; round++) {
        CHECK(talea_app_activate(app, 0) == 0);
        waits(&popped, 2 * round);
        /* The stop ends when the last job of the sink has completed: the channel has room again. */
        CHECK(talea_app_stop(app, NULL) == 0 && talea_app_start(app) == 0);
    }
    CHECK(talea_app_free(app) == 0 && talea_app_free(other) == 0);
    CHECK(unexpected == 0 && pushed == 20 && popped == 40);
}

/* The scheduler calls a chooser with its lock held, so calls that wait for the application are
 * refused. */
static uint64_t chosen, refused;
static int32_t waits_for_application(const talea_choice *choice, void *unused)
{
    talea_app_report report = TALEA_APP_REPORT_INIT;
    (void)choice;
    (void)unused;
    refused += talea_app_stop(app, NULL) == -EDEADLK && talea_app_free(app) == -EDEADLK &&
               talea_app_start(app) == -EDEADLK && talea_app_report_get(app, &report) == -EDEADLK;
    counts(&chosen);
    return 0;
}

static void y6_calls_that_wait_for_the_application_are_refused_in_a_chooser(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    uint32_t id;
    CHECK(talea_app_new(&config, &app) == 0 &&
          talea_app_choose(app, waits_for_application, NULL) == 0);
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
    y2_a_task_without_a_cpu_of_the_application_is_refused();
    y1_y14_declarations_are_refused_during_a_run_and_accepted_after_it();
    y10_only_jobs_of_the_source_push_and_only_jobs_of_the_sink_pop();
    y6_calls_that_wait_for_the_application_are_refused_in_a_chooser();
    return 0;
}
