/* Every call of yasmin.h: what is too much is refused by start(), and by a result where there is one. With the prefix and, unless
 * YAS_PREFIXED_ONLY is defined, without. */
#include "yasmin_config.h"

#include "counting.h"
#include <string.h>
#include <yasmin.h>

/* Together with the headers that declare most. */
#include <talea.h>

static uint64_t counted[4];

yas_channel_decl(plain, int, 2);
yas_channel_decl(second, int, 1);
yas_channel_decl(third, char, 0);
yas_channel_decl(fourth, char, 0);

static int said(const char *words)
{
    return strstr(yas_message(), words) != NULL;
}

static yas_TID task(uint64_t period)
{
    yas_TData data = YAS_TDATA_INIT;
    data.period = period;
    return yas_task_decl(&data, counts, &counted[0]);
}

/* Begins anew with what is full already: two periodic tasks, three others, two versions each at most. */
static void full(void)
{
    int i;
    yas_init();
    for (i = 0; i < PERIODIC_TASK_SIZE; i++)
        CHECK(task(5) == i);
    for (i = 0; i < NONPERIODIC_TASK_SIZE; i++)
        CHECK(task(0) == PERIODIC_TASK_SIZE + i);
    CHECK(yas_hwaccel_decl("first") == 0);
    yas_channel_connect(0, 2, plain);
    yas_channel_connect(2, 3, second);
    yas_channel_connect(1, 4, third);
}

/* It does not start, and goes on saying why. */
static void refused_with(const char *words, int line)
{
    int i;
    for (i = 0; i < 2; i++) {
        if (yas_start() || !said(words)) {
            fprintf(stderr, "%d: \"%s\" is not about \"%s\"\n", line, yas_message(), words);
            exit(1);
        }
    }
}
#define refused(words) refused_with(words, __LINE__)

static void y1_excess_is_refused(void)
{
    yas_TData data = YAS_TDATA_INIT;
    yas_VSelect props;
    memset(&props, 0, sizeof props);
    full();
    CHECK(yas_start() && !yas_start() && said("stop it first"));
    yas_stop();
    CHECK(yas_start());
    yas_stop();

    CHECK(task(5) == YAS_INVALID);
    refused("PERIODIC_TASK_SIZE is 2");
    full();
    CHECK(task(0) == YAS_INVALID);
    refused("NONPERIODIC_TASK_SIZE is 3");
    full();
    data.period = 7;
    data.sporadic = 1;
    CHECK(yas_task_decl(&data) == YAS_INVALID); /* one without a regular period */
    refused("NONPERIODIC_TASK_SIZE is 3");
    full();
    yas_channel_connect(0, 4, fourth);
    refused("CHANNEL_SIZE is 3");
    full();
    CHECK(yas_version_decl(0, counts, &counted[0], props) == 1 && yas_version_decl(0, counts, props) == YAS_INVALID);
    refused("VERSION_MAX_SIZE is 2");
    full();
    CHECK(yas_hwaccel_decl("second") == YAS_INVALID);
    refused("HWACCEL_SIZE is 1");
}

