/* C++ only: an exception that leaves a job, or a chooser if there is an argument, aborts the
 * program, whose handler of SIGABRT exits with 7. */
#include "check.h"
#include <signal.h>
#include <stdint.h>
#include <talea.h>
#include <unistd.h>

static void aborted(int number)
{
    _exit(number == SIGABRT ? 7 : 8);
}

static void throws(void *unused)
{
    (void)unused;
    throw 1;
}

static void nothing(void *unused)
{
    (void)unused;
}

static int32_t throws_in_chooser(const talea_choice *choice, void *unused)
{
    (void)choice;
    throws(unused);
    return 0;
}

int main(int argc, char **argv)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_app *app;
    uint32_t id;
    (void)argv;
    signal(SIGABRT, aborted);
    task.period_ns = 5000000;
    CHECK(talea_app_new(&config, &app) == 0 && talea_app_task(app, &task, &id) == 0);
    CHECK(talea_app_version(app, id, &version, argc > 1 ? nothing : throws, NULL, NULL) == 0);
    CHECK(talea_app_version(app, id, &version, nothing, NULL, NULL) == 0);
    CHECK(argc == 1 || talea_app_choose(app, throws_in_chooser, NULL) == 0);
    CHECK(talea_app_start(app) == 0);
    alarm(20);
    pause();
    return 0;
}
