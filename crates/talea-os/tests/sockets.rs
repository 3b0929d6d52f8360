//! Sequenced-packet sockets, their peers, and epoll.
#![allow(
    unsafe_code,
    reason = "fork, raw messages and raw descriptors, as a hostile client uses them"
)]

mod support;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Scratch, is_root, needs, wait_until};
use talea_core::{Monotonic, Span};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::seqpacket::{self, Access, BindError, Listener};
use talea_os::signals::{Signal, Signals};
use talea_os::{clock, peer};

const OPEN: Access = Access { mode: 0o666, uid: None, gid: None };
const SECOND: Duration = Duration::from_secs(1);

fn listener(path: &Path, access: Access) -> Listener {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match Listener::bind(path, access, 16) {
            // The process of another test has the lock for a moment, between fork and exec.
            Err(BindError::InUse { .. }) if Instant::now() < end => std::thread::yield_now(),
            bound => return bound.expect("a listener"),
        }
    }
}

/// Inode behind a descriptor number of this process, if it is open.
fn inode(fd: i32) -> Option<u64> {
    std::fs::metadata(format!("/proc/self/fd/{fd}")).ok().map(|meta| meta.ino())
}

/// Returns the number of descriptors of this process for the file with this inode.
fn open_copies(ino: u64) -> usize {
    let numbers = std::fs::read_dir("/proc/self/fd").expect("own descriptors");
    numbers
        .flatten()
        .filter_map(|e| inode(e.file_name().to_str()?.parse().ok()?))
        .filter(|&i| i == ino)
        .count()
}

#[test]
fn a_message_and_a_descriptor_arrive_together() {
    let (a, b) = seqpacket::pair(true).expect("a pair");
    let file = File::open("/proc/self/status").expect("a file");
    seqpacket::send(&a, b"hello", Some(file.as_fd())).expect("sent");
    let mut buffer = [0; 64];
    let got = seqpacket::recv(&b, &mut buffer).expect("received");
    assert_eq!((&buffer[..got.len], got.truncated, got.surplus_fds), (&b"hello"[..], false, false));
    let fd = got.fd.expect("a descriptor");
    assert_eq!(inode(fd.as_raw_fd()), Some(file.metadata().expect("its inode").ino()));
    // SAFETY: asks for flags of an open descriptor.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    seqpacket::send(&b, b"no descriptor", None).expect("sent");
    assert!(seqpacket::recv(&a, &mut buffer).expect("received").fd.is_none());
    let empty = seqpacket::recv(&a, &mut buffer).expect_err("nothing there");
    assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_message_that_is_too_long_is_reported() {
    let (a, b) = seqpacket::pair(true).expect("a pair");
    seqpacket::send(&a, &[7; 100], None).expect("sent");
    seqpacket::send(&a, &[8; 10], None).expect("sent");
    let mut buffer = [0; 10];
    let got = seqpacket::recv(&b, &mut buffer).expect("received");
    assert_eq!((got.len, got.truncated, buffer), (10, true, [7; 10]));
    let got = seqpacket::recv(&b, &mut buffer).expect("received");
    assert_eq!((got.len, got.truncated, buffer), (10, false, [8; 10]), "the next one is whole");
}

/// Sends one byte with any number of copies of `fd`.
fn send_many(socket: &OwnedFd, fd: &File, count: usize) {
    let mut byte = 1u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = vec![0u64; 2 + count.div_ceil(2)];
    let numbers = vec![fd.as_raw_fd(); count];
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: `control` has room for a header and `count` descriptors.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE((4 * count) as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN((4 * count) as u32) as _;
        libc::CMSG_DATA(header).copy_from_nonoverlapping(numbers.as_ptr().cast(), 4 * count);
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0), 1);
    }
}

#[test]
fn surplus_descriptors_are_closed() {
    let scratch = Scratch::new("surplus");
    let file = File::create(scratch.join("file")).expect("a file");
    let ino = file.metadata().expect("its inode").ino();
    let (a, b) = seqpacket::pair(true).expect("a pair");
    for count in [2, 3, 64, 253] {
        send_many(&a, &file, count);
        let got = seqpacket::recv(&b, &mut [0; 8]).expect("received");
        assert!(got.surplus_fds);
        assert_eq!(open_copies(ino), 2, "ours and one of {count}");
        drop(got);
        assert_eq!(open_copies(ino), 1);
    }
    // Descriptors that are never received are closed with the socket.
    send_many(&a, &file, 5);
    drop((a, b));
    wait_until("the queue is gone", || open_copies(ino) == 1);
}

