//! Detection of objects in a frame: a constant false alarm rate (CFAR) detector.
//!
//! A pixel is conspicuous if it exceeds the mean of its surroundings by five of their standard
//! deviations. So the result does not depend on light and waves. A connected set of conspicuous
//! pixels is an object if it is large enough.
//!
//! The version for a CPU adds up the surroundings of each pixel. The version for the accelerator
//! uses summed-area tables. Both calculate with integers, so their results are equal.

use crate::picture::Picture;
use crate::scene::{Kind, is_inside_margin};
use talea_core::mutate;

/// Half sides of the windows around a pixel; the majority of the windows decides.
const WINDOW_HALF_SIDES: [i32; 3] = [14, 20, 28];
/// Half side of the guard area in the middle of a window, which may contain the object itself.
const GUARD_HALF_SIDE: i32 = 7;
/// Threshold in standard deviations.
const FACTOR: u64 = 5;
/// Minimum size of an object in pixels.
const MIN_PIXELS: usize = 8;
/// Minimum length of a boat in pixels.
const MIN_BOAT_LENGTH: i32 = 9;

/// An object in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Kind of the object, by its length.
    pub kind: Kind,
    /// Column of the center of the conspicuous pixels.
    pub x: i32,
    /// Row of the center of the conspicuous pixels.
    pub y: i32,
    /// Left, top, right and bottom of the bounding box.
    pub bounds: [i32; 4],
}

/// Count, sum and sum of squares of a set of pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    sum: u64,
    squares: u64,
}

impl Sums {
    /// Returns the sums without those of a subset.
    fn without(self, other: Sums) -> Sums {
        Sums {
            count: self.count - other.count,
            sum: self.sum - other.sum,
            squares: self.squares - other.squares,
        }
    }

    /// Whether `value` exceeds the mean by more than `FACTOR` standard deviations. The code
    /// multiplies both sides by the count and squares them.
    fn is_exceeded_by(self, value: u8) -> bool {
        let above = (u64::from(value) * self.count).saturating_sub(self.sum);
        let variance = self.count * self.squares - self.sum * self.sum;
        above * above > FACTOR * FACTOR * variance
    }
}

/// Returns left, top, right and bottom of a square around a pixel, clamped to the picture.
fn square(picture: &Picture, x: i32, y: i32, half: i32) -> [usize; 4] {
    let within = |at: i32, size: usize| at.clamp(0, size as i32 - 1) as usize;
    [
        within(x - half, picture.width),
        within(y - half, picture.height),
        within(x + half, picture.width),
        within(y + half, picture.height),
    ]
}

/// Returns the sums of a rectangle by addition of all pixels.
fn add_up(picture: &Picture, [left, top, right, bottom]: [usize; 4]) -> Sums {
    let (mut sum, mut squares) = (0_u64, 0_u64);
    for y in top..=bottom {
        let row = &picture.pixels[y * picture.width..][left..=right];
        // The sums of a row fit into 32 bits, which the CPU adds by SIMD instructions.
        let (mut row_sum, mut row_squares) = (0_u32, 0_u32);
        for &pixel in row {
            row_sum += u32::from(pixel);
            row_squares += u32::from(pixel) * u32::from(pixel);
        }
        sum += u64::from(row_sum);
        squares += u64::from(row_squares);
    }
    Sums { count: ((right - left + 1) * (bottom - top + 1)) as u64, sum, squares }
}

/// Summed-area tables: sums of all pixels above and to the left, and of their squares (Crow,
/// "Summed-area tables for texture mapping", SIGGRAPH 1984).
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

    /// Returns the sums of a rectangle from its four corners.
    fn rectangle(&self, [left, top, right, bottom]: [usize; 4]) -> Sums {
        let at = |x: usize, y: usize| self.sums[y * self.width + x];
        let corners = mutate!(
            "drone-accelerator",
            [at(right + 1, bottom + 1), at(left, top), at(left, bottom + 1), at(right + 1, top)],
            [at(right + 1, bottom), at(left, top), at(left, bottom), at(right + 1, top)]
        );
        let sum = |table: usize| {
            corners[0][table] + corners[1][table] - corners[2][table] - corners[3][table]
        };
        let count = ((right - left + 1) * (bottom - top + 1)) as u64;
        Sums { count, sum: sum(0), squares: sum(1) }
    }
}

