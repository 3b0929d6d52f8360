/*
 * Rate monotonic for talead (deadline monotonic where D < T).
 *
 * ReTiF, J. Systems Architecture 2021, section 5.2: the period is mandatory and the runtime is
 * recommended. The task goes to the least loaded CPU. The test is the necessary condition of the
 * paper: the sum of Q / min(T, D) is at most 1. A shorter min(T, D) has a higher kernel priority.
 * Equation 6: distinct deadlines have distinct levels, as long as there are enough levels.
 *
 * The same requests get the same answers as from the built-in plugin with
 * `test = "necessary"`, if the plugin has its CPUs alone.
 *
 * Levels. Tasks of equal min(T, D) form a group, and adjacent groups on one level form a run. A new
 * run gets a level in the gap between its neighbours, in proportion to the deadlines. Without a
 * gap, runs are shifted by half of the nearest gap, on the side with fewer attached threads. Then
 * rank() tells the daemon the new levels of the tasks that have moved.
 *
 *     cc -Wall -Wextra -Werror -std=c11 -shared -fPIC \
 *        -I../../../crates/talea-plugin-host/include -o rm.so rm.c
 */
#include "tasks.h"

struct run {
    uint64_t first;    /* its shortest deadline */
    uint32_t groups;   /* number of its distinct deadlines */
    uint32_t attached; /* number of its tasks with a thread */
    int32_t level;
};

/* Runs of one CPU, the most urgent first. */
struct levels {
    int count;
    struct run run[100];
};

static int32_t low, high;
static struct levels levels_of[TALEA_PLUGIN_CPUS];

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self; /* each instance has its own process, so static variables are private */
    low = setup->priority_low;
    high = setup->priority_high;
    if (setup->sched_class == TALEA_PLUGIN_DEADLINE) {
        fprintf(stderr, "rate monotonic needs priorities: remove `class`\n");
        return 1;
    }
    add((struct task){.cpu = -1});
    task_count = 0;
    return 0;
}

/* Number of tasks with this deadline on a CPU without one of them, and how many are attached. */
static uint32_t group(int32_t cpu, uint64_t key, const struct task *without, uint32_t *attached)
{
    uint32_t count = 0;
    *attached = 0;
    for (size_t i = 0; i < task_count; i++)
        if (tasks[i].cpu == cpu && tasks[i].span == key && &tasks[i] != without) {
            count++;
            *attached += tasks[i].attached != 0;
        }
    return count;
}

/* The run of a deadline: the last one that does not begin after it, or the first one. */
static int run_of(const struct levels *levels, uint64_t key)
{
    int at = 0;
    while (at < levels->count && levels->run[at].first <= key)
        at++;
    return at > 0 ? at - 1 : 0;
}

/* Highest level that a run could have beside the more urgent ones, and lowest beside the others. */
static int32_t ceiling(const struct levels *l, int i)
{
    return i == 0 ? high : l->run[i - 1].level - 1;
}

static int32_t floor_of(const struct levels *l, int i)
{
    return i + 1 == l->count ? low : l->run[i + 1].level + 1;
}

static uint32_t attached_in(const struct levels *l, int from, int to)
{
    uint32_t sum = 0;
    for (int i = from; i < to; i++)
        sum += l->run[i].attached;
    return sum;
}

