//! The machine: what it holds, how inputs reach it and effects leave it.
//!
//! Model: [`Broker::handle`] is told the time and one input; everything that follows from it at
//! once lies in the queue of effects when it returns. What the kernel or a foreign plugin must say
//! first comes back as an input of its own.
//!
//! Invariants, checked by the simulation after each step: a request of a living connection is
//! answered exactly once; an effect that makes a thread privileged is preceded by the effect that
//! records it; books follow what the kernel has confirmed, and until then hold what would be needed
//! either way.

use crate::clients::Clients;
use crate::decide::Job;
use crate::foreign::{Host, Word};
use crate::ids::Ids;
use crate::input::{Effect, Input, LogEvent, Machine, ProcessId, SessionId, ThreadId, Ticket};
use crate::later::Parked;
use crate::rules::Rules;
use crate::session::{Session, Waiting};
use crate::slab::Slab;
use crate::spec::Asker;
use crate::suite::{Slot, Suite};
use crate::threads::Move;
use crate::users::Users;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use talea_core::Time;
use talea_core::mutate;
use talea_core::setup::Setup;
use talea_proto::message::Name;
use talea_proto::record::Record;
use talea_proto::refusal::Answer;
use talea_proto::{Code, Field, Refusal, Reply, SpecId};

/// Sessions, specs, rules and plugins of one daemon.
pub struct Broker {
    pub(crate) setup: Setup,
    pub(crate) machine: Machine,
    pub(crate) suite: Suite,
    pub(crate) rules: Rules,
    /// The plugins' names, in order of precedence.
    pub(crate) names: Vec<Name>,
    /// The plugins' hosts; idle for those that are built in.
    pub(crate) hosts: Vec<Host>,

    pub(crate) instance: u64,
    pub(crate) pid: u32,
    pub(crate) started: Option<Time>,
    pub(crate) now: Time,
    effects: VecDeque<Effect>,
    orders: u32,

    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Connections that are open only to be told that they are too many.
    pub(crate) turned_away: u32,
    pub(crate) clients: Clients,
    pub(crate) users: Users,

    pub(crate) specs: Slab,
    pub(crate) ids: Ids,
    pub(crate) next_id: u64,
    /// Attached threads by handle.
    pub(crate) threads: BTreeMap<ThreadId, u32>,
    /// Attached threads by what names them for ever.
    pub(crate) identities: BTreeMap<(u32, u64), u32>,
    /// Attached threads by process.
    pub(crate) families: BTreeSet<(u32, u32)>,
    /// Watched processes and for whom.
    pub(crate) processes: BTreeSet<(ProcessId, Holder)>,
    pub(crate) timers: BTreeSet<(Time, Timer)>,

    /// Connections whose next waiting request can be served.
    pub(crate) ready: VecDeque<SessionId>,
    /// Specs whose changed parameters are with the kernel. While there is one, nobody else may
    /// book: the room that the old parameters held must still be there if the kernel refuses the
    /// new ones.
    pub(crate) changing: u32,
    /// What waits for [`Broker::changing`] to become zero.
    pub(crate) blocked: VecDeque<Blocked>,
    /// Changes that wait for their thread's debt.
    pub(crate) parked: BTreeMap<SessionId, Parked>,
    /// Specs whose thread the kernel does not let us put back, tried again by timer.
    pub(crate) stuck: u32,
    pub(crate) stopping: Option<Stopping>,
    /// Adopted specs whose thread has not been compared with the books.
    pub(crate) unsettled: Vec<u32>,

    pub(crate) counters: Counters,
    /// Reused from request to request.
    pub(crate) answers: Vec<Answer>,
    pub(crate) moved: Vec<Slot>,
    pub(crate) moves: Vec<Move>,
}

/// On whose behalf a process is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// A connection, which a child of the process must not keep alive.
    Session(SessionId),
    /// A spec.
    Spec(u32),
}

/// What a point in time is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection's debt is back inside the burst.
    Rearm(SessionId),
    /// An order that the kernel refused, or did not take yet, is given again.
    Retry(u32),
    /// A change that had to wait is decided anew.
    Again(SessionId),
}

/// What waits until nobody's change is with the kernel.
#[derive(Debug)]
pub(crate) enum Blocked {
    /// A request that would book.
    Request(SessionId, Box<Waiting>),
    /// A deliberation that a foreign plugin has just answered.
    Resume(Box<Job>, Word),
}

/// How the end was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    /// Who waits for the last thread to be put back; `None` once they have been answered.
    pub(crate) asker: Option<Asker>,
    /// Whether everything is given back first.
    pub(crate) release: bool,
}

/// What only people want to know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) attached: u32,
    pub(crate) adopted: u32,
}

