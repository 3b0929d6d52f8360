/* See room.h. room_new allocates and touches all memory before the first block, so that processing
 * has no page faults. */
#include "room.h"

#include "fft.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Samples that one transform yields: 1 ms. */
    HOP = RATE / 1000,
    /* Maximum length of a response that does not alias into these samples: 20 ms. */
    TAPS = FFT_SIZE - HOP + 1
};

typedef struct complex_sample spectrum[FFT_BINS];

struct room {
    size_t microphones;
    spectrum *responses;
    /* The latest samples of the voice, the newest at the end. */
    float history[FFT_SIZE];
};

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

static void make_response(spectrum response, size_t microphone)
{
    uint32_t state = 12345u + 7919u * (uint32_t)microphone;
    float samples[FFT_SIZE] = {0};
    float amplitude = 0.05f;
    for (size_t i = 0; i < TAPS; i++) {
        samples[i] = amplitude * noise(&state);
        /* Decays by 20 dB over the length of the response. */
        amplitude *= 0.99764599f;
    }
    fft_forward(samples, response);
}

struct room *room_new(size_t microphones)
{
    struct room *room = calloc(1, sizeof *room);
    if (!room)
        return NULL;
    room->microphones = microphones;
    room->responses = calloc(microphones, sizeof *room->responses);
    if (!room->responses) {
        room_free(room);
        return NULL;
    }
    fft_init();
    memset(room->history, 0, sizeof room->history);
    for (size_t m = 0; m < microphones; m++)
        make_response(room->responses[m], m);
    return room;
}

static void multiply(spectrum product, const spectrum a, const spectrum b)
{
    for (size_t i = 0; i < FFT_BINS; i++) {
        product[i].re = a[i].re * b[i].re - a[i].im * b[i].im;
        product[i].im = a[i].re * b[i].im + a[i].im * b[i].re;
    }
}

static void hop(struct room *room, const float dry[HOP], float wet[HOP])
{
    const size_t kept = FFT_SIZE - HOP;
    memmove(room->history, room->history + HOP, kept * sizeof *dry);
    memcpy(room->history + kept, dry, HOP * sizeof *dry);
    spectrum voice;
    fft_forward(room->history, voice);

    memset(wet, 0, HOP * sizeof *wet);
    for (size_t m = 0; m < room->microphones; m++) {
        spectrum product;
        float samples[FFT_SIZE];
        multiply(product, voice, room->responses[m]);
        fft_inverse(product, samples);
        for (size_t i = 0; i < HOP; i++)
            wet[i] += samples[kept + i];
    }
}

void room_process(struct room *room, const float dry[BLOCK], float wet[BLOCK])
{
    for (size_t i = 0; i < BLOCK; i += HOP)
        hop(room, dry + i, wet + i);
}

void room_free(struct room *room)
{
    if (!room)
        return;
    free(room->responses);
    free(room);
}
