//! Talea itself: the daemon, its configuration, its rules for this user, what an earlier one left.

use super::check::{Check, Grade};
use super::facts::{Configuration, Daemon, Facts, Leftovers};
use super::rights::privileged;
use crate::exit::Exit;

/// What this is called in reports.
const LEFTOVERS: &str = "leftovers";

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        disabled(facts),
        configuration(facts),
        daemon(facts),
        rules(facts),
        leftovers(&facts.leftovers),
    ]
}

/// One check for all of them.
fn leftovers(all: &[Leftovers]) -> Check {
    let checks: Vec<Check> = all.iter().map(leftover).collect();
    let Some(grade) = checks.iter().map(|check| check.status).find(|&status| status != Grade::Ok)
    else {
        let none = || {
            Check::ok(
                LEFTOVERS,
                "none",
                "no thread is real-time without somebody who looks after it",
            )
        };
        return checks.into_iter().next().unwrap_or_else(none);
    };
    let joined = |part: fn(&Check) -> Option<&str>| {
        checks.iter().filter_map(part).collect::<Vec<_>>().join("; ")
    };
    Check {
        id: LEFTOVERS,
        status: grade,
        finding: joined(|check| Some(&check.finding)),
        meaning: joined(|check| Some(&check.meaning)),
        fix: Some(joined(|check| check.fix.as_deref())),
    }
}

fn disabled(facts: &Facts) -> Check {
    let id = "talea-disable";
    match &facts.disabled {
        Some(why) => Check::warn(
            id,
            why.clone(),
            "talea run and programs with libtalea start as ordinary ones",
            "unset TALEA_DISABLE",
        ),
        None => Check::ok(id, "not set", "Talea is in force"),
    }
}

fn configuration(facts: &Facts) -> Check {
    let id = "configuration";
    match &facts.configuration {
        Configuration::Sound(path) => {
            Check::ok(id, path.display().to_string(), "sound, and nobody else can write it")
        }
        Configuration::Missing(path) if matches!(facts.daemon, Daemon::Answers { .. }) => {
            Check::ok(
                id,
                format!("no {}, and a daemon that has another", path.display()),
                "which one, its command line says; --config names it to doctor",
            )
        }
        Configuration::Missing(path) => Check::warn(
            id,
            format!("no {}", path.display()),
            "talead does not start without one",
            "write it (man talead.toml), then talea check it; talea import-retif turns ReTiF's files \
             into one",
        ),
        Configuration::Broken(path, why) => Check::fail(
            id,
            why.clone(),
            "talead does not start with half a configuration, nor with one that others can write",
            format!("talea check {}; chown root: and chmod go-w it", path.display()),
        ),
    }
}

fn daemon(facts: &Facts) -> Check {
    let id = "daemon";
    match &facts.daemon {
        Daemon::Answers { pid, .. } => Check::ok(
            id,
            format!("talead, process {pid}, answers"),
            "unprivileged programs can ask",
        ),
        Daemon::Trouble(why) => Check::fail(
            id,
            why.clone(),
            "something is there and does not serve you",
            "the daemon's log says more; socket owner, group and mode are set in its configuration",
        ),
        Daemon::Missing(why) => {
            let (meaning, alone) = if privileged(facts) {
                (
                    "talea run, attach and explain decide in their own process; nothing serves other users",
                    true,
                )
            } else {
                ("nobody can give this user real time", false)
            };
            let fix =
                "systemctl enable --now talead.socket talead.service, or talead in a root shell";
            if alone {
                Check::warn(id, why.clone(), meaning, fix)
            } else {
                Check::fail(id, why.clone(), meaning, fix)
            }
        }
    }
}

fn rules(facts: &Facts) -> Check {
    let id = "rules";
    let Daemon::Answers { refusal, .. } = &facts.daemon else {
        return Check::ok(id, "not asked", "without a daemon there are no access rules");
    };
    let Some(refusal) = refusal else {
        return Check::ok(id, "you may ask", "a hundredth of a CPU would be granted to you");
    };
    // What each plugin said is for explain.
    let text = refusal.head().to_string();
    match Exit::of(refusal) {
        Exit::Denied => Check::fail(
            id,
            text,
            "no rule lets you have even a hundredth of a CPU; without a rule nothing is allowed",
            format!(
                "in {}: [[rule]] domain = \"#{}\" max_utilization = 0.5 (each on its own line), \
                 then systemctl reload talead",
                rules_file(facts),
                facts.uid
            ),
        ),
        _ => Check::warn(
            id,
            text,
            "a hundredth of a CPU would not be granted now",
            "talea explain --period 10ms --runtime 100us shows every plugin's answer",
        ),
    }
}

/// Where the daemon's rules are written, as far as is known from here.
fn rules_file(facts: &Facts) -> String {
    match &facts.configuration {
        Configuration::Sound(path) | Configuration::Broken(path, _) => path.display().to_string(),
        Configuration::Missing(_) => "the daemon's configuration".to_owned(),
    }
}

fn leftover(left: &Leftovers) -> Check {
    let id = LEFTOVERS;
    match left {
        Leftovers::Hidden(why) => {
            Check::ok(id, why.clone(), "only root, or the daemon's user, can look")
        }
        Leftovers::Partitions => Check::warn(
            id,
            "cpuset partitions",
            "a daemon that is gone set CPUs apart for deadline threads; on cgroup v1 nothing balances load there",
            "start talead, or talea doctor --repair to undo them",
        ),
        Leftovers::Shield => Check::warn(
            id,
            "a shield",
            "an application cleared CPUs of others and was killed, together with whoever would have put that back: threads and interrupts \
             keep off those CPUs",
            "talea doctor --repair puts them back",
        ),
        Leftovers::Programs(runs) => Check::warn(
            id,
            format!("programs of {}", crate::output::count(*runs, "run")),
            "talea execute started them and was killed, together with whoever would have ended them",
            "talea doctor --repair ends them",
        ),
        Leftovers::Threads(threads) => Check::warn(
            id,
            format!("still real-time: {}", threads.join(", ")),
            "a broker that is gone granted this; a new talead takes the grants over",
            "start talead, or talea doctor --repair to put the threads back",
        ),
    }
}
