//! The honest client, whose service an attack must not disturb.
//!
//! The client repeats the usual calls (create, attach, detach, release) at a rate at which no other
//! client delays it, and measures each call. It uses the client library, as programs do. With
//! `plain` it attaches no thread, for a daemon that cannot receive a descriptor.

use crate::{PATIENCE, start_sleeper};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use talea_client::{Client, Failure, Grant, Outcome, Spec};

/// Number of calls before the measurement, which fill caches, branch predictors and the allocator.
const WARM_UP: usize = 200;

pub(crate) fn run(words: &[&str], stop: &AtomicBool, ready: impl FnOnce()) -> io::Result<String> {
    let (path, gap_us, plain) = match *words {
        [path, gap_us] => (path, gap_us, false),
        [path, gap_us, "plain"] => (path, gap_us, true),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let gap = Duration::from_micros(crate::number(gap_us)? as u64);
    let client =
        Client::builder().path(path).timeout(PATIENCE).connect().map_err(io::Error::other)?;
    let period = Duration::from_millis(20);
    let spec =
        Spec::builder().period(period).runtime(Duration::from_micros(100)).plugin("rm").build();
    let spec = spec.map_err(io::Error::other)?;
    let (tid, _sleeper) = start_sleeper()?;
    let pidfd = crate::fd_passing::thread_pidfd(tid)?;
    let mut times = Times { gap, taken: Vec::new(), failed: 0 };
    let mut ready = Some(ready);
    while !stop.load(Ordering::Relaxed) {
        if times.taken.len() >= WARM_UP
            && let Some(ready) = ready.take()
        {
            times.taken.clear();
            ready();
        }
        let Some(grant) = times.take(|| client.create(&spec)) else { continue };
        if !plain {
            times.take(|| grant.attach_pidfd(pidfd.as_fd()));
            times.take(|| grant.detach());
        }
        times.take(|| Grant::release(grant));
    }
    Ok(times.summary())
}

struct Times {
    gap: Duration,
    taken: Vec<u64>,
    /// Number of calls that were refused or failed.
    failed: u64,
}

impl Times {
    fn take<T>(&mut self, call: impl FnOnce() -> Outcome<T>) -> Option<T> {
        if !self.gap.is_zero() {
            std::thread::sleep(self.gap);
        }
        let begun = Instant::now();
        let said: Result<_, Failure> = call();
        self.taken.push(begun.elapsed().as_nanos() as u64);
        match said {
            Ok(Ok(value)) => Some(value),
            no => {
                if self.failed < 3 {
                    let why = no.map_or_else(
                        |failure| failure.to_string(),
                        |refusal| match refusal {
                            Err(refusal) => refusal.to_string(),
                            Ok(_) => unreachable!("taken above"),
                        },
                    );
                    eprintln!("the honest client was not served: {why}");
                }
                self.failed += 1;
                None
            }
        }
    }

    fn summary(mut self) -> String {
        self.taken.sort_unstable();
        let at = |permille: usize| {
            self.taken.get(self.taken.len() * permille / 1000).copied().unwrap_or(0)
        };
        format!(
            "calls={} failed={} median={} p99={} max={}",
            self.taken.len(),
            self.failed,
            at(500),
            at(990),
            self.taken.last().copied().unwrap_or(0)
        )
    }
}
