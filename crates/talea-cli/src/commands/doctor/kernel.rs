//! Kernel version, throttling, preemption and clock.

use super::check::Check;
use super::facts::Facts;
use crate::grant_text;
use talea_core::Charge;

/// Oldest kernel on which Talea is tested.
const MIN_KERNEL: (u32, u32) = (6, 1);
/// Clock sources that need few or no system calls to read.
const GOOD_CLOCKS: [&str; 6] =
    ["tsc", "arch_sys_counter", "kvm-clock", "riscv_clocksource", "timebase", "tod"];
/// Difference of the bandwidth accounting that rounding explains, in units of 2^-20 CPUs.
const ROUNDING_ERROR: i64 = (1 << 20) / 100;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![
        kernel(facts),
        pidfd(facts),
        rt_limit(facts),
        fair_server(facts),
        granularity(facts),
        preempt(facts),
        clock(facts),
    ];
    checks.extend(dl_bandwidth(facts));
    checks
}

fn kernel(facts: &Facts) -> Check {
    let id = "kernel";
    let finding = facts.machine.kernel.release.clone();
    if facts.machine.kernel.version < MIN_KERNEL {
        return Check::fail(
            id,
            finding,
            "older than anything that Talea is tested on",
            format!("use Linux {}.{} or newer", MIN_KERNEL.0, MIN_KERNEL.1),
        );
    }
    Check::ok(id, finding, "new enough")
}

fn pidfd(facts: &Facts) -> Check {
    let id = "thread-pidfds";
    if facts.machine.syscalls.thread_pidfds {
        return Check::ok(
            id,
            "yes",
            "threads are identified by descriptors: ids cannot be confused, and every exit is detected",
        );
    }
    Check::warn(
        id,
        "no",
        "threads are distinguished by their start times, and the exit of a single thread is only detected with its process",
        "Linux 6.9 or newer has them",
    )
}

fn rt_limit(facts: &Facts) -> Check {
    let id = "rt-runtime";
    let Some(limit) = facts.machine.rt_limit else {
        return Check::ok(id, "unknown", "kernel.sched_rt_runtime_us cannot be read");
    };
    match limit.runtime {
        None => Check::warn(
            id,
            "-1: no bound",
            "the kernel neither throttles FIFO threads nor tests deadline threads: what is started beside Talea can \
             take everything; Talea's own ledger still holds",
            "sysctl kernel.sched_rt_runtime_us=950000 (a TuneD profile may have set -1)",
        ),
        Some(runtime) if runtime.is_zero() => Check::fail(
            id,
            "0: nothing",
            "every real-time policy is refused or starves",
            "sysctl kernel.sched_rt_runtime_us=950000",
        ),
        Some(runtime) => Check::ok(
            id,
            format!("{runtime} every {}", limit.period),
            format!(
                "deadline threads get at most {} of each CPU",
                grant_text::charge(facts.machine.deadline_share().unwrap_or(Charge::ONE))
            ),
        ),
    }
}

fn fair_server(facts: &Facts) -> Check {
    let id = "fair-server";
    if !facts.machine.has_fair_server() {
        return Check::ok(
            id,
            "none",
            "ordinary threads have no reservation of their own against FIFO threads",
        );
    }
    Check::ok(
        id,
        format!("{} of each CPU", grant_text::charge(facts.machine.fair_server)),
        "a FIFO thread that never blocks loses its CPU once a second, in one block, when ordinary threads wait there; \
         leave them room and it never happens",
    )
}

fn granularity(facts: &Facts) -> Check {
    let id = "budget-granularity";
    let tick = facts
        .machine
        .tick
        .map_or_else(|| "one tick".to_owned(), |tick| format!("one tick ({tick})"));
    match facts.machine.hrtick {
        Some(true) => {
            Check::ok(id, "exact (HRTICK)", "deadline budgets are enforced to the microsecond")
        }
        Some(false) => Check::warn(
            id,
            tick,
            "a deadline thread that overruns may hold its CPU this much longer; the long-run share is still right",
            "echo HRTICK_DL > /sys/kernel/debug/sched/features (before 7.0 it is off; lockdown forbids it)",
        ),
        None => Check::ok(
            id,
            format!("probably {tick}"),
            "debugfs cannot be read, so it is not known whether HRTICK is on; count on a tick",
        ),
    }
}

fn preempt(facts: &Facts) -> Check {
    let id = "preemption";
    if facts.machine.kernel.preempt_rt {
        return Check::ok(
            id,
            "PREEMPT_RT",
            "bounded latencies; timerfd, POSIX timers and perf signals starve behind FIFO threads, clock_nanosleep \
             does not",
        );
    }
    Check::ok(
        id,
        "not PREEMPT_RT",
        "wake-ups are usually within tens of microseconds; nothing bounds the worst one, drivers and firmware decide",
    )
}

fn clock(facts: &Facts) -> Check {
    let id = "clock-source";
    match facts.machine.kernel.clocksource.as_deref() {
        Some(name) if GOOD_CLOCKS.contains(&name) || name.starts_with("hyperv") => {
            Check::ok(id, name, "cheap to read")
        }
        Some(name) => Check::warn(
            id,
            name,
            "every read of the clock accesses a slow device outside of the processor, and serialises with other readers",
            "boot with tsc=reliable if the processor's counter is sound; the kernel's log says why it was given up",
        ),
        None => Check::ok(id, "unknown", "/sys does not report it"),
    }
}

/// Checks for bandwidth that the kernel counts although no thread has it. The kernel's accounting
/// goes wrong if another process demotes a sleeping deadline thread.
fn dl_bandwidth(facts: &Facts) -> Option<Check> {
    let id = "bandwidth-accounting";
    let accounts = facts.dl_bandwidth.as_ref()?;
    let mut total = 0;
    for domain in &facts.machine.domains {
        // The CPUs of one domain all report the domain's value.
        total += accounts
            .iter()
            .find(|account| domain.cpus.contains(account.cpu))
            .map_or(0, |account| account.total);
    }
    let servers = facts.machine.fair_server.times(facts.machine.online.len());
    let servers = i64::try_from(servers.bits() >> 44).unwrap_or(i64::MAX);
    let off = total - servers - facts.deadline_threads;
    let share = |bits: i64| grant_text::charge(Charge::ratio(bits.unsigned_abs(), 1 << 20));
    let fix = "wait a second with no deadline thread ending, then write the knob's own value: sysctl \
                kernel.sched_rt_runtime_us=$(sysctl -n kernel.sched_rt_runtime_us) (Linux 6.12 or newer)";
    Some(if off > ROUNDING_ERROR {
        Check::warn(
            id,
            format!("{} of a CPU is counted without a thread", share(off)),
            "threads were demoted while they slept, or one ended less than a period ago; the kernel refuses that much \
             (EBUSY)",
            fix,
        )
    } else if off < -ROUNDING_ERROR {
        Check::warn(
            id,
            format!("{} of a CPU is held but not counted", share(off)),
            "the accounting was rebuilt at a bad moment: the kernel would admit more than there is; Talea's own ledger holds",
            fix,
        )
    } else {
        Check::ok(
            id,
            format!("{} of a CPU for deadline threads", share(facts.deadline_threads)),
            "the kernel counts what threads have",
        )
    })
}
