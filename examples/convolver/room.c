/* See room.h. All memory is allocated and touched before the first block, so that processing never faults. */
#include "room.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Length of an impulse response: 25 ms, a multiple of four samples. */
enum { TAPS = RATE / 40 };

struct room {
    size_t microphones;
    float (*responses)[TAPS];
    /* The last samples of the voice, the block at hand at the end. */
    float heard[TAPS + BLOCK];
};

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

static void make_response(float response[TAPS], size_t microphone)
{
    uint32_t state = 12345u + 7919u * (uint32_t)microphone;
    float loudness = 0.05f;
    for (size_t k = 0; k < TAPS; k++) {
        response[k] = loudness * noise(&state);
        /* 20 dB over its length. */
        loudness *= 0.99808299f;
    }
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
    memset(room->heard, 0, sizeof room->heard);
    for (size_t m = 0; m < microphones; m++)
        make_response(room->responses[m], m);
    return room;
}

/* Adds four reflections, the last of which begins at `then`: four, so that a sum stays in a register meanwhile. */
static void add_reflections(float *restrict wet, const float *restrict then, const float loudness[4])
{
    for (size_t i = 0; i < BLOCK; i++)
        wet[i] += loudness[0] * then[i + 3] + loudness[1] * then[i + 2] + loudness[2] * then[i + 1]
                  + loudness[3] * then[i];
}

void room_process(struct room *room, const float dry[BLOCK], float wet[BLOCK])
{
    float *const now = room->heard + TAPS;
    memmove(room->heard, room->heard + BLOCK, TAPS * sizeof *now);
    memcpy(now, dry, BLOCK * sizeof *now);

    memset(wet, 0, BLOCK * sizeof *wet);
    for (size_t m = 0; m < room->microphones; m++)
        for (size_t k = 0; k < TAPS; k += 4)
            add_reflections(wet, now - k - 3, &room->responses[m][k]);
}

void room_free(struct room *room)
{
    if (!room)
        return;
    free(room->responses);
    free(room);
}
