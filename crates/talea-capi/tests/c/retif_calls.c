/* Each result of each call of retif.h, with a daemon that has one CPU and the plugin "rm". */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <retif.h>
#include <string.h>
#include <unistd.h>

static void r3_getters_return_what_setters_set(void)
{
    struct rtf_params p;
    char name[PLUGIN_MAX_NAME];
    memset(&p, 0xff, sizeof p);
    rtf_params_init(&p);
    CHECK(rtf_params_get_period(&p) == 0 && rtf_params_get_ignore_admission(&p) == 0);
    rtf_params_set_runtime(&p, 1);
    rtf_params_set_des_runtime(&p, 2);
    rtf_params_set_period(&p, 3);
    rtf_params_set_deadline(&p, 4);
    rtf_params_set_priority(&p, 5);
    rtf_params_set_scheduler(&p, "edf");
    rtf_params_ignore_admission(&p, 1);
    CHECK(rtf_params_get_runtime(&p) == 1 && rtf_params_get_des_runtime(&p) == 2);
    CHECK(rtf_params_get_period(&p) == 3 && rtf_params_get_deadline(&p) == 4);
    CHECK(rtf_params_get_priority(&p) == 5 && rtf_params_get_ignore_admission(&p) == 1);
    rtf_params_get_scheduler(&p, name);
    CHECK(strcmp(name, "edf") == 0);
    rtf_params_set_scheduler(&p, "a-name-of-more-than-thirty-one-bytes");
    rtf_params_get_scheduler(&p, name);
    CHECK(strlen(name) == 31);
    rtf_params_set_scheduler(&p, NULL);
    CHECK(p.sched_plugin[0] == 0);
    /* The same structure under the papers' spellings. */
    CHECK(rtf_param_get_des_runtime(&p) == 2 && rts_params_get_des_runtime(&p) == 2);
    CHECK(rts_param_get_period(&p) == 3);
}

static struct rtf_params params(uint64_t runtime)
{
    struct rtf_params p = RTF_PARAM_INIT;
    rtf_params_set_period(&p, 10000);
    rtf_params_set_runtime(&p, runtime);
    return p;
}

static void r2_create_change_release(void)
{
    struct rtf_task t = RTF_TASK_INIT, u = RTF_TASK_INIT;
    struct rtf_params p = params(4000), q = params(8000), elastic = params(2000);
    CHECK(rtf_task_create(&t, &p) == RTF_OK);
    CHECK(t.task_id > 0 && t.p.runtime == 4000);
    CHECK(rtf_task_get_accepted_runtime(&t) == 4000 && t.acc_runtime == 4000);

    CHECK(rtf_task_create(&u, &q) == RTF_FAIL);
    CHECK(u.task_id == 0);

    rtf_params_set_des_runtime(&elastic, 9000);
    CHECK(rtf_task_create(&u, &elastic) == RTF_OK);
    CHECK(rtf_task_get_accepted_runtime(&u) >= 5999 && rtf_task_get_accepted_runtime(&u) <= 6000);
    CHECK(rtf_task_get_accepted_budget(&u) == rtf_task_get_accepted_runtime(&u));
    CHECK(u.task_id != t.task_id);

    /* W1: a refused change leaves the parameters unchanged, in the structure and in the daemon. */
    CHECK(rtf_task_change(&t, &q) == RTF_FAIL);
    CHECK(t.p.runtime == 4000 && rtf_task_get_accepted_runtime(&t) == 4000);
    CHECK(rtf_task_change(&u, &elastic) == RTF_OK);
    p = params(1000);
    CHECK(rtf_task_change(&t, &p) == RTF_OK);
    CHECK(t.p.runtime == 1000 && rtf_task_get_accepted_runtime(&t) == 1000);

    CHECK(rtf_task_release(&t) == RTF_OK);
    CHECK(t.task_id == 0 && rtf_task_get_accepted_runtime(&t) == 0);
    CHECK(rtf_task_release(&t) == RTF_FAIL);
    CHECK(rtf_task_change(&t, &p) == RTF_FAIL);
    CHECK(rtf_task_release(&u) == RTF_OK);
}

static void r2_attach_detach(void)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct rtf_params p = params(1000);
    struct rtf_task_info info;
    CHECK(rtf_task_attach(&t, 0) == RTF_FAIL);
    CHECK(rtf_task_create(&t, &p) == RTF_OK);
    CHECK(rtf_task_detach(&t) == RTF_FAIL);
    CHECK(rtf_task_attach(&t, 0) == RTF_OK);
    CHECK(rtf_task_info(t.task_id, &info) == RTF_OK && info.tid == gettid());
    CHECK(rtf_task_detach(&t) == RTF_OK);
    CHECK(rtf_task_attach(&t, getpid()) == RTF_OK);
    CHECK(rtf_task_attach(&t, -5) == RTF_FAIL);
    CHECK(rtf_task_attach(&t, 0x7fffffff) == RTF_FAIL);
    CHECK(rtf_task_release(&t) == RTF_OK);
}

static void r10_only_a_named_plugin_is_queried(void)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct rtf_params p = params(1000);
    rtf_params_set_scheduler(&p, "nosuch");
    CHECK(rtf_task_create(&t, &p) == RTF_FAIL);
    rtf_params_set_scheduler(&p, "rm");
    CHECK(rtf_task_create(&t, &p) == RTF_OK);
    CHECK(rtf_task_release(&t) == RTF_OK);
}

