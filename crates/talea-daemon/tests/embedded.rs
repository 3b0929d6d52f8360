//! Embedded daemon, as used by the command-line tool on a machine without a daemon.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use talea_config::{self as config, LogLevel, Names, Target};
use talea_core::setup::Setup;
use talea_core::{Params, Span};
use talea_daemon::log::Log;
use talea_daemon::{Daemon, ExitReason};
use talea_os::seqpacket;
use talea_os::sysinfo::SystemInfo;
use talea_proto::message::{SpecId, Status, Token};
use talea_proto::wire::decode_reply;
use talea_proto::{Granted, MESSAGE_MAX, Owner, Reply, Request, Task, VERSION};

struct NoNames;

impl Names for NoNames {
    fn user(&self, _: &str) -> Option<u32> {
        None
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }
}

fn setup(machine: &SystemInfo) -> Setup {
    let text = "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"all\"\n\
                priorities = \"10-19\"\n";
    config::read(text, "test", &NoNames, &Target::new(machine.online))
        .expect("a configuration")
        .setup
}

/// Temporary directory of one test; removed on success.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("talea-embedded-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("create a directory");
        Folder(path)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

struct Client {
    socket: OwnedFd,
    server: JoinHandle<ExitReason>,
    seq: u32,
}

impl Client {
    fn start(state: &Path) -> Client {
        let (sender, receiver) = std::sync::mpsc::channel();
        let state = state.to_owned();
        // A daemon with plugin hosts must stay in one thread from start to end.
        let server = std::thread::spawn(move || {
            let machine = SystemInfo::probe().expect("this machine");
            let (mut server, socket) =
                Daemon::embedded(setup(&machine), machine, &state, Log::new(LogLevel::Warning))
                    .expect("a server");
            sender.send(socket).expect("a client");
            server.run().expect("an orderly end")
        });
        let socket = receiver.recv().expect("a socket");
        seqpacket::set_timeout(&socket, std::time::Duration::from_secs(20)).expect("time-out");
        let mut client = Client { socket, server, seq: 0 };
        let said = client.ask(&Request::Hello { min: VERSION, max: VERSION });
        assert!(matches!(said, Reply::Welcome { .. }), "{said:?}");
        client
    }

    fn ask(&mut self, request: &Request) -> Reply {
        self.seq += 1;
        let mut buffer = vec![0; MESSAGE_MAX];
        let length = request.encode(self.seq, &mut buffer);
        seqpacket::send_waiting(self.socket.as_fd(), &buffer[..length], None).expect("send");
        let received = seqpacket::recv_waiting(self.socket.as_fd(), &mut buffer).expect("receive");
        let (seq, reply) = decode_reply(&buffer[..received.len]).expect("a reply");
        assert_eq!(seq, self.seq);
        reply
    }

    fn create(&mut self, owner: Owner) -> Granted {
        let params = Params { period: Some(Span::from_ns(10_000_000)), ..Params::default() };
        match self.ask(&Request::Create(Task { params, owner, ..Task::default() })) {
            Reply::Granted(granted) => granted,
            other => panic!("{other:?}"),
        }
    }

    fn status(&mut self) -> Status {
        match self.ask(&Request::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn end(self) {
        drop(self.socket);
        assert_eq!(self.server.join().expect("no panic"), ExitReason::Idle);
    }
}

#[test]
fn an_embedded_daemon_serves_one_client_and_ends_with_it() {
    let folder = Folder::new("one");
    let mut client = Client::start(&folder.state());
    let granted = client.create(Owner::Session);
    assert_eq!(granted.spec, SpecId(1));
    let status = client.status();
    assert_eq!((status.sessions, status.specs, status.pid), (1, 1, std::process::id()));
    client.end();
    // The session's grant has ended with the session: the next daemon starts with an empty ledger.
    let mut next = Client::start(&folder.state());
    assert_eq!(next.status().specs, 0);
    next.end();
}

#[test]
fn process_owned_grants_are_adopted_by_the_next_embedded_daemon() {
    let folder = Folder::new("process");
    let mut client = Client::start(&folder.state());
    let granted = client.create(Owner::Process);
    client.end();
    let mut next = Client::start(&folder.state());
    let status = next.status();
    assert_eq!((status.specs, status.adopted), (1, 1));
    let wrong = next.ask(&Request::Claim { spec: granted.spec, token: Token([7; 16]) });
    assert!(matches!(wrong, Reply::Refused(_)), "{wrong:?}");
    let right = next.ask(&Request::Claim { spec: granted.spec, token: granted.token });
    assert!(matches!(right, Reply::Granted(_)), "{right:?}");
    assert_eq!(next.ask(&Request::Release(granted.spec)), Reply::Done);
    assert_eq!(next.status().specs, 0);
    next.end();
}

#[test]
fn two_embedded_daemons_never_hold_the_state_at_once() {
    let folder = Folder::new("two");
    let mut first = Client::start(&folder.state());
    let granted = first.create(Owner::Process);
    static FIRST_HAS_ENDED: AtomicBool = AtomicBool::new(false);
    let state = folder.state();
    let second = std::thread::spawn(move || {
        let mut second = Client::start(&state);
        assert!(FIRST_HAS_ENDED.load(Ordering::SeqCst), "the second one did not wait");
        assert_eq!(second.status().specs, 1, "and sees what the first has granted");
        assert_eq!(second.ask(&Request::Release(granted.spec)), Reply::Done);
        second.end();
    });
    // The second daemon has many opportunities to fail while the first one serves.
    for _ in 0..1_000 {
        assert_eq!(first.status().specs, 1);
    }
    FIRST_HAS_ENDED.store(true, Ordering::SeqCst);
    first.end();
    second.join().expect("the second one");
}
