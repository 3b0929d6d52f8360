//! QEMU, and the lines that the guest writes to its serial port.

use super::services;
use crate::shell::{self, program};
use crate::test::Verdict;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Machine that QEMU emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// One CPU, with a clock that counts its instructions.
    Counting,
    /// Two CPUs, with the clock of the host.
    Free,
    /// Two CPUs, with the clock of the host; process 1 is systemd.
    Services,
    /// Eight CPUs, with the clock of the host.
    Eight,
}

/// Required programs, each with the Debian package that contains it.
pub(super) const NEEDED: [(&str, &str); 3] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio"), ("strip", "binutils")];
/// Time limit of a guest, in the format of coreutils' `timeout`. Under emulation everything takes
/// about twenty times as long.
const TIMEOUT: &str = "10m";
/// Prefix of the lines of the guest's first process.
const GUEST: &str = "guest: ";
/// Words of the line with which a kernel reports its own exception.
const CRASHES: [&str; 5] =
    ["BUG: ", "Oops", "kernel BUG at", "general protection fault", "Unable to handle"];
/// Words of the following lines that say where the exception was.
const PLACES: [&str; 2] = ["Comm: ", "RIP: "];
/// Number of lines about a crash that the verdict has.
const CRASH_LINES: usize = 3;

/// Runs the tests with one of `words` in their names, and passes each line of the guest to `line`.
/// `append` has more words for the kernel's command line.
///
/// Boots the guest again after the first crash of its kernel: neither the kernel nor the emulated
/// CPUs are under test. A second crash fails.
pub(super) fn boot(
    image: &Path,
    archive: &Path,
    machine: (Machine, &str),
    words: &[String],
    line: &mut dyn FnMut(&str),
) -> Result<Verdict> {
    let (verdict, crash) = boot_once(image, archive, machine, words, line)?;
    let Some(crash) = crash else { return Ok(verdict) };
    line(&format!("the guest's kernel has crashed, and is booted again: {crash}"));
    let (verdict, crash) = boot_once(image, archive, machine, words, line)?;
    Ok(match crash {
        Some(crash) => Verdict::Failed(format!("the guest's kernel has crashed twice: {crash}")),
        None => verdict,
    })
}

/// Returns the verdict, and the lines about a crash of the guest's kernel.
fn boot_once(
    image: &Path,
    archive: &Path,
    machine: (Machine, &str),
    words: &[String],
    line: &mut dyn FnMut(&str),
) -> Result<(Verdict, Option<String>)> {
    let (mut last, mut has_passed) = (None, false);
    let mut crash = Vec::new();
    shell::stream(command(image, archive, machine, words), |text| {
        // The firmware may write control characters before the text.
        let text = text.rsplit('\x1b').next().unwrap_or(text);
        if let Some(words) = text.strip_prefix(GUEST) {
            last = Some(words.to_owned());
        }
        has_passed |= text.starts_with("test ") && text.ends_with(" ok");
        note_crash(&mut crash, text);
        line(text);
    })?;
    let has_crashed = last.is_none() && !crash.is_empty();
    Ok((verdict(last.as_deref(), has_passed), has_crashed.then(|| crash.join("; "))))
}

/// Adds a line of the kernel about its own exception.
fn note_crash(crash: &mut Vec<String>, text: &str) {
    let words = if crash.is_empty() { &CRASHES[..] } else { &PLACES[..] };
    let is_of_kernel = text.starts_with('[') && words.iter().any(|word| text.contains(word));
    if is_of_kernel && crash.len() < CRASH_LINES {
        crash.push(text.to_owned());
    }
}

/// Returns the verdict for the last line of the first process, and for whether a test has passed.
fn verdict(last: Option<&str>, has_passed: bool) -> Verdict {
    match last {
        Some("ended with 0") if has_passed => Verdict::Passed,
        Some("ended with 0") => Verdict::Failed("no test ran in the guest".to_owned()),
        Some(words) => Verdict::Failed(format!("the guest's last line: {words}")),
        None => Verdict::Failed(format!("the guest did not report its end within {TIMEOUT}")),
    }
}

fn command(
    image: &Path,
    archive: &Path,
    (machine, append): (Machine, &str),
    words: &[String],
) -> Command {
    let mut qemu = program("timeout", &["--kill-after=5", TIMEOUT, "qemu-system-x86_64"]);
    qemu.args([
        "-M",
        "q35",
        "-cpu",
        "max",
        "-m",
        "1024",
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-serial",
        "stdio",
    ]);
    if machine == Machine::Counting {
        // One instruction per nanosecond; while the guest is idle, time jumps to its next timer.
        qemu.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1"]);
    } else {
        let cpus = if machine == Machine::Eight { "8" } else { "2" };
        qemu.args(["-accel", "tcg,thread=multi", "-smp", cpus]);
    }
    qemu.arg("-kernel").arg(image).arg("-initrd").arg(archive);
    let own = if machine == Machine::Services { services::KERNEL_WORDS } else { "" };
    let mut line =
        format!("console=ttyS0 quiet panic=-1 {own} {append} -- --test-threads=1 --show-output");
    for word in words {
        line.push(' ');
        line.push_str(word);
    }
    qemu.arg("-append").arg(line);
    qemu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_passes_only_if_it_reports_success_and_a_test_has_passed() {
        let passes = |last, has_passed| matches!(verdict(last, has_passed), Verdict::Passed);
        assert!(passes(Some("ended with 0"), true));
        assert!(!passes(Some("ended with 0"), false), "no test has such a word in its name");
        assert!(
            !passes(Some("ended with 101"), true) && !passes(Some("proc cannot be mounted"), true)
        );
        assert!(!passes(None, true), "killed, or switched off before its end");
    }

    #[test]
    fn a_crash_of_the_kernel_is_described_by_its_first_lines() {
        let mut crash = Vec::new();
        for text in [
            "test a ... ok",
            "a program printed Oops",
            "[    9.1] systemd[1]: started",
            "[   10.1] BUG: unable to handle page fault for address: 0",
            "[   10.1] #PF: supervisor read access in kernel mode",
            "[   10.1] CPU: 1 PID: 7 Comm: x Not tainted 6.12",
            "[   10.1] RIP: 0010:f+0x1/0x2",
            "[   10.1] RIP: 0033:0x1",
        ] {
            note_crash(&mut crash, text);
        }
        let starts = ["[   10.1] BUG: ", "[   10.1] CPU: ", "[   10.1] RIP: 0010"];
        assert_eq!(crash.len(), starts.len(), "{crash:?}");
        assert!(crash.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{crash:?}");
    }
}
