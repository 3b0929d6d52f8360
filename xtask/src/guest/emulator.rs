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
}

/// Required programs, each with the Debian package that contains it.
pub(super) const NEEDED: [(&str, &str); 3] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio"), ("strip", "binutils")];
/// Time limit of a guest, in the format of coreutils' `timeout`. Under emulation everything takes
/// about twenty times as long.
const TIMEOUT: &str = "10m";
/// Prefix of the lines of the guest's first process.
const GUEST: &str = "guest: ";

/// Runs the tests with one of `words` in their names, and passes each line of the guest to `line`.
/// `append` has more words for the kernel's command line.
pub(super) fn boot(
    image: &Path,
    archive: &Path,
    (machine, append): (Machine, &str),
    words: &[String],
    line: &mut dyn FnMut(&str),
) -> Result<Verdict> {
    let (mut last, mut has_passed) = (None, false);
    shell::stream(command(image, archive, (machine, append), words), |text| {
        // The firmware may write control characters before the text.
        let text = text.rsplit('\x1b').next().unwrap_or(text);
        if let Some(words) = text.strip_prefix(GUEST) {
            last = Some(words.to_owned());
        }
        has_passed |= text.starts_with("test ") && text.ends_with(" ok");
        line(text);
    })?;
    Ok(verdict(last.as_deref(), has_passed))
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
        qemu.args(["-accel", "tcg,thread=multi", "-smp", "2"]);
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
}
