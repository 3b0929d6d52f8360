/* Reads a WAV file: 16 bits, mono, 48 kHz, no compression. */
#ifndef CONVOLVER_WAV_H
#define CONVOLVER_WAV_H

#include <stddef.h>
#include <stdint.h>

struct wav {
    int16_t *samples;
    size_t count;
};

/* 0, or -1 with a sentence on standard error. */
int wav_read(const char *path, struct wav *wav);

#endif
