//! A client that outlives all kills of the daemon and must lose nothing.
//!
//! The client holds a grant of each plugin for a thread of each habit. It continuously checks the
//! kernel state of its threads, with and without a daemon. Whenever there is a daemon, it also
//! checks the daemon's state of its grants.

use crate::PATIENCE;
use crate::work::{self, Habit};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use talea_client::{Client, Failure, Grant, Spec};
use talea_os::{Tid, sched};

struct Kept {
    tid: Tid,
    grant: Grant,
}

#[derive(Default)]
struct Counts {
    /// Number of checks of a thread's kernel state.
    looks: AtomicU64,
    /// Number of these checks that found a thread without a real-time policy.
    demoted: AtomicU64,
}

pub(crate) fn run(words: &[&str], stop: &AtomicBool, ready: impl FnOnce()) -> io::Result<String> {
    let [path] = *words else { return Err(io::ErrorKind::InvalidInput.into()) };
    let client =
        Client::builder().path(path).timeout(PATIENCE).connect().map_err(io::Error::other)?;
    let ms = Duration::from_millis;
    let mut kept = Vec::new();
    for builder in [
        // 7 %: no sum of these and the busy clients' 4 % is what the kernel's fair servers have.
        Spec::builder().plugin("edf").period(ms(20)).runtime(Duration::from_micros(1_400)),
        Spec::builder().plugin("rm").period(ms(15)),
        Spec::builder().plugin("rr").priority(50),
        Spec::builder().plugin("fp").priority(50),
    ] {
        for habit in Habit::ALL {
            let spec = builder.build().map_err(io::Error::other)?;
            let tid = work::start(habit)?;
            let grant = granted(client.create(&spec))?;
            granted(grant.attach(tid as u32))?;
            kept.push(Kept { tid: Tid::new(tid).ok_or(io::ErrorKind::InvalidData)?, grant });
        }
    }
    ready();
    let (counts, done) = (Counts::default(), AtomicBool::new(false));
    let (answers, failures, lost, instances) = std::thread::scope(|scope| {
        scope.spawn(|| look(&kept, &counts, &done));
        let seen = ask(&client, &kept, stop);
        done.store(true, Ordering::Relaxed);
        seen
    });
    let (looks, demoted) = (counts.looks.into_inner(), counts.demoted.into_inner());
    Ok(format!(
        "grants={} looks={looks} demoted={demoted} answers={answers} failures={failures} lost={lost} \
         instances={instances}",
        kept.len()
    ))
}

fn look(kept: &[Kept], counts: &Counts, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        for Kept { tid, .. } in kept {
            let real_time = sched::get(*tid).is_ok_and(|attr| attr.policy.is_realtime());
            counts.looks.fetch_add(1, Ordering::Relaxed);
            counts.demoted.fetch_add(u64::from(!real_time), Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Queries each grant in turn until `stop`; then checks that every grant still exists. Returns the
/// numbers of answers, failures, lost grants, and daemon instances.
fn ask(client: &Client, kept: &[Kept], stop: &AtomicBool) -> (u64, u64, u64, u64) {
    let (mut answers, mut failures, mut lost, mut instances) = (0, 0, 0, 0);
    let mut last = None;
    let mut good = |kept: &Kept| match kept.grant.info() {
        Ok(Ok(info)) => {
            answers += 1;
            Some(info.tid == Some(kept.tid.as_raw() as u32) && !kept.grant.is_lost())
        }
        Ok(Err(_)) => Some(false),
        Err(_) => {
            failures += 1;
            None
        }
    };
    while !stop.load(Ordering::Relaxed) {
        for kept in kept {
            if good(kept) == Some(false) {
                lost += 1;
            }
        }
        if let Ok(Ok(status)) = client.status()
            && last != Some(status.instance)
        {
            last = Some(status.instance);
            instances += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let end = Instant::now() + PATIENCE;
    for kept in kept {
        let mut there = good(kept);
        while there.is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            there = good(kept);
        }
        lost += u64::from(there != Some(true));
    }
    (answers, failures, lost, instances)
}

fn granted<T>(said: Result<Result<T, talea_client::Refusal>, Failure>) -> io::Result<T> {
    said.map_err(io::Error::other)?.map_err(|refusal| io::Error::other(refusal.to_string()))
}