#[test]
fn all_descriptors_of_a_message_can_be_taken_in() {
    let scratch = Scratch::new("all");
    let file = File::create(scratch.join("file")).expect("a file");
    let ino = file.metadata().expect("its inode").ino();
    let (a, b) = seqpacket::pair(true).expect("a pair");
    for count in [1, 2, 64, 253] {
        send_many(&a, &file, count);
        let got = seqpacket::recv_all(&b, &mut [0; 8]).expect("received");
        assert_eq!(
            (got.fd.is_some(), got.surplus.len(), got.surplus_fds),
            (true, count - 1, count > 1)
        );
        assert_eq!(open_copies(ino), 1 + count);
        drop(got);
        assert_eq!(open_copies(ino), 1);
    }
    seqpacket::send(&a, b"x", None).expect("sent");
    let got = seqpacket::recv_all(&b, &mut [0; 8]).expect("received");
    assert!(got.fd.is_none() && got.surplus.is_empty() && !got.surplus_fds);
}

#[test]
fn unread_messages_are_known_before_a_connection_is_closed() {
    let scratch = Scratch::new("unread");
    let file = File::create(scratch.join("file")).expect("a file");
    for peer_is_there in [true, false] {
        let pair = || seqpacket::pair(true).expect("a pair");
        // Nothing was sent, or everything was read.
        for read in [false, true] {
            let (a, b) = pair();
            if read {
                seqpacket::send(&a, b"x", None).expect("sent");
                seqpacket::recv(&b, &mut [0; 8]).expect("received");
            }
            let a = peer_is_there.then_some(a);
            assert!(!seqpacket::shutdown_and_drain(&b, 0).expect("an end"), "{read}");
            assert!(!seqpacket::shutdown_and_drain(&b, 0).expect("an end again"), "{read}");
            drop(a);
        }
        // A message, an empty one, an empty one with a descriptor, one with a descriptor after
        // unread data in the other direction.
        for what in 0..4 {
            let (a, b) = pair();
            match what {
                0 => seqpacket::send(&a, b"x", None).expect("sent"),
                1 => seqpacket::send(&a, b"", None).expect("sent"),
                2 => seqpacket::send(&a, b"", Some(file.as_fd())).expect("sent"),
                _ => {
                    seqpacket::send(&b, b"y", None).expect("sent");
                    seqpacket::send(&a, b"x", Some(file.as_fd())).expect("sent");
                }
            }
            let a = peer_is_there.then_some(a);
            assert!(seqpacket::shutdown_and_drain(&b, 0).expect("an end"), "{what}");
            // From now on no message arrives, and those that are there can still be received.
            if let Some(a) = &a {
                assert!(seqpacket::send(a, b"x", None).is_err());
            }
            // A message with a descriptor is left to the caller.
            assert_eq!(seqpacket::shutdown_and_drain(&b, 1).expect("an end"), what >= 2, "{what}");
            if what >= 2 {
                let got = seqpacket::recv_all(&b, &mut [0; 8]).expect("received");
                assert!(got.fd.is_some(), "{what}");
            }
            assert!(!seqpacket::shutdown_and_drain(&b, 0).expect("an end"), "{what}");
        }
    }
}

#[test]
fn retif_d1_retif_d2_a_dead_or_silent_reader_neither_kills_nor_blocks_the_sender() {
    let (a, b) = seqpacket::pair(true).expect("a pair");
    // A blocking socket makes no difference: sending never waits.
    let (c, d) = seqpacket::pair(false).expect("a pair");
    let mut sent = 0;
    while seqpacket::send(&c, &[0; 128], None).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "an endless queue");
    }
    let full = seqpacket::send(&c, &[0; 128], None).expect_err("full");
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    drop(d);
    // SIGPIPE would end the process: the test program ignores it, so restore the default for this
    // one moment.
    // SAFETY: sets and restores a disposition.
    unsafe {
        let before = libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        drop(b);
        let gone = seqpacket::send(&a, b"x", None).expect_err("closed");
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
        libc::signal(libc::SIGPIPE, before);
    }
    assert_eq!(seqpacket::recv(&a, &mut [0; 8]).expect("the end").len, 0);
}

