//! Control groups and root domains: reasons for EPERM despite sufficient rights.

use super::check::Check;
use super::facts::Facts;
use talea_os::capabilities::Capability;
use talea_os::sysinfo::Hierarchy;
use talea_proto::refusal::remedies;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![rt_group(facts), cpuset(facts), root_domains(facts)]
}

fn rt_group(facts: &Facts) -> Check {
    let id = "rt-group";
    let Some(group) = &facts.machine.cgroups.rt_group else {
        return Check::ok(
            id,
            "control groups do not restrict (no RT_GROUP_SCHED, or cgroup v2)",
            "FIFO and RR are open to threads of every group",
        );
    };
    let mount = match &facts.machine.cgroups.cpu {
        Hierarchy::V1(at) | Hierarchy::V2(at) => at.as_str(),
        Hierarchy::Absent => "/sys/fs/cgroup/cpu",
    };
    let at = format!("{mount}{}", group.path.trim_end_matches('/'));
    if group.refuses_realtime() {
        return Check::fail(
            id,
            format!("group {} has no real-time runtime", group.path),
            remedies::GROUP,
            format!(
                "echo 100000 > {at}/cpu.rt_runtime_us (parents first, children together at most as much), or move the \
                 thread to the root group: echo TID > {mount}/tasks; or declare a runtime so that edf serves it"
            ),
        );
    }
    match group.runtime {
        Some(runtime) if group.path != "/" => Check::warn(
            id,
            format!("group {}: {runtime} every {}", group.path, group.period),
            "FIFO and RR threads of the group are stopped together when they have used this much",
            format!(
                "raise {at}/cpu.rt_runtime_us, or move the thread to the root group: echo TID > {mount}/tasks"
            ),
        ),
        Some(runtime) => Check::ok(
            id,
            format!("root group: {runtime} every {}", group.period),
            "FIFO and RR are open to this process; threads in other groups need runtime of their own",
        ),
        None => Check::ok(
            id,
            format!("group {}: no bound", group.path),
            "FIFO and RR are open to this process",
        ),
    }
}

fn cpuset(facts: &Facts) -> Check {
    let id = "cpuset";
    match &facts.machine.cgroups.cpuset {
        Hierarchy::V2(at) => Check::ok(
            id,
            format!("version 2 at {at}"),
            "talead can give edf a CPU of its own (a partition) without disturbing others",
        ),
        Hierarchy::V1(at) => Check::ok(
            id,
            format!("version 1 at {at}"),
            "a partition for edf would switch load balancing off for all threads; so talead creates none unless \
             confine = \"partition\" is written",
        ),
        Hierarchy::Absent => {
            Check::ok(id, "none", "edf serves whole root domains with a global test")
        }
    }
}

fn root_domains(facts: &Facts) -> Check {
    let id = "root-domains";
    let domains = &facts.machine.domains;
    let list: Vec<String> = domains
        .iter()
        .map(|domain| {
            format!("{}{}", domain.cpus, if domain.balanced { "" } else { " (not balanced)" })
        })
        .collect();
    let finding = list.join("; ");
    let orphan = domains.iter().find(|domain| !domain.balanced && domain.cpus.len() > 1);
    if let Some(domain) = orphan {
        return Check::warn(
            id,
            finding,
            format!(
                "no load balancing on CPUs {}: SCHED_DEADLINE pinned there is refused (EPERM), and threads stay where they \
                 started",
                domain.cpus
            ),
            "give each of these CPUs a cpuset with sched_load_balance = 1 (version 1) or a partition (version 2)",
        );
    }
    let single = domains.iter().filter(|domain| domain.cpus.len() == 1).count();
    let may_write = facts.machine.capabilities.has(Capability::SysAdmin);
    let meaning = if single > 0 {
        "deadline threads can be confined to the CPUs that are a domain of their own".to_owned()
    } else {
        format!(
            "a deadline thread may move between the CPUs of its domain and cannot be pinned to one of them; edf uses a \
             global test{}",
            if may_write { "" } else { ", and making partitions needs root" }
        )
    };
    Check::ok(id, finding, meaning)
}
