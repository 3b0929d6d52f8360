//! Files with hostile content: every command that reads one ends, within its limit, by an exit code
//! of its own.
//!
//! A mutant replaces numbers by extreme ones, swaps and repeats lines, or changes bytes of a seed
//! of the fuzzers. An ordinary run has a few mutants of each command, a soak has 2,000.

use crate::harness::{Scratch, run, talea};
use crate::soak;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use talea_sim::rng::Rng;

/// Wall time after which a command counts as endless. Its limit is a tenth of a second of CPU time.
const WATCHDOG: Duration = Duration::from_secs(10);
/// Address space of a command: an allocation beyond it aborts the command, so that it ends by a
/// signal.
const MEMORY_KIB: u32 = 1 << 20;
/// Numbers in place of those of the file.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "2",
    "7",
    "63",
    "999",
    "1000003",
    "4294967295",
    "9223372036854775807",
    "18446744073709551616",
    "-1",
    "1e300",
];

/// Commands, each with the folders of its seeds. `FILE` is the mutant.
const COMMANDS: [(&[&str], &[&str]); 10] = [
    (&["simulate", "FILE", "--limit", "100ms"], &["fuzz/seeds/system", "examples/systems"]),
    (
        &["simulate", "FILE", "--html", "page.html", "--limit", "100ms"],
        &["fuzz/seeds/system", "examples/systems"],
    ),
    (&["analyze", "FILE", "--limit", "100ms"], &["fuzz/seeds/system", "examples/systems"]),
    (&["analyze", "FILE", "--sensitivity", "--limit", "100ms"], &["examples/systems"]),
    (
        &["analyze", "FILE", "--synthesize", "server", "--limit", "100ms"],
        &["fuzz/seeds/system", "examples/systems"],
    ),
    (&["replay", "FILE", "--limit", "100ms"], &["fuzz/seeds/recording"]),
    (&["check", "FILE"], &["fuzz/seeds/config"]),
    (&["import", "FILE", "--from", "retif"], &["fuzz/seeds/import_retif"]),
    (&["import", "FILE", "--from", "rt-app"], &["fuzz/seeds/import_rtapp"]),
    (&["import", "FILE", "--from", "sf3p"], &["fuzz/seeds/import_sf3p", "fuzz/seeds/system"]),
];

/// Returns the files of these folders of the repository, in order.
fn seeds(folders: &[&str]) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = |folder: &&str| -> Vec<PathBuf> {
        let listed = std::fs::read_dir(root.join(folder)).expect("a folder of seeds");
        listed.map(|entry| entry.expect("an entry").path()).collect()
    };
    let mut files: Vec<PathBuf> = folders.iter().flat_map(files).collect();
    files.sort();
    files.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// Replaces a random number of `text`.
