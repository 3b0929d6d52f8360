//! Stored bytes of protocol version 4: one message of each kind as a file in `fuzz/seeds/wire`.
//!
//! They are the seeds of the fuzzer and a compatibility check: a changed layout is detected here
//! and requires a new protocol version. `TALEA_BLESS=1` writes missing files; files that differ
//! must first be removed manually.
#![allow(clippy::disallowed_methods, reason = "seeds are files")]

use crate::mutate::{Rng, mutated};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use talea_core::{Attr, Charge, CpuSet, Params, Policy, Priority, Span, Work};
use talea_proto::message::{
    Caveat, CpuInfo, DetachCause, Mechanism, Name, Notes, Overruns, PluginInfo, SessionInfo,
    SpecInfo, Status, Token,
};
use talea_proto::record::{Record, RecordThread};
use talea_proto::refusal::{PLUGIN_TEXT_MAX, PluginText, PluginVerdict, RejectionReason, Witness};
use talea_proto::wire::fuzz_wire;
use talea_proto::{
    Code, Counters, Field, Granted, MESSAGE_MAX, Owner, PluginAnswer, Refusal, Rejection, Reply,
    Request, SpecId, Task, ThreadRef,
};

const SEQ: u32 = 0x0a0b_0c0d;

fn name(text: &str) -> Name {
    Name::new(text).expect("a short name")
}

fn task() -> Task {
    Task {
        params: Params {
            period: Some(Span::from_ns(10_000_000)),
            runtime: Some(Work::from_ns(2_000_000)),
            desired: Some(Work::from_ns(3_000_000)),
            deadline: Some(Span::from_ns(8_000_000)),
            priority: Some(Priority(42)),
        },
        plugin: Some(name("edf")),
        cpus: CpuSet::from_words(std::array::from_fn(|word| word as u64)),
        cpus_mandatory: true,
        ignore_admission: true,
        owner: Owner::Thread,
        thread: Some(ThreadRef::OwnTid(4711)),
        exclusive: false,
    }
}

fn granted() -> Granted {
    Granted {
        spec: SpecId(77),
        token: Token(*b"sixteen bytes..."),
        plugin: 1,
        cpu: Some(3),
        runtime: Some(Work::from_ns(2_500_000)),
        charge: Charge::ratio(1, 4),
        priority: 55,
        mechanism: Mechanism::DeadlinePinned,
        granularity: Span::from_ns(4_000_000),
        notes: Notes::BELOW_DESIRED.with(Notes::BUDGET_NOT_ENFORCED),
    }
}

fn attr(policy: Policy) -> Attr {
    Attr { policy, reset_on_fork: true, cpus: CpuSet::single(3) }
}

fn deadline() -> Policy {
    Policy::Deadline {
        runtime: Work::from_ns(2_500_000),
        deadline: Span::from_ns(8_000_000),
        period: Span::from_ns(10_000_000),
    }
}

fn refusal() -> Refusal {
    let no = Rejection {
        reason: RejectionReason::NoRoom,
        field: Field::Utilization,
        cpu: Some(1),
        asked: 700_000,
        limit: 490_000,
        fits: 490_000,
        witness: Some(Witness::Demand {
            at: Span::from_ns(10_000_000),
            demand: Work::from_ns(9_500_000),
            supply: Work::from_ns(9_000_000),
        }),
    };
    let late = Witness::DeadlineMiss {
        own: true,
        period: Span::from_ns(10_000_000),
        deadline: Span::from_ns(8_000_000),
        response: Some(Span::from_ns(8_500_000)),
    };
    let denied = PluginVerdict::Denied {
        code: Code::RuleBound,
        field: Field::Runtime,
        asked: 5_000_000,
        limit: 2_000_000,
    };
    let partial =
        PluginVerdict::Partial { cpu: None, charge: Charge::ratio(1, 8), notes: Notes::PARTIAL };
    Refusal {
        code: Code::NoPlugin,
        field: Field::Request,
        asked: 1,
        limit: 2,
        errno: -3,
        index: 4,
        rule: Some("talead.toml:12".into()),
        answers: vec![
            PluginAnswer {
                plugin: 0,
                name: name("edf"),
                verdict: PluginVerdict::No(no),
                text: PluginText::NONE,
            },
            PluginAnswer { plugin: 1, name: name("rm"), verdict: denied, text: PluginText::NONE },
            PluginAnswer { plugin: 2, name: name("fp"), verdict: partial, text: PluginText::NONE },
            PluginAnswer {
                plugin: 3,
                name: name("rm2"),
                verdict: PluginVerdict::No(Rejection { witness: Some(late), ..no }),
                text: PluginText::NONE,
            },
        ],
    }
}

