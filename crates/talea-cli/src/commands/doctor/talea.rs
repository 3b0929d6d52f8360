//! The daemon, its configuration, its rules for this user, and leftovers.

use super::check::{Check, Status};
use super::facts::{Configuration, Daemon, Facts};
use super::front_ends;
use super::leftovers::Leftovers;
use super::rights::privileged;
use talea_study::exit::Exit;

/// Id of the check.
const LEFTOVERS: &str = "leftovers";

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![disabled(facts), configuration(facts), daemon(facts), rules(facts)];
    checks.extend(front_ends::checks(&facts.front_end_calls, &facts.published));
    checks.push(leftovers(&facts.leftovers));
    checks
}

/// Merges all leftovers into one check.
fn leftovers(all: &[Leftovers]) -> Check {
    let checks: Vec<Check> = all.iter().map(leftover).collect();
    let Some(status) = checks.iter().map(|check| check.status).find(|&status| status != Status::Ok)
    else {
        let none = || Check::ok(LEFTOVERS, "none", "every real-time thread has a live owner");
        return checks.into_iter().next().unwrap_or_else(none);
    };
    let joined = |part: fn(&Check) -> Option<&str>| {
        checks.iter().filter_map(part).collect::<Vec<_>>().join("; ")
    };
    Check {
        id: LEFTOVERS,
        status,
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
            Check::ok(id, path.display().to_string(), "valid, and only its owner can write it")
        }
        Configuration::Missing(path) if matches!(facts.daemon, Daemon::Answers { .. }) => {
            Check::ok(
                id,
                format!("no {}, and a daemon with another one", path.display()),
                "the daemon's command line names it; --config names it to doctor",
            )
        }
        Configuration::Missing(path) => Check::warn(
            id,
            format!("no {}", path.display()),
            "talead does not start without one",
            "write it (man talead.toml), then talea check it; talea import converts ReTiF's files",
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
            "the daemon exists but does not serve you",
            "the daemon's log says more; socket owner, group and mode are set in its configuration",
        ),
        Daemon::Missing(why) => {
            let (meaning, alone) = if privileged(facts) {
                (
                    "talea run, attach and explain decide in their own process; nothing serves other users",
                    true,
                )
            } else {
                ("no broker can grant real time to this user", false)
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
        return Check::ok(id, "you may ask", "a request for a hundredth of a CPU would be granted");
    };
    // `talea explain` shows the answer of each plugin.
    let text = refusal.head().to_string();
    match Exit::from_refusal(refusal) {
        Exit::Denied => Check::fail(
            id,
            text,
            "no rule allows you a hundredth of a CPU; without a rule nothing is allowed",
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

/// Returns the file that contains the daemon's rules, if known.
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
            Check::ok(id, why.clone(), "only root, or the daemon's user, can read it")
        }
        Leftovers::Partitions => Check::warn(
            id,
            "cpuset partitions",
            "a dead daemon reserved CPUs for deadline threads; on cgroup v1 no load balancing happens there",
            "start talead, or talea doctor --repair to remove them",
        ),
        Leftovers::Shield => Check::warn(
            id,
            "a shield",
            "an application moved other threads off its CPUs and was killed, together with its reaper: threads and interrupts avoid those CPUs",
            "talea doctor --repair restores them",
        ),
        Leftovers::Programs(runs) => Check::warn(
            id,
            format!("programs of {}", talea_study::output::count(*runs, "run")),
            "talea execute started them and was killed, together with its reaper",
            "talea doctor --repair ends them",
        ),
        Leftovers::Threads(threads) => Check::warn(
            id,
            format!("still real-time: {}", threads.join(", ")),
            "a dead broker granted this; a new talead adopts the grants",
            "start talead, or talea doctor --repair to restore the threads",
        ),
    }
}
