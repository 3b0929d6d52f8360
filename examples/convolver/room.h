/* The sound of a room: one dry voice in, many microphones out, each an FFT convolution with its own impulse response.
 *
 * Overlap-save (Stockham, "High-speed convolution and correlation", AFIPS 1966), a millisecond at a time: the voice's last
 * samples are transformed once, multiplied with a microphone's spectrum, transformed back, and only the newest
 * millisecond is kept. Short hops stand for work: they compute much from little memory. What is at work fits into a
 * second level cache, so that a block does not wait for memory which others use too.
 *
 * The responses are the early reflections only, synthetic: decaying noise from a fixed seed. */
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
