/* The sound of a room: one dry voice in, many microphones out, each a convolution with its own impulse response.
 *
 * Only the early reflections, 25 ms of them, in the direct form, as engines compute them that must not add latency.
 * What is at work fits into a first or second level cache: a block takes time because it computes, not because it waits
 * for memory that others use too.
 * The responses are synthetic: decaying noise from a fixed seed. */
#ifndef CONVOLVER_ROOM_H
#define CONVOLVER_ROOM_H

#include <stddef.h>

/* 10 ms at 48 kHz. */
enum { BLOCK = 480, RATE = 48000 };

struct room;

/* A room with so many microphones; NULL without memory. */
struct room *room_new(size_t microphones);

/* One block: the dry voice in, the sum of all microphones out. */
void room_process(struct room *room, const float dry[BLOCK], float wet[BLOCK]);

void room_free(struct room *room);

#endif
