//! Facts about a machine: this one, and simulated ones that consist of files.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};
use support::{Scratch, is_root, machine_lock, mount_debugfs_for_tests, needs, online};
use talea_core::{Charge, CpuSet, Span, Work};
use talea_os::capabilities::Capability;
use talea_os::sysinfo::{
    Hierarchy, RtLimit, SyscallSupport, SystemInfo, dl_bandwidth, rt_group_of,
};
use talea_os::{Attr, Policy, Tid, sched};

/// Writes files below a directory: pairs of a path and its text.
fn fake(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, format!("{text}\n")).expect("a file");
    }
}

const COMMON: [(&str, &str); 7] = [
    ("/proc/sys/kernel/sched_rt_runtime_us", "950000"),
    ("/proc/sys/kernel/sched_rt_period_us", "1000000"),
    ("/proc/sys/kernel/sched_deadline_period_min_us", "100"),
    ("/proc/sys/kernel/sched_deadline_period_max_us", "4194304"),
    ("/sys/devices/system/cpu/online", "0-3"),
    ("/sys/devices/system/cpu/isolated", ""),
    ("/proc/self/status", "Name:\tx\nCapEff:\t0000000000800000"),
];

fn domains(machine: &SystemInfo) -> Vec<String> {
    machine.domains.iter().map(|domain| domain.cpus.to_string()).collect()
}

#[test]
fn an_old_machine_with_cgroup_v1() {
    let scratch = Scratch::new("machine-v1");
    fake(&scratch.0, &COMMON);
    fake(
        &scratch.0,
        &[
            ("/proc/sys/kernel/osrelease", "6.1.0-18-rt-amd64"),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_RT Debian 6.1.76-1"),
            (
                "/proc/self/mounts",
                "cg /cg/cpu cgroup rw,cpu,cpuacct 0 0\ncg /cg/set cgroup rw,cpuset 0 0",
            ),
            ("/proc/self/cgroup", "3:cpu,cpuacct:/user/x\n2:cpuset:/\n0::/"),
            ("/cg/cpu/user/x/cpu.rt_runtime_us", "0"),
            ("/cg/cpu/user/x/cpu.rt_period_us", "1000000"),
            ("/cg/set/cpuset.sched_load_balance", "1"),
            ("/cg/set/cpuset.effective_cpus", "0-3"),
            ("/sys/kernel/debug/sched/features", "GENTLE HRTICK NO_HRTICK_DL X"),
            ("/sys/kernel/security/lockdown", "none [integrity] confidentiality"),
            (
                "/proc/self/limits",
                "Max realtime priority     10          95      \nMax locked memory  unlimited x",
            ),
            ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
        ],
    );
    let calls = SyscallSupport { thread_pidfds: false, tick: Some(Span::from_ns(4_000_000)) };
    let machine = SystemInfo::from_dir(&scratch.0, calls).expect("a machine");
    assert_eq!(machine.kernel.version, (6, 1));
    assert!(machine.kernel.preempt_rt && !machine.has_fair_server() && machine.is_one_domain());
    assert_eq!(machine.deadline_share(), Some(Charge::ratio(95, 100)));
    assert_eq!(machine.cgroups.cpuset, Hierarchy::V1("/cg/set".into()));
    let group = machine.cgroups.rt_group.as_ref().expect("RT_GROUP_SCHED");
    assert_eq!(group.path, "/user/x");
    assert!(group.refuses_realtime());
    assert_eq!(machine.hrtick, Some(false));
    assert_eq!(machine.kernel.lockdown.as_deref(), Some("integrity"));
    assert_eq!(machine.kernel.clocksource.as_deref(), Some("tsc"));
    assert_eq!((machine.limits.rt_priority, machine.limits.memlock), (Some(10), Some(u64::MAX)));
    assert!(
        machine.capabilities.has(Capability::SysNice)
            && !machine.capabilities.has(Capability::SysAdmin)
    );
    assert_eq!(machine.syscalls, calls);
    // Partitioned as talea-os does it, and as other software might.
    fake(
        &scratch.0,
        &[
            ("/cg/set/cpuset.sched_load_balance", "0"),
            ("/cg/set/talea-cpu1/cpuset.sched_load_balance", "1"),
            ("/cg/set/talea-cpu1/cpuset.effective_cpus", "1"),
            ("/cg/set/other/cpuset.sched_load_balance", "0"),
            ("/cg/set/other/below/cpuset.sched_load_balance", "1"),
            ("/cg/set/other/below/cpuset.effective_cpus", "2-3"),
        ],
    );
    let machine = SystemInfo::from_dir(&scratch.0, calls).expect("a machine");
    assert_eq!(domains(&machine), ["1", "2-3", "0"]);
    assert!(!machine.is_one_domain());
    assert!(!machine.domain_of(0).expect("a domain").balanced);
    assert_eq!(machine.domain_of(3).expect("a domain").cpus, CpuSet::parse("2-3").expect("a list"));
}

