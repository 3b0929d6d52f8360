/* Jobs wait for devices: the declaration is checked and described, a wait returns its result. */
#include "check.h"
#include <errno.h>
#include <string.h>
#include <talea.h>

static int result, waits, job_in_wait;

static int waits_once(void *number)
{
    talea_job job = TALEA_JOB_INIT;
    __atomic_store_n(&job_in_wait, talea_job_get(&job) == 0, __ATOMIC_RELEASE);
    __atomic_add_fetch(&waits, 1, __ATOMIC_RELEASE);
    return *(int *)number;
}

static int waits_within(void *number)
{
    return talea_job_wait(waits_once, number);
}

static void works(void *number)
{
    int sum = talea_job_wait(waits_once, number) + talea_job_wait(waits_within, number);
    __atomic_store_n(&result, sum, __ATOMIC_RELEASE);
}

int main(void)
{
    static const char *const words[] = { "free", "spin", "hold" };
    static char text[8192];
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_app *app;
    uint32_t id, wait;
    int number = 21;
    CHECK(talea_job_wait(NULL, NULL) == -EINVAL);
    CHECK(talea_job_wait(waits_once, &number) == 21 && waits == 1 && !job_in_wait);
    CHECK(talea_app_new(&config, &app) == 0);
    task.period_ns = 25000000;
    for (wait = TALEA_WAIT_FREE; wait <= TALEA_WAIT_HOLD + 1; wait++) {
        talea_task_version version = TALEA_TASK_VERSION_INIT;
        strcpy(task.name, wait <= TALEA_WAIT_HOLD ? words[wait] : "wrong");
        CHECK(wait > TALEA_WAIT_HOLD || talea_app_task(app, &task, &id) == 0);
        version.wait = wait;
        version.time_ns = 1000000;
        version.wait_ns = 2000000;
        if (wait > TALEA_WAIT_HOLD) {
            CHECK(talea_app_version(app, id, &version, works, &number, NULL) == -EINVAL);
            CHECK(strstr(talea_last_error(), "wait is 3") != NULL);
        } else {
            CHECK(talea_app_version(app, id, &version, works, &number, NULL) == 0);
        }
    }
    CHECK(talea_app_describe(app, text, sizeof text, NULL) == 0);
    CHECK(strstr(text, "length = \"2ms\"") != NULL && strstr(text, "while = \"spin\"") != NULL &&
          strstr(text, "while = \"hold\"") != NULL);
    CHECK(talea_app_start(app) == 0);
    while (__atomic_load_n(&result, __ATOMIC_ACQUIRE) == 0)
        ;
    CHECK(talea_app_stop(app, NULL) == 0);
    CHECK(result == 42 && waits > 2 && job_in_wait);
    return talea_app_free(app);
}
