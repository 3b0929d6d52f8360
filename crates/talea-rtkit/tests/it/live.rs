//! Calls of unprivileged users.

use crate::stage::{Bus, FRONT_END};
use talea_kernel_tests::{ALICE, BOB, Bench, Daemon, config, kernel, needs, needs_root};
use talea_os::sched::Policy;

/// Rules: Alice may use `fp` up to priority 15, and Bob reservations.
fn rules() -> String {
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 15\n\
         [[rule]]\ndomain = \"#{BOB}\"\nplugin = \"edf\"\nmax_utilization = 0.5\n"
    );
    let text = config::common_levels_with_rules(&rules);
    format!("[daemon]\nfront_ends = [\"#{FRONT_END}\"]\n{text}")
}

fn has_bus() -> bool {
    std::process::Command::new("dbus-daemon").arg("--version").output().is_ok()
}

/// A daemon, a bus and the front end.
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
