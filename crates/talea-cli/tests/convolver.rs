//! The demonstration's job by itself: it compiles without a warning, computes the same sound every
//! time, and reports invalid arguments.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/convolver")
}

/// Compiles with every warning as an error.
fn compile(sources: &[&str], more: &[&str]) {
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wshadow",
            "-Wconversion",
        ])
        .args(["-Wstrict-prototypes", "-Wmissing-prototypes", "-Werror"])
        .args(sources)
        .args(more)
        .current_dir(source())
        .output()
        .expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles the job with a usual command line.
fn job(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let sources = ["convolver.c", "room.c", "fft.c", "wav.c"];
    compile(&sources, &["-o", program.to_str().expect("a plain path"), "-lm"]);
    program
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).arg(source().join("talea.wav")).args(arguments).output().expect("the job")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn both_builds_compile_without_a_warning() {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("declaring.o");
    let object = object.to_str().expect("a plain path");
    compile(
        &["convolver.c"],
        &["-DWITH_TALEA", "-I../../crates/talea-capi/include", "-c", "-o", object],
    );
    let load = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load");
    compile(&["load.c"], &["-o", load.to_str().expect("a plain path")]);
}

#[test]
fn the_same_seconds_are_the_same_sound_and_every_block_has_its_times() {
    let job = job("convolver-sound");
    let csv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("times.csv");
    let arguments =
        ["--microphones", "2", "--seconds", "1", "--csv", csv.to_str().expect("a plain path")];
    let last = |output: &Output| printed(output).lines().last().map(str::to_owned);
    let (first, second) = (run(&job, &arguments), run(&job, &arguments));
    assert!(
        last(&first).is_some_and(|line| line.starts_with("done blocks=100 checksum=")),
        "{}",
        printed(&first)
    );
    assert_eq!(last(&first), last(&second));
    let louder = run(&job, &["--microphones", "3", "--seconds", "1"]);
    assert_ne!(last(&first), last(&louder), "more microphones are another sound");

    let times = std::fs::read_to_string(&csv).expect("times");
    let rows: Vec<Vec<u64>> = times
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|field| field.parse().expect("a number")).collect())
        .collect();
    assert_eq!(rows.len(), 100);
    for (k, row) in rows.iter().enumerate() {
        // Nominal times, independent of earlier delays.
        assert_eq!(row[1], rows[0][1] + k as u64 * 10_000_000);
        assert!(row[1] <= row[2] && row[2] <= row[3], "{row:?}");
        // CPU time is at most the elapsed time; the two clocks may differ slightly.
        let wall = row[3] - row[2];
        assert!(row[4] > 0 && row[4] <= wall + wall / 100, "{row:?}");
    }
}

#[test]
fn the_room_computes_what_convolution_means() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/room_check.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("room-check");
    let (check, out) =
        (check.to_str().expect("a plain path"), program.to_str().expect("a plain path"));
    // The check rounds intentionally.
    compile(&[check, "room.c", "fft.c"], &["-I.", "-Wno-conversion", "-o", out, "-lm"]);
    let output = Command::new(&program).output().expect("the check");
    assert!(output.status.success(), "{}", printed(&output));
}

#[test]
fn it_sizes_itself_and_refuses_nonsense() {
    let job = job("convolver-sizes");
    let text = printed(&run(&job, &["--calibrate", "500"]));
    assert!(text.starts_with("microphones=") && text.contains(" block_ns="), "{text}");
    for arguments in
        [&["--seconds", "0"][..], &["--seconds", "x"], &["--what", "1"], &["--seconds"]]
    {
        assert_eq!(run(&job, arguments).status.code(), Some(2), "{arguments:?}");
    }
    let output = Command::new(&job).arg(source().join("convolver.c")).output().expect("the job");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a WAV file"));
}
