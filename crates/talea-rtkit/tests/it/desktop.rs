//! Debian's PipeWire with WirePlumber, as an unprivileged user on a private bus.
//!
//! Model: `pw-cat` plays a tone of 48 kHz into a null sink, in cycles of [`QUANTUM`] samples. The
//! sink is the driver of the graph: its timer begins each cycle, and `pw-cat` has to finish its
//! part before the next one. `pw-profiler` writes a line for each cycle.

use crate::stage::{Bus, Process, named_users, with_files};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use talea_kernel_tests::bench::{discharge, enlist};
use talea_kernel_tests::{ALICE, Bench, eventually, kernel};

/// Samples in a cycle, at 48 kHz: 5.3 ms.
const QUANTUM: u32 = 256;
/// Column of `pw-profiler` with the state of the only node beside the driver.
const STATE: usize = 10;
/// State of a node that has finished its cycle.
const FINISHED: &str = "3";

/// Programs without which there is no session.
const PROGRAMS: [&str; 6] =
    ["dbus-daemon", "pipewire", "wireplumber", "pw-cat", "pw-cli", "pw-profiler"];

/// Program of the portal.
pub(crate) const PORTAL: &str = "/usr/libexec/xdg-desktop-portal";

/// Whether all programs of the session are installed.
pub(crate) fn is_installed() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &&str| std::env::split_paths(&folders).any(|f| f.join(program).exists());
    PROGRAMS.iter().all(has)
}

/// Cycles of recordings, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cycles {
    /// `is_late[c]`: whether the node of cycle `c` did not finish before the next one, an xrun.
    pub(crate) is_late: Vec<bool>,
}

impl Cycles {
    /// Returns the number of cycles.
    pub(crate) fn all(&self) -> usize {
        self.is_late.len()
    }

    /// Returns the number of xruns.
    pub(crate) fn xruns(&self) -> usize {
        self.is_late.iter().filter(|&&is_late| is_late).count()
    }
}

/// Bus of a user's session, with a folder for the session's programs.
pub(crate) struct SessionBus {
    folder: PathBuf,
    system: String,
    _process: Process,
}

impl SessionBus {
    /// Starts the bus in the folder `name`.
    pub(crate) fn start(bench: &Bench, name: &str, system: &Bus) -> SessionBus {
        let folder = bench.path(name);
        for folder in [&folder, &folder.join("run")] {
            std::fs::create_dir(folder).expect("a folder");
            chown(folder, Some(ALICE), Some(ALICE)).expect("a folder of the user");
        }
        let address = format!("--address=unix:path={}", folder.join("run/bus").display());
        let line = ["dbus-daemon", "--session", "--nofork", "--nopidfile", &address];
        let inner = command_of(&system.address(), &folder, &line);
        // The bus reads the name of its user.
        let mut command =
            with_files(Path::new(inner.get_program()), &[(named_users(bench), "/etc/passwd")]);
        command.args(inner.get_args()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut command);
        eventually("the session's bus listens", || folder.join("run/bus").exists());
        SessionBus { folder, system: system.address(), _process: process }
    }

    /// Returns a command of the user in the session.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
        command_of(&self.system, &self.folder, line)
    }

    /// Returns a command of the user whose text is in a file of the folder.
    fn logged(&self, line: &[&str]) -> Command {
        let mut command = self.command(line);
        // A program of the session ends with it, so its text is read only after a failure.
        let log = format!("{}.log", line[0].replace('/', "_"));
        let log = File::create(self.folder.join(log)).expect("a log");
        command.stdout(Stdio::null()).stderr(log);
        command
    }

    /// Returns the folder of the session's sockets.
    pub(crate) fn runtime_folder(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Starts the portal, and waits until it serves.
    pub(crate) fn portal(&self) -> Process {
        let portal = Process::start(&mut self.logged(&[PORTAL]));
        // A call to a name without an owner would make the bus start another portal.
        let owner = [
            "dbus-send",
            "--session",
            "--print-reply",
            "--dest=org.freedesktop.DBus",
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus.GetConnectionUnixProcessID",
            "string:org.freedesktop.portal.Desktop",
        ];
        let pid = format!("uint32 {}", portal.pid());
        eventually("the portal has its name", || {
            let answer = self.command(&owner).output().expect("dbus-send");
            String::from_utf8_lossy(&answer.stdout).trim_end().ends_with(&pid)
        });
        let line = [
            "dbus-send",
            "--session",
            "--print-reply",
            "--dest=org.freedesktop.portal.Desktop",
            "/org/freedesktop/portal/desktop",
            "org.freedesktop.DBus.Properties.Get",
            "string:org.freedesktop.portal.Realtime",
            "string:RTTimeUSecMax",
        ];
        eventually("the portal serves", || {
            self.logged(&line).status().is_ok_and(|status| status.success())
        });
        portal
    }
}

/// Running session of one user. Dropping it ends its programs.
pub(crate) struct Session {
    player: Process,
    server: Process,
    portal: Option<Process>,
    _manager: Process,
    bus: SessionBus,
}

impl Session {
    /// Starts the programs, and waits until the tone is played.
    pub(crate) fn start(bench: &Bench, name: &str, bus: &Bus) -> Session {
        Session::on(bench, SessionBus::start(bench, name, bus), None)
    }

    /// Starts the programs with the portal, and waits until the tone is played.
    pub(crate) fn with_portal(bench: &Bench, name: &str, bus: &Bus) -> Session {
        let bus = SessionBus::start(bench, name, bus);
        let portal = bus.portal();
        Session::on(bench, bus, Some(portal))
    }

