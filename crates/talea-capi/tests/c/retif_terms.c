/* Granted terms, created, changed and queried with a real daemon. It has the plugins "edf" and "rm"
 * (priorities 50-60), in this order, and permits all requests. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <retif.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_POLICY 6

static int policy(void)
{
    return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

static struct rtf_params params(uint64_t runtime, uint64_t desired)
{
    struct rtf_params p = RTF_PARAM_INIT;
    rtf_params_set_period(&p, 20000);
    rtf_params_set_runtime(&p, runtime);
    rtf_params_set_des_runtime(&p, desired);
    return p;
}

/* R8, W2: the accepted runtime, between runtime and desired runtime, is returned. */
static void accepted_runtimes_are_returned(struct rtf_spec *s)
{
    struct rtf_params p = params(1000, 2000);
    CHECK(rtf_spec_create(s, &p) == RTF_OK);
    CHECK(rtf_spec_get_accepted_runtime(s) == 2000);
    CHECK(rtf_params_get_runtime(&p) == 1000 && rtf_params_get_des_runtime(&p) == 2000);
    CHECK(rtf_spec_attach(s, 0) == RTF_OK && policy() == DEADLINE_POLICY);
}

/* R7, W1: a granted change takes effect, a refused change has none; the thread stays real-time. */
static void changes_take_effect_or_are_refused(struct rtf_spec *s)
{
    struct rtf_params more = params(1000, 3000), bad = params(30000, 0),
                      unknown_plugin = params(1000, 0);
    CHECK(rtf_spec_change(s, &more) == RTF_OK);
    CHECK(rtf_spec_get_accepted_runtime(s) == 3000 && policy() == DEADLINE_POLICY);
    CHECK(rtf_spec_change(s, &bad) == RTF_SCHEDULE_FAIL);
    rtf_params_set_scheduler(&unknown_plugin, "nosuch");
    CHECK(rtf_spec_change(s, &unknown_plugin) == RTF_SCHEDULE_FAIL);
    CHECK(rtf_task_change(s, &bad) == RTF_FAIL);
    CHECK(rtf_spec_get_accepted_runtime(s) == 3000 && s->p.des_runtime == 3000 &&
          policy() == DEADLINE_POLICY);
}

/* R10, W13: a named plugin serves the task even if an earlier plugin could. R7: a change may move
 * the task to another plugin. */
static void a_named_plugin_serves_the_task(struct rtf_spec *s)
{
    struct rtf_params p = params(1000, 3000);
    struct rtf_task_info info;
    struct rtf_plugin_info plugin;
    rtf_params_set_scheduler(&p, "rm");
    CHECK(rtf_spec_change(s, &p) == RTF_OK && policy() == SCHED_FIFO);
    CHECK(rtf_spec_get_accepted_runtime(s) == 1000);
    CHECK(rtf_task_info(s->task_id, &info) == RTF_OK);
    CHECK(rtf_plugin_info((unsigned)info.pluginid, &plugin) == RTF_OK &&
          strcmp(plugin.name, "rm") == 0);
    rtf_params_set_scheduler(&p, "edf");
    CHECK(rtf_spec_change(s, &p) == RTF_OK && policy() == DEADLINE_POLICY);
}

/* W12: impossible parameters are refused, and not served with the lowest priority. */
static void impossible_parameters_are_refused(void)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct rtf_params p = params(20001, 0);
    CHECK(rtf_task_create(&t, &p) == RTF_FAIL && t.task_id == 0);
    p = params(0, 0);
    p.period = 0;
    CHECK(rtf_task_create(&t, &p) == RTF_FAIL);
    CHECK(rtf_tasks_info() == 1);
}

int main(void)
{
    struct rtf_spec s = RTF_SPEC_INIT;
    CHECK(rtf_connect() == RTF_OK && policy() == SCHED_OTHER);
    accepted_runtimes_are_returned(&s);
    changes_take_effect_or_are_refused(&s);
    a_named_plugin_serves_the_task(&s);
    impossible_parameters_are_refused();
    CHECK(rtf_spec_detach(&s) == RTF_OK && policy() == SCHED_OTHER);
    CHECK(rtf_spec_release(&s) == RTF_OK && rtf_tasks_info() == 0);
    return 0;
}
