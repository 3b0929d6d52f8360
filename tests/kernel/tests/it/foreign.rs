//! Foreign plugins in C, well and badly behaved, while other plugins serve.

use crate::tasks::{periodic, ranked, reserved, with, work_us};
use std::path::Path;
use talea_core::CpuSet;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::Policy;
use talea_os::{Tid, clock, sched};
use talea_proto::message::PluginInfo;
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Code, Refusal, Reply, Request, Task};

/// Returns the configuration of a foreign plugin.
pub(crate) fn foreign(name: &str, object: &Path, argument: &str) -> String {
    banded(name, object, argument, "5-14")
}

/// Returns the configuration of a foreign plugin with these priorities.
fn banded(name: &str, object: &Path, argument: &str, priorities: &str) -> String {
    format!(
        "[[plugin]]\nname = \"{name}\"\nkind = \"foreign\"\nmodule = \"{}\"\nargument = \"{argument}\"\n\
         cpus = \"all\"\npriorities = \"{priorities}\"\ntimeout = \"300ms\"\n",
        object.display()
    )
}

/// Returns the configuration of two instances of the example, with different priorities.
fn two_instances(bench: &Bench) -> String {
    let object = bench.plugin("examples/plugin-least-loaded/least_loaded.c");
    format!(
        "[daemon]\naccess = \"off\"\n{}{}",
        foreign("one", &object, ""),
        banded("two", &object, "", "15-24")
    )
}

/// Returns a configuration of one misbehaving plugin before the built-in ones.
fn beside(bench: &Bench, name: &str, argument: &str) -> String {
    let object = bench.plugin("misbehave");
    format!("[daemon]\naccess = \"off\"\n{}{}", foreign(name, &object, argument), config::PLUGINS)
}

fn reason(refusal: &Refusal) -> Option<RejectionReason> {
    refusal.answers.iter().find_map(|answer| match answer.verdict {
        PluginVerdict::No(no) => Some(no.reason),
        _ => None,
    })
}

#[test]
fn r18_a_plugin_in_c_places_real_threads() {
    needs_root!();
    let bench = Bench::new("r18");
    let daemon = Daemon::start(&bench, &two_instances(&bench));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let cpus = kernel::cpus();
    let mut used = Vec::new();
    for _ in 0..cpus.len() {
        let granted = client.create(with("one", ranked(99)));
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        assert_eq!(kernel::policy(tid), Policy::Fifo(14));
        let cpu = granted.cpu.expect("one CPU");
        assert_eq!(kernel::affinity(tid), CpuSet::single(cpu));
        used.push((cpu, granted.spec, tid));
    }
    let places: CpuSet = used.iter().map(|&(cpu, ..)| cpu).collect();
    assert_eq!(places, cpus, "one on each CPU");
    // The same object under another name is another instance with a ledger of its own.
    let granted = client.create(with("two", ranked(1)));
    assert_eq!(granted.cpu, Some(0));
    assert_eq!(granted.priority, 15);
    // Released, it makes room where it was.
    let (cpu, spec, tid) = used[1];
    client.done(&Request::Release(spec));
    assert!(kernel::is_ordinary(tid));
    let again = client.create(with("one", ranked(1)));
    assert_eq!(again.cpu, Some(cpu));
    assert_eq!(client.refused(&Request::Create(with("one", periodic(10)))).code, Code::NoPlugin);
    assert_eq!(
        daemon.said_since_start().iter().filter(|line| !line.contains("refused")).count(),
        0
    );
}

/// The example of the manual: two loops, the newest one above the other, all of the desired
/// runtime, and a reason.
#[test]
fn r18_a_plugin_in_c_gives_real_threads_new_levels_and_tells_why_it_refuses() {
    needs_root!();
    let bench = Bench::new("r18-levels");
    let object = bench.plugin("examples/c/plugins/two_loops.c");
    let config = format!("[daemon]\naccess = \"off\"\n{}", foreign("loops", &object, ""));
    let daemon = Daemon::start(&bench, &config);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let has = |tid, level| {
        eventually("its level", || kernel::policy(tid) == Policy::Fifo(level));
    };
    let mut task = with("loops", reserved(10, 1_000));
    task.params.desired = Some(work_us(2_000));
    let (first, one) = (client.create(task), alice.thread());
    assert_eq!((first.priority, first.runtime), (14, Some(work_us(2_000))));
    client.attach(first.spec, one);
    has(one, 14);
    let (second, other) = (client.create(task), alice.thread());
    client.attach(second.spec, other);
    has(other, 14);
    has(one, 5);
    let refusal = client.refused(&Request::Create(task));
    assert_eq!(refusal.answers[0].text.as_str(), "two loops run; release one first");
    client.done(&Request::Release(second.spec));
    has(one, 14);
    client.done(&Request::Release(first.spec));
    assert!(kernel::is_ordinary(one) && kernel::is_ordinary(other));
}

