//! A crowd of clients, honest and otherwise, and everything that can happen to them.
//!
//! A run has two phases: trouble, then calm. In the calm no fault happens any more, and within a bounded number of
//! steps every request must be answered, books and kernel must agree, and when everybody has left every counter must be
//! back to zero.

use super::dice::Dice;
use super::world::{Faults, Target, World};
use crate::input::{ForeignAnswer, ForeignQuestion, LogEvent, Machine, SessionId, ThreadError};
use std::collections::{BTreeMap, BTreeSet};
use talea_core::setup::{
    Access, Band, Bound, Confine, Domain, EdfOptions, ForeignClass, ForeignOptions, FpOptions, PluginKind,
    PluginSetup, Quota, RmOptions, RmTest, Rule, Setup,
};
use talea_core::{Charge, CpuSet, Params, Policy, Priority, Span, Time, Work};
use talea_proto::message::{Name, SpecId, Token};
use talea_proto::{Code, Owner, Reply, Request, Task};

const MS: u64 = 1_000_000;
/// No period in a crowd is longer: how long the kernel's books may lag behind after a restart.
const LONGEST_PERIOD: Span = Span::from_ns(200 * MS);

/// A spec that a client was told it has.
#[derive(Clone, Copy, Debug)]
struct Held {
    session: SessionId,
    token: Token,
    owner: Owner,
}

/// How often what has happened in a run, by name: so that a simulation that no longer does anything is noticed.
pub type Tally = BTreeMap<&'static str, u32>;

/// A run.
pub struct Crowd {
    /// What it runs in.
    pub world: World,
    /// What has happened.
    pub tally: Tally,
    held: BTreeMap<SpecId, Held>,
    seen: BTreeSet<SpecId>,
    /// Somebody has asked for the end of these or has taken them over: what is true of them is unknown.
    meddled: BTreeSet<SpecId>,
    trouble: bool,
    lenient_until: Time,
    restore_faults: bool,
}

/// Runs a seed for so many steps.
///
/// # Panics
/// When a checker finds something; one line names the seed.
pub fn run_seed(seed: u64, steps: u32) -> Tally {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("reproduce with: TALEA_SEED={} cargo test -p talea-broker simulation", self.0);
            }
        }
    }
    let named = Named(seed);
    let mut crowd = Crowd::new(Dice::Seed(seed));
    for _ in 0..steps {
        crowd.step();
    }
    crowd.finish();
    drop(named);
    crowd.tally
}

/// Runs what a fuzzer's bytes say.
///
/// # Panics
/// When a checker finds something.
pub fn run_ops(bytes: &[u8]) {
    let mut crowd = Crowd::new(Dice::Bytes(bytes.to_vec(), 0));
    for _ in 0..2_000 {
        if crowd.world.dice.is_used_up() {
            break;
        }
        crowd.step();
    }
    crowd.finish();
}

fn band(low: u8, high: u8) -> Band {
    Band { low: Priority(low), high: Priority(high) }
}

