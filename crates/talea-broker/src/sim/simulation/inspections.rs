//! Simulated inspections of attached threads, and checks of canaries.

use super::Simulation;
use crate::input::{Input, ThreadId};
use talea_core::CpuSet;

impl Simulation {
    /// Compares the attached threads with what was applied to them.
    pub(super) fn inspect(&mut self, threads: u32) {
        assert!(self.watched.len() <= threads as usize, "more than one inspection can do");
        for thread in self.watched.clone() {
            let Some((_, found)) = self.kernel.thread_of(thread) else { continue };
            let (uids, attr) = (found.uids, found.attr);
            self.inbox.push_back(Input::CredentialsChanged { thread, uids });
            if self.applied.get(&thread).is_some_and(|applied| *applied != attr) {
                self.inbox.push_back(Input::AttrChanged { thread, attr });
            }
        }
    }

    /// Reports a change of credentials, as the kernel does.
    pub fn report_credentials(&mut self, tid: u32) {
        let of_tid = |&&thread: &&ThreadId| {
            self.kernel.thread_of(thread).is_some_and(|(found, _)| found == tid)
        };
        if let Some(&thread) = self.watched.iter().find(of_tid)
            && let Some(uids) = self.kernel.uids_of(thread)
        {
            self.inbox.push_back(Input::CredentialsChanged { thread, uids });
        }
    }

    /// Reports the CPU time of a thread while a canary is silent.
    pub(super) fn sample_cpu_time(&mut self, thread: ThreadId) {
        if self.canaries.checked.intersection(&self.canaries.starved).is_empty() {
            return;
        }
        if let Some((tid, _)) = self.kernel.thread_of(thread)
            && let Some(&consumed) = self.canaries.consumed.get(&tid)
        {
            self.handle_input(Input::CpuTime { thread, consumed });
        }
    }

    /// Checks the canaries of `cpus`, as the driver does.
    pub(super) fn check_canaries(&mut self, cpus: CpuSet) {
        self.canaries.checked = cpus;
        let silent = cpus.intersection(&self.canaries.starved);
        let consumed = self.watched.iter().filter_map(|&thread| {
            let (tid, _) = self.kernel.thread_of(thread)?;
            Some((thread, *self.canaries.consumed.get(&tid)?))
        });
        let consumed = consumed.collect();
        self.inbox.push_back(Input::CanariesChecked { silent, consumed });
    }
}
