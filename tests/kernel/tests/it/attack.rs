//! Threads that change while they are attached: credentials, CPUs, policy, nice value.
//!
//! Numbers in the names are those of the findings of the review: 1 set-user-id programs, 2 threads
//! that move, 11 services that temporarily run as a user, 14 an administrator's settings.

use crate::attacker::test_clients;
use crate::tasks::{owned_by, periodic, ranked, reserved, with};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use talea_core::CpuSet;
use talea_kernel_tests::{
    Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::{self, Attr, Policy};
use talea_proto::message::DetachCause;
use talea_proto::{Code, Granted, Owner, Reply, Request, SpecId, Task};

/// The attacker: an ordinary user with an account.
const MALLORY: u32 = 60_004;
/// A subordinate user id of the attacker.
const SUBORDINATE: u32 = 200_000;

/// Scheduling state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    attr: Attr,
    nice: i32,
    cpus: CpuSet,
}

#[track_caller]
fn state(tid: i32) -> State {
    State {
        attr: kernel::attr(tid),
        nice: sched::get_nice(kernel::tid(tid)).expect("a thread"),
        cpus: kernel::affinity(tid),
    }
}

fn test_client(bench: &Bench, uid: u32) -> Agent {
    Agent::start(Command::new(test_clients(bench)), uid)
}

/// Returns a copy of the test clients' program that runs as its owner (set-user-id), whichever user
/// starts it.
fn set_user_id(bench: &Bench, owner: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = bench.path(&format!("suid-{owner}"));
    if !program.exists() {
        talea_kernel_tests::bench::copy(test_clients(bench), &program);
        std::os::unix::fs::chown(&program, Some(owner), Some(owner)).expect("chown");
        let mode = std::fs::Permissions::from_mode(0o4755);
        std::fs::set_permissions(&program, mode).expect("mode");
    }
    program
}

/// Starts a process of Mallory's that may change its user ids.
pub(crate) fn with_cap_setuid(bench: &Bench) -> Agent {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={MALLORY}"), &format!("--regid={MALLORY}"), "--clear-groups"]);
    command.args(["--inh-caps=+setuid", "--ambient-caps=+setuid"]).arg(test_clients(bench));
    Agent::start(command, 0)
}

/// Starts a process of Mallory's that is root of a user namespace, with a subordinate user id in
/// it.
fn in_user_namespace(bench: &Bench) -> Agent {
    let mut command = Command::new("unshare");
    command.args(["--user", "sh", "-c", "read go; exec \"$0\""]).arg(test_clients(bench));
    let agent = Agent::start(command, MALLORY);
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let pid = agent.os_pid();
    eventually("the namespace is there", || {
        of(&pid.to_string()).is_some_and(|found| Some(found) != of("self"))
    });
    for (map, id) in [("gid_map", MALLORY), ("uid_map", MALLORY)] {
        let text = format!("0 {id} 1\n1 {SUBORDINATE} 10\n");
        std::fs::write(format!("/proc/{pid}/{map}"), text).expect("a map");
    }
    agent.begin("go");
    assert_eq!(agent.order("pid"), pid.to_string());
    agent
}

/// Changes the user ids of a thread: real, effective, saved.
#[track_caller]
fn become_user(agent: &Agent, tid: i32, ids: [u32; 3]) {
    let said = agent.order(&format!("become {tid} {} {} {}", ids[0], ids[1], ids[2]));
    assert_eq!(said, "became", "{ids:?}");
}

/// Returns a task of `fp` on CPU 0, where the levels of all such specs depend on each other.
fn on_cpu_0(priority: u8) -> Task {
    Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..with("fp", ranked(priority)) }
}

/// Creates and releases specs that move the levels of all others on CPU 0.
fn move_levels(client: &Client) {
    let specs: Vec<SpecId> =
        (1..9).chain(90..98).map(|p| client.create(on_cpu_0(p)).spec).collect();
    for spec in specs {
        client.done(&Request::Release(spec));
    }
}

/// Checks that the daemon detaches the thread for this cause.
#[track_caller]
fn is_detached(client: &Client, spec: SpecId, cause: DetachCause) {
    eventually("the thread is detached", || client.query(spec).tid.is_none());
    assert_eq!(client.query(spec).detached, Some(cause));
}