#[test]
fn the_socket_has_owner_group_and_mode_before_a_client_can_connect() {
    let scratch = Scratch::new("modes");
    let path = scratch.join("socket");
    for mode in [0o600, 0o660, 0o666] {
        let listener = listener(&path, Access { mode, uid: None, gid: None });
        let meta = path.symlink_metadata().expect("a socket");
        assert_eq!(meta.permissions().mode() & 0o7777, mode);
        drop(listener);
        assert!(!path.exists(), "removed with its listener");
    }
    needs!("root", is_root());
    let listener = listener(&path, Access { mode: 0o660, uid: Some(1234), gid: Some(5678) });
    let meta = path.symlink_metadata().expect("a socket");
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (1234, 5678, 0o660));
    drop(listener);
}

#[test]
fn retif_s13_a_second_instance_is_refused_and_the_first_continues() {
    let scratch = Scratch::new("second");
    let path = scratch.join("socket");
    let first = listener(&path, OPEN);
    match Listener::bind(&path, OPEN, 16) {
        Err(BindError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    let client = seqpacket::connect(&path, SECOND).expect("connected");
    assert!(first.accept().expect("no error").is_some());
    drop((client, first));
    // The socket of a killed instance is taken over; the lock went with its process.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket that no process answers"));
    assert!(path.exists());
    let again = listener(&path, OPEN);
    drop(again);
    // A listener without our lock is respected, too.
    let foreign = socket_without_lock(&path);
    assert!(matches!(Listener::bind(&path, OPEN, 16), Err(BindError::InUse { pid: None, .. })));
    assert!(path.exists());
    drop(foreign);
    std::fs::remove_file(&path).expect("removed");
    // A file that is no socket is left alone.
    std::fs::write(&path, "precious").expect("a file");
    assert!(matches!(Listener::bind(&path, OPEN, 16), Err(BindError::NotASocket { .. })));
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), "precious");
}

#[test]
fn attack_19_a_client_finds_the_old_socket_or_the_new_one_and_never_none() {
    let scratch = Scratch::new("seamless");
    let (path, other) = (scratch.join("socket"), scratch.join("other"));
    for round in 0..100 {
        // The socket of a killed instance, and from every other one also an unfinished socket.
        drop(std::os::unix::net::UnixListener::bind(&other).expect("a socket"));
        std::fs::rename(&other, &path).expect("renamed");
        if round % 2 == 0 {
            let unfinished = scratch.join("~ocket");
            drop(std::os::unix::net::UnixListener::bind(unfinished).expect("a socket"));
        }
        let client = std::thread::spawn({
            let path = path.clone();
            move || loop {
                match seqpacket::connect(&path, SECOND) {
                    Ok(connection) => return connection,
                    // EPROTOTYPE: the process of another test has the killed instance's socket, a
                    // stream socket, for a moment, between fork and exec.
                    Err(error) => assert!(matches!(
                        error.raw_os_error(),
                        Some(libc::ECONNREFUSED | libc::EPROTOTYPE)
                    )),
                }
            }
        });
        let listener = listener(&path, OPEN);
        drop(client.join().expect("refused until it is served"));
        drop(listener);
        let left = std::fs::read_dir(scratch.join("")).expect("a folder").count();
        assert_eq!(left, 1, "only the lock file stays");
    }
}

/// Creates a listener without our lock: another path, renamed into place.
fn socket_without_lock(path: &Path) -> Listener {
    let elsewhere = path.with_extension("elsewhere");
    let listener = listener(&elsewhere, OPEN);
    std::fs::rename(&elsewhere, path).expect("renamed");
    listener
}

