/* Reader of WAV files with 16 bits, mono, 48 kHz, without compression. */
#ifndef CONVOLVER_WAV_H
#define CONVOLVER_WAV_H

#include <stddef.h>
#include <stdint.h>

struct wav {
    int16_t *samples;
    size_t count;
};

/* Reads a file. Returns 0, or -1 with a message on standard error. The caller frees `samples`. */
int wav_read(const char *path, struct wav *wav);

#endif
