//! Calls of known programs, answered by Debian's rtkit-daemon and by Talea in one run.
//!
//! The calls are those that the sources of the programs show, in their order. Each program is a
//! process of its own, because its limit RLIMIT_RTTIME decides some answers. The table lists the
//! answers where the two differ on purpose; any other difference is a failure. The manual lists the
//! reasons.

use crate::stage::{Bus, FRONT_END, Process, named_users, with_files};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};

pub(crate) const POLKIT: &str = "/usr/lib/polkit-1/polkitd";
/// Policy of polkit for the bus.
pub(crate) const POLKIT_POLICY: &str = "/usr/share/dbus-1/system.d/org.freedesktop.PolicyKit1.conf";

/// Answer of both, or of rtkit and of Talea.
enum Expected {
    Both(&'static str),
    /// rtkit, Talea, and the reason.
    Differ(&'static str, &'static str, &'static str),
}
use Expected::{Both, Differ};

const DENIED: &str = "org.freedesktop.DBus.Error.AccessDenied";
const FAILED: &str = "org.freedesktop.DBus.Error.Failed";

const INVALID: &str = "org.freedesktop.DBus.Error.InvalidArgs";
const UNKNOWN: &str = "org.freedesktop.DBus.Error.UnknownMethod";

/// Reasons for different answers, as the manual states them.
const BEFORE_LIMIT: &str = "A process need not lower RLIMIT_RTTIME before its call";
const GET_ALL: &str = "`GetAll` is served";
const NO_LIST: &str = "`ResetKnown` and `ResetAll` are refused";
const SUSPEND: &str = "`Suspend` and `Resume` of rtkit 0.14 are accepted";
const REASONS: [&str; 4] = [BEFORE_LIMIT, GET_ALL, NO_LIST, SUSPEND];

const ALL: &str = "MaxRealtimePriority=20 MinNiceLevel=-15 RTTimeUSecMax=200000";

/// A program that calls, with the expected answers.
struct Caller {
    program: &'static str,
    uid: u32,
    calls: &'static [(&'static str, Expected)],
}

