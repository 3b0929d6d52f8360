//! The driver of the fake world, and the rules that hold at each of its steps.
//!
//! Twin of the daemon's loop: the same effects are obeyed by the same rules, only later. Live twins
//! of the faults are named beside them in [`Faults`].

use super::dice::Dice;
use super::kernel::{Kernel, Took};
use crate::Broker;
use crate::input::{
    Effect, Errno, ForeignAnswer, ForeignQuestion, Groups, Input, LogEvent, Machine, Peer,
    ProcessId, SessionId, ThreadError, ThreadFacts, ThreadId, Ticket,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use talea_core::setup::Setup;
use talea_core::{Attr, Span, Time};
use talea_proto::message::But;
use talea_proto::record::Record;
use talea_proto::{Reply, Request, VERSION};

/// What may go wrong, in thousandths of the occasions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The kernel refuses an apply after half of it.
    /// live twin: a thread in a cgroup without real-time runtime; a full root domain.
    pub apply: u64,
    /// The kernel refuses to put a thread back.
    /// live twin: previous CPUs taken offline; CAP_SYS_NICE dropped.
    pub restore: u64,
    /// A foreign plugin does not answer in time.
    /// live twin: the C plugin that sleeps.
    pub silence: u64,
    /// A foreign plugin answers outside its bounds.
    /// live twin: the C plugin that lies.
    pub lies: u64,
    /// A foreign plugin's host ends while it is asked.
    /// live twin: the C plugin that crashes.
    pub crashes: u64,
}

/// How a request names a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// By id, or by pidfd: the driver opens a handle either way.
    Thread(u32),
    /// With something that the driver cannot resolve.
    Bad(ThreadError),
}

/// A client's end of a connection.
#[derive(Debug)]
pub struct Line {
    /// Who is there.
    pub process: ProcessId,
    /// Its user.
    pub uid: u32,
    /// Sent and not answered.
    pub outstanding: BTreeMap<u32, Request>,
    /// Sent and not read.
    socket: VecDeque<(u32, Option<Request>, Option<Target>)>,
    /// Whether the driver reads.
    pub armed: bool,
    /// Received and not looked at.
    pub replies: VecDeque<(u32, Request, Reply)>,
    next_seq: u32,
}

/// Everything around one broker.
pub struct World {
    /// What time it is.
    pub now: Time,
    /// The machine under test.
    pub broker: Broker,
    /// Everything below it.
    pub kernel: Kernel,
    /// The connections that are open.
    pub lines: BTreeMap<SessionId, Line>,
    /// The state file.
    pub file: BTreeMap<u32, Record>,
    /// What was logged.
    pub log: Vec<LogEvent>,
    /// What may go wrong.
    pub faults: Faults,
    /// Errors that the kernel gives next, before any by chance.
    pub next_errors: VecDeque<Errno>,
    /// Where chance comes from.
    pub dice: Dice,
    /// Questions to foreign plugins, with the time at which the driver gives up.
    pub questions: BTreeMap<Ticket, (u32, ForeignQuestion, Time)>,
    /// Whether the daemon was told to end.
    pub exited: bool,
    /// Orders that the kernel has refused by its own mind, not by a fault.
    pub refused_by_kernel: Vec<(Time, Attr, Errno)>,
    setup: Setup,
    machine: Machine,
    effects: VecDeque<Effect>,
    inbox: VecDeque<Input>,
    /// Plugins whose hosts were ended.
    pub ended_hosts: BTreeSet<u32>,
    watched: BTreeSet<ThreadId>,
    watched_processes: BTreeSet<ProcessId>,
    next_session: u64,
    /// Of the processes that have ever connected.
    groups: BTreeMap<u32, Groups>,
}

impl World {
    /// A calm world with nobody in it.
    pub fn new(setup: Setup, machine: Machine, pinned: bool, dice: Dice) -> World {
        let mut broker =
            Broker::new(setup.clone(), machine.clone()).expect("the setup works on this machine");
        broker.introduce(1, 1);
        World {
            now: Time::from_ns(1_000_000),
            broker,
            kernel: Kernel::new(&machine, pinned),
            lines: BTreeMap::new(),
            file: BTreeMap::new(),
            log: Vec::new(),
            faults: Faults::default(),
            next_errors: VecDeque::new(),
            dice,
            questions: BTreeMap::new(),
            exited: false,
            refused_by_kernel: Vec::new(),
            setup,
            machine,
            effects: VecDeque::new(),
            inbox: VecDeque::new(),
            ended_hosts: BTreeSet::new(),
            watched: BTreeSet::new(),
            watched_processes: BTreeSet::new(),
            next_session: 1,
            groups: BTreeMap::new(),
        }
    }

