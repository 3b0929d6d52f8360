//! Full disks, killed and hung daemons, and repairs.
//!
//! Numbers in the names are those of the findings of the review: 7 repairs, 8 a full disk, 15
//! clients that do not claim, 19 requests during a restart, 25 a hung daemon.

use crate::tasks::{owned_by, periodic, ranked, with};
use std::path::PathBuf;
use std::process::Command;
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, config, kernel, needs_root};
use talea_proto::{Code, Owner, Reply, Request};

/// A small file system in memory; unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, size: &str) -> SmallDisk {
        std::fs::create_dir_all(&at).expect("a folder");
        let disk = SmallDisk(at);
        disk.run(&["-o", &format!("size={size},mode=0755"), "-t", "tmpfs", "none"]);
        disk
    }

    /// Changes the size of the file system.
    fn resize(&self, size: &str) {
        self.run(&["-o", &format!("remount,size={size}")]);
    }

    fn run(&self, options: &[&str]) {
        let done = Command::new("mount").args(options).arg(&self.0).status().expect("mount");
        assert!(done.success(), "mount {options:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn attack_8_a_full_disk_leaves_no_thread_without_an_owner() {
    needs_root!();
    let bench = Bench::new("attack-8");
    let disk = SmallDisk::mount(bench.path("state"), "160k");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut threads = Vec::new();
    let refusal = loop {
        assert!(threads.len() < 1000, "the disk is not full");
        match client.ask(&Request::Create(owned_by(Owner::Process, with("rr", ranked(5))))) {
            Reply::Granted(granted) => {
                let tid = alice.thread();
                client.attach(granted.spec, tid);
                threads.push((granted.spec, tid));
            }
            Reply::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    let enospc = rustix::io::Errno::NOSPC.raw_os_error();
    assert_eq!((refusal.code, refusal.errno), (Code::NotRecorded, enospc), "{refusal}");
    assert!(daemon.log().contains("the state file cannot grow"), "{}", daemon.log());
    let refusal = client.refused(&Request::CreateGroup(vec![periodic(10); 2]));
    assert_eq!(refusal.code, Code::NotRecorded);
    // Granted specs are served as before: their records have their blocks.
    let (first, tid) = threads[0];
    let change = Request::Change { spec: first, task: with("fp", ranked(3)) };
    assert!(matches!(client.ask(&change), Reply::Granted(_)));
    client.done(&Request::Detach(first));
    client.attach(first, tid);
    let rounds = if std::env::var_os("TALEA_SOAK").is_some() { 100 } else { 4 };
    for round in 1..=rounds {
        daemon.kill();
        daemon.restart();
        let fresh = alice.connect(&daemon);
        let real_time = threads.iter().filter(|(_, tid)| kernel::policy(*tid).is_realtime());
        assert_eq!(real_time.count(), threads.len(), "round {round}");
        for (spec, tid) in &threads {
            assert_eq!(fresh.query(*spec).tid, Some(*tid as u32), "round {round}");
        }
    }
    eprintln!("{} grants on a full disk, {rounds} kills: 0 threads without owner", threads.len());
    // With room, the next request is granted.
    disk.resize("4m");
    let fresh = alice.connect(&daemon);
    fresh.create(with("rr", ranked(5)));
    drop(daemon);
    assert!(threads.iter().all(|(_, tid)| kernel::is_ordinary(*tid)));
}
