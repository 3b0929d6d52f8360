//! The first question to the name of RealtimeKit starts the front end.
//!
//! xdg-desktop-portal asks once, at its start, and passes this answer to all its clients. So the
//! front end must answer a portal that starts first.

use crate::scene::{Scene, done, property, systemctl};
use std::os::unix::process::CommandExt;
use std::process::Command;

const NAME: &str = "org.freedesktop.RealtimeKit1";
const UNIT: &str = "talea-rtkit.service";
/// User without rights. The bus serves it because it has a name.
const UNPRIVILEGED: u32 = 65_534;

#[test]
fn the_first_question_starts_the_front_end() {
    let _scene = Scene::new("");
    systemctl(&["start", "dbus.socket"]);
    systemctl(&["stop", UNIT]);
    assert_eq!(property(UNIT, "ActiveState"), "inactive");
    let path = format!("/{}", NAME.replace('.', "/"));
    let mut ask = Command::new("busctl");
    ask.args(["get-property", NAME, &path, NAME, "RTTimeUSecMax"])
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED);
    assert_eq!(done(&mut ask), "x 200000");
    assert_eq!(property(UNIT, "ActiveState"), "active");
    systemctl(&["stop", UNIT]);
}
