/* Each result of each call of talea.h, with a daemon that has one CPU and the plugin "rm". */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <talea.h>
#include <unistd.h>

static talea_client *client;

static talea_spec spec(uint64_t runtime_ms)
{
    talea_spec spec = TALEA_SPEC_INIT;
    spec.period_ns = 10000000;
    spec.runtime_ns = runtime_ms * 1000000;
    return spec;
}

static talea_grant *create(uint64_t runtime_ms)
{
    talea_spec request = spec(runtime_ms);
    talea_grant *grant = NULL;
    CHECK(talea_create(client, &request, &grant) == 0 && grant != NULL);
    return grant;
}

static void r8_granted_terms_are_returned(void)
{
    talea_grant *grant = create(4), *other = NULL;
    talea_granted granted = TALEA_GRANTED_INIT;
    talea_spec request = spec(2);
    request.desired_ns = 9000000;
    CHECK(talea_granted_get(grant, &granted) == 0);
    CHECK(granted.runtime_ns == 4000000 && granted.cpu == 0 && granted.mechanism == TALEA_FIFO);
    CHECK(granted.utilization_ppm >= 400000 && granted.utilization_ppm <= 400001 &&
          granted.lost == 0);
    CHECK(granted.size == sizeof granted && granted.spec_id != 0);
    CHECK(talea_create(client, &request, &other) == 0);
    CHECK(talea_accepted_runtime_ns(other) >= 5999000 &&
          talea_accepted_runtime_ns(other) <= 6000000);
    CHECK(talea_release(other) == 0 && talea_release(grant) == 0 && talea_release(NULL) == 0);
}

static void a_refusal_has_a_message_and_numbers(void)
{
    talea_grant *grant = create(6), *none = grant;
    talea_refusal refusal = TALEA_REFUSAL_INIT;
    talea_spec request = spec(5);
    CHECK(talea_create(client, &request, &none) == TALEA_E_NO_PLUGIN && none == NULL);
    CHECK(strstr(talea_last_error(), "a runtime of 5ms was requested") != NULL);
    CHECK(strcmp(talea_result_name(TALEA_E_NO_PLUGIN), "no-plugin") == 0);
    CHECK(strcmp(talea_result_name(0), "ok") == 0 &&
          strcmp(talea_result_name(-ENOENT), "failed") == 0);
    CHECK(talea_refusal_get(&refusal) == 0 && refusal.code == TALEA_E_NO_PLUGIN);
    CHECK(refusal.fits_field == TALEA_FIELD_RUNTIME && refusal.fits >= 3999000 &&
          refusal.fits <= 4000000);
    CHECK(talea_explain(client, &request) == TALEA_E_NO_PLUGIN);
    request = spec(1);
    CHECK(talea_create(client, &request, NULL) == -EINVAL &&
          talea_refusal_get(&refusal) == -ENOENT);
    CHECK(talea_release(grant) == 0);
}

static void malformed_requests_are_refused_with_the_field(void)
{
    talea_refusal refusal = TALEA_REFUSAL_INIT;
    talea_grant *none;
    talea_spec request = spec(1);
    request.priority = 300;
    CHECK(talea_create(client, &request, &none) == TALEA_E_MALFORMED);
    CHECK(talea_refusal_get(&refusal) == 0 && refusal.field == TALEA_FIELD_PRIORITY &&
          refusal.asked == 300);
    request = spec(1);
    memset(request.plugin, 'x', sizeof request.plugin);
    CHECK(talea_create(client, &request, &none) == TALEA_E_MALFORMED);
    request = spec(1);
    request.flags = 64;
    CHECK(talea_create(client, &request, &none) == TALEA_E_MALFORMED);
    request = spec(1);
    request.owner = 3;
    CHECK(talea_create(client, &request, &none) == TALEA_E_MALFORMED);
    request = spec(1);
    request.size = 0;
    CHECK(talea_create(client, &request, &none) == -EINVAL &&
          talea_create(client, NULL, &none) == -EINVAL);
}

static void r2_attach_change_detach(void)
{
    talea_grant *grant = create(2), *other = create(5);
    talea_granted granted = TALEA_GRANTED_INIT;
    talea_info info = TALEA_INFO_INIT;
    talea_spec more = spec(4);
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(talea_granted_get(grant, &granted) == 0);
    CHECK(talea_attach(grant, 0) == 0);
    CHECK(talea_next_spec(client, granted.spec_id, &info) == 0);
    CHECK(info.tid == (uint32_t)gettid() && info.spec_id == granted.spec_id &&
          info.runtime_ns == 2000000);
    CHECK(strcmp(info.plugin, "rm") == 0);
    info.tid = 0;
    CHECK(talea_grant_status(grant, &info) == 0 && info.tid == (uint32_t)gettid());
    CHECK(info.overruns == 0 && info.last_overrun_ns == 0 && info.throttled == 0);
    CHECK(talea_grant_status(NULL, &info) == -EINVAL);
    CHECK(talea_detach(grant) == 0 && talea_detach(grant) == TALEA_E_NOT_ATTACHED);
    CHECK(pidfd >= 0 && talea_attach_pidfd(grant, pidfd) == 0 &&
          talea_attach_pidfd(grant, -1) == -EBADF);
    CHECK(talea_attach(grant, -1) == -EINVAL &&
          talea_attach(grant, 0x7fffffff) == TALEA_E_NO_SUCH_THREAD);
    CHECK(talea_change(grant, &more) == 0 && talea_accepted_runtime_ns(grant) == 4000000);
    more = spec(6);
    CHECK(talea_change(grant, &more) == TALEA_E_NO_PLUGIN &&
          talea_accepted_runtime_ns(grant) == 4000000);
    close(pidfd);
    CHECK(talea_release(grant) == 0 && talea_release(other) == 0);
}