/// Checks that no request of the user for a grant changes a thread that has lost the grant.
#[track_caller]
fn user_has_no_power(client: &Client, granted: &Granted, tid: i32) {
    let before = state(tid);
    move_levels(client);
    for task in [on_cpu_0(95), with("rr", ranked(9)), with("edf", reserved(10, 500)), on_cpu_0(3)] {
        let said = client.ask(&Request::Change { spec: granted.spec, task });
        assert!(matches!(said, Reply::Granted(_)), "{said:?}");
    }
    assert_eq!(client.refused(&Request::Detach(granted.spec)).code, Code::NotAttached);
    match client.try_attach(granted.spec, tid) {
        Reply::Refused(refusal) => assert_eq!(refusal.code, Code::ForeignThread),
        other => panic!("attached again: {other:?}"),
    }
    client.done(&Request::Release(granted.spec));
    assert_eq!(state(tid), before);
}

#[test]
fn attack_11_a_thread_that_is_the_users_in_part_only_is_refused() {
    needs_root!();
    let bench = Bench::new("attack-11");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    let service = test_client(&bench, 0);
    let granted = client.create(on_cpu_0(5));
    for ids in [
        [0, MALLORY, 0],
        [0, MALLORY, MALLORY],
        [MALLORY, MALLORY, 0],
        [MALLORY, 0, MALLORY],
        [MALLORY, 0, 0],
        [0, 0, MALLORY],
        [BOB, MALLORY, MALLORY],
        [MALLORY, BOB, BOB],
        [BOB, BOB, BOB],
        [0, 0, 0],
    ] {
        let tid: i32 = service.order("thread").parse().expect("a thread");
        let before = state(tid);
        become_user(&service, tid, ids);
        match client.try_attach(granted.spec, tid) {
            Reply::Refused(refusal) => {
                let found = (refusal.code, refusal.limit);
                assert_eq!(found, (Code::ForeignThread, MALLORY.into()), "{ids:?}");
                assert_ne!(refusal.asked, u64::from(MALLORY), "it names another id: {ids:?}");
            }
            other => panic!("{ids:?}: {other:?}"),
        }
        assert_eq!(state(tid), before, "{ids:?}");
    }
    // A thread that is the user's in every respect.
    let tid: i32 = service.order("thread").parse().expect("a thread");
    become_user(&service, tid, [MALLORY; 3]);
    client.attach(granted.spec, tid);
    client.done(&Request::Release(granted.spec));
}

#[test]
fn attack_1_a_grant_ends_when_its_thread_changes_its_user_ids() {
    needs_root!();
    needs!("setpriv", Command::new("setpriv").arg("--version").output().is_ok());
    let bench = Bench::new("attack-1-ids");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    let agent = with_cap_setuid(&bench);
    for ids in [
        [0, 0, 0],
        [MALLORY, 0, MALLORY],
        [MALLORY, 0, 0],
        [0, MALLORY, MALLORY],
        [MALLORY, MALLORY, 0],
        [BOB, BOB, BOB],
        [MALLORY, BOB, MALLORY],
    ] {
        for task in [on_cpu_0(5), with("edf", reserved(20, 500))] {
            let tid: i32 = agent.order("thread").parse().expect("a thread");
            let before = state(tid);
            let granted = client.create(task);
            client.attach(granted.spec, tid);
            assert_ne!(state(tid), before);
            become_user(&agent, tid, ids);
            is_detached(&client, granted.spec, DetachCause::Credentials);
            assert_eq!(state(tid), before, "{ids:?}");
            user_has_no_power(&client, &granted, tid);
        }
    }
}

