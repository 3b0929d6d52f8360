//! Admission: the choice of the plugin that serves a task.
//!
//! The broker chooses the first plugin in order of precedence that serves the task in full, or else
//! the first plugin that serves the task in part (ReTiF 3.3; R9). If the request names a plugin,
//! the broker asks only that plugin (R10).
//!
//! A foreign plugin answers later, and the broker serves other requests meanwhile. Therefore the
//! broker asks again, once, if an answer was given for an older state of the ledger. After a
//! suspension, the broker evaluates a kept partial offer again before it accepts the offer. The
//! broker checks the access rules at each evaluation.
//!
//! | state of a request | event | next state |
//! | --- | --- | --- |
//! | *querying* plugin `next` | the plugin is built in, or has answered | `next + 1`, or *chosen* |
//! | *querying* | a foreign plugin was not asked, or its answer is outdated | *suspended* |
//! | *suspended* | the host answers or fails | *querying* |
//! | *querying* | the plugin may serve the task when zero-lag holds end | *waiting* (waiting.rs) |
//! | *waiting* | a zero-lag hold has ended | *querying*, the same plugin |
//! | *querying* | all plugins were asked | *chosen* (partial offer) or *refused* |
//! | *chosen* | the offer is reserved | next task of a group, or *answered* |

mod evaluate;

use crate::exact_test::ExactTestBudget;
use crate::input::{ForeignAnswer, ThreadFacts};
use crate::plugin::{Offer, PluginRequest, RuntimeCap, ThreadScope};
use crate::rules::Denial;
use crate::spec::ReplyTo;
use talea_core::{CpuSet, Monotonic};
use talea_proto::message::Token;
use talea_proto::refusal::PluginAnswer;
use talea_proto::{Code, SpecId, Task, ThreadRef};

/// Request in admission.
#[derive(Debug)]
pub(crate) struct AdmissionRequest {
    pub(crate) reply_to: ReplyTo,
    pub(crate) kind: RequestKind,
    pub(crate) token: Token,
    pub(crate) evaluation: Evaluation,
    /// Exact tests left for all tasks of the request together.
    pub(crate) exact_tests: ExactTestBudget,
}

impl AdmissionRequest {
    /// Creates a request that creates no spec, and so needs no token.
    pub(crate) fn new(
        reply_to: ReplyTo,
        kind: RequestKind,
        evaluation: Evaluation,
    ) -> AdmissionRequest {
        let exact_tests = ExactTestBudget::default();
        AdmissionRequest { reply_to, kind, token: Token::NONE, evaluation, exact_tests }
    }
}

/// Use of the chosen offer.
#[derive(Debug)]
pub(crate) enum RequestKind {
    /// Create a spec.
    Create,
    /// Create several specs or none; `reserved[i]` is the slot of task `i`, as far as reserved.
    Group { tasks: Vec<Task>, reserved: Vec<u32> },
    /// Change the terms of a spec.
    Change { spec: SpecId },
    /// Change the placement of a spec for its first thread, then attach the thread (replace.rs).
    Replace { spec: SpecId, named: ThreadRef, facts: Box<ThreadFacts> },
    /// Explain the decision without effect.
    Explain,
}

/// Evaluation of one task by the plugins.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) task: Task,
    /// Restrictions of the thread that the task is meant for.
    pub(crate) scope: ThreadScope,
    /// Client whose rules apply, unless a spec is replaced.
    client: u32,
    /// Spec to be replaced by a change, with its slot at the start of the evaluation.
    leaving: Option<(SpecId, u32)>,
    /// Whether all plugins are asked, even after an acceptance.
    ask_all: bool,
    next: u32,
    end: u32,
    answers: Vec<PluginAnswer>,
    first_ok: Option<u32>,
    partial: Option<PartialOffer>,
    /// The most informative denial.
    denial: Option<Denial>,
    /// Whether an answer for an older state of the ledger counts: the plugin at `next` was asked
    /// twice, or its partial offer is evaluated again.
    asked_twice: bool,
    /// Whether the request was suspended or has waited, so that the state may have changed since
    /// the start of the evaluation.
    was_suspended: bool,
    /// Latest time until which the request may wait for zero-lag holds; `None` until a plugin has
    /// rejected it beside such a hold.
    pub(crate) wait_until: Option<Monotonic>,
}

#[derive(Clone, Copy, Debug)]
struct PartialOffer {
    plugin: u32,
    offer: Offer,
    /// Answer that contains the offer, if the plugin is foreign.
    answer: Option<ForeignAnswer>,
}

/// Returns `task` as a plugin request.
pub(crate) fn plugin_request<'a>(
    task: &'a Task,
    cap: RuntimeCap,
    thread: &ThreadScope,
) -> PluginRequest<'a> {
    let (allowed, preferred) =
        if task.cpus_mandatory { (task.cpus, CpuSet::EMPTY) } else { (CpuSet::EMPTY, task.cpus) };
    let ignore_admission = task.ignore_admission;
    PluginRequest {
        params: &task.params,
        allowed,
        preferred,
        ignore_admission,
        cap,
        exact_tests: None,
        thread: *thread,
    }
}

impl Evaluation {
    /// Whether a plugin has accepted the task in full.
    pub(crate) fn is_served(&self) -> bool {
        self.first_ok.is_some()
    }

    /// Keeps the most informative denial: a bound with its numbers before an omission before "no
    /// rule".
    fn note_denial(&mut self, denial: &Denial) {
        let rank = |denial: &Denial| match denial.code {
            Code::RuleBound => 2,
            Code::RuleOmission => 1,
            _ => 0,
        };
        if self.denial.as_ref().is_none_or(|kept| rank(kept) < rank(denial)) {
            self.denial = Some(*denial);
        }
    }

    /// Returns the spec to be replaced, for the call of a foreign plugin.
    pub(crate) fn leaving(&self) -> Option<SpecId> {
        self.leaving.map(|(spec, _)| spec)
    }

    /// Returns the slot of the spec to be replaced if the request was never suspended.
    pub(crate) fn unchanged_slot(&self) -> Option<u32> {
        self.leaving.filter(|_| !self.was_suspended).map(|(_, slot)| slot)
    }
}
