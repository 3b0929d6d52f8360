//! Environment of a test: a folder, the lock of the machine, a watchdog, and the programs under
//! test.

use crate::kernel;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Maximum duration of a test. A test with many live runs repeats each of them on a busy machine.
const PATIENCE: Duration = Duration::from_mins(8);
/// Maximum wait for the lock of the machine. The watchdog of a test that hangs ends the wait much
/// earlier.
const TURN_PATIENCE: Duration = Duration::from_mins(15);
/// Poll period of the machine's lock.
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// Environment of one test.
pub struct Bench {
    folder: PathBuf,
    // Dropping it calls the watchdog off.
    _watched: Sender<()>,
    _turn: MutexGuard<'static, ()>,
    _machine: File,
}

impl Bench {
    /// Waits for the lock of the machine, and creates the environment of the test called `name`.
    pub fn new(name: &str) -> Bench {
        static TURN: Mutex<()> = Mutex::new(());
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // A test that failed has poisoned nothing but itself.
        let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let machine = lock_machine();
        if kernel::is_root() {
            kernel::mend_deadline_bandwidth();
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir()
            .join(format!("talea-kernel-{}-{number}-{name}", std::process::id()));
        make_folder(&folder);
        Bench { folder, _watched: watch(name), _turn: turn, _machine: machine }
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file that all users may read and only the superuser may write.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("write");
        set_mode(&path, 0o644);
        path
    }

    /// Compiles `plugins/NAME.c` of this package, or the file at the path `name`. Returns the
    /// object.
    pub fn plugin(&self, name: &str) -> PathBuf {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("plugins/{name}.c"));
        let source = if name.contains('/') { root().join(name) } else { own };
        let stem = source.file_stem().expect("a file name").to_owned();
        let object = self.path(&format!("{}.so", stem.to_string_lossy()));
        let output = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-O1", "-shared", "-fPIC", "-o"])
            .arg(&object)
            .arg("-I")
            .arg(root().join("crates/talea-plugin-host/include"))
            .arg(&source)
            .output()
            .expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        set_mode(&object, 0o644);
        object
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What a failed test left is worth looking at.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Waits until `condition` holds; fails with `what` if it does not hold within ten seconds.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Copies a program so that the copy can be executed at once. Another process makes the copy.
/// Otherwise a child that another thread starts during the copy would hold the file open for
/// writing, and the execution could fail (ETXTBSY).
pub fn copy(program: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (program, to) = (program.as_ref(), to.as_ref());
    let done = std::process::Command::new("cp").arg(program).arg(to).status().expect("cp is run");
    assert!(done.success(), "cp {} {}: {done}", program.display(), to.display());
}

/// Returns the path of a program under test, where any user can execute it.
pub fn program(name: &str) -> PathBuf {
    static STAGED: OnceLock<PathBuf> = OnceLock::new();
    let staged = STAGED.get_or_init(|| {
        let folder =
            std::env::temp_dir().join(format!("talea-kernel-{}-programs", std::process::id()));
        make_folder(&folder);
        sweep();
        let built = build();
        for name in [
            "talead",
            "talea-deployd",
            "talea-plugin-host",
            "talea-governor",
            "talea-test-agent",
            "talea-test-program",
        ] {
            // A guest has the programs of its own tests only.
            if !built.join(name).exists() {
                continue;
            }
            let to = folder.join(name);
            copy(built.join(name), &to);
            set_mode(&to, 0o755);
        }
        folder
    });
    staged.join(name)
}

/// Removes the staged programs of test programs that have ended without removing them.
fn sweep() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix("talea-kernel-")?.strip_suffix("-programs"));
        if pid
            .is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Builds the programs of other packages, and returns their folder. `TALEA_BIN_DIR` names a folder
/// that already contains them.
fn build() -> PathBuf {
    if let Some(folder) = std::env::var_os("TALEA_BIN_DIR") {
        return folder.into();
    }
    // …/target/PROFILE/deps/it-0123456789abcdef
    let own = std::env::current_exe().expect("our own path");
    let folder = own.parent().and_then(Path::parent).expect("a target folder").to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--quiet",
        "-p",
        "talea-daemon",
        "-p",
        "talea-deployd",
        "-p",
        "talea-plugin-host",
        "-p",
        "talea-governor",
        "-p",
        "talea-kernel-tests",
    ]);
    cargo.args(["--bins", "--target-dir"]).arg(folder.parent().expect("a target folder"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(root()).status().expect("cargo");
    assert!(status.success(), "the programs under test do not build");
    folder
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn make_folder(path: &Path) {
    std::fs::create_dir_all(path).expect("a folder");
    set_mode(path, 0o755);
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
}

/// Acquires the lock of the machine: two test programs would disturb each other, because they share
/// CPUs and real-time bandwidth. The wait is bounded and happens once, because a test that hangs
/// must not block all others.
fn lock_machine() -> File {
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    let path = std::env::temp_dir().join("talea-kernel-tests.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .expect("the machine's lock");
    // A process that has just released the lock lets waiting processes poll first.
    std::thread::sleep(POLL_PERIOD + POLL_PERIOD / 5);
    let end = Instant::now() + TURN_PATIENCE;
    while rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        if GIVEN_UP.load(Ordering::Relaxed) || Instant::now() > end {
            GIVEN_UP.store(true, Ordering::Relaxed);
            eprintln!(
                "another process holds the machine's lock for very long; going on without it"
            );
            break;
        }
        std::thread::sleep(POLL_PERIOD);
    }
    file
}

/// Process ids of the daemons that a hung test would leave behind.
static DAEMONS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Adds a child process that the watchdog kills.
pub fn enlist(pid: i32) {
    DAEMONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(pid);
}

/// Removes a child that was waited for, because the kernel may now reuse its number.
pub fn discharge(pid: i32) {
    DAEMONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).retain(|&other| other != pid);
}

/// Ends the program unless the returned sender is dropped in time. A hung test cannot clean up. The
/// end of this process closes the input of every agent, and thus the agents' connections.
fn watch(name: &str) -> Sender<()> {
    let (watched, end) = channel();
    let name = name.to_owned();
    std::thread::spawn(move || {
        if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the test {name} hangs; giving up");
            for pid in DAEMONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..) {
                let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            std::process::abort();
        }
    });
    watched
}
