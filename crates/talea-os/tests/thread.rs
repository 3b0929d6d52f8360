//! Threads of the running kernel: opened, configured, restored.
#![allow(unsafe_code, reason = "fork, unshare and raw descriptors, as a hostile client uses them")]

mod support;

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use support::{
    Sleeper, deadline, is_root, machine_lock, may_be_realtime, needs, online, wait_until,
};
use talea_core::CpuSet;
use talea_os::thread::{Identity, Method, Restored};
use talea_os::{ApplyError, Attr, OpenError, Policy, Snapshot, Thread, Tid, sched, seqpacket};

fn both_methods() -> Vec<Method> {
    let me = Tid::current();
    [Method::Pidfd, Method::StartTime]
        .into_iter()
        .filter(|&method| match Thread::open_by(me, method) {
            Ok(_) => true,
            Err(OpenError::Os(error)) if error.raw_os_error() == Some(libc::EINVAL) => false,
            Err(other) => panic!("{method:?}: {other}"),
        })
        .collect()
}

fn exactly(restored: &Restored) -> bool {
    matches!(restored, Restored::Exactly)
}

#[test]
fn retif_s4_zero_and_negative_numbers_are_no_threads() {
    assert_eq!(Tid::new(0), None);
    assert_eq!(Tid::new(-1), None);
    assert_eq!(Tid::new(i32::MIN), None);
    assert_eq!(Tid::new(1).map(Tid::as_raw), Some(1));
}

#[test]
fn r28_retif_s10_restoring_sets_policy_priority_nice_and_affinity() {
    needs!("the right to set real-time policies", may_be_realtime());
    let last = online().iter().last().expect("a CPU");
    let befores = [
        (Policy::Rr(5), 3, Some(CpuSet::single(last)), false),
        (Policy::Fifo(7), -2, None, true),
        (Policy::Other { nice: 9 }, 9, Some(CpuSet::single(0)), false),
        (Policy::Batch { nice: 1 }, 1, None, false),
        (Policy::Idle, 4, Some(CpuSet::single(last)), false),
        (Policy::NORMAL, 0, None, true),
    ];
    for method in both_methods() {
        for (policy, nice, affinity, reset_on_fork) in befores {
            let sleeper = Sleeper::start();
            sched::set_nice(sleeper.tid, nice).expect("nice");
            sched::set(sleeper.tid, &Attr { reset_on_fork, ..Attr::plain(policy) })
                .expect("a policy");
            if let Some(cpus) = &affinity {
                sched::set_affinity(sleeper.tid, cpus).expect("an affinity");
            }
            let thread = Thread::open_by(sleeper.tid, method).expect("a living thread");
            let before = thread.snapshot().expect("a snapshot");
            assert_eq!((before.attr.policy, before.nice), (policy, nice));
            thread.apply(&Attr::grant(Policy::Fifo(42)), Some(&CpuSet::single(0))).expect("FIFO");
            let now = thread.snapshot().expect("a snapshot");
            assert_eq!(now.attr, Attr::grant(Policy::Fifo(42)));
            assert_eq!(now.affinity, CpuSet::single(0));
            // The thread may renice itself meanwhile, which its real-time policy hides.
            sched::set_nice(sleeper.tid, 11).expect("nice");
            assert!(exactly(&thread.restore(&before).expect("restored")), "{policy:?}");
            assert_eq!(thread.snapshot().expect("a snapshot"), before, "{method:?} {policy:?}");
        }
    }
}

