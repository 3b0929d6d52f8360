/* An application in C is described as a system file, runs by a table, and has servers. */
#include "check.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <talea.h>

static void nothing(void *unused)
{
    (void)unused;
}

static uint64_t done[2];

static void counts(void *number)
{
    __atomic_add_fetch((uint64_t *)number, 1, __ATOMIC_RELEASE);
}

/* Runs the task fork by a table, then beside a task with a server. */
static void runs_by_table_and_with_server(talea_app *app)
{
    static const char table[] =
        "[[scheduler]]\nname = \"application\"\npolicy = \"table\"\ncpus = 1\nhyperperiod = \"25ms\"\n"
        "[[scheduler.entry]]\ncpu = 0\nowner = \"fork\"\nstart = \"5ms\"\nlength = \"5ms\"\n";
    static const char no_table[] = "[[scheduler]]\nname = \"root\"\npolicy = \"edf\"\n";
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    uint32_t server, served, other;
    CHECK(talea_app_set_table(app, "no file") == -EINVAL);
    CHECK(talea_app_set_table(app, no_table) == -EINVAL);
    CHECK(strstr(talea_last_error(), "it has no table") != NULL);
    CHECK(talea_app_set_table(app, table) == 0);
    done[1] = 0;
    CHECK(talea_app_start(app) == 0 && talea_app_set_table(app, NULL) == -EBUSY);
    while (__atomic_load_n(&done[1], __ATOMIC_ACQUIRE) < 3)
        ;
    CHECK(talea_app_stop(app, NULL) == 0 && talea_app_set_table(app, NULL) == 0);
    CHECK(talea_app_server(app, "requests", 4, 1, 2, &server) == -EINVAL);
    CHECK(talea_app_server(app, "requests", TALEA_SERVER_DEFERRABLE, 3, 2, &server) == -EINVAL);
    CHECK(talea_app_server(app, "requests", TALEA_SERVER_DEFERRABLE, 2000000, 5000000, &server) == 0);
    CHECK(server == 0);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 100000000;
    task.server = server + 2;
    strcpy(task.name, "served");
    CHECK(talea_app_task(app, &task, &served) == -EINVAL &&
          strstr(talea_last_error(), "server is 2") != NULL);
    task.server = server + 1;
    CHECK(talea_app_task(app, &task, &served) == 0);
    CHECK(talea_app_version(app, served, &version, counts, &done[0], NULL) == 0);
    task.core = 1;
    CHECK(talea_app_task(app, &task, &other) == -EINVAL &&
          strstr(talea_last_error(), "core is 1") != NULL);
    CHECK(talea_app_replace_task(app, served, &task) == -EINVAL);
    CHECK(talea_app_start(app) == 0);
    for (other = 0; other < 3; other++)
        CHECK(talea_app_activate(app, served) == 0);
    CHECK(talea_app_stop(app, NULL) == 0 && done[0] == 3);
}

/* A table of tasks whose versions have the names of the library. */
static void table_of_unnamed_versions(const talea_app_config *config)
{
    static const char table[] =
        "[[scheduler]]\nname = \"application\"\npolicy = \"table\"\ncpus = 1\nhyperperiod = \"20ms\"\n"
        "[[scheduler.entry]]\nowner = \"a\"\nstart = \"1ms\"\nlength = \"2ms\"\nactivates = true\n"
        "[[scheduler.entry]]\nowner = \"a\"\nstart = \"9ms\"\nlength = \"2ms\"\nactivates = true\n"
        "version = \"version-1\"\n";
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_app *app;
    uint32_t id;
    uint64_t calls[2] = { 0, 0 };
    CHECK(talea_app_new(config, &app) == 0);
    task.kind = TALEA_TASK_ACTIVATED;
    task.deadline_ns = 20000000;
    strcpy(task.name, "a");
    CHECK(talea_app_task(app, &task, &id) == 0);
    CHECK(talea_app_version(app, id, &version, counts, &calls[0], NULL) == 0);
    CHECK(talea_app_version(app, id, &version, counts, &calls[1], NULL) == 0);
    CHECK(talea_app_set_table(app, table) == 0);
    CHECK(talea_app_start(app) == 0);
    while (__atomic_load_n(&calls[0], __ATOMIC_ACQUIRE) < 2 ||
           __atomic_load_n(&calls[1], __ATOMIC_ACQUIRE) < 2)
        ;
    CHECK(talea_app_stop(app, NULL) == 0 && talea_app_free(app) == 0);
}

int main(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_app *app;
    uint32_t fork, left, gpu, fast;
    size_t length = 0, again = 0;
    char *text;

    config.workers = 1;
    CHECK(talea_app_new(&config, &app) == 0 && talea_app_accelerator(app, "gpu", &gpu) == 0);
    task.period_ns = 25000000;
    strcpy(task.name, "fork");
    CHECK(talea_app_task(app, &task, &fork) == 0);
    task.kind = TALEA_TASK_NODE;
    task.period_ns = 0;
    strcpy(task.name, "left");
    CHECK(talea_app_task(app, &task, &left) == 0 && talea_app_edge(app, fork, left) == 0);
    strcpy(version.name, "plain");
    CHECK(talea_app_version(app, fork, &version, nothing, NULL, NULL) == 0);
    strcpy(version.name, "fast");
    version.time_ns = 8000000;
    CHECK(talea_app_version(app, left, &version, nothing, NULL, &fast) == 0);
    CHECK(talea_app_uses(app, left, fast, gpu) == 0);
    /* The first version does not declare time_ns. */
    CHECK(talea_app_describe(app, NULL, 0, &length) == -EINVAL &&
          strstr(talea_last_error(), "fork") != NULL);
    CHECK(talea_app_free(app) == 0);

    CHECK(talea_app_new(&config, &app) == 0);
    memset(&task, 0, sizeof task);
    task.size = sizeof task;
    task.period_ns = 25000000;
    strcpy(task.name, "fork");
    CHECK(talea_app_task(app, &task, &fork) == 0);
    strcpy(version.name, "plain");
    version.time_ns = 3000000;
    CHECK(talea_app_version(app, fork, &version, counts, &done[1], NULL) == 0);
    CHECK(talea_app_describe(app, NULL, 0, &length) == -ENOSPC && length > 0);
    text = (char *)calloc(1, length + 1);
    CHECK(text != NULL);
    CHECK(talea_app_describe(app, text, length, NULL) == -ENOSPC && text[0] == 0);
    CHECK(talea_app_describe(app, NULL, length + 1, NULL) == -EINVAL);
    CHECK(talea_app_describe(app, text, length + 1, &again) == 0 && again == length &&
          strlen(text) == length);
    CHECK(talea_app_start(app) == 0);
    CHECK(talea_app_describe(app, text, length + 1, NULL) == -EBUSY);
    CHECK(talea_app_stop(app, NULL) == 0);
    runs_by_table_and_with_server(app);
    CHECK(talea_app_free(app) == 0);
    table_of_unnamed_versions(&config);
    printf("%s", text);
    free(text);
    return 0;
}
