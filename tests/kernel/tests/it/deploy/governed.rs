//! Roots with a governor: deployed programs of several users in time partitions and servers.

use super::rights::field;
use super::{SLEEP, ms};
use crate::exec::programs::hogs;
use crate::governor::scene::{Measured, SYSTEM, cpu, is_possible, measure, number};
use crate::governor::{TRACE, is_kept};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use talea_core::{CpuSet, Monotonic};
use talea_deploy::text::message::{Ask, ConditionText};
use talea_deploy::{Governed, Role, RootSpec, TaskSpec};
use talea_kernel_tests::deployd::{Deployd, apply_on, task};
use talea_kernel_tests::{Bench, Runs, eventually, kernel, needs, needs_root};
use talea_os::cgroup::Cgroup;

/// Tasks whose programs always want the CPU, with their users.
pub(super) const BUSY: [(&str, &str); 3] =
    [("boxed", "games"), ("first", "daemon"), ("second", "bin")];
pub(super) const GOVERNOR: &str = "cpu (governor)";

/// Returns the request that puts a system in force, whose root has the tasks of [`SYSTEM`].
pub(super) fn request(text: &str, program: &Path, confirm: Option<talea_core::Span>) -> Ask {
    let cpus = CpuSet::single(cpu());
    let system = talea_system::read(text, "the test's own", &()).expect("a sound system");
    let names = &system.roots[0].tasks;
    let governed =
        Governed { root: "cpu".to_owned(), cpus, system: text.to_owned(), tasks: names.clone() };
    let of_task = |name: &String| {
        let user = BUSY.iter().find(|(busy, _)| busy == name).map(|&(_, user)| user.to_owned());
        let program = program.display().to_string();
        let words = if user.is_some() { &[program.as_str()][..] } else { &SLEEP };
        let mut task = task(name, 91, words);
        task.command.role = Role::Governed(cpus);
        task.command.user = user.or(task.command.user);
        task.attr.cpus = cpus;
        let restart = &mut task.health.restart;
        (restart.attempts, restart.backoff, restart.within) = (1_000, ms(1), ms(2));
        task
    };
    let mut tasks: Vec<TaskSpec> = names.iter().map(of_task).collect();
    tasks.insert(0, TaskSpec::governor(0, governed));
    apply_on(RootSpec { name: "cpu".to_owned(), cpus }, &tasks, confirm)
}

/// Returns the group of a task.
pub(super) fn group_of(deployd: &Deployd, task: &str) -> Arc<Cgroup> {
    let instances = deployd.instances();
    let of = instances.iter().find(|of| of.task == task).expect("its file");
    Arc::new(Cgroup::open(PathBuf::from(&of.group)).expect("its group"))
}

/// Returns the statistics of the governor.
pub(super) fn statistics(deployd: &Deployd) -> String {
    let file = deployd.runtime().join("systems/n-cpu.json");
    let _ = std::fs::remove_file(&file);
    let pid = rustix::process::Pid::from_raw(deployd.running(GOVERNOR)).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).expect("root may");
    eventually("the statistics are written", || file.exists());
    std::fs::read_to_string(file).expect("just written")
}

/// Measures the execution of the busy programs until a measurement is conclusive. A stall of the
/// machine disturbs one measurement; a governor that does not keep its table disturbs all, and then
/// none is conclusive.
pub(super) fn measured(deployd: &Deployd) -> Measured {
    let groups = BUSY.map(|(task, _)| group_of(deployd, task));
    let zero = number(&statistics(deployd), "zero_ns");
    let measured = Runs::at_least(1).repeat(|| {
        let measured = measure(&groups, TRACE, || Monotonic::from_ns(zero));
        let is_calm = measured.outside_permille.iter().all(|&outside| outside <= 20);
        (is_calm && measured.late_slots * 20 <= measured.slots).then_some(measured)
    });
    measured.expect("one conclusive run")
}

/// Waits until all programs have executed, and returns their processes.
pub(super) fn pids(deployd: &Deployd) -> [i32; 3] {
    let pids = BUSY.map(|(task, _)| deployd.running(task));
    deployd.running(GOVERNOR);
    for (task, _) in BUSY {
        let used = || group_of(deployd, task).used().expect("its group");
        let before = used();
        eventually(&format!("{task} executes"), || used() > before);
    }
    pids
}

/// Whether the bounding set of a process has CAP_SYS_NICE.
fn may_schedule(pid: i32) -> bool {
    let set = field(pid, "status", "CapBnd:");
    u64::from_str_radix(&set[0], 16).expect("a number") >> 23 & 1 == 1
}

/// Returns the users of the processes in the group of a task.
fn users(deployd: &Deployd, task: &str) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt;
    let processes = group_of(deployd, task).processes().expect("its group");
    let of = |pid: &talea_os::Tid| std::fs::metadata(format!("/proc/{pid}")).ok();
    processes.iter().filter_map(of).map(|found| found.uid()).collect()
}

