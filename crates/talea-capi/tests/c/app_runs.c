/* An application in C runs as declared: selection of versions, channels, edges, separations,
 * changes, shields. */
#include "counting.h"
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <talea.h>

static talea_app *app;
static uint64_t counted[4];

static void new_app(const talea_app_config *config)
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

static uint32_t version(uint32_t of, uint64_t energy, uint64_t time_ns, uint64_t modes,
                        uint64_t needs, void (*function)(void *), void *argument)
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
    CHECK(choice->size == sizeof *choice && choice->task == 0 && choice->versions == 3 &&
          choice->free == 7);
    CHECK(choice->battery == UINT64_MAX && choice->mode == 0 && choice->permitted == UINT64_MAX);
    /* No version for later jobs: the last one is selected. */
    return choice->job < 3 ? *(const int32_t *)data : -1;
}

static void y6_each_method_selects_its_version(void)
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
    static int32_t second = 1;
    size_t row;
    for (row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        talea_app_config config = TALEA_APP_CONFIG_INIT;
        talea_task_report report = TALEA_TASK_REPORT_INIT;
        uint32_t root;
        config.weight = rows[row].weight;
        config.selection = rows[row].selection == TALEA_SELECT_USER ? 0 : rows[row].selection;
        new_app(&config);
        if (rows[row].selection == TALEA_SELECT_USER)
            CHECK(talea_app_choose(app, third, &second) == 0);
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
        CHECK(report.version_jobs[rows[row].before] ==
              (rows[row].after == rows[row].before ? 4 : 3));
        CHECK(report.version_jobs[rows[row].after] ==
              (rows[row].after == rows[row].before ? 4 : 1));
        CHECK(talea_app_free(app) == 0);
    }
}

/* Fork, two halves, join: elements arrive in order, and the join is released when both halves have
 * completed. */
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
    if (talea_channel_pop(to_left, &sample, sizeof sample) != 0 ||
        strcmp(sample.text, "a sample") != 0)
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

static void y1_y9_y10_fork_and_join_keep_the_order(uint32_t workers, uint32_t mapping,
                                                   uint32_t flags, uint32_t priorities)
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
    new_app(&config);
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
    /* Room for the elements of a stall of a third of a second. */
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
        /* After a longer stall the channels are full: the attempt does not count. */
        if (report.refused > 0 || report.full > 0)
            continue;
        CHECK(order_kept && !join_early && report.empty == 0);
        for (id = 0; id < 4; id++)
            CHECK(talea_task_report_get(app, id, &one) == 0 && one.jobs == counted[3]);
        CHECK(talea_task_report_get(app, left, &one) == 0 && one.version_jobs[0] == one.jobs &&
              one.version_jobs[1] == 0);
        round++;
    }
    CHECK(talea_app_free(app) == 0);
}

/* The source pushes a batch per job, and the sink is released per batch: several times the room of
 * the channel. */
enum { BATCH = 10 };
static talea_channel *batches;
static uint64_t pushed, popped, wrong;

static void pushes_batch(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < BATCH; i++)
        if (talea_channel_push(batches, &pushed, sizeof pushed) == 0)
            pushed++;
}

static void pops_batch(void *unused)
{
    uint64_t number;
    int i;
    (void)unused;
    for (i = 0; i < BATCH; i++) {
        if (talea_channel_pop(batches, &number, sizeof number) != 0 || number != popped)
            wrong++;
        counts(&popped);
    }
}

static void y9_y10_all_elements_arrive_in_order(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    uint32_t source, sink;
    new_app(&config);
    source = task(TALEA_TASK_PERIODIC, 1, 0);
    sink = task(TALEA_TASK_NODE, 0, 0);
    version(source, 0, 0, 0, 0, pushes_batch, NULL);
    version(sink, 0, 0, 0, 0, pops_batch, NULL);
    CHECK(talea_app_channel(app, source, sink, sizeof pushed, 20 * BATCH, BATCH, &batches) == 0);
    CHECK(talea_app_start(app) == 0);
    waits(&popped, 100 * BATCH);
    CHECK(talea_app_stop(app, &report) == 0);
    /* After a stall, a full channel accepts a part of a batch, whose elements remain in it. */
    CHECK(wrong == 0 && report.empty == 0 && pushed >= popped && pushed < popped + BATCH);
    CHECK(talea_app_free(app) == 0);
}

