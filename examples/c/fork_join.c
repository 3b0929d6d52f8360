/*
 * An application of four tasks: fork captures a frame, left and right process its halves in
 * parallel, and join displays the result. left has a faster version for the GPU.
 *
 *     cc -std=c11 -Wall -Wextra fork_join.c $(pkg-config --cflags --libs talea)
 *
 * Exit status: 0, or 1 if the application cannot run. The program needs neither a daemon nor
 * privileges.
 */
#include <inttypes.h>
#include <stdio.h>
#include <talea.h>
#include <threads.h>

/* Captures a frame; in this example a frame is its number. */
static void next_frame(uint64_t *frame)
{
    static uint64_t last;
    *frame = ++last;
}

/* Number of frames that join has displayed. */
static uint64_t shown;

/* docs/manual/runtime.md has the rest of this file; a test compares the two. */
static talea_channel *to_left;

static void capture(void *unused)
{
    uint64_t frame;
    (void)unused;
    next_frame(&frame);
    talea_channel_push(to_left, &frame, sizeof frame);
}

static void left_half(void *sum)
{
    uint64_t frame;
    if (talea_channel_pop(to_left, &frame, sizeof frame) == 0)
        *(uint64_t *)sum += frame;
}

static void right_half(void *unused)
{
    (void)unused;
}

static void show(void *unused)
{
    (void)unused;
    __atomic_add_fetch(&shown, 1, __ATOMIC_RELEASE);
}

int main(void)
{
    static uint64_t on_gpu, on_cpu;
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task frames = TALEA_TASK_INIT, node = TALEA_TASK_INIT;
    talea_task_version plain = TALEA_TASK_VERSION_INIT;
    talea_task_report report = TALEA_TASK_REPORT_INIT;
    talea_app *app;
    uint32_t gpu, fork, left, right, join, fast;

    config.workers = 2;
    frames.period_ns = 25000000;
    node.kind = TALEA_TASK_NODE;
    if (talea_app_new(&config, &app) || talea_app_accelerator(app, "gpu", &gpu) ||
        talea_app_task(app, &frames, &fork) || talea_app_task(app, &node, &left) ||
        talea_app_task(app, &node, &right) || talea_app_task(app, &node, &join) ||
        talea_app_channel(app, fork, left, sizeof(uint64_t), 1, 1, &to_left) || /* capacity 1 */
        /* An edge carries no data: right is activated when fork completes. */
        talea_app_edge(app, fork, right) ||
        talea_app_edge(app, left, join) || talea_app_edge(app, right, join) ||
        talea_app_version(app, fork, &plain, capture, NULL, NULL) ||
        talea_app_version(app, left, &plain, left_half, &on_gpu, &fast) ||
        talea_app_uses(app, left, fast, gpu) ||
        /* The version for the CPU runs while another job holds the GPU. */
        talea_app_version(app, left, &plain, left_half, &on_cpu, NULL) ||
        talea_app_version(app, right, &plain, right_half, NULL, NULL) ||
        talea_app_version(app, join, &plain, show, NULL, NULL) || talea_app_start(app)) {
        fprintf(stderr, "%s\n", talea_last_error());
        return 1;
    }
    while (__atomic_load_n(&shown, __ATOMIC_ACQUIRE) < 20)
        thrd_sleep(&(struct timespec){ 0, 5000000 }, NULL);
    /* A stopped application may be changed and started again. */
    if (talea_app_stop(app, NULL) || talea_task_report_get(app, join, &report))
        fprintf(stderr, "%s\n", talea_last_error());
    printf("%" PRIu64 " of %" PRIu64 " frames late\n", report.late, report.jobs);
    return talea_app_free(app);
}