static void y1_misuse_is_refused(void)
{
    yas_TData data = YAS_TDATA_INIT;
    yas_VSelect props;
    memset(&props, 0, sizeof props);
    CHECK(yas_task_decl(&data) == YAS_INVALID && said("init()")); /* after the cleanup below, or before all */
    CHECK(!yas_start() && yas_application() == NULL);
    yas_stop();
    yas_cleanup();
    yas_task_activate(0);

    yas_init();
    CHECK(yas_version_decl(7, counts, NULL, props) == YAS_INVALID);
    refused("there is no task 7: 0 are declared");
    yas_init();
    CHECK(task(5) == 0);
    yas_hwaccel_use(0, 0, 3);
    refused("no accelerator 3");
    yas_init();
    CHECK(yas_task_decl(NULL) == YAS_INVALID && yas_hwaccel_decl(NULL) == YAS_INVALID);
    refused("TData is NULL"); /* the first */
    yas_init();
    data.period = UINT64_MAX;
    CHECK(yas_task_decl(&data) == YAS_INVALID);
    refused("too long");
    yas_init();
    data.period = 5;
    data.name = "a name of more than thirty-one bytes";
    CHECK(yas_task_decl(&data, counts, NULL) == YAS_INVALID);
    refused("31 are possible");
    yas_init();
    CHECK(task(5) == 0 && task(0) == 1);
    yas_channel_connect(0, 1, plain);
    yas_channel_connect(0, 1, plain);
    refused("connected already");
    yas_init();
    CHECK(task(5) == 0 && task(0) == 1 && task(0) == 2);
    yas_channel_connect(1, 2, plain);
    yas_channel_connect(2, 1, second);
    CHECK(!yas_start() && said("task ")); /* a circle */
    yas_init();
    CHECK(task(5) == 0 && task(5) == 1);
    yas_channel_connect(0, 1, plain);
    CHECK(!yas_start() && said("task 1: period_ns")); /* it would come by two rules */
    yas_init();
    data.name = "idle";
    CHECK(yas_task_decl(&data) == 0 && !yas_start() && said("task idle: it has no version"));
    CHECK(yas_version_decl(0, counts, &counted[0], props) == 0 && yas_start()); /* nothing was refused, so it can be mended */
    CHECK(task(5) == YAS_INVALID && said("stop it first"));
    yas_stop();
    CHECK(!yas_start() && said("stop it first")); /* what was refused isn't there */
    yas_cleanup();
}

/* Configurations that only the preprocessor could have refused. */
static void y1_configurations_are_refused(void)
{
    yas_configuration configuration = { sizeof(yas_configuration), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0 };
    yas_configuration wrong = configuration;
    yas_init_with(&configuration);
    CHECK(task(5000000) == 0 && yas_start()); /* nanoseconds */
    yas_stop();
    wrong.threads = 0;
    yas_init_with(&wrong);
    refused("THREADS_SIZE");
    wrong = configuration;
    wrong.threads = 5000;
    yas_init_with(&wrong);
    refused("5000 CPUs are requested");
    wrong = configuration;
    wrong.mapping = 3;
    yas_init_with(&wrong);
    refused("constant");
    wrong = configuration;
    wrong.worker_cpus = 3;
    yas_init_with(&wrong);
    refused("workers is 1, and cpus names 2");
    wrong = configuration;
    wrong.trade_off_weight = 1001;
    yas_init_with(&wrong);
    refused("thousandths");
}

static uint64_t wrong;
static void fills(void *count)
{
    int item = 3, i;
    for (i = 0; i < 2; i++)
        wrong += !yas_channel_push(plain, i);
    wrong += yas_channel_push(plain, 9) || yas_channel_pop(plain, &item) || item != 3;
    wrong += yas_channel_push(third, 'x'); /* no data */
    wrong += yas_channel_put(&plain, &item, 1) || yas_channel_put(NULL, &item, 4) || yas_channel_get(&plain, NULL, 4);
    counts(count);
}

static void empties(void *count)
{
    int item = 3, expected = (int)__atomic_load_n((uint64_t *)count, __ATOMIC_ACQUIRE);
    wrong += yas_channel_push(plain, 1) || !yas_channel_pop(plain, &item) || item != expected;
    wrong += expected == 1 && yas_channel_pop(plain, &item);
    counts(count);
}

static void y10_full_and_empty_are_answers(void)
{
    yas_TData data = YAS_TDATA_INIT;
    int item = 3;
    CHECK(!yas_channel_push(plain, 1) && !yas_channel_pop(plain, &item)); /* not connected */
    full();
    CHECK(!yas_channel_push(plain, 1) && !yas_channel_pop(plain, &item) && item == 3); /* from no job */
    memset(counted, 0, sizeof counted);
    yas_init();
    CHECK(yas_task_decl(&data, fills, &counted[0]) == 0 && yas_task_decl(&data, empties, &counted[1]) == 1);
    CHECK(yas_task_decl(&data, counts, &counted[2]) == 2);
    yas_channel_connect(0, 1, plain);
    yas_channel_connect(0, 2, third);
    CHECK(yas_start());
    yas_task_activate(0);
    waits(&counted[1], 2);
    waits(&counted[2], 1);
    yas_stop();
    CHECK(wrong == 0);
    yas_cleanup();
    CHECK(!yas_channel_push(plain, 1));
}

