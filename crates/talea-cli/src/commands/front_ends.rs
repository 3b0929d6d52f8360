//! Calls over D-Bus: granted, refused, and what to change.
//!
//! Model: a front end acts for the calling program, so the audit trail names the program's user,
//! and the front end's user as `by`. Root sees the calls of all users, a user the own ones.

use crate::broker_client::Options;
use crate::commands::log::{Entry, Reader, time_before};
use crate::user_names::UserNames;
use serde::Serialize;
use talea_os::thread::Identity;
use talea_os::{Thread, Tid};

/// Part of the trail that counts, in nanoseconds: a day.
const RECENT_NS: u64 = 86_400_000_000_000;

/// Calls that front ends have passed on in the last day.
#[derive(Clone, Debug, Default)]
pub(super) struct FrontEndCalls {
    /// Number of grants and nice values.
    pub(super) granted: usize,
    /// Refusals by user and limit; that of the last call is the last one.
    pub(super) refusals: Vec<RefusedCalls>,
    /// Last nice value of each thread.
    pub(super) nice_values: Vec<NiceValue>,
}

/// Nice value that a thread got on a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NiceValue {
    pub(super) uid: u32,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// Start time or inode: together with `tid` they identify the thread.
    #[serde(skip)]
    id: [u64; 2],
    /// Nice value that the call asked for and got: no rule changes one.
    pub(super) nice: i8,
}

/// Refusals of one user by one limit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RefusedCalls {
    uid: Option<u32>,
    /// Number of calls.
    pub(super) count: usize,
    /// Name of the reason.
    code: String,
    /// Part of the request that is refused.
    field: Option<String>,
    /// Rule that refuses it, if one does.
    rule: Option<String>,
    /// Record of the last call as text, with user, process, parameter, request and limit.
    pub(super) text: String,
    /// Change that lets the call be granted.
    pub(super) fix: String,
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
                "attach" => calls.granted += entry.count(),
                "nice" => {
                    calls.granted += entry.count();
                    if let Some(new) = NiceValue::of(entry) {
                        let key = |of: &NiceValue| (of.tid, of.id);
                        calls.nice_values.retain(|old| key(old) != key(&new));
                        calls.nice_values.push(new);
                    }
                }
                "refusal" => calls.add(RefusedCalls::of(entry, &mut users)),
                _ => {}
            }
        }
        calls
    }

    /// Returns the number of refused calls.
    pub(super) fn refused(&self) -> usize {
        self.refusals.iter().map(|refusal| refusal.count).sum()
    }

    /// Adds a refusal; an earlier one of the same user by the same limit is replaced.
    fn add(&mut self, mut new: RefusedCalls) {
        let key = |of: &RefusedCalls| (of.uid, of.code.clone(), of.field.clone(), of.rule.clone());
        let same = self.refusals.iter().position(|old| key(old) == key(&new));
        new.count += same.map_or(0, |same| self.refusals.remove(same).count);
        self.refusals.push(new);
    }
}

impl NiceValue {
    fn of(entry: &Entry) -> Option<NiceValue> {
        let number = |key: &str| entry.integer(key).and_then(|value| u32::try_from(value).ok());
        let id = ["tid_start", "tid_inode"].map(|key| entry.integer(key).unwrap_or(0));
        Some(NiceValue {
            uid: entry.uid()?,
            pid: number("tgid")?,
            tid: number("tid")?,
            id: id.map(|value| u64::try_from(value).unwrap_or(0)),
            nice: entry.integer("nice").and_then(|nice| i8::try_from(nice).ok())?,
        })
    }

    /// Whether the thread still lives.
    pub(super) fn is_alive(&self) -> bool {
        let [start_ticks, inode] = self.id;
        let tid = i32::try_from(self.tid).ok().and_then(Tid::new);
        tid.is_some_and(|tid| Thread::reopen(&Identity { tid, inode, start_ticks }).is_ok())
    }
}

impl RefusedCalls {
    fn of(entry: &Entry, users: &mut UserNames) -> RefusedCalls {
        let word = |key: &str| entry.word(key).map(str::to_owned);
        let (code, field, rule) = (word("code").unwrap_or_default(), word("field"), word("rule"));
        RefusedCalls {
            uid: entry.uid(),
            count: entry.count(),
            fix: remedy(&code, field.as_deref(), rule.as_deref()),
            text: entry.text(users),
            code,
            field,
            rule,
        }
    }
}

/// Returns the change that lets a call be granted.
fn remedy(code: &str, field: Option<&str>, rule: Option<&str>) -> String {
    let rule = rule.unwrap_or("the rules of this user");
    match (code, field) {
        ("not-allowed", Some("nice")) => {
            "a [[rule]] with min_nice for this user, then systemctl reload talead".to_owned()
        }
        ("not-allowed", _) => {
            "a [[rule]] for this user, with a plugin (edf) or min_nice, then systemctl reload talead"
                .to_owned()
        }
        ("rule-bound" | "rule-omission", Some("utilization")) => format!(
            "a larger bound in {rule}, then systemctl reload talead; or a smaller --runtime-us of \
             talea-rtkit"
        ),
        ("rule-bound" | "rule-omission", _) => {
            format!("a larger bound in {rule}, then systemctl reload talead")
        }
        ("not-front-end", _) => {
            "front_ends = [\"talea-rtkit\"] in [daemon], then systemctl reload talead".to_owned()
        }
        ("quota", _) => "a larger [daemon.quota], then systemctl reload talead".to_owned(),
        ("foreign-thread", _) => {
            "none: a program asks for threads of its own user only, and not for set-user-id ones"
                .to_owned()
        }
        _ => "talea explain, as this user, shows every plugin's answer; talea list, who has the CPUs"
            .to_owned(),
    }
}
