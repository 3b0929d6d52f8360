/* A real-time audio job: a voice through a room, 10 ms at a time.
 *
 *     convolver WAV [--microphones N] [--seconds S] [--csv FILE]
 *     convolver WAV --calibrate MICROSECONDS
 *
 * Every 10 ms a block of 480 samples is due and must be done before the next one is: what a sound card would ask for.
 * The nominal release of block k is start + k * 10 ms, whatever happened before; the response time of a block is its
 * completion minus its nominal release. Times are kept in memory and written after the run.
 *
 * Built with -DWITH_TALEA it declares what it needs through libtalea; without, it is a program like any other. */
#include "room.h"
#include "wav.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_TALEA
#include <talea.h>
#endif

/* A block is due every 10 ms; 4 ms of computing are enough for it. */
enum { PERIOD_NS = 10000000, RUNTIME_NS = 4000000, MOST_MICROPHONES = 64 };

struct times {
    int64_t release, start, completion;
    /* CPU time between the last two. */
    int64_t computed;
};

struct options {
    const char *wav, *csv;
    long microphones, seconds, calibrate_us;
};

static int64_t now_on(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until(int64_t at)
{
    const struct timespec time = {at / 1000000000, at % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        ;
}

/* Block k of the voice, which repeats for ever. */
static void take_block(const struct wav *wav, size_t k, float dry[BLOCK])
{
    const size_t blocks = wav->count / BLOCK;
    for (size_t i = 0; i < BLOCK; i++)
        dry[i] = (float)wav->samples[k % blocks * BLOCK + i] / 32768.0f;
}

/* Over the samples as a sound card would get them: runs of the same length must agree. */
static uint32_t add_to_checksum(uint32_t sum, const float wet[BLOCK])
{
    for (size_t i = 0; i < BLOCK; i++)
        sum = (sum ^ (uint32_t)(int32_t)(wet[i] * 8192.0f)) * 16777619u;
    return sum;
}

/* The least CPU time of a block with so many microphones; 0 without memory. */
static int64_t cost_of(const struct wav *wav, size_t microphones)
{
    enum { TRIALS = 20 };
    struct room *room = room_new(microphones);
    if (!room)
        return 0;
    int64_t best = INT64_MAX;
    for (size_t k = 0; k < TRIALS; k++) {
        float dry[BLOCK], wet[BLOCK];
        take_block(wav, k, dry);
        const int64_t before = now_on(CLOCK_THREAD_CPUTIME_ID);
        room_process(room, dry, wet);
        const int64_t cost = now_on(CLOCK_THREAD_CPUTIME_ID) - before;
        best = cost < best ? cost : best;
    }
    room_free(room);
    return best;
}

/* How many microphones keep a CPU busy for about so long a block, by CPU time, so that load does not matter. A block costs
 * something once and something for each microphone: two sizes tell both. */
static int calibrate(const struct wav *wav, int64_t target_ns)
{
    enum { FEW = 4, MANY = 16 };
    const int64_t few = cost_of(wav, FEW), many = cost_of(wav, MANY);
    if (few == 0 || many == 0)
        return 1;
    const int64_t each = many > few ? (many - few) / (MANY - FEW) + 1 : 1;
    int64_t fit = FEW + (target_ns - few) / each;
    fit = fit < 1 ? 1 : fit > MOST_MICROPHONES ? MOST_MICROPHONES : fit;
    printf("microphones=%lld block_ns=%lld\n", (long long)fit, (long long)cost_of(wav, (size_t)fit));
    return 0;
}

static int write_times(const char *path, const struct times *times, size_t blocks)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        return 1;
    }
    fprintf(file, "block,release_ns,start_ns,completion_ns,computed_ns\n");
    for (size_t k = 0; k < blocks; k++)
        fprintf(file, "%zu,%lld,%lld,%lld,%lld\n", k, (long long)times[k].release, (long long)times[k].start,
                (long long)times[k].completion, (long long)times[k].computed);
    return fclose(file) ? 1 : 0;
}

#ifdef WITH_TALEA
/* The whole difference between the two builds: say what is needed, and let this thread have it. */
static int declare(void)
{
    talea_client *client;
    talea_grant *grant;
    talea_spec spec = TALEA_SPEC_INIT;

    spec.period_ns = PERIOD_NS;
    spec.runtime_ns = RUNTIME_NS;
    if (talea_connect(&client) || talea_create(client, &spec, &grant) || talea_attach(grant, 0)) {
        fprintf(stderr, "convolver: %s\n", talea_last_error());
        return 1;
    }
    /* The grant is given back when this process ends. */
    return 0;
}
#endif

static int run(const struct wav *wav, const struct options *options)
{
    const size_t blocks = (size_t)options->seconds * RATE / BLOCK;
    struct room *room = room_new((size_t)options->microphones);
    struct times *times = malloc(blocks * sizeof *times);
    if (!room || !times) {
        fprintf(stderr, "convolver: out of memory\n");
        return 1;
    }
    memset(times, 0, blocks * sizeof *times);
    float dry[BLOCK] = {0}, wet[BLOCK];
    room_process(room, dry, wet);

#ifdef WITH_TALEA
    if (declare())
        return 1;
#endif
    printf("ready pid=%ld\n", (long)getpid());
    fflush(stdout);

    uint32_t checksum = 2166136261u;
    const int64_t start = now_on(CLOCK_MONOTONIC) + PERIOD_NS;
    for (size_t k = 0; k < blocks; k++) {
        times[k].release = start + (int64_t)k * PERIOD_NS;
        sleep_until(times[k].release);
        times[k].start = now_on(CLOCK_MONOTONIC);
        const int64_t before = now_on(CLOCK_THREAD_CPUTIME_ID);
        take_block(wav, k, dry);
        room_process(room, dry, wet);
        times[k].computed = now_on(CLOCK_THREAD_CPUTIME_ID) - before;
        times[k].completion = now_on(CLOCK_MONOTONIC);
        checksum = add_to_checksum(checksum, wet);
    }
    printf("done blocks=%zu checksum=%08x\n", blocks, (unsigned)checksum);
    const int failed = options->csv && write_times(options->csv, times, blocks);
    free(times);
    room_free(room);
    return failed;
}

static int usage(void)
{
    fprintf(stderr, "usage: convolver WAV [--microphones N] [--seconds S] [--csv FILE] | WAV --calibrate MICROSECONDS\n");
    return 2;
}

static int number(const char *text, long low, long high, long *value)
{
    char *end;
    *value = strtol(text, &end, 10);
    return *text && !*end && *value >= low && *value <= high ? 0 : -1;
}

static int parse(int argc, char **argv, struct options *options)
{
    if (argc < 2 || argc % 2 != 0)
        return -1;
    options->wav = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        int bad = 0;
        if (!strcmp(name, "--microphones"))
            bad = number(value, 1, MOST_MICROPHONES, &options->microphones);
        else if (!strcmp(name, "--seconds"))
            bad = number(value, 1, 600, &options->seconds);
        else if (!strcmp(name, "--calibrate"))
            bad = number(value, 10, 9000, &options->calibrate_us);
        else if (!strcmp(name, "--csv"))
            options->csv = value;
        else
            bad = -1;
        if (bad)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options options = {.microphones = 4, .seconds = 5};
    struct wav wav;
    if (parse(argc, argv, &options))
        return usage();
    if (wav_read(options.wav, &wav))
        return 1;
    const int result =
        options.calibrate_us ? calibrate(&wav, (int64_t)options.calibrate_us * 1000) : run(&wav, &options);
    free(wav.samples);
    return result;
}
