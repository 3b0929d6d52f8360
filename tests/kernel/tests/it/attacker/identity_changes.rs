//! Threads that change: they start another program, change their user, are stopped, or shut one
//! half of a connection down.

use super::fixture::{Fixture, MALLORY, code, set_mode, small, test_clients};
use crate::tasks::{owned_by, periodic, ranked, reserved, with};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use talea_core::Span;
use talea_kernel_tests::{BOB, Client, Daemon, eventually, kernel, needs_root};
use talea_os::sched::{Attr, Policy};
use talea_proto::{Code, Owner, Reply, Request, Task};

/// Returns a task for each plugin.
fn of_every_plugin() -> [Task; 4] {
    [
        with("rm", periodic(100)),
        with("rr", ranked(9)),
        with("fp", ranked(9)),
        with("edf", reserved(20, 500)),
    ]
}

#[test]
fn retif_s5_a_thread_that_starts_a_program_takes_no_grant_along() {
    needs_root!();
    let fixture = Fixture::new("attack-exec");
    let program = test_clients(&fixture.bench);
    let owner = Fixture::mallory();
    fixture.beside_grants(|| {
        let client = owner.connect(&fixture.daemon);
        for task in of_every_plugin() {
            for who in [Owner::Session, Owner::Process, Owner::Thread] {
                // The thread's number disappears, its policy stays: on the main thread,
                // under no grant.
                let other = Fixture::on_all_cpus(fixture.test_clients(MALLORY));
                let (main, tid) = (other.pid(), other.thread());
                let grant = client.create(owned_by(who, task));
                client.attach(grant.spec, tid);
                other.exec_from(tid, &program);
                eventually("nothing was taken along", || kernel::is_ordinary(main));
                // The daemon restores its attributes call by call.
                let is_free = || kernel::affinity(main) == kernel::affinity(other.thread());
                eventually("its CPUs are those of its threads", is_free);
                client.ask(&Request::Release(grant.spec));
            }
        }
        client.close();
    });
}

#[test]
fn retif_s5_a_thread_that_takes_the_place_of_another_with_a_grant_gets_that_one_at_most() {
    needs_root!();
    let fixture = Fixture::new("attack-exec-up");
    let program = test_clients(&fixture.bench);
    let owner = Fixture::mallory();
    fixture.beside_grants(|| {
        let client = owner.connect(&fixture.daemon);
        let other = Fixture::on_all_cpus(fixture.test_clients(MALLORY));
        let (main, tid) = (other.pid(), other.thread());
        // On one CPU: elsewhere each would be the first of its own.
        let on_cpu_0 = |task| Task {
            cpus: talea_core::CpuSet::single(0),
            cpus_mandatory: true,
            ..with("fp", task)
        };
        let (low, high) = (client.create(on_cpu_0(ranked(5))), client.create(on_cpu_0(ranked(90))));
        client.attach(low.spec, main);
        client.attach(high.spec, tid);
        let (granted, more) = (kernel::attr(main), kernel::attr(tid));
        assert_ne!(granted, more);
        other.exec_from(tid, &program);
        eventually("it has what the main thread was granted", || kernel::attr(main) == granted);
        client.done(&Request::Release(low.spec));
        client.done(&Request::Release(high.spec));
        assert!(kernel::is_ordinary(main));
        client.close();
    });
}

#[test]
fn retif_s5_nothing_is_taken_along_while_there_is_no_daemon() {
    needs_root!();
    let mut fixture = Fixture::new("attack-exec-crash");
    let program = test_clients(&fixture.bench);
    let owner = Fixture::mallory();
    let other = Fixture::on_all_cpus(fixture.test_clients(MALLORY));
    let main = other.pid();
    for task in of_every_plugin() {
        let tid = other.thread();
        let grant = {
            let client = owner.connect(&fixture.daemon);
            let grant = client.create(owned_by(Owner::Process, task));
            client.attach(grant.spec, tid);
            grant
        };
        fixture.daemon.kill();
        other.exec_from(tid, &program);
        assert!(kernel::policy(main).is_realtime(), "the kernel takes it along");
        fixture.daemon.restart();
        eventually("and the next daemon takes it back", || kernel::is_ordinary(main));
        let client = owner.connect(&fixture.daemon);
        client.ask(&Request::Release(grant.spec));
        client.close();
    }
}

#[test]
fn retif_s5_nothing_is_taken_along_by_a_thread_about_to_leave_the_deadline_class() {
    needs_root!();
    let mut fixture = Fixture::new("attack-exec-leaving");
    let program = test_clients(&fixture.bench);
    let owner = Fixture::mallory();
    let other = Fixture::on_all_cpus(fixture.test_clients(MALLORY));
    let (main, tid) = (other.pid(), other.thread());
    {
        let client = owner.connect(&fixture.daemon);
        let grant = client.create(owned_by(Owner::Process, with("edf", reserved(20, 500))));
        client.attach(grant.spec, tid);
    }
    // A daemon that is killed there has changed the period already, to have the budget counted.
    fixture.daemon.kill();
    let attr = talea_os::sched::get(kernel::tid(tid)).expect("it lives");
    let Policy::Deadline { runtime, deadline, period } = attr.policy else { panic!("{attr:?}") };
    let policy = Policy::Deadline { runtime, deadline, period: period + Span::from_ns(1) };
    talea_os::sched::set(kernel::tid(tid), &Attr { policy, ..attr }).expect("hardly another one");
    other.exec_from(tid, &program);
    assert_eq!(kernel::policy(main), policy);
    fixture.daemon.restart();
    eventually("the next daemon takes it back", || kernel::is_ordinary(main));
}

