//! Configuration files, and the start and the readiness notification of the daemon.

use crate::tasks::{periodic, with};
use rustix::process::Signal;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Daemon, config, needs_root};
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Rejection, Request};

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

fn refused(bench: &Bench, config: &Path) -> (Option<i32>, String) {
    match Daemon::launch(bench, config, &[]) {
        Ok(daemon) => panic!("it started: {}", daemon.log()),
        Err(failed) => (failed.code, failed.said),
    }
}

#[test]
fn r26_a_file_that_others_could_have_written_starts_no_daemon() {
    needs_root!();
    let bench = Bench::new("r26");
    let file = bench.write("talead.toml", &config::open());
    let complains = |what: &str| {
        let (code, said) = refused(&bench, &file);
        assert_eq!(code, Some(2), "{what}: {said}");
        assert!(said.contains("talead.toml") || said.contains("talea-kernel"), "{what}: {said}");
    };
    mode(&file, 0o664);
    complains("writable by the group");
    mode(&file, 0o646);
    complains("writable by others");
    mode(&file, 0o644);
    chown(&file, Some(ALICE), Some(0)).expect("chown");
    complains("another user's");
    chown(&file, Some(0), Some(0)).expect("chown");
    let folder = file.parent().expect("a folder");
    mode(folder, 0o777);
    complains("in a folder where others may replace it");
    mode(folder, 0o755);
    let link = bench.path("link.toml");
    std::os::unix::fs::symlink(&file, &link).expect("symlink");
    drop(Daemon::launch(&bench, &link, &[]).expect("a link of root's to a file of root's"));
    drop(Daemon::launch(&bench, &file, &[]).expect("nothing is wrong any more"));
}

#[test]
fn r26_a_plugin_that_others_could_have_written_starts_no_daemon() {
    needs_root!();
    let bench = Bench::new("r26-so");
    let object = bench.plugin("examples/plugin-least-loaded/least_loaded.c");
    let text = crate::foreign::foreign("mine", &object, "");
    let file = bench.write("talead.toml", &text);
    for (owner, bits) in [(0, 0o664), (0, 0o646), (ALICE, 0o644)] {
        chown(&object, Some(owner), Some(0)).expect("chown");
        mode(&object, bits);
        let (code, said) = refused(&bench, &file);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("least_loaded.so") && said.contains("mine"), "{said}");
    }
    chown(&object, Some(0), Some(0)).expect("chown");
    mode(&object, 0o644);
    Daemon::launch(&bench, &file, &[]).expect("nothing is wrong any more");
}

#[test]
fn r26_the_socket_has_the_mode_and_group_of_the_file() {
    needs_root!();
    let bench = Bench::new("r26-socket");
    let text = config::open().replace(
        "[daemon]\n",
        &format!("[daemon]\nsocket_mode = \"0660\"\nsocket_group = \"#{ALICE}\"\n"),
    );
    let daemon = Daemon::start(&bench, &text);
    let meta = std::fs::metadata(daemon.socket()).expect("a socket");
    assert_eq!((meta.mode() & 0o777, meta.uid(), meta.gid()), (0o660, 0, ALICE));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    alice.connect(&daemon);
    assert_eq!(bob.order(&format!("connect {}", daemon.socket().display())), "errno 13", "EACCES");
}

