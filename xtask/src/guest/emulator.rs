//! QEMU, and what the guest says on its serial line.

use crate::gate::{Verdict, may_install};
use crate::shell::{self, program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Program and the Debian package that has it.
const NEEDED: [(&str, &str); 2] = [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio")];
/// A guest that takes longer hangs; as coreutils' `timeout` reads it. Emulated, everything takes
/// about twenty times as long.
const PATIENCE: &str = "10m";
/// How the first process of the guest begins its own lines.
const GUEST: &str = "guest: ";

/// What is missing for it, and can't be installed here.
pub(super) fn missing(line: &mut impl FnMut(&str)) -> Result<Option<String>> {
    let missing = || {
        NEEDED.into_iter().filter(|(program, _)| !shell::has(program)).map(|(_, package)| package)
    };
    let packages: Vec<_> = missing().collect();
    if packages.is_empty() {
        return Ok(None);
    }
    let advice = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if may_install() && rustix::process::geteuid().is_root() && shell::has("apt-get") {
        line(&advice);
        let mut args = vec!["install", "-y", "--no-install-recommends"];
        args.extend(&packages);
        shell::stream(program("apt-get", &["update"]), |_| ())?;
        shell::stream(program("apt-get", &args), |_| ())?;
        if missing().next().is_none() {
            return Ok(None);
        }
    }
    Ok(Some(format!("the guest needs an emulator; install with: {advice}")))
}

/// Runs the tests with `words` in their names; every line that the guest writes is handed on.
pub(super) fn boot(
    image: &Path,
    archive: &Path,
    free: bool,
    words: &[String],
    mut line: impl FnMut(&str),
) -> Result<Verdict> {
    let (mut said, mut ran) = (None, false);
    shell::stream(command(image, archive, free, words), |text| {
        // Behind the firmware's control characters, where there are any.
        let text = text.rsplit('\x1b').next().unwrap_or(text);
        if let Some(words) = text.strip_prefix(GUEST) {
            said = Some(words.to_owned());
        }
        ran |= text.starts_with("test ") && text.ends_with(" ok");
        line(text);
    })?;
    Ok(verdict(said.as_deref(), ran))
}

/// By the last words of the first process, and by whether a test has passed at all.
fn verdict(said: Option<&str>, ran: bool) -> Verdict {
    match said {
        Some("ended with 0") if ran => Verdict::Passed,
        Some("ended with 0") => Verdict::Failed("no test ran in the guest".to_owned()),
        Some(words) => Verdict::Failed(format!("the guest's last words: {words}")),
        None => Verdict::Failed(format!("the guest did not say how it ended, within {PATIENCE}")),
    }
}

fn command(image: &Path, archive: &Path, free: bool, words: &[String]) -> Command {
    let mut qemu = program("timeout", &["--kill-after=5", PATIENCE, "qemu-system-x86_64"]);
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
    if free {
        qemu.args(["-accel", "tcg,thread=multi", "-smp", "2"]);
    } else {
        // One instruction a nanosecond, and time that jumps where everybody sleeps.
        qemu.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1"]);
    }
    qemu.arg("-kernel").arg(image).arg("-initrd").arg(archive);
    let mut line = "console=ttyS0 quiet panic=-1 -- --test-threads=1 --show-output".to_owned();
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
    fn a_guest_passes_only_where_it_says_so_and_a_test_has_run() {
        let passes = |said, ran| matches!(verdict(said, ran), Verdict::Passed);
        assert!(passes(Some("ended with 0"), true));
        assert!(!passes(Some("ended with 0"), false), "no test has such a word in its name");
        assert!(
            !passes(Some("ended with 101"), true) && !passes(Some("proc cannot be mounted"), true)
        );
        assert!(!passes(None, true), "killed, or switched off before its end");
    }
}
