//! Decoding of every call, and real calls of a thread with the filter.

use super::*;
use crate::sched;
use std::sync::mpsc;
use talea_core::{Span, Work};

/// Calls with their memory at address 1.
fn wanted(number: libc::c_long, args: [u64; 3], memory: &[u8]) -> Wanted {
    let [first, second, third] = args;
    let call = Call { id: 0, caller: None, number, args: [first, second, third, 0, 0, 0] };
    call.wanted_with(|address, buffer| {
        let found = memory.get(address as usize - 1..).and_then(|rest| rest.get(..buffer.len()));
        found.is_some_and(|bytes| {
            buffer.copy_from_slice(bytes);
            true
        })
    })
}

fn attr(policy: Policy, flags: u64) -> [u8; Attr::BYTES] {
    let mut bytes = Attr::plain(policy).to_bytes();
    bytes[8..16].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

fn deadline(runtime: u64, deadline: u64, period: u64) -> Policy {
    Policy::Deadline {
        runtime: Work::from_ns(runtime),
        deadline: Span::from_ns(deadline),
        period: Span::from_ns(period),
    }
}

#[test]
fn a_policy_and_its_priority_are_read_from_register_and_memory() {
    let call = |policy: i32, priority: i32| {
        let args = [0, policy as u64, 1];
        wanted(libc::SYS_sched_setscheduler, args, &priority.to_ne_bytes())
    };
    assert_eq!(call(libc::SCHED_FIFO, 80), Wanted::RealTime(Policy::Fifo(80)));
    assert_eq!(call(libc::SCHED_RR | RESET_ON_FORK, 1), Wanted::RealTime(Policy::Rr(1)));
    let ordinary = |policy| Wanted::Ordinary { policy, keeps_nice: true };
    assert_eq!(call(libc::SCHED_OTHER, 0), ordinary(Policy::NORMAL));
    assert_eq!(call(libc::SCHED_BATCH, 0), ordinary(Policy::Batch { nice: 0 }));
    assert_eq!(call(libc::SCHED_IDLE, 0), ordinary(Policy::Idle));
    // The kernel has error numbers for each of these.
    let invalid = [
        (libc::SCHED_FIFO, 0),
        (libc::SCHED_FIFO, 100),
        (libc::SCHED_RR, -1),
        (libc::SCHED_OTHER, 1),
        (libc::SCHED_DEADLINE, 0),
        (-1, 0),
    ];
    for (policy, priority) in invalid {
        assert_eq!(call(policy, priority), Wanted::Kernel, "{policy} {priority}");
    }
    let unreadable = wanted(libc::SYS_sched_setscheduler, [0, 1, 1], &[0; 3]);
    assert_eq!(unreadable, Wanted::Kernel);
    assert_eq!(wanted(libc::SYS_sched_setparam, [0, 1, 0], &[7, 0, 0, 0]), Wanted::Priority(7));
}

#[test]
fn attributes_of_every_size_are_read() {
    let call = |bytes: &[u8]| wanted(libc::SYS_sched_setattr, [0, 1, 0], bytes);
    let policy = deadline(2_000_000, 5_000_000, 10_000_000);
    let mut bytes = attr(policy, 0);
    assert_eq!(call(&bytes), Wanted::RealTime(policy));
    bytes[..4].copy_from_slice(&48u32.to_ne_bytes());
    assert_eq!(call(&bytes[..48]), Wanted::RealTime(policy), "first version of the structure");
    bytes[..4].copy_from_slice(&0u32.to_ne_bytes());
    assert_eq!(call(&bytes[..48]), Wanted::RealTime(policy), "size 0 is the first version");
    bytes[..4].copy_from_slice(&47u32.to_ne_bytes());
    assert_eq!(call(&bytes), Wanted::Kernel);
    bytes[..4].copy_from_slice(&56u32.to_ne_bytes());
    assert_eq!(call(&bytes[..48]), Wanted::Kernel, "not readable as a whole");
    assert_eq!(wanted(libc::SYS_sched_setattr, [0, 1, 1], &attr(policy, 0)), Wanted::Kernel);
    let implicit = call(&attr(deadline(2_000_000, 5_000_000, 0), 0));
    assert_eq!(implicit, Wanted::RealTime(deadline(2_000_000, 5_000_000, 5_000_000)));
    for invalid in [(0, 5, 10), (1023, 5_000, 5_000), (6_000, 5_000, 9_000), (2_000, 9_000, 5_000)]
    {
        let policy = deadline(invalid.0, invalid.1, invalid.2);
        assert_eq!(call(&attr(policy, 0)), Wanted::Kernel, "{invalid:?}");
    }
    for (policy, keeps_nice) in [(Policy::Other { nice: -5 }, false), (Policy::Idle, true)] {
        assert_eq!(call(&attr(policy, 0)), Wanted::Ordinary { policy, keeps_nice });
    }
    for flags in [2, 4, 0x20] {
        assert!(matches!(call(&attr(policy, flags)), Wanted::Unsupported(_)), "{flags}");
    }
    assert_eq!(call(&attr(Policy::Fifo(5), 1)), Wanted::RealTime(Policy::Fifo(5)));
    // Keeping the present policy or parameters is no request for real time.
    assert_eq!(call(&attr(policy, 8)), Wanted::Kernel);
    assert_eq!(call(&attr(policy, 16)), Wanted::Kernel);
}

#[test]
fn a_nice_value_is_clamped_as_by_the_kernel() {
    let call = |which: i32, nice: i32| {
        wanted(libc::SYS_setpriority, [which as u64, 0, nice as u32 as u64], &[])
    };
    assert_eq!(call(0, -25), Wanted::Nice(-20));
    assert_eq!(call(0, 30), Wanted::Nice(19));
    assert_eq!(call(libc::PRIO_PGRP as i32, 5), Wanted::Kernel);
}

/// Returns the action of the filter for a call: an interpreter of the three instructions in use.
fn action(arch: u32, number: u32) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let libc::sock_filter { code, jt, jf, k } = PROGRAM[at];
        at += 1;
        match code {
            LOAD => loaded = if k == AT_ARCH { arch } else { number },
            EQUAL => at += usize::from(if loaded == k { jt } else { jf }),
            RETURN => return k,
            other => panic!("instruction {other}"),
        }
    }
}

