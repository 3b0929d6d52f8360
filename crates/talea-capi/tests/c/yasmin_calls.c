/* Every call of yasmin.h, with the prefix and, unless YAS_PREFIXED_ONLY is defined, without. A
 * declaration beyond a limit is refused by start(), and by the result of the call if it has one. */
#include "yasmin_config.h"

#include "counting.h"
#include <string.h>
#include <yasmin.h>

/* The headers can be included together. */
#include <talea.h>

static uint64_t counted[4];

yas_channel_decl(plain, int, 2);
yas_channel_decl(second, int, 1);
yas_channel_decl(third, char, 0);
yas_channel_decl(fourth, char, 0);

static int message_has(const char *text)
{
    return strstr(yas_message(), text) != NULL;
}

static yas_TID task(uint64_t period)
{
    yas_TData data = YAS_TDATA_INIT;
    data.period = period;
    return yas_task_decl(&data, counts, &counted[0]);
}

/* Declares as much as the limits permit, after init(): two periodic tasks, three other tasks, one
 * accelerator, three channels. */
static void declare_maximum(void)
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

/* Checks that every start is refused with a message that has `text`. */
static void check_refused(const char *text, int line)
{
    int i;
    for (i = 0; i < 2; i++) {
        if (yas_start() || !message_has(text)) {
            fprintf(stderr, "%d: \"%s\" does not contain \"%s\"\n", line, yas_message(), text);
            exit(1);
        }
    }
}
#define CHECK_REFUSED(text) check_refused(text, __LINE__)

static void y1_declarations_beyond_the_limits_are_refused(void)
{
    yas_TData data = YAS_TDATA_INIT;
    yas_VSelect props;
    memset(&props, 0, sizeof props);
    declare_maximum();
    CHECK(yas_start() && !yas_start() && message_has("stop it first"));
    yas_stop();
    CHECK(yas_start());
    yas_stop();

    CHECK(task(5) == YAS_INVALID);
    CHECK_REFUSED("PERIODIC_TASK_SIZE is 2");
    declare_maximum();
    CHECK(task(0) == YAS_INVALID);
    CHECK_REFUSED("NONPERIODIC_TASK_SIZE is 3");
    declare_maximum();
    data.period = 7;
    data.sporadic = 1;
    CHECK(yas_task_decl(&data) == YAS_INVALID); /* sporadic */
    CHECK_REFUSED("NONPERIODIC_TASK_SIZE is 3");
    declare_maximum();
    yas_channel_connect(0, 4, fourth);
    CHECK_REFUSED("CHANNEL_SIZE is 3");
    declare_maximum();
    CHECK(yas_version_decl(0, counts, &counted[0], props) == 1 &&
          yas_version_decl(0, counts, props) == YAS_INVALID);
    CHECK_REFUSED("VERSION_MAX_SIZE is 2");
    declare_maximum();
    CHECK(yas_hwaccel_decl("second") == YAS_INVALID);
    CHECK_REFUSED("HWACCEL_SIZE is 1");
}

static void y1_misuse_is_refused(void)
{
    yas_TData data = YAS_TDATA_INIT;
    yas_VSelect props;
    memset(&props, 0, sizeof props);
    CHECK(yas_task_decl(&data) == YAS_INVALID && message_has("init()")); /* before init() */
    CHECK(!yas_start() && yas_application() == NULL);
    yas_stop();
    yas_cleanup();
    yas_task_activate(0);

    yas_init();
    CHECK(yas_version_decl(7, counts, NULL, props) == YAS_INVALID);
    CHECK_REFUSED("there is no task 7: 0 are declared");
    yas_init();
    CHECK(task(5) == 0);
    yas_hwaccel_use(0, 0, 3);
    CHECK_REFUSED("no accelerator 3");
    yas_init();
    CHECK(yas_task_decl(NULL) == YAS_INVALID && yas_hwaccel_decl(NULL) == YAS_INVALID);
    CHECK_REFUSED("TData is NULL"); /* the first refusal */
    yas_init();
    data.period = UINT64_MAX;
    CHECK(yas_task_decl(&data) == YAS_INVALID);
    CHECK_REFUSED("too long");
    yas_init();
    data.period = 5;
    data.name = "a name of more than thirty-one bytes";
    CHECK(yas_task_decl(&data, counts, NULL) == YAS_INVALID);
    CHECK_REFUSED("31 are possible");
    yas_init();
    CHECK(task(5) == 0 && task(0) == 1);
    yas_channel_connect(0, 1, plain);
    yas_channel_connect(0, 1, plain);
    CHECK_REFUSED("connected already");
    yas_init();
    CHECK(task(5) == 0 && task(0) == 1 && task(0) == 2);
    yas_channel_connect(1, 2, plain);
    yas_channel_connect(2, 1, second);
    CHECK(!yas_start() && message_has("task ")); /* a cycle */
    yas_init();
    CHECK(task(5) == 0 && task(5) == 1);
    yas_channel_connect(0, 1, plain);
    CHECK(!yas_start() && message_has("task 1: period_ns")); /* a period and a channel */
    yas_init();
    data.name = "idle";
    CHECK(yas_task_decl(&data) == 0 && !yas_start() && message_has("task idle: it has no version"));
    /* No declaration was refused, so a version is enough. */
    CHECK(yas_version_decl(0, counts, &counted[0], props) == 0 && yas_start());
    CHECK(task(5) == YAS_INVALID && message_has("stop it first"));
    yas_stop();
    /* The task that was refused during the run is missing. */
    CHECK(!yas_start() && message_has("stop it first"));
    yas_cleanup();
}