#[test]
fn a_new_machine_with_cgroup_v2() {
    let scratch = Scratch::new("machine-v2");
    fake(&scratch.0, &COMMON);
    fake(
        &scratch.0,
        &[
            ("/proc/sys/kernel/osrelease", "7.2.1"),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
            ("/proc/self/mounts", "cgroup2 /cg cgroup2 rw,nsdelegate 0 0"),
            ("/proc/self/cgroup", "0::/user.slice"),
            ("/cg/cgroup.controllers", "cpuset cpu io"),
            ("/cg/a/cpuset.cpus.partition", "root"),
            ("/cg/a/cpuset.cpus.effective", "2"),
            ("/cg/a/b/cpuset.cpus.partition", "member"),
            ("/cg/c/cpuset.cpus.partition", "root invalid (Cpu list in cpuset.cpus not exclusive)"),
            ("/cg/c/cpuset.cpus.effective", "1"),
            ("/sys/devices/system/cpu/isolated", "3"),
            ("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "100000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu0/period", "1000000000"),
            ("/sys/kernel/debug/sched/features", "HRTICK HRTICK_DL"),
        ],
    );
    let machine = SystemInfo::from_dir(&scratch.0, SyscallSupport::default()).expect("a machine");
    assert_eq!(machine.cgroups.cpuset, Hierarchy::V2("/cg".into()));
    assert_eq!(machine.cgroups.rt_group, None);
    assert_eq!(domains(&machine), ["2", "0-1", "3"]);
    assert_eq!(machine.fair_server, Charge::ratio(10, 100));
    assert_eq!(machine.hrtick, Some(true));
    assert_eq!(machine.kernel.lockdown, None, "unknown, which is not the same as none");
    fake(&scratch.0, &[("/proc/sys/kernel/sched_rt_runtime_us", "-1")]);
    let machine = SystemInfo::from_dir(&scratch.0, SyscallSupport::default()).expect("a machine");
    let period = Span::from_ns(1_000_000_000);
    assert_eq!(machine.rt_limit, Some(RtLimit { runtime: None, period }));
    assert_eq!(machine.deadline_share(), None, "the kernel admits anything");
}

#[test]
fn the_limit_on_real_time_threads_is_read_without_the_sysctls_where_debugfs_shows_it() {
    let scratch = Scratch::new("machine-limit");
    fake(&scratch.0, &COMMON);
    fake(&scratch.0, &[("/proc/sys/kernel/osrelease", "6.18.0")]);
    let limit = |share: i64| {
        let text =
            format!("dl_rq[0]:\n  .dl_bw->bw         : {share}\n  .dl_bw->total_bw : 104856");
        fake(&scratch.0, &[("/sys/kernel/debug/sched/debug", &text)]);
        let machine = SystemInfo::from_dir(&scratch.0, SyscallSupport::default());
        machine.expect("a machine").rt_limit
    };
    let period = Span::from_ns(1_000_000_000);
    for us in [1, 123_456, 700_000, 900_000, 950_000, 999_999, 1_000_000] {
        // The kernel rounds down.
        let runtime = Work::from_us(us as u64);
        assert_eq!(limit((us << 20) / 1_000_000), Some(RtLimit { runtime, period }), "{us} us");
    }
    assert_eq!(limit(-1), Some(RtLimit { runtime: None, period }));
}

#[test]
fn a_directory_that_is_no_machine_is_an_error() {
    let scratch = Scratch::new("machine-none");
    assert!(SystemInfo::from_dir(&scratch.0, SyscallSupport::default()).is_err());
    fake(
        &scratch.0,
        &[("/proc/sys/kernel/osrelease", "strange"), ("/sys/devices/system/cpu/online", "0")],
    );
    assert!(SystemInfo::from_dir(&scratch.0, SyscallSupport::default()).is_err());
}

#[test]
fn this_machine_is_as_the_kernel_says() {
    let _machine = machine_lock();
    let machine = SystemInfo::probe().expect("facts");
    assert_eq!(machine.online, online());
    assert!(machine.kernel.version >= (6, 1), "{}", machine.kernel.release);
    assert!(machine.deadline_periods.0 < machine.deadline_periods.1);
    assert!(machine.tick.is_some_and(|tick| (100_000..=10_000_000).contains(&tick.as_ns())));
    let all = machine.domains.iter().fold(CpuSet::EMPTY, |all, domain| all.union(&domain.cpus));
    assert_eq!(all, machine.online, "every CPU is in one domain");
    let sum: u32 = machine.domains.iter().map(|domain| domain.cpus.len()).sum();
    assert_eq!(sum, machine.online.len(), "and in one only");
    assert_eq!(rt_group_of(Tid::of_process()), machine.cgroups.rt_group);
    needs!("debugfs", mount_debugfs_for_tests());
    let bandwidth = dl_bandwidth().expect("the kernel's accounting");
    assert_eq!(bandwidth.len() as u32, machine.online.len());
    // No deadline thread has just left, so reading the sysctls does no harm.
    let number = |name: &str| -> i64 {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).expect("a sysctl");
        text.trim().parse().expect("a number")
    };
    let (runtime, period) = (number("sched_rt_runtime_us"), number("sched_rt_period_us"));
    let wanted = u64::try_from(runtime)
        .ok()
        .map(|us| Charge::new(Work::from_ns(us * 1_000), Span::from_ns(period as u64 * 1_000)));
    let limit = machine.rt_limit.expect("a limit");
    assert_eq!(limit.runtime.map(|runtime| Charge::new(runtime, limit.period)), wanted);
}

