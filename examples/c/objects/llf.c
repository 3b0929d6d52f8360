/*
 * llf.c - least laxity first as an object for `talea simulate --object` and `talea execute
 * --object`.
 *
 * Mok and Dertouzos, 1978. The laxity of a job is the time to its deadline minus its remaining
 * work. The order by laxity is the order by latest start: deadline minus remaining work. Jobs with
 * equal laxity would preempt each other continuously, so latest starts are compared in
 * milliseconds. examples/policy-llf is the same policy in Rust; a test compares their schedules.
 *
 *     cc -O2 -fPIC -shared -I../../../crates/talea-object/include -o llf.so llf.c
 *     talea simulate --object ./llf.so ../../policy-llf/system.toml
 */
#include "talea_sched.h"

#include <stdlib.h>

#define RESOLUTION_NS 1000000u

struct job {
    uint64_t cost_ns;
    uint64_t remaining_ns;
    uint64_t deadline_ns;
    uint32_t number;
    int is_ready;
};

struct llf {
    uint32_t children;
    struct job jobs[];
};

static void *create(uint32_t children)
{
    struct llf *llf = calloc(1, sizeof *llf + children * sizeof llf->jobs[0]);

    if (llf)
        llf->children = children;
    return llf;
}

static const char *admit(void *self, const struct talea_sched_info *info)
{
    struct llf *llf = self;
    struct job *job = &llf->jobs[info->child];

    if (!info->has_cost)
        return "no cost is declared; give a task one, a scheduler a server";
    job->cost_ns = info->cost_ns;
    job->remaining_ns = info->cost_ns;
    job->deadline_ns = info->criteria.deadline_ns;
    return NULL;
}

static uint64_t latest_start(const struct job *job, uint64_t deadline_ns)
{
    return deadline_ns > job->remaining_ns ? deadline_ns - job->remaining_ns : 0;
}

static int32_t ready(void *self, uint64_t now_ns, const struct talea_sched_child *entry)
{
    struct llf *llf = self;
    struct job *job = &llf->jobs[entry->child];

    (void)now_ns;
    /* The same job keeps its remaining work when it resumes or inherits another deadline. */
    if (job->number != entry->job)
        job->remaining_ns = job->cost_ns;
    job->number = entry->job;
    job->deadline_ns = entry->criteria.deadline_ns;
    job->is_ready = 1;
    return TALEA_SCHED_PICK;
}

static int32_t finished(void *self, uint64_t now_ns, uint32_t child)
{
    struct llf *llf = self;

    (void)now_ns;
    llf->jobs[child].is_ready = 0;
    return TALEA_SCHED_PICK;
}

static int64_t head(const void *self, uint64_t now_ns)
{
    const struct llf *llf = self;
    int64_t first = TALEA_SCHED_NONE;
    uint64_t least = 0;

    (void)now_ns;
    for (uint32_t child = 0; child < llf->children; child++) {
        const struct job *job = &llf->jobs[child];
        uint64_t start = latest_start(job, job->deadline_ns) / RESOLUTION_NS;

        if (job->is_ready && (first == TALEA_SCHED_NONE || start < least)) {
            first = child;
            least = start;
        }
    }
    return first;
}

static int32_t before(const void *self, uint64_t now_ns, const struct talea_sched_child *a,
                      const struct talea_sched_child *b)
{
    const struct llf *llf = self;
    uint64_t start_a = latest_start(&llf->jobs[a->child], a->criteria.deadline_ns);
    uint64_t start_b = latest_start(&llf->jobs[b->child], b->criteria.deadline_ns);

    (void)now_ns;
    start_a /= RESOLUTION_NS;
    start_b /= RESOLUTION_NS;
    return start_a != start_b ? start_a < start_b : a->child < b->child;
}

static int32_t charge(void *self, uint64_t now_ns, uint32_t child, uint64_t used_ns)
{
    struct llf *llf = self;
    struct job *job = &llf->jobs[child];

    (void)now_ns;
    job->remaining_ns = job->remaining_ns > used_ns ? job->remaining_ns - used_ns : 0;
    return TALEA_SCHED_PICK;
}

static uint64_t allowance(const void *self, uint64_t now_ns, uint32_t child)
{
    const struct llf *llf = self;
    uint64_t start = latest_start(&llf->jobs[child], llf->jobs[child].deadline_ns);
    uint32_t count = 0;

    (void)now_ns;
    for (uint32_t other = 0; other < llf->children; other++)
        count += llf->jobs[other].is_ready != 0;
    return count > 1 ? RESOLUTION_NS - start % RESOLUTION_NS : TALEA_SCHED_NEVER;
}

static const struct talea_sched_policy llf = {
    .size = sizeof llf,
    .name = "llf",
    .create = create,
    .destroy = free,
    .admit = admit,
    .ready = ready,
    .finished = finished,
    .update = ready,
    .head = head,
    .before = before,
    .charge = charge,
    .allowance = allowance,
};

static const struct talea_sched_policy *const policies[] = {&llf, NULL};

static const struct talea_sched_object object = {
    .size = sizeof object,
    .abi = TALEA_SCHED_ABI,
    .policies = policies,
};

const struct talea_sched_object *talea_sched_entry(uint32_t abi)
{
    return abi == TALEA_SCHED_ABI ? &object : NULL;
}
