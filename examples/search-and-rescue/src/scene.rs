//! The sea from above, with what drifts on it: where the frames in `data/sea.pgm` come from, and
//! what is in them.
//!
//! Integers only, so that every machine draws the same. A pixel is half a metre; the drone flies
//! along x at 16 m/s and takes two frames a second.

use crate::picture::Picture;

/// Of a frame, in pixels.
pub const WIDTH: usize = 144;
/// Of a frame, in pixels.
pub const HEIGHT: usize = 96;
/// In the file.
pub const FRAMES: u32 = 20;
/// Pixels that the camera moves between two frames.
pub const PACE: i32 = 16;
/// What is nearer to a frame's border than this is of no frame: it may be cut off.
pub const MARGIN: i32 = 10;

/// What drifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A life boat.
    Boat,
    /// Anything else.
    Flotsam,
}

/// Where something is, in the pixels of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thing {
    /// What.
    pub kind: Kind,
    /// Its middle.
    pub x: i32,
    /// Its middle.
    pub y: i32,
}

/// Kind, place at frame 0 in pixels of the world, pixels that it moves in a frame.
type Drifting = (Kind, [i32; 2], [i32; 2]);

/// A drifting thing now and then, and a group of boats.
const WORLD: &[Drifting] = &[
    (Kind::Flotsam, [120, 30], [0, 0]),
    (Kind::Flotsam, [228, 70], [0, 0]),
    (Kind::Boat, [258, 18], [1, 0]),
    (Kind::Boat, [277, 40], [0, 1]),
    (Kind::Boat, [240, 60], [-1, -1]),
    (Kind::Flotsam, [372, 76], [0, 0]),
    (Kind::Flotsam, [420, 50], [0, 0]),
];

/// Where the left border of a frame is in the world.
pub fn camera(frame: u32) -> i32 {
    frame as i32 * PACE
}

/// What a frame shows, from left to right.
pub fn things(frame: u32) -> Vec<Thing> {
    let mut things: Vec<Thing> = all(frame).filter(|thing| is_whole(thing.x, thing.y)).collect();
    things.sort_by_key(|thing| (thing.x, thing.y));
    things
}

/// Whether something in the middle of which this pixel lies is of the frame.
pub fn is_whole(x: i32, y: i32) -> bool {
    (MARGIN..WIDTH as i32 - MARGIN).contains(&x) && (MARGIN..HEIGHT as i32 - MARGIN).contains(&y)
}

fn all(frame: u32) -> impl Iterator<Item = Thing> {
    WORLD.iter().map(move |&(kind, [x, y], [dx, dy])| {
        let frames = frame as i32;
        Thing { kind, x: x + dx * frames - camera(frame), y: y + dy * frames }
    })
}

/// From 0 up to `high` and back within `period`.
fn triangle(at: i32, period: i32, high: i32) -> i32 {
    let within = at.rem_euclid(period);
    high * within.min(period - within) * 2 / period
}

/// Draws a frame.
pub fn frame(number: u32) -> Picture {
    let mut picture = Picture::new(WIDTH, HEIGHT);
    // Marsaglia's xorshift: the same noise each time.
    let mut dice = 0x9E37_79B9_u32 ^ (number + 1).wrapping_mul(0x85EB_CA6B);
    for y in 0..HEIGHT as i32 {
        for x in 0..WIDTH as i32 {
            dice ^= dice << 13;
            dice ^= dice >> 17;
            dice ^= dice << 5;
            let there = x + camera(number);
            let swell = triangle(there * 2 + y * 3 + number as i32 * 9, 97, 12);
            let ripple = triangle(there * 5 - y * 7 + number as i32 * 23, 41, 6);
            let noise = (dice >> 8) as i32 % 9 - 4;
            picture.set(x, y, (60 + y / 6 + swell + ripple + noise) as u8);
        }
    }
    for thing in all(number) {
        draw(&mut picture, thing);
    }
    picture
}

/// A hull is an ellipse of 11 by 5 pixels with a darker inside, a piece of flotsam a disc of 5.
fn draw(picture: &mut Picture, thing: Thing) {
    let (a, b) = if thing.kind == Kind::Boat { (5, 2) } else { (2, 2) };
    for dy in -b..=b {
        for dx in -a..=a {
            if dx * dx * b * b + dy * dy * a * a <= a * a * b * b {
                let is_inside = thing.kind == Kind::Boat && dy == 0 && (-2..=2_i32).contains(&dx);
                picture.set(thing.x + dx, thing.y + dy, if is_inside { 170 } else { 215 });
            }
        }
    }
}

/// The file of all frames.
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
    fn each_frame_shows_something_and_some_show_a_group_of_boats() {
        let counts: Vec<usize> = (0..FRAMES).map(|frame| things(frame).len()).collect();
        assert!(counts.iter().all(|&count| (1..=4).contains(&count)), "{counts:?}");
        assert!(counts.iter().filter(|&&count| count == 4).count() >= 3, "{counts:?}");
        let boats = |frame| things(frame).iter().filter(|thing| thing.kind == Kind::Boat).count();
        assert_eq!((boats(0), boats(FRAMES - 1)), (0, 0));
        // Nothing lies half within what counts as whole: it would depend on a pixel whether it is
        // found.
        for frame in 0..FRAMES {
            for thing in all(frame) {
                let off = [thing.x - MARGIN, WIDTH as i32 - MARGIN - thing.x, thing.y - MARGIN];
                assert!(off.iter().all(|off| *off != 0), "{frame}: {thing:?}");
            }
        }
    }

    #[test]
    fn the_file_is_what_is_drawn() {
        let kept = include_bytes!("../data/sea.pgm");
        let drawn = file();
        if std::env::var_os("TALEA_BLESS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/sea.pgm"), &drawn)
                .expect("written");
        } else {
            assert!(
                kept[..] == drawn[..],
                "data/sea.pgm is stale: run this test with TALEA_BLESS=1"
            );
        }
        assert!(drawn.len() < 300_000);
    }
}
