//! Picture of an object for a human observer: enlarged, without the sea, with maximum contrast.
//!
//! The sea is the median over a window that is much larger than an object. The module subtracts the
//! sea from the picture. The version for a CPU partially sorts each window. The version for the
//! accelerator slides a histogram (Huang, Yang, Tang: "A fast two-dimensional median filtering
//! algorithm", IEEE Trans. ASSP 27(1), 1979). Both calculate the same median.

use crate::detect::Object;
use crate::picture::Picture;

/// Factor of the enlargement.
const SCALE: i32 = 2;
/// Half side of the enlarged cut-out, in pixels of the cut-out.
const HALF_SIDE: i32 = 48;
/// Half side of the window of the median.
const WINDOW_HALF_SIDE: i32 = 9;
/// Number of pixels in the window of the median.
const WINDOW_PIXELS: usize = ((2 * WINDOW_HALF_SIDE + 1) * (2 * WINDOW_HALF_SIDE + 1)) as usize;

/// Returns the enlarged cut-out around an object.
fn enlarge(picture: &Picture, object: &Object) -> Picture {
    let side = 2 * HALF_SIDE as usize;
    let mut cut = Picture::new(side, side);
    for y in 0..side as i32 {
        for x in 0..side as i32 {
            let source = |at: i32, center: i32| center + (at - HALF_SIDE).div_euclid(SCALE);
            cut.set(x, y, picture.nearest(source(x, object.x), source(y, object.y)));
        }
    }
    cut
}

/// Subtracts the sea, stretches the contrast, and draws a border around the object.
fn finish(mut cut: Picture, sea: &Picture, object: &Object) -> Picture {
    for (pixel, sea) in cut.pixels.iter_mut().zip(&sea.pixels) {
        *pixel = pixel.saturating_sub(*sea);
    }
    let max = u32::from(cut.pixels.iter().copied().max().unwrap_or(255)).max(1);
    for pixel in &mut cut.pixels {
        *pixel = (u32::from(*pixel) * 255 / max) as u8;
    }
    let target = |at: i32, center: i32| (at - center) * SCALE + HALF_SIDE;
    let [left, top, right, bottom] = object.bounds;
    let [left, right] = [target(left - 2, object.x), target(right + 3, object.x)];
    let [top, bottom] = [target(top - 2, object.y), target(bottom + 3, object.y)];
    for x in left..=right {
        cut.set(x, top, 255);
        cut.set(x, bottom, 255);
    }
    for y in top..=bottom {
        cut.set(left, y, 255);
        cut.set(right, y, 255);
    }
    cut
}

fn sorted_medians(cut: &Picture) -> Picture {
    let mut out = Picture::new(cut.width, cut.height);
    let mut window = [0_u8; WINDOW_PIXELS];
    for y in 0..cut.height as i32 {
        for x in 0..cut.width as i32 {
            let range = -WINDOW_HALF_SIDE..=WINDOW_HALF_SIDE;
            let positions =
                range.clone().flat_map(|dy| range.clone().map(move |dx| (x + dx, y + dy)));
            for (pixel, (x, y)) in window.iter_mut().zip(positions) {
                *pixel = cut.nearest(x, y);
            }
            let (_, median, _) = window.select_nth_unstable(WINDOW_PIXELS / 2);
            out.set(x, y, *median);
        }
    }
    out
}

fn sliding_medians(cut: &Picture) -> Picture {
    let mut out = Picture::new(cut.width, cut.height);
    for y in 0..cut.height as i32 {
        let mut counts = [0_u16; 256];
        // Number of pixels in the window that are less than the median.
        let (mut median, mut below) = (0_u8, 0_usize);
        // The first columns are beyond the border; their pixels equal those of the border.
        for x in -2 * WINDOW_HALF_SIDE..cut.width as i32 {
            for y in y - WINDOW_HALF_SIDE..=y + WINDOW_HALF_SIDE {
                let added = cut.nearest(x + WINDOW_HALF_SIDE, y);
                counts[usize::from(added)] += 1;
                below += usize::from(added < median);
                if x > 0 {
                    let removed = cut.nearest(x - WINDOW_HALF_SIDE - 1, y);
                    counts[usize::from(removed)] -= 1;
                    below -= usize::from(removed < median);
                }
            }
            if x < 0 {
                continue;
            }
            while below > WINDOW_PIXELS / 2 {
                median -= 1;
                below -= usize::from(counts[usize::from(median)]);
            }
            while below + usize::from(counts[usize::from(median)]) <= WINDOW_PIXELS / 2 {
                below += usize::from(counts[usize::from(median)]);
                median += 1;
            }
            out.set(x, y, median);
        }
    }
    out
}

/// Returns the picture of an object: the version for a CPU.
pub fn on_cpu(picture: &Picture, object: &Object) -> Picture {
    let cut = enlarge(picture, object);
    let sea = sorted_medians(&cut);
    finish(cut, &sea, object)
}

/// Returns the picture of an object as [`on_cpu`]: the version for the accelerator.
pub fn on_accelerator(picture: &Picture, object: &Object) -> Picture {
    let cut = enlarge(picture, object);
    let sea = sliding_medians(&cut);
    finish(cut, &sea, object)
}
