//! Background load: busy processes of the ordinary scheduling class on the job's CPU.

use super::tempdir::TempDir;
use anyhow::Context;
use std::process::{Child, Stdio};

/// Busy processes. They are killed when the value is dropped, and end by themselves after their run
/// time.
pub(super) struct Load(Vec<Child>);

impl Load {
    /// Starts `count` processes. They inherit the CPU of the calling thread, and die when the
    /// calling thread ends.
    pub(super) fn start(tempdir: &TempDir, count: u32, seconds: u32) -> anyhow::Result<Load> {
        let mut load = Load(Vec::new());
        for _ in 0..count {
            let child = tempdir
                .command("load")
                .arg(seconds.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .context("the load cannot be started")?;
            load.0.push(child);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that the process has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
