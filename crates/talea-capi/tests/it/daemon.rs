//! The same programs against the real daemon, as a user without any rights.
//!
//! The daemon is started privately, with its socket and state in a folder of its own. Programs run
//! as a numeric user; the library and the programs are copied to where that user can read them.
//! Demand is bounded: no program here computes, they sleep from period to period.

use crate::needs;
use crate::programs::EXAMPLES;
use crate::stage::{self, C11, command, example, expect, here, program};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use talea_client::Client;

/// Nobody, on every distribution.
const STRANGER: u32 = 65534;

const OPEN: &str = "access = \"off\"";
const CLOSED: &str = "access = \"rules\"";

const RM: &str =
    "[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"all\"\npriorities = \"50-60\"\n";
/// For applications: two priorities for each CPU's jobs and dispatcher, and one for the watchdog.
const FP: &str =
    "[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"all\"\npriorities = \"40-60\"\n";
const EDF: &str = "[[plugin]]\nname = \"edf\"\nkind = \"edf\"\ncpus = \"all\"\n";

/// A private daemon; ends with everything that it granted when it is dropped.
struct Daemon {
    folder: PathBuf,
    child: Child,
}

/// Where cargo puts the daemon; `None` when it was not built.
fn talead() -> Option<PathBuf> {
    let path = stage::built_library().parent()?.parent()?.join("talead");
    path.exists().then_some(path)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Daemon {
    fn start(access: &str) -> Daemon {
        Daemon::start_with(access, RM)
    }

    fn start_with(access: &str, plugins: &str) -> Daemon {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("talea-capi-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("ours");
        stage::install(&folder);
        let file = folder.join("talead.toml");
        std::fs::write(&file, format!("[daemon]\n{access}\n\n{plugins}")).expect("ours");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("ours");
        let child = Daemon::spawn(&folder);
        let daemon = Daemon { folder, child };
        daemon.await_service();
        daemon
    }

    fn spawn(folder: &Path) -> Child {
        Command::new(talead().expect("looked for before"))
            .arg("--config")
            .arg(folder.join("talead.toml"))
            .arg("--socket")
            .arg(folder.join("socket"))
            .arg("--state-dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).expect("ours"))
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

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// A program as the stranger runs it.
    fn command(&self, program: &Path) -> Command {
        let copy = self.folder.join(program.file_name().expect("a name"));
        talea_kernel_tests::bench::copy(program, &copy);
        let mut command = command(&copy, &self.socket());
        command.uid(STRANGER).gid(STRANGER).current_dir("/");
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Everything goes back before the daemon ends; one that does not listen any more is killed.
        let asked =
            Client::builder().path(self.socket()).connect().and_then(|client| client.stop(true));
        if !matches!(asked, Ok(Ok(()))) {
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
        let said = expect(&mut daemon.command(&program(&example(name), C11, library)), 0);
        // How much of the desired runtime is accepted is the plugin's affair.
        let words = words.split(',').next().unwrap_or(words);
        assert!(said.contains(words), "{name}: {said}");
    }
    let mut threads = daemon.command(&program(&example("retif_threads.c"), C11, "retif"));
    expect(threads.env("RETIF_PERIOD_MS", "1"), 0);
}

#[test]
fn r2_r4_threads_become_real_time_and_ordinary_again_and_strangers_threads_do_not() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let daemon = Daemon::start(OPEN);
    let live = program(&here("tests/c/retif_live.c"), C11, "retif");
    // This process is root's.
    expect(daemon.command(&live).arg(std::process::id().to_string()), 0);
}

#[test]
fn r2_r7_r8_r10_retif_w1_w2_w12_w13_terms_are_told_changed_and_refused_from_c() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let daemon = Daemon::start_with(OPEN, &format!("{EDF}{RM}"));
    expect(&mut daemon.command(&program(&here("tests/c/retif_terms.c"), C11, "retif")), 0);
}

#[test]
fn r4_r20_without_a_rule_an_unprivileged_user_is_denied() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let daemon = Daemon::start(CLOSED);
    expect(&mut daemon.command(&program(&here("tests/c/retif_denied.c"), C11, "retif")), 0);
}

#[test]
fn r6_a_stopped_and_a_killed_daemon_are_connection_errors_in_time() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let mut daemon = Daemon::start(OPEN);
    let lost = program(&here("tests/c/retif_lost.c"), C11, "retif");
    let signal = |daemon: &Daemon, signal| {
        let pid = rustix::process::Pid::from_child(&daemon.child);
        rustix::process::kill_process(pid, signal).expect("ours");
    };
    signal(&daemon, rustix::process::Signal::STOP);
    expect(daemon.command(&lost).args(["-1", &libc::ETIMEDOUT.to_string()]), 0);
    signal(&daemon, rustix::process::Signal::CONT);
    expect(daemon.command(&lost).args(["1", "0"]), 0);
    signal(&daemon, rustix::process::Signal::KILL);
    daemon.child.wait().expect("it ends");
    expect(daemon.command(&lost).args(["-1", "0"]), 0);
    daemon.child = Daemon::spawn(&daemon.folder);
    daemon.await_service();
    expect(daemon.command(&lost).args(["1", "0"]), 0);
}

#[test]
fn y1_y22_the_listings_of_yasmin_and_fork_and_join_are_given_real_time_by_the_daemon() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    needs!("two CPUs", crate::apps::workers() == 2);
    let _bench = talea_kernel_tests::Bench::new("capi_granted");
    let daemon = Daemon::start_with(OPEN, &format!("{FP}levels = \"common\"\n"));
    let listing = crate::yasmin::listing();
    for (program, words) in [
        (listing, "on the accelerator"),
        (program(&example("fork_join.c"), C11, "talea"), "frames late"),
    ] {
        let said = expect(&mut daemon.command(&program), 0);
        assert!(said.contains(words) && !said.contains("without real-time priorities"), "{said}");
    }
}