/// A thread on all CPUs of an instance: its affinity, its charge on each of them, and its return.
#[test]
fn r18_a_plugin_in_c_places_a_real_thread_on_a_set_of_cpus() {
    needs_root!();
    let cpus = kernel::cpus();
    needs!("a second CPU", cpus.len() > 1);
    let bench = Bench::new("r18-set");
    let object = bench.plugin("spread");
    let config = format!(
        "[daemon]\naccess = \"off\"\n{}{}{}",
        foreign("spread", &object, ""),
        banded("blind", &object, "blind", "15-16"),
        config::PLUGINS
    );
    let mut daemon = Daemon::start(&bench, &config);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let tid = alice.thread();
    let before = kernel::attr(tid);
    // From one CPU to all of them: the affinity is that of the answer, not that of the thread.
    let granted = client.create(with("fp", ranked(5)));
    client.attach(granted.spec, tid);
    assert_eq!(kernel::affinity(tid).len(), 1);
    let task = with("spread", reserved(10, 6_000));
    let is_spread = |tid| {
        assert_eq!(kernel::policy(tid), Policy::Fifo(5));
        assert_eq!(kernel::affinity(tid), cpus);
    };
    let Reply::Granted(spread) = client.ask(&Request::Change { spec: granted.spec, task }) else {
        panic!("changed")
    };
    assert_eq!(spread.cpu, None);
    is_spread(tid);
    // Each CPU has 60 % less.
    let refusal = client.refused(&Request::Create(with("edf", reserved(100, 80_000))));
    assert_eq!(reason(&refusal), Some(RejectionReason::NoRoom), "{refusal:?}");
    // The next daemon has the set, too.
    daemon.kill();
    daemon.restart();
    let client = alice.connect(&daemon);
    assert!(matches!(client.claim(spread.spec, spread.token), Reply::Granted(_)));
    assert_eq!(client.query(spread.spec).granted.cpu, None);
    is_spread(tid);
    let refusal = client.refused(&Request::Create(with("edf", reserved(100, 80_000))));
    assert_eq!(reason(&refusal), Some(RejectionReason::NoRoom), "{refusal:?}");
    client.done(&Request::Detach(spread.spec));
    assert_eq!(kernel::attr(tid), before);
    client.attach(spread.spec, tid);
    is_spread(tid);
    client.done(&Request::Release(spread.spec));
    assert_eq!(kernel::attr(tid), before);
    // A client that accepts one CPU gets that one, whether or not the plugin looks at its own set.
    let first = CpuSet::single(cpus.iter().next().expect("a CPU"));
    let part =
        |plugin, cpus| Task { cpus, cpus_mandatory: true, ..with(plugin, reserved(10, 1_000)) };
    assert_eq!(client.create(part("spread", first)).cpu, first.iter().next());
    assert_eq!(client.create(part("blind", first)).cpu, first.iter().next());
    assert_eq!(client.create(part("blind", cpus)).cpu, None);
}

#[test]
fn r18_a_plugin_whose_init_refuses_starts_no_daemon() {
    needs_root!();
    let bench = Bench::new("r18-init");
    let file = bench.write("talead.toml", &beside(&bench, "unwilling", "init"));
    let Err(failed) = Daemon::launch(&bench, &file, &[]) else { panic!("it started") };
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(
        failed.said.contains("unwilling") && failed.said.contains("refused with 42"),
        "{failed:?}"
    );
    assert!(failed.said.contains(": no, I will not"), "what it wrote is in the log: {failed:?}");
}

