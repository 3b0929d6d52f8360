//! Debian's PipeWire, unmodified, with threads that the rules choose.

use crate::desktop::{Cycles, PORTAL, Session, is_installed, realtime_threads};
use crate::stage::{Bus, FRONT_END, Process};
use crate::stalls::StallDetector;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use talea_kernel_tests::{
    ALICE, Bench, Daemon, Runs, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::{Attr, Policy};

/// Duration of a recording. Stalls leave few longer ones.
const RECORDING: Duration = Duration::from_millis(600);
/// Recordings without a stall that each of the three cases needs.
const RECORDINGS: u32 = 6;
/// Busy ordinary processes per CPU: the first number that disturbs an ordinary session is used.
const BUSY_PER_CPU: [usize; 4] = [4, 8, 16, 32];

/// Returns a configuration that gives this plugin to the user, or nothing.
fn rules(plugin: Option<&str>) -> String {
    let rules = plugin.map_or_else(String::new, |plugin| {
        format!(
            "[[rule]]\ndomain = \"#{ALICE}\"\nmin_nice = -11\n\
             [[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"{plugin}\"\nmax_utilization = 1.0\n"
        )
    });
    let text = config::common_levels_with_rules(&rules);
    format!("[daemon]\nfront_ends = [\"#{FRONT_END}\"]\n{text}")
}

/// Starts processes that compute all the time.
fn load(per_cpu: usize) -> Vec<Process> {
    let count = kernel::cpus().iter().count() * per_cpu;
    let busy = || Process::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    (0..count).map(|_| busy()).collect()
}

/// Adds up the cycles of recordings with cycles and without a CPU stall.
fn without_stalls(runs: &mut Runs, session: &Session, meanwhile: &mut dyn FnMut()) -> Cycles {
    let mut sum = Cycles::default();
    for _ in 0..RECORDINGS {
        let recording = runs.repeat(|| {
            let detector = StallDetector::start();
            let cycles = session.record(|| {
                std::thread::sleep(RECORDING / 2);
                meanwhile();
                std::thread::sleep(RECORDING / 2);
            });
            (detector.finish() == 0 && cycles.all > 0).then_some(cycles)
        });
        let cycles = recording.unwrap_or_default();
        sum = Cycles { all: sum.all + cycles.all, xruns: sum.xruns + cycles.xruns };
    }
    sum
}

/// Waits for the real-time thread of each process, and returns the attributes.
fn data_threads(session: &Session) -> [(i32, Attr); 2] {
    session.processes().map(|process| {
        eventually("a data thread is real-time", || realtime_threads(process).len() == 1);
        let thread = realtime_threads(process)[0];
        (thread, kernel::attr(thread))
    })
}

#[test]
fn pipewire_plays_under_load_with_the_policy_of_the_rule() {
    needs_root!();
    needs!("PipeWire with WirePlumber and the tools", is_installed());
    let bench = Bench::new("rtkit-pipewire");
    let mut daemon = Daemon::start(&bench, &rules(None));
    let bus = Bus::start(&bench);
    let mut front_end = Some(bus.front_end(&bench, &daemon, &[]));
    let mut runs = Runs::at_least(3 * RECORDINGS);

    let (busy, refused) = {
        let session = Session::start(&bench, "refused", &bus);
        let disturbed = BUSY_PER_CPU.into_iter().find_map(|busy| {
            let _load = load(busy);
            let cycles = without_stalls(&mut runs, &session, &mut || ());
            (cycles.xruns > 0).then_some((busy, cycles))
        });
        for process in session.processes() {
            assert!(realtime_threads(process).is_empty(), "no rule allows it");
        }
        assert!(session.is_playing(), "a refusal leaves PipeWire serving");
        disturbed.expect("a load disturbs ordinary threads")
    };

    daemon.reload(&rules(Some("fp")));
    let fifo = {
        let session = Session::start(&bench, "fifo", &bus);
        let before = data_threads(&session);
        for (_, attr) in before {
            assert!(matches!(attr.policy, Policy::Fifo(20..=39)), "{attr:?}");
            assert!(attr.reset_on_fork);
        }
        assert_eq!(kernel::policy(session.processes()[0]), Policy::Other { nice: -11 });
        let _load = load(busy);
        without_stalls(&mut runs, &session, &mut || ())
    };

    daemon.reload(&rules(Some("edf")));
    let edf = {
        let session = Session::start(&bench, "edf", &bus);
        let before = data_threads(&session);
        for (_, attr) in before {
            let Policy::Deadline { runtime, period, .. } = attr.policy else { panic!("{attr:?}") };
            assert_eq!((runtime.as_ns(), period.as_ns()), (2_000_000, 10_000_000));
        }
        let _load = load(busy);
        // The daemon and the front end end and start again while the tone is played.
        let cycles = without_stalls(&mut runs, &session, &mut || {
            daemon.kill();
            daemon.restart();
            front_end.take();
            front_end = Some(bus.front_end(&bench, &daemon, &[]));
        });
        assert_eq!(data_threads(&session), before);
        cycles
    };

    println!("{busy} busy processes per CPU, refused {refused:?}");
    println!("FIFO {fifo:?}, reservations {edf:?}");
    assert_eq!((fifo.xruns, edf.xruns), (0, 0));
}

#[test]
fn a_client_of_the_portal_gets_a_reservation_and_a_limit_above_zero() {
    needs_root!();
    needs!("PipeWire with WirePlumber and the tools", is_installed());
    needs!("xdg-desktop-portal", Path::new(PORTAL).exists());
    let bench = Bench::new("rtkit-portal");
    let daemon = Daemon::start(&bench, &rules(Some("edf")));
    let bus = Bus::start(&bench);
    // The portal reads the properties once, at its start.
    let _front_end = bus.front_end(&bench, &daemon, &[]);
    let trail = || -> String {
        let files = std::fs::read_dir(bench.path("state/audit")).expect("a trail");
        files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
    };
    let mut sessions = 0;
    Runs::at_least(1).repeat(|| {
        sessions += 1;
        let session = Session::with_portal(&bench, &format!("portal-{sessions}"), &bus);
        for (thread, attr) in data_threads(&session) {
            assert!(attr.policy.is_deadline(), "thread {thread}: {attr:?}");
        }
        for process in session.processes() {
            let limits = std::fs::read_to_string(format!("/proc/{process}/limits"));
            let limits = limits.expect("limits");
            let line = limits.lines().find(|line| line.starts_with("Max realtime timeout"));
            let line = line.expect("a limit").split_whitespace().collect::<Vec<_>>();
            assert_eq!(line[3..5], ["200000", "200000"], "process {process}");
        }
        // The daemon's caller is the portal: the clients did not call themselves. They do if the
        // portal is slow to answer on a busy computer.
        let grant = format!("\"pid\":{},", session.portal());
        let is_recorded =
            || trail().lines().any(|line| line.contains("\"attach\"") && line.contains(&grant));
        (0..20)
            .any(|_| {
                std::thread::sleep(Duration::from_millis(100));
                is_recorded()
            })
            .then_some(())
    });
}
