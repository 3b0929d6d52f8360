//! Test programs and examples with the real daemon, run by a user without rights.
//!
//! Each test starts a private daemon with its socket and state in a folder of its own. The library
//! and the programs are copied to that folder, so that the unprivileged user can read them. The
//! demand is bounded: the programs sleep from period to period and do not compute.

use crate::needs;
use crate::programs::EXAMPLES;
use crate::toolchain::{self, C11, command, example, expect, here, program};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use talea_client::Client;

/// UID and GID of the user `nobody`, on every distribution.
const UNPRIVILEGED: u32 = 65534;

const OPEN: &str = "access = \"off\"";
const CLOSED: &str = "access = \"rules\"";

const RM: &str =
    "[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"all\"\npriorities = \"50-60\"\n";
/// Plugin with enough priorities for an application: two per CPU, for jobs and dispatcher, and one
/// for the watchdog.
const FP: &str =
    "[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"all\"\npriorities = \"40-60\"\n";
const EDF: &str = "[[plugin]]\nname = \"edf\"\nkind = \"edf\"\ncpus = \"all\"\n";

/// Private daemon. Dropping it releases all grants and stops the daemon.
pub(crate) struct Daemon {
    folder: PathBuf,
    child: Child,
}

/// Returns the path of the daemon; `None` if cargo has not built it.
pub(crate) fn talead() -> Option<PathBuf> {
    let path = toolchain::built_library().parent()?.parent()?.join("talead");
    path.exists().then_some(path)
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Daemon {
    fn start(access: &str) -> Daemon {
        Daemon::start_with(access, RM)
    }

    pub(crate) fn start_with(access: &str, plugins: &str) -> Daemon {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("talea-capi-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755))
            .expect("the folder is writable");
        toolchain::install(&folder);
        let file = folder.join("talead.toml");
        std::fs::write(&file, format!("[daemon]\n{access}\n\n{plugins}"))
            .expect("the folder is writable");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644))
            .expect("the folder is writable");
        let child = Daemon::spawn(&folder);
        let daemon = Daemon { folder, child };
        daemon.await_service();
        daemon
    }

    fn spawn(folder: &Path) -> Child {
        Command::new(talead().expect("the test needs talead"))
            .arg("--config")
            .arg(folder.join("talead.toml"))
            .arg("--socket")
            .arg(folder.join("socket"))
            .arg("--state-dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).expect("the folder is writable"))
            .spawn()
            .expect("it can be run")
    }

    fn await_service(&self) {
        let watchdog = Instant::now() + Duration::from_secs(20);
        while Client::builder().path(self.socket()).connect().is_err() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < watchdog, "the daemon does not serve:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Returns the command of a copy of a program, to be run by the unprivileged user.
    fn command(&self, program: &Path) -> Command {
        let copy = self.folder.join(program.file_name().expect("a name"));
        talea_kernel_tests::bench::copy(program, &copy);
        let mut command = command(&copy, &self.socket());
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED).current_dir("/");
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon releases all grants before it ends. One that does not answer is killed.
        let stopped =
            Client::builder().path(self.socket()).connect().and_then(|client| client.stop(true));
        if !matches!(stopped, Ok(Ok(()))) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

#[test]
fn r5_the_listings_run_against_the_daemon_as_an_unprivileged_user() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let daemon = Daemon::start(OPEN);
    for (name, library, words) in EXAMPLES {
        let output = expect(&mut daemon.command(&program(&example(name), C11, library)), 0);
        // The plugin decides how much of the desired runtime it accepts.
        let words = words.split(',').next().unwrap_or(words);
        assert!(output.contains(words), "{name}: {output}");
    }
    let mut threads = daemon.command(&program(&example("retif_threads.c"), C11, "retif"));
    expect(threads.env("RETIF_PERIOD_MS", "1"), 0);
}

#[test]
fn r2_r4_attached_threads_are_real_time_until_detached_and_foreign_threads_are_refused() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let daemon = Daemon::start(OPEN);
    let attributes = program(&here("tests/c/retif_attributes.c"), C11, "retif");
    // This process belongs to root.
    expect(daemon.command(&attributes).arg(std::process::id().to_string()), 0);
}

#[test]
fn r2_r3_r7_r8_r10_retif_w1_w2_w12_w13_terms_are_returned_changed_and_refused_in_c() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let daemon = Daemon::start_with(OPEN, &format!("{EDF}{RM}"));
    expect(&mut daemon.command(&program(&here("tests/c/retif_terms.c"), C11, "retif")), 0);
}

#[test]
fn retif_w14_w16_threads_share_the_connection_and_connects_leak_no_descriptors() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let quota = format!("{OPEN}\n\n[daemon.quota]\nspecs_per_user = 4096");
    let daemon = Daemon::start(&quota);
    for name in ["retif_threads_share", "retif_connects"] {
        let program = program(&here(&format!("tests/c/{name}.c")), C11, "retif");
        expect(&mut command(&program, &daemon.socket()), 0);
    }
}

#[test]
fn r4_r20_without_a_rule_an_unprivileged_user_is_denied() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let daemon = Daemon::start(CLOSED);
    expect(&mut daemon.command(&program(&here("tests/c/retif_denied.c"), C11, "retif")), 0);
}

#[test]
fn r6_retif_w15_a_stopped_and_a_killed_daemon_are_connection_errors_in_time() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let mut daemon = Daemon::start(OPEN);
    let creates = program(&here("tests/c/retif_connection_error.c"), C11, "retif");
    let signal = |daemon: &Daemon, signal| {
        let pid = rustix::process::Pid::from_child(&daemon.child);
        rustix::process::kill_process(pid, signal).expect("the daemon is a child");
    };
    signal(&daemon, rustix::process::Signal::STOP);
    expect(daemon.command(&creates).args(["-1", &libc::ETIMEDOUT.to_string()]), 0);
    signal(&daemon, rustix::process::Signal::CONT);
    expect(daemon.command(&creates).args(["1", "0"]), 0);
    signal(&daemon, rustix::process::Signal::KILL);
    daemon.child.wait().expect("it ends");
    expect(daemon.command(&creates).args(["-1", "0"]), 0);
    daemon.child = Daemon::spawn(&daemon.folder);
    daemon.await_service();
    expect(daemon.command(&creates).args(["1", "0"]), 0);
}

#[test]
fn y1_y22_the_daemon_grants_real_time_to_the_listings_of_yasmin_and_to_fork_and_join() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    needs!("two CPUs", crate::apps::workers() == 2);
    let _bench = talea_kernel_tests::Bench::new("capi_granted");
    let daemon = Daemon::start_with(OPEN, &format!("{FP}levels = \"common\"\n"));
    let listing = crate::yasmin::listing();
    for (program, text) in [
        (listing, "on the accelerator"),
        (program(&example("fork_join.c"), C11, "talea"), "frames late"),
    ] {
        let output = expect(&mut daemon.command(&program), 0);
        assert!(
            output.contains(text) && !output.contains("without real-time priorities"),
            "{output}"
        );
    }
}
