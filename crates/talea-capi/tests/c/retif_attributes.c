/* Attributes that a real daemon sets on a thread. Its plugin "rm" has the priorities 50-60; it
 * permits all requests. Argument: the TID of a thread of another user. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <retif.h>
#include <sched.h>
#include <unistd.h>

static int policy(void)
{
    return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

int main(int argc, char **argv)
{
    struct rtf_params p = RTF_PARAM_INIT;
    struct rtf_task t = RTF_TASK_INIT, u = RTF_TASK_INIT;
    struct rtf_task_info info;
    struct sched_param param;

    CHECK(argc == 2);
    CHECK(policy() == SCHED_OTHER);
    rtf_params_set_period(&p, 50000);
    rtf_params_set_runtime(&p, 1000);
    rtf_params_set_scheduler(&p, "rm");
    CHECK(rtf_task_create(&t, &p) == RTF_OK);

    /* 0 selects the calling thread. Its children start with ordinary priorities. */
    CHECK(rtf_task_attach(&t, 0) == RTF_OK);
    CHECK(policy() == SCHED_FIFO && (sched_getscheduler(0) & SCHED_RESET_ON_FORK) != 0);
    CHECK(sched_getparam(0, &param) == 0 && param.sched_priority >= 50 &&
          param.sched_priority <= 60);
    CHECK(rtf_task_info(t.task_id, &info) == RTF_OK);
    CHECK(info.tid == gettid() && info.priority == param.sched_priority && info.period == 50000);

    /* A thread has at most one task. */
    CHECK(rtf_task_create(&u, &p) == RTF_OK);
    CHECK(rtf_task_attach(&u, gettid()) == RTF_FAIL);

    /* A change keeps the thread real-time. */
    rtf_params_set_period(&p, 20000);
    CHECK(rtf_task_change(&t, &p) == RTF_OK && t.p.period == 20000);
    CHECK(policy() == SCHED_FIFO);

    CHECK(rtf_task_detach(&t) == RTF_OK && policy() == SCHED_OTHER);
    CHECK(rtf_task_attach(&t, getpid()) == RTF_OK && policy() == SCHED_FIFO);
    CHECK(rtf_task_release(&t) == RTF_OK && policy() == SCHED_OTHER);
    CHECK(rtf_task_release(&t) == RTF_FAIL);

    /* Another user's thread. */
    CHECK(rtf_spec_attach(&u, atoi(argv[1])) == RTF_ACL_FAIL);
    CHECK(rtf_task_attach(&u, atoi(argv[1])) == RTF_FAIL);
    CHECK(rtf_task_release(&u) == RTF_OK);
    return 0;
}
