/*
 * Listing 1 of Serra, Ara, Fara, Cucinotta, "ReTiF: A declarative real-time scheduling framework
 * for POSIX systems", J. Systems Architecture 118, 2021, as printed. The definitions that the
 * listing omits are above and below it.
 *
 *     cc -std=c11 -Wall -Wextra retif_listing_jsa.c $(pkg-config --cflags --libs retif)
 *
 * Exit status: 0 after ten periods; 2 if the request is refused; 3 without a daemon.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <retif.h>
#include <stdio.h>
#include <unistd.h>

#define T_PERIOD 10000
#define T_RUNTIME 1000
#define T_DES_RUNTIME 2000
#define T_DEADLINE 10000

static int periods;
static int optional_parts;
static const char *outcome = "no daemon";
static int status = 3;

static int computation_ended(void)
{
    outcome = "done";
    status = 0;
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
    struct rtf_spec s = RTF_SPEC_INIT;

    /* Task parameters */
    struct rtf_params p = RTF_PARAM_INIT;

    /* Connect to the daemon via a UNIX socket */
    if (rtf_connect() == RTF_CONNECTION_ERR)
      return; /* Unable to connect to the daemon. */

    status = 2;
    outcome = "refused";

    /* Set task parameters */
    rtf_param_set_period(&p, T_PERIOD);
    rtf_param_set_runtime(&p, T_RUNTIME);
    rtf_param_set_des_runtime(&p, T_DES_RUNTIME);
    rtf_param_set_deadline(&p, T_DEADLINE);

    /* Test for admission */
    int res = rtf_spec_create(&s, &p);

    if (res == RTF_SCHEDULE_FAIL)
      return; /* Admission failed, we can retry with different parameters */
    else if (res == RTF_ACL_FAIL)
      return; /* ACL check failed, not authorized */
    else if (res == RTF_CONNECTION_ERR)
      return; /* Communication failed */

    /* res = RTF_OK */
    /* On success we attach an execution flow to the task specification */
    rtf_spec_attach(&s, getpid());

    /* Signals that a task begins its execution */
    rtf_task_start(&s);

    while(!computation_ended()) {
      /* Task runs mandatory actions */
      mandatory_computation();

      /* Enabling optional computation depending on the accepted runtime */
      if (rtf_spec_get_accepted_runtime(&s) > T_RUNTIME)
        optional_computation();

      /* Suspend execution waiting for the next period */
      rtf_task_wait_period(&s);
    }

    /* Cleanup */
    rtf_spec_release(&s);
}

int main(void)
{
    body();
    printf("%s: %d periods, %d with their optional part\n", outcome, periods, optional_parts);
    return status;
}