#[test]
fn attack_1_subordinate_user_ids_are_other_users() {
    needs_root!();
    let userns = Command::new("unshare").args(["--user", "true"]).status();
    needs!("user namespaces", userns.is_ok_and(|status| status.success()));
    let bench = Bench::new("attack-1-userns");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    let agent = in_user_namespace(&bench);
    // Root of a namespace is its user here.
    for ids in [[1, 1, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]] {
        let tid: i32 = agent.order("thread").parse().expect("a thread");
        let before = state(tid);
        let granted = client.create(on_cpu_0(5));
        client.attach(granted.spec, tid);
        become_user(&agent, tid, ids);
        is_detached(&client, granted.spec, DetachCause::Credentials);
        assert_eq!(state(tid), before, "{ids:?}");
        user_has_no_power(&client, &granted, tid);
        let fresh: i32 = agent.order("thread").parse().expect("a thread");
        become_user(&agent, fresh, ids);
        let granted = client.create(on_cpu_0(5));
        match client.try_attach(granted.spec, fresh) {
            Reply::Refused(refusal) => assert_eq!(refusal.asked, u64::from(SUBORDINATE)),
            other => panic!("{ids:?}: {other:?}"),
        }
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn attack_1_a_set_user_id_program_keeps_what_it_has_set() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("attack-1-exec");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    for uid in [0, BOB] {
        let program = set_user_id(&bench, uid);
        for owner in [Owner::Session, Owner::Process, Owner::Thread] {
            // While levels move, before and after.
            let agent = test_client(&bench, MALLORY);
            let (main, before) = (agent.os_pid(), state(agent.os_pid()));
            let granted = client.create(owned_by(owner, on_cpu_0(5)));
            client.attach(granted.spec, main);
            agent.begin(&format!("exec {}", program.display()));
            move_levels(&client);
            eventually("it runs as its owner", || effective_user(main) == uid);
            assert_eq!(agent.order("pid"), main.to_string());
            eventually("it is ordinary", || kernel::is_ordinary(main));
            eventually("its CPUs are back", || state(main) == before);
            if owner == Owner::Thread {
                let said = client.ask(&Request::Query(granted.spec));
                assert!(matches!(said, Reply::Refused(_)), "the spec ends with its thread");
            } else {
                is_detached(&client, granted.spec, DetachCause::Credentials);
                user_has_no_power(&client, &granted, main);
            }
        }
        // A daemon that stands still detects nothing; the program sets its own attributes first.
        let agent = test_client(&bench, MALLORY);
        let main = agent.os_pid();
        let granted = client.create(on_cpu_0(5));
        client.attach(granted.spec, main);
        daemon.signal(Signal::STOP);
        agent.begin(&format!("exec {}", program.display()));
        eventually("it runs as its owner", || effective_user(main) == uid);
        assert_eq!(agent.order("settle"), "settled");
        let own = state(main);
        daemon.signal(Signal::CONT);
        is_detached(&client, granted.spec, DetachCause::Credentials);
        assert_eq!(state(main).attr.policy, own.attr.policy);
        assert_eq!((state(main).nice, state(main).cpus), (own.nice, own.cpus));
        user_has_no_power(&client, &granted, main);
        // Not from the main thread: it takes over the number of the main thread.
        let agent = test_client(&bench, MALLORY);
        let (main, tid) = (agent.os_pid(), agent.thread());
        let before = state(main);
        let granted = client.create(on_cpu_0(5));
        client.attach(granted.spec, tid);
        agent.exec_from(tid, &program);
        eventually("nothing was taken along", || state(main) == before);
        client.done(&Request::Release(granted.spec));
        assert_eq!(state(main), before);
        // The same where both have a grant, whichever is higher.
        for (of_main, of_other) in [(5, 90), (90, 5)] {
            let agent = test_client(&bench, MALLORY);
            let (main, tid) = (agent.os_pid(), agent.thread());
            let before = state(main);
            let (own, other) =
                (client.create(on_cpu_0(of_main)), client.create(on_cpu_0(of_other)));
            client.attach(own.spec, main);
            client.attach(other.spec, tid);
            agent.exec_from(tid, &program);
            eventually("it has neither grant", || state(main) == before);
            is_detached(&client, own.spec, DetachCause::Credentials);
            client.done(&Request::Release(other.spec));
            user_has_no_power(&client, &own, main);
            assert_eq!(state(main), before);
        }
    }
}

#[test]
fn attack_1_orders_race_with_set_user_id_programs() {
    needs_root!();
    let bench = Bench::new("attack-1-race");
    let daemon = Daemon::start(&bench, &config::open());
    let (mallory, other) = (Agent::user(MALLORY), Agent::user(MALLORY));
    let client = mallory.connect(&daemon);
    let requester = other.connect(&daemon);
    let program = set_user_id(&bench, 0);
    for _ in 0..20 {
        let agent = test_client(&bench, MALLORY);
        let main = agent.os_pid();
        let granted = client.create(on_cpu_0(50));
        client.attach(granted.spec, main);
        agent.begin(&format!("exec {}", program.display()));
        while effective_user(main) != 0 {
            move_levels(&requester);
        }
        // From here on no order reaches it: the last one came before, or ended the grant.
        eventually("it is detached", || client.query(granted.spec).tid.is_none());
        assert!(kernel::is_ordinary(main));
        let settled = state(main);
        move_levels(&requester);
        assert_eq!(state(main), settled);
        client.done(&Request::Release(granted.spec));
        assert_eq!(state(main), settled);
    }
}

/// Starts a daemon to which the kernel sends no process events, in another network namespace.
fn without_events(bench: &Bench) -> Daemon {
    let config = bench.write("without.toml", &config::open());
    let mut daemon = Daemon::unstarted(&config, &bench.path("without"));
    let talead = daemon.command(&[]);
    let mut command = Command::new("unshare");
    command.arg("--net").arg(talead.get_program()).args(talead.get_args());
    for (name, value) in talead.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    daemon.run_command(command).expect("a daemon");
    daemon
}

#[test]
fn attack_1_orders_check_the_credentials_themselves() {
    needs_root!();
    let bench = Bench::new("attack-1-orders");
    let daemon = without_events(&bench);
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    let agent = with_cap_setuid(&bench);
    let attached = |granted: &Granted, policy: Policy| {
        let tid: i32 = agent.order("thread").parse().expect("a thread");
        sched::set(kernel::tid(tid), &Attr::plain(policy)).expect("any policy");
        client.attach(granted.spec, tid);
        tid
    };
    for _ in 0..5 {
        // The first inspection comes 200 ms after the attach.
        let granted = client.create(on_cpu_0(5));
        let tid = attached(&granted, Policy::NORMAL);
        become_user(&agent, tid, [MALLORY, 0, MALLORY]);
        move_levels(&client);
        assert!(kernel::is_ordinary(tid), "an order has reached it: {:?}", kernel::policy(tid));
        assert_eq!(client.query(granted.spec).detached, Some(DetachCause::Credentials));
        client.done(&Request::Release(granted.spec));
        // What it had before is no way up.
        let granted = client.create(on_cpu_0(5));
        let tid = attached(&granted, Policy::Fifo(3));
        become_user(&agent, tid, [MALLORY, 0, MALLORY]);
        client.ask(&Request::Release(granted.spec));
        assert!(kernel::is_ordinary(tid), "{:?}", kernel::policy(tid));
        // Its own user gets it back.
        let granted = client.create(on_cpu_0(5));
        let tid = attached(&granted, Policy::Fifo(3));
        client.done(&Request::Release(granted.spec));
        assert_eq!(kernel::policy(tid), Policy::Fifo(3));
    }
}

#[test]
fn attack_1_events_detect_changes_sooner_than_inspections() {
    needs_root!();
    let bench = Bench::new("attack-1-events");
    let median = |daemon: Daemon| {
        let mallory = Agent::user(MALLORY);
        let client = mallory.connect(&daemon);
        let agent = with_cap_setuid(&bench);
        let granted = client.create(on_cpu_0(5));
        let mut times: Vec<Duration> = (0..15)
            .map(|round| {
                let tid: i32 = agent.order("thread").parse().expect("a thread");
                client.attach(granted.spec, tid);
                std::thread::sleep(Duration::from_millis(round * 13));
                let begun = Instant::now();
                become_user(&agent, tid, [MALLORY, 0, MALLORY]);
                latency(begun, || kernel::is_ordinary(tid))
            })
            .collect();
        client.close();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let inspected = median(without_events(&bench));
    let reported = median(Daemon::start(&bench, &config::open()));
    assert!(reported * 4 < inspected, "{reported:?} with events, {inspected:?} without");
}

fn effective_user(tid: i32) -> u32 {
    talea_os::proc::status(kernel::tid(tid)).expect("a thread").uids.effective
}

/// Returns another CPU than that of a grant.
fn other_cpu(granted: &Granted) -> CpuSet {
    let own = CpuSet::single(granted.cpu.expect("a pinned grant"));
    let other = kernel::cpus().difference(&own).iter().next().expect("another CPU");
    CpuSet::single(other)
}

#[test]
fn attack_2_a_thread_that_leaves_its_cpu_twice_loses_its_grant() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("attack-2");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    for task in [with("rm", periodic(10)), with("rr", ranked(5)), with("fp", ranked(5))] {
        let tid = mallory.thread();
        let before = state(tid);
        let granted = client.create(task);
        client.attach(granted.spec, tid);
        let given = state(tid);
        let other = other_cpu(&granted);
        let leave = || sched::set_affinity(kernel::tid(tid), &other).expect("its own CPUs");
        leave();
        eventually("it is returned to its CPU", || state(tid) == given);
        leave();
        is_detached(&client, granted.spec, DetachCause::Affinity);
        assert_eq!(state(tid), State { cpus: other, ..before });
        client.done(&Request::Release(granted.spec));
        assert_eq!(state(tid), State { cpus: other, ..before });
    }
    // The lines may arrive after the replies.
    for line in ["was returned to them", "has left the CPUs of its grant again"] {
        eventually("each thread has its line in the log", || {
            daemon.log().matches(line).count() == 3
        });
    }
}

#[test]
fn attack_2_a_thread_that_lowers_itself_keeps_no_real_time_policy() {
    needs_root!();
    let bench = Bench::new("attack-2-lower");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    for detaches in [false, true] {
        let tid = mallory.thread();
        let before = state(tid);
        let granted = client.create(on_cpu_0(5));
        client.attach(granted.spec, tid);
        if detaches {
            daemon.signal(Signal::STOP);
            client.send(&Request::Detach(granted.spec));
        }
        // What the thread itself may do without any right.
        let lower = Attr { policy: Policy::Fifo(1), ..kernel::attr(tid) };
        sched::set(kernel::tid(tid), &lower).expect("a lower priority");
        if detaches {
            daemon.signal(Signal::CONT);
            assert_eq!(client.receive().expect("an answer").1, Reply::Done);
        } else {
            is_detached(&client, granted.spec, DetachCause::Policy);
        }
        assert_eq!(state(tid), before);
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn attack_14_what_an_administrator_sets_survives_the_end_of_the_grant() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("attack-14");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    for task in [with("rm", periodic(10)), with("fp", ranked(5)), with("edf", reserved(20, 500))] {
        for ends in [Request::Detach as fn(SpecId) -> Request, Request::Release] {
            let tid = mallory.thread();
            let before = state(tid);
            let granted = client.create(task);
            client.attach(granted.spec, tid);
            // Together with the request, so that no inspection comes first.
            daemon.signal(Signal::STOP);
            client.send(&ends(granted.spec));
            sched::set_nice(kernel::tid(tid), 19).expect("renice");
            let moves = !kernel::policy(tid).is_deadline() && granted.cpu.is_some();
            if moves {
                sched::set_affinity(kernel::tid(tid), &other_cpu(&granted)).expect("taskset");
            }
            daemon.signal(Signal::CONT);
            assert_eq!(client.receive().expect("an answer").1, Reply::Done);
            let after = state(tid);
            assert_eq!((after.nice, after.attr.policy), (19, Policy::Other { nice: 19 }));
            assert!(!after.attr.reset_on_fork);
            assert_eq!(after.cpus, if moves { other_cpu(&granted) } else { before.cpus });
            client.ask(&Request::Release(granted.spec));
        }
    }
    // A policy of the administrator ends the grant, and stays.
    for policy in [Policy::Fifo(9), Policy::Other { nice: 5 }, Policy::Batch { nice: 2 }] {
        let tid = mallory.thread();
        let before = state(tid);
        let granted = client.create(on_cpu_0(5));
        client.attach(granted.spec, tid);
        sched::set(kernel::tid(tid), &Attr::plain(policy)).expect("chrt");
        is_detached(&client, granted.spec, DetachCause::Policy);
        let as_set = || {
            let Attr { policy: now, reset_on_fork, .. } = kernel::attr(tid);
            (now, reset_on_fork, kernel::affinity(tid)) == (policy, false, before.cpus)
        };
        assert!(as_set(), "{:?}", state(tid));
        client.done(&Request::Release(granted.spec));
        assert!(as_set(), "{:?}", state(tid));
    }
}

/// Returns the number of changes of each kind whose latency is measured; `TALEA_MEASURE` sets it.
fn rounds() -> u32 {
    let set = std::env::var("TALEA_MEASURE").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(3)
}

/// Formats the median and the maximum.
fn summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let most = times.last().copied().unwrap_or_default();
    format!("median {:?}, max {most:?} of {}", times[times.len() / 2], times.len())
}

/// Waits, without a pause, until `condition` holds; returns the time since `begun`.
#[track_caller]
fn latency(begun: Instant, condition: impl Fn() -> bool) -> Duration {
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never detected");
        std::thread::yield_now();
    }
    begun.elapsed()
}