static void groups_are_granted_as_a_whole_or_refused(void)
{
    talea_grant *grants[3] = { NULL, NULL, NULL };
    talea_spec specs[3] = { TALEA_SPEC_INIT, TALEA_SPEC_INIT, TALEA_SPEC_INIT };
    talea_refusal refusal = TALEA_REFUSAL_INIT;
    talea_status status = TALEA_STATUS_INIT;
    specs[0] = specs[1] = specs[2] = spec(4);
    CHECK(talea_create_group(client, specs, 3, grants) == TALEA_E_NO_PLUGIN && grants[0] == NULL);
    CHECK(talea_status_get(client, &status) == 0 && status.specs == 0 && status.plugins == 1);
    specs[2] = spec(1);
    specs[1].owner = 9;
    CHECK(talea_create_group(client, specs, 3, grants) == TALEA_E_MALFORMED);
    CHECK(talea_refusal_get(&refusal) == 0 && refusal.index == 1 &&
          refusal.field == TALEA_FIELD_OWNER);
    specs[1].owner = TALEA_OWNER_SESSION;
    CHECK(talea_create_group(client, specs, 3, grants) == 0);
    CHECK(talea_accepted_runtime_ns(grants[2]) == 1000000);
    CHECK(talea_create_group(client, specs, 65, grants) == TALEA_E_MALFORMED);
    CHECK(talea_release(grants[0]) == 0 && talea_release(grants[1]) == 0 &&
          talea_release(grants[2]) == 0);
}

static void grants_can_be_disowned_and_claimed(void)
{
    talea_granted granted = TALEA_GRANTED_INIT;
    talea_spec request = spec(1);
    talea_grant *grant = NULL;
    uint64_t id = 0;
    uint8_t wrong[16] = { 1, 2, 3 };
    request.owner = TALEA_OWNER_PROCESS;
    CHECK(talea_create(client, &request, &grant) == 0 && talea_granted_get(grant, &granted) == 0);
    CHECK(talea_disown(grant, &id) == 0 && id == granted.spec_id);
    CHECK(talea_claim(client, id, wrong, &grant) == TALEA_E_BAD_TOKEN && grant == NULL);
    CHECK(talea_claim(client, id, granted.token, &grant) == 0);
    CHECK(talea_accepted_runtime_ns(grant) == 1000000 && talea_release(grant) == 0);
}

static void lists_end_with_enoent(void)
{
    talea_plugin_info plugin = TALEA_PLUGIN_INFO_INIT;
    talea_info info = TALEA_INFO_INIT;
    CHECK(talea_plugin_get(client, 0, &plugin) == 0 && strcmp(plugin.name, "rm") == 0);
    CHECK(plugin.cpus[0] == 1 && plugin.priority_high == 99);
    CHECK(talea_plugin_get(client, 1, &plugin) == -ENOENT);
    CHECK(talea_next_spec(client, 0, &info) == -ENOENT);
}

static void a_forked_child_does_not_release_the_grants_of_its_parent(void)
{
    talea_grant *grant = create(2);
    talea_granted granted = TALEA_GRANTED_INIT;
    talea_status status = TALEA_STATUS_INIT;
    int ended = 1;
    pid_t child = fork();
    if (child == 0) {
        CHECK(talea_granted_get(grant, &granted) == -ECHILD);
        CHECK(talea_status_get(client, &status) == 0);
        talea_disconnect(client);
        _exit(0);
    }
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);
    CHECK(talea_status_get(client, &status) == 0 && status.specs == 1);
    CHECK(talea_release(grant) == 0);
}

static void w3_periods(void)
{
    talea_periodic periodic = TALEA_PERIODIC_INIT;
    uint64_t i;
    CHECK(talea_wait_period(&periodic) == -EINVAL && talea_periodic_start(&periodic, 0) == -EINVAL);
    CHECK(talea_periodic_start(&periodic, 2000000) == 0 && periodic.start_ns != 0 &&
          periodic.index == 0);
    for (i = 1; i <= 5; i++)
        CHECK(talea_wait_period(&periodic) == 0 && periodic.index == i);
    periodic.flags = TALEA_LATE_SKIP;
    usleep(9000);
    CHECK(talea_wait_period(&periodic) == 0 && periodic.overruns >= 1 && periodic.skipped >= 1);
    CHECK(periodic.index == 6 + periodic.skipped);
    periodic.flags = TALEA_LATE_SHIFT;
    i = periodic.start_ns;
    usleep(9000);
    CHECK(talea_wait_period(&periodic) == 0 && periodic.shifted_ns >= 2000000);
    CHECK(periodic.start_ns == i + periodic.shifted_ns);
}

int main(void)
{
    talea_client *other = NULL;
    CHECK(talea_connect(&client) == 0 && client != NULL);
    CHECK(talea_connect_to("/nonexistent", 0, &other) == -ENOENT && other == NULL);
    CHECK(strstr(talea_last_error(), "/nonexistent") != NULL && talea_connect(NULL) == -EINVAL);
    r8_granted_terms_are_returned();
    a_refusal_has_a_message_and_numbers();
    malformed_requests_are_refused_with_the_field();
    r2_attach_change_detach();
    groups_are_granted_as_a_whole_or_refused();
    grants_can_be_disowned_and_claimed();
    lists_end_with_enoent();
    a_forked_child_does_not_release_the_grants_of_its_parent();
    w3_periods();
    CHECK(strlen(talea_version()) >= 5);
    talea_disconnect(client);
    talea_disconnect(NULL);
    return 0;
}
