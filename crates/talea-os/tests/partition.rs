//! CPUs with a root domain of their own, created and undone on the running kernel.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::{Scratch, Sleeper, deadline, is_root, machine_lock, may_be_realtime, needs, online};
use talea_core::CpuSet;
use talea_os::partition::{self, CgroupV1, PartitionError};
use talea_os::sysinfo::{Hierarchy, SystemInfo};
use talea_os::{ApplyError, Attr, Policy, Thread, sched};

/// Returns every cpuset of the machine, with its settings.
fn sets(at: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let text = |name: &str| std::fs::read_to_string(at.join(name)).unwrap_or_default();
    let names = [
        "cpuset.cpus",
        "cpuset.mems",
        "cpuset.sched_load_balance",
        "cpuset.cpus.partition",
        "cgroup.subtree_control",
    ];
    all.insert(at.to_owned(), names.map(text).concat());
    for entry in std::fs::read_dir(at).expect("a hierarchy").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.append(&mut sets(&entry.path()));
        }
    }
    all
}

/// Guard that undoes the partitions of a failed test.
struct Undo(PathBuf);

impl Drop for Undo {
    fn drop(&mut self) {
        drop(partition::undo(&self.0));
    }
}

#[test]
fn a_cpu_with_its_own_domain_accepts_pinned_deadline_threads_and_is_restored() {
    needs!("root", is_root());
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let before = SystemInfo::probe().expect("facts");
    let mount = match &before.cgroups.cpuset {
        Hierarchy::V1(at) | Hierarchy::V2(at) => PathBuf::from(at),
        Hierarchy::Absent => {
            needs!("a cpuset hierarchy", false);
            unreachable!()
        }
    };
    needs!("two CPUs in one domain", before.online.len() >= 2 && before.is_one_domain());
    let scratch = Scratch::new("partition");
    let journal = scratch.join("journal");
    let _undo = Undo(journal.clone());
    let saved = sets(&mount);
    let last = online().iter().last().expect("a CPU");
    let cpus = CpuSet::single(last);
    let cpuset = &before.cgroups.cpuset;

    if matches!(cpuset, Hierarchy::V1(_)) {
        let refused = partition::create(cpuset, &online(), &cpus, CgroupV1::Refuse, &journal);
        assert!(matches!(refused, Err(PartitionError::Version1NotAllowed)));
        assert!(!journal.exists());
        assert_eq!(sets(&mount), saved);
    }
    let parts = partition::create(cpuset, &online(), &cpus, CgroupV1::Allow, &journal)
        .expect("a partition");
    assert!(matches!(
        partition::create(cpuset, &online(), &cpus, CgroupV1::Allow, &journal),
        Err(PartitionError::Exists { .. })
    ));
    let now = SystemInfo::probe().expect("facts");
    assert_eq!(now.domain_of(last).expect("a domain").cpus, cpus);
    assert_eq!(now.domains.len(), 2, "{:?}", now.domains);

    // Pinned by affinity alone on v1; on v2 the whole process would have to move.
    if matches!(cpuset, Hierarchy::V1(_)) {
        let sleeper = Sleeper::start();
        let rest = online().difference(&cpus);
        let thread = Thread::open(sleeper.tid).expect("a living thread");
        let grant = Attr::grant(deadline(1_000, 100_000));
        // A sleeping thread does not move before it wakes, and until then belongs to its old
        // domain. One that has just fallen asleep may still be in its run queue (delayed dequeue):
        // then the kernel does move it.
        let old = (0..20)
            .find_map(|_| {
                sched::set_affinity(sleeper.tid, &rest).expect("an affinity");
                sleeper.run(|| ());
                sleeper.settle();
                let old = thread.snapshot().expect("a snapshot");
                match thread.apply(&grant, Some(&cpus)) {
                    Err(ApplyError::OtherRootDomain { cpu }) => {
                        assert!(rest.contains(cpu));
                        Some(old)
                    }
                    Ok(()) => {
                        thread.restore(&old).expect("restored");
                        None
                    }
                    other => panic!("{other:?}"),
                }
            })
            .expect("asleep in its old domain once in twenty times");
        assert_eq!(thread.snapshot().expect("a snapshot"), old);
        thread.pin(&cpus).expect("pinned");
        // A second request while it still sleeps gives the same error: its affinity is right now,
        // its CPU is not.
        match thread.apply(&grant, Some(&cpus)) {
            Err(ApplyError::OtherRootDomain { .. }) | Ok(()) => {}
            other => panic!("{other:?}"),
        }
        sleeper.run(|| ());
        sleeper.settle();
        thread.apply(&grant, Some(&cpus)).expect("pinned SCHED_DEADLINE");
        assert_eq!(sched::get_affinity(sleeper.tid).expect("an affinity"), cpus);
        // From one domain to another there is no direct way.
        let before = thread.snapshot().expect("a snapshot");
        match thread.apply(&grant, Some(&rest)) {
            Err(ApplyError::Refused { error, .. }) => {
                assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(thread.snapshot().expect("a snapshot"), before);
        thread.restore(&old).expect("restored");
        parts.admit(sleeper.tid, last).expect("moved");
        assert_eq!(sched::get_affinity(sleeper.tid).expect("an affinity"), cpus);
        parts.release(sleeper.tid).expect("moved back");
        parts.admit(sleeper.tid, last).expect("moved");
        // Undone with a thread inside: it moves to the root set.
        parts.undo().expect("undone");
        assert_eq!(sched::get(sleeper.tid).expect("attributes").policy, Policy::NORMAL);
    } else {
        parts.undo().expect("undone");
    }
    assert_eq!(sets(&mount), saved);
    assert!(!journal.exists());
    assert!(!partition::undo(&journal).expect("nothing to do"));
    assert!(SystemInfo::probe().expect("facts").is_one_domain());

    // A crash after each step: a journal with only its first lines.
    let parts = partition::create(cpuset, &online(), &cpus, CgroupV1::Allow, &journal)
        .expect("a partition");
    let text = std::fs::read_to_string(&journal).expect("the journal");
    parts.undo().expect("undone");
    let steps: Vec<&str> = text.split_inclusive('\n').collect();
    assert!(steps.len() > 4, "{text}");
    for done in 0..=steps.len() {
        // The last journalled step may or may not have been made: here it was not, as after a crash
        // in between.
        std::fs::write(&journal, steps[..done].concat()).expect("a journal");
        for step in &steps[..done.saturating_sub(1)] {
            let words: Vec<&str> = step.trim_end().split('\t').collect();
            match words[..] {
                ["dir", path] => std::fs::create_dir(path).expect("a group"),
                ["set", path, _, new] => std::fs::write(path, new).expect("a value"),
                _ => {}
            }
        }
        assert!(partition::undo(&journal).expect("undone"), "{done} steps");
        assert_eq!(sets(&mount), saved, "{done} steps");
    }
    // A truncated line was not begun; a journal of another boot is ignored.
    std::fs::write(&journal, format!("{}dir\t/no/such", steps[0])).expect("a journal");
    assert!(partition::undo(&journal).expect("undone"));
    let other = "boot 00\ndir\t/no/such/group\n";
    std::fs::write(&journal, other).expect("a journal");
    assert!(partition::undo(&journal).expect("undone"));
    // Lines that other users could have written are not executed.
    std::fs::write(&journal, &text).expect("a journal");
    std::fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("a mode");
    assert!(partition::undo(&journal).is_err());
    std::fs::remove_file(&journal).expect("removed");
}

#[test]
fn absent_cpus_are_refused() {
    let scratch = Scratch::new("partition-none");
    let journal = scratch.join("journal");
    let v1 = Hierarchy::V1("/nowhere".into());
    let nowhere = CpuSet::single(1000);
    for (cpuset, cpus) in
        [(&v1, &nowhere), (&v1, &CpuSet::EMPTY), (&Hierarchy::Absent, &CpuSet::single(0))]
    {
        let refused = partition::create(cpuset, &CpuSet::first(2), cpus, CgroupV1::Allow, &journal);
        assert!(refused.is_err());
        assert!(!journal.exists());
    }
    let all = CpuSet::first(2);
    let v2 = Hierarchy::V2(scratch.0.display().to_string());
    let refused = partition::create(&v2, &all, &all, CgroupV1::Allow, &journal);
    assert!(matches!(refused, Err(PartitionError::NothingLeft)));
    assert!(!journal.exists(), "and nothing is left to undo");
}