/// Returns a list with the value `true` for each conspicuous pixel; `sums` returns the sums of a
/// rectangle.
fn conspicuous_pixels(picture: &Picture, sums: impl Fn([usize; 4]) -> Sums) -> Vec<bool> {
    let mut conspicuous = vec![false; picture.pixels.len()];
    for y in 0..picture.height as i32 {
        for x in 0..picture.width as i32 {
            let at = y as usize * picture.width + x as usize;
            let guard = sums(square(picture, x, y, GUARD_HALF_SIDE));
            let votes = WINDOW_HALF_SIDES.iter().filter(|&&half| {
                let surroundings = sums(square(picture, x, y, half)).without(guard);
                surroundings.is_exceeded_by(picture.pixels[at])
            });
            conspicuous[at] = votes.count() * 2 > WINDOW_HALF_SIDES.len();
        }
    }
    conspicuous
}

/// Returns the objects in connected sets of conspicuous pixels, from left to right. Omits sets that
/// are too small, and objects in the margin.
fn objects(picture: &Picture, mut conspicuous: Vec<bool>) -> Vec<Object> {
    let (width, height) = (picture.width as i32, picture.height as i32);
    let mut objects = Vec::new();
    let mut open = Vec::new();
    for first in 0..conspicuous.len() {
        if !std::mem::take(&mut conspicuous[first]) {
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
                if is_within && std::mem::take(&mut conspicuous[(y * width + x) as usize]) {
                    open.push(y * width + x);
                }
            }
        }
        let center = |sum: i32| (sum * 2 + count) / (count * 2);
        let (x, y) = (center(sums[0]), center(sums[1]));
        if count as usize >= MIN_PIXELS && is_inside_margin(x, y) {
            let is_boat = bounds[2] - bounds[0] + 1 >= MIN_BOAT_LENGTH;
            let kind = if is_boat { Kind::Boat } else { Kind::Flotsam };
            objects.push(Object { kind, x, y, bounds });
        }
    }
    objects.sort_by_key(|object| (object.x, object.y));
    objects
}

/// Detects objects: the version for a CPU. The objects are ordered from left to right.
pub fn on_cpu(picture: &Picture) -> Vec<Object> {
    objects(picture, conspicuous_pixels(picture, |square| add_up(picture, square)))
}

/// Detects objects as [`on_cpu`]: the version for the accelerator.
pub fn on_accelerator(picture: &Picture) -> Vec<Object> {
    let tables = Tables::of(picture);
    objects(picture, conspicuous_pixels(picture, |square| tables.rectangle(square)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a picture whose pixels differ, from a xorshift generator.
    fn random_picture(width: usize, height: usize) -> Picture {
        let mut rng = 0x9e37_79b9_u32;
        let mut picture = Picture::new(width, height);
        picture.pixels.fill_with(|| {
            rng ^= rng << 13;
            rng ^= rng >> 17;
            rng ^= rng << 5;
            (rng >> 24) as u8
        });
        picture
    }

    /// Returns the sums of a rectangle, pixel by pixel.
    fn plain_sums(picture: &Picture, [left, top, right, bottom]: [usize; 4]) -> Sums {
        let mut sums = Sums::default();
        for (x, y) in (top..=bottom).flat_map(|y| (left..=right).map(move |x| (x, y))) {
            let pixel = u64::from(picture.pixels[y * picture.width + x]);
            sums.count += 1;
            sums.sum += pixel;
            sums.squares += pixel * pixel;
        }
        sums
    }

    #[test]
    fn y18_both_versions_add_up_every_rectangle_as_plain_sums() {
        for (width, height) in [(1, 1), (1, 6), (7, 1), (5, 4), (4, 7)] {
            let picture = random_picture(width, height);
            let tables = Tables::of(&picture);
            let columns = (0..width).flat_map(|left| (left..width).map(move |right| (left, right)));
            for (left, right) in columns {
                let rows = (0..height).flat_map(|top| (top..height).map(move |end| (top, end)));
                for (top, bottom) in rows {
                    let rectangle = [left, top, right, bottom];
                    let plain = plain_sums(&picture, rectangle);
                    assert_eq!(tables.rectangle(rectangle), plain, "tables, {rectangle:?}");
                    assert_eq!(add_up(&picture, rectangle), plain, "sums, {rectangle:?}");
                }
            }
        }
    }
}