#[test]
fn attack_2_changes_are_detected_in_time() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("attack-latency");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    let program = set_user_id(&bench, 0);
    let (mut by_exec, mut by_ids, mut by_cpu, mut by_policy) = (vec![], vec![], vec![], vec![]);
    let agent = with_cap_setuid(&bench);
    for round in 0..rounds() {
        // At any phase of the inspections.
        std::thread::sleep(Duration::from_millis(u64::from(round * 37 % 200)));
        let granted = client.create(on_cpu_0(5));
        let tid: i32 = agent.order("thread").parse().expect("a thread");
        client.attach(granted.spec, tid);
        let begun = Instant::now();
        become_user(&agent, tid, [MALLORY, 0, MALLORY]);
        by_ids.push(latency(begun, || kernel::is_ordinary(tid)));

        let starter = test_client(&bench, MALLORY);
        let main = starter.os_pid();
        client.attach(granted.spec, main);
        starter.begin(&format!("exec {}", program.display()));
        // The kernel changes the ids within the call.
        while effective_user(main) != 0 {}
        let begun = Instant::now();
        by_exec.push(latency(begun, || kernel::is_ordinary(main)));

        let tid = mallory.thread();
        client.attach(granted.spec, tid);
        let given = kernel::affinity(tid);
        std::thread::sleep(Duration::from_millis(u64::from(round * 53 % 200)));
        let begun = Instant::now();
        sched::set_affinity(kernel::tid(tid), &CpuSet::single(1)).expect("its own CPUs");
        by_cpu.push(latency(begun, || kernel::affinity(tid) == given));

        std::thread::sleep(Duration::from_millis(u64::from(round * 71 % 200)));
        let begun = Instant::now();
        sched::set(kernel::tid(tid), &Attr::plain(Policy::Fifo(9))).expect("chrt");
        by_policy.push(latency(begun, || kernel::affinity(tid) != given));
        client.done(&Request::Release(granted.spec));
    }
    println!("seteuid: {}", summary(by_ids));
    println!("exec: {}", summary(by_exec));
    println!("affinity: {}", summary(by_cpu));
    println!("policy: {}", summary(by_policy));
}

