/*
 * A periodic task with a grant: requests the grant, attaches it to the calling thread, waits for
 * ten periods and releases the grant.
 *
 *     cc -std=c11 -Wall -Wextra hold_a_grant.c $(pkg-config --cflags --libs talea)
 *
 * Exit status: 0; 1 if the release fails; 2 if the request is refused; 3 without a daemon.
 */
#include <inttypes.h>
#include <stdio.h>
#include <talea.h>

int main(void)
{
    talea_client *client = NULL;
    talea_grant *grant = NULL;
    talea_spec spec = TALEA_SPEC_INIT;
    talea_granted granted = TALEA_GRANTED_INIT;
    talea_periodic periodic = TALEA_PERIODIC_INIT;
    int result, i;

    spec.period_ns = 10000000;
    spec.runtime_ns = 1000000;
    spec.desired_ns = 2000000;

    if (talea_connect(&client) != 0) {
        fprintf(stderr, "%s\n", talea_last_error());
        return 3;
    }
    result = talea_create(client, &spec, &grant);
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", talea_result_name(result), talea_last_error());
        talea_disconnect(client);
        return result > 0 ? 2 : 3;
    }
    if (talea_attach(grant, 0) != 0)
        fprintf(stderr, "cannot attach the grant: %s\n", talea_last_error());

    if (talea_granted_get(grant, &granted) == 0)
        printf("granted %" PRIu64 " us of every %" PRIu64 " us\n", granted.runtime_ns / 1000,
               spec.period_ns / 1000);

    talea_periodic_start(&periodic, spec.period_ns);
    for (i = 0; i < 10; i++)
        talea_wait_period(&periodic);
    printf("%" PRIu64 " periods, %" PRIu64 " overruns\n", periodic.index, periodic.overruns);

    result = talea_release(grant);
    talea_disconnect(client);
    return result == 0 ? 0 : 1;
}
