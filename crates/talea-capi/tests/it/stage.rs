//! The library under the names that it is installed with, and programs compiled against it.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

/// In which language a source is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C(&'static str),
    Cpp(&'static str),
}

pub(crate) const C11: Language = Language::C("c11");
pub(crate) const CPP17: Language = Language::Cpp("c++17");

/// A file of this crate.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A program of the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    here("../../examples/c").join(name)
}

/// The library as cargo has just built it for this test.
pub(crate) fn built_library() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    own.parent().expect("a folder").join("libtalea.so")
}

/// A folder with the library under all its names.
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

/// Puts the library into a folder under all its names.
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

/// Compiles with all warnings as errors; the compiler's words are the panic's.
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} as {standard}:\n{said}", source.display());
}

/// Compiles and links a program with `-l{library}`.
#[track_caller]
pub(crate) fn program(source: &Path, language: Language, library: &str) -> PathBuf {
    let name = source.file_stem().expect("a name").to_string_lossy();
    let kind = if matches!(language, Language::C(_)) { "c" } else { "cpp" };
    let to = folder().join(format!("{name}-{kind}"));
    // Tests share programs: the first compiles, and nobody runs what is being written.
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.contains(&to) {
        return to;
    }
    let link = format!("-L{}", folder().display());
    let out = to.display().to_string();
    // The language is for the source alone: -xnone lets the linker's inputs be what they are.
    compile(source, language, &["-xnone", "-pthread", "-o", &out, &link, &format!("-l{library}")]);
    compiled.insert(to.clone());
    to
}

/// A program that is about to talk to the daemon at `socket`.
pub(crate) fn command(program: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", program.parent().expect("a folder"))
        .env("TALEA_SOCKET", socket)
        .env_remove("TALEA_DISABLE")
        .env_remove("RETIF_PERIOD_MS");
    command
}

/// Runs a program that must end with `status`, and soon, and hands out what it printed.
#[track_caller]
pub(crate) fn expect(command: &mut Command, status: i32) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it can be run");
    let pid = rustix::process::Pid::from_child(&child);
    let (tell, told) = mpsc::channel::<()>();
    // Nothing here takes long; what hangs is killed, and its status tells.
    let watchdog = std::thread::spawn(move || {
        if told.recv_timeout(Duration::from_mins(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let Output { status: ended, stdout, stderr } = child.wait_with_output().expect("it was run");
    drop(tell);
    watchdog.join().expect("no panic");
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(ended.code(), Some(status), "{ended}: {said}");
    said
}