#[test]
fn r19_a_daemon_never_starts_with_half_a_configuration() {
    needs_root!();
    let bench = Bench::new("malformed");
    let cases = [
        String::new(),
        "[[plugin]\n".to_owned(),
        "[[plugin]]\nname = \"rm\"\nkind = \"rm\"\n".to_owned(),
        format!("{}\n[[rule]]\ndomain = \"no-user-of-this-name\"\n", config::PLUGINS),
        format!("{}\n[[rule]]\ndomain = \"-\"\nmax_runtime = 3\n", config::PLUGINS),
        format!("[daemon]\nsockets = \"/x\"\n{}", config::PLUGINS),
        config::PLUGINS.replace("\"60-79\"", "\"60-179\""),
    ];
    for text in cases {
        let file = bench.write("talead.toml", &text);
        let (code, said) = refused(&bench, &file);
        assert_eq!(code, Some(2), "{text}\n{said}");
        assert!(said.contains("talead.toml:"), "the place is named: {said}");
    }
    let (code, said) = refused(&bench, &bench.path("absent.toml"));
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn check_reports_the_same_errors_without_a_start() {
    needs_root!();
    let bench = Bench::new("check");
    let daemon = Daemon::start(&bench, &config::open());
    let run = |text: &str| {
        let file = bench.write("other.toml", text);
        let output = daemon.command(&["--check", "-c"]).arg(file).output().expect("talead");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&config::open()).0, Some(0));
    let (code, said) = run("[[plugin]]\n");
    assert_eq!(code, Some(2));
    assert!(said.contains("other.toml:1"), "{said}");
    let output = daemon.command(&["--no-such-option"]).output().expect("talead");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_service_manager_is_notified_of_ready_reloading_and_stopping() {
    needs_root!();
    let bench = Bench::new("notify");
    let path = bench.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a notification socket");
    manager.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("time-out");
    let heard = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).expect("a notification");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut daemon = Daemon::start(&bench, &config::open());
    daemon.terminate();
    let mut command = daemon.command(&[]);
    command.env("NOTIFY_SOCKET", &path);
    daemon.run_command(command).expect("a daemon");
    assert!(heard().contains("READY=1"));
    daemon.reload(&config::open());
    let reloading = heard();
    assert!(
        reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(heard().contains("READY=1"));
    daemon.signal(Signal::TERM);
    assert!(heard().contains("STOPPING=1"));
    assert!(daemon.wait().success());
}

#[test]
fn a_daemon_with_cap_sys_nice_alone_serves_and_reports_missing_rights() {
    needs_root!();
    let bench = Bench::new("unprivileged");
    const TALEAD: u32 = 60_050;
    // The folder is its own; what it reads belongs to it or to root.
    let config = bench.write("talead.toml", &config::open());
    let home = bench.path("home");
    std::fs::create_dir(&home).expect("a folder");
    chown(&home, Some(TALEAD), Some(TALEAD)).expect("chown");
    let start = |capabilities: &str| {
        let mut daemon = Daemon::unstarted(&config, &home);
        let plain = daemon.command(&[]);
        let mut command = std::process::Command::new("setpriv");
        command.args([
            &format!("--reuid={TALEAD}"),
            &format!("--regid={TALEAD}"),
            "--clear-groups",
        ]);
        command.args([
            &format!("--inh-caps={capabilities}"),
            &format!("--ambient-caps={capabilities}"),
            &format!("--bounding-set={capabilities}"),
        ]);
        command.arg("--").arg(plain.get_program()).args(plain.get_args());
        command.env_remove("NOTIFY_SOCKET");
        daemon.run_command(command).unwrap_or_else(|failed| panic!("{failed:?}"));
        daemon
    };
    {
        let mut daemon = start("-all,+sys_nice");
        assert!(daemon.log().contains("not root"), "{}", daemon.log());
        let alice = Agent::user(ALICE);
        let client = alice.connect(&daemon);
        let tid = alice.thread();
        let granted = client.create(with("rm", periodic(10)));
        client.attach(granted.spec, tid);
        assert!(talea_kernel_tests::kernel::policy(tid).is_realtime());
        client.done(&Request::Release(granted.spec));
        assert!(talea_kernel_tests::kernel::is_ordinary(tid));
        daemon.terminate();
    }
    let mut daemon = start("-all");
    assert!(daemon.log().contains("CAP_SYS_NICE"), "{}", daemon.log());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", periodic(10)));
    let said = client.try_attach(granted.spec, alice.thread());
    assert!(matches!(said, talea_proto::Reply::Refused(_)), "{said:?}");
    daemon.terminate();
}

#[test]
fn a_root_daemon_keeps_only_the_rights_that_it_needs() {
    needs_root!();
    let bench = Bench::new("rights");
    let daemon = Daemon::start(&bench, &config::open());
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("status");
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    };
    const SYS_NICE_AND_PERFMON: u64 = 1 << 23 | 1 << 38;
    for name in ["CapEff:", "CapPrm:", "CapBnd:"] {
        assert_eq!(set(name), SYS_NICE_AND_PERFMON, "{name}");
    }
    assert_eq!((set("CapInh:"), set("CapAmb:")), (0, 0));
}

#[test]
fn an_edf_plugin_that_can_serve_no_task_is_named_at_the_start() {
    needs_root!();
    let machine = talea_os::sysinfo::SystemInfo::probe().expect("this machine");
    talea_kernel_tests::needs!(
        "one root domain of several CPUs",
        machine.is_one_domain() && machine.online.len() > 1
    );
    let bench = Bench::new("domains");
    let part =
        "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"part\"\nkind = \"edf\"\ncpus = \"0\"\n";
    let daemon = Daemon::start(&bench, part);
    assert!(daemon.log().contains("plugin `part` rejects every task"), "{}", daemon.log());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let task = crate::tasks::reserved(10, 1_000);
    let refusal = client.refused(&Request::Create(task));
    let said = refusal.answers.first().expect("one plugin was asked").verdict;
    assert!(
        matches!(said, PluginVerdict::No(Rejection { reason: RejectionReason::Unsupported, .. })),
        "{said:?}"
    );
}

#[test]
fn a_socket_of_the_service_manager_is_taken_over_and_left_where_it_is() {
    needs_root!();
    let bench = Bench::new("activation");
    let file = bench.write("talead.toml", &config::open());
    let path = bench.path("manager.sock");
    let address = rustix::net::SocketAddrUnix::new(&path).expect("an address");
    let kind = rustix::net::SocketType::SEQPACKET;
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).expect("a socket");
    rustix::net::bind(&listener, &address).expect("bind");
    rustix::net::listen(&listener, 8).expect("listen");
    mode(&path, 0o666);
    let mut daemon = Daemon::unstarted(&file, &bench.path("state"));
    let plain = daemon.command(&[]);
    // The number of the process is only known once it runs, and the descriptor must be number 3.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null", "sh"]);
    command
        .arg(plain.get_program())
        .args(plain.get_args())
        .stdin(listener.try_clone().expect("dup"));
    daemon.run_command(command).expect("a daemon");
    assert!(daemon.log().contains("serves at sockets of the service manager"), "{}", daemon.log());
    let alice = Agent::user(ALICE);
    let index = alice.order(&format!("connect {}", path.display())).parse().expect("a connection");
    let client = alice.client_at(index);
    let version = talea_proto::VERSION;
    let said = client.ask(&Request::Hello { min: version, max: version });
    assert!(matches!(said, talea_proto::Reply::Welcome { .. }), "{said:?}");
    let tid = alice.thread();
    let granted = client.create(with("rm", periodic(10)));
    client.attach(granted.spec, tid);
    client.done(&Request::Release(granted.spec));
    assert!(!daemon.socket().exists(), "it makes none of its own");
    daemon.terminate();
    assert!(path.exists(), "what is the manager's stays");
}
