//! How fast an object drifts: where it was in the frame before, to a fraction of a pixel.
//!
//! Block matching: of all places near where the object would be if it stood still, the one with the
//! least sum of absolute differences; of several, the first. On a CPU each place is summed up; the
//! accelerator gives a place up as soon as it can't win, which finds the same one. What has just
//! come into view has no speed yet.

use crate::detect::Object;
use crate::picture::Picture;
use crate::scene::is_whole;

/// Places between two pixels.
const FINE: i32 = 4;
/// Half side of what is looked for, in fractions.
const HALF: i32 = 40;
/// How far it is looked for, in fractions.
const REACH: i32 = 28;

/// What an object moves from one frame to the next, in quarters of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Along the flight.
    pub x: i32,
    /// Across.
    pub y: i32,
}

impl Drift {
    /// Centimetres in a second: a pixel is half a metre, a frame half a second.
    pub fn speed(self) -> u32 {
        (self.x * self.x + self.y * self.y).cast_unsigned().isqrt() * 100 / FINE.cast_unsigned()
    }
}

/// Enlarged by `FINE`, between pixels by the shares of the four around.
fn fine(picture: &Picture, x: i32, y: i32, half: i32) -> Vec<u8> {
    let side = -half..half;
    let mut out = Vec::with_capacity((4 * half * half) as usize);
    for dy in side.clone() {
        for dx in side.clone() {
            let (whole_x, part_x) = (x + dx.div_euclid(FINE), dx.rem_euclid(FINE));
            let (whole_y, part_y) = (y + dy.div_euclid(FINE), dy.rem_euclid(FINE));
            let at = |right: i32, down: i32| {
                let share = |is_next: i32, part: i32| if is_next == 1 { part } else { FINE - part };
                i32::from(picture.near(whole_x + right, whole_y + down))
                    * share(right, part_x)
                    * share(down, part_y)
            };
            out.push(((at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1)) / (FINE * FINE)) as u8);
        }
    }
    out
}

fn matched(before: &Picture, now: &Picture, object: &Object, moved: i32, gives_up: bool) -> Drift {
    if !is_whole(object.x + moved, object.y) {
        return Drift { x: 0, y: 0 };
    }
    let wanted = fine(now, object.x, object.y, HALF);
    // Where it was if it stood still: the camera has moved on.
    let reach = HALF + REACH;
    let field = fine(before, object.x + moved, object.y, reach);
    let side = 2 * reach as usize;
    let mut least = (u32::MAX, Drift { x: 0, y: 0 });
    for y in 0..=2 * REACH {
        for x in 0..=2 * REACH {
            let from = y as usize * side + x as usize;
            let mut sum = 0;
            for (wanted, place) in wanted.chunks(2 * HALF as usize).zip(field[from..].chunks(side))
            {
                sum += difference(wanted, place);
                if gives_up && sum >= least.0 {
                    break;
                }
            }
            if sum < least.0 {
                least = (sum, Drift { x: REACH - x, y: REACH - y });
            }
        }
    }
    least.1
}

fn difference(wanted: &[u8], place: &[u8]) -> u32 {
    wanted.iter().zip(place).map(|(&a, &b)| u32::from(a.abs_diff(b))).sum()
}

/// As a CPU does it; the camera has `moved` so many pixels along x since `before`.
pub fn on_cpu(before: &Picture, now: &Picture, object: &Object, moved: i32) -> Drift {
    matched(before, now, object, moved, false)
}

/// As the accelerator does it.
pub fn on_accelerator(before: &Picture, now: &Picture, object: &Object, moved: i32) -> Drift {
    matched(before, now, object, moved, true)
}
