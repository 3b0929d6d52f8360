//! Calls of unprivileged users.

use crate::stage::{Bus, FRONT_END};
use std::time::{Duration, Instant};
use talea_client::Client;
use talea_kernel_tests::{
    ALICE, BOB, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::Policy;

/// Returns rules: Alice may use `fp` up to priority 15, and Bob reservations.
pub(crate) fn rules() -> String {
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 15\n\
         [[rule]]\ndomain = \"#{ALICE}\"\nmin_nice = -11\n\
         [[rule]]\ndomain = \"#{BOB}\"\nplugin = \"edf\"\nmax_utilization = 0.5\n"
    );
    let text = config::common_levels_with_rules(&rules);
    format!("[daemon]\nfront_ends = [\"#{FRONT_END}\"]\n{text}")
}

pub(crate) fn has_bus() -> bool {
    std::process::Command::new("dbus-daemon").arg("--version").output().is_ok()
}

/// Starts a daemon, a bus and the front end.
macro_rules! staged {
    ($name:literal, $bench:ident, $daemon:ident, $bus:ident, $front_end:ident) => {
        needs_root!();
        needs!("dbus-daemon", has_bus());
        let $bench = Bench::new($name);
        #[allow(unused_mut, reason = "some tests restart it")]
        let mut $daemon = Daemon::start(&$bench, &rules());
        let $bus = Bus::start(&$bench);
        #[allow(unused, reason = "some tests restart it")]
        let mut $front_end = $bus.front_end(&$bench, &$daemon, &[]);
    };
}
pub(crate) use staged;

#[test]
fn a_call_makes_the_thread_real_time_by_the_rules_of_the_caller() {
    staged!("rtkit-rules", bench, daemon, bus, front_end);
    let (alice, bob) = (bus.caller(&bench, ALICE), bus.caller(&bench, BOB));
    let hers = alice.thread();
    let others = bus.caller(&bench, ALICE);
    // From another process of the same user, as a portal does.
    assert_eq!(others.order(&format!("realtime-of {} {hers} 12", alice.pid())), "ok");
    let attr = kernel::attr(hers);
    assert!(matches!(attr.policy, Policy::Fifo(20..=39)), "{attr:?}");
    assert!(attr.reset_on_fork);
    let his = bob.thread();
    assert_eq!(bob.order(&format!("realtime {his} 12")), "ok");
    let policy = kernel::policy(his);
    let Policy::Deadline { runtime, period, .. } = policy else { panic!("{policy:?}") };
    assert_eq!((runtime.as_ns(), period.as_ns()), (2_000_000, 10_000_000));
    // Thread 0 is the main thread.
    assert_eq!(alice.order("realtime 0 3"), "ok");
    assert!(kernel::policy(alice.pid()).is_realtime());
    // A refusal names the rule, for the caller and in the log of the daemon.
    let denied = alice.order(&format!("realtime {} 16", alice.thread()));
    assert!(denied.starts_with("org.freedesktop.DBus.Error.AccessDenied"), "{denied}");
    assert!(denied.contains("talead.toml") && denied.contains("15"), "{denied}");
    let logged = daemon.wait_for_line(&ALICE.to_string());
    assert!(logged.as_ref().is_some_and(|line| line.contains("15")), "{logged:?}");
}

#[test]
fn a_second_user_and_a_process_of_two_users_get_nothing_for_the_first() {
    staged!("rtkit-users", bench, daemon, bus, front_end);
    let (alice, bob) = (bus.caller(&bench, ALICE), bus.caller(&bench, BOB));
    let hers = alice.thread();
    for order in [
        format!("realtime-of {} {hers} 10", alice.pid()),
        format!("high-of {} {hers} -5", alice.pid()),
        // The thread is none of the process.
        format!("realtime {hers} 10"),
        format!("realtime-of {} {hers} 10", bob.pid()),
    ] {
        let said = bob.order(&order);
        assert!(said.starts_with("org.freedesktop.DBus.Error."), "{order}: {said}");
        assert!(kernel::is_ordinary(hers), "{order}");
    }
    let said = bob.order(&format!("realtime-of {} {hers} 10", alice.pid()));
    assert!(said.contains("AccessDenied") && said.contains("another user"), "{said}");
    // Not even root's threads for root: the front end acts for users only.
    let root = bus.caller(&bench, 0);
    let said = root.order("realtime 0 10");
    assert!(said.contains("AccessDenied") && said.contains("root"), "{said}");
    assert!(kernel::is_ordinary(root.pid()));
}

#[test]
fn a_repeated_call_changes_the_grant_and_its_thread_ends_it() {
    staged!("rtkit-again", bench, daemon, bus, front_end);
    let alice = bus.caller(&bench, ALICE);
    let thread = alice.thread();
    let level = |thread| kernel::priority(thread);
    assert_eq!(alice.order(&format!("realtime {thread} 5")), "ok");
    assert_eq!(alice.order(&format!("realtime {thread} 5")), "ok");
    assert_eq!(specs(&daemon), 1, "the same call is the same grant");
    let other = alice.thread();
    assert_eq!(alice.order(&format!("realtime {other} 9")), "ok");
    assert!(level(other) > level(thread));
    assert_eq!(alice.order(&format!("realtime {thread} 14")), "ok");
    assert!(level(thread) > level(other), "the later call counts");
    assert_eq!(specs(&daemon), 2);
    // A nice value takes the real-time policy away, as in rtkit.
    assert_eq!(alice.order(&format!("high {other} -11")), "ok");
    let attr = kernel::attr(other);
    assert_eq!((attr.policy, attr.reset_on_fork), (Policy::Other { nice: -11 }, true));
    assert_eq!(specs(&daemon), 1);
    let denied = alice.order(&format!("high {other} -12"));
    assert!(denied.contains("AccessDenied") && denied.contains("-11"), "{denied}");
    let beyond = alice.order(&format!("high {other} -16"));
    assert!(beyond.contains("MinNiceLevel"), "{beyond}");
    alice.kill();
    eventually("the grant of an ended program is released", || specs(&daemon) == 0);
}

