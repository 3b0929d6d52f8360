//! Descriptors in messages: only a pidfd names a thread, and the daemon neither keeps any other
//! descriptor nor waits for it.

use super::fixture::{Fixture, code, send_parcel, send_parcel_if, small, unlimited};
use talea_kernel_tests::bench::discharge;
use talea_kernel_tests::{
    Agent, BOB, Bench, Daemon, Runs, config, eventually, kernel, needs, needs_root,
};
use talea_os::{Tid, proc};
use talea_proto::{Code, Reply, Request, ThreadRef};

#[test]
fn r25_a_descriptor_that_is_no_pidfd_names_no_thread() {
    needs_root!();
    let fixture = Fixture::new("attack-descriptors");
    let mallory = fixture.test_clients(super::fixture::MALLORY);
    let client = mallory.connect(&fixture.daemon);
    let home = fixture.bench.path("").display().to_string();
    fixture.under(|| {
        let grant = client.create(small());
        for what in [
            "file /proc/self/stat",
            "file /proc/1",
            "file /proc/self/ns/pid",
            "file /dev/null",
            "file /",
            &format!("path {home}"),
            "pipe",
            "socket",
            "listener",
            "connection",
            "eventfd",
            "epoll",
            "memfd",
            "nulls 1",
        ] {
            let attach = Request::Attach { spec: grant.spec, thread: ThreadRef::Pidfd };
            let reply = send_parcel(&client, &attach, 0, what).expect("an answer");
            assert_eq!(code(reply), Code::Malformed, "{what}");
        }
        client.done(&Request::Release(grant.spec));
    });
}

#[test]
fn r25_a_pidfd_names_its_thread_and_no_thread_after_its_end() {
    needs_root!();
    let fixture = Fixture::new("attack-pidfds");
    let mallory = fixture.test_clients(super::fixture::MALLORY);
    let client = mallory.connect(&fixture.daemon);
    let tid = mallory.thread();
    fixture.under(|| {
        let grant = client.create(unlimited());
        let attach = |what: &str| {
            let request = Request::Attach { spec: grant.spec, thread: ThreadRef::Pidfd };
            send_parcel(&client, &request, 0, what).expect("an answer")
        };
        for what in ["ended-thread", "ended-process"] {
            assert_eq!(code(attach(what)), Code::NoSuchThread, "{what}");
        }
        for (what, other) in fixture.threads_of_others() {
            assert_eq!(code(attach(&format!("thread {other}"))), Code::ForeignThread, "{what}");
        }
        // A process's descriptor means its main thread.
        for process in [fixture.bob().pid(), fixture.daemon.pid(), 1] {
            assert_eq!(code(attach(&format!("process {process}"))), Code::ForeignThread);
        }
        assert_eq!(attach(&format!("process {}", mallory.pid())), Reply::Done);
        assert!(kernel::policy(mallory.pid()).is_realtime());
        client.done(&Request::Detach(grant.spec));
        // A good descriptor with a crowd behind it: the first is meant or the message is refused;
        // nothing is kept.
        for crowd in [1, 10, 252] {
            let reply = attach(&format!("thread-and-nulls {tid} {crowd}"));
            match reply {
                Reply::Done => client.done(&Request::Detach(grant.spec)),
                other => assert_eq!(code(other), Code::Malformed, "{crowd}"),
            }
        }
        assert!(kernel::is_ordinary(tid));
        client.done(&Request::Release(grant.spec));
    });
}

#[test]
fn r25_unrequested_descriptors_are_not_kept() {
    needs_root!();
    let fixture = Fixture::new("attack-extra");
    let mallory = fixture.test_clients(super::fixture::MALLORY);
    let client = mallory.connect(&fixture.daemon);
    fixture.under(|| {
        for what in ["nulls 1", "nulls 2", "nulls 253", "socket", "pipe", "connection", "epoll"] {
            for request in [Request::Status, Request::Plugin(0), Request::Create(small())] {
                match send_parcel(&client, &request, 0, what) {
                    Some(Reply::Granted(grant)) => client.done(&Request::Release(grant.spec)),
                    Some(reply) => {
                        assert!(!matches!(reply, Reply::Refused(_)), "{what}: {reply:?}");
                    }
                    None => panic!("hung up on {request:?} with {what}"),
                }
            }
        }
    });
    // A connection sent to the daemon through itself must not keep itself alive.
    for _ in 0..50 {
        let client = mallory.connect(&fixture.daemon);
        send_parcel(&client, &Request::Status, 0, "connection");
        client.send(&Request::Status);
        client.close();
    }
    fixture.is_unharmed();
}