#[test]
fn r28_a_deadline_thread_is_restored_to_its_previous_attributes() {
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let sleeper = Sleeper::start();
    let thread = Thread::open(sleeper.tid).expect("a living thread");
    sched::set_affinity(sleeper.tid, &CpuSet::single(0)).expect("pinned");
    sched::set_nice(sleeper.tid, 6).expect("nice");
    let before = thread.snapshot().expect("a snapshot");
    // Pinned threads get EPERM for SCHED_DEADLINE: the affinity must be widened first, and narrowed
    // after.
    match thread.apply(&Attr::grant(deadline(1_000, 100_000)), Some(&online())) {
        Err(ApplyError::Refused { error, .. }) if error.raw_os_error() == Some(libc::EPERM) => {
            needs!("one root domain of all CPUs", false);
        }
        other => other.expect("SCHED_DEADLINE"),
    }
    let now = thread.snapshot().expect("a snapshot");
    assert_eq!(now.attr.policy, deadline(1_000, 100_000));
    assert_eq!(now.affinity, online());
    assert_eq!(now.nice, 6);
    // Other parameters, then another class, without ever being ordinary in between.
    thread.apply(&Attr::grant(deadline(2_000, 50_000)), None).expect("other parameters");
    thread.apply(&Attr::grant(Policy::Fifo(3)), Some(&CpuSet::single(0))).expect("FIFO");
    assert_eq!(thread.snapshot().expect("a snapshot").affinity, CpuSet::single(0));
    thread.apply(&Attr::grant(deadline(1_000, 100_000)), Some(&online())).expect("SCHED_DEADLINE");
    assert!(exactly(&thread.restore(&before).expect("restored")));
    assert_eq!(thread.snapshot().expect("a snapshot"), before);
}

