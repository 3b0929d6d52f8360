/* A program drops its rights while its tasks run: the run ends with a message, no call hangs, and
 * the tasks of the next run have ordinary priorities. A child of fork() has no threads of the
 * application, so its calls have no effect. Requires root. Argument: the user that the program
 * becomes. */
#define YAS_SPIN_NS 1000000 /* the dispatcher is awake for each release */
#include "yasmin_config.h"

#include "counting.h"
#include <string.h>
#include <sys/wait.h>
#include <talea.h>
#include <unistd.h>
#include <yasmin.h>

static uint64_t counted[3];

static void computes_6_ms(void *argument)
{
    struct timespec begin, now;
    long used;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
        used = (now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec;
    } while (used < 6000000L);
    counts(argument);
}

static yas_TID declare(void)
{
    yas_TData frequent = YAS_TDATA_INIT, rare = YAS_TDATA_INIT, activated = YAS_TDATA_INIT;
    counted[0] = counted[1] = counted[2] = 0;
    yas_init();
    frequent.period = 4;
    rare.period = 20;
    CHECK(yas_task_decl(&frequent, counts, &counted[0]) == 0);
    CHECK(yas_task_decl(&rare, computes_6_ms, &counted[1]) == 1);
    return yas_task_decl(&activated, counts, &counted[2]);
}

int main(int count, char **arguments)
{
    struct timespec delay = { 0, 10000000 };
    int tries, status;
    yas_TID activated_task;
    pid_t child;

    CHECK(count == 2);
    begin_counting();
    activated_task = declare();
    CHECK(yas_start());
    waits(&counted[1], 2);

    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (yas_mode(1) || talea_app_activate(yas_application(), (uint32_t)activated_task) == 0)
            _exit(1);
        yas_task_activate(activated_task);
        yas_cleanup();
        _exit(strstr(yas_message(), "forked") == NULL ? 2 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);

    CHECK(setgid((gid_t)atol(arguments[1])) == 0 && setuid((uid_t)atol(arguments[1])) == 0);
    /* The next order for a worker ends the run. */
    for (tries = 0; tries < 500 && yas_mode(1); tries++)
        nanosleep(&delay, NULL);
    CHECK(tries < 500);
    yas_cleanup();
    CHECK(strstr(yas_message(), "no right") != NULL);
    CHECK(yas_application() == NULL);

    activated_task = declare();
    CHECK(yas_start());
    yas_task_activate(activated_task);
    waits(&counted[1], 1);
    waits(&counted[2], 1);
    yas_stop();
    yas_cleanup();
    puts("done");
    return 0;
}
