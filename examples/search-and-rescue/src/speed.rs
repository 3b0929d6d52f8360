//! Estimation of an object's speed by its movement since the frame before, to a fraction of a
//! pixel.
//!
//! The method is block matching. The search range is centered at the position of an object that
//! stands still. The candidate with the least sum of absolute differences is the match; of equal
//! sums the first candidate. The version for a CPU adds up each candidate completely. The version
//! for the accelerator stops at a candidate's row if the sum reaches the least sum so far. The
//! result is the same. The speed of an object that the frame before does not contain is zero.

use crate::detect::Object;
use crate::picture::Picture;
use crate::scene::is_inside_margin;

/// Number of fractions of a pixel.
const SUBPIXELS: i32 = 4;
/// Half side of the matched block, in fractions of a pixel.
const BLOCK_HALF_SIDE: i32 = 40;
/// Half side of the search range, in fractions of a pixel.
const SEARCH_RANGE: i32 = 28;

/// Movement of an object from one frame to the next, in quarters of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Movement along the flight.
    pub x: i32,
    /// Movement across the flight.
    pub y: i32,
}

impl Drift {
    /// Returns the speed in centimetres per second. A pixel is half a metre, and the drone takes a
    /// frame every half second.
    pub fn speed(self) -> u32 {
        (self.x * self.x + self.y * self.y).cast_unsigned().isqrt() * 100
            / SUBPIXELS.cast_unsigned()
    }
}

/// Returns a square around a pixel, enlarged by `SUBPIXELS`, with bilinear interpolation. `half` is
/// the half side after the enlargement.
fn enlarge(picture: &Picture, x: i32, y: i32, half: i32) -> Vec<u8> {
    let side = -half..half;
    let mut out = Vec::with_capacity((4 * half * half) as usize);
    for dy in side.clone() {
        for dx in side.clone() {
            let (whole_x, part_x) = (x + dx.div_euclid(SUBPIXELS), dx.rem_euclid(SUBPIXELS));
            let (whole_y, part_y) = (y + dy.div_euclid(SUBPIXELS), dy.rem_euclid(SUBPIXELS));
            let at = |right: i32, down: i32| {
                let weight =
                    |is_next: i32, part: i32| if is_next == 1 { part } else { SUBPIXELS - part };
                i32::from(picture.nearest(whole_x + right, whole_y + down))
                    * weight(right, part_x)
                    * weight(down, part_y)
            };
            out.push(((at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1)) / (SUBPIXELS * SUBPIXELS)) as u8);
        }
    }
    out
}

fn match_block(
    before: &Picture,
    now: &Picture,
    object: &Object,
    moved: i32,
    stops_early: bool,
) -> Drift {
    if !is_inside_margin(object.x + moved, object.y) {
        return Drift { x: 0, y: 0 };
    }
    let block = enlarge(now, object.x, object.y, BLOCK_HALF_SIDE);
    // The movement of the camera shifts an object that stands still.
    let half_side = BLOCK_HALF_SIDE + SEARCH_RANGE;
    let field = enlarge(before, object.x + moved, object.y, half_side);
    let side = 2 * half_side as usize;
    let mut least = (u32::MAX, Drift { x: 0, y: 0 });
    for y in 0..=2 * SEARCH_RANGE {
        for x in 0..=2 * SEARCH_RANGE {
            let start = y as usize * side + x as usize;
            let rows = block.chunks(2 * BLOCK_HALF_SIDE as usize);
            let mut sum = 0;
            for (row, candidate) in rows.zip(field[start..].chunks(side)) {
                sum += difference(row, candidate);
                if stops_early && sum >= least.0 {
                    break;
                }
            }
            if sum < least.0 {
                least = (sum, Drift { x: SEARCH_RANGE - x, y: SEARCH_RANGE - y });
            }
        }
    }
    least.1
}

/// Returns the sum of absolute differences of two rows, over the shorter length.
fn difference(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(&a, &b)| u32::from(a.abs_diff(b))).sum()
}

/// Estimates the drift of an object: the version for a CPU. The camera has moved by `moved` pixels
/// along x since `before`.
pub fn on_cpu(before: &Picture, now: &Picture, object: &Object, moved: i32) -> Drift {
    match_block(before, now, object, moved, false)
}

/// Estimates the drift of an object as [`on_cpu`]: the version for the accelerator.
pub fn on_accelerator(before: &Picture, now: &Picture, object: &Object, moved: i32) -> Drift {
    match_block(before, now, object, moved, true)
}
