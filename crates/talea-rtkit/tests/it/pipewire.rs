//! Debian's PipeWire, unmodified, with threads that the rules choose.

use crate::desktop::{Cycles, PORTAL, Session, SessionBus, is_installed, realtime_threads};
use crate::stage::{Bus, FRONT_END, Process};
use crate::stalls::StallDetector;
use std::fmt::Write;
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
            (detector.finish() == 0 && cycles.all() > 0).then_some(cycles)
        });
        sum.is_late.extend(recording.unwrap_or_default().is_late);
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
            (cycles.xruns() > 0).then_some((busy, cycles))
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

    let rows = [("refused", &refused), ("FIFO", &fifo), ("reservations", &edf)];
    println!("{busy} busy processes per CPU");
    for (name, cycles) in rows {
        println!("{name}: {} of {} cycles late", cycles.xruns(), cycles.all());
    }
    if let Some(path) = std::env::var_os("TALEA_PICTURE") {
        std::fs::write(path, picture([&refused, &fifo, &edf])).expect("a picture");
    }
    assert_eq!((fifo.xruns(), edf.xruns()), (0, 0));
}

/// Draws a bar for the cycles of each case, and a line for each cycle that is late: without grants,
/// with FIFO and with reservations.
fn picture(rows: [&Cycles; 3]) -> String {
    const TITLES: [&str; 3] = [
        "As today: the threads of PipeWire and its player are ordinary ones",
        "Talea, plugin fp: SCHED_FIFO",
        "Talea, plugin edf: SCHED_DEADLINE; talead is killed and restarted",
    ];
    let mut svg = concat!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 220\" ",
        "font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\" role=\"img\">\n",
        "<title>Audio cycles of PipeWire beside busy processes</title>\n",
        "<rect width=\"720\" height=\"220\" fill=\"#fff\"/>\n",
    )
    .to_owned();
    for (row, (title, cycles)) in TITLES.into_iter().zip(rows).enumerate() {
        let (text, bottom) = (22 + 70 * row, 68 + 70 * row);
        let (late, all) = (cycles.xruns(), cycles.all());
        let places = cycles.is_late.iter().enumerate().filter(|&(_, &is_late)| is_late);
        let lines = places.map(|(index, _)| format!("M{} {bottom}v-30", 10 + 700 * index / all));
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"10\" y=\"{text}\">{title}</text>\n\
             <text x=\"710\" y=\"{text}\" text-anchor=\"end\" font-weight=\"600\">\
             {late} of {all} cycles late</text>\n\
             <path d=\"M10 {bottom}h700v-8h-700z\" fill=\"#9aa5b1\"/>\n\
             <path d=\"{}\" stroke=\"#c92a2a\"/>\n",
            lines.collect::<String>(),
        );
    }
    svg + "</svg>\n"
}

/// Returns the soft and the hard limit RLIMIT_RTTIME of a process, in microseconds.
fn rttime_limits(process: i32) -> [String; 2] {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max realtime timeout"));
    let words: Vec<_> = line.expect("a limit").split_whitespace().map(str::to_owned).collect();
    [words[3].clone(), words[4].clone()]
}

/// The package has an activation file, so the portal's question starts the front end.
#[test]
fn a_portal_that_starts_first_gets_the_limit_by_activation() {
    needs_root!();
    needs!("PipeWire with WirePlumber and the tools", is_installed());
    needs!("xdg-desktop-portal", Path::new(PORTAL).exists());
    let bench = Bench::new("rtkit-activation");
    let daemon = Daemon::start(&bench, &rules(Some("fp")));
    let bus = Bus::with_activation(&bench, &daemon);
    let session = SessionBus::start(&bench, "session", &bus);
    assert_eq!(bus.said(), "", "no front end runs");
    let portal = session.portal();
    eventually("the front end runs", || bus.said().contains("serving"));
    let session = Session::on(&bench, session, Some(portal));
    for (thread, attr) in data_threads(&session) {
        assert!(matches!(attr.policy, Policy::Fifo(_)), "thread {thread}: {attr:?}");
    }
    for process in session.processes() {
        assert_eq!(rttime_limits(process), ["200000", "200000"], "process {process}");
    }
}

/// Without activation, a portal that starts first publishes 0 until it ends.
#[test]
fn a_portal_that_started_before_the_name_kills_no_client() {
    needs_root!();
    needs!("PipeWire with WirePlumber and the tools", is_installed());
    needs!("xdg-desktop-portal", Path::new(PORTAL).exists());
    let bench = Bench::new("rtkit-early-portal");
    for plugin in ["edf", "fp"] {
        let daemon = Daemon::start(&bench, &rules(Some(plugin)));
        let bus = Bus::start(&bench);
        let session = SessionBus::start(&bench, plugin, &bus);
        let portal = session.portal();
        let _front_end = bus.front_end(&bench, &daemon, &[]);
        let session = Session::on(&bench, session, Some(portal));
        if plugin == "edf" {
            data_threads(&session);
        }
        let limits = session.processes().map(rttime_limits);
        assert!(limits.iter().flatten().all(|limit| limit == "0"), "{limits:?}");
        let _load = load(BUSY_PER_CPU[0]);
        std::thread::sleep(4 * RECORDING);
        assert!(session.is_playing(), "no program was killed");
        let threads = session.processes().map(realtime_threads);
        println!("{plugin}: RLIMIT_RTTIME 0, real-time threads {threads:?}");
        // The limit does not concern reservations; with FIFO it would end the process.
        assert!(threads.iter().all(|of| of.len() == usize::from(plugin == "edf")), "{threads:?}");
    }
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
            assert_eq!(rttime_limits(process), ["200000", "200000"], "process {process}");
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
