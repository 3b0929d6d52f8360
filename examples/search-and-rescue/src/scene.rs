//! Generator of the frames in `data/sea.pgm`: the sea from above with drifting targets, and the
//! targets in each frame.
//!
//! The generator uses integers only, so that every computer draws the same frames. A pixel is half
//! a metre; the drone flies along x at 16 m/s and takes two frames a second.

use crate::picture::Picture;

/// Width of a frame in pixels.
pub const WIDTH: usize = 144;
/// Height of a frame in pixels.
pub const HEIGHT: usize = 96;
/// Number of frames in the file.
pub const FRAMES: u32 = 20;
/// Movement of the camera between two frames, in pixels.
pub const CAMERA_STEP: i32 = 16;
/// Margin of a frame in pixels. The detection ignores a target whose center is in the margin,
/// because the border may cut the target off.
pub const MARGIN: i32 = 10;

/// Kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A life boat.
    Boat,
    /// Any other drifting object.
    Flotsam,
}

/// A target in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kind of the target.
    pub kind: Kind,
    /// Column of the target's center.
    pub x: i32,
    /// Row of the target's center.
    pub y: i32,
}

/// Kind of a target, position on the sea at frame 0, and movement per frame, in pixels.
type DriftingTarget = (Kind, [i32; 2], [i32; 2]);

/// All targets: single pieces of flotsam and a group of boats.
const TARGETS: &[DriftingTarget] = &[
    (Kind::Flotsam, [120, 30], [0, 0]),
    (Kind::Flotsam, [228, 70], [0, 0]),
    (Kind::Boat, [258, 18], [1, 0]),
    (Kind::Boat, [277, 40], [0, 1]),
    (Kind::Boat, [240, 60], [-1, -1]),
    (Kind::Flotsam, [372, 76], [0, 0]),
    (Kind::Flotsam, [420, 50], [0, 0]),
];

/// Returns the x coordinate of a frame's left border on the sea, in pixels.
pub fn camera_x(frame: u32) -> i32 {
    frame as i32 * CAMERA_STEP
}

/// Returns the targets of a frame from left to right, without the targets in the margin.
pub fn targets(frame: u32) -> Vec<Target> {
    let mut targets: Vec<Target> =
        all_targets(frame).filter(|target| is_inside_margin(target.x, target.y)).collect();
    targets.sort_by_key(|target| (target.x, target.y));
    targets
}

/// Whether a target with this center is inside the margin of a frame.
pub fn is_inside_margin(x: i32, y: i32) -> bool {
    (MARGIN..WIDTH as i32 - MARGIN).contains(&x) && (MARGIN..HEIGHT as i32 - MARGIN).contains(&y)
}

/// Returns all targets with their positions relative to a frame.
fn all_targets(frame: u32) -> impl Iterator<Item = Target> {
    TARGETS.iter().map(move |&(kind, [x, y], [dx, dy])| {
        let frames = frame as i32;
        Target { kind, x: x + dx * frames - camera_x(frame), y: y + dy * frames }
    })
}

/// Returns a triangle wave from 0 to `amplitude`.
fn triangle(at: i32, period: i32, amplitude: i32) -> i32 {
    let within = at.rem_euclid(period);
    amplitude * within.min(period - within) * 2 / period
}

/// Draws a frame.
pub fn frame(number: u32) -> Picture {
    let mut picture = Picture::new(WIDTH, HEIGHT);
    // Xorshift generator (Marsaglia 2003), so that the noise is deterministic.
    let mut rng = 0x9E37_79B9_u32 ^ (number + 1).wrapping_mul(0x85EB_CA6B);
    for y in 0..HEIGHT as i32 {
        for x in 0..WIDTH as i32 {
            rng ^= rng << 13;
            rng ^= rng >> 17;
            rng ^= rng << 5;
            let sea_x = x + camera_x(number);
            let swell = triangle(sea_x * 2 + y * 3 + number as i32 * 9, 97, 12);
            let ripple = triangle(sea_x * 5 - y * 7 + number as i32 * 23, 41, 6);
            let noise = (rng >> 8) as i32 % 9 - 4;
            picture.set(x, y, (60 + y / 6 + swell + ripple + noise) as u8);
        }
    }
    for target in all_targets(number) {
        draw(&mut picture, target);
    }
    picture
}

/// Draws a target: a boat is an ellipse of 11 by 5 pixels with a darker inside, a piece of flotsam
/// is a disc of 5 pixels.
fn draw(picture: &mut Picture, target: Target) {
    let (a, b) = if target.kind == Kind::Boat { (5, 2) } else { (2, 2) };
    for dy in -b..=b {
        for dx in -a..=a {
            if dx * dx * b * b + dy * dy * a * a <= a * a * b * b {
                let is_inside = target.kind == Kind::Boat && dy == 0 && (-2..=2_i32).contains(&dx);
                picture.set(target.x + dx, target.y + dy, if is_inside { 170 } else { 215 });
            }
        }
    }
}

/// Returns the contents of `data/sea.pgm`.
pub fn file() -> Vec<u8> {
    let mut file = Vec::new();
    for number in 0..FRAMES {
        frame(number).write(&mut file);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_has_a_target_and_some_have_a_group_of_boats() {
        let counts: Vec<usize> = (0..FRAMES).map(|frame| targets(frame).len()).collect();
        assert!(counts.iter().all(|&count| (1..=4).contains(&count)), "{counts:?}");
        assert!(counts.iter().filter(|&&count| count == 4).count() >= 3, "{counts:?}");
        let boats =
            |frame| targets(frame).iter().filter(|target| target.kind == Kind::Boat).count();
        assert_eq!((boats(0), boats(FRAMES - 1)), (0, 0));
        // No center is exactly on the margin, where a deviation of one pixel would decide about
        // detection.
        for frame in 0..FRAMES {
            for target in all_targets(frame) {
                let distances =
                    [target.x - MARGIN, WIDTH as i32 - MARGIN - target.x, target.y - MARGIN];
                assert!(distances.iter().all(|distance| *distance != 0), "{frame}: {target:?}");
            }
        }
    }

    #[test]
    fn the_stored_frames_equal_the_generated_ones() {
        let stored = include_bytes!("../data/sea.pgm");
        let generated = file();
        if std::env::var_os("TALEA_BLESS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/sea.pgm"), &generated)
                .expect("written");
        } else {
            assert!(
                stored[..] == generated[..],
                "data/sea.pgm is stale: run this test with TALEA_BLESS=1"
            );
        }
        assert!(generated.len() < 300_000);
    }
}