impl Broker {
    /// A broker with nothing granted. The error says which plugin cannot work and why.
    pub fn new(setup: Setup, machine: Machine) -> Result<Broker, String> {
        let suite = Suite::new(&setup, &machine)?;
        let rules = Rules::compile(&setup);
        let plugins = 0..suite.len() as u32;
        Ok(Broker {
            names: plugins.clone().map(|plugin| suite.info(plugin).name).collect(),
            hosts: plugins.map(|_| Host::default()).collect(),
            setup,
            machine,
            suite,
            rules,
            instance: 0,
            pid: 0,
            started: None,
            now: Time::ZERO,
            effects: VecDeque::new(),
            orders: 0,
            sessions: BTreeMap::new(),
            turned_away: 0,
            clients: Clients::default(),
            users: Users::default(),
            specs: Slab::default(),
            ids: Ids::default(),
            next_id: 1,
            threads: BTreeMap::new(),
            identities: BTreeMap::new(),
            families: BTreeSet::new(),
            processes: BTreeSet::new(),
            timers: BTreeSet::new(),
            ready: VecDeque::new(),
            changing: 0,
            blocked: VecDeque::new(),
            parked: BTreeMap::new(),
            stuck: 0,
            stopping: None,
            unsettled: Vec::new(),
            counters: Counters::default(),
            answers: Vec::new(),
            moved: Vec::new(),
            moves: Vec::new(),
        })
    }

    /// What the daemon calls itself in welcomes and in its status.
    pub fn introduce(&mut self, instance: u64, pid: u32) {
        self.instance = instance;
        self.pid = pid;
    }

