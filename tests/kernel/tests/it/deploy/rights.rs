//! Rights: who reaches the daemon, and what a program may do.

use super::{SLEEP, ms};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use talea_deploy::text::message::Ask;
use talea_kernel_tests::deployd::{Deployd, task};
use talea_kernel_tests::{ALICE, Bench, kernel, needs_root};
use talea_os::seqpacket;

/// Returns the words after a key in `/proc/PID/FILE`.
pub(super) fn field(pid: i32, file: &str, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

#[test]
fn d18_a_program_has_the_rights_of_its_user_and_none_to_schedule() {
    needs_root!();
    let bench = Bench::new("deploy-rights");
    let deployd = Deployd::start(&bench);
    let mut as_root = task("superuser", 92, &SLEEP);
    as_root.command.user = Some("root".to_owned());
    let mut by_number = task("number", 91, &SLEEP);
    by_number.command.user = Some("1".to_owned());
    deployd.apply(&[task("control", 93, &SLEEP), as_root, by_number], None);
    let sys_nice = |pid: i32| {
        let set = field(pid, "status", "CapBnd:");
        u64::from_str_radix(&set[0], 16).expect("a number") >> 23 & 1
    };
    for (name, uid, no_new_privs) in
        [("control", "1", "1"), ("number", "1", "1"), ("superuser", "0", "0")]
    {
        let pid = deployd.running(name);
        assert_eq!(field(pid, "status", "Uid:"), [uid; 4], "{name}");
        assert_eq!(field(pid, "status", "Gid:"), [uid; 4], "{name}");
        assert_eq!(field(pid, "status", "NoNewPrivs:"), [no_new_privs], "{name}");
        assert_eq!(sys_nice(pid), 0, "{name}");
        assert_eq!(field(pid, "limits", "Max realtime priority")[..2], ["0", "0"], "{name}");
        assert_eq!(field(pid, "limits", "Max realtime timeout")[..2], ["unlimited"; 2], "{name}");
        assert_eq!(field(pid, "status", "SigBlk:"), ["0000000000000000"], "{name}");
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).expect("a folder");
        assert_eq!(cwd.to_str(), Some("/"), "{name}");
        // A program of its own session, whose parent does not take it along.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
        let session = stat.rsplit(')').next().expect("fields").split(' ').nth(4).map(str::to_owned);
        assert_eq!(session, Some(pid.to_string()), "{name}");
    }
}

/// Without a free descriptor a connection is closed at once, and the daemon neither spins nor ends.
#[test]
fn d20_without_a_descriptor_a_connection_is_closed_and_the_daemon_waits() {
    needs_root!();
    let bench = Bench::new("deploy-descriptors");
    let deployd = Deployd::start(&bench);
    deployd.apply(&[task("control", 93, &SLEEP)], None);
    let program = deployd.running("control");
    let pid = deployd.pid();
    let soft = field(pid, "limits", "Max open files")[0].clone();
    let set_limit = |limit: &str| {
        let limit = format!("--nofile={limit}:");
        let set = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
        assert!(set.expect("prlimit").success());
    };
    let used = |number: &u32| Path::new(&format!("/proc/{pid}/fd/{number}")).exists();
    // An observation opens files for a moment.
    let free = || {
        std::thread::sleep(Duration::from_millis(3));
        (0..1 << 16).find(|number| !used(number)).expect("a number")
    };
    let lowest: u32 = (0..100).map(|_| free()).min().expect("a number");
    set_limit(&lowest.to_string());
    let refused = deployd.try_ask(&Ask::Status);
    assert!(refused.is_err(), "{refused:?}");
    // Every descriptor has a higher number than the limit: the connection has to wait.
    set_limit("3");
    let waiting = seqpacket::connect(&deployd.runtime().join("socket"), Duration::from_secs(5));
    let waiting = waiting.expect("a place in the queue");
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
        let fields = stat.rsplit(')').next().expect("fields").split(' ').skip(12).take(2);
        fields.map(|ticks| ticks.parse::<u64>().expect("ticks")).sum::<u64>()
    };
    let (before, from) = (ticks(), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let (used, passed) = (ticks() - before, from.elapsed().as_millis() as u64 / 10);
    assert!(used < passed / 2, "{used} of {passed} hundredths of a second");
    drop(waiting);
    set_limit(&soft);
    assert!(deployd.log().matches("a connection is not accepted").count() <= 2);
    assert_eq!(deployd.running("control"), program);
}

#[test]
fn d20_an_unprivileged_user_reaches_nothing() {
    needs_root!();
    let bench = Bench::new("deploy-closed");
    let deployd = Deployd::start(&bench);
    deployd.apply(&[task("control", 93, &SLEEP)], None);
    deployd.running("control");
    let mode = |path: std::path::PathBuf| {
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    };
    assert_eq!(mode(deployd.runtime().join("socket")), 0o600);
    assert_eq!(mode(deployd.runtime().join("programs")), 0o700);
    assert_eq!(mode(deployd.state()), 0o700);
    assert_eq!(mode(deployd.state().join("record")), 0o600);
    // Python connects as another user, because the test itself must stay root.
    let code = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
                try: s.connect(sys.argv[1])\nexcept PermissionError: sys.exit(13)";
    let socket = deployd.runtime().join("socket");
    let tried =
        Command::new("/usr/bin/python3").args(["-c", code]).arg(&socket).uid(ALICE).status();
    let own = Command::new("/usr/bin/python3").args(["-c", code]).arg(&socket).status();
    assert_eq!((tried.expect("python").code(), own.expect("python").code()), (Some(13), Some(0)));
    // A connection that sends nothing of a request is closed, and disturbs no other one.
    let open = seqpacket::connect(&socket, Duration::from_secs(5));
    let open = open.expect("a connection");
    seqpacket::send(&open, b"\x07nonsense", None).expect("a packet");
    let drained = Ask::Drain { task: None, within: ms(5_000) };
    assert_eq!(deployd.change(&drained), Some(1));
    let mut byte = [0; 8];
    let end = seqpacket::recv_waiting(&open, &mut byte).expect("an end");
    assert_eq!(end.len, 0);
    assert!(!kernel::exists(0));
}
