/* An application in C does what it declares: versions by each method, tokens, edges, distances, edits. */
#include "counting.h"
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <talea.h>

static talea_app *app;
static uint64_t counted[4];

static void fresh(const talea_app_config *config)
{
    memset(counted, 0, sizeof counted);
    CHECK(talea_app_new(config, &app) == 0);
}

static uint32_t task(uint32_t kind, uint64_t period_ms, uint64_t deadline_ms)
{
    talea_task task = TALEA_TASK_INIT;
    uint32_t id;
    task.kind = kind;
    task.period_ns = period_ms * 1000000;
    task.deadline_ns = deadline_ms * 1000000;
    task.backlog = kind == TALEA_TASK_SPORADIC ? 9 : 0; /* 64 */
    CHECK(talea_app_task(app, &task, &id) == 0);
    return id;
}

static uint32_t version(uint32_t of, uint64_t energy, uint64_t time_ns, uint64_t modes, uint64_t needs, void (*function)(void *),
                        void *argument)
{
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    uint32_t id;
    version.energy = energy;
    version.time_ns = time_ns;
    version.modes = modes;
    version.needs = needs;
    CHECK(talea_app_version(app, of, &version, function, argument, &id) == 0);
    return id;
}

static int32_t third(const talea_choice *choice, void *data)
{
    CHECK(choice->size == sizeof *choice && choice->task == 0 && choice->versions == 3 && choice->free == 7);
    CHECK(choice->battery == UINT64_MAX && choice->mode == 0 && choice->permitted == UINT64_MAX);
    return choice->job < 3 ? *(const int32_t *)data : -1; /* later none: the last */
}

static void y6_each_method_chooses(void)
{
    static const struct {
        uint32_t selection, weight;
        char change;
        uint64_t to;
        uint32_t before, after;
    } rows[] = {
        { TALEA_SELECT_DECLARED, 0, 0, 0, 0, 0 },
        { TALEA_SELECT_ENERGY, 0, 'b', 6, 1, 0 },
        { TALEA_SELECT_TRADE_OFF, 0, 0, 0, 2, 2 },
        { TALEA_SELECT_TRADE_OFF, 1000, 0, 0, 0, 0 },
        { TALEA_SELECT_MODE, 0, 'm', 1, 0, 1 },
        { TALEA_SELECT_MASK, 0, 'p', 0, 0, 2 },
        { TALEA_SELECT_USER, 0, 0, 0, 1, 2 },
    };
    static int32_t middle = 1;
    size_t row;
    for (row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        talea_app_config config = TALEA_APP_CONFIG_INIT;
        talea_task_report report = TALEA_TASK_REPORT_INIT;
        uint32_t root;
        config.weight = rows[row].weight;
        config.selection = rows[row].selection == TALEA_SELECT_USER ? 0 : rows[row].selection;
        fresh(&config);
        if (rows[row].selection == TALEA_SELECT_USER)
            CHECK(talea_app_choose(app, third, &middle) == 0);
        root = task(TALEA_TASK_ACTIVATED, 0, 500);
        version(root, 5, 300, 1, 3, counts, &counted[0]);
        version(root, 12, 200, 2, 1, counts, &counted[1]);
        version(root, 7, 100, 4, 0, counts, &counted[2]);
        CHECK(talea_app_start(app) == 0);
        while (counted[0] + counted[1] + counted[2] < 3) {
            uint64_t sum = counted[0] + counted[1] + counted[2] + 1;
            CHECK(talea_app_activate(app, root) == 0);
            waits(&counted[rows[row].before], sum);
        }
        if (rows[row].change == 'b')
            CHECK(talea_app_battery(app, rows[row].to) == 0);
        if (rows[row].change == 'm')
            CHECK(talea_app_mode(app, (uint32_t)rows[row].to) == 0);
        if (rows[row].change == 'p')
            CHECK(talea_app_permit(app, rows[row].to) == 0);
        CHECK(talea_app_activate(app, root) == 0);
        waits(&counted[rows[row].after], rows[row].after == rows[row].before ? 4 : 1);
        CHECK(talea_app_stop(app, NULL) == 0 && talea_task_report_get(app, root, &report) == 0);
        CHECK(report.jobs == 4 && report.versions == 3);
        CHECK(report.version_jobs[rows[row].before] == (rows[row].after == rows[row].before ? 4 : 3));
        CHECK(report.version_jobs[rows[row].after] == (rows[row].after == rows[row].before ? 4 : 1));
        CHECK(talea_app_free(app) == 0);
    }
}

