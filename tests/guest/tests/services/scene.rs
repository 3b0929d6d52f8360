//! Installed daemon with rules for one user, and that user's threads.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use talea_os::Tid;
use talea_os::sched::{self, Policy};

/// User with rules; no account has this number.
pub(crate) const ALICE: u32 = 1000;
/// User without rules.
pub(crate) const MALLORY: u32 = 1001;
const CONFIG: &str = "/etc/talea/talead.toml";
/// Time limit of every wait. It is a watchdog: the emulated CPUs are slow and share the host.
const WATCHDOG: Duration = Duration::from_mins(2);
const RULES: &str = "
[[rule]]
domain = \"#1000\"
plugin = \"edf\"
max_utilization = 0.5

[[rule]]
domain = \"#1000\"
plugin = \"fp\"
max_priority = 40
allow_unbounded = true
";

/// The machine, for one test.
pub(crate) struct Scene {
    _machine: MutexGuard<'static, ()>,
}

/// Output of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().expect("a program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Runs a program that must succeed. Returns its output.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> String {
    let ended = run(command);
    assert_eq!(ended.code, Some(0), "{command:?}: {}{}", ended.out, ended.err);
    ended.out.trim().to_owned()
}

#[track_caller]
pub(crate) fn systemctl(arguments: &[&str]) -> String {
    done(Command::new("systemctl").args(arguments))
}

/// Returns a property of a unit.
#[track_caller]
pub(crate) fn property(unit: &str, name: &str) -> String {
    systemctl(&["show", "--value", "--property", name, unit])
}

/// Start of the present scene: the time since 1970.
static BEGUN: Mutex<Duration> = Mutex::new(Duration::ZERO);

/// Returns what the daemon and systemd have logged about it since the start of the scene.
pub(crate) fn journal() -> String {
    let begun = *BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    let since = format!("--since=@{}.{:06}", begun.as_secs(), begun.subsec_micros());
    let mut journal = Command::new("journalctl");
    journal.args(["--no-pager", "--output=cat", "--unit=talead*", &since]);
    done(&mut journal)
}

/// Waits until `holds` returns a value.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + WATCHDOG;
    loop {
        if let Some(value) = holds() {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}\n{}", journal());
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn policy(tid: i32) -> Policy {
    sched::get(Tid::new(tid).expect("positive")).expect("a living thread").policy
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("positive"), signal).expect("a living process");
}

#[allow(clippy::unused_self, reason = "the scene is the right to use the machine")]
impl Scene {
    /// Starts the daemon with the installed configuration, `more`, and rules for [`ALICE`]. Returns
    /// when the plugins from outside are in service, for which the daemon does not wait long.
    pub(crate) fn new(more: &str) -> Scene {
        static MACHINE: Mutex<()> = Mutex::new(());
        static INSTALLED: Mutex<String> = Mutex::new(String::new());
        let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if installed.is_empty() {
            *installed = fs::read_to_string(CONFIG).expect("installed");
        }
        let scene = Scene { _machine: machine };
        scene.stop();
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        *BEGUN.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        let (plugins, _) = installed.split_once("# Rules. ").expect("the installed file");
        fs::write(CONFIG, format!("{plugins}{more}{RULES}")).expect("writable");
        done(Command::new("talea").args(["check", CONFIG]));
        scene.start();
        let foreign = more.matches("kind = \"foreign\"").count();
        if foreign > 0 {
            eventually("plugins in service", || {
                (journal().matches(": its host is a service").count() >= foreign).then_some(())
            });
        }
        scene
    }

    /// Starts the daemon, as the manual says.
    pub(crate) fn start(&self) {
        const ENABLED: &str = "/etc/systemd/system/multi-user.target.wants/talead.service";
        let how = if Path::new(ENABLED).exists() { "start" } else { "enable" };
        let now = ["--now"].iter().take((how == "enable").into());
        let mut systemctl = Command::new("systemctl");
        systemctl.args([how, "--quiet", "talead.socket", "talead.service"]).args(now);
        let ended = run(&mut systemctl);
        assert_eq!(ended.code, Some(0), "{}\n{}", ended.err, journal());
    }

    /// Stops the daemon. Grants stay.
    pub(crate) fn stop(&self) {
        systemctl(&["stop", "talead.service", "talead.socket", "talead-plugin.socket"]);
    }

    /// Returns the process number of the daemon.
    pub(crate) fn daemon(&self) -> i32 {
        property("talead.service", "MainPID").parse().expect("a number")
    }

    /// Waits until systemd has replaced the daemon `old`.
    #[track_caller]
    pub(crate) fn wait_for_successor(&self, old: i32) {
        const PROCESSES: &str = "/sys/fs/cgroup/system.slice/talead.service/cgroup.procs";
        let old = old.to_string();
        eventually("another daemon", || {
            // Without a process the unit has no cgroup.
            let processes = fs::read_to_string(PROCESSES).unwrap_or_default();
            processes.lines().any(|pid| pid != old).then_some(())
        });
        eventually("an active unit", || {
            (property("talead.service", "ActiveState") == "active").then_some(())
        });
        assert_ne!(self.daemon().to_string(), old);
    }

    /// Returns a call of `talea` by a user.
    pub(crate) fn talea(&self, uid: u32, arguments: &[&str]) -> Command {
        self.user(uid, Path::new("talea"), arguments)
    }

    /// Returns a call of a program by a user.
    pub(crate) fn user(&self, uid: u32, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).uid(uid).gid(uid).current_dir("/");
        command
    }

    /// Returns a call of `talea` by the daemon's user, without capabilities.
    pub(crate) fn daemons_user(&self, arguments: &[&str]) -> Command {
        let accounts = fs::read_to_string("/etc/passwd").expect("readable");
        let line = accounts.lines().find(|line| line.starts_with("talea:")).expect("an account");
        self.talea(
            line.split(':').nth(2).and_then(|id| id.parse().ok()).expect("a user"),
            arguments,
        )
    }

    /// Returns the grants that `talea list` shows to root.
    pub(crate) fn grants(&self) -> Vec<serde_json::Value> {
        let text = done(&mut self.talea(0, &["list", "--json"]));
        let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        list["specs"].as_array().expect("a list").clone()
    }

    /// Starts a sleeping process of [`ALICE`] under a grant with these parameters.
    #[track_caller]
    pub(crate) fn granted(&self, arguments: &[&str]) -> Sleeper {
        let sleeper = Sleeper::new(ALICE);
        let tid = sleeper.tid().to_string();
        let ended = run(&mut self.talea(ALICE, &[&["attach", &tid], arguments].concat()));
        assert_eq!(ended.code, Some(0), "{}\n{}", ended.err, journal());
        sleeper
    }

    /// Asserts that the daemon's list has the same policy for the sleeper as the kernel.
    #[track_caller]
    pub(crate) fn assert_held(&self, sleeper: &Sleeper) {
        let grants = self.grants();
        let of = grants.iter().find(|grant| grant["tid"] == sleeper.tid());
        let grant = of.unwrap_or_else(|| panic!("{grants:#?}\n{}", journal()));
        assert_eq!(grant["held"], true, "{grant:#}");
        assert!(policy(sleeper.tid()).is_realtime(), "{grant:#}");
    }
}

/// Process that sleeps until it is dropped.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn new(uid: u32) -> Sleeper {
        let mut sleep = Command::new("/init");
        sleep.arg("sleep").uid(uid).gid(uid).stdin(Stdio::null());
        Sleeper(sleep.spawn().expect("a process"))
    }

    pub(crate) fn tid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
