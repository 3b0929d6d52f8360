/*
 * Several periodic threads that attach themselves, in the style of a program for the original
 * library:
 * - The program defines the results itself, and zeroes the parameters with memset.
 * - A task declares only its period, in milliseconds.
 * - Each round creates new tasks; the tasks of threads that have ended are never released.
 *
 *     cc -std=gnu11 -Wall -Wextra -pthread retif_threads.c $(pkg-config --cflags --libs retif)
 *     RETIF_PERIOD_MS=1 ./a.out
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <retif.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RTF_OK 1
#define RTF_FAIL 0
#define RTF_ERROR -1

#define THREADS 3
#define ROUNDS 4
#define PERIODS 2

struct worker {
    struct rtf_task task;
    struct rtf_params params;
    pthread_t thread;
    double step;
    int failed;
};

static struct worker workers[THREADS];
static const int period_ms[THREADS] = { 20, 30, 50 };

static void *run(void *argument)
{
    struct worker *w = (struct worker *)argument;
    int i;

    if (rtf_task_attach(&w->task, gettid()) != RTF_OK) {
        w->failed = 1;
        return NULL;
    }
    rtf_task_start(&w->task);
    for (i = 0; i < PERIODS; i++) {
        w->step += MILLI_TO_SEC(period_ms[w - workers]);
        rtf_task_wait_period(&w->task);
    }
    return NULL;
}

int main(void)
{
    int round, i, failed = 0;

    if (rtf_connect() < 0)
        return 3;

    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < THREADS; i++) {
            memset(&workers[i], 0, sizeof workers[i]);
            rtf_params_set_period(&workers[i].params, period_ms[i]);
            rtf_task_init(&workers[i].task);
            if (rtf_task_create(&workers[i].task, &workers[i].params) != 1)
                return 2;
            pthread_create(&workers[i].thread, NULL, run, &workers[i]);
        }
        for (i = 0; i < THREADS; i++) {
            pthread_join(workers[i].thread, NULL);
            failed |= workers[i].failed;
        }
    }
    printf("%d tasks are known to the daemon\n", rtf_tasks_info());
    printf("simulated %.2f s\n", workers[0].step);
    return failed;
}
