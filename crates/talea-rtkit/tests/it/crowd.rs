//! Many calls, busy users, and callers in a PID namespace of their own.

use crate::desktop::{PORTAL, SessionBus};
use crate::live::{has_bus, rules, specs, staged};
use crate::replay::{POLKIT, POLKIT_POLICY, polkit};
use crate::stage::{Bus, POLICY};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Daemon, Runs, eventually, kernel, needs, needs_root,
};

/// Time in which each call must be answered, in microseconds.
const TIME_OUT_US: u64 = 2_000_000;
const BWRAP: &str = "/usr/bin/bwrap";
/// Bound of the front end's memory.
const MAX_KIB: u64 = 64 * 1024;
/// Duration of a flood before the calls of others.
const FLOOD: Duration = Duration::from_secs(2);

#[test]
fn a_thousand_grants_beside_a_busy_bus_are_answered() {
    staged!("rtkit-thousand", bench, daemon, bus, front_end);
    let alice = bus.caller(&bench, ALICE);
    let readers = [bus.caller(&bench, BOB), bus.caller(&bench, ALICE)];
    for reader in &readers {
        assert_eq!(reader.order("reads"), "reading");
    }
    let grants = || times_of(&alice.order("grants 1000 10"));
    let Some([median, p99, max]) = Runs::at_least(1).repeat(grants) else { return };
    println!("1000 grants: median {median} us, p99 {p99} us, maximum {max} us");
    assert!(max < TIME_OUT_US, "a reply is late: {max} us");
    eventually("the grants end with their threads", || specs(&daemon) == 0);
}

#[test]
fn a_thousand_grants_beside_a_busy_or_hung_polkit_do_not_wait_for_it() {
    needs_root!();
    needs!("dbus-daemon", has_bus());
    needs!("polkitd", Path::new(POLKIT).exists());
    let bench = Bench::new("rtkit-polkit");
    let daemon = Daemon::start(&bench, &rules());
    let policies = [Path::new(POLICY), Path::new(POLKIT_POLICY)];
    let bus = Bus::with_policies(&bench, "bus", &policies);
    let _front_end = bus.front_end(&bench, &daemon, &[]);
    let polkit = polkit(&bench, &bus, &[]);
    let (alice, bob) = (bus.caller(&bench, ALICE), bus.caller(&bench, BOB));
    assert_eq!(bob.order("asks-polkit"), "asking");
    let answers = || number(&bob.order("polkit-answers"));
    let before = answers();
    let mut runs = Runs::at_least(2);
    let mut in_time = |order: &str| {
        let times = runs.repeat(|| times_of(&alice.order(order)));
        assert!(times.is_none_or(|times| times[2] < TIME_OUT_US), "a reply is late: {times:?} us");
        times
    };
    let busy = in_time("grants 1000 10");
    let during = answers() - before;
    assert!(during > 0, "polkit is busy meanwhile");
    let process = Pid::from_raw(polkit.pid()).expect("a pid");
    kill_process(process, Signal::STOP).expect("stopped");
    let hung = in_time("grants 100 10");
    println!(
        "1000 grants beside {during} answers of polkit: {busy:?} us; hung polkit: {hung:?} us"
    );
}

#[test]
fn a_flood_of_one_user_leaves_others_their_grants_and_answers() {
    staged!("rtkit-flood", bench, daemon, bus, front_end);
    let alice = bus.caller(&bench, ALICE);
    let threads = [alice.thread(), alice.thread()];
    for thread in threads {
        assert_eq!(alice.order(&format!("realtime {thread} 9")), "ok");
    }
    let before = threads.map(kernel::attr);
    let flood: Vec<Agent> = (0..3).map(|_| bus.caller(&bench, BOB)).collect();
    for bob in &flood {
        assert_eq!(bob.order("flood 32"), "flooding");
    }
    let grants = || times_of(&alice.order("grants 100 10"));
    let Some(times) = Runs::at_least(1).repeat(grants) else { return };
    println!("100 grants beside a flood: median {} us, maximum {} us", times[0], times[2]);
    assert!(times[2] < TIME_OUT_US, "a reply is late: {} us", times[2]);
    assert_eq!(threads.map(kernel::attr), before);
    let memory = memory_kib(front_end.pid());
    println!("memory of the front end: {memory} KiB");
    assert!(memory < MAX_KIB, "{memory} KiB");
    for bob in &flood {
        bob.kill();
    }
    let bob = bus.caller(&bench, BOB);
    eventually("the user of the flood is served again", || {
        bob.order(&format!("realtime {} 5", bob.thread())) == "ok"
    });
}

#[test]
fn a_flood_with_unread_replies_delays_others_for_a_bounded_time() {
    staged!("rtkit-unread", bench, daemon, bus, front_end);
    let alice = bus.caller(&bench, ALICE);
    let mut runs = Runs::at_least(2);
    for flag in ["reply", "no-reply"] {
        let times = runs.repeat(|| {
            let flood: Vec<Agent> = (0..2).map(|_| bus.caller(&bench, BOB)).collect();
            for bob in &flood {
                assert_eq!(bob.order(&format!("flood-unread {flag}")), "flooding");
            }
            std::thread::sleep(FLOOD);
            let said = alice.order("grants 50 10");
            let memory = memory_kib(front_end.pid());
            println!("{flag}: {said} us, {memory} KiB");
            for bob in &flood {
                bob.kill();
            }
            assert!(memory < MAX_KIB, "{memory} KiB");
            times_of(&said)
        });
        let late = times.filter(|times| times[2] >= TIME_OUT_US);
        assert_eq!(late, None, "a reply is late");
    }
}

