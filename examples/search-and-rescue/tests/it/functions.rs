//! Tests of both versions of each function, compared with the targets of the generator.

use search_and_rescue::detect;
use search_and_rescue::mission::frames;
use search_and_rescue::scene::{self, Kind, Target};
use search_and_rescue::{highlight, speed};

#[test]
fn y18_exactly_the_targets_of_each_frame_are_detected() {
    for (number, picture) in (0..).zip(&frames()) {
        let targets = scene::targets(number);
        let objects = detect::on_accelerator(picture);
        let kinds: Vec<Kind> = objects.iter().map(|object| object.kind).collect();
        assert_eq!(
            kinds,
            targets.iter().map(|target| target.kind).collect::<Vec<_>>(),
            "frame {number}"
        );
        for (object, target) in objects.iter().zip(&targets) {
            let deviation = (object.x - target.x).abs().max((object.y - target.y).abs());
            assert!(deviation <= 1, "frame {number}: {object:?} for {target:?}");
        }
    }
}

#[test]
fn y18_the_accelerator_versions_agree_with_the_cpu_versions() {
    let frames = frames();
    // Four frames only, because the versions for the CPU are slow.
    for number in [1, 9, 10, 19] {
        let (before, now) = (&frames[number - 1], &frames[number]);
        assert_eq!(detect::on_cpu(now), detect::on_accelerator(now), "frame {number}");
        for object in detect::on_accelerator(now) {
            assert!(
                highlight::on_cpu(now, &object) == highlight::on_accelerator(now, &object),
                "frame {number}: {object:?}"
            );
            assert_eq!(
                speed::on_cpu(before, now, &object, scene::CAMERA_STEP),
                speed::on_accelerator(before, now, &object, scene::CAMERA_STEP),
                "frame {number}: {object:?}"
            );
        }
    }
}

#[test]
fn y18_the_estimated_speed_is_that_of_the_target() {
    let frames = frames();
    let mut moving = 0;
    for number in 1..frames.len() {
        let before = scene::targets(number as u32 - 1);
        let targets = scene::targets(number as u32);
        for object in detect::on_accelerator(&frames[number]) {
            let drift = speed::on_accelerator(
                &frames[number - 1],
                &frames[number],
                &object,
                scene::CAMERA_STEP,
            );
            let distance =
                |target: &Target| (target.x - object.x).abs() + (target.y - object.y).abs();
            let target = targets.iter().min_by_key(|target| distance(target)).expect("a target");
            // The same target in the frame before is the nearest one of its kind, if the movement
            // of the camera is subtracted.
            let same_kind = before.iter().filter(|before| before.kind == target.kind);
            let movement =
                |before: &Target| [target.x + scene::CAMERA_STEP - before.x, target.y - before.y];
            let nearest = same_kind.map(movement).min_by_key(|[x, y]| x.abs() + y.abs());
            // The frame before may not contain the whole target.
            let Some([x, y]) = nearest.filter(|[x, y]| x.abs() <= 1 && y.abs() <= 1) else {
                assert_eq!((drift.x, drift.y), (0, 0), "frame {number}: {target:?}");
                continue;
            };
            assert_eq!((drift.x, drift.y), (x * 4, y * 4), "frame {number}: {target:?}");
            moving += u32::from(x != 0 || y != 0);
        }
    }
    assert!(moving > 10, "{moving}");
}

#[test]
fn a_highlighted_object_is_brighter_than_the_sea_around_it_and_has_a_border() {
    let frames = frames();
    let object = detect::on_accelerator(&frames[9])[0];
    let picture = highlight::on_accelerator(&frames[9], &object);
    let center = picture.nearest(picture.width as i32 / 2, picture.height as i32 / 2);
    assert!(center > 150 && picture.nearest(0, 0) < 40, "{center}");
    let row = |y: usize| &picture.pixels[y * picture.width..][..picture.width];
    let has_border =
        (0..picture.height).any(|y| row(y).windows(8).any(|pixels| pixels == [255; 8]));
    assert!(has_border);
}
