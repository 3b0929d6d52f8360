/* See room.h. All memory is allocated and touched before the first block, so that processing never faults. */
#include "room.h"

#include "fft.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One second of reverberation in pieces of one block. */
enum { PIECES = RATE / BLOCK };

typedef struct complex_sample spectrum[FFT_BINS];

struct room {
    size_t microphones;
    /* responses[m * PIECES + p]: piece p of microphone m. */
    spectrum *responses;
    /* The last PIECES input blocks; `newest` is the latest. */
    spectrum *inputs;
    size_t newest;
    /* What the last block of each microphone leaves to the next one. */
    float (*tails)[BLOCK];
};

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

static void make_response(struct room *room, size_t microphone)
{
    uint32_t state = 12345u + 7919u * (uint32_t)microphone;
    float loudness = 0.05f;
    for (size_t p = 0; p < PIECES; p++) {
        float samples[FFT_SIZE] = {0};
        for (size_t i = 0; i < BLOCK; i++) {
            samples[i] = loudness * noise(&state);
            /* 60 dB in one second. */
            loudness *= 0.99985610f;
        }
        fft_forward(samples, room->responses[microphone * PIECES + p]);
    }
}

struct room *room_new(size_t microphones)
{
    struct room *room = calloc(1, sizeof *room);
    if (!room)
        return NULL;
    room->microphones = microphones;
    room->responses = calloc(microphones * PIECES, sizeof *room->responses);
    room->inputs = calloc(PIECES, sizeof *room->inputs);
    room->tails = calloc(microphones, sizeof *room->tails);
    if (!room->responses || !room->inputs || !room->tails) {
        room_free(room);
        return NULL;
    }
    fft_init();
    memset(room->inputs, 0, PIECES * sizeof *room->inputs);
    memset(room->tails, 0, microphones * sizeof *room->tails);
    for (size_t m = 0; m < microphones; m++)
        make_response(room, m);
    return room;
}

static void multiply_add(spectrum sum, const spectrum a, const spectrum b)
{
    for (size_t i = 0; i < FFT_BINS; i++) {
        sum[i].re += a[i].re * b[i].re - a[i].im * b[i].im;
        sum[i].im += a[i].re * b[i].im + a[i].im * b[i].re;
    }
}

void room_process(struct room *room, const float dry[BLOCK], float wet[BLOCK])
{
    float samples[FFT_SIZE] = {0};
    memcpy(samples, dry, BLOCK * sizeof *dry);
    room->newest = (room->newest + 1) % PIECES;
    fft_forward(samples, room->inputs[room->newest]);

    memset(wet, 0, BLOCK * sizeof *wet);
    for (size_t m = 0; m < room->microphones; m++) {
        spectrum sum = {{0, 0}};
        for (size_t p = 0; p < PIECES; p++) {
            const size_t input = (room->newest + PIECES - p) % PIECES;
            multiply_add(sum, room->inputs[input], room->responses[m * PIECES + p]);
        }
        fft_inverse(sum, samples);
        for (size_t i = 0; i < BLOCK; i++)
            wet[i] += samples[i] + room->tails[m][i];
        memcpy(room->tails[m], samples + BLOCK, BLOCK * sizeof *samples);
    }
}

void room_free(struct room *room)
{
    if (!room)
        return;
    free(room->responses);
    free(room->inputs);
    free(room->tails);
    free(room);
}
