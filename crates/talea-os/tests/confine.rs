//! Sandboxed children, and dropped capabilities.
#![allow(unsafe_code, reason = "raw system calls, to see what is refused")]

mod support;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use support::{is_root, needs, wait_until};
use talea_core::Span;
use talea_os::capabilities::{self, CapSet, Capability};
use talea_os::spawn::{Child, Sandbox, has_seccomp, spawn_sandboxed};
use talea_os::{Policy, sched, seqpacket};

fn shell(script: &str, sandbox: &Sandbox) -> (Child, OwnedFd) {
    let (ours, theirs) = seqpacket::pair(false).expect("a pair");
    seqpacket::set_timeout(&ours, std::time::Duration::from_secs(10)).expect("a time-out");
    let args = ["-c", script];
    let child = spawn_sandboxed(Path::new("/bin/sh"), args, theirs, Stdio::null(), sandbox)
        .expect("a child");
    (child, ours)
}

fn says(socket: &OwnedFd) -> String {
    let mut buffer = [0; 4096];
    let got = seqpacket::recv_waiting(socket, &mut buffer).expect("a message");
    String::from_utf8_lossy(&buffer[..got.len]).trim_end().to_owned()
}

fn sandbox() -> Sandbox {
    Sandbox { user: is_root().then_some((64_001, 64_002)), ..Sandbox::default() }
}

/// A line of the child's status file.
fn status(child: &Child, name: &str) -> String {
    let text =
        std::fs::read_to_string(format!("/proc/{}/status", child.pid())).expect("its status");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_ascii_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_child_gets_one_descriptor_no_rights_and_no_environment() {
    let checks = std::thread::spawn(|| {
        if is_root() {
            // A group that would leak. The raw call changes this thread alone, and it starts the
            // child.
            // SAFETY: the kernel reads one group.
            unsafe { libc::syscall(libc::SYS_setgroups, 1, [7001 as libc::gid_t].as_ptr()) };
        }
        check_a_child();
    });
    checks.join().expect("all as said");
}

fn check_a_child() {
    // A descriptor that would leak: not close-on-exec.
    let leak = std::fs::File::open("/dev/zero").expect("a file");
    // SAFETY: clears a flag of an open descriptor.
    unsafe { libc::fcntl(leak.as_raw_fd(), libc::F_SETFD, 0) };
    let (child, socket) = shell("echo started $HOME$USER >&3; read x <&3", &sandbox());
    assert_eq!(says(&socket), "started");
    let fds = std::fs::read_dir(format!("/proc/{}/fd", child.pid())).expect("its descriptors");
    let mut fds: Vec<i32> =
        fds.map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    fds.retain(|&fd| fd < 10);
    fds.sort_unstable();
    assert_eq!(fds, [0, 1, 2, 3]);
    let targets = std::fs::read_dir(format!("/proc/{}/fd", child.pid())).expect("its descriptors");
    let zero = |e: std::io::Result<std::fs::DirEntry>| std::fs::read_link(e.unwrap().path()).ok();
    assert!(!targets.map(zero).any(|target| target.as_deref() == Some(Path::new("/dev/zero"))));
    assert_eq!(status(&child, "NoNewPrivs"), "1");
    assert_eq!(status(&child, "SigBlk"), "0000000000000000");
    if has_seccomp() {
        assert_eq!(status(&child, "Seccomp:"), "2");
    }
    assert_eq!(sched::get(child.pid()).expect("its policy").policy, Policy::NORMAL);
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", child.pid())).expect("its limits");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.split_ascii_whitespace().next().expect("a number").to_owned()
    };
    assert_eq!(limit("Max address space"), (256 << 20).to_string());
    assert_eq!(limit("Max core file size"), "0");
    assert_eq!(limit("Max realtime priority"), "0");
    if is_root() {
        assert_eq!(status(&child, "Uid"), "64001 64001 64001 64001");
        assert_eq!(status(&child, "Gid"), "64002 64002 64002 64002");
        assert_eq!(status(&child, "Groups"), "");
        assert_eq!(status(&child, "CapEff"), "0000000000000000");
        assert_eq!(status(&child, "CapPrm"), "0000000000000000");
    }
    drop(leak);
}

