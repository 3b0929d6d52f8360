//! The paper's RM and EDF as plugins in C give the answers of the built-in plugins.
//!
//! Two brokers get the same random requests: create, change, attach, detach and release. One has
//! the built-in plugin. The other has the plugin in C, whose calls go through a real host process.
//! After each request the replies are equal (accepted or refused, CPU, level, Q^a, mechanism), and
//! so are the attributes of all attached threads.
//!
//! Two rulings are excluded:
//!
//! 1. A plugin does not know the tasks of other plugins (`plugins/foreign.rs`): each broker has one
//!    plugin.
//! 2. A plugin does not know zero-lag holds (R36): before each request a time passes that is longer
//!    than every period, so no reservation is held.

use super::{Host, build, directory, setup_of};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use talea_broker::host_call;
use talea_broker::input::{Effect, Errno, Input, LogEvent, Peer, Platform, ThreadFacts, Uids};
use talea_broker::{Broker, SessionId, ThreadId};
use talea_core::setup::{
    Access, Band, Confine, EdfOptions, ForeignClass, ForeignOptions, OnOverrun, PluginKind,
    PluginSetup, RmOptions, RmTest, Setup,
};
use talea_core::{Attr, CpuSet, Monotonic, Params, Policy, Priority, Span, Work};
use talea_proto::host::class;
use talea_proto::{Reply, Request, SpecId, Task, ThreadRef, VERSION};

const CPUS: u32 = 3;
const MS: u64 = 1_000_000;
/// Time before each request: longer than every period.
const PAUSE: Span = Span::from_ns(1_000 * MS);
/// Specs at one time, about.
const CROWD: usize = 24;

/// A broker, and the attributes that it has given to threads.
struct Side {
    broker: Broker,
    host: Option<Host>,
    threads: BTreeMap<ThreadId, Attr>,
    now: Monotonic,
    seq: u32,
}

impl Side {
    fn new(kind: PluginKind, band: Option<Band>, host: Option<Host>) -> Side {
        let plugin = PluginSetup {
            name: "paper".to_owned(),
            cpus: CpuSet::first(CPUS),
            band,
            kind,
            on_overrun: OnOverrun::Notify,
        };
        let setup = Setup { plugins: vec![plugin], access: Access::Off, ..Setup::default() };
        let mut broker = Broker::new(setup, Platform::declared(CPUS)).expect("a valid setup");
        broker.set_identity(1, 1);
        let now = Monotonic::from_ns(1);
        let mut side = Side { broker, host, threads: BTreeMap::new(), now, seq: 0 };
        side.handle(Input::RecordSlots { slots: 1 << 16, errno: Errno(0) });
        let peer = Peer { pid: 1, pid_start: 1, uid: 1000, gid: 1000, groups: Vec::new() };
        side.handle(Input::Connected { session: SessionId(1), peer });
        side.ask(Request::Hello { min: VERSION, max: VERSION }, None);
        side
    }

    /// Passes an input, and executes the effects as a driver does. Returns the last reply.
    fn handle(&mut self, input: Input) -> Option<Reply> {
        let mut inputs = VecDeque::from([input]);
        let mut said = None;
        while let Some(input) = inputs.pop_front() {
            self.broker.handle(self.now, input);
            while let Some(effect) = self.broker.poll_effect() {
                match effect {
                    Effect::Reply { reply, .. } => said = Some(reply),
                    Effect::Apply { ticket, thread, attr, .. } => {
                        self.threads.insert(thread, attr);
                        inputs.push_back(Input::Done { ticket, result: Ok(()) });
                    }
                    Effect::Restore { ticket, thread, .. } => {
                        self.threads.remove(&thread);
                        inputs.push_back(Input::Done { ticket, result: Ok(()) });
                    }
                    Effect::CallPlugin { ticket, plugin, call, .. } => {
                        let host = self.host.as_ref().expect("only one side has a host");
                        let request = host_call::request(&call, ticket);
                        let (answer, ranks) = host.ask_with_ranks(&request).expect("an answer");
                        assert_eq!(answer.ticket, ticket.0);
                        let (ranks, more) = host_call::ranks(&ranks);
                        inputs.push_back(Input::PluginRanked { plugin, ranks, more });
                        let answer = Some(host_call::answer(&answer, host_call::epoch(&call)));
                        inputs.push_back(Input::PluginAnswered { ticket, answer });
                    }
                    Effect::Log(event) => {
                        assert!(matches!(event, LogEvent::Refused { .. }), "{event:?}");
                    }
                    _ => {}
                }
            }
        }
        said
    }

