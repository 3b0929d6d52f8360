//! Rights of this process to real-time threads: capabilities, limits, namespaces, seccomp filters.

use super::check::Check;
use super::facts::{Daemon, Facts};
use talea_core::Span;
use talea_os::capabilities::Capability;
use talea_proto::refusal::remedies;

/// Limit in bytes below which locking the memory of a typical program fails.
const MEMLOCK_ENOUGH: u64 = 64 << 20;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        capabilities(facts),
        rt_priority(facts),
        rt_time(facts),
        memlock(facts),
        user_namespace(facts),
        affinity(facts),
        fifo(facts),
        deadline(facts),
    ]
}

/// Whether this process itself may set any policy. In a user namespace the capability has no effect
/// on scheduling.
pub(super) fn privileged(facts: &Facts) -> bool {
    facts.machine.capabilities.has(Capability::SysNice) && facts.initial_user_namespace
}

fn capabilities(facts: &Facts) -> Check {
    let id = "capabilities";
    if privileged(facts) {
        return Check::ok(
            id,
            "CAP_SYS_NICE",
            "may set every policy, priority and affinity, also for other users",
        );
    }
    let none = if facts.machine.capabilities.has(Capability::SysNice) {
        "CAP_SYS_NICE only inside a user namespace"
    } else {
        "no CAP_SYS_NICE"
    };
    match facts.daemon {
        Daemon::Answers { .. } => Check::ok(
            id,
            format!("{none}, and none is needed: talead has it"),
            "ask talead; by itself this process gets what RLIMIT_RTPRIO allows and never SCHED_DEADLINE",
        ),
        Daemon::Missing(_) | Daemon::Trouble(_) => Check::warn(
            id,
            format!("{none}, and no talead to ask"),
            "SCHED_DEADLINE, other users' threads and FIFO beyond RLIMIT_RTPRIO are refused (EPERM)",
            "start talead: systemctl enable --now talead.socket talead.service",
        ),
    }
}

fn rt_priority(facts: &Facts) -> Check {
    let id = "rlimit-rtprio";
    match facts.machine.limits.rt_priority {
        _ if privileged(facts) => Check::ok(
            id,
            limit(facts.machine.limits.rt_priority),
            "does not bind: CAP_SYS_NICE passes it",
        ),
        Some(0) => Check::ok(
            id,
            "0",
            "without talead this process gets no FIFO and no RR; with it the limit does not matter",
        ),
        Some(most) => {
            Check::ok(id, most.to_string(), "FIFO and RR up to this priority, without a daemon")
        }
        None => Check::ok(id, "unknown", "/proc/self/limits cannot be read"),
    }
}

fn limit(limit: Option<u64>) -> String {
    match limit {
        None => "unknown".to_owned(),
        Some(u64::MAX) => "unlimited".to_owned(),
        Some(limit) => limit.to_string(),
    }
}

fn rt_time(facts: &Facts) -> Check {
    let id = "rlimit-rttime";
    match facts.machine.limits.rt_time_us {
        Some(us) if us != u64::MAX => Check::warn(
            id,
            Span::from_us(us).map_or_else(|| limit(Some(us)), |span| span.to_string()),
            remedies::TIME_LIMIT,
            remedies::TIME_LIMIT_REMEDY,
        ),
        other => Check::ok(id, limit(other), "no real-time thread is killed for computing long"),
    }
}

fn memlock(facts: &Facts) -> Check {
    let id = "rlimit-memlock";
    match facts.machine.limits.memlock {
        Some(bytes)
            if bytes < MEMLOCK_ENOUGH && !facts.machine.capabilities.has(Capability::IpcLock) =>
        {
            Check::warn(
                id,
                format!("{} KiB", bytes >> 10),
                "mlockall fails beyond this; a page fault delays a thread of any priority",
                "ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, or a line in /etc/security/limits.d",
            )
        }
        Some(bytes) if bytes != u64::MAX => {
            Check::ok(id, format!("{} KiB", bytes >> 10), "memory can be locked")
        }
        other => Check::ok(id, limit(other), "memory can be locked"),
    }
}

fn user_namespace(facts: &Facts) -> Check {
    let id = "user-namespace";
    if facts.initial_user_namespace {
        return Check::ok(id, "the first one", "capabilities here count for scheduling");
    }
    let meaning = "capabilities in here do not count for scheduling: every real-time policy is refused (EPERM), also to \
                   the namespace's root";
    match facts.daemon {
        Daemon::Answers { .. } => Check::ok(
            id,
            "one of its own",
            format!("{meaning}; talead outside decides for you, threads go as pidfds"),
        ),
        Daemon::Missing(_) | Daemon::Trouble(_) => Check::fail(
            id,
            "one of its own",
            meaning,
            "run talead outside and make its socket visible in here (bind-mount /run/talea)",
        ),
    }
}

