/* A program that gives its rights away while its tasks run: the run ends and says so, nobody waits for ever, and what comes after cleanup()
 * runs as well as it can. And a child of fork(), which has none of the threads. To be started by root; the argument is whom it becomes. */
#define YAS_SPIN_NS 1000000 /* the scheduler wakes for everybody, and moves whom it wakes */
#include "yasmin_config.h"

#include "counting.h"
#include <string.h>
#include <sys/wait.h>
#include <talea.h>
#include <unistd.h>
#include <yasmin.h>

static uint64_t counted[3];

static void computes(void *argument)
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
    yas_TData often = YAS_TDATA_INIT, seldom = YAS_TDATA_INIT, by_hand = YAS_TDATA_INIT;
    counted[0] = counted[1] = counted[2] = 0;
    yas_init();
    often.period = 4;
    seldom.period = 20;
    CHECK(yas_task_decl(&often, counts, &counted[0]) == 0);
    CHECK(yas_task_decl(&seldom, computes, &counted[1]) == 1);
    return yas_task_decl(&by_hand, counts, &counted[2]);
}

int main(int count, char **arguments)
{
    struct timespec moment = { 0, 10000000 };
    int tries, status;
    yas_TID asked;
    pid_t child;

    CHECK(count == 2);
    begin_counting();
    asked = declare();
    CHECK(yas_start());
    waits(&counted[1], 2);

    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (yas_mode(1) || talea_app_activate(yas_application(), (uint32_t)asked) == 0)
            _exit(1);
        yas_task_activate(asked);
        yas_cleanup();
        _exit(strstr(yas_message(), "forked") == NULL ? 2 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);

    CHECK(setgid((gid_t)atol(arguments[1])) == 0 && setuid((uid_t)atol(arguments[1])) == 0);
    /* The next job that is to be moved ends the run. */
    for (tries = 0; tries < 500 && yas_mode(1); tries++)
        nanosleep(&moment, NULL);
    CHECK(tries < 500);
    yas_cleanup();
    CHECK(strstr(yas_message(), "no right") != NULL);
    CHECK(yas_application() == NULL);

    asked = declare();
    CHECK(yas_start());
    yas_task_activate(asked);
    waits(&counted[1], 1);
    waits(&counted[2], 1);
    yas_stop();
    yas_cleanup();
    puts("done");
    return 0;
}