/* Fork, two halves, join: what is put is taken in order, and the join comes when both have ended. */
struct sample {
    uint64_t number;
    char text[20];
};
static talea_channel *to_left, *to_join;
static uint64_t order_kept = 1, join_early;

static void forks(void *argument)
{
    talea_job job = TALEA_JOB_INIT;
    struct sample sample = { 0, "a sample" };
    (void)argument;
    if (talea_job_get(&job) != 0)
        order_kept = 0;
    sample.number = job.number;
    if (talea_channel_push(to_left, &sample, sizeof sample) != 0)
        order_kept = 0;
}

static void lefts(void *argument)
{
    struct sample sample;
    (void)argument;
    if (talea_channel_pop(to_left, &sample, sizeof sample) != 0 || strcmp(sample.text, "a sample") != 0)
        order_kept = 0;
    sample.number *= 3;
    if (talea_channel_push(to_join, &sample, sizeof sample) != 0)
        order_kept = 0;
    counts(&counted[1]);
}

static void joins(void *argument)
{
    struct sample sample;
    if (talea_channel_pop(to_join, &sample, sizeof sample) != 0 || sample.number != 3 * counted[3])
        order_kept = 0;
    if (counted[1] <= counted[3] || counted[2] <= counted[3])
        join_early = 1;
    counts(argument);
}

static void y1_y9_y10_fork_and_join_in_order_and_again(uint32_t workers, uint32_t mapping, uint32_t flags, uint32_t priorities)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    talea_task_report one = TALEA_TASK_REPORT_INIT;
    uint32_t fork_id, left, right, join, gpu, id;
    int round, tries = 0;

    config.workers = workers;
    config.mapping = mapping;
    config.flags = flags;
    config.priorities = priorities;
    fresh(&config);
    CHECK(talea_app_accelerator(app, "gpu", &gpu) == 0);
    fork_id = task(TALEA_TASK_PERIODIC, 5, 0);
    left = task(TALEA_TASK_NODE, 0, 0);
    right = task(TALEA_TASK_NODE, 0, 0);
    join = task(TALEA_TASK_NODE, 0, 0);
    version(fork_id, 0, 0, 0, 0, forks, NULL);
    CHECK(talea_app_uses(app, left, version(left, 0, 0, 0, 0, lefts, NULL), gpu) == 0);
    version(left, 0, 0, 0, 0, lefts, NULL);
    version(right, 0, 0, 0, 0, counts, &counted[2]);
    version(join, 0, 0, 0, 0, joins, &counted[3]);
    /* Room for a third of a second in which the machine is away. */
    CHECK(talea_app_channel(app, fork_id, left, sizeof(struct sample), 64, 1, &to_left) == 0);
    CHECK(talea_app_channel(app, left, join, sizeof(struct sample), 64, 0, &to_join) == 0);
    CHECK(talea_app_edge(app, fork_id, right) == 0 && talea_app_edge(app, right, join) == 0);
    for (round = 0; round < 2; tries++) {
        memset(counted, 0, sizeof counted);
        order_kept = 1;
        join_early = 0;
        CHECK(tries < 40 && talea_app_start(app) == 0);
        waits(&counted[3], 10);
        CHECK(talea_app_stop(app, &report) == 0 && report.tasks == 4);
        /* A machine that stood still for a third of a second has no room for what comes meanwhile. */
        if (report.refused > 0 || report.full > 0)
            continue;
        CHECK(order_kept && !join_early && report.empty == 0);
        for (id = 0; id < 4; id++)
            CHECK(talea_task_report_get(app, id, &one) == 0 && one.jobs == counted[3]);
        CHECK(talea_task_report_get(app, left, &one) == 0 && one.version_jobs[0] == one.jobs && one.version_jobs[1] == 0);
        round++;
    }
    CHECK(talea_app_free(app) == 0);
}