#[test]
fn retif_s13_a_lock_file_of_another_user_is_refused() {
    let scratch = Scratch::new("lock");
    let path = scratch.join("socket");
    let lock = scratch.join("socket.lock");
    let bind = || Listener::bind(&path, Access { mode: 0o600, uid: None, gid: None }, 1);
    // A second name, under which another process could hold the lock.
    File::create(&lock).expect("a file");
    std::fs::hard_link(&lock, scratch.join("other")).expect("a second name");
    assert!(matches!(bind(), Err(BindError::Untrusted { .. })));
    std::fs::remove_file(&lock).expect("removed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &lock,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    assert!(matches!(bind(), Err(BindError::Untrusted { .. })));
    std::fs::remove_file(&lock).expect("removed");
    if rustix::process::geteuid().is_root() {
        File::create(&lock).expect("a file");
        std::os::unix::fs::chown(&lock, Some(60_001), None).expect("another user's file");
        let before = std::fs::metadata(&lock).expect("it is there").permissions();
        assert!(matches!(bind(), Err(BindError::Untrusted { .. })));
        assert_eq!(
            std::fs::metadata(&lock).expect("it is there").permissions(),
            before,
            "and is unchanged"
        );
        std::fs::remove_file(&lock).expect("removed");
    }
    bind().expect("our own lock");
}

#[test]
fn accepted_connections_never_wait_and_are_not_inherited() {
    let scratch = Scratch::new("accept");
    let path = scratch.join("socket");
    let listener = listener(&path, OPEN);
    assert!(listener.accept().expect("no error").is_none());
    let client = seqpacket::connect(&path, SECOND).expect("connected");
    let server = listener.accept().expect("no error").expect("a connection");
    for fd in [&client, &server] {
        // SAFETY: asks for flags of an open descriptor.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC, "retif S12: a child must not keep a session alive");
    }
    let empty = seqpacket::recv(&server, &mut [0; 8]).expect_err("nothing there");
    assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn r6_every_wait_of_a_client_ends() {
    let scratch = Scratch::new("timeouts");
    let path = scratch.join("socket");
    let short = Duration::from_millis(30);
    let missing = seqpacket::connect(&path, short).expect_err("no socket");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let listener = Listener::bind(&path, OPEN, 0).expect("a listener");
    let client = seqpacket::connect(&path, short).expect("connected");
    let before = Instant::now();
    let silent = seqpacket::recv_waiting(&client, &mut [0; 8]).expect_err("no answer");
    assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
    assert!(before.elapsed() >= short);
    // No connection is accepted: the queue is full at some point, and connecting must give up then.
    let mut waiting = Vec::new();
    let full = loop {
        match seqpacket::connect(&path, short) {
            Ok(fd) => waiting.push(fd),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100, "an endless queue");
    };
    assert_eq!(full.kind(), io::ErrorKind::TimedOut);
    drop(listener);
    let gone = seqpacket::recv_waiting(&client, &mut [0; 8]);
    assert!(gone.is_err() || gone.is_ok_and(|got| got.len == 0));
}

#[test]
fn paths_that_do_not_fit_are_refused() {
    let long = "x".repeat(200);
    for path in ["", long.as_str(), "nul\0inside"] {
        let error = seqpacket::connect(Path::new(path), SECOND).expect_err("no such path");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn only_listening_sequenced_packet_sockets_are_taken_over() {
    let scratch = Scratch::new("inherit");
    let path = scratch.join("socket");
    let stream = std::os::unix::net::UnixListener::bind(&path).expect("a stream listener");
    let (pair, _other) = seqpacket::pair(true).expect("a pair");
    let file = File::open("/dev/null").expect("a file");
    for fd in [OwnedFd::from(stream), pair, file.into()] {
        assert!(Listener::from_fd(fd).is_err());
    }
    std::fs::remove_file(&path).expect("removed");
    let right = listener(&path, OPEN);
    let copy = right.as_fd().try_clone_to_owned().expect("a copy");
    let taken = Listener::from_fd(copy).expect("a listener");
    let _client = seqpacket::connect(&path, SECOND).expect("connected");
    assert!(taken.accept().expect("no error").is_some());
    drop(taken);
    assert!(path.exists(), "its creator removes it");
}

#[test]
fn a_restriction_of_a_killed_process_ends_with_the_next_listener() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    let scratch = Scratch::new("restricted");
    let path = scratch.join("socket");
    let mode = || std::fs::metadata(&path).expect("a socket").permissions().mode() & 0o7777;
    // A service manager binds its socket without a rename.
    let right = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    bind(&right, &SocketAddrUnix::new(&path).expect("short")).expect("a free name");
    listen(&right, 16).expect("a bound socket");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660)).expect("our file");
    let take = || Listener::from_fd(right.try_clone().expect("a copy"));
    let mut killed = take().expect("a listener");
    killed.restrict().expect("our file");
    assert_eq!(mode() & 0o022, 0);
    assert!(seqpacket::connect(&path, SECOND).is_ok(), "it is ours");
    // A killed process does not drop it.
    std::mem::forget(killed);
    let mut next = take().expect("a listener");
    assert_eq!(mode(), 0o660);
    next.restrict().expect("our file");
    drop(next);
    assert_eq!(mode(), 0o660, "its creator may have chosen this mode");
}

#[test]
fn a_restricted_listener_admits_root_alone() {
    needs!("root", is_root());
    let scratch = Scratch::new("restricted-connect");
    let path = scratch.join("socket");
    let mut listener = listener(&path, OPEN);
    let connect_as_user = || {
        let path = path.clone();
        let connecting = std::thread::spawn(move || {
            let uid = rustix::process::Uid::from_raw(60_001);
            rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
            seqpacket::connect(&path, SECOND).map(drop)
        });
        connecting.join().expect("a thread")
    };
    connect_as_user().expect("open to all users");
    listener.restrict().expect("our file");
    let refused = connect_as_user().expect_err("only root may connect");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    drop(seqpacket::connect(&path, SECOND).expect("root connects"));
    listener.unrestrict().expect("our file");
    connect_as_user().expect("open to all users");
}

#[test]
fn without_a_service_manager_nothing_is_inherited() {
    assert!(seqpacket::inherited_listeners().expect("no error").is_empty());
}

#[test]
fn the_kernel_identifies_the_peer() {
    let scratch = Scratch::new("peer");
    let path = scratch.join("socket");
    let listener = listener(&path, OPEN);
    let client = seqpacket::connect(&path, SECOND).expect("connected");
    let server = listener.accept().expect("no error").expect("a connection");
    let peer = peer::credentials(&server).expect("a peer");
    assert_eq!(peer.pid.map(talea_os::Tid::as_raw), Some(std::process::id() as i32));
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert_eq!(peer.gid, rustix::process::getegid().as_raw());
    let mut groups: Vec<u32> = rustix::process::getgroups()
        .expect("groups")
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .collect();
    let mut found = peer.groups;
    groups.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, groups);
    assert!(peer::same_pid_namespace(&server).expect("known"));
    // A peer that has ended is in no namespace; a socket without a peer gives an error.
    drop(client);
    let alone: OwnedFd = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .expect("a socket");
    assert!(peer::credentials(&alone).is_err());
    assert!(!peer::same_pid_namespace(&alone).expect("known"));
}