fn requests() -> Vec<(&'static str, Request)> {
    let spec = SpecId(77);
    vec![
        ("hello", Request::Hello { min: 1, max: 3 }),
        ("create", Request::Create(task())),
        ("create-nothing", Request::Create(Task::default())),
        ("create-group", Request::CreateGroup(vec![task(), Task::default()])),
        ("change", Request::Change { spec, task: task() }),
        ("release", Request::Release(spec)),
        ("attach", Request::Attach { spec, thread: ThreadRef::Pidfd }),
        ("attach-tid", Request::Attach { spec, thread: ThreadRef::Tid(4321) }),
        ("attach-own", Request::Attach { spec, thread: ThreadRef::OwnTid(4321) }),
        ("detach", Request::Detach(spec)),
        ("nice", Request::Nice { nice: -11, thread: ThreadRef::Pidfd }),
        ("query", Request::Query(spec)),
        ("claim", Request::Claim { spec, token: granted().token }),
        ("seed", Request::Seed(granted().token)),
        ("act-for", Request::ActFor { uid: 1000 }),
        ("explain", Request::Explain(task())),
        ("status", Request::Status),
        ("counters", Request::Counters),
        ("plugin", Request::Plugin(2)),
        ("plugin-cpu", Request::PluginCpu { plugin: 2, index: 5 }),
        ("next-spec", Request::NextSpec(spec)),
        ("next-session", Request::NextSession(9)),
        ("stop", Request::Stop { release: true }),
    ]
}

fn replies() -> Vec<(&'static str, Reply)> {
    let info = SpecInfo {
        granted: granted(),
        task: task(),
        plugin_name: name("edf"),
        uid: 1000,
        pid: 4300,
        tid: Some(4321),
        attr: Some(attr(deadline())),
        overruns: Overruns { count: 13, last_ns: 14, is_throttled: true },
        detached: None,
    };
    let status = Status {
        instance: 1,
        pid: 2,
        uptime_ns: 3,
        plugins: 4,
        sessions: 5,
        specs: 6,
        attached: 7,
        requests: 8,
        refused: 9,
        adopted: 10,
        rules: 11,
        wakeups: 12,
    };
    let mut counters = Counters { grants: 1, reloads: 12, ..Counters::default() };
    counters.refusals[14] = 13;
    counters.request_times.add(14);
    let plugin = PluginInfo {
        index: 1,
        name: name("rm-fast"),
        kind: name("rm"),
        cpus: CpuSet::first(4),
        band: (50, 89),
        specs: 6,
        out_of_service: true,
    };
    let cpu = CpuInfo { cpu: 3, free: Charge::ratio(3, 4), used: Charge::ratio(1, 4), specs: 2 };
    let said =
        PluginVerdict::Ok { cpu: Some(0), charge: Charge::ratio(1, 5), notes: Notes::default() };
    let mut text = [0; PLUGIN_TEXT_MAX];
    text[..8].copy_from_slice(b"no\x1b room");
    let text = PluginText::from_untrusted(&text);
    assert_eq!(text.as_str(), "no? room");
    let answers = vec![PluginAnswer { plugin: 0, name: name("edf"), verdict: said, text }];
    vec![
        ("welcome", Reply::Welcome { version: 1, instance: 0x1122_3344_5566_7788 }),
        ("granted", Reply::Granted(granted())),
        (
            "granted-group",
            Reply::GrantedGroup(vec![granted(), Granted { cpu: None, runtime: None, ..granted() }]),
        ),
        ("done", Reply::Done),
        ("refused", Reply::Refused(Box::new(refusal()))),
        ("spec", Reply::Spec(Box::new(info))),
        ("spec-unattached", Reply::Spec(Box::new(SpecInfo { tid: None, attr: None, ..info }))),
        (
            "spec-detached",
            Reply::Spec(Box::new(SpecInfo {
                tid: None,
                attr: None,
                detached: Some(DetachCause::Affinity),
                ..info
            })),
        ),
        ("explained", Reply::Explained { chosen: Some(0), answers, refusal: None }),
        (
            "explained-refused",
            Reply::Explained { chosen: None, answers: vec![], refusal: Some(Box::new(refusal())) },
        ),
        ("status-reply", Reply::Status(Box::new(status))),
        ("counters-reply", Reply::Counters(Box::new(counters))),
        ("plugin-reply", Reply::Plugin(Box::new(plugin))),
        ("plugin-cpu-reply", Reply::PluginCpu(cpu)),
        ("session", Reply::Session(SessionInfo { session: 9, pid: 4300, uid: 1000, specs: 2 })),
        ("end", Reply::End),
        ("done-but-asleep", Reply::DoneWithCaveat(Caveat::PendingWakeup)),
        ("done-but-demoted", Reply::DoneWithCaveat(Caveat::PolicyLost { errno: 1 })),
    ]
}

