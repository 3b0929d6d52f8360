//! Each function finds what the generator has put there, in both of its ways.

use search_and_rescue::detect;
use search_and_rescue::mission::frames;
use search_and_rescue::scene::{self, Kind};
use search_and_rescue::{highlight, speed};

#[test]
fn y18_what_was_put_into_the_sea_is_found_and_nothing_else() {
    for (number, picture) in (0..).zip(&frames()) {
        let drawn = scene::things(number);
        let found = detect::on_accelerator(picture);
        let kinds: Vec<Kind> = found.iter().map(|object| object.kind).collect();
        assert_eq!(
            kinds,
            drawn.iter().map(|thing| thing.kind).collect::<Vec<_>>(),
            "frame {number}"
        );
        for (object, thing) in found.iter().zip(&drawn) {
            let off = (object.x - thing.x).abs().max((object.y - thing.y).abs());
            assert!(off <= 1, "frame {number}: {object:?} for {thing:?}");
        }
    }
}

#[test]
fn y18_the_accelerator_finds_what_the_cpu_finds() {
    let frames = frames();
    // Two of each kind are enough: they are dear on a CPU.
    for number in [1, 9, 10, 19] {
        let (before, now) = (&frames[number - 1], &frames[number]);
        assert_eq!(detect::on_cpu(now), detect::on_accelerator(now), "frame {number}");
        for object in detect::on_accelerator(now) {
            assert!(
                highlight::on_cpu(now, &object) == highlight::on_accelerator(now, &object),
                "frame {number}: {object:?}"
            );
            assert_eq!(
                speed::on_cpu(before, now, &object, scene::PACE),
                speed::on_accelerator(before, now, &object, scene::PACE),
                "frame {number}: {object:?}"
            );
        }
    }
}

#[test]
fn y18_the_speed_is_that_of_what_was_drawn() {
    let frames = frames();
    let mut moving = 0;
    for number in 1..frames.len() {
        let (then, drawn) = (scene::things(number as u32 - 1), scene::things(number as u32));
        for object in detect::on_accelerator(&frames[number]) {
            let drift =
                speed::on_accelerator(&frames[number - 1], &frames[number], &object, scene::PACE);
            let near =
                |thing: &scene::Thing| (thing.x - object.x).abs() + (thing.y - object.y).abs();
            let thing = drawn.iter().min_by_key(|thing| near(thing)).expect("what was found");
            // Where it came from: of its kind the nearest, the camera's pace ahead.
            let from = then.iter().filter(|before| before.kind == thing.kind);
            let off =
                |before: &scene::Thing| [thing.x + scene::PACE - before.x, thing.y - before.y];
            let nearest = from.map(off).min_by_key(|[x, y]| x.abs() + y.abs());
            // One that has just come into view was cut off in the frame before.
            let Some([x, y]) = nearest.filter(|[x, y]| x.abs() <= 1 && y.abs() <= 1) else {
                assert_eq!((drift.x, drift.y), (0, 0), "frame {number}: {thing:?}");
                continue;
            };
            assert_eq!((drift.x, drift.y), (x * 4, y * 4), "frame {number}: {thing:?}");
            moving += u32::from(x != 0 || y != 0);
        }
    }
    assert!(moving > 10, "{moving}");
}

#[test]
fn a_highlighted_object_is_brighter_than_the_sea_around_it_and_framed() {
    let frames = frames();
    let object = detect::on_accelerator(&frames[9])[0];
    let picture = highlight::on_accelerator(&frames[9], &object);
    let middle = picture.near(picture.width as i32 / 2, picture.height as i32 / 2);
    assert!(middle > 150 && picture.near(0, 0) < 40, "{middle}");
    let row = |y: usize| &picture.pixels[y * picture.width..][..picture.width];
    let is_framed = (0..picture.height).any(|y| row(y).windows(8).any(|pixels| pixels == [255; 8]));
    assert!(is_framed);
}