#[test]
fn attack_23_a_plugin_that_crashes_at_each_start_keeps_no_daemon_from_serving() {
    needs_root!();
    let bench = Bench::new("r18-crash-init");
    let mut daemon = Daemon::start(&bench, &beside(&bench, "broken", "crash-init"));
    for _ in 0..2 {
        daemon.wait_for_line("was killed by signal 11 during init").expect("a living daemon");
        let bob = Agent::user(BOB);
        let client = bob.connect(&daemon);
        let granted = client.create(with("rm", periodic(10)));
        client.done(&Request::Release(granted.spec));
        let refusal = client.refused(&Request::Create(with("broken", ranked(60))));
        assert_eq!(reason(&refusal), Some(RejectionReason::OutOfService), "{refusal:?}");
        daemon.kill();
        daemon.restart();
    }
}

/// Returns the daemon's information about the first plugin.
fn plugin_info(client: &Client) -> PluginInfo {
    match client.ask(&Request::Plugin(0)) {
        Reply::Plugin(info) => *info,
        other => panic!("{other:?}"),
    }
}

/// State of a plugin after it has misbehaved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    OutOfService,
    /// A new host serves.
    Restarted,
}

/// Checks that another client is served while the plugin misbehaves as `argument` says, and the
/// plugin's state afterwards.
fn misbehaves(name: &str, argument: &str, line: &str, afterwards: Afterwards) {
    let bench = Bench::new(name);
    let daemon = Daemon::start(&bench, &beside(&bench, name, argument));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let (victim, honest) = (alice.connect(&daemon), bob.connect(&daemon));
    // One task is placed while all is well: the plugin misbehaves from the second question on.
    let tid = alice.thread();
    let early = victim.create(with(name, ranked(50)));
    victim.attach(early.spec, tid);
    let attr = kernel::attr(tid);
    victim.send(&Request::Create(with(name, ranked(60))));
    // Meanwhile, one after the other, each with its answer.
    for _ in 0..20 {
        let granted = honest.create(with("rm", periodic(10)));
        honest.done(&Request::Release(granted.spec));
    }
    let (_, said) = victim.receive().expect("an answer");
    match said {
        Reply::Refused(refusal) => {
            assert_eq!(refusal.code, Code::NoPlugin, "{refusal:?}");
            assert_eq!(reason(&refusal), Some(RejectionReason::OutOfService), "{refusal:?}");
        }
        other => panic!("{other:?}"),
    }
    daemon.wait_for_line(line).expect("a living daemon");
    daemon.wait_for_line("out of service").expect("a living daemon");
    // Accepted specs keep their attributes and can be released.
    assert_eq!(kernel::attr(tid), attr);
    let info = plugin_info;
    if afterwards == Afterwards::Restarted {
        daemon.wait_for_line("is in service again").expect("a living daemon");
        assert!(!info(&victim).out_of_service && !daemon.children().is_empty());
        // The new host answers its first question well, as the old one has.
        let again = victim.create(with(name, ranked(60)));
        victim.done(&Request::Release(again.spec));
        victim.done(&Request::Release(early.spec));
        assert!(kernel::is_ordinary(tid));
        return;
    }
    assert!(info(&victim).out_of_service);
    let refusal = victim.refused(&Request::Create(with(name, ranked(60))));
    assert_eq!(reason(&refusal), Some(RejectionReason::OutOfService));
    // No plugin named: the next one serves.
    let other = victim.create(ranked(60));
    assert_ne!(other.plugin, 0);
    victim.done(&Request::Release(early.spec));
    assert!(kernel::is_ordinary(tid));
    eventually("no host is left", || daemon.children().is_empty());
}

#[test]
fn r18_a_plugin_that_hangs_delays_no_other_plugin() {
    needs_root!();
    misbehaves("hangs", "hang", "no answer within 300ms", Afterwards::Restarted);
}

#[test]
fn r18_a_plugin_that_spins_delays_no_other_plugin() {
    needs_root!();
    misbehaves("spins", "spin", "no answer within 300ms", Afterwards::Restarted);
}

#[test]
fn r18_a_plugin_that_crashes_ends_no_other_plugin() {
    needs_root!();
    misbehaves("crashes", "crash", "was killed by signal 11", Afterwards::Restarted);
}

