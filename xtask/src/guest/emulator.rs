//! QEMU, and what the guest says on its serial line.

use crate::gate::{Verdict, may_install};
use crate::shell::{self, program};
use anyhow::Result;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Program and the Debian package that has it.
const NEEDED: [(&str, &str); 2] = [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio")];
/// A guest that has not said a word more after this long hangs. Emulated, everything takes about twenty times as long.
const PATIENCE: Duration = Duration::from_mins(10);
/// How the first process of the guest begins its own lines.
const GUEST: &str = "guest: ";

/// What is missing for it, and can't be installed here.
pub(super) fn missing(line: &mut impl FnMut(&str)) -> Result<Option<String>> {
    let missing =
        || NEEDED.into_iter().filter(|(program, _)| !shell::has(program)).map(|(_, package)| package);
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
    let mut qemu = command(image, archive, free, words);
    qemu.process_group(0);
    let start = Instant::now();
    let mut said = None;
    shell::stream_while(qemu, |text| {
        // Behind the firmware's control characters, where there are any.
        let text = text.rsplit('\x1b').next().unwrap_or(text);
        if let Some(words) = text.strip_prefix(GUEST) {
            said = Some(words.to_owned());
        }
        line(text);
        if start.elapsed() > PATIENCE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(match said.as_deref() {
        Some("ended with 0") => Verdict::Passed,
        Some(words) => Verdict::Failed(format!("the guest's last words: {words}")),
        None => Verdict::Failed("the guest did not say how it ended".to_owned()),
    })
}

fn command(image: &Path, archive: &Path, free: bool, words: &[String]) -> Command {
    let mut qemu = program("qemu-system-x86_64", &["-M", "q35", "-cpu", "max", "-m", "1024", "-nodefaults"]);
    qemu.args(["-no-reboot", "-display", "none", "-serial", "stdio"]);
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
