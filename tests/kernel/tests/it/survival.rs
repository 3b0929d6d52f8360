//! Clients and daemons are killed under load: no bandwidth leaks, no thread keeps a policy, and no
//! living client loses a grant.
//!
//! Model: a *holder* holds grants of every plugin during the whole test. It continuously checks its
//! own threads in the kernel, and queries the daemon about its grants. *Busy* clients have requests
//! in progress all the time, and are killed in this state. Each of them also has threads of another
//! process under its grants, which live on and must be restored. The test checks kernel state:
//! every thread of the test's users, the kernel's deadline bandwidth, and the settings of the
//! scheduler.
//!
//! By default the test is short; `TALEA_SOAK=1` runs 1,000 client kills and 100 daemon kills.

mod scene;

use scene::{BusyProcess, Figures, MachineState, eventually_back};
use std::time::{Duration, Instant};
use talea_core::rng::Rng;
use talea_kernel_tests::{Agent, Bench, Daemon, config, needs_root};

/// Number of client kills of one batch.
const CLIENTS: u32 = 100;
/// Number of daemon kills of one batch.
const DAEMONS: u32 = 10;

/// Returns the number of batches; each has a daemon and a watchdog of its own.
fn batches() -> u32 {
    if std::env::var_os("TALEA_SOAK").is_some_and(|value| value == "1") { 10 } else { 1 }
}

#[test]
fn r28_r29_clients_killed_under_load_leave_nothing_behind() {
    needs_root!();
    let (begun, mut total) = (Instant::now(), Figures::default());
    for batch in 0..batches() {
        let bench = Bench::new("survival-clients");
        let machine = MachineState::before();
        {
            let daemon = Daemon::start(&bench, &config::open());
            let holder = scene::holder(&bench, &daemon);
            let root = Agent::root();
            let watcher = root.connect(&daemon);
            let kept = watcher.status().specs;
            let mut rng = Rng::new(1 + u64::from(batch));
            let mut busy = [BusyProcess::new(&bench), BusyProcess::new(&bench)];
            for one in &mut busy {
                one.go(&bench, &daemon, rng.below(1 << 30));
            }
            for kill in 0..CLIENTS {
                std::thread::sleep(Duration::from_micros(rng.below(25_000)));
                // The other one works on while this one dies.
                let one = &mut busy[kill as usize % 2];
                total.client_kills += 1;
                total.thrown_back += one.kill();
                eventually_back(one, &daemon);
                one.go(&bench, &daemon, rng.below(1 << 30));
            }
            for one in &mut busy {
                one.kill();
                eventually_back(one, &daemon);
            }
            talea_kernel_tests::eventually("only the holder's grants are left", || {
                watcher.status().specs == kept
            });
            total.add_holder(&holder.order("stop holder"), 1);
            drop(holder);
            talea_kernel_tests::eventually("nothing is granted", || watcher.status().specs == 0);
            let said = daemon.said_since_start();
            assert!(said.iter().all(|line| !line.contains("talead: error")), "{said:#?}");
        }
        total.add_machine(machine.compare());
    }
    println!("{total} in {:.1} s", begun.elapsed().as_secs_f64());
}

#[test]
fn retif_10_5_daemons_killed_under_load_lose_and_leak_nothing() {
    needs_root!();
    let (begun, mut total) = (Instant::now(), Figures::default());
    for batch in 0..batches() {
        let bench = Bench::new("survival-daemons");
        let machine = MachineState::before();
        {
            let mut daemon = Daemon::start(&bench, &config::open());
            let holder = scene::holder(&bench, &daemon);
            let mut rng = Rng::new(1_000 + u64::from(batch));
            let mut busy = [BusyProcess::new(&bench), BusyProcess::new(&bench)];
            for one in &mut busy {
                one.go(&bench, &daemon, rng.below(1 << 30));
            }
            for kill in 0..DAEMONS {
                std::thread::sleep(Duration::from_micros(rng.below(60_000)));
                total.daemon_kills += 1;
                daemon.kill();
                // Every other time a client is killed while there is no daemon to notice it.
                let orphan = (kill % 2 == 0).then_some((kill / 2) as usize % 2);
                if let Some(dead) = orphan {
                    total.client_kills += 1;
                    total.thrown_back += busy[dead].kill();
                }
                std::thread::sleep(Duration::from_micros(rng.below(10_000)));
                daemon.restart();
                if let Some(dead) = orphan {
                    eventually_back(&busy[dead], &daemon);
                    busy[dead].go(&bench, &daemon, rng.below(1 << 30));
                }
            }
            // Long enough for the holder to meet the last daemon.
            let root = Agent::root();
            let watcher = root.connect(&daemon);
            for one in &mut busy {
                one.kill();
                eventually_back(one, &daemon);
            }
            total.add_holder(&holder.order("stop holder"), DAEMONS);
            drop(holder);
            talea_kernel_tests::eventually("nothing is granted", || watcher.status().specs == 0);
            assert_eq!(watcher.status().attached, 0);
        }
        total.add_machine(machine.compare());
    }
    println!("{total} in {:.1} s", begun.elapsed().as_secs_f64());
}