#[test]
fn retif_s11_a_refused_policy_leaves_the_thread_as_it_was() {
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let sleeper = Sleeper::start();
    let thread = Thread::open(sleeper.tid).expect("a living thread");
    sched::set_affinity(sleeper.tid, &CpuSet::single(0)).expect("pinned");
    for before in [Policy::Other { nice: 5 }, Policy::Rr(8), Policy::Batch { nice: 2 }] {
        sched::set(sleeper.tid, &Attr::plain(before)).expect("a policy");
        let before = thread.snapshot().expect("a snapshot");
        // A runtime beyond the period is EINVAL; the affinity must be changed before that is
        // detected.
        let refused = thread.apply(&Attr::grant(deadline(2_000, 1_000)), Some(&online()));
        match refused {
            Err(ApplyError::Refused { error, .. }) => {
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(thread.snapshot().expect("a snapshot"), before);
    }
    // The reverse: a valid policy with an affinity that no CPU satisfies.
    let before = thread.snapshot().expect("a snapshot");
    let nowhere = CpuSet::single(1023);
    assert!(!online().contains(1023));
    for policy in [Policy::Fifo(9), Policy::Other { nice: 1 }] {
        match thread.apply(&Attr::grant(policy), Some(&nowhere)) {
            Err(ApplyError::Refused { error, .. }) => {
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(thread.snapshot().expect("a snapshot"), before);
    }
    // From a deadline policy as well.
    if thread.apply(&Attr::grant(deadline(1_000, 100_000)), Some(&online())).is_ok() {
        let before = thread.snapshot().expect("a snapshot");
        assert!(thread.apply(&Attr::grant(Policy::Fifo(9)), Some(&nowhere)).is_err());
        assert_eq!(thread.snapshot().expect("a snapshot"), before);
        thread
            .restore(&Snapshot { attr: Attr::plain(Policy::NORMAL), ..before })
            .expect("restored");
    }
}

#[test]
fn r28_a_thread_whose_old_policy_is_refused_becomes_ordinary() {
    needs!("the right to set real-time policies", may_be_realtime());
    let sleeper = Sleeper::start();
    let thread = Thread::open(sleeper.tid).expect("a living thread");
    let mut old = thread.snapshot().expect("a snapshot");
    old.attr = Attr::plain(deadline(2_000, 1_000));
    old.nice = 4;
    thread.apply(&Attr::grant(Policy::Fifo(2)), None).expect("FIFO");
    let restored = thread.restore(&old).expect("restored");
    assert!(matches!(restored, Restored::PolicyLost(_)), "{restored:?}");
    assert_eq!(thread.snapshot().expect("a snapshot").attr.policy, Policy::Other { nice: 4 });
    // CPUs that have disappeared: any CPU rather than none.
    old.attr = Attr::plain(Policy::NORMAL);
    old.nice = 0;
    old.affinity = CpuSet::single(1023);
    thread.apply(&Attr::grant(Policy::Fifo(2)), Some(&CpuSet::single(0))).expect("FIFO");
    let restored = thread.restore(&old).expect("restored");
    assert!(matches!(restored, Restored::AffinityWidened), "{restored:?}");
    let now = thread.snapshot().expect("a snapshot");
    assert_eq!((now.attr.policy, now.affinity), (Policy::NORMAL, online()));
}

#[test]
fn retif_s6_children_of_a_granted_thread_are_ordinary() {
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let sleeper = Sleeper::start();
    let thread = Thread::open(sleeper.tid).expect("a living thread");
    for policy in [Policy::Fifo(11), Policy::Rr(12), deadline(5_000, 100_000)] {
        if let Err(error) = thread.apply(&Attr::grant(policy), Some(&online())) {
            needs!(format!("{policy:?} ({error})"), !policy.is_deadline());
            panic!("{policy:?}: {error}");
        }
        // A deadline thread without the flag cannot create a thread at all (EAGAIN).
        let child = sleeper.run(|| {
            let child = std::thread::spawn(|| sched::get(Tid::current()).expect("attributes"));
            child.join().expect("a child")
        });
        assert_eq!((child.policy, child.reset_on_fork), (Policy::NORMAL, false), "{policy:?}");
        sleeper.settle();
        thread.apply(&Attr::plain(Policy::NORMAL), None).expect("restored");
    }
}

#[test]
fn retif_s14_an_ended_thread_is_noticed_and_refused() {
    for method in both_methods() {
        let mut sleeper = Sleeper::start();
        let thread = Thread::open_by(sleeper.tid, method).expect("a living thread");
        let snapshot = thread.snapshot().expect("a snapshot");
        assert!(thread.is_alive());
        let epoll = talea_os::epoll::Epoll::new().expect("epoll");
        let mut events = talea_os::epoll::Events::with_capacity(1);
        epoll.add(&thread, talea_os::epoll::Interest::READ, 7).expect("watched");
        assert_eq!(epoll.wait(&mut events, Some(talea_core::Monotonic::ZERO)).expect("a poll"), 0);
        sleeper.end();
        if method == Method::Pidfd {
            assert_eq!(epoll.wait(&mut events, None).expect("the end"), 1);
            assert_eq!(events.iter().next().expect("an event").token, 7);
        }
        assert!(!thread.is_alive());
        assert!(matches!(thread.apply(&Attr::grant(Policy::Fifo(1)), None), Err(ApplyError::Gone)));
        assert!(matches!(thread.restore(&snapshot), Err(ApplyError::Gone)));
        assert!(matches!(thread.snapshot(), Err(ApplyError::Gone)));
        assert!(matches!(thread.uids_now(), Err(OpenError::Gone)));
        assert!(matches!(Thread::open_by(sleeper.tid, method), Err(OpenError::Gone)));
    }
}

#[test]
fn kernel_threads_are_refused() {
    let kthreadd = Tid::new(2).expect("a number");
    let kernels = talea_os::proc::stat(kthreadd).is_ok_and(|stat| stat.is_kernel_thread());
    needs!("a view of the kernel's threads", kernels);
    for method in both_methods() {
        assert!(matches!(Thread::open_by(kthreadd, method), Err(OpenError::KernelThread)));
        let third = Tid::new(3).expect("a number");
        if talea_os::proc::stat(third).is_ok_and(|stat| stat.is_kernel_thread()) {
            assert!(matches!(Thread::open_by(third, method), Err(OpenError::KernelThread)));
        }
    }
}

#[test]
fn descriptors_that_are_no_pidfds_are_refused() {
    let file: OwnedFd = File::open("/dev/null").expect("a file").into();
    let directory: OwnedFd = File::open("/proc/self").expect("a directory").into();
    let (socket, _other) = seqpacket::pair(true).expect("a pair");
    let epoll = talea_os::epoll::Epoll::new().expect("epoll");
    let epoll = epoll.as_fd().try_clone_to_owned().expect("a copy");
    for fd in [file, directory, socket, epoll] {
        assert!(matches!(Thread::from_fd(fd), Err(OpenError::NotAPidfd(_))));
    }
}

fn pidfd(tid: Tid, flags: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: integers; a non-negative return is a fresh descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid.as_raw(), flags) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[test]
fn a_received_pidfd_names_its_thread() {
    let mut sleeper = Sleeper::start();
    let (ours, theirs) = seqpacket::pair(true).expect("a pair");
    let pass = |fd: OwnedFd| {
        seqpacket::send(&theirs, b"x", Some(fd.as_fd())).expect("sent");
        drop(fd);
        seqpacket::recv(&ours, &mut [0; 8]).expect("received").fd.expect("a descriptor")
    };
    let process =
        Thread::from_fd(pass(pidfd(Tid::of_process(), 0).expect("a process pidfd"))).expect("us");
    assert_eq!((process.tid(), process.tgid()), (Tid::of_process(), Tid::of_process()));
    needs!("PIDFD_THREAD", both_methods().contains(&Method::Pidfd));
    let fd = pass(pidfd(sleeper.tid, libc::O_EXCL).expect("a thread pidfd"));
    let thread = Thread::from_fd(fd).expect("the sleeper");
    assert_eq!((thread.tid(), thread.tgid()), (sleeper.tid, Tid::of_process()));
    assert!(thread.is_same(&Thread::open(sleeper.tid).expect("the sleeper")));
    assert!(!thread.is_same(&process));
    let stale = pass(pidfd(sleeper.tid, libc::O_EXCL).expect("a thread pidfd"));
    sleeper.end();
    assert!(matches!(Thread::from_fd(stale), Err(OpenError::Gone)));
    // A whole process that has ended but is not collected is as dead.
    let mut child = Command::new("true").spawn().expect("a child");
    let dead = pidfd(Tid::new(child.id() as i32).expect("a pid"), 0).expect("a process pidfd");
    wait_until("the child has ended", || {
        talea_os::proc::stat(Tid::new(child.id() as i32).expect("a pid"))
            .is_ok_and(|stat| stat.has_ended())
    });
    assert!(matches!(Thread::from_fd(pass(dead)), Err(OpenError::Gone)));
    child.wait().expect("collected");
}

#[test]
fn r25_the_owner_is_read_at_the_time_of_use() {
    needs!("root", is_root());
    for method in both_methods() {
        let sleeper = Sleeper::start();
        let thread = Thread::open_by(sleeper.tid, method).expect("a living thread");
        assert_eq!(thread.uids_now().expect("an owner").effective, 0);
        // The raw call changes this thread alone.
        // SAFETY: integers.
        let done = sleeper.run(|| unsafe { libc::syscall(libc::SYS_setresuid, -1, 4242, -1) });
        assert_eq!(done, 0);
        let uids = thread.uids_now().expect("an owner");
        assert_eq!((uids.real, uids.effective), (0, 4242));
        assert_eq!(thread.uids().effective, 0, "what was read at open is not silently renewed");
    }
}

#[test]
fn a_thread_is_reopened_by_its_identity() {
    let mut sleeper = Sleeper::start();
    let thread = Thread::open(sleeper.tid).expect("a living thread");
    let identity = thread.identity().expect("an identity");
    assert!(Thread::reopen(&identity).expect("found again").is_same(&thread));
    for other in [
        Identity { start_ticks: identity.start_ticks + 1, ..identity },
        Identity { inode: identity.inode + 1, ..identity },
    ] {
        assert!(matches!(Thread::reopen(&other), Err(OpenError::OtherThread)));
    }
    sleeper.end();
    assert!(matches!(Thread::reopen(&identity), Err(OpenError::Gone)));
}

#[test]
fn a_snapshot_survives_encoding() {
    let sleeper = Sleeper::start();
    let thread = Thread::open(sleeper.tid).expect("a living thread");
    let snapshot = thread.snapshot().expect("a snapshot");
    assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()), Some(snapshot));
    for policy in [Policy::Rr(99), Policy::Idle, deadline(3, 7), Policy::Batch { nice: -20 }] {
        let snapshot = Snapshot { attr: Attr::grant(policy), nice: -20, ..snapshot };
        assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()), Some(snapshot));
    }
    let mut damaged = snapshot.to_bytes();
    damaged[4] = 77;
    assert_eq!(Snapshot::from_bytes(&damaged), None);
    assert_eq!(
        Snapshot::from_bytes(&[0; Snapshot::BYTES]).map(|s| s.attr.policy),
        Some(Policy::NORMAL)
    );
}

