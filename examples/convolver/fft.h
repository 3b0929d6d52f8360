/* A small fast Fourier transform: radix 2, in place, single precision, one size. */
#ifndef CONVOLVER_FFT_H
#define CONVOLVER_FFT_H

enum { FFT_SIZE = 1024, FFT_BINS = FFT_SIZE / 2 + 1 };

struct complex_sample {
    float re, im;
};

/* Fills the tables; call once. */
void fft_init(void);

/* Real samples to the bins 0 .. FFT_SIZE/2; the other half of a real signal's spectrum mirrors them. */
void fft_forward(const float samples[FFT_SIZE], struct complex_sample bins[FFT_BINS]);

/* The way back, with the factor 1/FFT_SIZE. */
void fft_inverse(const struct complex_sample bins[FFT_BINS], float samples[FFT_SIZE]);

#endif