    /// Gives the broker one input.
    pub fn tell(&mut self, input: Input) {
        self.broker.handle(self.now, input);
        while let Some(effect) = self.broker.poll_effect() {
            self.effects.push_back(effect);
        }
        self.broker.audit();
    }

    /// A connection of a process; nothing has been said on it.
    pub fn dial(&mut self, pid: u32, gid: u32, groups: &[u32]) -> SessionId {
        let (start, uid) = self.kernel.processes[&pid];
        let session = SessionId(self.next_session);
        self.next_session += 1;
        let line = Line {
            process: ProcessId { pid, start },
            uid,
            outstanding: BTreeMap::new(),
            socket: VecDeque::new(),
            armed: true,
            replies: VecDeque::new(),
            next_seq: 1,
        };
        self.lines.insert(session, line);
        let peer = Peer { pid, pid_start: start, uid, gid, groups: groups.to_vec() };
        self.groups.insert(pid, Groups { effective: gid, supplementary: groups.to_vec() });
        self.tell(Input::Connected { session, peer });
        session
    }

    /// A connection of a new process of `uid`, with hello said and answered.
    pub fn connect(&mut self, uid: u32) -> SessionId {
        let pid = self.kernel.free_id(100);
        self.kernel.spawn(pid, uid);
        let session = self.dial(pid, uid, &[]);
        let welcome = self.call(session, Request::Hello { min: VERSION, max: VERSION });
        assert!(matches!(welcome, Reply::Welcome { .. }), "{welcome:?}");
        session
    }

    /// The main thread of a connection's process.
    pub fn tid_of(&self, session: SessionId) -> u32 {
        self.lines[&session].process.pid
    }

    /// What a thread is now.
    pub fn attr_of(&self, tid: u32) -> Attr {
        self.kernel.threads[&tid].attr
    }

    /// Puts a request into a connection's socket.
    pub fn send(&mut self, session: SessionId, request: Request, target: Option<Target>) -> u32 {
        let line = self.lines.get_mut(&session).expect("the connection is open");
        let seq = line.next_seq;
        line.next_seq += 1;
        line.outstanding.insert(seq, request.clone());
        line.socket.push_back((seq, Some(request), target));
        seq
    }

    /// Puts nonsense into a connection's socket. What is expected back is a refusal.
    pub fn send_nonsense(&mut self, session: SessionId) {
        let line = self.lines.get_mut(&session).expect("the connection is open");
        let seq = line.next_seq;
        line.next_seq += 1;
        line.outstanding.insert(seq, Request::Status);
        line.socket.push_back((seq, None, None));
    }

    /// Asks and waits until the world is quiet.
    pub fn call(&mut self, session: SessionId, request: Request) -> Reply {
        self.call_about(session, request, None)
    }

    /// Asks about a thread and waits until the world is quiet.
    pub fn call_about(
        &mut self,
        session: SessionId,
        request: Request,
        target: Option<Target>,
    ) -> Reply {
        let seq = self.send(session, request, target);
        self.settle();
        let line = self.lines.get_mut(&session);
        let line = line.unwrap_or_else(|| panic!("{session:?} was closed without an answer"));
        let at = line.replies.iter().position(|(answered, ..)| *answered == seq);
        line.replies.remove(at.expect("every request is answered")).expect("it was just found").2
    }

    /// The client hangs up.
    pub fn hang_up(&mut self, session: SessionId) {
        if self.lines.remove(&session).is_some() {
            self.inbox.push_back(Input::Hungup { session });
        }
    }