    fn ask(&mut self, request: Request, thread: Option<ThreadFacts>) -> Reply {
        self.seq += 1;
        let (session, seq, entropy) = (SessionId(1), self.seq, u128::from(self.seq));
        let thread = thread.map(Ok);
        let said =
            self.handle(Input::Received { session, seq, request, thread, caller: None, entropy });
        said.expect("a reply")
    }

    fn wait(&mut self) {
        self.now = self.now.saturating_add(PAUSE);
        self.handle(Input::Timer);
    }
}

/// Returns the compared part of a reply.
fn essence(reply: &Reply) -> String {
    match reply {
        Reply::Granted(granted) => format!(
            "on {:?} at {} for {:?} by {:?}",
            granted.cpu, granted.priority, granted.runtime, granted.mechanism
        ),
        Reply::Refused(refusal) => format!("{:?}", refusal.code),
        other => format!("{other:?}"),
    }
}

/// Splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a task whose parameters often meet exactly: shares of twentieths and thirds.
    fn task(&mut self) -> Task {
        let period = self.pick(&[10, 12, 15, 20, 24, 30, 40, 60, 80, 120, 240]) * MS;
        let deadline = match self.below(4) {
            0 => Some(period * (1 + self.below(10)) / 10),
            1 => Some(period),
            _ => None,
        };
        let span = deadline.unwrap_or(period).min(period);
        let runtime = match self.below(4) {
            0 => span * (1 + self.below(20)) / 20,
            1 => span / 3,
            2 => span * (1 + self.below(6)) / 60,
            _ => 1_024 + self.below(span / 4),
        };
        let desired = self.chance(300).then(|| runtime + self.below(span));
        let params = Params {
            period: Some(Span::from_ns(period)).filter(|_| !self.chance(20)),
            runtime: Some(Work::from_ns(runtime)).filter(|_| !self.chance(60)),
            desired: desired.map(Work::from_ns),
            deadline: deadline.map(Span::from_ns),
            priority: None,
        };
        let mut cpus = CpuSet::EMPTY;
        if self.chance(300) {
            cpus = (0..CPUS).filter(|_| self.chance(600)).collect();
        }
        Task {
            params,
            cpus,
            cpus_mandatory: self.chance(500) && !cpus.is_empty(),
            ignore_admission: self.chance(30),
            ..Task::default()
        }
    }
}

/// Counts of the kinds of replies.
#[derive(Debug, Default)]
struct Seen {
    granted: u32,
    refused: u32,
    elastic: u32,
    attached: u32,
    moved: u32,
}

/// A task that both sides have granted.
#[derive(Clone, Copy)]
struct Held {
    /// Its numbers on the two sides.
    specs: [SpecId; 2],
    thread: Option<ThreadId>,
    cpu: Option<u32>,
    params: Params,
}

/// Sends `count` random requests to both sides and compares.
fn compare(mut built_in: Side, mut in_c: Side, count: u32, seed: u64) -> Seen {
    let mut random = Random(seed);
    let mut seen = Seen::default();
    let mut held: Vec<Held> = Vec::new();
    for step in 0..count {
        built_in.wait();
        in_c.wait();
        let at = random.below(held.len().max(1) as u64) as usize;
        let mut facts = None;
        let one = held.get(at).copied();
        let request: Box<dyn Fn(usize) -> Request> = match (one, random.below(10)) {
            (Some(held_one), 0 | 1) if held.len() > CROWD / 2 => {
                Box::new(move |side| Request::Release(held_one.specs[side]))
            }
            (Some(Held { specs, thread: None, .. }), 2 | 3) => {
                facts = Some(thread(step));
                Box::new(move |side| Request::Attach {
                    spec: specs[side],
                    thread: ThreadRef::Pidfd,
                })
            }
            (Some(Held { specs, thread: Some(_), .. }), 2) => {
                Box::new(move |side| Request::Detach(specs[side]))
            }
            (Some(Held { specs, .. }), 4..7) => {
                let task = random.task();
                Box::new(move |side| Request::Change { spec: specs[side], task })
            }
            (Some(Held { specs, .. }), _) if held.len() > CROWD => {
                Box::new(move |side| Request::Release(specs[side]))
            }
            _ => {
                let task = random.task();
                Box::new(move |_| Request::Create(task))
            }
        };
        let before = in_c.threads.clone();
        let asked = request(0);
        let ours = built_in.ask(request(0), facts);
        let theirs = in_c.ask(request(1), facts);
        assert_eq!(essence(&theirs), essence(&ours), "step {step} of seed {seed}: {asked:?}");
        assert_eq!(in_c.threads, built_in.threads, "step {step} of seed {seed}: {asked:?}");
        let own = one.and_then(|held| held.thread);
        let others = before.iter().filter(|(id, _)| own != Some(**id));
        let moved =
            others.filter(|(id, attr)| in_c.threads.get(id).is_some_and(|now| now != *attr));
        seen.moved += moved.count() as u32;
        match (&asked, &ours, &theirs) {
            (
                Request::Create(task) | Request::Change { task, .. },
                Reply::Granted(granted),
                Reply::Granted(in_c),
            ) => {
                seen.granted += 1;
                seen.elastic += u32::from(granted.runtime > task.params.runtime);
                let params = Params { runtime: granted.runtime, ..task.params };
                if matches!(asked, Request::Create(_)) {
                    let specs = [granted.spec, in_c.spec];
                    held.push(Held { specs, thread: None, cpu: granted.cpu, params });
                } else {
                    (held[at].cpu, held[at].params) = (granted.cpu, params);
                }
            }
            (Request::Attach { .. }, Reply::Done, _) => {
                held[at].thread = facts.map(|facts| facts.thread);
                seen.attached += 1;
            }
            (Request::Detach(_), Reply::Done, _) => held[at].thread = None,
            (Request::Release(_), Reply::Done, _) => drop(held.swap_remove(at)),
            (_, Reply::Refused(_), _) => seen.refused += 1,
            other => panic!("{other:?}"),
        }
    }
    seen
}

