//! Ends a gate that hangs, and says where it hung.
//!
//! Kills every process below this one, youngest first, which lets the waiting step end by itself.
//! If that does not help within a few seconds (an orphan may hold the pipe), it prints the sum and
//! ends the process.

use super::tally::Tally;
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the killed may take to be gone.
const GRACE: Duration = Duration::from_secs(20);

/// Watches from its own thread until the process ends.
pub(crate) struct Watchdog {
    bitten: Arc<AtomicBool>,
    step: Arc<Mutex<&'static str>>,
}

impl Watchdog {
    /// Bites after `limit`.
    pub(crate) fn start(limit: Duration, tally: Arc<Mutex<Tally>>) -> Watchdog {
        let dog = Watchdog { bitten: Arc::default(), step: Arc::new(Mutex::new("start")) };
        let (bitten, step) = (Arc::clone(&dog.bitten), Arc::clone(&dog.step));
        std::thread::spawn(move || {
            std::thread::sleep(limit);
            bitten.store(true, Ordering::SeqCst);
            let step = *step.lock().unwrap_or_else(PoisonError::into_inner);
            println!(
                "== watchdog: {} minutes are over in step {step}; killing it",
                limit.as_secs() / 60
            );
            for pid in descendants(getpid()) {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(GRACE);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.end_of_tests();
            tally.step(step, super::Verdict::Failed("hung, and could not be killed".to_owned()));
            print!("{}", tally.summary());
            std::process::exit(1);
        });
        dog
    }

    /// Which step is under way.
    pub(crate) fn now_at(&self, step: &'static str) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    /// Whether the limit has passed.
    pub(crate) fn has_bitten(&self) -> bool {
        self.bitten.load(Ordering::SeqCst)
    }
}

/// Every process below `top`, children before their parents.
fn descendants(top: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent_of(&entry.path()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![top.as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children.get(&pid).into_iter().flatten());
        next += 1;
    }
    found.drain(1..).rev().filter_map(Pid::from_raw).collect()
}

/// The fourth field of `stat`; the second, in brackets, may contain anything.
fn parent_of(process: &std::path::Path) -> Option<i32> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_a_child_is_found_and_comes_first() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo ready; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let mut word = [0; 5];
        std::io::Read::read_exact(shell.stdout.as_mut().expect("piped"), &mut word).expect("ready");
        let found = descendants(Pid::from_child(&shell));
        assert_eq!(found.len(), 1, "the sleep");
        let all = descendants(getpid());
        let place = |pid| all.iter().position(|&other| other == pid);
        assert!(place(found[0]) < place(Pid::from_child(&shell)));
        for pid in all.iter().filter(|&&pid| pid == found[0] || pid == Pid::from_child(&shell)) {
            kill_process(*pid, Signal::KILL).expect("ours");
        }
        shell.wait().expect("killed");
    }
}