/// A machine and a setup for it, and whether its kernel admits deadline threads CPU by CPU.
fn scene(dice: &mut Dice) -> (Setup, Machine, bool) {
    let machine = Machine::declared(1 + dice.below(4) as u32);
    let pinned = dice.chance(500);
    let mut plugins = Vec::new();
    let mut add = |name: &str, band, kind, cpus| {
        plugins.push(PluginSetup { name: name.to_owned(), cpus, band, kind });
    };
    let some = |dice: &mut Dice| {
        let cpus: CpuSet = machine.cpus.iter().filter(|_| dice.chance(700)).collect();
        if cpus.is_empty() { machine.cpus } else { cpus }
    };
    if dice.chance(800) {
        let confine = if pinned { Confine::Partition } else { Confine::Global };
        let cpus = if pinned { some(dice) } else { machine.cpus };
        add("edf", None, PluginKind::Edf(EdfOptions { threshold: None, confine }), cpus);
    }
    if dice.chance(800) {
        let test = dice.pick(&[RmTest::Necessary, RmTest::LiuLayland, RmTest::Hyperbolic]);
        let rm = RmOptions { test, refuse_sharing: dice.chance(300) };
        let low = 60 + dice.below(28) as u8;
        add("rm", Some(band(low, 89)), PluginKind::Rm(rm), some(dice));
    }
    if dice.chance(400) {
        let foreign = ForeignOptions {
            module: "/usr/lib/talea/ours.so".to_owned(),
            argument: String::new(),
            timeout: Span::from_ns(50 * MS),
            class: dice.pick(&[ForeignClass::Fifo, ForeignClass::Rr]),
        };
        add("ours", Some(band(40, 49)), PluginKind::Foreign(foreign), some(dice));
    }
    if dice.chance(700) {
        let refuse_sharing = dice.chance(300);
        add(
            "fp",
            Some(band(30, 31 + dice.below(8) as u8)),
            PluginKind::Fp(FpOptions { refuse_sharing }),
            some(dice),
        );
    }
    add("rr", Some(band(10, 15)), PluginKind::Rr(FpOptions::default()), some(dice));
    let mut setup = Setup { plugins, ..Setup::default() };
    set_rules(&mut setup, dice);
    (setup, machine, pinned)
}

/// Other rules and quotas; the plugins stay.
fn set_rules(setup: &mut Setup, dice: &mut Dice) {
    setup.access = dice.pick(&[Access::Off, Access::Off, Access::Rules]);
    let bounds = [
        Bound::MaxUtilization(Charge::ratio(1, 2)),
        Bound::MaxRuntime(Work::from_ns(20 * MS)),
        Bound::MinPeriod(Span::from_ns(5 * MS)),
        Bound::MaxPriority(Priority(50)),
        Bound::AllowUnbounded(true),
        Bound::IgnoreAdmission(true),
    ];
    setup.rules = (0..dice.below(6))
        .map(|line| Rule {
            domain: dice.pick(&[Domain::Global, Domain::User(1000), Domain::Group(7)]),
            plugin: dice.pick(&[None, Some(0)]),
            bound: dice.pick(&bounds),
            origin: format!("talead.toml:{line}"),
        })
        .collect();
    setup.quota = if dice.chance(300) {
        Quota {
            sessions_per_user: 3,
            sessions: 6,
            specs_per_user: 4,
            specs: 10,
            requests_per_second: 50,
            burst: 5,
        }
    } else {
        Quota::default()
    };
}

fn what_happened(request: &Request, reply: &Reply) -> &'static str {
    match (request, reply) {
        (Request::Create(_), Reply::Granted(_)) => "created",
        (Request::CreateGroup(_), Reply::GrantedGroup(_)) => "groups created",
        (Request::Change { .. }, Reply::Granted(_)) => "changed",
        (Request::Change { .. }, Reply::Refused(refusal)) if refusal.code == Code::Kernel => {
            "changes refused by the kernel"
        }
        (Request::Attach { .. }, Reply::Done) => "attached",
        (Request::Attach { .. }, Reply::DoneBut(_)) => "attached asleep",
        (Request::Detach(_) | Request::Release(_), Reply::DoneBut(_)) => "put back, almost",
        (Request::Attach { .. }, Reply::Refused(refusal)) if refusal.code == Code::Kernel => {
            "attaches refused by the kernel"
        }
        (Request::Attach { .. }, Reply::Refused(refusal)) if refusal.code == Code::NoSuchThread => {
            "attaches too late"
        }
        (Request::Detach(_), Reply::Done) => "detached",
        (Request::Release(_), Reply::Done) => "released",
        (Request::Claim { .. }, Reply::Granted(_)) => "claimed",
        (Request::Explain(_), Reply::Explained { .. }) => "explained",
        (_, Reply::Refused(refusal)) if refusal.code == Code::Quota => "over quota",
        (_, Reply::Refused(_)) => "refused otherwise",
        _ => "looked up",
    }
}