static yas_TID chain;
static void links(void *count)
{
    yas_TData data = YAS_TDATA_INIT;
    CHECK(yas_task_decl(&data) == YAS_INVALID); /* in a job */
    if (*(uint64_t *)count < 4)
        yas_task_activate(chain);
    counts(count);
}

static void y13_y14_activated_sporadic_altered_and_resumed(void)
{
    yas_TData data = YAS_TDATA_INIT;
    talea_task_report report = TALEA_TASK_REPORT_INIT;
    yas_TID burst, periodic;
    int i;
    memset(counted, 0, sizeof counted);
    yas_init();
    periodic = task(3);
    data.deadline = 50;
    chain = yas_task_decl(&data, links, &counted[1]);
    data.period = 4;
    data.deadline = 0;
    data.sporadic = 1;
    burst = yas_task_decl(&data, counts, &counted[2]);
    CHECK(yas_start());
    yas_task_activate(chain);
    yas_task_activate(-1);
    yas_task_activate(99);
    for (i = 0; i < 5; i++)
        yas_task_activate(burst);
    waits(&counted[0], 2);
    waits(&counted[1], 5);
    waits(&counted[2], 5);
    yas_stop();
    CHECK(talea_task_report_get(yas_application(), (uint32_t)chain, &report) == 0 && report.jobs == 5);
    CHECK(talea_task_report_get(yas_application(), (uint32_t)burst, &report) == 0 && report.jobs == 5);

    /* Another mode: the periodic one rests, and the other is periodic. */
    data.period = 0;
    data.sporadic = 0;
    yas_task_change(periodic, &data);
    data.period = 3;
    data.release_offset = 2;
    yas_task_change(burst, &data);
    memset(counted, 0, sizeof counted);
    CHECK(yas_start());
    waits(&counted[2], 3);
    yas_task_change(burst, &data);
    CHECK(said("stop it first"));
    yas_cleanup();
    CHECK(counted[0] == 0 && counted[1] == 0);
}

#ifndef YAS_PREFIXED_ONLY
channel_decl(unprefixed, uint64_t, 8);
static uint64_t sum;
static void puts_one(void *unused)
{
    (void)unused;
    channel_push(unprefixed, 1);
}
static void adds(void *unused)
{
    uint64_t one = 0;
    (void)unused;
    wrong += !channel_pop(unprefixed, &one) || one != 1;
    counts(&sum);
}

static void y1_the_names_of_the_listings(void)
{
    TData data = YAS_TDATA_INIT;
    VSelect props;
    TID from, to;
    VID version;
    HID accelerator;
    FuncPtr function = adds;
    memset(&props, 0, sizeof props);
    init();
    data.period = 2;
    from = task_decl(&data, puts_one, NULL);
    data.period = 0;
    to = task_decl(&data);
    version = version_decl(to, function, NULL, props);
    accelerator = hwaccel_decl("adder");
    hwaccel_use(to, version, accelerator);
    channel_connect(from, to, unprefixed);
    CHECK(start());
    task_activate(from);
    waits(&sum, 4);
    stop();
    cleanup();
}
#else
/* A program may have its own. */
static int init, start, stop, cleanup, task_decl, channel_push, TData = 1;
static void y1_the_names_of_the_listings(void)
{
    CHECK(init + start + stop + cleanup + task_decl + channel_push + TData == 1);
}
#endif

int main(void)
{
    begin_counting();
    y1_misuse_is_refused();
    y1_excess_is_refused();
    y1_configurations_are_refused();
    y10_full_and_empty_are_answers();
    y13_y14_activated_sporadic_altered_and_resumed();
    y1_the_names_of_the_listings();
    puts("done");
    return 0;
}
