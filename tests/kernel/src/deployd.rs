//! A real `talea-deployd`, private to a test, with the programs of its deployment.

use crate::bench::{Bench, discharge, enlist, eventually, program};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use talea_core::{Attr, CpuSet, Policy, Priority, Span};
use talea_deploy::text::frames::{Assembly, MAX_PACKET, packets};
use talea_deploy::text::message::{Answer, Ask, ConditionText, StatusText, TaskStatusText};
use talea_deploy::text::{Instance, SourceFile, StoredGeneration};
use talea_deploy::{FileHash, Generation, Health, Role, RootSpec, TaskSpec};
use talea_os::cgroup::program_group::{self, ProgramGroup};
use talea_os::seqpacket;

/// Time within which the daemon answers.
const TIMEOUT: Duration = Duration::from_secs(20);
/// User of the programs: an account of every Debian without a right.
pub const USER: &str = "daemon";

/// A running or killed daemon. Dropping it ends the deployment and the daemon.
pub struct Deployd {
    child: Option<Child>,
    home: PathBuf,
    /// Socket of the daemon in whose ledger it reserves its CPUs.
    talead: PathBuf,
    lines: Arc<Mutex<String>>,
}

impl Deployd {
    /// Starts a daemon with an empty state, and waits until it serves.
    #[track_caller]
    pub fn start(bench: &Bench) -> Deployd {
        Deployd::start_beside(bench, &bench.path("no-talead"))
    }

    /// Starts a daemon beside the daemon of grants at `talead`.
    #[track_caller]
    pub fn start_beside(bench: &Bench, talead: &Path) -> Deployd {
        let home = bench.path("deploy");
        std::fs::create_dir(&home).expect("a folder");
        let talead = talead.to_owned();
        let mut deployd = Deployd { child: None, home, talead, lines: Arc::default() };
        deployd.restart();
        deployd
    }

    /// Returns the directory of the state.
    pub fn state(&self) -> PathBuf {
        self.home.join("state")
    }

    /// Returns the runtime directory.
    pub fn runtime(&self) -> PathBuf {
        self.home.join("run")
    }