static void activates(void *argument)
{
    uint64_t *count = (uint64_t *)argument;
    if (*count < 9)
        CHECK(talea_app_activate(app, 1) == 0);
    counts(count);
}

static void y13_separations_are_kept_and_jobs_activate(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    uint32_t burst, chain, i;
    struct timespec from, to;

    new_app(&config);
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
    /* Each activation is a job or a refusal. The next job may start in less than a separation after
     * a late one. */
    CHECK(counted[0] + report.refused == 100 && counted[0] >= 9 && counted[1] == 10);
    CHECK((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 + 1 >=
          4 * ((long)counted[0] - 2));
    CHECK(talea_app_free(app) == 0);
}

static void y14_y3_a_replaced_task_arrives_by_its_new_declaration(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task again = TALEA_TASK_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    talea_task_report one = TALEA_TASK_REPORT_INIT;
    uint32_t first, second;
    new_app(&config);
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
    CHECK(report.real_time ? one.policy == SCHED_FIFO && one.priority > 0
                           : one.policy == SCHED_OTHER && one.priority == 0);
    printf("%s%s\n", report.real_time ? "real-time" : "best effort: ", report.rights_error);
    config.flags = TALEA_APP_REQUIRE_REAL_TIME;
    CHECK(talea_app_configure(app, &config) == 0);
    if (report.real_time) {
        CHECK(talea_app_start(app) == 0 && talea_app_stop(app, NULL) == 0);
    } else {
        /* The refused start keeps all declarations. */
        CHECK(talea_app_start(app) == -EPERM && strstr(talea_last_error(), "right") != NULL);
        config.flags = 0;
        config.rights = TALEA_RIGHTS_UNUSED;
        CHECK(talea_app_configure(app, &config) == 0 && talea_app_start(app) == 0 &&
              talea_app_stop(app, NULL) == 0);
    }
    CHECK(talea_app_free(app) == 0);
}

/* Shields the last of `cpus` CPUs, if the process has the right to that. */
static void y17_a_shield_is_active_or_the_report_has_the_reason(uint32_t cpus)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_app_report report = TALEA_APP_REPORT_INIT;
    uint32_t only;
    new_app(&config);
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
        CHECK(report.shielded
                  ? report.moved_threads > 0 && report.not_moved > 0 && report.shield_error[0] == 0
                  : report.moved_threads == 0 && report.shield_error[0] != 0);
        printf("%s%s\n", report.shielded ? "shielded" : "unshielded: ", report.shield_error);
    }
    CHECK(talea_app_free(app) == 0);
}

/* Arguments: the number of workers, and the number of CPUs of the machine. */
int main(int argc, char **argv)
{
    uint32_t workers = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    uint32_t priorities;
    begin_counting();
    y6_each_method_selects_its_version();
    for (priorities = 0; priorities < 4; priorities++) {
        y1_y9_y10_fork_and_join_keep_the_order(workers, TALEA_MAPPING_GLOBAL, 0, priorities);
        y1_y9_y10_fork_and_join_keep_the_order(workers, TALEA_MAPPING_PARTITIONED,
                                               TALEA_APP_NON_PREEMPTIVE, priorities);
    }
    y9_y10_all_elements_arrive_in_order();
    y13_separations_are_kept_and_jobs_activate();
    y14_y3_a_replaced_task_arrives_by_its_new_declaration();
    y17_a_shield_is_active_or_the_report_has_the_reason(argc > 2 ? (uint32_t)atoi(argv[2]) : 1);
    return 0;
}