#[test]
fn probing_the_machine_keeps_the_bandwidth_of_a_thread_that_has_just_left() {
    needs!("root", is_root());
    needs!("debugfs", mount_debugfs_for_tests());
    let _machine = machine_lock();
    let total = || -> Vec<i64> {
        dl_bandwidth().expect("the kernel's accounting").iter().map(|at| at.total).collect()
    };
    // Threads of earlier tests count for at most a period after their end.
    std::thread::sleep(Duration::from_secs(1));
    let before = total();
    let thread = std::thread::spawn(|| {
        let period = Span::from_ns(200_000_000);
        let half =
            Policy::Deadline { runtime: Work::from_ns(100_000_000), deadline: period, period };
        sched::set(Tid::current(), &Attr::grant(half))?;
        // It leaves with consumed budget, so that the kernel keeps its bandwidth for a while.
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {}
        Ok::<(), std::io::Error>(())
    });
    let entered = thread.join().expect("no panic");
    needs!("a deadline thread", entered.is_ok());
    SystemInfo::probe().expect("facts");
    let (mut least, end) = (before.clone(), Instant::now() + Duration::from_millis(600));
    while Instant::now() < end {
        least = least.into_iter().zip(total()).map(|(least, now)| least.min(now)).collect();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((least, total()), (before.clone(), before));
}
