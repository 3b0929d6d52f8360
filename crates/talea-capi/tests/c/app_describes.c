/* An application in C says itself as a system file. */
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
    /* What the first version takes was not said. */
    CHECK(talea_app_describe(app, NULL, 0, &length) == -EINVAL && strstr(talea_message(), "fork") != NULL);
    CHECK(talea_app_free(app) == 0);

    CHECK(talea_app_new(&config, &app) == 0);
    memset(&task, 0, sizeof task);
    task.size = sizeof task;
    task.period_ns = 25000000;
    strcpy(task.name, "fork");
    CHECK(talea_app_task(app, &task, &fork) == 0);
    strcpy(version.name, "plain");
    version.time_ns = 3000000;
    CHECK(talea_app_version(app, fork, &version, nothing, NULL, NULL) == 0);
    CHECK(talea_app_describe(app, NULL, 0, &length) == -ENOSPC && length > 0);
    text = (char *)calloc(1, length + 1);
    CHECK(text != NULL);
    CHECK(talea_app_describe(app, text, length, NULL) == -ENOSPC && text[0] == 0);
    CHECK(talea_app_describe(app, NULL, length + 1, NULL) == -EINVAL);
    CHECK(talea_app_describe(app, text, length + 1, &again) == 0 && again == length && strlen(text) == length);
    CHECK(talea_app_start(app) == 0);
    CHECK(talea_app_describe(app, text, length + 1, NULL) == -EBUSY);
    CHECK(talea_app_stop(app, NULL) == 0 && talea_app_free(app) == 0);
    printf("%s", text);
    free(text);
    return 0;
}