    /// The driver reads one request of this connection, if it may and there is one.
    pub fn read_one(&mut self, session: SessionId) -> bool {
        let Some(line) = self.lines.get_mut(&session).filter(|line| line.armed) else {
            return false;
        };
        let Some((seq, request, target)) = line.socket.pop_front() else { return false };
        let Some(request) = request else {
            let refusal = *crate::refuse::refusal(
                talea_proto::Code::Malformed,
                talea_proto::Field::Message,
                0,
                0,
            );
            self.tell(Input::Garbled { session, seq, refusal });
            return true;
        };
        if let Request::Change { spec, .. } = request
            && let Some(thread) = self.broker.thread_of(spec)
            && let Some(euid) = self.kernel.euid_of(thread)
        {
            self.tell(Input::Became { thread, euid });
        }
        let thread = target.map(|target| match target {
            Target::Thread(tid) => self.kernel.open(tid).ok_or(ThreadError::Gone),
            Target::Bad(why) => Err(why),
        });
        let entropy = u128::from(self.dice.word()) << 64 | u128::from(self.dice.word()) | 1;
        self.tell(Input::Asked { session, seq, request, thread, entropy });
        true
    }

    /// The driver obeys the next effect.
    pub fn obey_one(&mut self) -> bool {
        let Some(effect) = self.effects.pop_front() else { return false };
        match effect {
            Effect::Reply { session, seq, reply } => self.deliver(session, seq, reply),
            Effect::Close { session } => {
                self.lines.remove(&session);
            }
            Effect::Disarm { session } => self.arm(session, false),
            Effect::Arm { session } => self.arm(session, true),
            Effect::Apply { ticket, thread, attr } => self.apply(ticket, thread, &attr),
            Effect::Restore { ticket, thread, attr } => {
                let fault = self.fault(self.faults.restore);
                let result = self.kernel.put_back(thread, &attr, self.now, fault);
                let wider = result.is_ok() && self.dice.chance(self.faults.restore / 4);
                self.inbox.push_back(if wider {
                    // None of its own CPUs is left.
                    let all = Attr { cpus: self.machine.cpus, ..attr };
                    let done = self.kernel.put_back(thread, &all, self.now, None);
                    assert_eq!(done, Ok(()), "what is put back can be put back wider");
                    Input::DoneBut { ticket, but: But::Wider }
                } else {
                    Input::Done { ticket, result }
                });
            }
            Effect::Watch { thread } => {
                assert!(self.watched.insert(thread), "{thread:?} is watched twice");
            }
            Effect::Forget { thread } => {
                self.watched.remove(&thread);
                self.kernel.close(thread);
            }
            Effect::WatchProcess { process } => {
                assert!(self.watched_processes.insert(process), "{process:?} is watched twice");
            }
            Effect::ForgetProcess { process } => {
                // Its end may have been noticed while this was under way.
                self.watched_processes.remove(&process);
            }
            Effect::Remember { slot } => {
                match self.broker.record(slot) {
                    Some(record) => self.file.insert(slot, record),
                    None => self.file.remove(&slot),
                };
            }
            Effect::Erase { slot } => {
                // The slot may have a new spec already; its own Remember follows.
                self.file.remove(&slot);
            }
            Effect::Ask { ticket, plugin, question, timeout } => {
                let busy = self.questions.values().any(|(asked, ..)| *asked == plugin);
                assert!(!busy, "plugin {plugin} is asked two things at a time");
                let until = self.now.saturating_add(timeout);
                self.questions.insert(ticket, (plugin, *question, until));
            }
            Effect::EndHost { plugin } => {
                assert!(
                    self.ended_hosts.insert(plugin),
                    "the host of plugin {plugin} is ended twice"
                );
                self.questions.retain(|_, (asked, ..)| *asked != plugin);
            }
            Effect::Exit => self.exited = true,
            Effect::Log(event) => self.log.push(event),
        }
        true
    }

    fn deliver(&mut self, session: SessionId, seq: u32, reply: Reply) {
        if let Some(line) = self.lines.get_mut(&session) {
            let request = line.outstanding.remove(&seq);
            let request =
                request.unwrap_or_else(|| panic!("{session:?} {seq} is answered twice: {reply:?}"));
            line.replies.push_back((seq, request, reply));
        }
    }

    fn arm(&mut self, session: SessionId, armed: bool) {
        if let Some(line) = self.lines.get_mut(&session) {
            assert_ne!(line.armed, armed, "{session:?} is armed or disarmed twice");
            line.armed = armed;
        }
    }

