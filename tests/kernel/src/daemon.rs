//! A real `talead`, private to a test.

use crate::bench::{Bench, discharge, enlist, eventually, program};
use crate::kernel;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use talea_os::{Tid, proc};

/// Lines that the daemon has written so far, and whether it has closed its standard error.
type Lines = Arc<(Mutex<(Vec<String>, bool)>, Condvar)>;

/// A running daemon. Dropping it releases all grants and stops the daemon.
pub struct Daemon {
    child: Option<Child>,
    config: PathBuf,
    socket: PathBuf,
    state: PathBuf,
    lines: Lines,
}

/// Result of a daemon that did not start.
#[derive(Debug)]
pub struct Failed {
    /// Exit code of the daemon; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Text of its standard error.
    pub said: String,
}

impl Daemon {
    /// Starts a daemon with this configuration and waits until it serves.
    #[track_caller]
    pub fn start(bench: &Bench, config: &str) -> Daemon {
        let config = bench.write("talead.toml", config);
        Daemon::launch(bench, &config, &[]).unwrap_or_else(|failed| panic!("no daemon: {failed:?}"))
    }

    /// Starts a daemon with an existing configuration file; returns an error if it does not start.
    pub fn launch(bench: &Bench, config: &Path, arguments: &[&str]) -> Result<Daemon, Failed> {
        let mut daemon = Daemon::unstarted(config, &bench.path("state"));
        daemon.run(arguments)?;
        Ok(daemon)
    }

    /// Returns a daemon that [`Daemon::run_command`] will start, with its socket and its state in
    /// `home`.
    pub fn unstarted(config: &Path, home: &Path) -> Daemon {
        Daemon {
            child: None,
            config: config.to_owned(),
            socket: home.join("socket"),
            state: home.to_owned(),
            lines: Lines::default(),
        }
    }

    /// Returns the command that starts the daemon, without its standard error.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("talead"));
        command.arg("-c").arg(&self.config).arg("--socket").arg(&self.socket);
        command.arg("--state-dir").arg(&self.state).args(arguments).stdin(Stdio::null());
        command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS").env_remove("JOURNAL_STREAM");
        command
    }

    fn run(&mut self, arguments: &[&str]) -> Result<(), Failed> {
        let command = self.command(arguments);
        self.run_command(command)
    }

    /// Starts the daemon by this command and waits until it serves.
    pub fn run_command(&mut self, mut command: Command) -> Result<(), Failed> {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("talead");
        enlist(child.id() as i32);
        let stderr = child.stderr.take().expect("piped");
        self.lines = Lines::default();
        let lines = self.lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.0.lock().expect("lines").0.push(line);
                lines.1.notify_all();
            }
            lines.0.lock().expect("lines").1 = true;
            lines.1.notify_all();
        });
        self.child = Some(child);
        if self.wait_for_line(" serves at ").is_some() {
            return Ok(());
        }
        let status = self.wait();
        Err(Failed { code: status.code(), said: self.log() })
    }

    /// Waits for a line with `text`; `None` if the daemon ended without it.
    #[track_caller]
    pub fn wait_for_line(&self, text: &str) -> Option<String> {
        let (lines, changed) = &*self.lines;
        let mut guard = lines.lock().expect("lines");
        loop {
            if let Some(line) = guard.0.iter().find(|line| line.contains(text)) {
                return Some(line.clone());
            }
            if guard.1 {
                return None;
            }
            let (next, waited) =
                changed.wait_timeout(guard, Duration::from_secs(20)).expect("lines");
            if waited.timed_out() {
                let found = next.0.clone();
                // A panic under the lock would make the end of the daemon panic, too.
                drop(next);
                panic!("no line with {text:?}; there are {found:#?}");
            }
            guard = next;
        }
    }

    /// Returns all lines that the daemon has written.
    pub fn log(&self) -> String {
        self.lines.0.lock().expect("lines").0.join("\n")
    }

    /// Returns the lines that the daemon has written since it was ready.
    pub fn said_since_start(&self) -> Vec<String> {
        let lines = self.lines.0.lock().expect("lines");
        lines.0.iter().skip_while(|line| !line.contains(" serves at ")).skip(1).cloned().collect()
    }

    /// Returns the path of the daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the daemon's process id.
    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("a running daemon").id() as i32
    }

    /// Returns the daemon's children. A thread of the daemon starts each of them.
    pub fn children(&self) -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("a process");
        // A thread may end meanwhile.
        let lists = tasks
            .flatten()
            .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let children: Vec<String> = lists.collect();
        let numbers = children.iter().flat_map(|list| list.split_ascii_whitespace());
        numbers.map(|number| number.parse().expect("a number")).collect()
    }

    /// Waits until the daemon has its priority, because its budget is full.
    #[track_caller]
    pub fn wait_until_raised(&self) {
        eventually("the daemon has its priority", || kernel::policy(self.pid()).is_realtime());
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).expect("a pid"), signal).expect("kill");
    }

    /// Waits for the end of the daemon and returns its exit status.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.child.as_mut().expect("a running daemon").wait().expect("wait");
        discharge(self.pid());
        self.child = None;
        // Its standard error ends with it; wait for its last lines.
        let (lines, changed) = &*self.lines;
        let guard = lines.lock().expect("lines");
        drop(
            changed
                .wait_timeout_while(guard, Duration::from_secs(5), |lines| !lines.1)
                .expect("lines"),
        );
        status
    }

    /// Stops the daemon by SIGTERM, as an administrator does; the grants stay.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills the daemon by SIGKILL.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Kills the daemon and does not wait for its end. The caller must wait for the process.
    #[track_caller]
    pub fn kill_without_waiting(&mut self) -> Child {
        self.signal(Signal::KILL);
        let pid = Tid::new(self.pid()).expect("a process");
        eventually("the daemon is killed", || proc::stat(pid).is_ok_and(|stat| stat.has_ended()));
        self.child.take().expect("a running daemon")
    }

    /// Starts the daemon again, with the state that it has left.
    #[track_caller]
    pub fn restart(&mut self) {
        self.run(&[]).unwrap_or_else(|failed| panic!("no daemon: {failed:?}"));
    }

    /// Replaces the daemon's configuration and lets the daemon reload it.
    pub fn reload(&self, config: &str) {
        std::fs::write(&self.config, config).expect("write");
        self.signal(Signal::HUP);
    }

    /// Runs `talead stop` with these arguments; returns its exit code and its output.
    pub fn stop(&mut self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut stop =
            self.command(&["stop"]).args(arguments).stderr(Stdio::piped()).spawn().expect("talead");
        let mut said = String::new();
        stop.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
        (stop.wait().expect("wait").code(), said)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.is_some() {
            let (code, said) = self.stop(&["--release"]);
            if code == Some(0) {
                self.wait();
            } else if !std::thread::panicking() {
                let log = self.log();
                self.kill();
                panic!("the daemon did not stop in an orderly way: {said}\n{log}");
            } else {
                self.kill();
            }
        }
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}
