//! An object so that a person can see it: enlarged, without the sea, with all greys.
//!
//! The sea is the median over a window much larger than an object: what is brighter than that is
//! left. On a CPU each window is sorted as far as needed; the accelerator slides a histogram along
//! (Huang, Yang, Tang: "A fast two-dimensional median filtering algorithm", IEEE Trans. ASSP 27(1),
//! 1979). Both find the same median.

use crate::detect::Object;
use crate::picture::Picture;

/// How much larger.
const SCALE: i32 = 2;
/// Half side of the enlarged cut-out, in its own pixels.
const HALF: i32 = 48;
/// Half side of the window.
const WINDOW: i32 = 9;
/// Pixels of a window.
const PIXELS: usize = ((2 * WINDOW + 1) * (2 * WINDOW + 1)) as usize;

/// The cut-out around an object, enlarged.
fn enlarged(picture: &Picture, object: &Object) -> Picture {
    let side = 2 * HALF as usize;
    let mut cut = Picture::new(side, side);
    for y in 0..side as i32 {
        for x in 0..side as i32 {
            let from = |at: i32, middle: i32| middle + (at - HALF).div_euclid(SCALE);
            cut.set(x, y, picture.near(from(x, object.x), from(y, object.y)));
        }
    }
    cut
}

/// Without the sea, in all greys, and with a frame around the object.
fn finished(mut cut: Picture, sea: &Picture, object: &Object) -> Picture {
    for (pixel, sea) in cut.pixels.iter_mut().zip(&sea.pixels) {
        *pixel = pixel.saturating_sub(*sea);
    }
    let most = u32::from(cut.pixels.iter().copied().max().unwrap_or(255)).max(1);
    for pixel in &mut cut.pixels {
        *pixel = (u32::from(*pixel) * 255 / most) as u8;
    }
    let to = |at: i32, middle: i32| (at - middle) * SCALE + HALF;
    let [left, top, right, bottom] = object.bounds;
    let [left, right] = [to(left - 2, object.x), to(right + 3, object.x)];
    let [top, bottom] = [to(top - 2, object.y), to(bottom + 3, object.y)];
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
    let mut window = [0_u8; PIXELS];
    for y in 0..cut.height as i32 {
        for x in 0..cut.width as i32 {
            let around = (-WINDOW..=WINDOW)
                .flat_map(|dy| (-WINDOW..=WINDOW).map(move |dx| (x + dx, y + dy)));
            for (pixel, (x, y)) in window.iter_mut().zip(around) {
                *pixel = cut.near(x, y);
            }
            let (_, median, _) = window.select_nth_unstable(PIXELS / 2);
            out.set(x, y, *median);
        }
    }
    out
}

fn sliding_medians(cut: &Picture) -> Picture {
    let mut out = Picture::new(cut.width, cut.height);
    for y in 0..cut.height as i32 {
        let mut counts = [0_u16; 256];
        // How many are below the median.
        let (mut median, mut below) = (0_u8, 0_usize);
        // The first windows are of columns beyond the border, all like the border's.
        for x in -2 * WINDOW..cut.width as i32 {
            for y in y - WINDOW..=y + WINDOW {
                let comes = cut.near(x + WINDOW, y);
                counts[usize::from(comes)] += 1;
                below += usize::from(comes < median);
                if x > 0 {
                    let goes = cut.near(x - WINDOW - 1, y);
                    counts[usize::from(goes)] -= 1;
                    below -= usize::from(goes < median);
                }
            }
            if x < 0 {
                continue;
            }
            while below > PIXELS / 2 {
                median -= 1;
                below -= usize::from(counts[usize::from(median)]);
            }
            while below + usize::from(counts[usize::from(median)]) <= PIXELS / 2 {
                below += usize::from(counts[usize::from(median)]);
                median += 1;
            }
            out.set(x, y, median);
        }
    }
    out
}

/// As a CPU does it.
pub fn on_cpu(picture: &Picture, object: &Object) -> Picture {
    let cut = enlarged(picture, object);
    let sea = sorted_medians(&cut);
    finished(cut, &sea, object)
}

/// As the accelerator does it.
pub fn on_accelerator(picture: &Picture, object: &Object) -> Picture {
    let cut = enlarged(picture, object);
    let sea = sliding_medians(&cut);
    finished(cut, &sea, object)
}