    /// Returns the process id of the daemon.
    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("a running daemon").id() as i32
    }

    /// Returns the command that starts the daemon, without its standard error. The daemon ignores
    /// SIGHUP, as below nohup: its programs must not.
    pub fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program("talea-deployd"));
        command.arg("--state").arg(self.state()).arg("--runtime").arg(self.runtime());
        command.arg("--talead").arg(&self.talead);
        command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
        command
    }

    /// Starts the daemon, and waits until it serves.
    #[track_caller]
    pub fn restart(&mut self) {
        let mut child = self.command().stderr(Stdio::piped()).spawn().expect("talea-deployd");
        enlist(child.id() as i32);
        let stderr = child.stderr.take().expect("piped");
        let lines = self.lines.clone();
        let (serves, is_served) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Programs of the deployment keep the pipe open.
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.contains(" serves at ") {
                    let _ = serves.send(());
                }
                let mut lines = lines.lock().expect("lines");
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        self.child = Some(child);
        let served = is_served.recv_timeout(TIMEOUT);
        assert!(served.is_ok(), "the daemon does not serve:\n{}", self.log());
    }

    /// Starts a second daemon, which must fail. Returns its output.
    #[track_caller]
    pub fn refused_start(&self) -> String {
        let mut child = self.command().stderr(Stdio::piped()).spawn().expect("talea-deployd");
        enlist(child.id() as i32);
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait().expect("our child") {
                break status;
            }
            if Instant::now() > end {
                child.kill().expect("our child");
                panic!("the daemon is not refused");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        discharge(child.id() as i32);
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert_eq!(status.code(), Some(1), "{said}");
        said
    }

    /// Returns all lines that the daemon has written.
    pub fn log(&self) -> String {
        self.lines.lock().expect("lines").clone()
    }

    /// Kills the daemon by SIGKILL. Its programs run on.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Ends the daemon by SIGTERM. Its programs run on.
    pub fn terminate(&mut self) {
        self.end(Signal::TERM);
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else { return };
        let pid = Pid::from_raw(child.id() as i32).expect("a pid");
        kill_process(pid, signal).expect("kill");
        child.wait().expect("our child");
        discharge(child.id() as i32);
    }

    /// Requests something of the daemon.
    ///
    /// # Errors
    /// The error of the connection.
    pub fn try_ask(&self, ask: &Ask) -> std::io::Result<Answer> {
        let socket = seqpacket::connect(&self.runtime().join("socket"), TIMEOUT)?;
        for packet in packets(&ask.to_text()) {
            seqpacket::send_waiting(&socket, &packet, None)?;
        }
        let (mut assembly, mut packet) = (Assembly::default(), vec![0; MAX_PACKET]);
        loop {
            let received = seqpacket::recv_waiting(&socket, &mut packet)?;
            if received.len == 0 {
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
            if let Some(text) = assembly.push(&packet[..received.len]).expect("a packet") {
                return Ok(Answer::from_text(&text).expect("an answer"));
            }
        }
    }

    /// Requests something of the daemon, which must answer.
    #[track_caller]
    pub fn ask(&self, ask: &Ask) -> Answer {
        self.try_ask(ask).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Requests a change, which must not be refused. Returns the generation in force afterwards.
    #[track_caller]
    pub fn change(&self, ask: &Ask) -> Option<u64> {
        match self.ask(ask) {
            Answer::Done(number) => number,
            other => panic!("{other:?}"),
        }
    }

    /// Requests a change that must be refused. Returns the reason.
    #[track_caller]
    pub fn refusal(&self, ask: &Ask) -> String {
        match self.ask(ask) {
            Answer::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Puts these tasks in force, on CPU 0. Returns the number of the generation.
    #[track_caller]
    pub fn apply(&self, tasks: &[TaskSpec], confirm: Option<Span>) -> u64 {
        self.change(&apply(tasks, confirm)).expect("a generation")
    }

    /// Returns the status.
    #[track_caller]
    pub fn status(&self) -> StatusText {
        match self.ask(&Ask::Status) {
            Answer::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the status of a task.
    #[track_caller]
    pub fn task(&self, name: &str) -> TaskStatusText {
        let status = self.status();
        let found = status.tasks.iter().find(|task| task.name == name).cloned();
        found.unwrap_or_else(|| panic!("no task {name}: {status:?}"))
    }

    /// Waits until the program of a task runs, and returns its process.
    #[track_caller]
    pub fn running(&self, name: &str) -> i32 {
        let mut pid = None;
        eventually(&format!("{name} runs"), || {
            let task = self.task(name);
            pid = task.pid.filter(|_| task.condition == ConditionText::Running);
            pid.is_some()
        });
        pid.expect("just found") as i32
    }

    /// Waits until a task has a condition.
    #[track_caller]
    pub fn wait_for(&self, name: &str, condition: ConditionText) {
        eventually(&format!("{name} is {}", condition.words()), || {
            self.task(name).condition == condition
        });
    }

    /// Returns the programs that the runtime directory names.
    pub fn instances(&self) -> Vec<Instance> {
        let entries = std::fs::read_dir(self.runtime().join("programs")).into_iter().flatten();
        let text = |path: &Path| std::fs::read_to_string(path).ok();
        entries
            .flatten()
            .filter_map(|entry| Instance::from_text(&text(&entry.path())?).ok())
            .collect()
    }
}

impl Drop for Deployd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
        self.kill();
        for instance in self.instances() {
            let group = ProgramGroup::at(Path::new(&instance.group));
            let end = Instant::now() + TIMEOUT;
            while group.kill().and_then(|()| group.remove()).is_err() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // Groups of governed tasks without a program.
        if let Ok(base) = program_group::base() {
            let folders = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
            for above in folders(&base.join("talea-deploy")) {
                for group in folders(&above.path()) {
                    // The groups of other tests have processes.
                    let _ = std::fs::remove_dir(group.path());
                }
                let _ = std::fs::remove_dir(above.path());
            }
        }
    }
}

/// Returns a request that puts these tasks in force, on CPU 0.
pub fn apply(tasks: &[TaskSpec], confirm: Option<Span>) -> Ask {
    let root = RootSpec { name: "cpu0".to_owned(), cpus: CpuSet::single(0) };
    apply_on(root, tasks, confirm)
}

/// Returns a request that puts these tasks in force, on a root.
pub fn apply_on(root: RootSpec, tasks: &[TaskSpec], confirm: Option<Span>) -> Ask {
    apply_roots(vec![root], tasks, confirm)
}

/// Returns a request that puts these tasks in force, on several roots.
pub fn apply_roots(roots: Vec<RootSpec>, tasks: &[TaskSpec], confirm: Option<Span>) -> Ask {
    let files = vec![SourceFile { path: "system.toml".to_owned(), text: format!("{tasks:?}") }];
    let hash = FileHash::of(files.iter().map(|file| file.text.as_str()));
    let report = "proved".to_owned();
    let generation = Generation::new(0, hash, roots, tasks.to_vec(), report, false);
    let generation = Arc::new(generation.expect("a valid generation"));
    Ask::Apply { generation: StoredGeneration { generation, files }, confirm }
}

/// Returns a task whose program has SCHED_FIFO at `level` on CPU 0, and no restart by default.
pub fn task(name: &str, level: u8, words: &[&str]) -> TaskSpec {
    TaskSpec {
        name: name.to_owned(),
        root: 0,
        command: talea_deploy::Command {
            words: words.iter().map(|&word| word.to_owned()).collect(),
            user: Some(USER.to_owned()),
            role: Role::Linux,
        },
        attr: Attr {
            policy: Policy::Fifo(Priority(level)),
            reset_on_fork: false,
            cpus: CpuSet::single(0),
        },
        health: Health::default(),
        governed: None,
    }
}

/// Returns the words of the program `talea-test-program` with these arguments.
pub fn test_program(arguments: &[&str]) -> Vec<String> {
    let file = program("talea-test-program").display().to_string();
    std::iter::once(file).chain(arguments.iter().map(|&word| word.to_owned())).collect()
}
