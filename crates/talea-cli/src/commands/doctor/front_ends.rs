//! Calls over D-Bus, and the values that front end and portal publish there.
//!
//! Model: the program `talea-rtkit` knows D-Bus, and this program does not. With `--published` it
//! prints what the owner of the name and the portal of the session publish, one line each. A portal
//! reads the values only once, when it starts, so it may publish others later.

use super::check::Check;
use crate::commands::front_ends::FrontEndCalls;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use talea_core::mutate;
use talea_study::output::count;

/// Ids of the checks.
const FRONT_ENDS: &str = "front-ends";
const REALTIMEKIT: &str = "realtimekit";
const PORTAL: &str = "portal";
/// Property that clients set their RLIMIT_RTTIME to.
const TIME_LIMIT: &str = "RTTimeUSecMax";
/// Maximum number of refusals in the finding.
const MAX_SHOWN: usize = 3;

/// State of a name on a bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Name {
    /// The front end's program is not there, or could not ask.
    #[default]
    NotAsked,
    /// The bus cannot be asked, or its answer is no set of properties.
    Unreadable(String),
    /// No program has the name.
    NoOwner,
    /// The owner publishes these properties.
    Publishes(BTreeMap<String, i64>),
}

/// Values that programs read over D-Bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Published {
    /// Name `org.freedesktop.RealtimeKit1` of the system.
    pub(super) realtimekit: Name,
    /// Name `org.freedesktop.portal.Desktop` of the session.
    pub(super) portal: Name,
}

impl Published {
    /// Asks by the front end's program, which is installed beside this one or below `libexec`.
    pub(super) fn read() -> Published {
        let Ok(own) = std::env::current_exe() else { return Published::default() };
        let beside = |folder: &str| own.parent().map(|parent| parent.join(folder));
        let places = ["talea-rtkit", "../libexec/talea/talea-rtkit"];
        let program = places.into_iter().filter_map(beside).find(|program| program.is_file());
        program.map_or_else(Published::default, |program| Published::ask(&program))
    }

    fn ask(program: &Path) -> Published {
        let mut command = Command::new(program);
        command.arg("--published").stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().map(|output| output.stdout).unwrap_or_default();
        Published::parse(&String::from_utf8_lossy(&output))
    }

    /// Parses the lines of the program.
    pub(super) fn parse(text: &str) -> Published {
        let mut published = Published::default();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once(' ') else { continue };
            match name {
                REALTIMEKIT => published.realtimekit = Name::parse(rest),
                PORTAL => published.portal = Name::parse(rest),
                _ => {}
            }
        }
        published
    }
}

impl Name {
    fn parse(text: &str) -> Name {
        if text == "no-owner" {
            return Name::NoOwner;
        }
        let property = |part: &str| {
            let (property, value) = part.split_once('=')?;
            Some((property.to_owned(), value.parse().ok()?))
        };
        let unreadable = || {
            let harmless = talea_config::diagnostic::harmless;
            Name::Unreadable(text.chars().map(harmless).collect())
        };
        let properties: Option<_> = text.split(' ').map(property).collect();
        properties.map_or_else(unreadable, Name::Publishes)
    }
}

/// Returns the checks of D-Bus.
pub(super) fn checks(calls: &FrontEndCalls, published: &Published) -> [Check; 3] {
    [check(calls), realtimekit(&published.realtimekit), portal(published)]
}

fn check(calls: &FrontEndCalls) -> Check {
    let granted = format!("{} over D-Bus since yesterday", count(calls.granted, "grant"));
    let refusals = mutate!("doctor-front-ends", calls.refusals.as_slice(), &[]);
    if refusals.is_empty() {
        return Check::ok(FRONT_ENDS, granted, "no call of a front end was refused");
    }
    let last: Vec<_> = refusals.iter().rev().take(MAX_SHOWN).collect();
    let texts: Vec<&str> = last.iter().map(|refusal| refusal.text.as_str()).collect();
    let mut fixes: Vec<&str> = last.iter().map(|refusal| refusal.fix.as_str()).collect();
    fixes.dedup();
    Check::warn(
        FRONT_ENDS,
        format!(
            "{granted}, {}; the last by each limit: {}",
            count(calls.refused(), "refusal"),
            texts.join("; ")
        ),
        "the threads of refused calls are ordinary ones until their program asks again",
        format!("{}; talea list --dbus lists all", fixes.join("; ")),
    )
}

fn realtimekit(name: &Name) -> Check {
    match name {
        Name::NotAsked => Check::ok(
            REALTIMEKIT,
            "talea-rtkit is not installed",
            "programs that ask over D-Bus do not reach Talea",
        ),
        Name::Unreadable(why) => Check::warn(
            REALTIMEKIT,
            why.clone(),
            "programs cannot read their limits over D-Bus",
            "systemctl status dbus talea-rtkit",
        ),
        Name::NoOwner => Check::warn(
            REALTIMEKIT,
            "no program has the name org.freedesktop.RealtimeKit1",
            "programs that ask over D-Bus stay ordinary",
            "systemctl enable --now talea-rtkit",
        ),
        Name::Publishes(values) => Check::ok(
            REALTIMEKIT,
            shown(values),
            "the limits of programs that ask over D-Bus, beside their rules",
        ),
    }
}

/// Compares the portal's values with those of the system's name.
fn portal(published: &Published) -> Check {
    const FIX: &str = "systemctl --user restart xdg-desktop-portal";
    let values = match &published.portal {
        Name::NotAsked => {
            return Check::ok(PORTAL, "not asked", "without talea-rtkit its values do not matter");
        }
        Name::Unreadable(why) => {
            return Check::ok(
                PORTAL,
                why.clone(),
                "only the user of a desktop session can read what its portal publishes",
            );
        }
        Name::NoOwner => {
            return Check::ok(PORTAL, "no portal in this session", "no program asks through one");
        }
        Name::Publishes(values) => values,
    };
    if values.get(TIME_LIMIT).is_none_or(|&limit| limit <= 0) {
        return Check::fail(
            PORTAL,
            shown(values),
            "sandboxed programs set RLIMIT_RTTIME to 0, and the kernel kills them when they become \
             real-time: the portal has started before the name (xdg-desktop-portal issue 2110)",
            FIX,
        );
    }
    match &published.realtimekit {
        Name::Publishes(own) if own != values => Check::warn(
            PORTAL,
            format!("{}; talea-rtkit: {}", shown(values), shown(own)),
            "sandboxed programs ask by values of an earlier start, and may be refused",
            FIX,
        ),
        _ => Check::ok(PORTAL, shown(values), "the values of the system's name"),
    }
}

fn shown(values: &BTreeMap<String, i64>) -> String {
    values.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}
