//! What stands out of the sea.
//!
//! A constant false alarm rate detector: a pixel stands out if it is brighter than the mean of its
//! surroundings by so many of their standard deviations, whatever the light and the waves; of those
//! near each other, what is large enough is an object. On a CPU the surroundings of each pixel are
//! summed up; the accelerator has tables of sums, which is another program with the same results:
//! all of it is integers.

use crate::picture::Picture;
use crate::scene::{Kind, is_whole};
use talea_core::mutate;

/// Half sides of the surroundings: what stands out in most of them stands out.
const SCALES: [i32; 3] = [14, 20, 28];
/// Half side of what is left out in the middle, where the object itself is.
const GUARD: i32 = 7;
/// Standard deviations.
const FACTOR: u64 = 5;
/// Pixels of the smallest object.
const SMALLEST: usize = 8;
/// A boat is at least so long, in pixels.
const BOAT: i32 = 9;

/// An object in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// By its length.
    pub kind: Kind,
    /// The middle of the pixels that stand out.
    pub x: i32,
    /// The middle of the pixels that stand out.
    pub y: i32,
    /// Left, top, right and bottom pixel.
    pub bounds: [i32; 4],
}

/// Count, sum and sum of squares of some pixels.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    sum: u64,
    squares: u64,
}

impl Sums {
    fn less(self, other: Sums) -> Sums {
        Sums {
            count: self.count - other.count,
            sum: self.sum - other.sum,
            squares: self.squares - other.squares,
        }
    }

    /// Whether `value` is more than `FACTOR` standard deviations above the mean: both sides times
    /// the count, squared.
    fn outdone_by(self, value: u8) -> bool {
        let above = (u64::from(value) * self.count).saturating_sub(self.sum);
        let variance = self.count * self.squares - self.sum * self.sum;
        above * above > FACTOR * FACTOR * variance
    }
}

/// First and last row and column of a square, as far as it is within the picture.
fn square(picture: &Picture, x: i32, y: i32, half: i32) -> [usize; 4] {
    let within = |at: i32, size: usize| at.clamp(0, size as i32 - 1) as usize;
    [
        within(x - half, picture.width),
        within(y - half, picture.height),
        within(x + half, picture.width),
        within(y + half, picture.height),
    ]
}

/// By summing up.
fn summed(picture: &Picture, [left, top, right, bottom]: [usize; 4]) -> Sums {
    let (mut sum, mut squares) = (0_u64, 0_u64);
    for y in top..=bottom {
        let row = &picture.pixels[y * picture.width..][left..=right];
        // A row's sums fit 32 bits, which a CPU adds several at a time.
        let (mut of_row, mut of_squares) = (0_u32, 0_u32);
        for &pixel in row {
            of_row += u32::from(pixel);
            of_squares += u32::from(pixel) * u32::from(pixel);
        }
        sum += u64::from(of_row);
        squares += u64::from(of_squares);
    }
    Sums { count: ((right - left + 1) * (bottom - top + 1)) as u64, sum, squares }
}

/// Sums of all pixels above and to the left (Crow: "Summed-area tables for texture mapping",
/// SIGGRAPH 1984).
struct Tables {
    width: usize,
    sums: Vec<[u64; 2]>,
}

impl Tables {
    fn of(picture: &Picture) -> Tables {
        let width = picture.width + 1;
        let mut sums = vec![[0; 2]; width * (picture.height + 1)];
        for y in 0..picture.height {
            let mut row = [0_u64; 2];
            for x in 0..picture.width {
                let pixel = u64::from(picture.pixels[y * picture.width + x]);
                row = [row[0] + pixel, row[1] + pixel * pixel];
                let above = sums[y * width + x + 1];
                sums[(y + 1) * width + x + 1] = [above[0] + row[0], above[1] + row[1]];
            }
        }
        Tables { width, sums }
    }

    fn within(&self, [left, top, right, bottom]: [usize; 4]) -> Sums {
        let at = |x: usize, y: usize| self.sums[y * self.width + x];
        let corners = mutate!(
            "drone-accelerator",
            [at(right + 1, bottom + 1), at(left, top), at(left, bottom + 1), at(right + 1, top)],
            [at(right + 1, bottom), at(left, top), at(left, bottom), at(right + 1, top)]
        );
        let of =
            |kind: usize| corners[0][kind] + corners[1][kind] - corners[2][kind] - corners[3][kind];
        let count = ((right - left + 1) * (bottom - top + 1)) as u64;
        Sums { count, sum: of(0), squares: of(1) }
    }
}

fn standing_out(picture: &Picture, sums: impl Fn([usize; 4]) -> Sums) -> Vec<bool> {
    let mut out = vec![false; picture.pixels.len()];
    for y in 0..picture.height as i32 {
        for x in 0..picture.width as i32 {
            let at = y as usize * picture.width + x as usize;
            let own = sums(square(picture, x, y, GUARD));
            let votes = SCALES.iter().filter(|&&half| {
                sums(square(picture, x, y, half)).less(own).outdone_by(picture.pixels[at])
            });
            out[at] = votes.count() * 2 > SCALES.len();
        }
    }
    out
}

/// Collects what touches.
fn objects(picture: &Picture, mut out: Vec<bool>) -> Vec<Object> {
    let (width, height) = (picture.width as i32, picture.height as i32);
    let mut objects = Vec::new();
    let mut open = Vec::new();
    for first in 0..out.len() {
        if !std::mem::take(&mut out[first]) {
            continue;
        }
        open.push(first as i32);
        let (mut count, mut sums) = (0, [0_i32; 2]);
        let mut bounds = [width, height, -1, -1];
        while let Some(at) = open.pop() {
            let (x, y) = (at % width, at / width);
            count += 1;
            sums = [sums[0] + x, sums[1] + y];
            bounds = [bounds[0].min(x), bounds[1].min(y), bounds[2].max(x), bounds[3].max(y)];
            for (x, y) in (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (x + dx, y + dy))) {
                let is_within = (0..width).contains(&x) && (0..height).contains(&y);
                if is_within && std::mem::take(&mut out[(y * width + x) as usize]) {
                    open.push(y * width + x);
                }
            }
        }
        let middle = |sum: i32| (sum * 2 + count) / (count * 2);
        let (x, y) = (middle(sums[0]), middle(sums[1]));
        if count as usize >= SMALLEST && is_whole(x, y) {
            let kind = if bounds[2] - bounds[0] + 1 >= BOAT { Kind::Boat } else { Kind::Flotsam };
            objects.push(Object { kind, x, y, bounds });
        }
    }
    objects.sort_by_key(|object| (object.x, object.y));
    objects
}

/// As a CPU does it.
pub fn on_cpu(picture: &Picture) -> Vec<Object> {
    objects(picture, standing_out(picture, |square| summed(picture, square)))
}

/// As the accelerator does it.
pub fn on_accelerator(picture: &Picture) -> Vec<Object> {
    let tables = Tables::of(picture);
    objects(picture, standing_out(picture, |square| tables.within(square)))
}
