/* A fast Fourier transform of one size: radix 2, in place, single precision. */
#ifndef CONVOLVER_FFT_H
#define CONVOLVER_FFT_H

enum { FFT_SIZE = 1024, FFT_BINS = FFT_SIZE / 2 + 1 };

struct complex_sample {
    float re, im;
};

/* Fills the tables; called once, before any transform. */
void fft_init(void);

/* Transforms real samples to the bins 0 .. FFT_SIZE/2; the other half of a real signal's spectrum
 * mirrors them. */
void fft_forward(const float samples[FFT_SIZE], struct complex_sample bins[FFT_BINS]);

/* Transforms bins back to real samples, with the factor 1/FFT_SIZE. */
void fft_inverse(const struct complex_sample bins[FFT_BINS], float samples[FFT_SIZE]);

#endif
