//! `cargo xtask audio`: the sound of the demonstration, examples/convolver/talea.wav.
//!
//! Model: a plucked string repeats one rhythm (in medieval music, a talea). Karplus and Strong,
//! *Computer Music Journal* 7(2), 1983. Integer arithmetic makes the file the same on every
//! machine, and a test compares the file.

use crate::shell;
use anyhow::Result;
use std::process::ExitCode;

/// Number of samples per second.
const RATE: usize = 48_000;
/// Length of the file, in seconds.
const SECONDS: usize = 4;
/// Path of the file.
const FILE: &str = "examples/convolver/talea.wav";

/// Notes of one repetition: duration in sixteenths, and period of the string in samples.
const RHYTHM: [(usize, usize); 6] = [(3, 218), (3, 183), (2, 163), (3, 145), (3, 163), (2, 183)];
/// Number of samples of one sixteenth. Two repetitions of 16 sixteenths fill the file.
const SIXTEENTH: usize = SECONDS * RATE / 32;

/// Runs the audio command.
pub(crate) fn run() -> Result<ExitCode> {
    std::fs::write(shell::root().join(FILE), wav(&voice()))?;
    Ok(ExitCode::SUCCESS)
}

fn voice() -> Vec<i16> {
    let mut samples = Vec::with_capacity(SECONDS * RATE);
    let mut seed = 1;
    while samples.len() < SECONDS * RATE {
        for (length, period) in RHYTHM {
            pluck(&mut samples, length * SIXTEENTH, period, &mut seed);
        }
    }
    samples
}

/// Appends one note of `length` samples: noise in a delay line, in which each sample becomes the
/// damped mean of two neighbours.
fn pluck(samples: &mut Vec<i16>, length: usize, period: usize, seed: &mut u32) {
    let mut line: Vec<i32> = (0..period).map(|_| noise(seed)).collect();
    for at in 0..length {
        let (now, next) = (at % period, (at + 1) % period);
        samples.push(line[now] as i16);
        line[now] = (line[now] + line[next]) * 499 / 1000;
    }
}

fn noise(seed: &mut u32) -> i32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*seed >> 16) as i32 % 24_000 - 12_000
}

/// Returns the samples as a RIFF file with one `fmt ` and one `data` chunk: PCM, mono, 16 bits.
fn wav(samples: &[i16]) -> Vec<u8> {
    let data = (samples.len() * 2) as u32;
    let mut bytes = Vec::with_capacity(44 + samples.len() * 2);
    let mut put = |part: &[u8]| bytes.extend_from_slice(part);
    put(b"RIFF");
    put(&(36 + data).to_le_bytes());
    put(b"WAVEfmt ");
    put(&16_u32.to_le_bytes());
    put(&1_u16.to_le_bytes());
    put(&1_u16.to_le_bytes());
    put(&(RATE as u32).to_le_bytes());
    put(&(RATE as u32 * 2).to_le_bytes());
    put(&2_u16.to_le_bytes());
    put(&16_u16.to_le_bytes());
    put(b"data");
    put(&data.to_le_bytes());
    for sample in samples {
        put(&sample.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_equals_the_output_of_the_generator() {
        let stored = std::fs::read(shell::root().join(FILE)).expect(FILE);
        assert!(stored == wav(&voice()), "{FILE} is stale: run `cargo xtask audio`");
        assert!(stored.len() < 500_000);
    }

    #[test]
    fn a_string_is_loud_and_fades() {
        let samples = voice();
        let loudness = |part: &[i16]| {
            part.iter().map(|&s| i64::from(s).abs()).sum::<i64>() / part.len() as i64
        };
        let (first, last) = (loudness(&samples[..2000]), loudness(&samples[16_000..18_000]));
        assert!(first > 1000 && last < first / 2, "{first} {last}");
    }
}
