//! A private system bus, the front end on it, and programs that call it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use talea_kernel_tests::bench::{copy, discharge, enlist};
use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Daemon, eventually};

/// User of the front end; exists on no machine.
pub(crate) const FRONT_END: u32 = 60_010;

/// Name of the front end on the bus.
const NAME: &str = "org.freedesktop.RealtimeKit1";

/// Policy of the package for the bus.
pub(crate) const POLICY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../etc/dbus/org.freedesktop.RealtimeKit1.conf");

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        let child = command.stdin(Stdio::null()).spawn().expect("a program");
        enlist(child.id() as i32);
        Process(child)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        discharge(self.pid());
    }
}

/// Returns a command that runs `program` in a mount namespace of its own, in which each pair's
/// first file stands in the place of its second.
pub(crate) fn with_files(program: &Path, places: &[(PathBuf, &str)]) -> Command {
    let mut command = Command::new("unshare");
    let mounts: Vec<String> = places
        .iter()
        .map(|(own, place)| format!("mount --bind {} {place}", own.display()))
        .collect();
    let script = format!("{} && exec \"$@\"", mounts.join(" && "));
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(program);
    command
}

/// Writes a list of users that has names for those of the tests: a bus serves only users with a
/// name.
pub(crate) fn named_users(bench: &Bench) -> PathBuf {
    let users = std::fs::read_to_string("/etc/passwd").expect("the users of the machine");
    let users = [("talea-rtkit", FRONT_END), ("alice", ALICE), ("bob", BOB)]
        .iter()
        .fold(users, |all, (name, uid)| format!("{all}{name}:x:{uid}:{uid}::/:/bin/false\n"));
    bench.write("passwd", &users)
}

/// Copies the front end to a folder that its user reads. Returns the copy.
fn front_end_program(bench: &Bench) -> PathBuf {
    let program = bench.path("talea-rtkit");
    if !program.exists() {
        copy(env!("CARGO_BIN_EXE_talea-rtkit"), &program);
    }
    program
}

/// Returns the file with what the front end on the bus `name` has written.
fn front_end_log(bench: &Bench, name: &str) -> PathBuf {
    bench.path(&format!("{name}-front-end.log"))
}

/// A private bus of type system.
pub(crate) struct Bus {
    socket: PathBuf,
    log: PathBuf,
    _process: Process,
}

impl Bus {
    /// Starts a bus with the policy of the package.
    pub(crate) fn start(bench: &Bench) -> Bus {
        Bus::with_policies(bench, "bus", &[Path::new(POLICY)])
    }

    /// Starts a bus that starts the front end at the first call to its name, as the bus of a system
    /// does by the activation file of the package.
    pub(crate) fn with_activation(bench: &Bench, daemon: &Daemon) -> Bus {
        let services = bench.path("services");
        std::fs::create_dir(&services).expect("a folder");
        let log = front_end_log(bench, "bus");
        let program = front_end_program(bench);
        let command = format!(
            "exec setpriv --reuid {FRONT_END} --regid {FRONT_END} --clear-groups {} --socket {} \
             2>{}",
            program.display(),
            daemon.socket().display(),
            log.display(),
        );
        let service = format!("[D-BUS Service]\nName={NAME}\nExec=/bin/sh -c \"{command}\"\n");
        std::fs::write(services.join(format!("{NAME}.service")), service).expect("a file");
        let folder = format!("<servicedir>{}</servicedir>", services.display());
        Bus::configured(bench, "bus", &[Path::new(POLICY)], &folder)
    }

    /// Starts the bus `name` with these policy files.
    pub(crate) fn with_policies(bench: &Bench, name: &str, policies: &[&Path]) -> Bus {
        Bus::configured(bench, name, policies, "")
    }

    fn configured(bench: &Bench, name: &str, policies: &[&Path], services: &str) -> Bus {
        let include =
            |all: String, policy: &&Path| format!("{all}<include>{}</include>", policy.display());
        let includes = policies.iter().fold(String::new(), include);
        let socket = bench.path(name);
        let config = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN\"
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">
            <busconfig>
              <type>system</type>
              <listen>unix:path={}</listen>
              <auth>EXTERNAL</auth>
              <policy context=\"default\">
                <allow user=\"*\"/>
                <deny own=\"*\"/>
                <deny send_type=\"method_call\"/>
                <allow send_type=\"signal\"/>
                <allow send_requested_reply=\"true\" send_type=\"method_return\"/>
                <allow send_requested_reply=\"true\" send_type=\"error\"/>
                <allow receive_type=\"method_call\"/>
                <allow receive_type=\"method_return\"/>
                <allow receive_type=\"error\"/>
                <allow receive_type=\"signal\"/>
                <allow send_destination=\"org.freedesktop.DBus\"/>
              </policy>
              {includes}
              {services}
            </busconfig>",
            socket.display(),
        );
        let config = bench.write(&format!("{name}.conf"), &config);
        let places = [(named_users(bench), "/etc/passwd")];
        let mut command = with_files(Path::new("dbus-daemon"), &places);
        command.args(["--nofork", "--nopidfile", "--config-file"]).arg(config);
        let process = Process::start(command.stderr(Stdio::null()));
        eventually("the bus listens", || socket.exists());
        Bus { socket, log: front_end_log(bench, name), _process: process }
    }

    /// Returns a command whose system bus is this one.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        self.adopt(&mut command);
        command
    }

    /// Returns the address of this bus.
    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }

    /// Makes this bus the system bus of a command.
    pub(crate) fn adopt(&self, command: &mut Command) {
        command
            .env("DBUS_SYSTEM_BUS_ADDRESS", self.address())
            .env_remove("DBUS_SESSION_BUS_ADDRESS");
    }

    /// Starts the front end as user [`FRONT_END`], and waits until it serves.
    pub(crate) fn front_end(&self, bench: &Bench, daemon: &Daemon, options: &[&str]) -> Process {
        use std::os::unix::process::CommandExt;
        let mut command = self.command(front_end_program(bench));
        command.arg("--socket").arg(daemon.socket()).args(options);
        let log = std::fs::File::create(&self.log).expect("a log");
        command.uid(FRONT_END).gid(FRONT_END).stderr(log);
        let process = Process::start(&mut command);
        eventually("the front end writes a line", || self.said().contains('\n'));
        assert!(self.said().contains("serving"), "{}", self.said());
        process
    }

    /// Returns what the front end has written.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Starts a program of this user that calls the front end.
    pub(crate) fn caller(&self, bench: &Bench, uid: u32) -> Agent {
        let program = bench.path("caller");
        if !program.exists() {
            let built = Path::new(env!("CARGO_BIN_EXE_talea-rtkit")).with_file_name("examples");
            copy(built.join("caller"), &program);
        }
        Agent::start(self.command(program), uid)
    }
}
