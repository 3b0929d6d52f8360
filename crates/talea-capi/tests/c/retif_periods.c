/* W3: waits end at absolute times, the first wait skips no period, and signals shorten no wait. The
 * checks do not depend on the speed of the machine. Argument: the unit of the period in
 * nanoseconds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <retif.h>
#include <signal.h>
#include <sys/time.h>

static void ignores(int signal)
{
    (void)signal;
}

static int64_t ns(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t now(void)
{
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return ns(time);
}

int main(int argc, char **argv)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct itimerval interval = { { 0, 700 }, { 0, 700 } };
    struct sigaction action;
    int64_t unit, period, begun, first;
    int i;

    CHECK(argc == 2);
    unit = atol(argv[1]);
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;
    action.sa_handler = ignores;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &interval, NULL) == 0);

    /* 5 ms in either unit, deadline 3 ms. */
    period = 5000000;
    t.p.period = (uint64_t)(period / unit);
    t.p.deadline = (uint64_t)(3000000 / unit);
    begun = now();
    rtf_task_start(&t);
    first = ns(t.at);
    CHECK(first >= begun + period && first <= now() + period);
    CHECK(ns(t.dl) == first - period + 3000000);
    for (i = 1; i <= 6; i++) {
        rtf_task_wait_period(&t);
        CHECK(now() >= first + (i - 1) * period);
        CHECK(ns(t.at) == first + i * period);
        CHECK(ns(t.dl) == first + (i - 1) * period + 3000000);
    }

    /* A job of three and a half periods is one deadline miss, and every period still gets a job. */
    t.dmiss = 0;
    rtf_task_start(&t);
    first = ns(t.at);
    while (now() < first + 2 * period + period / 2)
        ;
    for (i = 1; i <= 4; i++) {
        rtf_task_wait_period(&t);
        CHECK(ns(t.at) == first + i * period);
        CHECK(i > 1 || t.dmiss == 1);
    }
    CHECK(now() >= first + 3 * period);

    /* Without rtf_task_start, the first wait starts the task. Without a period, a wait returns at
     * once. */
    t.at.tv_sec = t.at.tv_nsec = 0;
    begun = now();
    rtf_task_wait_period(&t);
    CHECK(now() >= begun + period && ns(t.at) >= begun + 2 * period);
    t.p.period = 0;
    rtf_task_wait_period(&t);
    return 0;
}