#[test]
fn the_filter_stops_the_four_calls_of_the_native_abi_only() {
    const X32: u32 = 0x4000_0000;
    const I386: u32 = 0x4000_0003;
    for number in 0..1_000 {
        let is_ours = CALLS.iter().any(|&call| call as u32 == number);
        let expected = if is_ours { libc::SECCOMP_RET_USER_NOTIF } else { ALLOW };
        assert_eq!(action(ARCH, number), expected, "call {number}");
        assert_eq!(action(I386, number), ALLOW, "call {number} of another architecture");
        assert_eq!(action(ARCH, number | X32), ALLOW, "call {number} of x32");
    }
}

/// Runs `program` in a thread with the filter, and answers its calls with `answer`.
fn supervised<T: Send + 'static>(
    program: impl FnOnce() -> T + Send + 'static,
    mut answer: impl FnMut(&Listener, &Call) -> Answer,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        sender.send(Listener::install().expect("the filter")).expect("a receiver");
        program()
    });
    let listener = receiver.recv().expect("a listener");
    while !thread.is_finished() {
        let mut fds = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        if rustix::event::poll(&mut fds, Some(&pause)).is_ok_and(|ready| ready == 1)
            && fds[0].revents().contains(rustix::event::PollFlags::IN)
            && let Some(call) = listener.next().expect("a call")
        {
            let reply = answer(&listener, &call);
            listener.answer(&call, reply).expect("an answer");
        }
    }
    thread.join().expect("the program ends")
}

#[test]
fn a_supervisor_answers_in_place_of_the_kernel() {
    let own = Tid::of_process();
    let result = supervised(
        || {
            let set = |priority| sched::set(Tid::current(), &Attr::plain(Policy::Fifo(priority)));
            let results = [set(1), set(2), set(3)].map(|r| r.err().and_then(|e| e.raw_os_error()));
            (Tid::current(), results, sched::get(Tid::current()).expect("it lives").policy)
        },
        |listener, call| {
            assert!(listener.is_waiting(call));
            let caller = call.caller().expect("it is in this namespace");
            assert_ne!(caller, own);
            assert_eq!(call.target().expect("the caller names itself"), caller);
            match call.wanted() {
                Wanted::RealTime(Policy::Fifo(1)) => Answer::Success,
                Wanted::RealTime(Policy::Fifo(2)) => Answer::Failure(libc::EPERM),
                Wanted::RealTime(Policy::Fifo(3)) => Answer::Failure(libc::EAGAIN),
                other => panic!("{other:?}"),
            }
        },
    );
    let (_, results, policy) = result;
    assert_eq!(results, [None, Some(libc::EPERM), Some(libc::EAGAIN)]);
    assert_eq!(policy, Policy::NORMAL, "the kernel has executed none of them");
}

#[test]
fn a_continued_call_is_executed_and_another_supervisor_is_refused() {
    let nice = supervised(
        || {
            let second = Listener::install().expect_err("one supervisor");
            assert_eq!(second.raw_os_error(), Some(libc::EBUSY));
            sched::set_nice(Tid::current(), 7).expect("no right is needed");
            sched::get_nice(Tid::current()).expect("it lives")
        },
        |_, call| {
            assert_eq!(call.wanted(), Wanted::Nice(7));
            Answer::Continue
        },
    );
    assert_eq!(nice, 7);
}

#[test]
fn without_a_supervisor_calls_fail_and_others_work() {
    let thread = std::thread::spawn(|| {
        drop(Listener::install().expect("the filter"));
        let error = sched::set_nice(Tid::current(), 3).expect_err("no supervisor");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        assert_eq!(sched::get_nice(Tid::current()).expect("reads pass"), 0);
    });
    thread.join().expect("it ends");
}