/* Configurations that the preprocessor cannot refuse. */
static void y1_configurations_are_refused(void)
{
    yas_configuration configuration = {
        sizeof configuration, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0
    };
    yas_configuration wrong = configuration;
    yas_init_with(&configuration);
    CHECK(task(5000000) == 0 && yas_start()); /* nanoseconds */
    yas_stop();
    wrong.threads = 0;
    yas_init_with(&wrong);
    CHECK_REFUSED("THREADS_SIZE");
    wrong = configuration;
    wrong.threads = 5000;
    yas_init_with(&wrong);
    CHECK_REFUSED("5000 CPUs are requested");
    wrong = configuration;
    wrong.mapping = 3;
    yas_init_with(&wrong);
    CHECK_REFUSED("constant");
    wrong = configuration;
    wrong.worker_cpus = 3;
    yas_init_with(&wrong);
    CHECK_REFUSED("workers is 1, and cpus names 2");
    wrong = configuration;
    wrong.trade_off_weight = 1001;
    yas_init_with(&wrong);
    CHECK_REFUSED("thousandths");
}

static uint64_t wrong;
static void fills_channel(void *count)
{
    int item = 3, i;
    for (i = 0; i < 2; i++)
        wrong += !yas_channel_push(plain, i);
    wrong += yas_channel_push(plain, 9) || yas_channel_pop(plain, &item) || item != 3;
    wrong += yas_channel_push(third, 'x'); /* a channel without data */
    wrong += yas_channel_put(&plain, &item, 1) || yas_channel_put(NULL, &item, 4) ||
             yas_channel_get(&plain, NULL, 4);
    counts(count);
}

static void empties_channel(void *count)
{
    int item = 3, expected = (int)__atomic_load_n((uint64_t *)count, __ATOMIC_ACQUIRE);
    wrong += yas_channel_push(plain, 1) || !yas_channel_pop(plain, &item) || item != expected;
    wrong += expected == 1 && yas_channel_pop(plain, &item);
    counts(count);
}

static void y10_a_full_and_an_empty_channel_return_false(void)
{
    yas_TData data = YAS_TDATA_INIT;
    int item = 3;
    CHECK(!yas_channel_push(plain, 1) && !yas_channel_pop(plain, &item)); /* not connected */
    declare_maximum();
    /* Not in a job. */
    CHECK(!yas_channel_push(plain, 1) && !yas_channel_pop(plain, &item) && item == 3);
    memset(counted, 0, sizeof counted);
    yas_init();
    CHECK(yas_task_decl(&data, fills_channel, &counted[0]) == 0 &&
          yas_task_decl(&data, empties_channel, &counted[1]) == 1);
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
static void activates_chain(void *count)
{
    yas_TData data = YAS_TDATA_INIT;
    CHECK(yas_task_decl(&data) == YAS_INVALID); /* in a job */
    if (*(uint64_t *)count < 4)
        yas_task_activate(chain);
    counts(count);
}

static void y13_y14_activated_and_sporadic_tasks_are_changed_and_resumed(void)
{
    yas_TData data = YAS_TDATA_INIT;
    talea_task_report report = TALEA_TASK_REPORT_INIT;
    yas_TID burst, periodic;
    int i;
    memset(counted, 0, sizeof counted);
    yas_init();
    periodic = task(3);
    data.deadline = 50;
    chain = yas_task_decl(&data, activates_chain, &counted[1]);
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
    CHECK(talea_task_report_get(yas_application(), (uint32_t)chain, &report) == 0 &&
          report.jobs == 5);
    CHECK(talea_task_report_get(yas_application(), (uint32_t)burst, &report) == 0 &&
          report.jobs == 5);

    /* Another mode: the periodic task rests, and the sporadic task is periodic. */
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
    CHECK(message_has("stop it first"));
    yas_cleanup();
    CHECK(counted[0] == 0 && counted[1] == 0);
}

#ifndef YAS_PREFIXED_ONLY
channel_decl(unprefixed, uint64_t, 8);
static uint64_t sum;
static void pushes_one(void *unused)
{
    (void)unused;
    channel_push(unprefixed, 1);
}
static void pops_one(void *unused)
{
    uint64_t one = 0;
    (void)unused;
    wrong += !channel_pop(unprefixed, &one) || one != 1;
    counts(&sum);
}

static void y1_names_of_the_listings(void)
{
    TData data = YAS_TDATA_INIT;
    VSelect props;
    TID from, to;
    VID version;
    HID accelerator;
    FuncPtr function = pops_one;
    memset(&props, 0, sizeof props);
    init();
    data.period = 2;
    from = task_decl(&data, pushes_one, NULL);
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
/* A program may define these names itself. */
static int init, start, stop, cleanup, task_decl, channel_push, TData = 1;
static void y1_names_of_the_listings(void)
{
    CHECK(init + start + stop + cleanup + task_decl + channel_push + TData == 1);
}
#endif

int main(void)
{
    begin_counting();
    y1_misuse_is_refused();
    y1_declarations_beyond_the_limits_are_refused();
    y1_configurations_are_refused();
    y10_a_full_and_an_empty_channel_return_false();
    y13_y14_activated_and_sporadic_tasks_are_changed_and_resumed();
    y1_names_of_the_listings();
    puts("done");
    return 0;
}