fn records() -> Vec<(&'static str, Record)> {
    let thread = RecordThread {
        tid: 4321,
        tgid: 4300,
        start: 123_456,
        inode: 987,
        previous: attr(Policy::Other { nice: -5 }),
        applied: attr(deadline()),
    };
    let record = Record {
        spec: SpecId(77),
        token: granted().token,
        uid: 1000,
        pid: 4300,
        pid_start: 123_000,
        // A record has no thread that its task is meant for.
        task: Task { thread: None, ..task() },
        plugin: name("edf"),
        cpu: Some(3),
        runtime: Some(Work::from_ns(2_500_000)),
        charge: Charge::ratio(1, 4),
        priority: 0,
        terms: None,
        thread: Some(thread),
        is_from_front_end: false,
    };
    vec![
        ("record", record),
        ("record-unattached", Record { thread: None, cpu: None, runtime: None, ..record }),
        ("record-front-end", Record { is_from_front_end: true, ..record }),
    ]
}

/// Returns every sample with the name of its file.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut all = Vec::new();
    for (name, request) in requests() {
        let len = request.encode(SEQ, &mut buffer);
        all.push((name, buffer[..len].to_vec()));
    }
    for (name, reply) in replies() {
        let len = reply.encode(SEQ, &mut buffer);
        all.push((name, buffer[..len].to_vec()));
    }
    all.extend(records().into_iter().map(|(name, record)| (name, record.encode().to_vec())));
    all
}

#[test]
fn the_bytes_of_version_4_do_not_change() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/wire");
    let bless = std::env::var_os("TALEA_BLESS").is_some();
    for (name, bytes) in samples() {
        let path = folder.join(name);
        if bless && !path.exists() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &bytes).expect("a seed");
        }
        let kept =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(kept == bytes, "{name} has different bytes: this is another protocol version");
    }
    let files = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(files, samples().len(), "a seed without a message is in {}", folder.display());
}

#[test]
fn seeds_and_mutations_of_them_never_panic_and_have_one_encoding() {
    let pool: Vec<Vec<u8>> = samples().into_iter().map(|(_, bytes)| bytes).collect();
    for bytes in &pool {
        fuzz_wire(bytes);
    }
    let rounds = std::env::var("TALEA_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let mut rng = Rng::new(0x7a1e_a000_0000_0002);
    for round in 0..rounds.unwrap_or(20_000) {
        let bytes = mutated(&pool[rng.below(pool.len())], &pool, &mut rng);
        let held = catch_unwind(AssertUnwindSafe(|| fuzz_wire(&bytes)));
        assert!(held.is_ok(), "round {round}: {bytes:?}");
    }
}
