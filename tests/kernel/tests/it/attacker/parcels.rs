//! Descriptors: what is no thread names none, and whatever is sent, the daemon neither keeps it nor
//! waits for it.

use super::siege::{Siege, code, send_parcel, send_parcel_if, small};
use talea_kernel_tests::{kernel, needs_root};
use talea_proto::{Code, Named, Reply, Request};

#[test]
fn r25_what_is_no_threads_descriptor_names_nobody() {
    needs_root!();
    let siege = Siege::new("attack-descriptors");
    let mallory = siege.troupe(super::siege::MALLORY);
    let client = mallory.connect(&siege.daemon);
    let home = siege.bench.path("").display().to_string();
    siege.under(|| {
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
            let attach = Request::Attach { spec: grant.spec, thread: Named::Pidfd };
            let reply = send_parcel(&client, &attach, 0, what).expect("an answer");
            assert_eq!(code(reply), Code::Malformed, "{what}");
        }
        client.done(&Request::Release(grant.spec));
    });
}

#[test]
fn r25_a_pidfd_names_who_it_is_of_and_nobody_after_their_end() {
    needs_root!();
    let siege = Siege::new("attack-pidfds");
    let mallory = siege.troupe(super::siege::MALLORY);
    let client = mallory.connect(&siege.daemon);
    let tid = mallory.thread();
    siege.under(|| {
        let grant = client.create(small());
        let attach = |what: &str| {
            let request = Request::Attach { spec: grant.spec, thread: Named::Pidfd };
            send_parcel(&client, &request, 0, what).expect("an answer")
        };
        for what in ["ended-thread", "ended-process"] {
            assert_eq!(code(attach(what)), Code::NoSuchThread, "{what}");
        }
        for (what, other) in siege.threads_of_others() {
            assert_eq!(code(attach(&format!("thread {other}"))), Code::OthersThread, "{what}");
        }
        // A process's descriptor means its main thread.
        for process in [siege.bob().pid(), siege.daemon.pid(), 1] {
            assert_eq!(code(attach(&format!("process {process}"))), Code::OthersThread);
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
fn r25_descriptors_that_nobody_asked_for_are_not_kept() {
    needs_root!();
    let siege = Siege::new("attack-extra");
    let mallory = siege.troupe(super::siege::MALLORY);
    let client = mallory.connect(&siege.daemon);
    siege.under(|| {
        for what in ["nulls 1", "nulls 2", "nulls 253", "socket", "pipe", "connection", "epoll"] {
            for request in [Request::Status, Request::Plugin(0), Request::Create(small())] {
                match send_parcel(&client, &request, 0, what) {
                    Some(Reply::Granted(grant)) => client.done(&Request::Release(grant.spec)),
                    Some(reply) => {
                        assert!(!matches!(reply, Reply::Refused(_)), "{what}: {reply:?}")
                    }
                    None => panic!("hung up on {request:?} with {what}"),
                }
            }
        }
    });
    // A connection sent to the daemon through itself must not keep itself alive.
    for _ in 0..50 {
        let client = mallory.connect(&siege.daemon);
        send_parcel(&client, &Request::Status, 0, "connection");
        client.send(&Request::Status);
        client.close();
    }
    siege.is_unharmed();
}

/// The daemon must not be the one that closes what takes long to close.
fn is_not_held_up(name: &str, what: &str) {
    let siege = Siege::new(name);
    let mallory = siege.troupe(super::siege::MALLORY);
    siege.under(|| {
        for request in [
            Request::Status,
            Request::Attach { spec: talea_proto::SpecId(1), thread: Named::Pidfd },
        ] {
            // Behind a few other messages, so that ours is closed first and the daemon's copy is
            // the last.
            let client = mallory.connect(&siege.daemon);
            send_parcel(&client, &request, 60, what);
            client.close();
            // The same, unread when the connection ends.
            let client = mallory.connect(&siege.daemon);
            let message = client.encode(&request);
            mallory.order(&format!("send-parcel {} {message} 200 {what}", client.index()));
            client.close();
        }
    });
}

#[test]
fn retif_d2_a_file_that_nobody_can_close_holds_up_nobody_but_its_sender() {
    needs_root!();
    let siege = Siege::new("attack-hung");
    let file = siege.bench.write("hung", "").display().to_string();
    // What `fusermount` does for every user where there is one, root does for Mallory; her rights
    // speak.
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(super::troupe(&siege.bench));
    let root = talea_kernel_tests::Agent::start(command, 0);
    let socket = siege.daemon.socket().display();
    let connect = || {
        let index = root.order(&format!("connect-as {socket} {}", super::siege::MALLORY));
        let client = root.client_at(index.parse().expect("a number"));
        let hello = Request::Hello { min: talea_proto::VERSION, max: talea_proto::VERSION };
        assert!(matches!(client.ask(&hello), Reply::Welcome { .. }));
        client
    };
    let mut tried = false;
    siege.under_until_gone(|| {
        if tried {
            std::thread::sleep(std::time::Duration::from_millis(5));
            return;
        }
        tried = true;
        for request in [
            Request::Status,
            Request::Attach { spec: talea_proto::SpecId(1), thread: Named::Pidfd },
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
        // She can go on, and so can everybody else who sends what closes.
        let client = connect();
        assert!(matches!(client.ask(&Request::Status), Reply::Status(_)));
        let bob = siege.bob().connect(&siege.daemon);
        assert!(matches!(bob.ask(&Request::Status), Reply::Status(_)));
        bob.close();
        client.close();
    });
    // With its program the file system ends.
    drop(root);
    siege.is_unharmed();
}

#[test]
fn retif_d2_a_socket_that_lingers_when_it_is_closed_holds_nobody_up() {
    needs_root!();
    is_not_held_up("attack-linger", "lingering 3");
    is_not_held_up("attack-linger-second", "null-and-lingering 3");
}