#[test]
fn epoll_waits_until_an_absolute_time() {
    let epoll = Epoll::new().expect("epoll");
    let mut events = Events::with_capacity(4);
    let (a, b) = seqpacket::pair(true).expect("a pair");
    epoll.add(&b, Interest::READ, 17).expect("watched");
    let until = clock::now() + Span::from_ns(3_000_000);
    assert_eq!(epoll.wait(&mut events, Some(until)).expect("a wait"), 0);
    assert!(clock::now() >= until);
    seqpacket::send(&a, b"x", None).expect("sent");
    assert_eq!(epoll.wait(&mut events, None).expect("a wait"), 1);
    let event = events.iter().next().expect("an event");
    assert!(event.token == 17 && event.is_readable() && !event.is_writable() && !event.is_hangup());
    epoll.modify(&b, Interest::READ_WRITE, 18).expect("changed");
    epoll.wait(&mut events, Some(Monotonic::ZERO)).expect("a poll");
    let event = events.iter().next().expect("an event");
    assert!(event.token == 18 && event.is_writable());
    drop(a);
    // Another test may be between fork and exec with a copy of it.
    wait_until("the other end is gone", || {
        epoll.wait(&mut events, None).expect("a wait");
        events.iter().next().expect("an event").is_hangup()
    });
    epoll.remove(&b).expect("no longer watched");
    assert_eq!(epoll.wait(&mut events, Some(Monotonic::ZERO)).expect("a poll"), 0);
}

#[test]
fn signals_are_read_and_not_delivered() {
    let signals = Signals::new(&[Signal::Term, Signal::Usr1]).expect("a set");
    assert_eq!(signals.take().expect("no error"), None);
    for signal in [Signal::Usr1, Signal::Term] {
        // SAFETY: to this thread, which has it blocked.
        unsafe { libc::raise(signal.number()) };
        assert_eq!(signals.take().expect("no error"), Some(signal));
    }
    assert_eq!(signals.take().expect("no error"), None);
}

#[test]
fn r6_a_listener_that_the_service_manager_opened_is_found() {
    // The protocol concerns a whole process, so this test runs its own program with one test as a
    // child with that environment.
    if std::env::var_os("LISTEN_FDS").is_some() {
        let found = seqpacket::inherited_listeners().expect("no error");
        assert_eq!(found.len(), 1);
        assert!(
            seqpacket::inherited_listeners().expect("no error").is_empty(),
            "they are taken once"
        );
        return;
    }
    let scratch = Scratch::new("activation");
    let path = scratch.join("socket");
    let listener = listener(&path, OPEN);
    let me = std::env::current_exe().expect("this program");
    // The shell gives itself the right LISTEN_PID and then becomes the program.
    let script = "exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --exact \
                  r6_a_listener_that_the_service_manager_opened_is_found";
    let stdin = listener.as_fd().try_clone_to_owned().expect("a copy");
    let output =
        Command::new("sh").args(["-c", script]).arg(me).stdin(stdin).output().expect("a run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