    /// Starts the other programs of a session, and waits until the tone is played.
    pub(crate) fn on(bench: &Bench, bus: SessionBus, portal: Option<Process>) -> Session {
        let tone = bench.path("tone.wav");
        if !tone.exists() {
            std::fs::write(&tone, wave_file(120)).expect("a file");
        }
        let server = Process::start(&mut bus.logged(&["pipewire"]));
        eventually("PipeWire listens", || bus.folder.join("run/pipewire-0").exists());
        let manager = Process::start(&mut bus.logged(&["wireplumber"]));
        let sink = "{ factory.name=support.null-audio-sink node.name=sink \
                    media.class=Audio/Sink object.linger=true audio.position=[FL FR] }";
        eventually("a sink exists", || {
            let line = ["pw-cli", "create-node", "adapter", sink];
            bus.logged(&line).status().is_ok_and(|status| status.success())
        });
        let play = |bus: &SessionBus| {
            let (quantum, tone) = (QUANTUM.to_string(), tone.to_string_lossy());
            Process::start(&mut bus.logged(&["pw-cat", "--playback", "--latency", &quantum, &tone]))
        };
        let player = play(&bus);
        let mut session = Session { player, server, portal, _manager: manager, bus };
        // The player ends if the session manager does not know the sink yet.
        eventually("the tone is played", || {
            let is_playing = (0..4).any(|_| session.is_playing());
            if !is_playing {
                session.player = play(&session.bus);
            }
            is_playing
        });
        session
    }

    /// Returns the processes of the server and of the player.
    pub(crate) fn processes(&self) -> [i32; 2] {
        [self.server.pid(), self.player.pid()]
    }

    /// Returns the process of the portal.
    pub(crate) fn portal(&self) -> i32 {
        self.portal.as_ref().expect("a session with the portal").pid()
    }

    /// Whether the player is a running node in cycles of the sink.
    pub(crate) fn is_playing(&self) -> bool {
        self.record(|| std::thread::sleep(Duration::from_millis(300))).all() > 0
    }

    /// Records the cycles during `meanwhile`.
    pub(crate) fn record(&self, meanwhile: impl FnOnce()) -> Cycles {
        let log = self.bus.folder.join("profile");
        let _ = std::fs::remove_file(&log);
        let profiler = self.bus.command(&["pw-profiler", "-o", &log.to_string_lossy()]);
        // The load must not delay the profiler, which is an ordinary program.
        let mut command = Command::new("nice");
        command.args(["-n", "-20"]).arg(profiler.get_program()).args(profiler.get_args());
        command.current_dir(&self.bus.folder).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
        let pid = child.id() as i32;
        enlist(pid);
        meanwhile();
        let _ = kill_process(Pid::from_raw(pid).expect("a pid"), Signal::INT);
        let _ = child.wait();
        discharge(pid);
        cycles_of(&std::fs::read_to_string(&log).unwrap_or_default())
    }
}

/// Reads the cycles in the text of `pw-profiler`. As in `pw-top`, an xrun is a cycle whose line
/// shows a node that has not finished.
fn cycles_of(text: &str) -> Cycles {
    let states = text.lines().filter_map(|line| line.split('\t').nth(STATE).map(str::trim));
    let is_late = states.filter(|state| !state.is_empty()).map(|state| state != FINISHED);
    Cycles { is_late: is_late.collect() }
}

/// Returns the threads of a process whose policy is real-time.
pub(crate) fn realtime_threads(process: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let threads = tasks.flatten().filter_map(number);
    threads.filter(|&thread| kernel::policy(thread).is_realtime()).collect()
}

/// Returns a command of the user in the session in `folder`.
fn command_of(bus: &str, folder: &Path, line: &[&str]) -> Command {
    let mut command = Command::new("env");
    let run = folder.join("run");
    command.arg("-i");
    command.arg(format!("PATH={}", std::env::var("PATH").unwrap_or_default()));
    command.arg(format!("HOME={}", folder.display()));
    command.arg(format!("XDG_RUNTIME_DIR={}", run.display()));
    command.arg(format!("DBUS_SYSTEM_BUS_ADDRESS={bus}"));
    command.arg(format!("DBUS_SESSION_BUS_ADDRESS=unix:path={}", run.join("bus").display()));
    let user = ALICE.to_string();
    command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]).args(line);
    command
}

/// Returns a file with a tone of two channels of 16 bits at 48 kHz.
fn wave_file(seconds: u32) -> Vec<u8> {
    const RATE: u32 = 48_000;
    const FRAME: u32 = 4;
    let length = seconds * RATE * FRAME;
    let mut file = Vec::with_capacity(length as usize + 44);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(length + 36).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16_u32.to_le_bytes());
    // PCM, two channels.
    file.extend_from_slice(&[1, 0, 2, 0]);
    file.extend_from_slice(&RATE.to_le_bytes());
    file.extend_from_slice(&(RATE * FRAME).to_le_bytes());
    file.extend_from_slice(&[4, 0, 16, 0]);
    file.extend_from_slice(b"data");
    file.extend_from_slice(&length.to_le_bytes());
    for sample in 0..seconds * RATE {
        // A square wave of 480 Hz.
        let value: i16 = if sample % 100 < 50 { 4_000 } else { -4_000 };
        file.extend_from_slice(&value.to_le_bytes());
        file.extend_from_slice(&value.to_le_bytes());
    }
    file
}
