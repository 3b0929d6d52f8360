//! Calls of known programs, answered by Debian's rtkit-daemon and by Talea in one run.
//!
//! The calls are those that the sources of the programs show, in their order. The table lists the
//! answers where the two differ on purpose; any other difference is a failure.

use crate::stage::{Bus, FRONT_END, Process, named_users, with_files};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};

const POLKIT: &str = "/usr/lib/polkit-1/polkitd";

/// Answer of both, or of rtkit and of Talea.
enum Expected {
    Both(&'static str),
    /// rtkit, Talea, and the reason.
    Differ(&'static str, &'static str, &'static str),
}
use Expected::{Both, Differ};

const DENIED: &str = "org.freedesktop.DBus.Error.AccessDenied";
const FAILED: &str = "org.freedesktop.DBus.Error.Failed";

/// Calls with the expected answers. `P` is the process, `T` and `U` are its threads, `Q` and `V`
/// process and thread of another user.
const CALLS: &[(&str, Expected)] = &[
    // Before the process has limited its real time.
    ("realtime T 10", Differ(DENIED, "ok", "PipeWire may ask before it lowers RLIMIT_RTTIME")),
    // PipeWire 0.3.65.
    ("high-of P P -11", Both("ok")),
    ("get RTTimeUSecMax", Both("x 200000")),
    ("rttime 200000 200000", Both("set")),
    ("get MaxRealtimePriority", Both("i 20")),
    ("realtime-of P T 20", Both("ok")),
    // PipeWire of 2026: three properties at once.
    ("get MinNiceLevel", Both("i -15")),
    // PulseAudio, and Firefox for a thread of its own and of a child process.
    ("realtime U 5", Both("ok")),
    ("realtime U 10", Both("ok")),
    ("realtime-of P U 10", Both("ok")),
    // SDL: the high and the normal priority, and nice values.
    ("realtime-of P T 15", Both("ok")),
    ("high-of P T -10", Both("ok")),
    ("high U 5", Both("ok")),
    // Mutter.
    (
        "get-all",
        Differ(
            "org.freedesktop.DBus.Error.UnknownMethod",
            "MaxRealtimePriority=20 MinNiceLevel=-15 RTTimeUSecMax=200000",
            "rtkit has no GetAll",
        ),
    ),
    ("realtime 0 20", Both("ok")),
    // Errors.
    ("realtime T 21", Both(DENIED)),
    ("realtime T 0", Both(FAILED)),
    ("high T -16", Both(DENIED)),
    ("high T 20", Both(FAILED)),
    ("realtime-of Q V 10", Both(DENIED)),
    ("high-of Q V -5", Both(DENIED)),
    ("realtime 4194303 10", Both(FAILED)),
    ("realtime-of 4194303 4194303 10", Both(FAILED)),
    ("realtime V 10", Both(FAILED)),
    ("wrong-types MakeThreadRealtime", Both("org.freedesktop.DBus.Error.InvalidArgs")),
    ("call Nothing", Both("org.freedesktop.DBus.Error.UnknownMethod")),
    ("get Nothing", Both("org.freedesktop.DBus.Error.UnknownProperty")),
    // A thread that sleeps: the main thread may be throttled, because it answers the test.
    ("realtime U 12", Both("ok")),
    ("call ResetAll", Both(DENIED)),
    ("call Exit", Both(DENIED)),
];

/// Returns the folder with rtkit's files: installed, or from the package without its installation.
fn rtkit(bench: &Bench) -> Option<PathBuf> {
    if Path::new("/usr/libexec/rtkit-daemon").exists() {
        return Some(PathBuf::from("/"));
    }
    let folder = bench.path("rtkit");
    std::fs::create_dir(&folder).ok()?;
    let script = "apt-get download rtkit && dpkg-deb -x rtkit_*.deb .";
    let mut command = Command::new("timeout");
    command.args(["20", "sh", "-c", script]).current_dir(&folder);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success()).then_some(folder)
}

/// Debian's rtkit-daemon with polkit, on a bus of its own.
struct Debian {
    _processes: [Process; 2],
}

impl Debian {
    fn start(bench: &Bench, bus: &Bus, files: &Path) -> Debian {
        let actions = bench.path("actions");
        std::fs::create_dir(&actions).expect("a folder");
        let action = files.join("usr/share/polkit-1/actions/org.freedesktop.RealtimeKit1.policy");
        std::fs::copy(action, actions.join("org.freedesktop.RealtimeKit1.policy")).expect("a copy");
        let rules = bench.path("rules");
        std::fs::create_dir(&rules).expect("a folder");
        // There is no login session; the rule stands for one.
        let rule = "polkit.addRule(function() { return polkit.Result.YES; });\n";
        std::fs::write(rules.join("10-test.rules"), rule).expect("a rule");
        let polkit = Path::new(POLKIT);
        let places = [
            (named_users(bench), "/etc/passwd"),
            (actions, "/usr/share/polkit-1/actions"),
            (rules, "/etc/polkit-1/rules.d"),
        ];
        let mut command = with_files(polkit, &places);
        bus.adopt(&mut command);
        let log = bench.path("polkit.log");
        let file = std::fs::File::create(&log).expect("a log");
        command.stderr(file.try_clone().expect("a copy")).stdout(file);
        let polkit = Process::start(&mut command);
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        eventually("polkit serves", || said().contains("Acquired the name"));
        let mut command = bus.command(files.join("usr/libexec/rtkit-daemon"));
        command.args(["--no-drop-privileges", "--no-chroot", "--no-limit-resources"]);
        command.args(["--no-canary"]);
        let rtkit = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        Debian { _processes: [polkit, rtkit] }
    }
}

/// Sends every call, and returns the answers.
fn answers(bench: &Bench, bus: &Bus) -> Vec<String> {
    let (alice, bob) = (bus.caller(bench, ALICE), bus.caller(bench, BOB));
    eventually("the name is served", || alice.order("get MinNiceLevel") == "i -15");
    let names = [
        ("P", alice.pid()),
        ("T", alice.thread()),
        ("U", alice.thread()),
        ("Q", bob.pid()),
        ("V", bob.thread()),
    ];
    let answer = |caller: &Agent, call: &str| {
        let words: Vec<String> = call
            .split(' ')
            .map(|word| {
                let known = names.iter().find(|(name, _)| *name == word);
                known.map_or_else(|| word.to_owned(), |(_, number)| number.to_string())
            })
            .collect();
        caller.order(&words.join(" "))
    };
    let answers: Vec<String> = CALLS.iter().map(|(call, _)| answer(&alice, call)).collect();
    let last = names[2].1;
    assert!(kernel::policy(last).is_realtime(), "{answers:#?}");
    assert!(kernel::attr(last).reset_on_fork);
    answers
}

#[test]
fn known_programs_get_the_answers_of_rtkit_but_for_the_listed_differences() {
    needs_root!();
    needs!("dbus-daemon", Command::new("dbus-daemon").arg("--version").output().is_ok());
    let bench = Bench::new("rtkit-replay");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 20\n\
         [[rule]]\ndomain = \"#{ALICE}\"\nmin_nice = -15\n"
    );
    let text = config::common_levels_with_rules(&rules);
    let text = format!("[daemon]\nfront_ends = [\"#{FRONT_END}\"]\n{text}");
    let daemon = Daemon::start(&bench, &text);
    let bus = Bus::start(&bench);
    let _front_end = bus.front_end(&bench, &daemon, &[]);
    let ours = answers(&bench, &bus);
    let theirs = match rtkit(&bench).filter(|_| Path::new(POLKIT).exists()) {
        None => {
            eprintln!("no rtkit-daemon or no polkit here: only the answers of Talea are checked");
            None
        }
        Some(files) => {
            let policy = |name: &str| {
                files.join(format!("usr/share/dbus-1/system.d/org.freedesktop.{name}.conf"))
            };
            let polkit = Path::new("/usr/share/dbus-1/system.d/org.freedesktop.PolicyKit1.conf");
            let bus = Bus::with_policies(&bench, "debian", &[&policy("RealtimeKit1"), polkit]);
            let _debian = Debian::start(&bench, &bus, &files);
            Some(answers(&bench, &bus))
        }
    };
    let mut findings = Vec::new();
    for (index, (call, expected)) in CALLS.iter().enumerate() {
        let (rtkit, talea, why) = match expected {
            Both(answer) => (answer, answer, ""),
            Differ(rtkit, talea, why) => (rtkit, talea, *why),
        };
        let mut check = |name: &str, expected: &str, answer: &str| {
            if !answer.starts_with(expected) {
                findings.push(format!("{call}: {name} answers {answer}, not {expected}; {why}"));
            }
        };
        check("Talea", talea, &ours[index]);
        if let Some(theirs) = &theirs {
            check("rtkit", rtkit, &theirs[index]);
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