const fn caller(program: &'static str, calls: &'static [(&'static str, Expected)]) -> Caller {
    Caller { program, uid: ALICE, calls }
}

/// Programs with their calls. `P` is the process, `T` and `U` are its threads, `C` and `D` process
/// and thread of another program of the user, `Q` and `V` those of another user.
const CALLERS: [Caller; 14] = [
    caller(
        "PipeWire 0.3.65: server",
        &[
            ("high-of P P -11", Both("ok")),
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 200000 200000", Both("set")),
            ("get MaxRealtimePriority", Both("i 20")),
            ("realtime-of P T 20", Both("ok")),
        ],
    ),
    caller(
        "WirePlumber 0.4.13",
        &[
            ("high-of P P -11", Both("ok")),
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 200000 200000", Both("set")),
            ("get MaxRealtimePriority", Both("i 20")),
            ("realtime-of P T 20", Both("ok")),
        ],
    ),
    caller(
        "PipeWire 1.6.8: client, without a nice value",
        &[
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 200000 200000", Both("set")),
            ("get MaxRealtimePriority", Both("i 20")),
            ("realtime-of P T 20", Both("ok")),
            ("realtime-of P U 20", Both("ok")),
        ],
    ),
    caller(
        "PipeWire of July 2026: three properties at once, and calls before the limit",
        &[
            ("get MaxRealtimePriority", Both("i 20")),
            ("get MinNiceLevel", Both("i -15")),
            ("get RTTimeUSecMax", Both("x 200000")),
            ("realtime-of P T 20", Differ(DENIED, "ok", BEFORE_LIMIT)),
            ("high-of P P -11", Both("ok")),
            ("rttime 200000 200000", Both("set")),
        ],
    ),
    caller(
        "PulseAudio",
        &[
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 200000 200000", Both("set")),
            ("realtime T 5", Both("ok")),
            ("high U -11", Both("ok")),
        ],
    ),
    caller(
        "Firefox: a thread of its own",
        &[
            ("get RTTimeUSecMax", Both("x 200000")),
            ("get MaxRealtimePriority", Both("i 20")),
            ("rttime 50000 200000", Both("set")),
            ("realtime T 10", Both("ok")),
        ],
    ),
    caller(
        "Firefox: the parent of a sandboxed process that has set its limit",
        &[("realtime-of C D 10", Both("ok"))],
    ),
    caller(
        "SDL",
        &[
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 100000 200000", Both("set")),
            ("get MinNiceLevel", Both("i -15")),
            ("get MaxRealtimePriority", Both("i 20")),
            ("realtime-of P T 20", Both("ok")),
            ("realtime-of P T 15", Both("ok")),
            ("realtime-of P T 10", Both("ok")),
            ("high-of P U -10", Both("ok")),
            ("high-of P U 5", Both("ok")),
        ],
    ),
    caller(
        "Mutter",
        &[
            ("get-all", Differ(UNKNOWN, ALL, GET_ALL)),
            ("get MaxRealtimePriority", Both("i 20")),
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 200000 200000", Both("set")),
            ("realtime 0 20", Both("ok")),
            ("get MinNiceLevel", Both("i -15")),
            ("high 0 -15", Both("ok")),
        ],
    ),
    caller(
        "Hyprland",
        &[
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 200000 200000", Both("set")),
            ("realtime T 1", Both("ok")),
        ],
    ),
    caller(
        "WebKitGTK",
        &[
            ("get MaxRealtimePriority", Both("i 20")),
            ("get RTTimeUSecMax", Both("x 200000")),
            ("rttime 160000 200000", Both("set")),
            ("realtime-of P T 5", Both("ok")),
            // Since August 2026.
            ("high-of P U -15", Both("ok")),
        ],
    ),
    caller(
        "xdg-desktop-portal: properties at its start, calls for a client",
        &[
            ("get MaxRealtimePriority", Both("i 20")),
            ("get MinNiceLevel", Both("i -15")),
            ("get RTTimeUSecMax", Both("x 200000")),
            ("realtime-of C D 20", Both("ok")),
            ("high-of C D -11", Both("ok")),
        ],
    ),
    caller(
        "errors",
        &[
            ("rttime 200000 200000", Both("set")),
            ("realtime T 21", Both(DENIED)),
            ("realtime T 0", Both(FAILED)),
            ("high T -16", Both(DENIED)),
            ("high T 20", Both(FAILED)),
            ("realtime-of Q V 10", Both(DENIED)),
            ("high-of Q V -5", Both(DENIED)),
            ("realtime 4194303 10", Both(FAILED)),
            ("realtime-of 4194303 4194303 10", Both(FAILED)),
            ("realtime V 10", Both(FAILED)),
            ("wrong-types MakeThreadRealtime", Both(INVALID)),
            ("call Nothing", Both(UNKNOWN)),
            ("get Nothing", Both("org.freedesktop.DBus.Error.UnknownProperty")),
            ("call ResetKnown", Both(DENIED)),
            ("call ResetAll", Both(DENIED)),
            ("call Exit", Both(DENIED)),
        ],
    ),
    // After `Exit`, rtkit-daemon ends and Talea's front end stays.
    Caller {
        program: "rtkitctl, of the administrator",
        uid: 0,
        calls: &[
            ("call ResetKnown", Differ("ok", NOT_SUPPORTED, NO_LIST)),
            ("call ResetAll", Differ("ok", NOT_SUPPORTED, NO_LIST)),
            ("call Suspend", Differ(UNKNOWN, "ok", SUSPEND)),
            ("call Resume", Differ(UNKNOWN, "ok", SUSPEND)),
            ("call Exit", Both("ok")),
        ],
    },
];
const NOT_SUPPORTED: &str = "org.freedesktop.DBus.Error.NotSupported";

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

/// Starts polkit with these files and a rule that allows everything.
pub(crate) fn polkit(bench: &Bench, bus: &Bus, files: &[(PathBuf, &'static str)]) -> Process {
    let rules = bench.path("rules");
    std::fs::create_dir(&rules).expect("a folder");
    // There is no login session; the rule stands for one.
    let rule = "polkit.addRule(function() { return polkit.Result.YES; });\n";
    std::fs::write(rules.join("10-test.rules"), rule).expect("a rule");
    let own = [(named_users(bench), "/etc/passwd"), (rules, "/etc/polkit-1/rules.d")];
    let mut command = with_files(Path::new(POLKIT), &[&own[..], files].concat());
    bus.adopt(&mut command);
    let log = bench.path("polkit.log");
    let file = std::fs::File::create(&log).expect("a log");
    command.stderr(file.try_clone().expect("a copy")).stdout(file);
    let polkit = Process::start(&mut command);
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("polkit serves", || said().contains("Acquired the name"));
    polkit
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
        let polkit = polkit(bench, bus, &[(actions, "/usr/share/polkit-1/actions")]);
        let mut command = bus.command(files.join("usr/libexec/rtkit-daemon"));
        command.args(["--no-drop-privileges", "--no-chroot", "--no-limit-resources"]);
        command.args(["--no-canary", "--actions-per-burst-max=1000"]);
        let rtkit = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        Debian { _processes: [polkit, rtkit] }
    }
}

/// Sends the calls of every program, and returns the answers.
fn answers(bench: &Bench, bus: &Bus) -> Vec<Vec<String>> {
    let (other, bob) = (bus.caller(bench, ALICE), bus.caller(bench, BOB));
    eventually("the name is served", || other.order("get MinNiceLevel") == "i -15");
    assert_eq!(other.order("rttime 50000 200000"), "set");
    let others = [("C", other.pid()), ("D", other.thread()), ("Q", bob.pid()), ("V", bob.thread())];
    CALLERS
        .iter()
        .map(|caller| answers_to(&bus.caller(bench, caller.uid), caller, &others))
        .collect()
}

fn answers_to(process: &Agent, caller: &Caller, others: &[(&str, i32)]) -> Vec<String> {
    let own = [("P", process.pid()), ("T", process.thread()), ("U", process.thread())];
    let number_of = |word: &str| {
        let known = own.iter().chain(others).find(|(name, _)| *name == word);
        known.map_or_else(|| word.to_owned(), |(_, number)| number.to_string())
    };
    let answer = |(call, expected): &(&str, Expected)| {
        let words: Vec<String> = call.split(' ').map(number_of).collect();
        let said = process.order(&words.join(" "));
        // The kernel has what the answer says.
        if let (["realtime" | "realtime-of", .., thread, _], Both("ok")) =
            (&call.split(' ').collect::<Vec<_>>()[..], expected)
        {
            let thread = number_of(thread).parse().expect("a number");
            let thread = if thread == 0 { process.pid() } else { thread };
            let attr = kernel::attr(thread);
            // The main thread may be throttled, because it answers the test.
            let is_main = thread == process.pid();
            assert!(attr.reset_on_fork && (is_main || attr.policy.is_realtime()), "{call}: {said}");
        }
        said
    };
    caller.calls.iter().map(answer).collect()
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
            let policies = [&policy("RealtimeKit1"), Path::new(POLKIT_POLICY)];
            let bus = Bus::with_policies(&bench, "debian", &policies);
            let _debian = Debian::start(&bench, &bus, &files);
            Some(answers(&bench, &bus))
        }
    };
    let mut findings = Vec::new();
    for (number, caller) in CALLERS.iter().enumerate() {
        for (index, (call, expected)) in caller.calls.iter().enumerate() {
            let (rtkit, talea, why) = match expected {
                Both(answer) => (answer, answer, ""),
                Differ(rtkit, talea, why) => (rtkit, talea, *why),
            };
            let mut check = |name: &str, expected: &str, answer: &str| {
                if !answer.starts_with(expected) {
                    let program = caller.program;
                    findings.push(format!(
                        "{program}: {call}: {name} answers {answer}, not {expected}; {why}"
                    ));
                }
            };
            check("Talea", talea, &ours[number][index]);
            if let Some(theirs) = &theirs {
                check("rtkit", rtkit, &theirs[number][index]);
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn the_manual_lists_the_callers_and_the_reasons_for_different_answers() {
    let manual = include_str!("../../../../docs/manual/realtimekit.md");
    let calls = || CALLERS.iter().flat_map(|caller| caller.calls);
    for reason in REASONS {
        assert!(manual.contains(&format!("| {reason}")), "the manual lacks: {reason}");
        let is_used =
            |(_, expected): &(_, Expected)| matches!(expected, Differ(_, _, why) if *why == reason);
        assert!(calls().any(is_used), "no call differs because: {reason}");
    }
    for caller in &CALLERS {
        let name = caller.program.split([' ', ':', ',']).next().expect("a word");
        assert!(caller.program == "errors" || manual.contains(name), "the manual lacks {name}");
    }
}
