/* The sound of a room: one dry voice, recorded by several microphones. Each microphone is an FFT
 * convolution with its own impulse response.
 *
 * The method is overlap-save (Stockham, "High-speed convolution and correlation", AFIPS 1966) in
 * hops of a millisecond. Each hop transforms the latest samples of the voice once. For each
 * microphone it multiplies them with the spectrum of the response, transforms the product back, and
 * keeps the newest millisecond. Short hops need much CPU time and little memory: the working set
 * fits into a second-level cache, so that a block does not wait for memory that other processes
 * use.
 *
 * The responses are synthetic early reflections: decaying noise from a fixed seed. */
#ifndef CONVOLVER_ROOM_H
#define CONVOLVER_ROOM_H

#include <stddef.h>

/* Samples of a block (10 ms), and samples per second. */
enum { BLOCK = 480, RATE = 48000 };

struct room;

/* Returns a room with this number of microphones, or NULL if memory is exhausted. */
struct room *room_new(size_t microphones);

/* Processes one block of the dry voice into the sum of all microphones. */
void room_process(struct room *room, const float dry[BLOCK], float wet[BLOCK]);

/* Frees a room; NULL is permitted. */
void room_free(struct room *room);

#endif
