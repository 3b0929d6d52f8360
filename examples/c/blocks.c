/*
 * An application of two tasks on one CPU: detect starts a device and waits for its answer, and log
 * runs meanwhile, although it is less urgent. The device is a thread with two pipes.
 *
 *     cc -std=c11 -Wall -Wextra blocks.c -pthread $(pkg-config --cflags --libs talea)
 *
 * Exit status: 0, or 1 if the application cannot run. The program needs neither a daemon nor
 * privileges.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <talea.h>
#include <threads.h>
#include <unistd.h>

/* Read and write ends of the pipes to the device and from it. */
static int requests[2], answers[2];

/* Whether detect waits, and the number of jobs of log that began meanwhile. */
static int is_waiting;
static uint64_t meanwhile;

static int device(void *unused)
{
    char frame;
    (void)unused;
    while (read(requests[0], &frame, 1) == 1) {
        thrd_sleep(&(struct timespec){ 0, 4000000 }, NULL);
        if (write(answers[1], &frame, 1) != 1)
            break;
    }
    return 0;
}

/* Waits for the answer of the device. */
static int wait_for_answer(void *frame)
{
    ssize_t length;
    do
        length = read(answers[0], frame, 1);
    while (length < 0 && errno == EINTR);
    return length == 1 ? 0 : -EIO;
}

static void detect(void *unused)
{
    char frame = 'f';
    (void)unused;
    __atomic_store_n(&is_waiting, 1, __ATOMIC_RELEASE);
    if (write(requests[1], &frame, 1) != 1 || talea_job_wait(wait_for_answer, &frame))
        fprintf(stderr, "the device does not answer\n");
    __atomic_store_n(&is_waiting, 0, __ATOMIC_RELEASE);
}

static void log_state(void *unused)
{
    (void)unused;
    if (__atomic_load_n(&is_waiting, __ATOMIC_ACQUIRE))
        __atomic_add_fetch(&meanwhile, 1, __ATOMIC_RELEASE);
}

int main(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task frames = TALEA_TASK_INIT, state = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT; /* its wait is TALEA_WAIT_FREE */
    talea_task_report report = TALEA_TASK_REPORT_INIT;
    uint32_t detects, logs;
    talea_app *app;
    thrd_t thread;

    frames.period_ns = 20000000;
    state.period_ns = 2000000;
    state.deadline_ns = 50000000; /* the later deadline is the less urgent one */
    if (pipe(requests) || pipe(answers) || thrd_create(&thread, device, NULL) != thrd_success)
        return 1;
    if (talea_app_new(&config, &app) || talea_app_task(app, &frames, &detects) ||
        talea_app_version(app, detects, &version, detect, NULL, NULL) ||
        talea_app_task(app, &state, &logs) ||
        talea_app_version(app, logs, &version, log_state, NULL, NULL) || talea_app_start(app)) {
        fprintf(stderr, "%s\n", talea_last_error());
        return 1;
    }
    while (__atomic_load_n(&meanwhile, __ATOMIC_ACQUIRE) < 20)
        thrd_sleep(&(struct timespec){ 0, 5000000 }, NULL);
    if (talea_app_stop(app, NULL) || talea_task_report_get(app, detects, &report))
        fprintf(stderr, "%s\n", talea_last_error());
    printf("log ran %" PRIu64 " times during %" PRIu64 " waits\n", meanwhile, report.jobs);
    close(requests[1]); /* ends the device */
    thrd_join(thread, NULL);
    return talea_app_free(app);
}
