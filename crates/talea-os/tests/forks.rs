//! Tests that need separate processes: other users, other namespaces, killed writers.
//!
//! Forking copies every descriptor of the test program, locks included, so these tests are apart
//! from the others and run one at a time.
#![allow(unsafe_code, reason = "fork and unshare, as a hostile client uses them")]

mod support;

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::{Scratch, is_root, may_be_realtime, needs, wait_until};
use talea_os::seqpacket::{self, Access, Listener};
use talea_os::statefile::StateFile;
use talea_os::thread::Method;
use talea_os::{Attr, Policy, Thread, Tid, peer, process, sched};

const OPEN: Access = Access { mode: 0o666, uid: None, gid: None };
const SECOND: Duration = Duration::from_secs(1);

fn serialize_tests() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `child` in a forked process and returns its exit code.
///
/// # Safety
/// `child` only makes system calls.
unsafe fn in_child(child: impl FnOnce() -> i32) -> i32 {
    let mut status = 0;
    // SAFETY: as the caller promises; the child leaves by _exit.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork");
        if pid == 0 {
            libc::_exit(child());
        }
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
    }
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 }
}

#[test]
fn a_forked_child_has_its_own_process_number() {
    let _serialized = serialize_tests();
    let parent = process::id();
    assert_eq!((parent, process::id()), (std::process::id(), parent));
    // SAFETY: system calls, and a page that lives forever.
    let code = unsafe {
        in_child(|| {
            let child = process::id();
            let right = child != parent && child == std::process::id() && child == process::id();
            i32::from(!right)
        })
    };
    assert_eq!((code, process::id()), (0, parent));
}

#[test]
fn r25_credentials_are_those_of_the_moment_of_connecting() {
    let _serialized = serialize_tests();
    needs!("root", is_root());
    let scratch = Scratch::new("creds");
    std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o755))
        .expect("open to all");
    let path = scratch.join("socket");
    let listener = Listener::bind(&path, OPEN, 16).expect("a listener");
    // SAFETY: system calls only.
    let code = unsafe {
        in_child(|| {
            let groups: [libc::gid_t; 40] = std::array::from_fn(|i| 7000 + i as libc::gid_t);
            if libc::setgroups(groups.len(), groups.as_ptr()) != 0
                || libc::setresgid(5001, 5001, 5001) != 0
                || libc::setresuid(5002, 5002, 5002) != 0
            {
                return 1;
            }
            let Ok(socket) = seqpacket::connect(&path, SECOND) else { return 2 };
            std::mem::forget(socket);
            0
        })
    };
    assert_eq!(code, 0);
    let server = listener.accept().expect("no error").expect("a connection");
    let peer = peer::credentials(&server).expect("a peer");
    assert_eq!((peer.uid, peer.gid), (5002, 5001));
    assert_eq!(peer.groups, (7000..7040).collect::<Vec<u32>>());
    assert!(!peer::same_pid_namespace(&server).expect("known"), "it has ended");
}

#[test]
fn a_peer_in_another_pid_namespace_is_recognised() {
    let _serialized = serialize_tests();
    let scratch = Scratch::new("namespace");
    let path = scratch.join("socket");
    let listener = Listener::bind(&path, OPEN, 16).expect("a listener");
    let (ours, theirs) = seqpacket::pair(false).expect("a pair");
    // SAFETY: system calls only; the grandchild waits until our end of the pair is closed.
    let code = unsafe {
        in_child(|| {
            libc::close(ours.as_raw_fd());
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) != 0 {
                return 1;
            }
            let inner = libc::fork();
            if inner != 0 {
                return i32::from(inner < 0);
            }
            let connected = seqpacket::connect(&path, SECOND);
            std::mem::forget(connected);
            let mut byte = 0u8;
            libc::read(theirs.as_raw_fd(), (&raw mut byte).cast(), 1);
            0
        })
    };
    drop(theirs);
    needs!("user and PID namespaces", code == 0);
    let mut server = None;
    wait_until("it has connected", || {
        server = listener.accept().expect("no error");
        server.is_some()
    });
    let server = server.expect("a connection");
    assert!(
        peer::credentials(&server).expect("a peer").pid.is_some(),
        "visible here, under another number"
    );
    assert!(!peer::same_pid_namespace(&server).expect("known"));
    drop(ours);
}