    fn fault(&mut self, permille: u64) -> Option<Errno> {
        if let Some(errno) = self.next_errors.pop_front() {
            return Some(errno).filter(|errno| errno.0 != 0);
        }
        self.dice.chance(permille).then(|| self.dice.pick(&[Errno(1), Errno(16)]))
    }

    fn apply(&mut self, ticket: Ticket, thread: ThreadId, attr: &Attr) {
        if let Some((tid, start)) =
            self.kernel.behind(thread).map(|(tid, found)| (tid, found.start))
        {
            let recorded = self.file.values().filter_map(|record| record.thread);
            let known =
                recorded.filter(|recorded| (recorded.tid, recorded.start) == (tid, start)).count();
            assert_eq!(
                known, 1,
                "thread {tid} becomes real-time and the state file knows it {known} times"
            );
        }
        let fault = self.fault(self.faults.apply);
        let result = match self.kernel.set(thread, attr, self.now, fault) {
            Ok(Took::Asleep) => {
                return self.inbox.push_back(Input::DoneBut { ticket, but: But::Asleep });
            }
            Ok(Took::NotBefore(at)) => {
                return self.inbox.push_back(Input::NotBefore { ticket, at });
            }
            Ok(Took::Done) => Ok(()),
            Err(errno) => Err(errno),
        };
        if let (None, Err(errno)) = (fault, result) {
            // A spec whose thread has just ended keeps its place in the books, and the kernel has
            // not let go of the old thread's share: the next thread may be too early.
            if errno.0 != 3 && !self.kernel.is_lingering(&attr.cpus, self.now) {
                self.refused_by_kernel.push((self.now, *attr, errno));
            }
        }
        self.inbox.push_back(Input::Done { ticket, result });
    }

    /// The broker hears the next thing that has happened in the meantime.
    pub fn hear_one(&mut self) -> bool {
        let Some(input) = self.inbox.pop_front() else { return false };
        self.tell(input);
        true
    }

    /// Tells the broker of one watched thread or process that has ended.
    pub fn notice_one(&mut self) -> bool {
        let dead =
            self.watched.iter().copied().find(|&handle| self.kernel.behind(handle).is_none());
        if let Some(thread) = dead {
            self.watched.remove(&thread);
            self.tell(Input::ThreadGone { thread });
            return true;
        }
        let dead =
            self.watched_processes.iter().copied().find(|&process| !self.kernel.lives(process));
        if let Some(process) = dead {
            self.watched_processes.remove(&process);
            self.tell(Input::ProcessGone { process });
            return true;
        }
        false
    }

    /// A foreign plugin answers as `answer` says; `None` is its time-out.
    pub fn answer_one(
        &mut self,
        answer: impl Fn(&ForeignQuestion) -> Option<ForeignAnswer>,
    ) -> bool {
        let Some((&ticket, (_, question, _))) = self.questions.iter().next() else { return false };
        let answer = answer(question);
        self.questions.remove(&ticket);
        self.tell(Input::Answered { ticket, answer });
        true
    }

    /// A foreign plugin's host ends.
    pub fn plugin_down(&mut self, plugin: u32) {
        self.questions.retain(|_, (asked, ..)| *asked != plugin);
        self.tell(Input::PluginDown { plugin });
    }

