//! Defects of the original ReTiF that the other tests do not cover.

use crate::tasks::{ms, periodic, ranked, reserved, with, work_us};
use talea_core::{CpuSet, Params, Span};
use talea_kernel_tests::agent::hex;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, kernel, needs, needs_root,
};
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::wire::decode_reply;
use talea_proto::{Code, Field, MESSAGE_MAX, Refusal, Reply, Request, SpecId, Task, ThreadRef};

/// Returns a configuration of `rm`, `rr` and `fp` on these CPUs, without access rules.
fn on_cpus(cpus: &str) -> String {
    let plugin = |kind: &str, band: &str| {
        format!(
            "[[plugin]]\nname = \"{kind}\"\nkind = \"{kind}\"\ncpus = \"{cpus}\"\npriorities = \"{band}\"\n"
        )
    };
    let plugins = [plugin("rm", "60-79"), plugin("rr", "40-49"), plugin("fp", "20-39")].concat();
    format!("[daemon]\naccess = \"off\"\n{plugins}")
}

fn code(reply: &Reply) -> Code {
    match reply {
        Reply::Refused(refusal) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn retif_m1_plugins_whose_cpus_do_not_begin_at_zero_serve_and_count_there() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("m1");
    let daemon = Daemon::start(&bench, &on_cpus("1"));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let tasks = [with("rm", reserved(10, 1_000)), with("rr", ranked(5)), with("fp", ranked(5))];
    for (plugin, task) in (0..).zip(tasks) {
        for count in 1..=5 {
            let granted = client.create(task);
            assert_eq!(granted.cpu, Some(1));
            let tid = alice.thread();
            client.attach(granted.spec, tid);
            assert_eq!(kernel::affinity(tid), CpuSet::single(1));
            match client.ask(&Request::PluginCpu { plugin, index: 0 }) {
                Reply::PluginCpu(info) => assert_eq!((info.cpu, info.specs), (1, count)),
                other => panic!("{other:?}"),
            }
        }
        // The second of one, and what would be CPU 1 if numbers were indexes.
        assert_eq!(client.ask(&Request::PluginCpu { plugin, index: 1 }), Reply::End);
    }
}

#[test]
fn retif_m2_no_number_in_the_priority_s_place_is_more_than_a_number() {
    needs_root!();
    let bench = Bench::new("m2");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    // Where the priority stands is where two requests differ that differ in nothing else.
    let encoded = |priority: u8| {
        let mut bytes = [0; MESSAGE_MAX];
        let length = Request::Create(with("fp", ranked(priority))).encode(7, &mut bytes);
        bytes[..length].to_vec()
    };
    let (one, two) = (encoded(1), encoded(2));
    let differ: Vec<usize> = (0..one.len()).filter(|&at| one[at] != two[at]).collect();
    let [at] = differ[..] else { panic!("one byte: {differ:?}") };
    let mut refused = 0;
    for value in 0..=255 {
        for beyond in [None, Some(1), Some(255)] {
            let mut bytes = one.clone();
            bytes[at] = value;
            if let Some(beyond) = beyond {
                // 5,000 and more, and what a sign or a wider number would make of it.
                bytes[at + 1] = beyond;
            }
            assert_eq!(client.send_bytes(&bytes), "sent");
            match client.receive().expect("an answer").1 {
                Reply::Granted(granted) => {
                    assert!((1..=99).contains(&value) && beyond.is_none(), "{value} {beyond:?}");
                    assert!((20..=39).contains(&granted.priority));
                    client.done(&Request::Release(granted.spec));
                }
                other => {
                    assert_eq!(code(&other), Code::Malformed, "{value} {beyond:?}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 3 * 256 - 99);
    let granted = client.create(with("fp", ranked(99)));
    client.attach(granted.spec, alice.thread());
}

/// Receives an answer of the daemon; returns its bytes, its number, and the decoded reply.
fn raw(client: &Client) -> (Vec<u8>, u32, Reply) {
    let said = client.agent.order(&format!("receive {}", client.index()));
    let bytes: Vec<u8> = (0..said.len() / 2)
        .map(|at| {
            u8::from_str_radix(&said[2 * at..2 * at + 2], 16).unwrap_or_else(|_| panic!("{said}"))
        })
        .collect();
    let (seq, reply) = decode_reply(&bytes).unwrap_or_else(|garbled| panic!("{garbled:?}"));
    (bytes, seq, reply)
}

#[test]
fn retif_m5_every_byte_of_every_answer_means_something() {
    needs_root!();
    let bench = Bench::new("m5");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", reserved(10, 1_000)));
    client.attach(granted.spec, alice.thread());
    let spec = granted.spec;
    let mut seen = Vec::new();
    // Long answers between short ones, so that a buffer has something to give away.
    for _ in 0..3 {
        for request in [
            Request::Query(spec),
            Request::Status,
            Request::Query(SpecId(1 << 40)),
            Request::Explain(with("rm", reserved(10, 9_500))),
            Request::Explain(Task::default()),
            Request::Create(Task::default()),
            Request::Release(SpecId(9_999)),
            Request::Plugin(0),
            Request::Plugin(99),
            Request::PluginCpu { plugin: 1, index: 0 },
            Request::PluginCpu { plugin: 1, index: 77 },
            Request::NextSpec(SpecId(0)),
            Request::NextSession(0),
            Request::CreateGroup(vec![with("rm", periodic(10)); 3]),
            Request::CreateGroup(vec![ranked(5), Task::default()]),
            Request::Attach { spec, thread: ThreadRef::Pidfd },
            Request::Change { spec, task: with("rm", reserved(10, 900)) },
        ] {
            client.send(&request);
            let (bytes, seq, reply) = raw(&client);
            // The decoded reply, encoded into a buffer with other content, equals the received
            // bytes.
            let mut again = [0xa5; MESSAGE_MAX];
            let length = reply.encode(seq, &mut again);
            assert_eq!(hex(&bytes), hex(&again[..length]), "{request:?}: {reply:?}");
            seen.push(bytes.len());
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 6, "answers of many lengths: {seen:?}");
}

#[test]
fn retif_m7_more_descriptors_than_1024_are_connections_like_any_other() {
    needs_root!();
    let bench = Bench::new("m7");
    let quota =
        "[daemon]\naccess = \"off\"\n[daemon.quota]\nsessions_per_user = 1000\nsessions = 2000\n";
    let daemon = Daemon::start(&bench, &format!("{quota}{}", config::PLUGINS));
    // Two users; neither needs so many alone.
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let first = alice.connect(&daemon);
    let early = first.create(with("rm", periodic(10)));
    for agent in [&alice, &bob] {
        let said = agent.order(&format!("connect-many {} 700", daemon.socket().display()));
        needs!("700 descriptors for a client", said == "700");
    }
    let late = bob.connect(&daemon);
    let highest = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
        .expect("a living daemon")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .max();
    needs!("more than 1,400 descriptors for a daemon", highest > Some(1_400));
    // The client beyond the limit is served, and so are the earlier ones.
    let granted = late.create(with("rm", periodic(20)));
    let tid = bob.thread();
    late.attach(granted.spec, tid);
    assert!(kernel::policy(tid).is_realtime());
    assert_eq!(first.query(early.spec).granted.spec, early.spec);
    assert_eq!(
        late.refused(&Request::Query(early.spec)).code,
        Code::NoSuchSpec,
        "credentials are not mixed up"
    );
    assert_eq!(late.status().sessions, 1_402);
    late.done(&Request::Release(granted.spec));
    // When they all disconnect, no other client is harmed.
    for agent in [&alice, &bob] {
        agent.order("close-all");
    }
    let root = Agent::root();
    let watcher = root.connect(&daemon);
    talea_kernel_tests::eventually("all of them are gone", || watcher.status().sessions == 1);
    assert_eq!(watcher.status().specs, 0);
}

#[test]
fn retif_m8_a_file_that_is_no_plugin_or_has_no_cpu_starts_no_daemon() {
    needs_root!();
    let bench = Bench::new("m8");
    let nothing = bench.write("nothing.c", "int nothing;\n");
    let halves = bench.write(
        "halves.c",
        "#include \"talea_plugin.h\"\n\
         const struct talea_plugin *talea_plugin_entry(uint32_t abi);\n\
         const struct talea_plugin *talea_plugin_entry(uint32_t abi)\n\
         { static const struct talea_plugin plugin = { .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI };\n\
         (void)abi; return &plugin; }\n",
    );
    let refused = |text: &str| match Daemon::launch(&bench, &bench.write("talead.toml", text), &[])
    {
        Ok(daemon) => panic!("it started: {}", daemon.log()),
        Err(failed) => failed,
    };
    for (source, lacks) in [(nothing, "talea_plugin_entry"), (halves, "init")] {
        let object = bench.plugin(source.to_str().expect("a plain path"));
        let failed = refused(&crate::foreign::foreign("mine", &object, ""));
        assert_eq!(failed.code, Some(1), "{failed:?}");
        assert!(failed.said.contains("mine") && failed.said.contains(lacks), "{failed:?}");
    }
    for cpus in ["", "4095", "0-"] {
        let failed = refused(&on_cpus(cpus));
        assert_eq!(failed.code, Some(2), "{cpus:?}: {failed:?}");
        assert!(failed.said.contains("talead.toml:"), "{failed:?}");
    }
}

#[test]
fn retif_w6_a_hundred_and_fifty_grants_and_releases_use_up_no_level() {
    needs_root!();
    let bench = Bench::new("w6");
    let config = "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"0\"\n\
                  priorities = \"50-52\"\n";
    let daemon = Daemon::start(&bench, config);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for round in 0..150 {
        let granted = client.create(periodic(7 + round % 3));
        client.done(&Request::Release(granted.spec));
    }
    let threads = [30, 10, 20].map(|period| {
        let granted = client.create(periodic(period));
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        tid
    });
    // Three distinct periods in a window of three: the original gave 2, 1, 1.
    assert_eq!(threads.map(kernel::priority), [50, 52, 51]);
}

#[test]
fn retif_w9_periods_beyond_31_bits_of_microseconds_are_counted_as_they_are() {
    needs_root!();
    let bench = Bench::new("w9");
    let config = "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"0\"\n\
                  priorities = \"50-60\"\ntest = \"necessary\"\n";
    let daemon = Daemon::start(&bench, config);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    // 2^31 + 10 us with 2·10^9 us of runtime turned the original's utilisation negative.
    let params = Params {
        period: Some(Span::from_ns(((1 << 31) + 10) * 1_000)),
        runtime: Some(work_us(2_000_000_000)),
        ..Params::default()
    };
    let long = client.create(Task { params, ..Task::default() });
    let tid = alice.thread();
    client.attach(long.spec, tid);
    assert!(kernel::policy(tid).is_realtime());
    let Reply::PluginCpu(info) = client.ask(&Request::PluginCpu { plugin: 0, index: 0 }) else {
        panic!("a CPU");
    };
    assert!((931_000..932_000).contains(&info.used.ppm()), "{info:?}");
    for _ in 0..2 {
        let refusal = client.refused(&Request::Create(reserved(100, 90_000)));
        assert_eq!(refusal.code, Code::NoPlugin, "two of 90 % more went in");
    }
    client.create(reserved(100, 6_000));
}

#[test]
fn retif_w10_ids_are_whole_numbers_that_refused_requests_do_not_use_up() {
    needs_root!();
    let bench = Bench::new("w10");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let first = client.create(with("rm", periodic(10)));
    assert_eq!(first.spec, SpecId(1));
    for _ in 0..100 {
        client.refused(&Request::Create(Task::default()));
        client.refused(&Request::CreateGroup(vec![ranked(5), Task::default()]));
    }
    let second = client.create(with("rm", periodic(10)));
    assert_eq!(second.spec, SpecId(2));
    client.done(&Request::Release(second.spec));
    assert_eq!(client.create(with("rm", periodic(10))).spec, SpecId(3), "none is given twice");
    // 2^24 is where floats end; ids on the wire do not: the neighbours of a large one are others.
    for id in [(1 << 24) + 1, (1 << 53) + 1, (1 << 56) + 1] {
        assert_eq!(client.refused(&Request::Release(SpecId(id))).code, Code::NoSuchSpec);
    }
    daemon.kill();
    daemon.restart();
    let client = alice.connect(&daemon);
    assert_eq!(client.create(with("rm", periodic(10))).spec, SpecId(4), "nor by the next daemon");
}

/// Returns the reason and the field of the only plugin's rejection, if there is one.
fn reason(refusal: &Refusal) -> Option<(RejectionReason, Field)> {
    match refusal.answers.as_slice() {
        [answer] => match answer.verdict {
            PluginVerdict::No(no) => Some((no.reason, no.field)),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn retif_w12_whatever_is_impossible_stays_impossible_with_the_test_ignored() {
    needs_root!();
    let bench = Bench::new("w12-ignored");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut task = reserved(10, 5_000);
    task.ignore_admission = true;
    task.params.priority = Some(talea_core::Priority(1));
    task.params.deadline = Some(ms(4));
    for plugin in ["edf", "rm", "rr", "fp"] {
        let refusal = client.refused(&Request::Create(with(plugin, task)));
        assert_eq!((refusal.code, refusal.field), (Code::Malformed, Field::Runtime), "{plugin}");
    }
    task.params.deadline = Some(ms(20));
    let refusal = client.refused(&Request::Create(with("edf", task)));
    assert_eq!(reason(&refusal), Some((RejectionReason::Contradiction, Field::Deadline)), "D > T");
}
