//! The library under its installed names, and programs that are compiled and linked with it.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

/// Language and standard by which a source is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C(&'static str),
    Cpp(&'static str),
}

pub(crate) const C11: Language = Language::C("c11");
pub(crate) const CPP17: Language = Language::Cpp("c++17");

/// Returns the path of a file of this crate.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the path of an example.
pub(crate) fn example(name: &str) -> PathBuf {
    here("../../examples/c").join(name)
}

/// Returns the path of the library that cargo has built for this test.
pub(crate) fn built_library() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    own.parent().expect("a folder").join("libtalea.so")
}

/// Returns a folder with the library under all its names.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).expect("a folder");
        install(&folder);
        folder
    })
}

/// Copies the library to a folder under all its names.
pub(crate) fn install(folder: &Path) {
    std::fs::copy(built_library(), folder.join("libtalea.so.0"))
        .expect("cargo builds the library first");
    for (name, target) in [
        ("libtalea.so", "libtalea.so.0"),
        ("libretif.so.0", "libtalea.so.0"),
        ("libretif.so", "libretif.so.0"),
    ] {
        symlink(target, folder.join(name)).expect("a link");
    }
}

/// Compiles a source with all warnings as errors. Panics with the output of the compiler.
#[track_caller]
pub(crate) fn compile(source: &Path, language: Language, flags: &[&str]) {
    let (compiler, standard, more) = match language {
        Language::C(standard) => ("cc", standard, &["-xc", "-Wstrict-prototypes"][..]),
        Language::Cpp(standard) => ("c++", standard, &["-xc++"][..]),
    };
    let output = Command::new(compiler)
        .arg(format!("-std={standard}"))
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic"])
        .args(more)
        .arg("-I")
        .arg(here("include"))
        .arg(source)
        .args(flags)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} as {standard}:\n{text}", source.display());
}

/// Compiles and links a program with `-l{library}`.
#[track_caller]
pub(crate) fn program(source: &Path, language: Language, library: &str) -> PathBuf {
    let name = source.file_stem().expect("a name").to_string_lossy();
    let kind = if matches!(language, Language::C(_)) { "c" } else { "cpp" };
    let to = folder().join(format!("{name}-{kind}"));
    // Tests share programs. The first test compiles; the lock keeps the others from running a file
    // that is being written.
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.contains(&to) {
        return to;
    }
    let link = format!("-L{}", folder().display());
    let out = to.display().to_string();
    // The language applies to the source only: -xnone ends its effect before the linker's inputs.
    compile(source, language, &["-xnone", "-pthread", "-o", &out, &link, &format!("-l{library}")]);
    compiled.insert(to.clone());
    to
}

/// Returns the command of a program that connects to the daemon at `socket`.
pub(crate) fn command(program: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", program.parent().expect("a folder"))
        .env("TALEA_SOCKET", socket)
        .env_remove("TALEA_DISABLE")
        .env_remove("RETIF_PERIOD_MS");
    command
}

/// Runs a program that must end with `status` within a minute, and returns its output.
#[track_caller]
pub(crate) fn expect(command: &mut Command, status: i32) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it can be run");
    let pid = rustix::process::Pid::from_child(&child);
    let (ended_sender, ended_receiver) = mpsc::channel::<()>();
    // The watchdog kills a program that hangs; its status differs from the expected one then.
    let watchdog = std::thread::spawn(move || {
        if ended_receiver.recv_timeout(Duration::from_mins(1))
            == Err(mpsc::RecvTimeoutError::Timeout)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let Output { status: actual, stdout, stderr } = child.wait_with_output().expect("it was run");
    drop(ended_sender);
    watchdog.join().expect("no panic");
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(actual.code(), Some(status), "{actual}: {text}");
    text
}