#[test]
fn r18_a_plugin_that_exits_ends_no_other_plugin() {
    needs_root!();
    misbehaves("exits", "exit", "exited with code 0", Afterwards::Restarted);
}

#[test]
fn r18_a_plugin_that_lies_about_its_cpu_is_put_out_of_service() {
    needs_root!();
    misbehaves("liar-cpu", "lie-cpu", "outside its bounds", Afterwards::OutOfService);
}

#[test]
fn r18_a_plugin_that_lies_about_its_priority_is_put_out_of_service() {
    needs_root!();
    misbehaves("liar-prio", "lie-priority", "outside its bounds", Afterwards::OutOfService);
}

#[test]
fn r18_a_plugin_that_answers_nonsense_is_put_out_of_service() {
    needs_root!();
    misbehaves("nonsense", "lie-verdict", "outside its bounds", Afterwards::OutOfService);
}

#[test]
fn r18_a_plugin_that_answers_another_question_is_put_out_of_service() {
    needs_root!();
    misbehaves(
        "forger",
        "forge",
        "its answer has the ticket of another call",
        Afterwards::OutOfService,
    );
}

#[test]
fn r18_a_plugin_that_talks_without_end_delays_no_client_and_fills_no_log() {
    needs_root!();
    let bench = Bench::new("talks");
    let daemon = Daemon::start(&bench, &beside(&bench, "talks", "talk"));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for _ in 0..20 {
        let granted = client.create(with("talks", ranked(50)));
        client.done(&Request::Release(granted.spec));
    }
    // Ten lines a second and a remark, over the few seconds at most that this takes.
    let lines = daemon.said_since_start().len();
    assert!(lines < 200, "{lines} lines of 20,000");
}

#[test]
fn r18_a_plugin_is_notified_of_an_orderly_end() {
    needs_root!();
    let bench = Bench::new("goodbye");
    let mut daemon = Daemon::start(&bench, &beside(&bench, "polite", ""));
    assert!(daemon.terminate().success());
    assert!(daemon.log().contains("plugin `polite`: goodbye"), "{}", daemon.log());
}

/// Each host runs as a user that nothing else has, without the daemon's protection from the
/// out-of-memory killer.
#[test]
fn attack_23_each_host_has_a_user_of_its_own() {
    needs_root!();
    let bench = Bench::new("host-users");
    let daemon = Daemon::start(&bench, &two_instances(&bench));
    let uids: Vec<u32> = daemon
        .children()
        .iter()
        .map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a host");
            let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("users");
            let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert!(ids.iter().all(|&id| id == ids[0]), "{line}");
            assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
            ids[0]
        })
        .collect();
    assert_eq!(uids.len(), 2);
    assert!(
        uids[0] != uids[1] && uids.iter().all(|uid| talea_proto::host::HOST_UIDS.contains(uid)),
        "{uids:?}"
    );
}

#[test]
fn attack_16_a_user_with_many_requests_does_not_delay_another_at_a_slow_plugin() {
    const CROWD: usize = 20;
    needs_root!();
    let bench = Bench::new("slow");
    let daemon = Daemon::start(&bench, &beside(&bench, "slow", "slow"));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    let crowd: Vec<_> = (0..CROWD).map(|_| alice.connect(&daemon)).collect();
    for client in &crowd {
        client.send(&Request::Create(with("slow", ranked(50))));
    }
    let (started, answered) = (std::time::Instant::now(), |client: &talea_kernel_tests::Client| {
        matches!(client.receive().expect("an answer").1, Reply::Granted(_))
    });
    assert!(matches!(honest.ask(&Request::Create(with("slow", ranked(50)))), Reply::Granted(_)));
    let own = started.elapsed();
    assert!(crowd.iter().all(answered));
    // In order of arrival, this one would have been the last.
    assert!(own * 3 < started.elapsed(), "{own:?} of {:?}", started.elapsed());
}

