//! Current state of a grant's thread in the kernel, beside the granted one.

use crate::grant_text;
use crate::kernel::ThreadState;
use talea_proto::SpecInfo;
use talea_proto::message::Notes;

/// Returns the current policy of the spec's thread, with a remark if it or the affinity is not the
/// granted one, or the reason why the daemon has detached the thread.
pub(super) fn kernel_column(spec: &SpecInfo) -> String {
    let text = match (kernel(spec), &spec.attr) {
        (Some(now), Some(_)) if spec.overruns.is_throttled => {
            format!("{} (throttled)", grant_text::policy(&now.policy))
        }
        (Some(now), Some(given)) => {
            let policy = grant_text::policy(&now.policy);
            match now.other_cpus(given) {
                _ if now.policy != given.policy => {
                    format!("{policy} (not held: granted {})", grant_text::attr(given))
                }
                Some(cpus) => format!("{policy} (not held: {})", grant_text::cpus(&cpus)),
                None => policy,
            }
        }
        // The thread sleeps in another root domain: see grant_text::caveat.
        (Some(now), None) => {
            format!("{} (not held: until it wakes)", grant_text::policy(&now.policy))
        }
        (None, _) if spec.tid.is_some() => "?".to_owned(),
        (None, _) => spec.detached.map_or("-", grant_text::detached).to_owned(),
    };
    let is_unlimited = spec.granted.notes.contains(Notes::UNLIMITED) && spec.tid.is_some();
    let text = if is_unlimited { format!("{text}, unlimited") } else { text };
    match spec.overruns.count {
        0 => text,
        1 => format!("{text}, 1 overrun"),
        count => format!("{text}, {count} overruns"),
    }
}

/// Returns the current state of the spec's thread; `None` without a thread, or if it is not
/// readable.
pub(super) fn kernel(spec: &SpecInfo) -> Option<ThreadState> {
    ThreadState::of(spec.tid?)
}