fn affinity(facts: &Facts) -> Check {
    let id = "affinity";
    let mine = facts.affinity;
    let cut = facts.machine.domains.iter().find(|domain| {
        let inside = domain.cpus.intersection(&mine);
        !inside.is_empty() && !domain.cpus.is_subset(&mine)
    });
    match cut {
        Some(domain) => Check::warn(
            id,
            format!("CPUs {mine}, a part of root domain {}", domain.cpus),
            remedies::AFFINITY,
            format!(
                "taskset -pc {} PID, or use a plugin that pins FIFO threads (rm, fp)",
                domain.cpus
            ),
        ),
        None => Check::ok(
            id,
            format!("CPUs {mine}"),
            "covers whole root domains, as SCHED_DEADLINE demands",
        ),
    }
}

fn fifo(facts: &Facts) -> Check {
    let id = "try-fifo";
    let Err(errno) = facts.fifo else {
        return Check::ok(id, "granted", "a thread of this process just was SCHED_FIFO");
    };
    let group = facts.machine.cgroups.rt_group.as_ref().filter(|group| group.refuses_realtime());
    let (because, fix) = match errno {
        libc::EPERM if !facts.initial_user_namespace => USER_NAMESPACE,
        libc::EPERM if group.is_some() => {
            ("because the control group has no real-time runtime", "see rt-group")
        }
        libc::EPERM if privileged(facts) && facts.has_seccomp_filter => (
            "although CAP_SYS_NICE is there: a seccomp filter refuses the call",
            "allow sched_setattr and sched_setscheduler in the container's seccomp profile (@resources in systemd)",
        ),
        libc::EPERM => (
            "because rights are missing",
            "ask talead, or raise RLIMIT_RTPRIO (/etc/security/limits.d, LimitRTPRIO= in the unit)",
        ),
        libc::ENOSYS => (
            "because a seccomp filter hides the call",
            "allow sched_setattr in the container's seccomp profile",
        ),
        _ => UNKNOWN,
    };
    refused(facts, id, errno, (because, fix))
}

/// Reason of a refusal, and its remedy.
type Cause = (&'static str, &'static str);

const USER_NAMESPACE: Cause = ("because of the user namespace", "see user-namespace");
const UNKNOWN: Cause = ("for a reason that is not known here", "see the kernel's log");

/// Builds the check of a refusal. A refusal is a failure only if no daemon can set the policy
/// instead.
fn refused(facts: &Facts, id: &'static str, errno: i32, (because, fix): Cause) -> Check {
    let finding = format!("refused ({})", name(errno));
    let meaning = format!("a thread of this process asked and was refused {because}");
    match facts.daemon {
        Daemon::Answers { .. } if !privileged(facts) => {
            Check::ok(id, finding, format!("{meaning}; talead can still set it for you"))
        }
        _ if privileged(facts) => Check::fail(id, finding, meaning, fix),
        _ => Check::warn(id, finding, meaning, fix),
    }
}

fn deadline(facts: &Facts) -> Check {
    let id = "try-deadline";
    let Err(errno) = facts.deadline else {
        return Check::ok(id, "granted", "a thread of this process just was SCHED_DEADLINE");
    };
    if errno == libc::EBUSY {
        return Check::warn(
            id,
            "refused (EBUSY)",
            "the kernel's own admission test has not even a thousandth of a CPU left",
            "see bandwidth-accounting; talea list shows the grants",
        );
    }
    let (because, fix) = match errno {
        libc::EPERM if !facts.initial_user_namespace => USER_NAMESPACE,
        libc::EPERM if privileged(facts) && !facts.has_seccomp_filter => {
            ("because it may not use its whole root domain", "see affinity and root-domains")
        }
        libc::EPERM if privileged(facts) => (
            "although CAP_SYS_NICE is there: a seccomp filter, or an affinity that cuts its root domain",
            "allow sched_setattr in the container's seccomp profile; see affinity",
        ),
        libc::EPERM => ("because SCHED_DEADLINE needs CAP_SYS_NICE", "ask talead, which has it"),
        _ => UNKNOWN,
    };
    refused(facts, id, errno, (because, fix))
}

fn name(errno: i32) -> String {
    match errno {
        libc::EPERM => "EPERM".to_owned(),
        libc::ENOSYS => "ENOSYS".to_owned(),
        other => std::io::Error::from_raw_os_error(other).to_string(),
    }
}
