/* A real-time audio job: simulates a voice in a room, in blocks of 10 ms.
 *
 *     convolver WAV [--microphones N] [--seconds S] [--csv FILE]
 *     convolver WAV --calibrate MICROSECONDS
 *
 * Every 10 ms a block of 480 samples is released; its deadline is the release of the next block, as
 * with a sound card. The nominal release of block k is start + k * 10 ms, independent of earlier
 * blocks. The response time of a block is its completion minus its nominal release. The program
 * keeps the times in memory and writes them after the run.
 *
 * With -DWITH_TALEA the program requests a grant through libtalea; without it, the program runs as
 * an ordinary process. */
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

/* Declared period and runtime: 4 ms of CPU time every 10 ms. */
enum { PERIOD_NS = 10000000, RUNTIME_NS = 4000000, MAX_MICROPHONES = 64 };

struct times {
    int64_t release, start, completion;
    /* CPU time between start and completion. */
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

/* Copies block k of the voice, which repeats forever. */
static void copy_block(const struct wav *wav, size_t k, float dry[BLOCK])
{
    const size_t blocks = wav->count / BLOCK;
    for (size_t i = 0; i < BLOCK; i++)
        dry[i] = (float)wav->samples[k % blocks * BLOCK + i] / 32768.0f;
}

/* Adds the samples of a block, as a sound card would get them, to a checksum. Runs of the same
 * length have equal checksums. */
static uint32_t add_to_checksum(uint32_t sum, const float wet[BLOCK])
{
    for (size_t i = 0; i < BLOCK; i++)
        sum = (sum ^ (uint32_t)(int32_t)(wet[i] * 8192.0f)) * 16777619u;
    return sum;
}

/* Returns the least CPU time of a block in 20 trials; 0 if memory is exhausted. */
static int64_t cost_of(const struct wav *wav, size_t microphones)
{
    enum { TRIALS = 20 };
    struct room *room = room_new(microphones);
    if (!room)
        return 0;
    int64_t best = INT64_MAX;
    for (size_t k = 0; k < TRIALS; k++) {
        float dry[BLOCK], wet[BLOCK];
        copy_block(wav, k, dry);
        const int64_t before = now_on(CLOCK_THREAD_CPUTIME_ID);
        room_process(room, dry, wet);
        const int64_t cost = now_on(CLOCK_THREAD_CPUTIME_ID) - before;
        best = cost < best ? cost : best;
    }
    room_free(room);
    return best;
}

/* Prints the number of microphones for which a block costs about `target_ns` of CPU time.
 *
 * The cost of a block is a constant plus a part for each microphone; measurements with two numbers
 * of microphones determine both. Other load does not matter, because CPU time is measured. */
static int calibrate(const struct wav *wav, int64_t target_ns)
{
    enum { LOW = 4, HIGH = 16 };
    const int64_t low = cost_of(wav, LOW), high = cost_of(wav, HIGH);
    if (low == 0 || high == 0)
        return 1;
    const int64_t each = high > low ? (high - low) / (HIGH - LOW) + 1 : 1;
    int64_t count = LOW + (target_ns - low) / each;
    count = count < 1 ? 1 : count > MAX_MICROPHONES ? MAX_MICROPHONES : count;
    const int64_t block_ns = cost_of(wav, (size_t)count);
    printf("microphones=%lld block_ns=%lld\n", (long long)count, (long long)block_ns);
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
        fprintf(file, "%zu,%lld,%lld,%lld,%lld\n", k, (long long)times[k].release,
                (long long)times[k].start, (long long)times[k].completion,
                (long long)times[k].computed);
    return fclose(file) ? 1 : 0;
}

#ifdef WITH_TALEA
/* Requests a grant and attaches it to the calling thread. The builds differ only in this. */
static int request_grant(void)
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
    /* The daemon releases the grant when this process ends. */
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
    if (request_grant())
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
        copy_block(wav, k, dry);
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
    fprintf(stderr, "usage: convolver WAV [--microphones N] [--seconds S] [--csv FILE]\n"
                    "       convolver WAV --calibrate MICROSECONDS\n");
    return 2;
}

/* Parses an integer from `low` to `high`; returns 0, or -1 if it is invalid. */
static int parse_number(const char *text, long low, long high, long *value)
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
            bad = parse_number(value, 1, MAX_MICROPHONES, &options->microphones);
        else if (!strcmp(name, "--seconds"))
            bad = parse_number(value, 1, 600, &options->seconds);
        else if (!strcmp(name, "--calibrate"))
            bad = parse_number(value, 10, 9000, &options->calibrate_us);
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
    const int result = options.calibrate_us ? calibrate(&wav, (int64_t)options.calibrate_us * 1000)
                                            : run(&wav, &options);
    free(wav.samples);
    return result;
}