#[test]
fn the_threads_of_a_process_are_listed_main_thread_first() {
    let sleepers = [Sleeper::start(), Sleeper::start()];
    let threads = talea_os::proc::threads_of(Tid::of_process()).expect("own threads");
    assert_eq!(threads[0], Tid::of_process());
    assert!(sleepers.iter().all(|sleeper| threads.contains(&sleeper.tid)));
    assert!(talea_os::proc::exe(Tid::of_process()).expect("a program").is_absolute());
    assert!(!talea_os::proc::comm(sleepers[0].tid).expect("a name").is_empty());
}

/// Starts a program with the number `wanted`; `None` if other processes took it first.
fn spawn_as(wanted: Tid) -> Option<std::process::Child> {
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (wanted.as_raw() - 1).to_string()).ok()?;
        let mut child = Command::new("sleep").arg("30").stdin(Stdio::null()).spawn().ok()?;
        if child.id() as i32 == wanted.as_raw() {
            return Some(child);
        }
        child.kill().ok()?;
        child.wait().ok()?;
    }
    None
}

#[test]
fn r32_retif_s7_a_reused_number_hits_no_other_thread() {
    needs!("root", is_root());
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    // Policies of the thread and of the other one: leaving the deadline class takes a shorter path.
    let kinds =
        [(Policy::Fifo(1), Policy::Rr(3)), (deadline(1_000, 100_000), deadline(2_000, 100_000))];
    for (method, (own, foreign)) in
        both_methods().into_iter().flat_map(|method| kinds.map(|kinds| (method, kinds)))
    {
        // A process of another test may take the number and live long.
        let reused = (0..10).find_map(|_| {
            let mut first = Command::new("sleep").arg("30").spawn().expect("a child");
            let tid = Tid::new(first.id() as i32).expect("a pid");
            let thread = Thread::open_by(tid, method).expect("a living thread");
            let old = thread.snapshot().expect("a snapshot");
            let identity = thread.identity().expect("an identity");
            thread.apply(&Attr::grant(own), None).expect("a real-time policy");
            first.kill().expect("killed");
            first.wait().expect("collected");
            spawn_as(tid).map(|other_thread| (tid, thread, old, identity, other_thread))
        });
        needs!("the right to choose the next number", reused.is_some());
        let (tid, thread, old, identity, mut other_thread) = reused.expect("as just said");
        // The other thread has a policy of its own, as in the original's defect: it must keep it.
        sched::set(tid, &Attr::plain(foreign)).expect("its own policy");
        let refused = [
            thread.apply(&Attr::grant(Policy::Fifo(50)), None).map(drop),
            thread.restore(&old).map(drop),
            thread.snapshot().map(drop),
        ];
        let found_again = Thread::reopen(&identity);
        let kept = sched::get(tid).expect("the other_thread's attributes");
        other_thread.kill().expect("killed");
        other_thread.wait().expect("collected");
        assert!(
            refused.iter().all(|answer| matches!(answer, Err(ApplyError::Gone))),
            "{refused:?}"
        );
        assert!(
            matches!(found_again, Err(OpenError::OtherThread)),
            "{method:?}: a start time has the granularity of a clock tick, an inode is unique: {found_again:?}"
        );
        assert_eq!(kept.policy, foreign);
    }
}
