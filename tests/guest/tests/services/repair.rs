//! `talea doctor --repair` by root, of what the daemon of the shipped unit has left.

use crate::scene::{Scene, Sleeper, policy, run};
use talea_os::sched;

/// Returns the words of `talea doctor` about threads that a broker has left.
fn doctor(scene: &Scene, arguments: &[&str]) -> crate::scene::Ended {
    run(&mut scene.talea(0, &[&["doctor"], arguments].concat()))
}

#[test]
fn attack_7_root_repairs_what_the_daemon_of_the_unit_has_left() {
    let scene = Scene::new("");
    let granted: Vec<Sleeper> = [
        &["--priority", "30", "--plugin", "fp"][..],
        &["--priority", "20", "--plugin", "fp"],
        &["--runtime", "2ms", "--period", "20ms"],
    ]
    .into_iter()
    .map(|arguments| scene.granted(arguments))
    .collect();
    scene.stop();
    assert!(granted.iter().all(|sleeper| policy(sleeper.tid()).is_realtime()), "stopping keeps");

    let found = doctor(&scene, &[]);
    for sleeper in &granted {
        let thread = format!("thread {} (", sleeper.tid());
        assert!(found.out.contains(&thread), "{}{}", found.out, found.err);
    }
    // Without the capability of the unit, the daemon's user restores nothing, and says so.
    let failed = run(&mut scene.daemons_user(&["doctor", "--repair"]));
    assert_eq!(failed.code, Some(1), "{}{}", failed.out, failed.err);
    assert!(granted.iter().any(|sleeper| policy(sleeper.tid()).is_realtime()));

    let repaired = doctor(&scene, &["--repair"]);
    for sleeper in &granted {
        let now = policy(sleeper.tid());
        assert!(matches!(now, sched::Policy::Other { .. }), "{now:?} {}", repaired.out);
    }
    assert_eq!(repaired.code, Some(0), "{}{}", repaired.out, repaired.err);
    let again = doctor(&scene, &["--repair"]);
    assert!(again.out.contains("nothing to repair"), "{}", again.out);
    // The daemon of the unit starts again with the files that root has changed.
    scene.start();
    assert!(scene.grants().is_empty());
}