/* Ten at a time, taken by a job for every ten: more than the channel has room for, several times. */
enum { TEN = 10 };
static talea_channel *many;
static uint64_t put, taken, wrong;

static void puts_ten(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < TEN; i++)
        if (talea_channel_push(many, &put, sizeof put) == 0)
            put++;
}

static void takes_ten(void *unused)
{
    uint64_t number;
    int i;
    (void)unused;
    for (i = 0; i < TEN; i++) {
        if (talea_channel_pop(many, &number, sizeof number) != 0 || number != taken)
            wrong++;
        counts(&taken);
    }
}

static void y9_y10_many_in_order_and_none_lost(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    uint32_t source, sink;
    fresh(&config);
    source = task(TALEA_TASK_PERIODIC, 1, 0);
    sink = task(TALEA_TASK_NODE, 0, 0);
    version(source, 0, 0, 0, 0, puts_ten, NULL);
    version(sink, 0, 0, 0, 0, takes_ten, NULL);
    CHECK(talea_app_channel(app, source, sink, sizeof put, 20 * TEN, TEN, &many) == 0);
    CHECK(talea_app_start(app) == 0);
    waits(&taken, 100 * TEN);
    CHECK(talea_app_stop(app, &report) == 0);
    /* A full channel takes some of ten, if the machine stood still; then some are left. */
    CHECK(wrong == 0 && report.empty == 0 && put >= taken && put < taken + TEN);
    CHECK(talea_app_free(app) == 0);
}

static void activates(void *argument)
{
    uint64_t *links = (uint64_t *)argument;
    if (*links < 9)
        CHECK(talea_app_activate(app, 1) == 0);
    counts(links);
}

