/* Reference model of the room: the blockwise result must equal the convolution by definition. */
#include "room.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 6, HEARD = BLOCKS * BLOCK };

static float response[HEARD], dry[HEARD], wet[HEARD];

static void play(const float *input, float *output)
{
    struct room *room = room_new(2);
    if (!room)
        exit(2);
    for (int k = 0; k < BLOCKS; k++)
        room_process(room, input + k * BLOCK, output + k * BLOCK);
    room_free(room);
}

int main(void)
{
    /* What a click sounds like is the response. */
    dry[0] = 1;
    play(dry, response);

    uint32_t state = 1;
    for (int i = 0; i < HEARD; i++) {
        state = state * 1664525u + 1013904223u;
        dry[i] = (float)(int32_t)state / 2147483648.0f;
    }
    play(dry, wet);

    double worst = 0, loudest = 0;
    for (int n = 0; n < HEARD; n++) {
        double sum = 0;
        for (int k = 0; k <= n; k++)
            sum += (double)dry[k] * response[n - k];
        worst = fmax(worst, fabs(sum - wet[n]));
        loudest = fmax(loudest, fabs(sum));
    }
    printf("loudest %g, worst difference %g\n", loudest, worst);
    return !(loudest > 0.1 && worst < 1e-4 * loudest);
}