/* Inserts a run at an index and gives it a level. */
static void insert_run(struct levels *l, int at, struct run run)
{
    memmove(&l->run[at + 1], &l->run[at], (size_t)(l->count - at) * sizeof run);
    l->run[at] = run;
    l->count++;
    int32_t below = floor_of(l, at), above = ceiling(l, at);
    if (below <= above) {
        int32_t room = above - below, step = room / 2;
        if (at > 0 && at + 1 < l->count) {
            uint64_t a = l->run[at - 1].first, b = l->run[at + 1].first;
            step = (int32_t)((u128)room * (run.first - a) / (b - a));
        }
        l->run[at].level = above - step;
        return;
    }
    int up = at - 1, down = at + 1;
    while (up >= 0 && l->run[up].level >= ceiling(l, up))
        up--;
    while (down < l->count && l->run[down].level <= floor_of(l, down))
        down++;
    int can_rise = up >= 0, can_fall = down < l->count;
    down++; /* runs[up .. at] rise, or runs[at + 1 .. down] fall */
    if (can_rise && can_fall) {
        uint32_t rising = attached_in(l, up, at), falling = attached_in(l, at + 1, down);
        can_rise = rising < falling || (rising == falling && at - up <= down - at - 1);
    }
    if (can_rise) {
        int32_t by = (ceiling(l, up) - l->run[up].level + 1) / 2;
        l->run[at].level = l->run[at - 1].level + (by - 1) / 2;
        for (int i = up; i < at; i++)
            l->run[i].level += by;
    } else {
        int32_t by = (l->run[down - 1].level - floor_of(l, down - 1) + 1) / 2;
        l->run[at].level = l->run[at + 1].level - (by - 1) / 2;
        for (int i = at + 1; i < down; i++)
            l->run[i].level -= by;
    }
}

/* Inserts a task whose deadline is new on the CPU. */
static void insert_group(struct levels *l, uint64_t key)
{
    if (l->count <= high - low) {
        int at = 0;
        while (at < l->count && l->run[at].first < key)
            at++;
        insert_run(l, at, (struct run){key, 1, 0, 0});
        return;
    }
    struct run *shared = &l->run[run_of(l, key)];
    shared->first = least(shared->first, key);
    shared->groups++;
}

/* The deadline next to `key` among those in [from, to) of a CPU, without one task; or 0. */
static uint64_t next_key(int32_t cpu, uint64_t from, uint64_t to, const struct task *without,
                         int last)
{
    uint64_t best = 0;
    for (size_t i = 0; i < task_count; i++) {
        uint64_t key = tasks[i].span;
        if (tasks[i].cpu == cpu && &tasks[i] != without && key >= from && key < to
            && (best == 0 || (last ? key > best : key < best)))
            best = key;
    }
    return best;
}

/* Removes the last task of a deadline. A free level goes to the nearest shared run. */
static void remove_group(struct levels *l, int32_t cpu, const struct task *leaving)
{
    uint64_t key = leaving->span;
    int at = run_of(l, key);
    if (l->run[at].groups > 1) {
        if (l->run[at].first == key)
            l->run[at].first = next_key(cpu, key + 1, UINT64_MAX, leaving, 0);
        l->run[at].groups--;
        return;
    }
    l->count--;
    memmove(&l->run[at], &l->run[at + 1], (size_t)(l->count - at) * sizeof l->run[0]);
    int above = at - 1, below = at;
    while (above >= 0 && l->run[above].groups < 2)
        above--;
    while (below < l->count && l->run[below].groups < 2)
        below++;
    if (above < 0 && below == l->count)
        return;
    /* The group next to the free level gets it. */
    int last = below == l->count || (above >= 0 && at - 1 - above <= below - at);
    int shared = last ? above : below;
    uint64_t end = shared + 1 < l->count ? l->run[shared + 1].first : UINT64_MAX;
    struct run single = {.groups = 1};
    single.first = next_key(cpu, l->run[shared].first, end, leaving, last);
    group(cpu, single.first, leaving, &single.attached);
    l->run[shared].groups--;
    l->run[shared].attached -= single.attached;
    if (!last)
        l->run[shared].first = next_key(cpu, single.first + 1, end, leaving, 0);
    insert_run(l, shared + last, single);
}

/* Applies the end of a task to the levels of its CPU; `leaving` is still in the list. */
static void remove_from(struct levels *l, const struct task *leaving)
{
    uint32_t attached;
    if (leaving->attached)
        l->run[run_of(l, leaving->span)].attached--;
    if (group(leaving->cpu, leaving->span, leaving, &attached) == 0)
        remove_group(l, leaving->cpu, leaving);
}