/// Checks that slow closes of these descriptors do not delay the daemon.
fn is_not_held_up(name: &str, what: &str) {
    let fixture = Fixture::new(name);
    let mallory = fixture.test_clients(super::fixture::MALLORY);
    fixture.under(|| {
        for request in [
            Request::Status,
            Request::Attach { spec: talea_proto::SpecId(1), thread: ThreadRef::Pidfd },
        ] {
            // Behind a few other messages, so that ours is closed first and the daemon's copy is
            // the last.
            let client = mallory.connect(&fixture.daemon);
            send_parcel(&client, &request, 60, what);
            client.close();
            // The same, unread when the connection ends.
            let client = mallory.connect(&fixture.daemon);
            let message = client.encode(&request);
            mallory.order(&format!("send-parcel {} {message} 200 {what}", client.index()));
            client.close();
        }
    });
}

#[test]
fn retif_d2_a_file_whose_close_hangs_delays_only_its_sender() {
    needs_root!();
    let fixture = Fixture::new("attack-hung");
    let file = fixture.bench.write("hung", "").display().to_string();
    // Root mounts for Mallory, as `fusermount` does for every user; the connection has her rights.
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--"])
        .arg(super::test_clients(&fixture.bench));
    let root = talea_kernel_tests::Agent::start(command, 0);
    let socket = fixture.daemon.socket().display();
    let connect = || {
        let index = root.order(&format!("connect-as {socket} {}", super::fixture::MALLORY));
        let client = root.client_at(index.parse().expect("a number"));
        let hello = Request::Hello { min: talea_proto::VERSION, max: talea_proto::VERSION };
        assert!(matches!(client.ask(&hello), Reply::Welcome { .. }));
        client
    };
    let mut tried = false;
    fixture.under_until_gone(|| {
        if tried {
            std::thread::sleep(std::time::Duration::from_millis(5));
            return;
        }
        tried = true;
        for request in [
            Request::Status,
            Request::Attach { spec: talea_proto::SpecId(1), thread: ThreadRef::Pidfd },
        ] {
            // Read, and unread when the connection ends.
            let client = connect();
            if send_parcel_if(&client, &request, &format!("hung {file}")).is_none() {
                println!("no file system of one's own here: the lingering socket stands for it");
                return;
            }
            let message = client.encode(&request);
            root.order(&format!("send-parcel {} {message} 200 hung {file}", client.index()));
            client.close();
        }
        // She can continue, and so can all other senders of descriptors that close.
        let client = connect();
        assert!(matches!(client.ask(&Request::Status), Reply::Status(_)));
        let bob = fixture.bob().connect(&fixture.daemon);
        assert!(matches!(bob.ask(&Request::Status), Reply::Status(_)));
        bob.close();
        client.close();
    });
    // With its program the file system ends.
    drop(root);
    fixture.is_unharmed();
}

/// Whether a close thread of the daemon is in the system call `close`.
fn closes_a_file(daemon: i32) -> bool {
    /// Number of the system call: that of the generic table is 57.
    const CLOSE: &str = if cfg!(target_arch = "x86_64") { "3" } else { "57" };
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).expect("a process");
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    tasks.flatten().map(|task| task.path()).any(|task| {
        let call = read(task.join("syscall"));
        read(task.join("comm")).trim() == "closing" && call.split(' ').next() == Some(CLOSE)
    })
}

