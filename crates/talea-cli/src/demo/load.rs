//! The ordinary load: busy processes of the ordinary class on the job's CPU.

use super::stage::Stage;
use anyhow::Context;
use std::process::{Child, Stdio};

/// Ends when dropped, and by itself after its seconds.
pub(super) struct Load(Vec<Child>);

impl Load {
    /// Starts `count` of them; they inherit the CPU of the calling thread and bind their life to
    /// it.
    pub(super) fn start(stage: &Stage, count: u32, seconds: u32) -> anyhow::Result<Load> {
        let mut load = Load(Vec::new());
        for _ in 0..count {
            let child = stage
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
            // An error means that it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