static void w12_values_outside_the_protocol_are_refused(void)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct rtf_params p = params(1000);
    char why[256];
    rtf_params_set_priority(&p, 300);
    CHECK(rtf_task_create(&t, &p) == RTF_FAIL);
    CHECK(rtf_task_explain(&t, why, sizeof why) > 0 && strstr(why, "300") != NULL);
    p = params(1000);
    rtf_params_set_period(&p, UINT64_MAX / 10);
    CHECK(rtf_task_create(&t, &p) == RTF_FAIL);
}

static void r4_spec_calls_distinguish_refusals(void)
{
    struct rtf_spec s = RTF_SPEC_INIT;
    struct rtf_params p = params(20000);
    char why[256];
    rtf_result_t result = rtf_spec_create(&s, &p);
    CHECK(result == RTF_SCHEDULE_FAIL && result != RTF_ACL_FAIL && result != RTF_CONNECTION_ERR);
    CHECK(rtf_spec_explain(&s, why, sizeof why) > 0 && strstr(why, "20ms") != NULL);
    p = params(1000);
    CHECK(rtf_spec_create(&s, &p) == RTF_OK);
    CHECK(rtf_spec_explain(&s, why, sizeof why) > 0 && strstr(why, "plugin rm") != NULL);
    CHECK(rtf_spec_explain(&s, why, 5) > 5 && strlen(why) == 4);
    CHECK(rtf_spec_get_accepted_runtime(&s) == 1000);
    CHECK(rtf_spec_attach(&s, 0) == RTF_OK && rtf_spec_detach(&s) == RTF_OK);
    CHECK(rtf_spec_change(&s, &p) == RTF_OK && rtf_spec_release(&s) == RTF_OK);
}

static void info_calls_count_what_they_find(void)
{
    struct rtf_task t[3] = { RTF_TASK_INIT, RTF_TASK_INIT, RTF_TASK_INIT };
    struct rtf_params p = params(1000);
    struct rtf_task_info task;
    struct rtf_client_info client;
    struct rtf_plugin_info plugin;
    struct rtf_cpu_info cpu;
    int i, found, count;
    for (i = 0; i < 3; i++)
        CHECK(rtf_task_create(&t[i], &p) == RTF_OK);
    CHECK(rtf_task_release(&t[1]) == RTF_OK);

    count = rtf_tasks_info();
    CHECK(count == 2);
    CHECK(rtf_task_release(&t[2]) == RTF_OK);
    for (i = 0, found = 0; found < count; i++) {
        CHECK(i < 100000);
        found += rtf_task_info((unsigned)i, &task) == RTF_OK;
    }
    CHECK(task.period == 10000 && task.util > 0.09f && task.util < 0.11f && task.pluginid == 0);
    CHECK(task.ppid > 0);

    count = rtf_connections_info();
    CHECK(count >= 1);
    for (i = 0, found = 0; found < count; i++) {
        CHECK(i < 100000);
        found += rtf_connection_info((unsigned)i, &client) == RTF_OK;
    }
    CHECK(client.state == CONNECTED);

    CHECK(rtf_plugins_info() == 1);
    CHECK(rtf_plugin_info(0, &plugin) == RTF_OK && strcmp(plugin.name, "rm") == 0 &&
          plugin.cputot == 1);
    CHECK(rtf_plugin_cpu_info(0, 0, &cpu) == RTF_OK && cpu.cpunum == 0 && cpu.ntask == 1);
    CHECK(cpu.freeu > 0.89f && cpu.freeu < 0.91f);

    /* M3, M4: an index or a number without an item is an error. */
    CHECK(rtf_plugin_info(1, &plugin) == RTF_ERROR &&
          rtf_plugin_info((unsigned)-1, &plugin) == RTF_ERROR);
    CHECK(rtf_plugin_cpu_info(0, 7, &cpu) == RTF_ERROR &&
          rtf_plugin_cpu_info(9, 0, &cpu) == RTF_ERROR);
    CHECK(rtf_connection_info(1024, &client) == RTF_ERROR);
    CHECK(rtf_connection_info((unsigned)-1, &client) == RTF_ERROR);
    CHECK(rtf_task_info(0, &task) == RTF_ERROR && rtf_task_info(0x7fffffff, &task) == RTF_ERROR);
    CHECK(rtf_task_release(&t[0]) == RTF_OK);
}

static void null_is_an_error(void)
{
    struct rtf_params p = params(1000);
    struct rtf_task t = RTF_TASK_INIT;
    CHECK(rtf_task_create(NULL, &p) == RTF_ERROR && errno == EINVAL);
    CHECK(rtf_task_create(&t, NULL) == RTF_ERROR && rtf_task_release(NULL) == RTF_ERROR);
    CHECK(rtf_task_info(1, NULL) == RTF_ERROR && rtf_task_get_accepted_runtime(NULL) == 0);
    rtf_task_init(NULL);
    rtf_task_start(NULL);
    rtf_task_wait_period(NULL);
    rtf_params_init(NULL);
    rtf_params_set_scheduler(NULL, "rm");
    rtf_params_get_scheduler(&p, NULL);
    CHECK(rtf_params_get_period(NULL) == 0);
}

int main(void)
{
    r3_getters_return_what_setters_set();
    CHECK(rtf_connect() == RTF_OK);
    r2_create_change_release();
    r2_attach_detach();
    r10_only_a_named_plugin_is_queried();
    w12_values_outside_the_protocol_are_refused();
    r4_spec_calls_distinguish_refusals();
    info_calls_count_what_they_find();
    null_is_an_error();
    return 0;
}