/// A process that is number 1 of a PID namespace and root of a user namespace of its own, and sends
/// its pidfd.
#[test]
fn a_pidfd_from_another_namespace_names_the_thread_here() {
    let _serialized = serialize_tests();
    needs!("PIDFD_THREAD", Thread::open_by(Tid::current(), Method::Pidfd).is_ok());
    let (ours, theirs) = seqpacket::pair(false).expect("a pair");
    seqpacket::set_timeout(&ours, std::time::Duration::from_secs(10)).expect("a time-out");
    // SAFETY: the child makes only system calls: it allocates nothing and takes no lock.
    let outer = unsafe { libc::fork() };
    if outer == 0 {
        // SAFETY: as above; both processes leave by _exit.
        unsafe {
            drop_raw(ours.as_raw_fd());
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) != 0 {
                libc::_exit(1);
            }
            let inner = libc::fork();
            if inner != 0 {
                libc::_exit(i32::from(inner < 0));
            }
            let fd = libc::syscall(libc::SYS_pidfd_open, 1, libc::O_EXCL);
            if fd >= 0 {
                let fd = OwnedFd::from_raw_fd(fd as i32);
                drop(seqpacket::send(&theirs, b"one", Some(fd.as_fd())));
            }
            // Until the other end is closed.
            let mut byte = 0u8;
            libc::read(theirs.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::_exit(0);
        }
    }
    assert!(outer > 0, "fork");
    drop(theirs);
    let mut status = 0;
    // SAFETY: collects the child made above.
    unsafe { libc::waitpid(outer, &raw mut status, 0) };
    needs!("user and PID namespaces", libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    let fd =
        seqpacket::recv_waiting(&ours, &mut [0; 8]).expect("a message").fd.expect("a descriptor");
    let thread = Thread::from_fd(fd).expect("the thread, under our number");
    assert_ne!(thread.tid().as_raw(), 1);
    assert_eq!(talea_os::proc::status(thread.tid()).expect("its status").ns_tids.len(), 2);
    if may_be_realtime() {
        let old = thread.snapshot().expect("a snapshot");
        thread.apply(&Attr::grant(Policy::Fifo(1)), None).expect("FIFO");
        assert_eq!(sched::get(thread.tid()).expect("attributes").policy, Policy::Fifo(1));
        thread.restore(&old).expect("restored");
    }
    drop(ours);
    wait_until("it has ended", || !thread.is_alive());
}

/// # Safety
/// The descriptor is not used afterwards.
unsafe fn drop_raw(fd: i32) {
    // SAFETY: as the caller promises.
    unsafe { libc::close(fd) };
}

#[test]
fn a_writer_killed_at_any_moment_leaves_whole_records() {
    let _serialized = serialize_tests();
    let scratch = Scratch::new("state-kill");
    let path = scratch.join("state");
    drop(StateFile::open_or_create(&path, 64, 8).expect("a state file"));
    for round in 0..20u64 {
        let (ours, theirs) = talea_os::seqpacket::pair(false).expect("a pair");
        // SAFETY: the child writes to its mapping and makes system calls; opening allocates, which
        // is safe because the C library keeps its allocator usable after fork.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            let mut state = StateFile::open_or_create(&path, 64, 8).expect("a state file");
            for n in 0u64.. {
                let mut record = [0; 64];
                record.as_chunks_mut::<8>().0.fill(n.to_ne_bytes());
                state.write((n % 8) as usize, &record).expect("written");
                if n == 1000 {
                    drop(talea_os::seqpacket::send(&theirs, b"x", None));
                }
            }
        }
        talea_os::seqpacket::recv(&ours, &mut [0; 8]).expect("it writes");
        std::thread::sleep(std::time::Duration::from_micros(37 * round));
        // SAFETY: ends and collects the child made above.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        let state = StateFile::open_or_create(&path, 64, 8).expect("a state file");
        let mut numbers = Vec::new();
        for (slot, record) in state.records() {
            let words = record.as_chunks::<8>().0;
            assert!(words.iter().all(|word| word == &words[0]), "a mixture of two records");
            let n = u64::from_ne_bytes(words[0]);
            assert_eq!(n % 8, slot as u64);
            numbers.push(n);
        }
        numbers.sort_unstable();
        assert_eq!(numbers.len(), 8, "no record is lost");
        assert!(
            numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "and none is old: {numbers:?}"
        );
    }
}
