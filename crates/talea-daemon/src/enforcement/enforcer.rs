//! The enforcer of one CPU.
//!
//! The enforcer runs on the CPU of its threads: there, a thread that it interrupts is not running,
//! so its records are complete and its policy changes within microseconds.

use super::limited_thread::{LimitedThread, Next};
use crate::event_queue::{EventQueue, clear, event, notify};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use talea_broker::ThreadId;
use talea_core::{CpuSet, Monotonic};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::pi_mutex::PiMutex;
use talea_os::{Tid, clock, sched};

/// `SCHED_FIFO` priority of the enforcers: the highest one. Threads of equal priority (of a band
/// with priority 99, or the executor's dispatchers) run in order of arrival.
const PRIORITY: u8 = 99;
/// Token of the event that ends the sleep; threads count from 1.
const KICK: u64 = 0;
const MAX_EVENTS: usize = 64;

/// The enforcer of one CPU; dropping it ends its thread.
#[derive(Debug)]
pub(super) struct Enforcer {
    shared: Arc<Shared>,
    tid: Tid,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    cpu: u32,
    epoll: Epoll,
    kick: OwnedFd,
    members: PiMutex<Members>,
    is_ending: AtomicBool,
    demoted: Arc<EventQueue<ThreadId>>,
}

/// Threads of the CPU, and the times of their refills.
#[derive(Debug, Default)]
struct Members {
    threads: BTreeMap<ThreadId, Arc<LimitedThread>>,
    refills: BTreeSet<(Monotonic, ThreadId)>,
}

impl Enforcer {
    /// Starts the enforcer of `cpu`; [`Enforcer::pin`] then moves it there.
    pub(super) fn start(cpu: u32, demoted: Arc<EventQueue<ThreadId>>) -> io::Result<Enforcer> {
        let kick = event()?;
        let epoll = Epoll::new()?;
        epoll.add(&kick, Interest::READ, KICK)?;
        let shared = Arc::new(Shared {
            cpu,
            epoll,
            kick,
            members: PiMutex::new(Members::default()),
            is_ending: AtomicBool::new(false),
            demoted,
        });
        let (ready, started) = channel();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("talea-limit/{cpu}"))
            .spawn(move || run(&of_thread, &ready))?;
        match started.recv() {
            Ok(result) => result.map(|tid| Enforcer { shared, tid, thread: Some(thread) }),
            Err(_) => Err(io::Error::other("the enforcer has ended")),
        }
    }

    /// Starts to enforce the limit on `cpu`, which is the enforcer's CPU.
    pub(super) fn add(&self, limited: &Arc<LimitedThread>, cpu: u32) -> io::Result<()> {
        let id = limited.id();
        self.shared.members.lock().threads.insert(id, limited.clone());
        let mut state = limited.lock();
        if state.cpu() != Some(cpu)
            && let Some(clock) = state.clock()
        {
            self.shared.epoll.add(clock, Interest::READ, id.0)?;
        }
        state.set_cpu(Some(cpu));
        Ok(())
    }

    /// Pins the thread of the enforcer to its CPU.
    pub(super) fn pin(&self) -> io::Result<()> {
        sched::set_affinity(self.tid, &CpuSet::single(self.shared.cpu))
    }

    /// Calls [`LimitedThread::refill`] at `at`.
    pub(super) fn refill_at(&self, id: ThreadId, at: Monotonic) {
        self.shared.members.lock().refills.insert((at, id));
        notify(&self.shared.kick);
    }

    /// Ends the enforcement of the limit.
    pub(super) fn remove(&self, limited: &LimitedThread) {
        let id = limited.id();
        // First, so that no event of an ended clock finds no member.
        let mut state = limited.lock();
        if let Some(clock) = state.clock() {
            // It may have ended, and then be out of the set already.
            let _ = self.shared.epoll.remove(clock);
        }
        state.set_cpu(None);
        drop(state);
        let mut members = self.shared.members.lock();
        members.threads.remove(&id);
        members.refills.retain(|&(_, other)| other != id);
    }
}

impl Drop for Enforcer {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        notify(&self.shared.kick);
        if let Some(thread) = self.thread.take() {
            // A panic aborts the daemon.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, ready: &Sender<io::Result<Tid>>) {
    let me = Tid::current();
    let raised = sched::set(me, &sched::Attr::grant(sched::Policy::Fifo(PRIORITY)));
    let is_raised = raised.is_ok();
    if ready.send(raised.map(|()| me)).is_err() || !is_raised {
        return;
    }
    let mut events = Events::with_capacity(MAX_EVENTS);
    loop {
        let until = shared.members.lock().refills.first().map(|&(at, _)| at);
        // Neither descriptor nor buffer can be invalid.
        if shared.epoll.wait(&mut events, until).is_err()
            || shared.is_ending.load(Ordering::Acquire)
        {
            return;
        }
        shared.refill_due(clock::now());
        for event in events.iter() {
            match event.token {
                KICK => clear(&shared.kick),
                id => shared.clock_fired(ThreadId(id)),
            }
        }
    }
}

impl Shared {
    fn refill_due(&self, now: Monotonic) {
        loop {
            let mut members = self.members.lock();
            let Some(&due) = members.refills.first().filter(|(at, _)| *at <= now) else { return };
            members.refills.remove(&due);
            let (_, id) = due;
            let limited = members.threads.get(&id).cloned();
            drop(members);
            if let Some(limited) = limited {
                let next = limited.refill(self.cpu);
                self.act(&limited, next);
            }
        }
    }

    fn clock_fired(&self, id: ThreadId) {
        let limited = self.members.lock().threads.get(&id).cloned();
        if let Some(limited) = limited {
            let next = limited.clock_fired(self.cpu);
            self.act(&limited, next);
        }
    }

    fn act(&self, limited: &Arc<LimitedThread>, next: Next) {
        let id = limited.id();
        let mut members = self.members.lock();
        // The daemon may have replaced the limit, or moved it to another CPU, meanwhile.
        if !members.threads.get(&id).is_some_and(|member| Arc::ptr_eq(member, limited)) {
            return;
        }
        match next {
            Next::Wait => {}
            Next::RefillAt(at) => {
                members.refills.insert((at, id));
            }
            Next::Demoted => {
                members.threads.remove(&id);
                drop(members);
                self.demoted.push(id);
            }
            Next::End => {
                members.threads.remove(&id);
            }
        }
    }
}
