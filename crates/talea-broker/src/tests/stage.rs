//! Common parts of the tests: setups, tasks, and short forms of requests.

use crate::input::{Platform, SessionId};
use crate::sim::{Rng, Simulation, Target};
use talea_core::setup::{
    Access, Band, Confine, EdfOptions, ForeignClass, ForeignOptions, FpOptions, OnOverrun,
    PluginKind, PluginSetup, RmOptions, RmTest, Setup,
};
use talea_core::{CpuSet, Params, Priority, Span, Work};
use talea_proto::message::{Name, SpecId, SpecInfo};
use talea_proto::{Code, Granted, Owner, Refusal, Reply, Request, Task, ThreadRef};

pub(super) const MS: u64 = 1_000_000;

/// Returns a setup with plugins in this order, on all CPUs, with disjoint bands, and without rules.
pub(super) fn setup(names: &[&str], cpus: u32) -> Setup {
    let plugin = |name: &&str| {
        let (kind, band) = match *name {
            "edf" => {
                let options = EdfOptions { threshold: None, confine: Confine::Partition };
                (PluginKind::Edf(options), None)
            }
            "rm" => {
                let options = RmOptions { test: RmTest::Hyperbolic, refuse_sharing: false };
                (PluginKind::Rm(options), Some((60, 89)))
            }
            "fp" => (PluginKind::Fp(FpOptions::default()), Some((30, 39))),
            "rr" => (PluginKind::Rr(FpOptions::default()), Some((10, 19))),
            name => {
                assert!(name.starts_with("ours"), "no such plugin: {name}");
                let deadline = name.ends_with("-dl");
                let options = ForeignOptions {
                    module: format!("/usr/lib/talea/{name}.so"),
                    argument: String::new(),
                    timeout: Span::from_ns(50 * MS),
                    class: if deadline { ForeignClass::Deadline } else { ForeignClass::Fifo },
                    confine: if deadline { Confine::Partition } else { Confine::default() },
                };
                (PluginKind::Foreign(options), (!deadline).then_some((40, 49)))
            }
        };
        let band = band.map(|(low, high)| Band { low: Priority(low), high: Priority(high) });
        PluginSetup {
            name: (*name).to_owned(),
            cpus: CpuSet::first(cpus),
            band,
            kind,
            on_overrun: OnOverrun::Throttle,
        }
    };
    Setup { plugins: names.iter().map(plugin).collect(), access: Access::Off, ..Setup::default() }
}

/// Returns a simulation without faults on two CPUs with all four built-in plugins.
pub(super) fn world() -> Simulation {
    world_of(setup(&["edf", "rm", "fp", "rr"], 2), 2)
}

/// Returns a simulation without faults with this setup.
pub(super) fn world_of(setup: Setup, cpus: u32) -> Simulation {
    Simulation::new(setup, Platform::declared(cpus), true, Rng::Seed(1))
}

/// Returns a task with `runtime` every `period`, in microseconds; zeros are not declared.
pub(super) fn timed(runtime_us: u64, period_us: u64) -> Task {
    let params = Params {
        runtime: Work::from_us(runtime_us).filter(|work| !work.is_zero()),
        period: Span::from_us(period_us).filter(|span| !span.is_zero()),
        ..Params::default()
    };
    Task { params, ..Task::default() }
}

/// Returns a task with only a priority.
pub(super) fn urgent(priority: u8) -> Task {
    let params = Params { priority: Some(Priority(priority)), ..Params::default() };
    Task { params, ..Task::default() }
}

/// Returns the task for this plugin only.
pub(super) fn by(task: Task, plugin: &str) -> Task {
    Task { plugin: Name::new(plugin), ..task }
}

/// Returns the task with this owner.
pub(super) fn owned(task: Task, owner: Owner) -> Task {
    Task { owner, ..task }
}

/// Short forms of requests.
pub(super) trait Words {
    fn create(&mut self, session: SessionId, task: Task) -> Granted;
    fn refused(&mut self, session: SessionId, request: Request) -> Refusal;
    fn done(&mut self, session: SessionId, request: Request);
    fn attach(&mut self, session: SessionId, spec: SpecId, tid: u32) -> Reply;
    fn attached(&mut self, session: SessionId, task: Task, tid: u32) -> Granted;
    fn query(&mut self, session: SessionId, spec: SpecId) -> Option<SpecInfo>;
    fn free(&mut self, session: SessionId) -> Vec<u64>;
}

impl Words for Simulation {
    fn create(&mut self, session: SessionId, task: Task) -> Granted {
        match self.call(session, Request::Create(task)) {
            Reply::Granted(granted) => granted,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn refused(&mut self, session: SessionId, request: Request) -> Refusal {
        match self.call(session, request) {
            Reply::Refused(refusal) => *refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn done(&mut self, session: SessionId, request: Request) {
        assert_eq!(self.call(session, request), Reply::Done);
    }

    fn attach(&mut self, session: SessionId, spec: SpecId, tid: u32) -> Reply {
        self.call_about(
            session,
            Request::Attach { spec, thread: ThreadRef::Pidfd },
            Some(Target::Thread(tid)),
        )
    }

    fn attached(&mut self, session: SessionId, task: Task, tid: u32) -> Granted {
        let granted = self.create(session, task);
        assert_eq!(self.attach(session, granted.spec, tid), Reply::Done);
        granted
    }

    fn query(&mut self, session: SessionId, spec: SpecId) -> Option<SpecInfo> {
        match self.call(session, Request::Query(spec)) {
            Reply::Spec(info) => Some(*info),
            Reply::Refused(refusal) if refusal.code == Code::NoSuchSpec => None,
            other => panic!("neither known nor unknown: {other:?}"),
        }
    }

    /// Returns the charge that each plugin could still grant on each CPU, in parts per million.
    fn free(&mut self, session: SessionId) -> Vec<u64> {
        let mut free = Vec::new();
        for plugin in 0..8 {
            for index in 0..64 {
                match self.call(session, Request::PluginCpu { plugin, index }) {
                    Reply::PluginCpu(info) => free.push(info.free.ppm()),
                    Reply::End => break,
                    other => panic!("neither a CPU nor the end: {other:?}"),
                }
            }
        }
        free
    }
}