/// The daemon serves before a plugin whose `init` takes long.
#[test]
fn attack_10_a_plugin_that_starts_late_delays_no_start() {
    needs_root!();
    let bench = Bench::new("late");
    let daemon = Daemon::start(&bench, &beside(&bench, "late", "late"));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    assert!(plugin_info(&client).out_of_service, "{}", daemon.log());
    let refusal = client.refused(&Request::Create(with("late", ranked(50))));
    assert_eq!(reason(&refusal), Some(RejectionReason::OutOfService), "{refusal:?}");
    client.done(&Request::Release(client.create(with("fp", ranked(50))).spec));
    daemon.wait_for_line("is in service").expect("a living daemon");
    client.create(with("late", ranked(50)));
    assert!(!plugin_info(&client).out_of_service);
}

/// Threads that occupy every CPU above ordinary threads for some time.
struct Hogs(Vec<std::thread::JoinHandle<()>>);

impl Hogs {
    fn start(milliseconds: u64) -> Hogs {
        let end = clock::now() + talea_core::Span::from_ns(milliseconds * 1_000_000);
        let hog = |cpu| {
            std::thread::spawn(move || {
                sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).expect("root may");
                sched::set(Tid::current(), &sched::Attr::grant(Policy::Fifo(60)))
                    .expect("root may");
                while clock::now() < end {
                    std::hint::spin_loop();
                }
            })
        };
        Hogs(kernel::cpus().iter().map(hog).collect())
    }

    fn finish(self) {
        for hog in self.0 {
            hog.join().expect("a hog");
        }
    }
}

/// On a machine on which no ordinary process runs for a while, the daemon does not wait for the
/// start of a host.
#[test]
fn attack_10_a_host_that_starts_again_beside_hogs_delays_no_answer() {
    const HOGS_MS: u64 = 800;
    needs_root!();
    let bench = Bench::new("restart-beside-hogs");
    let daemon = Daemon::start(&bench, &beside(&bench, "patient", "slow"));
    let bob = Agent::user(BOB);
    let raised = sched::Attr::grant(Policy::Fifo(90));
    sched::set(kernel::tid(bob.os_pid()), &raised).expect("root may");
    let client = bob.connect(&daemon);
    let before = daemon.children();
    let [host] = before[..] else { panic!("one host: {before:?}") };
    let host = rustix::process::Pid::from_raw(host).expect("a pid");
    rustix::process::kill_process(host, rustix::process::Signal::KILL).expect("root may");
    daemon.wait_for_line("out of service").expect("a living daemon");
    // The host starts again after 100 ms.
    let own = sched::get(Tid::current()).expect("own attributes");
    sched::set(Tid::current(), &raised).expect("root may");
    let hogs = Hogs::start(HOGS_MS);
    let status = client.encode(&Request::Status);
    let said = bob.order(&format!("response-times {} 400 1000 {status}", client.index()));
    sched::set(Tid::current(), &own).expect("as before");
    hogs.finish();
    let max: u64 = said.split(' ').nth(2).and_then(|max| max.parse().ok()).expect("numbers");
    println!("longest answer beside hogs of {HOGS_MS} ms during a restart: {} us", max / 1000);
    assert!(max < HOGS_MS * 1_000_000 / 4, "{max} ns: the loop waited for the host");
    daemon.wait_for_line("is in service again").expect("a living daemon");
}

/// A user with real-time priority on every CPU keeps the host from its CPU for longer than the
/// time-out, and the plugin stays in service.
#[test]
fn attack_10_a_plugin_that_gets_no_cpu_stays_in_service() {
    needs_root!();
    let bench = Bench::new("no-cpu");
    let object = bench.plugin("misbehave");
    let text = foreign("patient", &object, "slow").replace("300ms", "60ms");
    let daemon =
        Daemon::start(&bench, &format!("[daemon]\naccess = \"off\"\n{text}{}", config::PLUGINS));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let hogs = Hogs::start(600);
    let before = sched::get(Tid::current()).expect("own attributes");
    sched::set(Tid::current(), &sched::Attr::grant(Policy::Fifo(61))).expect("root may");
    let answer = client.ask(&Request::Create(with("patient", ranked(50))));
    sched::set(Tid::current(), &before).expect("as before");
    hogs.finish();
    assert!(matches!(answer, Reply::Granted(_)), "{answer:?}");
    assert!(!daemon.log().contains("out of service"), "{}", daemon.log());
}