fn thread(step: u32) -> ThreadFacts {
    let id = 10 + step;
    ThreadFacts {
        thread: ThreadId(id.into()),
        tid: id,
        tgid: id,
        uids: Uids::all(1000),
        start: id.into(),
        inode: id.into(),
        attr: Attr {
            policy: Policy::Other { nice: 0 },
            reset_on_fork: false,
            cpus: CpuSet::first(CPUS),
        },
        fifo: true,
        rt_time: None,
    }
}

/// Returns the side with the plugin in C.
fn side_in_c(name: &str, class: ForeignClass, band: Option<Band>) -> Side {
    let source = format!("{}/examples/c/plugins/{name}.c", super::ROOT);
    let module = build(name, Path::new(&source));
    let number = match class {
        ForeignClass::Deadline => class::DEADLINE,
        ForeignClass::Fifo => class::FIFO,
        ForeignClass::Rr => class::RR,
    };
    let levels = band.map_or((0, 0), |band| (band.low.0, band.high.0));
    let share = Platform::declared(CPUS).deadline_share.bits() as u64;
    let (host, ready) =
        Host::start_with(&setup_of(&module, "", number, levels, (1 << CPUS) - 1, share));
    assert_eq!(ready.verdict, 0);
    let options = ForeignOptions {
        module: directory().display().to_string(),
        argument: String::new(),
        timeout: Span::from_ns(50 * MS),
        class,
        confine: Confine::Partition,
    };
    Side::new(PluginKind::Foreign(options), band, Some(host))
}

#[test]
fn r18_rate_monotonic_in_c_equals_the_built_in_plugin_in_100000_requests() {
    // Fewer levels than deadlines, and more.
    let mut all = Seen::default();
    for (low, high, count) in [(10, 13, 30_000), (10, 17, 30_000), (1, 90, 40_000)] {
        let band = Some(Band { low: Priority(low), high: Priority(high) });
        let options = RmOptions { test: RmTest::Necessary, refuse_sharing: false };
        let built_in = Side::new(PluginKind::Rm(options), band, None);
        let in_c = side_in_c("rm", ForeignClass::Fifo, band);
        let seen = compare(built_in, in_c, count, u64::from(high));
        all.granted += seen.granted;
        all.refused += seen.refused;
        all.attached += seen.attached;
        all.moved += seen.moved;
    }
    eprintln!("{all:?}");
    assert!(all.granted > 20_000 && all.refused > 10_000, "{all:?}");
    assert!(all.attached > 5_000 && all.moved > 5_000, "{all:?}");
}

#[test]
fn r18_edf_in_c_equals_the_built_in_plugin_in_100000_requests() {
    let options = EdfOptions { threshold: None, confine: Confine::Partition };
    let built_in = Side::new(PluginKind::Edf(options), None, None);
    let in_c = side_in_c("edf", ForeignClass::Deadline, None);
    let seen = compare(built_in, in_c, 100_000, 1);
    eprintln!("{seen:?}");
    assert!(seen.granted > 20_000 && seen.refused > 10_000, "{seen:?}");
    assert!(seen.attached > 5_000 && seen.elastic > 2_000, "{seen:?}");
}
