//! Needs of a deployment that this computer does not meet, with remedies.

use crate::broker_client::{BrokerClient, Options};
use crate::reserve::broken_grants;
use serde::Serialize;
use std::path::Path;
use talea_core::engine::{MAX_RUN, NodeSpec};
use talea_core::workload::Source;
use talea_core::{Charge, CpuSet, mutate};
use talea_deploy::mechanism::{Mechanism, RootPlan};
use talea_os::files::check_trusted;
use talea_os::launch::Program;
use talea_os::sysinfo::SystemInfo;
use talea_os::{cgroup, users};
use talea_study::live_run::SourceTexts;
use talea_system::{Root, System, Unwritable};

/// Something that a deployment needs and does not get.
#[derive(Debug, Serialize)]
pub(super) struct Missing {
    /// Name of the task, the root or the file.
    pub(super) of: String,
    /// Sentence without a full stop.
    pub(super) why: String,
    pub(super) remedy: String,
}

impl Missing {
    pub(super) fn new(of: &str, why: impl Into<String>, remedy: impl Into<String>) -> Missing {
        Missing { of: of.to_owned(), why: why.into(), remedy: remedy.into() }
    }
}

/// Returns what the texts of the system lack: root runs programs only from files of its own.
pub(super) fn of_files(texts: &SourceTexts) -> Vec<Missing> {
    let is_root = rustix::process::geteuid().is_root();
    let check = |(path, _): &(String, String)| {
        let untrusted = check_trusted(Path::new(path)).err()?;
        let remedy = "give the file and its directories to root, without write access for others";
        Some(Missing::new(path, untrusted.to_string(), remedy))
    };
    if is_root { texts.0.iter().filter_map(check).collect() } else { Vec::new() }
}

/// Returns what a root and its tasks lack on this computer.
pub(super) fn of_root(root: &Root, plan: &RootPlan, machine: &SystemInfo) -> Vec<Missing> {
    let mut missing = Vec::new();
    let programs = root.programs.iter().zip(&root.users);
    for (task, (words, user)) in root.tasks.iter().zip(programs) {
        match words {
            None => missing.push(Missing::new(
                task,
                "no program plays the task",
                "add `program`; clients and running threads cannot be bound yet",
            )),
            Some(words) => missing.extend(of_program(task, words, user.as_deref())),
        }
    }
    let name = &root.name;
    if root.tree.cpus > 1 {
        missing.push(Missing::new(
            name,
            format!("programs run on roots with one CPU, and this one has {}", root.tree.cpus),
            "describe a root for each CPU",
        ));
    }
    if cgroup::mount_point().is_none() {
        missing.push(Missing::new(
            name,
            "each program has a control group, and there is no cgroup v2",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ));
    }
    if let Some(group) = &machine.cgroups.rt_group
        && group.refuses_realtime()
    {
        missing.push(Missing::new(
            name,
            format!("the control group {} has no real-time runtime", group.path),
            "write cpu.rt_runtime_us of the group, or start talea in the root group",
        ));
    }
    if plan.mechanism == Mechanism::Freeze
        && let Err(why) = talea_exec::check_budgets(&root.tree)
    {
        missing.push(Missing::new(name, why, "write a longer one"));
    }
    missing.extend(of_real_time(root, plan, machine));
    missing
}

/// Returns the finding about grants of `talead` whose guarantee the deployment would break. Without
/// `talead` there is no grant.
pub(super) fn of_grants(
    options: &Options,
    file: &Path,
    cpus: &[CpuSet],
) -> anyhow::Result<Option<Missing>> {
    let Ok(mut link) = BrokerClient::daemon(options) else { return Ok(None) };
    let all = cpus.iter().fold(CpuSet::EMPTY, |all, cpus| all.union(cpus));
    let broken = broken_grants(&mut link, &all)?;
    let remedy = "release them, or use other CPUs (--cpus)";
    Ok(broken.map(|why| Missing::new(&file.display().to_string(), why, remedy)))
}

/// Returns the finding about a root that no file for its governor can express.
pub(super) fn of_text(root: &str, why: &Unwritable) -> Missing {
    let remedy = "describe the root without this item; talea execute runs it for a limited time";
    Missing::new(root, format!("no file for its governor can express an item: {why}"), remedy)
}