#[test]
fn d23_deployed_programs_run_in_their_slots_and_budgets_and_leave_nothing() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-governed");
    let deployd = Deployd::start(&bench);
    let program = hogs(&bench);
    assert_eq!(deployd.change(&request(SYSTEM, &program, None)), Some(1));
    let pids = pids(&deployd);
    is_kept(&measured(&deployd));
    for (task, user) in BUSY {
        let account = talea_os::users::account(user).expect("readable").expect("an account");
        let users = users(&deployd, task);
        assert!(!users.is_empty() && users.iter().all(|uid| *uid == account.user.uid), "{users:?}");
    }
    for pid in pids {
        assert_eq!(field(pid, "status", "NoNewPrivs:"), ["1"]);
        assert_eq!(field(pid, "limits", "Max realtime priority")[..2], ["0", "0"]);
        assert_eq!(field(pid, "status", "SigBlk:"), ["0000000000000000"]);
        assert!(!may_schedule(pid), "no right to schedule");
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
        let open: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(open.len(), 3, "the standard streams only: {open:?}");
    }
    assert!(may_schedule(deployd.running(GOVERNOR)), "a governor sets policies");
    let text = statistics(&deployd);
    assert!(!text.contains("instead of"), "nothing has changed a policy: {text}");
    let groups = BUSY.map(|(task, _)| group_of(&deployd, task));
    let status = deployd.status();
    assert!(!status.has_problem(), "{status:?}");
    assert!(status.tasks.iter().all(|task| task.repairs == 0), "{status:?}");
    assert_eq!(deployd.change(&Ask::Remove), None);
    eventually("no process, group and file is left", || {
        pids.iter().all(|&pid| !talea_kernel_tests::kernel::exists(pid))
            && groups.iter().all(|group| !group.path().exists())
            && deployd.instances().is_empty()
            && std::fs::read_dir(deployd.runtime().join("systems")).expect("there").count() == 0
    });
}

#[test]
fn d23_a_program_without_a_governor_executes_no_instruction() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-ungoverned");
    let deployd = Deployd::start(&bench);
    let sound = request(SYSTEM, &hogs(&bench), None);
    let Ask::Apply { generation, .. } = &sound else { panic!("an apply") };
    // This governor refuses its file, so nothing thaws the programs.
    let tasks = generation.generation.tasks().iter().map(|task| {
        let mut task = task.clone();
        if let Some(governed) = &mut task.governed {
            governed.system.push_str("[[no-such-table]]\n");
            task.command.role = Role::Governor(governed.hash());
        }
        task
    });
    let root = generation.generation.roots()[0].clone();
    deployd.change(&apply_on(root, &tasks.collect::<Vec<_>>(), None));
    eventually("the governor has failed", || deployd.task(GOVERNOR).failures > 3);
    let frozen = BUSY.map(|(task, _)| {
        let pid = deployd.running(task);
        assert!(group_of(&deployd, task).is_frozen().expect("its group"), "{task}");
        let file = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it lives");
        assert_eq!(file.file_name(), Some("talea-deployd".as_ref()), "{task} has begun");
        pid
    });
    // A governor that runs takes them over.
    deployd.change(&sound);
    assert_eq!(pids(&deployd), frozen);
    is_kept(&measured(&deployd));
}

#[test]
fn d23_a_program_that_leaves_its_cpu_again_and_again_is_killed() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-escape");
    let deployd = Deployd::start(&bench);
    let Ask::Apply { generation, .. } = request(SYSTEM, &hogs(&bench), None) else {
        panic!("an apply")
    };
    let other = kernel::cpus().iter().find(|&other| other != cpu()).expect("two CPUs");
    let mut tasks = generation.generation.tasks().to_vec();
    let runaway = tasks.iter_mut().find(|task| task.name == "first").expect("a task");
    let script = format!("while :; do taskset -cp {other} $$ >/dev/null; done");
    runaway.command.words = vec!["sh".to_owned(), "-c".to_owned(), script];
    runaway.health.restart.attempts = 0;
    let root = generation.generation.roots()[0].clone();
    deployd.change(&apply_on(root, &tasks, None));
    let beside = deployd.running("second");
    deployd.wait_for("first", ConditionText::Failed);
    assert!(deployd.log().contains("left its CPUs again and again"), "{}", deployd.log());
    eventually("no process of it is left", || {
        deployd.instances().iter().all(|of| of.task != "first")
    });
    assert_eq!(deployd.running("second"), beside);
}

#[test]
fn d25_another_table_keeps_the_programs_and_a_rollback_brings_the_first_one_back() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-governed-table");
    let deployd = Deployd::start(&bench);
    let program = hogs(&bench);
    deployd.change(&request(SYSTEM, &program, None));
    let kept = pids(&deployd);
    let governor = deployd.running(GOVERNOR);
    // The same request changes nothing.
    deployd.change(&request(SYSTEM, &program, None));
    assert_eq!((deployd.running(GOVERNOR), pids(&deployd)), (governor, kept));
    // Other lengths of the slots.
    let other = SYSTEM.replacen("length = \"8ms\"", "length = \"4ms\"", 1).replacen(
        "length = \"4ms\"\n[[scheduler]]\nname = \"one\"",
        "length = \"8ms\"\n[[scheduler]]\nname = \"one\"",
        1,
    );
    deployd.change(&request(&other, &program, None));
    assert_eq!(deployd.running(GOVERNOR), governor);
    assert_eq!(pids(&deployd), kept);
    let share = |task: &str| {
        let group = group_of(&deployd, task);
        let before = group.used().expect("its group");
        std::thread::sleep(TRACE);
        group.used().expect("its group").checked_sub(before).expect("a clock").as_ns()
    };
    let (first, second) = (share("first"), share("second"));
    assert!(first * 3 < second * 2, "4 ms and 8 ms of 20: {first} and {second} ns");
    deployd.change(&Ask::RollBack(None));
    assert_eq!(deployd.running(GOVERNOR), governor);
    assert_eq!(pids(&deployd), kept);
    is_kept(&measured(&deployd));
}
