/*
 * Listing 1 of Serra, Ara, Fara, Cucinotta, "An Architecture for Declarative Real-Time Scheduling
 * on Linux", ISORC 2020 (forerunner of the ReTiF paper), as printed, run by a thread. The library
 * connects at its first request.
 *
 *     cc -std=c11 -Wall -Wextra -pthread retif_listing_isorc.c $(pkg-config --cflags --libs retif)
 *
 * Exit status: 0 after ten periods; 1 if the thread fails; 2 if the request is refused.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <retif.h>
#include <stdio.h>
#include <unistd.h>

#define T_PERIOD 10000
#define T_RUNTIME 1000
#define T_DES_RUNTIME 2000
#define T_DEADLINE 10000

static int periods;
static int optional_parts;

static int computation_ended(void)
{
    return periods == 10;
}

static void mandatory_computation(void)
{
    periods++;
}

static void optional_computation(void)
{
    optional_parts++;
}

static void body(void)
{
    /* Task representation */
    struct rts_task t = RTS_TASK_INIT;

    /* Task parameters */
    struct rts_params p = RTS_PARAM_INIT;

    /* Set task parameters */
    rts_param_set_period(&p, T_PERIOD);
    rts_param_set_runtime(&p, T_RUNTIME);
    rts_param_set_des_runtime(&p, T_DES_RUNTIME);
    rts_param_set_deadline(&p, T_DEADLINE);

    /* Test for admission */
    if (rts_task_create(&t, &p) != RTS_OK)
        /* We can abort, or retry with different parameters */
        return;

    /* On success we attach an execution flow to the
     * task specification */
    rts_task_attach(&t, gettid());

    /* Signals that a task begins its execution */
    rts_task_start(&t);

    while(!computation_ended()) {
        /* Task runs the desired actions*/
        mandatory_computation();

        /* Enabling optional computation depending
         * on the accepted runtime */
        if (rts_task_get_accepted_runtime(&t) > T_RUNTIME)
            optional_computation();

        /* Suspend execution waiting for the next period */
        rts_task_wait_period(&t);
    }

    /* Cleanup */
    rts_task_release(&t);
}

static void *thread(void *unused)
{
    body();
    return unused;
}

int main(void)
{
    pthread_t id;
    if (pthread_create(&id, NULL, thread, NULL) != 0 || pthread_join(id, NULL) != 0)
        return 1;
    printf("%s: %d periods, %d with their optional part\n", periods == 10 ? "done" : "refused",
           periods, optional_parts);
    return periods == 10 ? 0 : 2;
}