static void y13_distances_are_kept_and_jobs_activate(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    uint32_t burst, chain, i;
    struct timespec from, to;

    fresh(&config);
    burst = task(TALEA_TASK_SPORADIC, 4, 0);
    chain = task(TALEA_TASK_ACTIVATED, 0, 50);
    version(burst, 0, 0, 0, 0, counts, &counted[0]);
    version(chain, 0, 0, 0, 0, activates, &counted[1]);
    CHECK(talea_app_start(app) == 0);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (i = 0; i < 100; i++)
        CHECK(talea_app_activate(app, burst) == 0);
    CHECK(talea_app_activate(app, chain) == 0);
    waits(&counted[1], 10);
    CHECK(talea_app_stop(app, &report) == 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    /* Each activation is a job or was refused; one that begins late may be followed sooner than that. */
    CHECK(counted[0] + report.refused == 100 && counted[0] >= 9 && counted[1] == 10);
    CHECK((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 + 1 >= 4 * ((long)counted[0] - 2));
    CHECK(talea_app_free(app) == 0);
}

static void y14_y3_what_is_declared_anew_comes_by_its_new_rule(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task again = TALEA_TASK_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    talea_task_report one = TALEA_TASK_REPORT_INIT;
    uint32_t first, second;
    fresh(&config);
    first = task(TALEA_TASK_PERIODIC, 2, 1);
    second = task(TALEA_TASK_ACTIVATED, 0, 50);
    version(first, 0, 0, 0, 0, counts, &counted[0]);
    version(second, 0, 0, 0, 0, counts, &counted[1]);
    CHECK(talea_app_start(app) == 0);
    waits(&counted[0], 3);
    CHECK(talea_app_stop(app, NULL) == 0 && counted[1] == 0);
    again.kind = TALEA_TASK_ACTIVATED;
    again.deadline_ns = 1000000;
    CHECK(talea_app_replace_task(app, first, &again) == 0);
    again.kind = TALEA_TASK_PERIODIC;
    again.period_ns = 2000000;
    again.deadline_ns = 9000000;
    again.offset_ns = 3000000;
    CHECK(talea_app_replace_task(app, second, &again) == 0);
    config.priorities = TALEA_PRIORITIES_DEADLINE_MONOTONIC;
    config.spin_ns = 50000;
    CHECK(talea_app_configure(app, &config) == 0);
    counted[0] = 0;
    CHECK(talea_app_start(app) == 0);
    waits(&counted[1], 3);
    CHECK(talea_app_stop(app, &report) == 0 && counted[0] == 0);
    CHECK(talea_app_report_get(app, &report) == 0 && report.tasks == 2);
    CHECK(report.real_time ? report.rights == TALEA_RIGHTS_OWN && report.rights_error[0] == 0
                           : report.rights == TALEA_RIGHTS_UNUSED && report.rights_error[0] != 0);
    CHECK(talea_task_report_get(app, second, &one) == 0);
    CHECK(report.real_time ? one.policy == SCHED_FIFO && one.priority > 0 : one.policy == SCHED_OTHER && one.priority == 0);
    printf("%s%s\n", report.real_time ? "real-time" : "best effort: ", report.rights_error);
    config.flags = TALEA_APP_REQUIRE_REAL_TIME;
    CHECK(talea_app_configure(app, &config) == 0);
    if (report.real_time) {
        CHECK(talea_app_start(app) == 0 && talea_app_stop(app, NULL) == 0);
    } else {
        /* And what was declared is still there. */
        CHECK(talea_app_start(app) == -EPERM && strstr(talea_last_error(), "right") != NULL);
        config.flags = 0;
        config.rights = TALEA_RIGHTS_UNUSED;
        CHECK(talea_app_configure(app, &config) == 0 && talea_app_start(app) == 0 && talea_app_stop(app, NULL) == 0);
    }
    CHECK(talea_app_free(app) == 0);
}

/* On the last CPU, cleared of others where this process may do that; with how many CPUs there are. */
static void y17_a_shield_is_raised_or_it_is_said_why_not(uint32_t cpus)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    uint32_t only;
    fresh(&config);
    only = task(TALEA_TASK_PERIODIC, 2, 1);
    version(only, 0, 0, 0, 0, counts, &counted[0]);
    config.flags = TALEA_APP_SHIELD;
    config.cpus[(cpus - 1) / 64] = (uint64_t)1 << (cpus - 1) % 64;
    CHECK(talea_app_configure(app, &config) == 0);
    if (cpus == 1) {
        CHECK(talea_app_start(app) == -ENODEV && strstr(talea_last_error(), "none left") != NULL);
    } else {
        CHECK(talea_app_start(app) == 0);
        waits(&counted[0], 3);
        CHECK(talea_app_stop(app, &report) == 0);
        CHECK(report.shielded ? report.moved_threads > 0 && report.not_moved > 0 && report.shield_error[0] == 0
                              : report.moved_threads == 0 && report.shield_error[0] != 0);
        printf("%s%s\n", report.shielded ? "shielded" : "unshielded: ", report.shield_error);
    }
    CHECK(talea_app_free(app) == 0);
}

/* The same set of calls under every policy. The argument is how many CPUs there are. */
int main(int argc, char **argv)
{
    uint32_t workers = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    uint32_t priorities;
    begin_counting();
    y6_each_method_chooses();
    for (priorities = 0; priorities < 4; priorities++) {
        y1_y9_y10_fork_and_join_in_order_and_again(workers, TALEA_MAPPING_GLOBAL, 0, priorities);
        y1_y9_y10_fork_and_join_in_order_and_again(workers, TALEA_MAPPING_PARTITIONED, TALEA_APP_NON_PREEMPTIVE, priorities);
    }
    y9_y10_many_in_order_and_none_lost();
    y13_distances_are_kept_and_jobs_activate();
    y14_y3_what_is_declared_anew_comes_by_its_new_rule();
    y17_a_shield_is_raised_or_it_is_said_why_not(argc > 2 ? (uint32_t)atoi(argv[2]) : 1);
    return 0;
}
