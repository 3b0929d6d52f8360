//! Calls over D-Bus: granted, refused, and what to change.
//!
//! Model: a front end acts for the calling program, so the audit trail names the program's user,
//! and the front end's user as `by`. Root sees the calls of all users, a user the own ones.

use super::check::Check;
use crate::broker_client::Options;
use crate::commands::log::{Entry, Reader, time_before};
use crate::user_names::UserNames;
use talea_core::mutate;
use talea_study::output::count;

/// Id of the check.
const FRONT_ENDS: &str = "front-ends";
/// Part of the trail that counts, in nanoseconds: a day.
const RECENT_NS: u64 = 86_400_000_000_000;

/// Calls that front ends have passed on in the last day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FrontEndCalls {
    /// Number of grants and nice values.
    pub(super) granted: usize,
    /// Number of refusals.
    pub(super) refused: usize,
    /// Last refusal.
    pub(super) last: Option<RefusedCall>,
}

/// Refusal of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedCall {
    /// Name of the reason.
    pub(super) code: String,
    /// Rule that refuses it, if one does.
    pub(super) rule: Option<String>,
    /// Record as text, with user, process, parameter, request and limit.
    pub(super) text: String,
}

impl FrontEndCalls {
    /// Reads the calls from the audit trail. No trail, or one that this user cannot read, has none.
    pub(super) fn read(options: &Options) -> FrontEndCalls {
        let directory = options.daemon_setup().unwrap_or_default().audit_directory;
        let found = Reader::new(directory.into()).read(&time_before(RECENT_NS));
        FrontEndCalls::of(&found.map(|found| found.entries).unwrap_or_default())
    }

    /// Counts the calls among records.
    pub(super) fn of(entries: &[Entry]) -> FrontEndCalls {
        let mut calls = FrontEndCalls::default();
        let mut users = UserNames::default();
        // Root acts for other users, too, and is no front end.
        for entry in entries.iter().filter(|entry| entry.by().is_some_and(|by| by != 0)) {
            match entry.event() {
                "attach" | "nice" => calls.granted += entry.count(),
                "refusal" => {
                    calls.refused += entry.count();
                    calls.last = Some(RefusedCall {
                        code: entry.word("code").unwrap_or_default().to_owned(),
                        rule: entry.word("rule").map(str::to_owned),
                        text: entry.text(&mut users),
                    });
                }
                _ => {}
            }
        }
        calls
    }
}

pub(super) fn check(calls: &FrontEndCalls) -> Check {
    let granted = format!("{} over D-Bus since yesterday", count(calls.granted, "grant"));
    let Some(last) = mutate!("doctor-front-ends", &calls.last, &None) else {
        return Check::ok(FRONT_ENDS, granted, "no call of a front end was refused");
    };
    Check::warn(
        FRONT_ENDS,
        format!("{granted}, {}; the last one: {}", count(calls.refused, "refusal"), last.text),
        "the threads of refused calls are ordinary ones until their program asks again",
        format!("{}; talea log --event refusal lists all", remedy(last)),
    )
}

/// Returns the change that lets the call be granted.
fn remedy(last: &RefusedCall) -> String {
    let rule = last.rule.as_deref().unwrap_or("the rules of this user");
    match last.code.as_str() {
        "not-allowed" => {
            "a [[rule]] for this user, with a plugin (edf) or min_nice, then systemctl reload talead"
                .to_owned()
        }
        "rule-bound" | "rule-omission" => format!(
            "a larger bound in {rule}, then systemctl reload talead; or a smaller --runtime-us of \
             talea-rtkit"
        ),
        "not-front-end" => {
            "front_ends = [\"talea-rtkit\"] in [daemon], then systemctl reload talead".to_owned()
        }
        "quota" => "a larger [daemon.quota], then systemctl reload talead".to_owned(),
        _ => "talea explain, as this user, shows every plugin's answer; talea list, who has the CPUs"
            .to_owned(),
    }
}