#[test]
fn a_caller_in_a_pid_namespace_is_served_by_numbers_outside_of_it() {
    staged!("rtkit-namespace", bench, daemon, bus, front_end);
    // Copies the program to where users may execute it.
    let portal = bus.caller(&bench, ALICE);
    let user = ALICE.to_string();
    let mut command = bus.command("unshare");
    command.args(["--pid", "--fork", "setpriv", "--reuid", &user]);
    command.args(["--regid", &user, "--clear-groups"]).arg(bench.path("caller"));
    let inner = Agent::start(command, 0);
    let (pid, tid) = (inner.pid(), inner.thread());
    assert_eq!(pid, 1, "the caller has its own numbers");
    let outer_pid = child_of(inner.os_pid());
    let outer_tid = outer_thread(outer_pid, tid);
    // Its own number is none of a thread of it outside.
    let said = inner.order(&format!("realtime {tid} 5"));
    assert!(said.starts_with("org.freedesktop.DBus.Error.Failed"), "{said}");
    assert!(kernel::is_ordinary(outer_tid));
    // The portal translates the numbers.
    assert_eq!(portal.order(&format!("realtime-of {outer_pid} {outer_tid} 12")), "ok");
    assert!(kernel::policy(outer_tid).is_realtime());
    // The bus knows the process of the caller.
    assert_eq!(inner.order("realtime 0 5"), "ok");
    assert!(kernel::policy(outer_pid).is_realtime());
    kill_process(Pid::from_raw(outer_pid).expect("a pid"), Signal::KILL).expect("kill");
    eventually("the grants of an ended caller are released", || specs(&daemon) == 0);
}

#[test]
fn a_sandboxed_caller_asks_the_portal_by_its_own_numbers() {
    const INSTANCE: &str = "4711";
    needs!("xdg-desktop-portal", Path::new(PORTAL).exists());
    needs!("bwrap", Path::new(BWRAP).exists());
    staged!("rtkit-sandbox", bench, daemon, bus, front_end);
    // Copies the program to where users may execute it.
    let _other = bus.caller(&bench, ALICE);
    let session = SessionBus::start(&bench, "session", &bus);
    let _portal = session.portal();
    // The portal recognises a sandbox by this file, as of Flatpak.
    let info =
        format!("[Application]\nname=org.example.Caller\n[Instance]\ninstance-id={INSTANCE}\n");
    let info = bench.write("flatpak-info", &info);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (home, info, caller) = (text(&bench.path("")), text(&info), text(&bench.path("caller")));
    let line = [
        &[BWRAP, "--unshare-pid", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"][..],
        &["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"],
        &["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"],
        &["--ro-bind", &home, &home, "--ro-bind", &info, "/.flatpak-info", &caller],
    ];
    let inner = Agent::start(session.command(&line.concat()), 0);
    let (pid, tid, other) = (inner.pid(), inner.thread(), inner.thread());
    let first = child_of(inner.os_pid());
    let outer = child_of(first);
    let place = session.runtime_folder().join(".flatpak").join(INSTANCE);
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::write(place.join("bwrapinfo.json"), format!("{{\"child-pid\": {first}}}"))
        .expect("a file");
    let (outer_tid, outer_other) = (outer_thread(outer, tid), outer_thread(outer, other));
    assert_ne!((pid, tid), (outer, outer_tid), "the caller has its own numbers");
    let above = inner.order(&format!("portal {pid} {tid} 16"));
    assert!(above.contains("AccessDenied") && above.contains("15"), "{above}");
    let outside = inner.order(&format!("portal {outer} {outer_tid} 12"));
    assert!(outside.starts_with("org."), "numbers outside are not those of the sandbox: {outside}");
    assert!(kernel::is_ordinary(outer_tid));
    assert_eq!(inner.order(&format!("portal {pid} {tid} 12")), "ok");
    assert!(kernel::policy(outer_tid).is_realtime());
    assert!(kernel::is_ordinary(outer_other) && kernel::is_ordinary(outer));
    assert_eq!(specs(&daemon), 1);
    inner.kill();
    eventually("the grant of an ended caller is released", || specs(&daemon) == 0);
}

/// Returns the only child of a process.
fn child_of(process: i32) -> i32 {
    let children = format!("/proc/{process}/task/{process}/children");
    number(&read_to_string(children).expect("a child"))
}

/// Returns the median, the 99th percentile and the maximum of the times of granted calls. A run is
/// inconclusive if the daemon was too slow for the front end: that of the tests has no priority,
/// and other programs may keep it from a CPU.
fn times_of(said: &str) -> Option<[u64; 3]> {
    let times: Vec<u64> = said.split(' ').filter_map(|time| time.parse().ok()).collect();
    let is_slow = said.contains("did not answer within") || said.contains("needs too long");
    assert!(times.len() == 3 || is_slow, "a call is refused: {said}");
    times.try_into().ok()
}

fn number(text: &str) -> i32 {
    text.trim().parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Returns the number outside of the namespace of the thread `tid` in it.
fn outer_thread(process: i32, tid: i32) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let mut numbers = tasks.flatten().map(|entry| number(&entry.file_name().to_string_lossy()));
    let is_it = |task: &i32| {
        let status = read_to_string(format!("/proc/{process}/task/{task}/status"));
        let status = status.unwrap_or_default();
        let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        own.is_some_and(|own| own.split_whitespace().last() == Some(&tid.to_string()))
    };
    numbers.find(is_it).expect("the thread of the caller")
}

/// Returns the resident memory of a process.
fn memory_kib(process: i32) -> u64 {
    let status = read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