#[test]
fn attack_25_a_daemon_starts_while_the_killed_one_closes_a_file_that_hangs() {
    needs_root!();
    needs!("FUSE", std::path::Path::new("/dev/fuse").exists());
    let bench = Bench::new("attack-hung-kill");
    let text = format!("[daemon]\naccess = \"off\"\n{}", config::PLUGINS);
    let mut daemon = Daemon::start(&bench, &text);
    let mut number = 0;
    Runs::at_least(1).repeat(|| {
        number += 1;
        let bob = Agent::user(BOB);
        let (tid, owner) = (bob.thread(), bob.connect(&daemon));
        owner.attach(owner.create(unlimited()).spec, tid);
        let attr = kernel::attr(tid);
        let file = bench.write(&format!("hung-{number}"), "").display().to_string();
        let mut command = std::process::Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "--"])
            .arg(super::test_clients(&bench));
        let sender = Agent::start(command, 0);
        let client = sender.connect(&daemon);
        send_parcel_if(&client, &Request::Status, &format!("hung {file}"))?;
        // Its thread closes the file now, until the file system answers two seconds later.
        eventually("a thread closes the file", || closes_a_file(daemon.pid()));
        let mut killed = daemon.kill_without_waiting();
        daemon.restart();
        let pid = Tid::new(killed.id() as i32).expect("a process");
        let had_not_ended = matches!(killed.try_wait(), Ok(None)) && proc::stat(pid).is_ok();
        let asking = bob.connect(&daemon);
        assert!(matches!(asking.ask(&Request::Status), Reply::Status(_)));
        assert_eq!(kernel::attr(tid), attr, "the grant is in force");
        // The lock is that of the new daemon, and names it.
        let second = daemon.command(&[]).output().expect("talead");
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(said.contains(&format!("in use by process {};", daemon.pid())), "{said}");
        drop(sender);
        killed.wait().expect("wait");
        discharge(killed.id() as i32);
        had_not_ended.then_some(())
    });
}

/// Whether a descriptor of this file is in the table of the process.
fn has_descriptor_of(process: i32, file: &str) -> bool {
    let all = std::fs::read_dir(format!("/proc/{process}/fd")).expect("a process").flatten();
    all.filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .any(|target| target.file_name() == std::path::Path::new(file).file_name())
}

/// A child that had a copy of the file would close it before it executes its program, and so start
/// later than the daemon's thread has closed its own.
#[test]
fn attack_25_a_host_starts_again_while_the_daemon_closes_a_file_that_hangs() {
    needs_root!();
    needs!("FUSE", std::path::Path::new("/dev/fuse").exists());
    let bench = Bench::new("attack-hung-host");
    let object = bench.plugin("examples/plugin-least-loaded/least_loaded.c");
    let plugin = crate::foreign::foreign("placer", &object, "");
    let daemon = Daemon::start(&bench, &format!("[daemon]\naccess = \"off\"\n{plugin}"));
    let bob = Agent::user(BOB);
    let asking = bob.connect(&daemon);
    let request = Request::Create(crate::tasks::with("placer", crate::tasks::ranked(5)));
    let is_granted = || match asking.ask(&request) {
        Reply::Granted(granted) => {
            asking.done(&Request::Release(granted.spec));
            true
        }
        _ => false,
    };
    assert!(is_granted());
    let mut number = 0;
    Runs::at_least(1).repeat(|| {
        number += 1;
        let file = bench.write(&format!("hung-{number}"), "").display().to_string();
        let mut command = std::process::Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "--"])
            .arg(super::test_clients(&bench));
        let sender = Agent::start(command, 0);
        let client = sender.connect(&daemon);
        // Two: the kernel takes a descriptor out of the table before it closes the file.
        for _ in 0..2 {
            send_parcel_if(&client, &Request::Status, &format!("hung {file}"))?;
        }
        let waits = || has_descriptor_of(daemon.pid(), &file);
        eventually("one waits for the other", || closes_a_file(daemon.pid()) && waits());
        let [host] = daemon.children()[..] else { panic!("one host") };
        let host = rustix::process::Pid::from_raw(host).expect("a pid");
        rustix::process::kill_process(host, rustix::process::Signal::KILL).expect("root may");
        eventually("the host has ended", || !is_granted());
        eventually("a host serves", is_granted);
        // On a busy machine the start of a process may take as long as the close.
        let is_waiting = waits();
        drop(sender);
        eventually("the files are closed", || !closes_a_file(daemon.pid()) && !waits());
        is_waiting.then_some(())
    });
}

#[test]
fn retif_d2_a_socket_that_lingers_when_it_is_closed_delays_no_other_client() {
    needs_root!();
    is_not_held_up("attack-linger", "lingering 3");
    is_not_held_up("attack-linger-second", "null-and-lingering 3");
}