/* Applies a new task to the levels of a CPU; it is not in the list. */
static void insert_into(struct levels *l, int32_t cpu, uint64_t key, const struct task *leaving)
{
    uint32_t attached;
    if (group(cpu, key, leaving, &attached) == 0)
        insert_group(l, key);
}

/* The level that a task would have. */
static int32_t level_after(int32_t cpu, uint64_t key, const struct task *leaving)
{
    struct levels after = levels_of[cpu];
    int same = leaving && leaving->cpu == cpu && leaving->span == key;
    if (leaving && leaving->cpu == cpu && !same)
        remove_from(&after, leaving);
    if (!same)
        insert_into(&after, cpu, key, leaving);
    return after.run[run_of(&after, key)].level;
}

static int32_t judge(const struct talea_plugin_task *task, const struct task *leaving,
                     struct talea_plugin_place *place)
{
    if (!task->period_ns)
        return no(place, "a period is missing");
    int32_t order[2 * TRIED];
    int count = worst_fit(task, leaving, order);
    uint64_t span = span_of(task);
    for (int i = 0; i < count; i++) {
        size_t sum = shares_on(order[i], leaving, (struct share){task->runtime_ns, span});
        if (!task->runtime_ns || share_fits(shares, sum, SHARE_ONE, rests)) {
            place->cpu = order[i];
            place->priority = level_after(order[i], span, leaving);
            return task->runtime_ns ? TALEA_PLUGIN_OK : TALEA_PLUGIN_PARTIAL;
        }
    }
    if (count == 0 || !(task->flags & TALEA_PLUGIN_IGNORE_ADMISSION))
        return no(place, "the utilization would exceed 1 on every CPU");
    place->cpu = order[0];
    place->priority = level_after(order[0], span, leaving);
    return TALEA_PLUGIN_OK;
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
    if (!old)
        return;
    remove_from(&levels_of[old->cpu], old);
    *old = tasks[--task_count];
}

static void attach(void *self, uint64_t id)
{
    (void)self;
    struct task *task = find(id);
    if (!task || task->attached)
        return;
    task->attached = 1;
    struct levels *l = &levels_of[task->cpu];
    l->run[run_of(l, task->span)].attached++;
}

static void detach(void *self, uint64_t id)
{
    (void)self;
    struct task *task = find(id);
    if (!task || !task->attached)
        return;
    task->attached = 0;
    struct levels *l = &levels_of[task->cpu];
    l->run[run_of(l, task->span)].attached--;
}

static void schedule(void *self, uint64_t id, const struct talea_plugin_task *task,
                     const struct talea_plugin_place *place)
{
    struct task new = {.id = id, .cpu = place->cpu, .level = place->priority,
                       .work = place->runtime_ns, .span = span_of(task), .period = task->period_ns};
    struct task *old = find(id);
    int attached = old && old->attached;
    if (old && old->cpu == new.cpu && old->span == new.span) {
        new.attached = attached;
        *old = new;
        return;
    }
    release(self, id);
    insert_into(&levels_of[new.cpu], new.cpu, new.span, NULL);
    add(new);
    if (attached)
        attach(self, id);
}

static int32_t rank(void *self, struct talea_plugin_rank *ranks, int32_t room)
{
    (void)self;
    int32_t count = 0;
    for (size_t i = 0; i < task_count && count < room; i++) {
        const struct levels *l = &levels_of[tasks[i].cpu];
        int32_t level = l->run[run_of(l, tasks[i].span)].level;
        if (level != tasks[i].level)
            ranks[count++] = (struct talea_plugin_rank){tasks[i].id, level, 0};
        tasks[i].level = level;
    }
    return count;
}

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init,
        .accept = accept, .change = change, .schedule = schedule, .release = release,
        .attach = attach, .detach = detach, .rank = rank,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}