    /// Takes in what has happened. Times may repeat; an earlier one than before counts as the
    /// latest.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        self.started.get_or_insert(self.now);
        self.suite.expire(self.now);
        self.fire_timers();
        if !matches!(input, Input::Adopt { .. }) {
            self.settle_adopted();
        }
        match input {
            Input::Connected { session, peer } => self.connected(session, peer),
            Input::Asked { session, seq, request, thread, entropy } => {
                self.asked(session, Waiting { seq, request, thread, entropy });
            }
            Input::Garbled { session, seq, refusal } => {
                self.garbled(Asker { session, seq }, refusal)
            }
            Input::Hungup { session } => self.hung_up(session),
            Input::Became { thread, euid } => self.became(thread, euid),
            Input::ThreadGone { thread } => self.thread_gone(thread),
            Input::ProcessGone { process } => self.process_gone(process),
            Input::Done { ticket, result } => self.done(ticket, result),
            Input::DoneBut { ticket, but } => self.done_but(ticket, but),
            Input::NotBefore { ticket, at } => self.not_before(ticket, at),
            Input::Answered { ticket, answer } => self.answered(ticket, answer),
            Input::PluginDown { plugin } => self.plugin_out(plugin, "its host has ended"),
            Input::Reloaded { setup } => self.reloaded(*setup),
            Input::Adopt { slot, record, thread, process_alive, groups } => {
                self.adopt(slot, &record, thread, process_alive, groups);
            }
            Input::Timer => {}
        }
        self.serve_waiting();
        self.finish_stopping();
    }

    /// The next thing to be done, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Input::Timer`] is wanted, if nothing else happens before.
    ///
    /// Not for charges that linger until their zero-lag time: whatever asks for them comes as an
    /// input, and each input first gives back what is due. A timer for them would cost every wait
    /// of the driver's, and a wake-up for nobody.
    pub fn next_wakeup(&self) -> Option<Time> {
        if !self.unsettled.is_empty() {
            return Some(self.now);
        }
        self.timers.first().map(|&(at, _)| at)
    }

    /// The thread under a spec. Before a request to change the spec the driver looks whose it is
    /// now ([`Input::Became`]).
    pub fn thread_of(&self, spec: SpecId) -> Option<ThreadId> {
        let slot = self.ids.get(spec)?;
        self.specs.at(slot).thread.as_ref().map(|thread| thread.thread)
    }

    fn became(&mut self, thread: ThreadId, euid: u32) {
        if let Some(&slot) = self.threads.get(&thread)
            && let Some(attached) = self.specs.at_mut(slot).thread.as_mut()
        {
            attached.euid = euid;
        }
    }

    /// What the state file has to hold for `slot`; `None` clears it.
    pub fn record(&self, slot: u32) -> Option<Record> {
        self.specs
            .get(slot)
            .filter(|spec| spec.id.0 != 0)
            .map(|spec| spec.record(self.plugin_name(spec.plugin)))
    }

    /// The name of a plugin; empty for one that this daemon does not have.
    pub(crate) fn plugin_name(&self, plugin: u32) -> Name {
        self.names.get(plugin as usize).copied().unwrap_or_default()
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(crate) fn log(&mut self, event: LogEvent) {
        self.emit(Effect::Log(event));
    }

    /// A ticket that leads back to `place`: a slot, or a plugin.
    pub(crate) fn ticket(&mut self, place: u32) -> Ticket {
        self.orders = self.orders.wrapping_add(1);
        Ticket(u64::from(self.orders) << 32 | u64::from(place))
    }

    /// Answers a request, unless its connection is gone, and lets the next one of that connection
    /// come.
    pub(crate) fn reply(&mut self, asker: Asker, reply: Reply) {
        if let Some(session) = self.sessions.get_mut(&asker.session) {
            session.answered();
            if session.has_waiting() {
                self.ready.push_back(asker.session);
            }
            self.emit(Effect::Reply { session: asker.session, seq: asker.seq, reply });
            self.hold_back(asker.session);
        }
    }

    /// Says no, and says it to the log when it is the first of its cause on this connection.
    pub(crate) fn refuse(&mut self, asker: Asker, refusal: Box<Refusal>) {
        self.counters.refused += 1;
        self.log_refusal(asker.session, &refusal);
        self.reply(asker, Reply::Refused(refusal));
    }

    pub(crate) fn log_refusal(&mut self, session: SessionId, refusal: &Refusal) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        if session.first_of_its_cause(refusal.code, refusal.field) {
            let (uid, pid) = (session.uid, session.process.pid);
            if self.users.may_log(uid, self.now) {
                self.log(LogEvent::Refused { uid, pid, refusal: Box::new(refusal.clone()) });
            }
        }
    }

    /// Answers with success or with the refusal.
    pub(crate) fn conclude(&mut self, asker: Asker, result: Result<Reply, Box<Refusal>>) {
        match result {
            Ok(reply) => self.reply(asker, reply),
            Err(refusal) => self.refuse(asker, refusal),
        }
    }

    pub(crate) fn watch_process(&mut self, process: ProcessId, holder: Holder) {
        let known = self.watches(process);
        self.processes.insert((process, holder));
        if !known {
            self.emit(Effect::WatchProcess { process });
        }
    }

    pub(crate) fn unwatch_process(&mut self, process: ProcessId, holder: Holder) {
        if self.processes.remove(&(process, holder)) && !self.watches(process) {
            self.emit(Effect::ForgetProcess { process });
        }
    }

    fn watches(&self, process: ProcessId) -> bool {
        let least = (process, Holder::Session(SessionId(0)));
        self.processes.range(least..).next().is_some_and(|(found, _)| *found == process)
    }

    fn process_gone(&mut self, process: ProcessId) {
        let least = (process, Holder::Session(SessionId(0)));
        let of_it = self.processes.range(least..).take_while(|(found, _)| *found == process);
        let holders: Vec<Holder> = of_it.map(|&(_, holder)| holder).collect();
        for &holder in &holders {
            self.processes.remove(&(process, holder));
        }
        for holder in holders {
            match holder {
                // A child may still hold the socket; it is not whom we talked to (facts S12).
                Holder::Session(session) => self.close(session),
                Holder::Spec(slot) => {
                    // An earlier holder's end may have taken this one along.
                    if let Some(spec) =
                        self.specs.get_mut(slot).filter(|spec| spec.process == process)
                    {
                        spec.watched = false;
                        mutate!(
                            "life-process",
                            {
                                spec.process_gone = true;
                            },
                            {}
                        );

                        self.reconsider(slot);
                    }
                }
            }
        }
    }

    fn fire_timers(&mut self) {
        while let Some(&(at, timer)) = self.timers.first().filter(|(at, _)| *at <= self.now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Rearm(session) => self.rearm(session),
                Timer::Retry(slot) => self.retry(slot),
                Timer::Again(session) => self.ask_again(session),
            }
        }
    }

    fn finish_stopping(&mut self) {
        let all_tried = self.specs.len() <= self.stuck;
        if let Some(Stopping { asker: Some(asker), release: true }) = self.stopping
            && all_tried
        {
            self.stopping = Some(Stopping { asker: None, release: true });
            self.reply(asker, Reply::Done);
            self.emit(Effect::Exit);
        }
    }

    /// Root asks for the end. With `release`, every thread is put back first; the last one answers.
    pub(crate) fn stop(&mut self, asker: Asker, release: bool) {
        if mutate!("message-stop", self.sessions[&asker.session].uid != 0, false) {
            return self.refuse(asker, crate::refuse::plain(Code::NotRoot, Field::Request));
        }
        self.stopping = Some(Stopping { asker: release.then_some(asker), release });
        self.refuse_pending();
        self.refuse_parked();
        if !release {
            self.reply(asker, Reply::Done);
            self.emit(Effect::Exit);
            return;
        }
        let slots: Vec<u32> = self.specs.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if self.specs.get(slot).is_some() {
                self.reconsider(slot);
            }
        }
    }
}
