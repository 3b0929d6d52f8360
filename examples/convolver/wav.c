/* See wav.h. Little-endian fields are read byte by byte, independent of the byte order of the
 * computer. */
#include "wav.h"

#include "room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t little_endian(const unsigned char *bytes, int count)
{
    uint32_t value = 0;
    while (count-- > 0)
        value = value << 8 | bytes[count];
    return value;
}

static int fail(const char *path, const char *reason)
{
    fprintf(stderr, "%s: %s\n", path, reason);
    return -1;
}

static int read_samples(FILE *file, uint32_t size, struct wav *wav)
{
    wav->count = size / 2;
    wav->samples = malloc(wav->count * sizeof *wav->samples);
    if (!wav->samples)
        return -1;
    for (size_t i = 0; i < wav->count; i++) {
        unsigned char bytes[2];
        if (fread(bytes, 1, 2, file) != 2)
            return -1;
        wav->samples[i] = (int16_t)little_endian(bytes, 2);
    }
    return 0;
}

static int read_chunks(const char *path, FILE *file, struct wav *wav)
{
    unsigned char head[12], format[16], chunk[8];
    if (fread(head, 1, 12, file) != 12 || memcmp(head, "RIFF", 4) || memcmp(head + 8, "WAVE", 4))
        return fail(path, "not a WAV file");
    while (fread(chunk, 1, 8, file) == 8) {
        uint32_t size = little_endian(chunk + 4, 4);
        if (!memcmp(chunk, "fmt ", 4) && size >= 16) {
            if (fread(format, 1, 16, file) != 16)
                break;
            if (little_endian(format, 2) != 1 || little_endian(format + 2, 2) != 1 ||
                little_endian(format + 4, 4) != RATE || little_endian(format + 14, 2) != 16)
                return fail(path, "the format is not 16 bits, mono, 48 kHz, uncompressed");
            size -= 16;
        } else if (!memcmp(chunk, "data", 4)) {
            if (size < 2 * BLOCK || read_samples(file, size, wav))
                return fail(path, "the samples are shorter than a block, or truncated");
            return 0;
        }
        if (fseek(file, (long)(size + (size & 1)), SEEK_CUR))
            break;
    }
    return fail(path, "no samples");
}

int wav_read(const char *path, struct wav *wav)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    int result = read_chunks(path, file, wav);
    fclose(file);
    return result;
}