#[test]
fn attack_2_inspections_wake_the_daemon_five_times_a_second_for_any_number_of_threads() {
    needs_root!();
    let bench = Bench::new("attack-wakeups");
    let daemon = Daemon::start(&bench, &config::open());
    let mallory = Agent::user(MALLORY);
    let client = mallory.connect(&daemon);
    let counts: &[usize] = if rounds() > 3 { &[0, 1, 100, 1000] } else { &[0, 1, 100] };
    let span = Duration::from_secs(2);
    let mut attached = 0;
    for &count in counts {
        while attached < count {
            let granted = client.create(owned_by(Owner::Session, with("rr", ranked(5))));
            client.attach(granted.spec, mallory.thread());
            attached += 1;
        }
        // The connection was busy; the daemon polls it until it is idle.
        std::thread::sleep(span / 4);
        let (before, cpu) = (client.status().wakeups, cpu_time(daemon.pid()));
        std::thread::sleep(span);
        let (after, used) = (client.status().wakeups, cpu_time(daemon.pid()) - cpu);
        // The request for the second figure is a wake-up of its own.
        let woken = after - before - 1;
        println!(
            "{count} threads: {} wake-ups in {span:?}, {} µs of CPU time per second",
            woken,
            used / 2_000
        );
        assert_eq!(woken > 0, count > 0, "{woken}");
        // Five each second, and one at an end.
        assert!(woken <= 11, "{woken} wake-ups");
    }
}

/// Returns the CPU time of a process's main thread in nanoseconds.
fn cpu_time(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("a process");
    text.split(' ').next().expect("a number").parse().expect("a number")
}
