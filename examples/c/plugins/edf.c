/*
 * Earliest deadline first for talead, on SCHED_DEADLINE, with each task on one CPU.
 *
 * ReTiF, J. Systems Architecture 2021, section 5.1; ISORC 2020, equation 2. Period and runtime are
 * mandatory, the deadline defaults to the period. The task goes to the least loaded CPU. The load
 * of a task is Q / min(T, D) (equation 1); it is accepted if the sum on the CPU is at most U^thr
 * (equation 3), which is the share that the kernel admits. A desired runtime is granted as far as
 * U^thr allows: Q^a = max(Q, min(Q^d, free * min(T, D))).
 *
 * Where the sum exceeds U^thr and the sum of Q / T does not, the processor demand test decides, as
 * in the built-in plugin: h(t) <= U^thr * t for all t, with
 * h(t) = sum over D <= t of (floor((t - D) / T) + 1) * Q.
 * Baruah, Rosier and Howell, Real-Time Systems 2(4), 1990; the search is that of Zhang and Burns,
 * IEEE Trans. Computers 58(9), 2009.
 *
 * The same requests get the same answers as from the built-in plugin, if the plugin has its CPUs
 * alone, if no ended reservation is still held, and within the limits of the search (below).
 *
 *     cc -Wall -Wextra -Werror -std=c11 -shared -fPIC \
 *        -I../../../crates/talea-plugin-host/include -o edf.so edf.c
 */
#include "tasks.h"

/* CPUs on which one request may run the demand test. */
#define DEMAND_TESTS 4
/* Steps of one test, each over all tasks of the CPU. */
#define STEPS 65536

static u128 threshold;

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self; /* each instance has its own process, so static variables are private */
    if (setup->sched_class != TALEA_PLUGIN_DEADLINE) {
        fprintf(stderr, "earliest deadline first needs `class = \"deadline\"`\n");
        return 1;
    }
    threshold = setup->deadline_share;
    add((struct task){.cpu = -1});
    task_count = 0;
    return 0;
}

/* Task i of `count` on a CPU: those in the list without `leaving`, and then the new one. */
static size_t collect(int32_t cpu, const struct task *leaving, struct task candidate,
                      struct task *here)
{
    size_t count = 0;
    for (size_t i = 0; i < task_count; i++)
        if (tasks[i].cpu == cpu && &tasks[i] != leaving)
            here[count++] = tasks[i];
    here[count++] = candidate;
    return count;
}

/* Whether the sum of Q / T may be within U^thr; a sum within the rounding passes. */
static int may_fit(const struct task *here, size_t count)
{
    u128 sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += share_up(here[i].work, here[i].period);
    return sum <= threshold + count + 1;
}

/* Least common multiple of the periods plus the longest deadline; 0 if it is too long. */
static uint64_t hyperperiod(const struct task *here, size_t count)
{
    uint64_t all = 1, longest = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t a = all, b = here[i].period;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        u128 multiple = (u128)all / a * here[i].period;
        if (multiple >> 62)
            return 0;
        all = (uint64_t)multiple;
        if (here[i].span > longest)
            longest = here[i].span;
    }
    return all + longest;
}

/* The processor demand test. A test that would need more steps fails. */
static int demand_fits(const struct task *here, size_t count)
{
    for (size_t i = 0; i < count; i++)
        shares[i] = (struct share){here[i].work, here[i].period};
    uint64_t at = hyperperiod(here, count);
    if (!at || !share_fits(shares, count, threshold, rests))
        return 0;
    for (int step = 0; step < STEPS; step++) {
        u128 demand = 0;
        for (size_t i = 0; i < count; i++)
            if (at >= here[i].span)
                demand += (u128)((at - here[i].span) / here[i].period + 1) * here[i].work;
        if (demand == 0)
            return 1;
        /* The shortest window with this supply. */
        u128 time = ((demand << 64) + threshold - 1) / threshold;
        if (time > at)
            return 0;
        at = (uint64_t)time - 1;
    }
    return 0;
}

/* Q^a, the runtime granted on a CPU. */
static uint64_t granted(const struct talea_plugin_task *task, int32_t cpu,
                        const struct task *leaving)
{
    uint64_t span = span_of(task), most = least(task->desired_ns, span);
    uint32_t count;
    u128 sum = load(cpu, leaving, &count);
    uint64_t free_ns = sum < threshold ? share_of(threshold - sum, span) : 0;
    /* The sum is rounded up, so one nanosecond more may fit. */
    for (int more = 1; more >= 0; more--) {
        uint64_t runtime = least(most, free_ns + (uint64_t)more);
        size_t all = shares_on(cpu, leaving, (struct share){runtime, span});
        if (runtime > task->runtime_ns && share_fits(shares, all, threshold, rests))
            return runtime;
    }
    return task->runtime_ns;
}

static int32_t accepted(struct talea_plugin_place *place, int32_t cpu, uint64_t runtime)
{
    place->cpu = cpu;
    place->runtime_ns = runtime;
    return TALEA_PLUGIN_OK;
}

static int32_t judge(const struct talea_plugin_task *task, const struct task *leaving,
                     struct talea_plugin_place *place)
{
    if (!task->period_ns)
        return no(place, "a period is missing");
    if (!task->runtime_ns)
        return no(place, "a runtime is missing");
    int32_t order[2 * TRIED], open[DEMAND_TESTS];
    int count = worst_fit(task, leaving, order), undecided = 0;
    struct task new = {.work = task->runtime_ns, .span = span_of(task), .period = task->period_ns};
    struct task *here = resized(NULL, (task_count + 1) * sizeof *here);
    int32_t said = 0;
    for (int i = 0; i < count && !said; i++) {
        size_t all = shares_on(order[i], leaving, (struct share){new.work, new.span});
        if (share_fits(shares, all, threshold, rests))
            said = accepted(place, order[i], granted(task, order[i], leaving));
        else if (undecided < DEMAND_TESTS
                 && may_fit(here, collect(order[i], leaving, new, here)))
            open[undecided++] = order[i];
    }
    for (int i = 0; i < undecided && !said; i++)
        if (demand_fits(here, collect(open[i], leaving, new, here)))
            said = accepted(place, open[i], granted(task, open[i], leaving));
    /* An ignored test: the kernel would still refuse more than its share of Q / T. */
    int ignore = (task->flags & TALEA_PLUGIN_IGNORE_ADMISSION) != 0;
    for (int i = 0; ignore && i < count && !said; i++)
        if (may_fit(here, collect(order[i], leaving, new, here)))
            said = accepted(place, order[i], new.work);
    free(here);
    return said ? said : no(place, "the utilization would exceed U^thr on every CPU");
}

static int32_t accept(void *self, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    (void)self;
    return judge(task, NULL, place);
}

static int32_t change(void *self, uint64_t id, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    (void)self;
    return judge(task, find(id), place);
}

static void release(void *self, uint64_t id)
{
    (void)self;
    struct task *old = find(id);
    if (old)
        *old = tasks[--task_count];
}

static void schedule(void *self, uint64_t id, const struct talea_plugin_task *task,
                     const struct talea_plugin_place *place)
{
    (void)task;
    release(self, id);
    add((struct task){.id = id, .cpu = place->cpu, .work = place->runtime_ns,
                      .span = least(place->deadline_ns, place->period_ns),
                      .period = place->period_ns});
}

static void ignore(void *self, uint64_t id) { (void)self, (void)id; }

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init,
        .accept = accept, .change = change, .schedule = schedule, .release = release,
        .attach = ignore, .detach = ignore,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}
