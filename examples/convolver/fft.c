/* Radix-2 FFT with decimation in time and bit-reversed input (Cooley and Tukey, Mathematics of
 * Computation 19, 1965). */
#include "fft.h"

#include <math.h>

static struct complex_sample twiddle[FFT_SIZE / 2];
static unsigned reversed[FFT_SIZE];

void fft_init(void)
{
    const double turn = 2.0 * 3.14159265358979323846;
    for (unsigned k = 0; k < FFT_SIZE / 2; k++) {
        twiddle[k].re = (float)cos(turn * k / FFT_SIZE);
        twiddle[k].im = (float)-sin(turn * k / FFT_SIZE);
    }
    for (unsigned i = 1; i < FFT_SIZE; i++)
        reversed[i] = reversed[i >> 1] >> 1 | (i & 1 ? FFT_SIZE / 2 : 0);
}

/* Transforms `data`, which is in bit-reversed order. */
static void butterflies(struct complex_sample data[FFT_SIZE])
{
    for (unsigned half = 1; half < FFT_SIZE; half *= 2) {
        const unsigned stride = FFT_SIZE / (2 * half);
        for (unsigned start = 0; start < FFT_SIZE; start += 2 * half) {
            for (unsigned k = 0; k < half; k++) {
                const struct complex_sample w = twiddle[k * stride];
                struct complex_sample *a = &data[start + k], *b = &data[start + k + half];
                const float re = b->re * w.re - b->im * w.im, im = b->re * w.im + b->im * w.re;
                b->re = a->re - re;
                b->im = a->im - im;
                a->re += re;
                a->im += im;
            }
        }
    }
}

void fft_forward(const float samples[FFT_SIZE], struct complex_sample bins[FFT_BINS])
{
    struct complex_sample data[FFT_SIZE];
    for (unsigned i = 0; i < FFT_SIZE; i++) {
        data[reversed[i]].re = samples[i];
        data[reversed[i]].im = 0;
    }
    butterflies(data);
    for (unsigned i = 0; i < FFT_BINS; i++)
        bins[i] = data[i];
}

void fft_inverse(const struct complex_sample bins[FFT_BINS], float samples[FFT_SIZE])
{
    struct complex_sample data[FFT_SIZE];
    /* The inverse is the forward transform of the conjugate. The upper half of a real signal's
     * spectrum mirrors the lower half. */
    for (unsigned i = 0; i < FFT_BINS; i++) {
        data[reversed[i]].re = bins[i].re;
        data[reversed[i]].im = -bins[i].im;
    }
    for (unsigned i = FFT_BINS; i < FFT_SIZE; i++) {
        data[reversed[i]].re = bins[FFT_SIZE - i].re;
        data[reversed[i]].im = bins[FFT_SIZE - i].im;
    }
    butterflies(data);
    for (unsigned i = 0; i < FFT_SIZE; i++)
        samples[i] = data[i].re / FFT_SIZE;
}
