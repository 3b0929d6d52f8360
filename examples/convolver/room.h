/* The sound of a room: one dry voice in, many microphones out, each a convolution with its own impulse response.
 *
 * Partitioned convolution with overlap-add (Kulp, "Digital equalization using Fourier transform techniques", AES 1988):
 * the response is cut into pieces of one block, and a delay line of input spectra is multiplied with their spectra. The
 * responses are synthetic: decaying noise from a fixed seed. */
#ifndef CONVOLVER_ROOM_H
#define CONVOLVER_ROOM_H

#include <stddef.h>

/* 10 ms at 48 kHz. One block and one piece of a response together fit into one transform. */
enum { BLOCK = 480, RATE = 48000 };

struct room;

/* A room with so many microphones and a reverberation of one second; NULL without memory. */
struct room *room_new(size_t microphones);

/* One block: the dry voice in, the sum of all microphones out. */
void room_process(struct room *room, const float dry[BLOCK], float wet[BLOCK]);

void room_free(struct room *room);

#endif