/// Returns a copy of the test clients' program that runs as its owner (set-user-id), whichever user
/// starts it.
fn lent(fixture: &Fixture, owner: u32) -> PathBuf {
    let lent = fixture.bench.path(&format!("suid-{owner}"));
    std::fs::copy(test_clients(&fixture.bench), &lent).expect("a copy");
    std::os::unix::fs::chown(&lent, Some(owner), Some(owner)).expect("chown");
    set_mode(&lent, 0o4755);
    lent
}

fn effective_user(tid: i32) -> u32 {
    talea_os::proc::status(kernel::tid(tid)).expect("a thread").uids.effective
}

#[test]
fn r25_a_thread_that_starts_a_set_user_id_program_under_a_grant_gains_nothing() {
    needs_root!();
    let fixture = Fixture::new("attack-suid-exec");
    let owner = Fixture::mallory();
    let programs = [BOB, 0].map(|uid| (uid, lent(&fixture, uid)));
    fixture.beside_grants(|| {
        for (uid, program) in &programs {
            let client = owner.connect(&fixture.daemon);
            let other = fixture.test_clients(MALLORY);
            let main = other.pid();
            let grant = client.create(owned_by(Owner::Process, with("fp", ranked(5))));
            client.attach(grant.spec, main);
            other.begin(&format!("exec {}", program.display()));
            // Not before: what its reader has read already would be lost with it.
            eventually("it runs as the program's owner", || effective_user(main) == *uid);
            assert_eq!(other.order("pid"), main.to_string());
            eventually("its grant has ended", || kernel::is_ordinary(main));
            let given = kernel::attr(main);
            for task in
                [with("fp", ranked(90)), with("rr", ranked(90)), with("edf", reserved(10, 1_000))]
            {
                // The spec has no thread any more.
                let said = client.ask(&Request::Change { spec: grant.spec, task });
                assert!(matches!(said, Reply::Granted(_)), "{said:?}");
                assert_eq!(kernel::attr(main), given);
            }
            assert_eq!(client.refused(&Request::Detach(grant.spec)).code, Code::NotAttached);
            assert_eq!(kernel::attr(main), given);
            assert_eq!(code(client.try_attach(grant.spec, main)), Code::ForeignThread);
            client.done(&Request::Release(grant.spec));
            client.close();
        }
    });
}

#[test]
fn r28_a_stopped_thread_is_attached_and_detached_like_any_other() {
    needs_root!();
    let fixture = Fixture::new("attack-stopped");
    let owner = Fixture::mallory();
    fixture.beside_grants(|| {
        let client = owner.connect(&fixture.daemon);
        for task in of_every_plugin() {
            let other = Fixture::on_all_cpus(fixture.test_clients(MALLORY));
            let (tid, pid) = (other.thread(), Pid::from_raw(other.pid()).expect("a process"));
            let grant = client.create(task);
            client.attach(grant.spec, tid);
            kill_process(pid, Signal::STOP).expect("stopped");
            for new in of_every_plugin() {
                let said = client.ask(&Request::Change { spec: grant.spec, task: new });
                assert!(matches!(said, Reply::Granted(_)), "{said:?}");
            }
            client.done(&Request::Detach(grant.spec));
            assert!(kernel::is_ordinary(tid));
            client.attach(grant.spec, tid);
            client.done(&Request::Release(grant.spec));
            assert!(kernel::is_ordinary(tid));
            kill_process(pid, Signal::CONT).expect("running");
        }
        client.close();
    });
}

/// Sends a request on a connection of which one half is shut down; the daemon must survive.
fn half(client: &Client, daemon: &Daemon, which: &str) {
    let said = client.agent.order(&format!("shutdown {} {which}", client.index()));
    assert_eq!(said, "shut");
    // Whatever becomes of it, it ends this connection and no other.
    let _ = client.send_bytes(&[11, 0, 1, 0, 7, 0, 0, 0]);
    assert!(kernel::exists(daemon.pid()));
}

#[test]
fn retif_d1_a_half_closed_connection_is_closed() {
    needs_root!();
    let fixture = Fixture::new("attack-half");
    let mallory = fixture.test_clients(MALLORY);
    fixture.under(|| {
        for which in ["read", "write"] {
            let client = mallory.connect(&fixture.daemon);
            let tid = mallory.thread();
            let grant = client.create(small());
            client.attach(grant.spec, tid);
            half(&client, &fixture.daemon, which);
            eventually("what it had is given back", || kernel::is_ordinary(tid));
            client.close();
        }
    });
}