#[test]
fn a_child_starts_no_process_and_writes_no_file() {
    needs!("seccomp on this architecture", has_seccomp());
    // Builtins only: each of the two would need a call that is refused.
    let script = "
        if (exit 0) 2>/dev/null; then echo forked >&3; fi
        if { : > /tmp/talea-sandbox-$$; } 2>/dev/null; then echo wrote >&3; fi
        { read word < /proc/sys/kernel/ostype; } && echo read $word >&3
        read x <&3";
    let script = format!("trap 'echo refused >&3' EXIT; {script}");
    let (mut child, socket) = shell(&script, &sandbox());
    // A shell that cannot fork exits there, which it tries first.
    assert_eq!(says(&socket), "refused");
    child.wait().expect("ended");
    let script = "{ : > /dev/null; } 2>&3 && echo wrote >&3; echo refused >&3";
    let (mut child, socket) = shell(script, &sandbox());
    let first = says(&socket);
    assert!(first != "wrote", "{first}");
    child.wait().expect("ended");
    // Without the filter both succeed: the test is able to fail.
    let (_child, socket) =
        shell("(exit 0) && echo forked >&3", &Sandbox { seccomp: false, ..sandbox() });
    assert_eq!(says(&socket), "forked");
}

#[test]
fn a_spinning_child_is_killed_by_its_cpu_limit() {
    let sandbox = Sandbox { cpu: Some(Span::from_ns(1_000_000_000)), ..sandbox() };
    let (mut child, _socket) = shell("while :; do :; done", &sandbox);
    let status = child.wait().expect("ended");
    let text = talea_os::spawn::describe_exit(status);
    assert!(text.contains("signal"), "{text}");
}

#[test]
fn a_dropped_child_is_killed_and_collected() {
    let (child, socket) = shell("echo $$ >&3; while :; do read x <&3; done", &sandbox());
    let pid = says(&socket);
    assert_eq!(pid, child.pid().to_string());
    drop(child);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_child_ends_with_the_thread_that_started_it() {
    let (pid, _socket) = std::thread::spawn(|| {
        let (child, socket) = shell("echo up >&3; while :; do read x <&3; done", &sandbox());
        assert_eq!(says(&socket), "up");
        let pid = child.pid();
        std::mem::forget(child);
        (pid, socket)
    })
    .join()
    .expect("a child");
    wait_until("the child has ended", || {
        talea_os::proc::stat(pid).map_or(true, |stat| stat.has_ended())
    });
    // SAFETY: collects the child that was forgotten above.
    unsafe { libc::waitpid(pid.as_raw(), std::ptr::null_mut(), 0) };
}

#[test]
fn a_program_that_is_not_there_is_an_error_here() {
    let (_ours, theirs) = seqpacket::pair(false).expect("a pair");
    let missing = Path::new("/no/such/program");
    let error = spawn_sandboxed(missing, [""; 0], theirs, Stdio::null(), &sandbox())
        .expect_err("no program");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn dropped_capabilities_are_gone() {
    needs!("root", is_root());
    // Capabilities are per thread: this one ends afterwards.
    std::thread::spawn(|| {
        let wanted = CapSet::of(&[Capability::SysNice, Capability::DacReadSearch]);
        let kept = capabilities::keep_only(wanted).expect("dropped");
        assert!(kept.has(Capability::SysNice) && !kept.has(Capability::SetUid));
        assert_eq!(capabilities::effective().expect("what is left"), kept);
        // SAFETY: integers; refused.
        let denied = unsafe { libc::syscall(libc::SYS_setresuid, 1, 1, 1) };
        assert_eq!(
            (denied, std::io::Error::last_os_error().raw_os_error()),
            (-1, Some(libc::EPERM))
        );
        let me = talea_os::Tid::current();
        sched::set(me, &talea_os::Attr::grant(Policy::Fifo(1))).expect("what was kept still works");
        sched::set(me, &talea_os::Attr::plain(Policy::NORMAL)).expect("restored");
        let text = std::fs::read_to_string("/proc/thread-self/status").expect("own status");
        let bounding = text.lines().find_map(|line| line.strip_prefix("CapBnd:")).expect("a line");
        assert_eq!(u64::from_str_radix(bounding.trim(), 16).expect("a mask"), kept.0 & wanted.0);
    })
    .join()
    .expect("all as said");
}
