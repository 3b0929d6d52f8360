//! Placement within the restrictions of a thread.
//!
//! A thread has CPUs that its user, its cpuset or its container permits; a control group that may
//! permit no real-time policy; and a limit on its CPU time. A grant never overrides them: the
//! placement is inside, or the request is refused.
//!
//! The thread is known at create if the task names it ([`talea_proto::Task::thread`]), and at
//! attach in any case. If the placement of the spec does not suit the thread, the attach evaluates
//! the task again for this thread, as a change would, and then attaches.
//!
//! Mandatory CPUs of a task are a statement of the same user about the same thread. A task that
//! names its thread must not contradict the thread's mask. Without a name, the mandatory CPUs
//! replace the mask at the attach: an executor pins its threads itself. A cpuset cannot be left in
//! any case.
//!
//! A mask that covers [`crate::input::Platform::default_cpus`] restricts nothing: it is the mask of
//! a thread that no user has restricted. Isolated CPUs are outside of it, and a plugin may place
//! such a thread on them.

use crate::admission::{AdmissionRequest, RequestKind};
use crate::broker::Broker;
use crate::input::{ThreadError, ThreadFacts};
use crate::plugin::{Offer, ThreadScope};
use crate::plugin_set::SpecSlot;
use crate::refuse::{EINVAL, kernel_refusal, refusal_without_numbers};
use crate::spec::ReplyTo;
use talea_core::mutate;
use talea_core::{CpuSet, Policy};
use talea_proto::message::SpecId;
use talea_proto::refusal::{PluginAnswer, PluginText, PluginVerdict};
use talea_proto::{Code, Field, Refusal, Rejection, Task, ThreadRef};

impl Broker {
    /// Returns the restrictions of a thread.
    fn scope_of(&self, facts: &ThreadFacts) -> ThreadScope {
        let cpus = self.mask(self.original_attr(facts).cpus);
        ThreadScope { cpus, fifo: facts.fifo, rt_time: facts.rt_time, ..ThreadScope::default() }
    }

    /// Returns the CPUs that a mask permits; empty if it restricts nothing.
    fn mask(&self, cpus: CpuSet) -> CpuSet {
        if self.platform.default_cpus.is_subset(&cpus) { CpuSet::EMPTY } else { cpus }
    }

    /// Returns the restrictions of the thread that a task names; `None` if it names none or if the
    /// driver cannot find the thread. Then the attach decides.
    pub(crate) fn scope_of_request(
        &self,
        thread: Option<&Result<ThreadFacts, ThreadError>>,
    ) -> Option<ThreadScope> {
        thread?.as_ref().ok().map(|facts| self.scope_of(facts))
    }

    /// Returns the CPU restriction of the attached thread of a spec. A task with mandatory CPUs, or
    /// a spec without a thread, has no restriction.
    pub(crate) fn scope_of_spec(&self, slot: u32, task: &Task) -> ThreadScope {
        match &self.specs.at(slot).thread {
            Some(thread) if !task.cpus_mandatory => {
                ThreadScope { cpus: self.mask(thread.previous.cpus), ..ThreadScope::default() }
            }
            _ => ThreadScope::default(),
        }
    }

    /// Returns the refusal of an attach with an invalid argument: the kernel moves no thread out of
    /// its cpuset.
    #[expect(clippy::unnecessary_box_returns, reason = "refusals travel boxed")]
    pub(crate) fn invalid_argument(&self, slot: u32) -> Box<Refusal> {
        let spec = self.specs.at(slot);
        let mut refusal = kernel_refusal(EINVAL);
        if let Some(thread) = &spec.thread
            && thread.previous.cpus.intersection(&thread.applied.cpus).is_empty()
        {
            refusal = refusal_without_numbers(Code::NoPlugin, Field::Request);
            let no = Rejection::outside_mask(&thread.previous.cpus);
            let (plugin, name) = (spec.plugin, self.plugin_name(spec.plugin));
            refusal.answers = vec![PluginAnswer {
                plugin,
                name,
                verdict: PluginVerdict::No(no),
                text: PluginText::NONE,
            }];
        }
        refusal
    }

    /// Whether the thread may have the attributes of the spec.
    pub(crate) fn is_placed_for(&self, slot: u32, facts: &ThreadFacts) -> bool {
        let (attr, scope) = (self.plugin_set.attr(SpecSlot(slot)), self.scope_of(facts));
        let fifo = matches!(attr.policy, Policy::Fifo(_) | Policy::Rr(_));
        let runtime = self.specs.at(slot).task.params.runtime;
        let inside = (self.specs.at(slot).task.cpus_mandatory || scope.covers(&attr.cpus))
            && !self.is_offline(slot);
        mutate!(
            "broker-attach-mask",
            inside && (!fifo || scope.fifo && scope.has_time_for(runtime)),
            true
        )
    }

    /// Evaluates the task of a spec again, for the thread to be attached.
    pub(crate) fn replace_for(
        &mut self,
        reply_to: ReplyTo,
        slot: u32,
        named: ThreadRef,
        facts: ThreadFacts,
    ) {
        let spec = self.specs.at(slot);
        let (id, task, client) = (spec.id, spec.task, spec.client);
        let mut scope = self.scope_of(&facts);
        if task.cpus_mandatory {
            scope.cpus = CpuSet::EMPTY;
        }
        match self.start_evaluation(client, &task, &scope, Some((id, slot)), false) {
            Ok(evaluation) => {
                let kind = RequestKind::Replace { spec: id, named, facts: Box::new(facts) };
                self.run_admission(AdmissionRequest::new(reply_to, kind, evaluation), None);
            }
            Err(refusal) => {
                self.forget_unused(Some(Ok(facts)));
                self.refuse(reply_to, refusal);
            }
        }
    }

    /// Applies the new placement to the spec and attaches the thread.
    pub(crate) fn accept_replacement(
        &mut self,
        reply_to: ReplyTo,
        id: SpecId,
        named: ThreadRef,
        facts: ThreadFacts,
        plugin: u32,
        offer: &Offer,
    ) {
        // The request may have waited meanwhile.
        let slot = match self.check_attach(reply_to, id, named, Some(&Ok(facts))) {
            Ok((slot, _)) => slot,
            Err(refusal) => {
                self.forget_unused(Some(Ok(facts)));
                return self.refuse_attach(reply_to, named, refusal);
            }
        };
        let (task, old_plugin) = (self.specs.at(slot).task, self.specs.at(slot).plugin);
        let free_at = self.zero_lag(slot);
        self.set_terms(slot, &task, plugin, offer, free_at);
        self.apply_moves(&[]);
        if plugin != old_plugin {
            let uid = self.specs.at(slot).uid;
            self.notify_plugin(old_plugin, uid, crate::input::ForeignCall::Release { spec: id });
        }
        self.notify_scheduled(slot);
        self.attach_checked(reply_to, slot, &facts);
    }
}