fn of_program(task: &str, words: &[String], user: Option<&str>) -> Vec<Missing> {
    let mut missing = Vec::new();
    let file = &words[0];
    if file.contains('/') && !file.starts_with('/') {
        let why = format!("{file} is relative to a folder, and a deployment has none");
        missing.push(Missing::new(task, why, "write an absolute path, or a name in PATH"));
    } else if let Err(error) = Program::find(words) {
        let remedy = "install the program, or mend the path";
        missing.push(Missing::new(task, format!("{file}: {error}"), remedy));
    }
    match user.map(|user| (user, users::account(user))) {
        None => missing.push(Missing::new(
            task,
            "no user is named for the program",
            "add `user = \"NAME\"`, with \"root\" if that is intended",
        )),
        Some((user, Ok(None))) => missing.push(Missing::new(
            task,
            format!("there is no account {user}"),
            "create the account, or name another one",
        )),
        Some((user, Err(error))) => missing.push(Missing::new(
            task,
            format!("the account {user} cannot be read: {error}"),
            "look at the name services of this computer",
        )),
        Some((_, Ok(Some(account)))) if account.user.uid == 0 => {
            let file = Program::find(words).ok();
            let untrusted = file.and_then(|program| check_trusted(program.file()).err());
            missing.extend(untrusted.map(|untrusted| {
                let remedy = "run it as another user, or give the file to root";
                Missing::new(task, format!("it runs as root: {untrusted}"), remedy)
            }));
        }
        Some((_, Ok(Some(_)))) => {}
    }
    missing
}

/// Returns what a root lacks if its real-time threads need more of a CPU than the kernel gives to
/// them: ordinary threads have a reserve.
fn of_real_time(root: &Root, plan: &RootPlan, machine: &SystemInfo) -> Option<Missing> {
    let tasks = root.tree.nodes().filter_map(|(_, node)| match &node.spec {
        NodeSpec::Task(spec) => Some(spec),
        NodeSpec::Scheduler(_) => None,
    });
    let of_task = |(spec, source): (&talea_core::engine::TaskSpec, &Source)| {
        if spec.period < MAX_RUN {
            return Charge::new(source.cost.max(), spec.period);
        }
        // It takes what its server leaves, or all of the CPU.
        if plan.mechanism == Mechanism::Linux { Charge::ONE } else { Charge::ZERO }
    };
    let needed = tasks.zip(&root.sources).map(of_task).fold(Charge::ZERO, Charge::saturating_add);
    let (given, knob) = if machine.has_fair_server() {
        (Charge::ONE.saturating_sub(machine.fair_server), "the fair server of the CPU (debugfs)")
    } else {
        let limit = machine.rt_limit.as_ref()?;
        (Charge::new(limit.runtime?, limit.period), "kernel.sched_rt_runtime_us")
    };
    let percent =
        |charge: Charge| format!("{}.{} %", charge.ppm() / 10_000, charge.ppm() / 1_000 % 10);
    (mutate!("deploy-plan-reserve", needed > given, false)).then(|| {
        Missing::new(
            &root.name,
            format!(
                "its threads need {} of a CPU, and the kernel gives {} to real-time threads while \
                 ordinary ones wait",
                percent(needed),
                percent(given)
            ),
            format!("lower the costs, or change {knob}"),
        )
    })
}

/// Returns the finding about a task with logical execution time.
pub(super) fn of_logical(task: &str) -> Missing {
    Missing::new(
        task,
        "no output of a program waits for the deadline of its job (`logical_execution_time`)",
        "remove the key; talea simulate and talea analyze take it",
    )
}

/// Returns the finding about CPUs that cannot be assigned.
pub(super) fn of_cpus(file: &Path, why: &str) -> Missing {
    Missing::new(&file.display().to_string(), why, "name other CPUs with --cpus, or describe fewer")
}

/// Returns CPUs that stand for those of roots on a computer with too few of them.
pub(super) fn placeholders(system: &System) -> Vec<CpuSet> {
    system.roots.iter().map(|root| CpuSet::first(root.tree.cpus)).collect()
}