#[test]
fn a_restart_of_the_daemon_or_of_the_front_end_changes_no_thread() {
    staged!("rtkit-restart", bench, daemon, bus, front_end);
    let (alice, bob) = (bus.caller(&bench, ALICE), bus.caller(&bench, BOB));
    let (hers, his) = (alice.thread(), bob.thread());
    assert_eq!(alice.order(&format!("realtime {hers} 5")), "ok");
    assert_eq!(bob.order(&format!("realtime {his} 5")), "ok");
    let before = (kernel::attr(hers), kernel::attr(his));
    daemon.kill();
    assert_eq!((kernel::attr(hers), kernel::attr(his)), before);
    daemon.restart();
    drop(front_end);
    let _front_end = bus.front_end(&bench, &daemon, &[]);
    assert_eq!((kernel::attr(hers), kernel::attr(his)), before);
    assert_eq!(alice.order(&format!("realtime {hers} 5")), "ok", "the grant is known");
    assert_eq!(specs(&daemon), 2);
    assert_eq!((kernel::attr(hers), kernel::attr(his)), before);
    bob.kill();
    eventually("the grant of an ended program is released", || specs(&daemon) == 1);
}

#[test]
fn properties_need_no_daemon_and_every_call_is_answered_within_two_seconds() {
    staged!("rtkit-properties", bench, daemon, bus, front_end);
    let alice = bus.caller(&bench, ALICE);
    let thread = alice.thread();
    daemon.signal(rustix::process::Signal::STOP);
    let answered = |order: &str| {
        let begun = Instant::now();
        let said = alice.order(order);
        let after = begun.elapsed();
        assert!(after < Duration::from_secs(2), "{order}: {after:?}");
        said
    };
    assert_eq!(answered("get RTTimeUSecMax"), "x 200000");
    assert_eq!(answered("get MaxRealtimePriority"), "i 20");
    assert_eq!(answered("get MinNiceLevel"), "i -15");
    assert_eq!(answered("get-all"), "MaxRealtimePriority=20 MinNiceLevel=-15 RTTimeUSecMax=200000");
    let unknown = answered("get Unknown");
    assert!(unknown.starts_with("org.freedesktop.DBus.Error.UnknownProperty"), "{unknown}");
    let text = answered("introspect");
    for part in [
        "<method name=\"MakeThreadRealtimeWithPID\"> <arg name=\"process\" type=\"t\"",
        "<method name=\"MakeThreadHighPriority\">",
        "<method name=\"Suspend\">",
        "<property name=\"RTTimeUSecMax\" type=\"x\" access=\"read\">",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let slow = answered(&format!("realtime {thread} 5"));
    assert!(slow.starts_with("org.freedesktop.DBus.Error.Failed"), "{slow}");
    daemon.signal(rustix::process::Signal::CONT);
    daemon.kill();
    let gone = answered(&format!("realtime {thread} 5"));
    assert!(gone.starts_with("org.freedesktop.DBus.Error.Failed"), "{gone}");
    assert!(kernel::is_ordinary(thread));
    daemon.restart();
    assert_eq!(answered(&format!("realtime {thread} 5")), "ok");
}

#[test]
fn a_process_without_real_time_left_gets_a_reservation_but_no_priority() {
    staged!("rtkit-rttime", bench, daemon, bus, front_end);
    for uid in [ALICE, BOB] {
        let caller = bus.caller(&bench, uid);
        let thread = caller.thread();
        assert_eq!(caller.order("rttime 0 0"), "set");
        let said = caller.order(&format!("realtime {thread} 5"));
        if uid == BOB {
            assert_eq!(said, "ok", "SCHED_DEADLINE is exempt");
            assert!(kernel::policy(thread).is_deadline());
        } else {
            assert!(said.contains("AccessDenied") && said.contains("RLIMIT_RTTIME"), "{said}");
            assert!(kernel::is_ordinary(thread));
        }
        assert_eq!(caller.order("pid"), caller.os_pid().to_string(), "it lives");
    }
}

#[test]
fn methods_of_the_administrator_are_denied_to_users() {
    staged!("rtkit-admin", bench, daemon, bus, front_end);
    let (alice, root) = (bus.caller(&bench, ALICE), bus.caller(&bench, 0));
    for member in ["Exit", "ResetKnown", "ResetAll", "Suspend", "Resume"] {
        let said = alice.order(&format!("call {member}"));
        assert!(said.starts_with("org.freedesktop.DBus.Error.AccessDenied"), "{member}: {said}");
        let said = root.order(&format!("call {member}"));
        let is_served = matches!(member, "Exit" | "Suspend" | "Resume");
        assert_eq!(said == "ok", is_served, "{member}: {said}");
    }
    let wrong = alice.order("wrong-types MakeThreadRealtime");
    assert!(wrong.starts_with("org.freedesktop.DBus.Error.InvalidArgs"), "{wrong}");
    let unknown = alice.order("call Nothing");
    assert!(unknown.starts_with("org.freedesktop.DBus.Error.UnknownMethod"), "{unknown}");
    assert_eq!(alice.order("get MinNiceLevel"), "i -15", "it still serves after Exit");
}

/// Returns the number of grants.
pub(crate) fn specs(daemon: &Daemon) -> u32 {
    let client = Client::builder().path(daemon.socket()).connect().expect("a daemon");
    client.status().expect("an answer").expect("counters").specs
}