impl Crowd {
    /// A world with its dice.
    pub fn new(mut dice: Dice) -> Crowd {
        let (setup, machine, pinned) = scene(&mut dice);
        let faults = Faults {
            apply: dice.pick(&[0, 0, 30, 300]),
            restore: dice.pick(&[0, 0, 0, 600]),
            silence: dice.pick(&[0, 20]),
            lies: dice.pick(&[0, 100]),
            crashes: dice.pick(&[0, 20]),
        };
        let mut world = World::new(setup, machine, pinned, dice);
        world.faults = faults;
        Crowd {
            world,
            tally: Tally::new(),
            held: BTreeMap::new(),
            seen: BTreeSet::new(),
            meddled: BTreeSet::new(),
            trouble: true,
            lenient_until: Time::ZERO,
            restore_faults: faults.restore > 0,
        }
    }

    /// Something happens.
    pub fn step(&mut self) {
        match self.world.dice.below(100) {
            0..5 => self.newcomer(),
            5..48 => self.ask(),
            48..52 => self.disturb(),
            52..56 => self.pass_time(),
            56..62 => self.answer_plugins(),
            62..80 => {
                for _ in 0..self.world.dice.below(6) {
                    self.world.obey_one();
                    self.world.hear_one();
                }
            }
            80..84 => {
                self.world.notice_one();
            }
            84..92 => {
                if let Some(session) = self.any_session() {
                    self.world.read_one(session);
                }
            }
            92..99 => {
                self.world.settle();
                self.check();
            }
            _ => self.upheaval(),
        }
        self.take_replies();
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn any_session(&mut self) -> Option<SessionId> {
        let sessions: Vec<SessionId> = self.world.lines.keys().copied().collect();
        (!sessions.is_empty()).then(|| self.world.dice.pick(&sessions))
    }

    fn any_thread(&mut self) -> u32 {
        let threads: Vec<u32> = self.world.kernel.threads.keys().copied().collect();
        if threads.is_empty() { 1 } else { self.world.dice.pick(&threads) }
    }

    /// A thread of this connection's process, if one is left.
    fn own_thread(&mut self, session: SessionId) -> u32 {
        let pid = self.world.lines[&session].process.pid;
        let threads = self.world.kernel.threads.iter().filter(|(_, thread)| thread.tgid == pid);
        let threads: Vec<u32> = threads.map(|(&tid, _)| tid).collect();
        if threads.is_empty() { pid } else { self.world.dice.pick(&threads) }
    }

    fn any_process(&mut self) -> Option<u32> {
        let processes: Vec<u32> = self.world.kernel.processes.keys().copied().collect();
        (!processes.is_empty()).then(|| self.world.dice.pick(&processes))
    }

    /// Another process, or another connection, with its hello.
    fn newcomer(&mut self) {
        let pid = match self.any_process() {
            Some(pid) if self.world.dice.chance(400) || self.world.kernel.processes.len() > 10 => pid,
            _ => {
                let from = 2 + self.world.dice.below(20) as u32;
                let pid = self.world.kernel.free_id(from);
                let uid = self.world.dice.pick(&[0, 1000, 1000, 1001]);
                self.world.kernel.spawn(pid, uid);
                pid
            }
        };
        if self.world.lines.len() < 16 {
            let groups = self.world.dice.pick(&[&[][..], &[7], &[7, 8]]);
            let session = self.world.dial(pid, 100, groups);
            let max = self.world.dice.pick(&[talea_proto::VERSION, talea_proto::VERSION, 9, 0]);
            self.world.send(session, Request::Hello { min: max.min(1), max }, None);
        }
    }

    fn any_task(&mut self) -> Task {
        let dice = &mut self.world.dice;
        let period = dice.pick(&[5, 10, 10, 20, 50, 100, 200]) * MS;
        let runtime = period * dice.pick(&[1, 1, 2, 5, 5, 10, 10, 20, 30, 30, 60, 110]) / 100;
        let plugin = match dice.below(24) {
            0..3 => Name::new("edf"),
            3..6 => Name::new("rm"),
            6..9 => Name::new("fp"),
            9..11 => Name::new("ours"),
            11 => Name::new("nobody"),
            _ => None,
        };
        let params = Params {
            period: dice.chance(850).then_some(Span::from_ns(period)),
            runtime: dice.chance(800).then_some(Work::from_ns(runtime)),
            desired: dice.chance(200).then_some(Work::from_ns(runtime * 2)),
            deadline: dice.chance(200).then_some(Span::from_ns(period / 2)),
            priority: dice.chance(600).then_some(Priority(if dice.chance(30) {
                100
            } else {
                1 + dice.below(99) as u8
            })),
        };
        let cpus = match dice.below(5) {
            0 => CpuSet::single(dice.below(4) as u32),
            _ => CpuSet::EMPTY,
        };
        Task {
            params,
            plugin,
            cpus,
            cpus_mandatory: dice.chance(300),
            ignore_admission: dice.chance(50),
            owner: dice.pick(&[Owner::Session, Owner::Session, Owner::Process, Owner::Thread]),
        }
    }

    fn any_spec(&mut self, session: SessionId) -> SpecId {
        let own = self.held.iter().filter(|(_, held)| held.session == session).map(|(&id, _)| id);
        let own: Vec<SpecId> = own.collect();
        if !own.is_empty() && self.world.dice.chance(900) {
            return self.world.dice.pick(&own);
        }
        SpecId(self.world.dice.below(40))
    }

    fn ask(&mut self) {
        let Some(session) = self.any_session() else { return };
        let spec = self.any_spec(session);
        let mut target = None;
        let request = match self.world.dice.below(40) {
            0..10 => Request::Create(self.any_task()),
            10..12 => {
                let count = self.world.dice.below(5);
                Request::CreateGroup((0..count).map(|_| self.any_task()).collect())
            }
            12..17 => Request::Change { spec, task: self.any_task() },
            17..19 => Request::Release(spec),
            19..29 => {
                target = match self.world.dice.below(24) {
                    0 => None,
                    1 => Some(Target::Bad(ThreadError::BareTid)),
                    2 => Some(Target::Bad(ThreadError::NotAThread)),
                    3..5 => Some(Target::Thread(self.any_thread())),
                    _ => Some(Target::Thread(self.own_thread(session))),
                };
                if let Some(Target::Thread(tid)) = target
                    && self.world.dice.chance(200)
                    && self.world.kernel.threads.contains_key(&tid)
                {
                    let cpu = self.world.dice.below(4) as u32;
                    self.world.kernel.falls_asleep(tid, cpu);
                }
                Request::Attach { spec, tid: None }
            }
            29..31 => Request::Detach(spec),
            31..33 => Request::Query(spec),
            33..35 => {
                let known = self.held.get(&spec).map(|held| held.token);
                let token = known.filter(|_| self.world.dice.chance(800)).unwrap_or(Token([3; 16]));
                Request::Claim { spec, token }
            }
            35 => Request::Explain(self.any_task()),
            36 => match self.world.dice.below(5) {
                0 => Request::Status,
                1 => Request::Plugin(1),
                2 => Request::Plugin(99),
                3 => Request::PluginCpu { plugin: 0, index: 1 },
                _ => Request::PluginCpu { plugin: 7, index: u32::MAX },
            },
            37 => Request::NextSpec(spec),
            38 => Request::NextSession(spec.0),
            _ => return self.world.send_nonsense(session),
        };
        if let Request::Release(id) | Request::Claim { spec: id, .. } = request {
            self.meddled.insert(id);
        }
        self.world.send(session, request, target);
        if self.world.dice.chance(700) {
            self.world.read_one(session);
        }
    }

    /// Somebody ends, or becomes somebody else.
    fn disturb(&mut self) {
        let now = self.world.now;
        match self.world.dice.below(10) {
            0 | 1 => {
                // live twin: kill -9 of a client with effects under way.
                if let Some(session) = self.any_session() {
                    self.world.hang_up(session);
                }
            }
            2 => {
                if let Some(pid) = self.any_process() {
                    self.world.kernel.end_process(pid, now);
                    let theirs = self.world.lines.iter().filter(|(_, line)| line.process.pid == pid);
                    let theirs: Vec<SessionId> = theirs.map(|(&session, _)| session).collect();
                    for session in theirs {
                        // A child may have inherited the socket: then there is no hang-up.
                        if self.world.dice.chance(800) {
                            self.world.hang_up(session);
                        }
                    }
                }
            }
            3 | 4 => {
                // live twin: a thread that exits between the check and the apply.
                let tid = self.any_thread();
                if self.world.kernel.processes.contains_key(&tid) && self.world.dice.chance(800) {
                    return;
                }
                self.world.kernel.end_thread(tid, now);
            }
            5 | 6 => {
                // live twin: ns_last_pid written by root, so that the id comes back at once.
                let tid = self.any_thread();
                self.world.kernel.end_thread(tid, now);
                if let Some(tgid) = self.any_process()
                    && (!self.world.kernel.processes.contains_key(&tid) || tid == tgid)
                {
                    let own = self.world.kernel.ordinary();
                    self.world.kernel.spawn_thread(tid, tgid, own);
                }
            }
            7 => {
                // live twin: a client that waits for the answer to its attach; a throttled thread that is detached.
                let tid = self.any_thread();
                let cpu = self.world.dice.below(4) as u32;
                if !self.world.kernel.threads.contains_key(&tid) {
                    return;
                }
                match self.world.dice.below(3) {
                    0 => self.world.kernel.wakes(tid),
                    1 => self.world.kernel.falls_asleep(tid, cpu),
                    _ => {
                        let debt = self.world.dice.pick(&[10, 100, 400, 900]) * MS;
                        self.world.kernel.owes(tid, now.saturating_add(Span::from_ns(debt)));
                    }
                }
            }
            _ => {
                if let Some(tgid) = self.any_process()
                    && self.world.kernel.threads.len() < 30
                {
                    let tid = self.world.kernel.free_id(50);
                    let mut own = self.world.kernel.ordinary();
                    if self.world.dice.chance(300) {
                        own.policy = self.world.dice.pick(&[
                            Policy::Rr(Priority(5)),
                            Policy::Other { nice: -3 },
                            Policy::Batch { nice: 4 },
                            Policy::Idle,
                        ]);
                    }
                    self.world.kernel.spawn_thread(tid, tgid, own);
                }
            }
        }
    }

    fn pass_time(&mut self) {
        let ns = self.world.dice.pick(&[1, MS, 10 * MS, 60 * MS, 300 * MS, 2_000 * MS]);
        self.world.advance(Span::from_ns(ns));
    }

    fn answer_plugins(&mut self) {
        let (faults, trouble) = (self.world.faults, self.trouble);
        let roll = self.world.dice.below(1000);
        let (low, verdict) = (self.world.dice.below(14), self.world.dice.pick(&[1, 1, 1, 0, -1]));
        if let Some(&(plugin, ..)) = self.world.questions.values().next()
            && trouble
            && roll < faults.crashes
        {
            return self.world.plugin_down(plugin);
        }
        let silent = trouble && roll >= 1000 - faults.silence;
        let lies = trouble && roll < faults.crashes + faults.lies;
        self.world.answer_one(|question| {
            let ForeignQuestion::Accept { cpus, epoch, .. } = question else {
                let told = ForeignAnswer { epoch: 0, verdict: 1, cpu: -1, priority: 0 };
                return (!silent).then_some(told);
            };
            let cpu = cpus.iter().last().map_or(-1, |cpu| cpu as i32);
            let priority = if lies { 99 } else { 40 + (low % 10) as i32 };
            let verdict = if cpu < 0 { -1 } else { verdict };
            (!silent).then_some(ForeignAnswer { epoch: *epoch, verdict, cpu, priority })
        });
    }

    /// The daemon dies, or its rules change.
    fn upheaval(&mut self) {
        if self.world.dice.chance(500) {
            let mut setup = self.world.setup().clone();
            set_rules(&mut setup, &mut self.world.dice);
            return self.world.reload(setup);
        }
        self.take_replies();
        let owners_live = |crowd: &Crowd, held: &Held| {
            let line = crowd.world.lines.get(&held.session);
            held.owner != Owner::Thread && line.is_some_and(|line| crowd.world.kernel.lives(line.process))
        };
        let safe: Vec<(SpecId, Held, u32)> = self
            .held
            .iter()
            .filter(|(id, held)| !self.meddled.contains(id) && owners_live(self, held))
            .map(|(&id, held)| (id, *held, self.world.lines[&held.session].process.pid))
            .collect();
        for (id, held, _) in &safe {
            let recorded = self.world.file.values().any(|record| record.spec == *id);
            assert!(recorded, "{id:?} of a living client is not on record: {held:?}");
        }
        self.held.clear();
        self.seen.clear();
        self.count("restarts");
        self.meddled.clear();
        self.world.restart();
        self.lenient_until = self.world.now.saturating_add(LONGEST_PERIOD);
        // Clients come back and claim; some quotas let only a few in.
        for (id, held, pid) in safe {
            let uid = self.world.kernel.processes[&pid].1;
            if self.world.setup().quota.sessions_per_user <= self.world.broker.user_usage(uid).0
                || self.world.setup().quota.sessions <= self.world.broker.sessions()
            {
                continue;
            }
            let session = self.world.dial(pid, 100, &[]);
            self.world.send(session, Request::Hello { min: 1, max: 1 }, None);
            self.world.send(session, Request::Claim { spec: id, token: held.token }, None);
            self.world.settle();
            let Some(line) = self.world.lines.get_mut(&session) else { continue };
            for (_, request, reply) in line.replies.drain(..) {
                if let Request::Claim { .. } = request {
                    // Its adopted thread may just be on its way to what the books say.
                    let Reply::Granted(granted) = reply else { panic!("{id:?} was not adopted: {reply:?}") };
                    *self.tally.entry("claims after a restart").or_default() += 1;
                    assert_eq!((granted.spec, granted.token), (id, held.token));
                    self.held.insert(id, Held { session, ..held });
                }
            }
        }
    }

    fn take_replies(&mut self) {
        let mut taken = Vec::new();
        for (&session, line) in &mut self.world.lines {
            for (_, request, reply) in line.replies.drain(..) {
                taken.push((session, request, reply));
            }
        }
        for (session, request, reply) in taken {
            self.count(what_happened(&request, &reply));
            match (request, reply) {
                (Request::Create(task), Reply::Granted(granted)) => self.granted(session, &task, granted),
                (Request::CreateGroup(tasks), Reply::GrantedGroup(group)) => {
                    assert_eq!(tasks.len(), group.len());
                    for (task, granted) in tasks.iter().zip(group) {
                        self.granted(session, task, granted);
                    }
                }
                (Request::Claim { spec, token }, Reply::Granted(_)) => {
                    if let Some(held) = self.held.get_mut(&spec) {
                        held.session = session;
                        assert_eq!(held.token, token);
                    }
                }
                (Request::Release(spec), Reply::Done | Reply::DoneBut(_)) => {
                    self.held.remove(&spec);
                }
                _ => {}
            }
        }
        let world = &self.world;
        self.held.retain(|_, held| world.lines.contains_key(&held.session) || held.owner != Owner::Session);
    }

    fn granted(&mut self, session: SessionId, task: &Task, granted: talea_proto::Granted) {
        assert!(self.seen.insert(granted.spec), "{:?} is given twice", granted.spec);
        let plugin = &self.world.setup().plugins[granted.plugin as usize];
        assert!(granted.cpu.is_none_or(|cpu| plugin.cpus.contains(cpu)), "placed outside its plugin's CPUs");
        assert!(
            task.plugin.is_none_or(|name| name.as_str() == plugin.name),
            "another plugin than the named one"
        );
        if let (Some(asked), Some(runtime)) = (task.params.runtime, granted.runtime) {
            let most = task.params.desired.unwrap_or(asked);
            assert!(asked <= runtime && runtime <= most, "Q^a = {runtime} outside [{asked}, {most}]");
        }
        let held = Held { session, token: granted.token, owner: task.owner };
        self.held.insert(granted.spec, held);
    }

    /// What must hold when nothing is under way.
    fn check(&mut self) {
        self.world.check_quiet(self.restore_faults);
        if self.world.now >= self.lenient_until {
            let refused: Vec<_> =
                self.world.refused_by_kernel.iter().filter(|(at, ..)| *at >= self.lenient_until).collect();
            assert!(refused.is_empty(), "the kernel refuses what the books admit: {refused:?}");
        }
        self.world.refused_by_kernel.clear();
    }

    /// Trouble ends; everything must come right, then to nothing.
    pub fn finish(&mut self) {
        self.trouble = false;
        self.world.faults = Faults::default();
        let threads: Vec<u32> = self.world.kernel.threads.keys().copied().collect();
        for tid in threads {
            self.world.kernel.wakes(tid);
        }
        for _ in 0..200 {
            self.world.settle();
            self.answer_plugins();
            self.take_replies();
            self.world.advance(Span::from_ns(500 * MS));
        }
        self.world.settle();
        self.check();
        for (session, line) in &self.world.lines {
            assert!(line.outstanding.is_empty(), "{session:?} was never answered: {:?}", line.outstanding);
        }
        let sessions: Vec<SessionId> = self.world.lines.keys().copied().collect();
        for session in sessions {
            self.world.hang_up(session);
        }
        self.quiet_down();
        let pids: Vec<u32> = self.world.kernel.processes.keys().copied().collect();
        for pid in pids {
            self.world.kernel.end_process(pid, self.world.now);
        }
        self.quiet_down();
        assert_eq!(self.world.leftovers(), Vec::<String>::new(), "not everything came back");
        assert!(self.world.file.is_empty(), "the state file still holds {:?}", self.world.file.keys());
        assert_eq!(self.world.kernel.open_handles(), 0, "handles leak");
        assert_eq!(self.world.broker.next_wakeup(), None, "an idle daemon does not wake up");
        self.count_log();
    }

    /// What the broker wrote into its log.
    fn count_log(&mut self) {
        for event in std::mem::take(&mut self.world.log) {
            self.count(match event {
                LogEvent::Refused { .. } => "refusals logged",
                LogEvent::RestoreFailed { .. } => "restores failed",
                LogEvent::ApplyFailed { .. } => "moves failed",
                LogEvent::NotAsBefore { .. } => "not as before",
                LogEvent::Adopted { .. } => "adopted",
                LogEvent::Dropped { .. } => "dropped",
                LogEvent::PluginOut { .. } => "plugins out",
                LogEvent::PluginLied { .. } => "plugins lied",
                LogEvent::ReloadRefused { .. } => "reloads refused",
                LogEvent::RateLimited { .. } => "rate limited",
            });
        }
    }

    fn quiet_down(&mut self) {
        for _ in 0..20 {
            self.world.settle();
            self.answer_plugins();
            self.world.advance(Span::from_ns(500 * MS));
        }
        self.world.settle();
        self.check();
    }
}
