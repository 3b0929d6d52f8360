//! Growth of the work with the number of specs: a plugin host that fails or returns, releases while
//! it is slow, connections that end, and claims by token.
//!
//! Each test compares the shortest of several runs with 500 and with 16 times as many items.
//! Linear work takes about 16 times as long (n log n: 24), quadratic work 256 times.

use super::stage::{by, setup, urgent};
use crate::Broker;
use crate::input::{Effect, Errno, ForeignAnswer, ForeignCall, Input, Peer, Platform, SessionId};
use std::collections::VecDeque;
use std::time::Duration;
use talea_core::Monotonic;
use talea_proto::message::{SpecId, Token};
use talea_proto::{Granted, Reply, Request, VERSION};

const FEW: u32 = 500;
const FACTOR: u32 = 16;
const MAX_GROWTH: u32 = FACTOR * 6;
const RUNS: u32 = 5;

const CLIENT: SessionId = SessionId(1);

/// A broker whose plugin answers only on demand.
struct Scene {
    broker: Broker,
    seq: u32,
    /// Calls of the plugin without an answer.
    calls: VecDeque<(crate::input::Ticket, ForeignCall)>,
    granted: Vec<Granted>,
}

impl Scene {
    fn new() -> Scene {
        let mut setup = setup(&["ours", "fp"], 2);
        setup.quota.specs_per_user = 2 * FEW * FACTOR;
        setup.quota.sessions = 2 * FEW * FACTOR;
        setup.quota.sessions_per_user = 2 * FEW * FACTOR;
        let broker = Broker::new(setup, Platform::declared(2)).expect("a valid setup");
        let mut scene = Scene { broker, seq: 0, calls: VecDeque::new(), granted: Vec::new() };
        scene.handle(Input::RecordSlots { slots: 4 * FEW * FACTOR, errno: Errno(0) });
        scene.connect(CLIENT);
        scene
    }

    /// Creates a scene whose plugin serves `count` specs of root.
    fn with_specs(count: u32) -> Scene {
        let mut scene = Scene::new();
        for _ in 0..count {
            scene.send(CLIENT, Request::Create(by(urgent(5), "ours")));
            scene.answer_all();
        }
        assert_eq!(scene.granted.len(), count as usize);
        scene
    }

    /// Creates a scene with `count` connections whose requests wait for the plugin.
    fn with_requests(count: u32) -> Scene {
        let mut scene = Scene::new();
        for number in 0..u64::from(count) {
            let session = SessionId(2 + number);
            scene.connect(session);
            scene.send(session, Request::Create(urgent(5)));
        }
        scene
    }

    fn connect(&mut self, session: SessionId) {
        let peer = Peer { pid: 100, pid_start: 1, ..Peer::default() };
        self.handle(Input::Connected { session, peer });
        self.send(session, Request::Hello { min: VERSION, max: VERSION });
    }

    fn handle(&mut self, input: Input) {
        self.broker.handle(Monotonic::from_ns(1), input);
        while let Some(effect) = self.broker.poll_effect() {
            match effect {
                Effect::CallPlugin { ticket, call, .. } => self.calls.push_back((ticket, *call)),
                Effect::Reply { reply: Reply::Granted(granted), .. } => self.granted.push(granted),
                _ => {}
            }
        }
    }

    fn send(&mut self, session: SessionId, request: Request) {
        self.seq += 1;
        let (seq, entropy) = (self.seq, u128::from(self.seq));
        self.handle(Input::Received { session, seq, request, thread: None, caller: None, entropy });
    }

    /// Lets the plugin answer until it has no call.
    fn answer_all(&mut self) {
        while let Some((ticket, call)) = self.calls.pop_front() {
            let epoch = match call {
                ForeignCall::Accept { epoch, .. } => epoch,
                _ => 0,
            };
            let answer = ForeignAnswer {
                epoch,
                verdict: 1,
                cpu: 1,
                priority: 44,
                ..ForeignAnswer::default()
            };
            self.handle(Input::PluginAnswered { ticket, answer: Some(answer) });
        }
    }

    fn restart_host(&mut self) {
        self.handle(Input::HostFailed { plugin: 0 });
        self.calls.clear();
        self.handle(Input::HostServes { plugin: 0 });
    }
}

/// Asserts that `measured` grows about linearly with the number of items that `prepare` gets.
fn check_growth(what: &str, prepare: impl Fn(u32) -> Scene, measured: impl Fn(&mut Scene)) {
    let run = |count: u32| {
        let mut scene = prepare(count);
        let start = now();
        measured(&mut scene);
        now().saturating_sub(start)
    };
    // In turns, so that a busy computer affects both.
    let runs: Vec<_> = (0..RUNS).map(|_| (run(FEW), run(FEW * FACTOR))).collect();
    let few = runs.iter().map(|&(few, _)| few).min().expect("a run");
    let many = runs.iter().map(|&(_, many)| many).min().expect("a run");
    eprintln!("{what}: {few:?} with {FEW}, {many:?} with {}", FEW * FACTOR);
    assert!(
        many <= few.max(Duration::from_micros(100)) * MAX_GROWTH,
        "{what} grows faster than linearly: {few:?} with {FEW}, {many:?} with {}",
        FEW * FACTOR
    );
}

/// Returns the CPU time of this thread: other threads of a busy computer do not count.
#[expect(clippy::disallowed_methods, reason = "only the growth of the times is judged")]
fn now() -> Duration {
    // The kernel updates the CPU time at a tick, or when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the CPU time"))
}

#[test]
fn the_return_of_a_host_takes_linear_time_in_its_specs() {
    check_growth("return", Scene::with_specs, |scene| {
        scene.restart_host();
        scene.answer_all();
    });
}

#[test]
fn the_failure_of_a_host_takes_linear_time_in_its_calls() {
    check_growth("failure", Scene::with_requests, |scene| {
        scene.handle(Input::HostFailed { plugin: 0 });
        assert_eq!(scene.granted.len(), scene.broker.sessions.len() - 1, "granted by the next one");
    });
}

#[test]
fn releases_at_a_slow_plugin_take_linear_time() {
    let prepare = |count| {
        let mut scene = Scene::with_specs(count);
        scene.restart_host();
        scene
    };
    check_growth("releases", prepare, |scene| {
        for granted in std::mem::take(&mut scene.granted) {
            scene.send(CLIENT, Request::Release(granted.spec));
        }
        assert_eq!(scene.broker.specs(), 0);
    });
}

#[test]
fn the_ends_of_waiting_connections_take_linear_time() {
    check_growth("hang-ups", Scene::with_requests, |scene| {
        let sessions: Vec<SessionId> = scene.broker.sessions.keys().copied().collect();
        for session in sessions {
            scene.handle(Input::Disconnected { session });
        }
    });
}

#[test]
fn claims_by_token_take_linear_time() {
    check_growth("claims", Scene::with_specs, |scene| {
        let tokens: Vec<Token> = scene.granted.drain(..).map(|granted| granted.token).collect();
        for &token in &tokens {
            scene.send(CLIENT, Request::Claim { spec: SpecId(0), token });
        }
        assert_eq!(scene.granted.len(), tokens.len());
    });
}