fn replace_number(rng: &mut Rng, text: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..text.len())
        .filter(|&at| text[at].is_ascii_digit() && (at == 0 || !text[at - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[rng.below(starts.len() as u64) as usize];
    let length = text[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = NUMBERS[rng.below(NUMBERS.len() as u64) as usize];
    text.splice(start..start + length, number.bytes());
}

fn mutant(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut text = seed.to_vec();
    for _ in 0..=rng.below(4) {
        let length = text.len() as u64;
        match rng.below(8) {
            0 if length > 0 => text[rng.below(length) as usize] = rng.next() as u8,
            1 => text.truncate(rng.below(length + 1) as usize),
            2 if length > 0 => {
                let mut lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
                let (from, to) = (rng.below(lines.len() as u64), rng.below(lines.len() as u64));
                let line = lines[from as usize];
                lines.insert(to as usize, line);
                text = lines.concat();
            }
            _ => replace_number(rng, &mut text),
        }
    }
    text
}

/// Returns the command with a limit on its address space, and with the same folder and environment.
fn within(command: &Command, kib: u32) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).stdin(Stdio::null());
    limited.current_dir(command.get_current_dir().expect("a scratch folder"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// Waits for the end of a command; kills it after [`WATCHDOG`]. Returns the exit code, or `None`
/// for a killed one.
fn wait(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + WATCHDOG;
    loop {
        match child.try_wait().expect("a child") {
            Some(status) => return status.code(),
            None if Instant::now() > end => {
                child.kill().expect("killed");
                child.wait().expect("reaped");
                return None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

#[test]
fn attack_20_21_a_mutated_file_ends_every_command_with_a_code_of_its_own() {
    let scratch = Scratch::new();
    let mut codes = [0u64; 3];
    for (number, (arguments, folders)) in COMMANDS.iter().enumerate() {
        let seeds = seeds(folders);
        for case in 0..soak::many(25, 2_000) {
            let mut rng = Rng::for_part(soak::seed(case), number as u64);
            let seed = &seeds[rng.below(seeds.len() as u64) as usize];
            let text = mutant(&mut rng, seed);
            let file = scratch.path().join("mutant");
            std::fs::write(&file, &text).expect("a file for the test");
            let arguments =
                arguments.iter().map(|&word| if word == "FILE" { "mutant" } else { word });
            let mut child = within(&talea(&scratch), MEMORY_KIB)
                .args(arguments.clone())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("talea can be started");
            let mut errors = child.stderr.take().expect("a pipe");
            let reader = std::thread::spawn(move || {
                let mut text = Vec::new();
                errors.read_to_end(&mut text).map(|_| text)
            });
            let code = wait(&mut child);
            let said = reader.join().expect("a reader").expect("messages");
            let command = arguments.collect::<Vec<_>>().join(" ");
            let said = String::from_utf8_lossy(&said).into_owned();
            let shown = String::from_utf8_lossy(&text);
            match code {
                Some(code @ 0..=2) => codes[code as usize] += 1,
                code => panic!("talea {command}: {code:?}\n{said}\n--- mutant {case}\n{shown}"),
            }
        }
    }
    assert!(codes.iter().all(|&count| count > 0), "mutants of every kind: {codes:?}");
}

#[test]
fn attack_20_21_a_command_without_enough_memory_is_noticed() {
    let scratch = Scratch::new();
    scratch.file("empty.toml", "");
    let run = |kib| {
        let mut command = within(&talea(&scratch), kib);
        command.args(["check", "empty.toml"]).stderr(Stdio::null()).stdout(Stdio::null());
        command.status().expect("a shell can be started").code()
    };
    assert!(matches!(run(MEMORY_KIB), Some(0..=2)));
    assert!(!matches!(run(2_000), Some(0..=2)), "2 MB suffice for no command");
}

#[test]
fn attack_21_a_limit_ends_an_analysis_as_unknown_with_what_was_spent() {
    let scratch = Scratch::new();
    // Two tasks whose busy period has 10^12 jobs.
    scratch.file(
        "endless.toml",
        "[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\
         [[task]]\nname = \"fast\"\nin = \"cpu\"\nperiod = \"2ns\"\ncost = \"1ns\"\npriority = 9\n\
         [[task]]\nname = \"slow\"\nin = \"cpu\"\nperiod = \"4000s\"\ncost = \"1000s\"\npriority = 1\n",
    );
    let ended = run(&scratch, &["simulate", "endless.toml", "--for", "8ms", "--limit", "50ms"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("unknown: the limit of 50ms of CPU time is spent"), "{}", ended.err);
    assert!(ended.err.contains("(spent: "), "{}", ended.err);
    let ended =
        run(&scratch, &["simulate", "endless.toml", "--for", "8ms", "--json", "--limit", "1KiB"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let report = crate::harness::json(&ended.out);
    assert_eq!(report["verdict"], "unknown");
    assert!(report["spent"]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 1024), "{report}");
}

#[test]
fn attack_20_no_file_is_read_without_bound() {
    let scratch = Scratch::new();
    for command in READERS {
        let ended = run(&scratch, &[command, &["/dev/zero"]].concat());
        assert_eq!(ended.code, Some(2), "{command:?}: {}", ended.err);
    }
}

/// Commands that read a file that the user names.
const READERS: [&[&str]; 8] = [
    &["check"],
    &["import"],
    &["replay"],
    &["simulate"],
    &["analyze"],
    &["execute"],
    &["compare"],
    &["sweep"],
];

#[test]
fn s22_a_file_that_cannot_be_read_is_a_wrong_argument() {
    let scratch = Scratch::new();
    scratch.file("system.toml", "[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n");
    std::fs::write(scratch.path().join("bytes"), [0xff, 0xfe, 0x00]).expect("written");
    for command in READERS {
        for file in ["missing", ".", "bytes"] {
            let ended = run(&scratch, &[command, &[file]].concat());
            assert_eq!(ended.code, Some(2), "{command:?} {file}: {}", ended.err);
            assert!(format!("{}{}", ended.err, ended.out).contains(file), "{command:?} {file}");
        }
    }
    let ended = run(&scratch, &["simulate", "system.toml", "--witness", "missing"]);
    assert_eq!(ended.code, Some(2), "{}", ended.err);
}

#[test]
fn s22_a_simulation_of_absurd_length_is_refused_before_it_begins() {
    let scratch = Scratch::new();
    scratch.file(
        "system.toml",
        "[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\
         [[task]]\nname = \"a\"\nperiod = \"1ms\"\ncost = \"1us\"\n",
    );
    let years = ["simulate", "system.toml", "--duration", "2000000000s"];
    let ended = run(&scratch, &years);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(ended.err.contains("unknown: 2000000000s of this system are about"), "{}", ended.err);
    let ended = run(&scratch, &[&years[..], &["--json"]].concat());
    assert_eq!(crate::harness::json(&ended.out)["verdict"], "unknown");
    // A length that the limit may not suffice for is announced.
    let ended = run(&scratch, &["simulate", "system.toml", "--for", "5s", "--limit", "4ms"]);
    assert!(ended.err.contains("about 5003 events, and the limit is 4ms"), "{}", ended.err);
    let ended = run(&scratch, &["simulate", "system.toml", "--duration", "5s"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[test]
fn attack_21_a_limit_leaves_no_half_page() {
    let scratch = Scratch::new();
    scratch.file(
        "busy.toml",
        "duration = \"2s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\
         [[task]]\nname = \"a\"\nin = \"cpu\"\nperiod = \"50us\"\ncost = \"10us\"\npriority = 9\n",
    );
    let page = scratch.path().join("page.html");
    let mut codes = [0u64; 2];
    for limit in (20..=400).step_by(20) {
        let limit = format!("{limit}ms");
        let ended =
            run(&scratch, &["simulate", "busy.toml", "--html", "page.html", "--limit", &limit]);
        let text = std::fs::read_to_string(&page);
        let is_whole = text.as_ref().is_ok_and(|text| text.trim_end().ends_with("</html>"));
        assert!(text.is_err() || is_whole, "half a page at {limit}");
        match ended.code {
            Some(code @ (0 | 1)) => codes[code as usize] += 1,
            code => panic!("{code:?}: {}", ended.err),
        }
        let _ = std::fs::remove_file(&page);
    }
    assert!(codes.iter().all(|&count| count > 0), "ended and complete runs: {codes:?}");
}
