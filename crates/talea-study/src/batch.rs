//! Parallel execution of independent runs on all CPUs, with results in order.
//!
//! Invariant: the results depend on the items alone, not on the number of threads or their timing.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Returns the number of CPUs that this process may use.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Calls `work` for each number in `0..count`, with one thread per CPU. Prints `what` and a
/// percentage as progress if standard error is a terminal.
pub fn run<T: Send>(what: &str, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    run_on(threads(), what, count, work)
}

/// Variant of [`run`] with an explicit number of threads.
pub fn run_on<T: Send>(
    threads: usize,
    what: &str,
    count: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let threads = threads.clamp(1, count.max(1));
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(count));
    let progress = std::io::stderr().is_terminal();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let result = work(number);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((number, result));
                    if progress && (done.len() * 100 / count) != ((done.len() - 1) * 100 / count) {
                        let _ = write!(
                            std::io::stderr().lock(),
                            "\r{what}: {} %",
                            done.len() * 100 / count
                        );
                    }
                }
            });
        }
    });
    if progress {
        let _ = writeln!(std::io::stderr().lock());
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_order_and_complete() {
        assert_eq!(
            super::run("squares", 1_000, |n| n * n),
            (0..1_000).map(|n| n * n).collect::<Vec<_>>()
        );
        for threads in [0, 1, 7, 5_000] {
            assert_eq!(super::run_on(threads, "numbers", 100, |n| n), (0..100).collect::<Vec<_>>());
        }
        assert!(super::run("nothing", 0, |n| n).is_empty());
    }
}