    /// Runs everything but time and foreign plugins until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let sessions: Vec<SessionId> = self.lines.keys().copied().collect();
            let worked = self.obey_one() || self.hear_one() || self.notice_one() || {
                let due = self.broker.next_wakeup().is_some_and(|at| at <= self.now);
                if due {
                    self.tell(Input::Timer);
                }
                due || sessions.into_iter().any(|session| self.read_one(session))
            };
            if !worked {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    /// Time passes; the timer comes late or not at all, as the driver's does.
    pub fn advance(&mut self, span: Span) {
        self.now = self.now.saturating_add(span);
        let late: Vec<Ticket> = self
            .questions
            .iter()
            .filter(|(_, (_, _, until))| *until <= self.now)
            .map(|(&t, _)| t)
            .collect();
        for ticket in late {
            self.questions.remove(&ticket);
            self.tell(Input::Answered { ticket, answer: None });
        }
        if self.broker.next_wakeup().is_some_and(|at| at <= self.now) {
            self.tell(Input::Timer);
        }
    }

    /// [`Broker::leftovers`] as somebody finds them who asks now: what is due is given back by the
    /// asking.
    pub fn leftovers(&mut self) -> Vec<String> {
        self.tell(Input::Timer);
        self.settle();
        self.broker.leftovers()
    }

    /// The daemon dies here and now, and another one starts with what the state file says.
    /// live twin: SIGKILL to talead under load.
    pub fn restart(&mut self) {
        self.restart_with(self.setup.clone());
    }

    /// The same, and the administrator has changed the file meanwhile.
    pub fn restart_with(&mut self, setup: Setup) {
        self.setup = setup;
        self.effects.clear();
        self.inbox.clear();
        self.ended_hosts.clear();
        self.watched.clear();
        self.watched_processes.clear();
        self.questions.clear();
        self.lines.clear();
        self.kernel.close_all();
        self.exited = false;
        let broker = Broker::new(self.setup.clone(), self.machine.clone());
        self.broker = broker.expect("the setup works on this machine");
        self.broker.introduce(2, 1);
        for (slot, record) in self.file.clone() {
            let found = record.thread.and_then(|thread| self.kernel.open(thread.tid));
            let same = |facts: &ThreadFacts| {
                record.thread.is_some_and(|thread| thread.start == facts.start)
            };
            let thread = match found {
                Some(facts) if !same(&facts) => {
                    self.kernel.close(facts.thread);
                    None
                }
                other => other,
            };
            let process = ProcessId { pid: record.pid, start: record.pid_start };
            let process_alive = self.kernel.lives(process);
            let witness =
                thread.as_ref().filter(|facts| facts.euid == record.uid).map(|facts| facts.tgid);
            let witness = if process_alive { Some(record.pid) } else { witness };
            let groups = witness.and_then(|pid| self.groups.get(&pid).cloned());
            self.tell(Input::Adopt {
                slot,
                record: Box::new(record),
                thread,
                process_alive,
                groups,
            });
        }
        self.tell(Input::Timer);
    }

    /// The administrator's file was read again.
    /// live twin: SIGHUP to talead.
    pub fn reload(&mut self, setup: Setup) {
        self.setup = setup.clone();
        self.tell(Input::Reloaded { setup: Box::new(setup) });
    }

    /// What the broker was told to be.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// How many effects and inputs are under way.
    pub fn in_flight(&self) -> usize {
        self.effects.len() + self.inbox.len()
    }

    /// What must hold whenever nothing is under way.
    ///
    /// With `lenient`, putting threads back may have failed on purpose: then a thread only must not
    /// be more than it was.
    pub fn check_quiet(&self, lenient: bool) {
        assert_eq!(self.in_flight(), 0, "not quiet");
        self.broker.audit_aggregates();
        for slot in self.broker.confirmed() {
            let (record, wanted) = (self.broker.record(slot), self.broker.should_be(slot));
            let Some((record, wanted)) = record.zip(wanted) else { continue };
            assert_eq!(
                self.file.get(&slot),
                Some(&record),
                "the state file is behind in slot {slot}"
            );
            if let Some(thread) = record.thread {
                let found = &self.kernel.threads[&thread.tid];
                assert_eq!(
                    found.start, thread.start,
                    "a stranger has the id of an attached thread"
                );
                assert_eq!(
                    found.attr, wanted,
                    "books and kernel differ about thread {}",
                    thread.tid
                );
            }
        }
        let attached: BTreeSet<(u32, u64)> = self
            .file
            .values()
            .filter_map(|record| record.thread)
            .map(|t| (t.tid, t.start))
            .collect();
        for (tid, thread) in &self.kernel.threads {
            if !attached.contains(&(*tid, thread.start)) {
                let (is, was) = (thread.attr, thread.own);
                if lenient {
                    let harmless = is.policy == was.policy || !is.policy.is_real_time();
                    assert!(harmless, "thread {tid} has kept its grant: {is:?}");
                } else {
                    assert_eq!(is, was, "thread {tid} is not what it was before its grant");
                }
            }
        }
        if self.questions.is_empty() {
            assert_eq!(self.kernel.open_handles(), self.broker.attached() as usize, "handles leak");
        }
        for (session, line) in &self.lines {
            if line.armed && self.questions.is_empty() {
                assert!(
                    line.outstanding.is_empty(),
                    "{session:?} waits for {:?}",
                    line.outstanding
                );
            }
        }
    }
}
