//! Clients and daemons are killed under load: nothing leaks, nothing stays behind, nothing living
//! is lost.
//!
//! Model: a *keeper* holds grants of every plugin through everything, watches its own threads in
//! the kernel without a pause and asks the daemon about its grants. *Busy* clients are always in
//! the middle of something and are killed there; each of them also has threads of another process
//! under its grants, which live on and must become what they were. What is judged is the kernel's
//! word: every thread of the test's users, the books of deadline bandwidth, the settings of the
//! scheduler.
//!
//! As it stands this is a short form; `TALEA_SOAK=1` runs the 1,000 client kills and 100
//! daemon kills.

mod scene;

use scene::{Crew, Dice, Estate, Figures, eventually_back};
use std::time::{Duration, Instant};
use talea_kernel_tests::{Agent, Bench, Daemon, config, needs_root};

/// Client kills of one batch.
const CLIENTS: u32 = 100;
/// Daemon kills of one batch.
const DAEMONS: u32 = 10;

/// How many batches there are; each has a daemon and a watchdog of its own.
fn batches() -> u32 {
    if std::env::var_os("TALEA_SOAK").is_some_and(|value| value == "1") { 10 } else { 1 }
}

#[test]
fn r28_r29_clients_killed_under_load_leave_nothing_behind() {
    needs_root!();
    let (begun, mut total) = (Instant::now(), Figures::default());
    for batch in 0..batches() {
        let bench = Bench::new("survival-clients");
        let estate = Estate::before();
        {
            let daemon = Daemon::start(&bench, &config::open());
            let keeper = scene::keeper(&bench, &daemon);
            let root = Agent::root();
            let watcher = root.connect(&daemon);
            let kept = watcher.status().specs;
            let mut dice = Dice(1 + u64::from(batch));
            let mut crews = [Crew::new(&bench), Crew::new(&bench)];
            for crew in &mut crews {
                crew.go(&bench, &daemon, dice.below(1 << 30));
            }
            for kill in 0..CLIENTS {
                std::thread::sleep(Duration::from_micros(dice.below(25_000)));
                // The other one works on while this one dies.
                let crew = &mut crews[kill as usize % 2];
                total.client_kills += 1;
                total.thrown_back += crew.kill();
                eventually_back(crew, &daemon);
                crew.go(&bench, &daemon, dice.below(1 << 30));
            }
            for crew in &mut crews {
                crew.kill();
                eventually_back(crew, &daemon);
            }
            talea_kernel_tests::eventually("only the keeper's grants are left", || {
                watcher.status().specs == kept
            });
            total.add_keeper(&keeper.order("stop keeper"), 1);
            drop(keeper);
            talea_kernel_tests::eventually("nothing is granted", || watcher.status().specs == 0);
            let said = daemon.said_since_start();
            assert!(said.iter().all(|line| !line.contains("talead: error")), "{said:#?}");
        }
        total.add_estate(estate.compare());
    }
    println!("{total} in {:.1} s", begun.elapsed().as_secs_f64());
}

#[test]
fn retif_10_5_daemons_killed_under_load_lose_and_leak_nothing() {
    needs_root!();
    let (begun, mut total) = (Instant::now(), Figures::default());
    for batch in 0..batches() {
        let bench = Bench::new("survival-daemons");
        let estate = Estate::before();
        {
            let mut daemon = Daemon::start(&bench, &config::open());
            let keeper = scene::keeper(&bench, &daemon);
            let mut dice = Dice(1_000 + u64::from(batch));
            let mut crews = [Crew::new(&bench), Crew::new(&bench)];
            for crew in &mut crews {
                crew.go(&bench, &daemon, dice.below(1 << 30));
            }
            for kill in 0..DAEMONS {
                std::thread::sleep(Duration::from_micros(dice.below(60_000)));
                total.daemon_kills += 1;
                daemon.kill();
                // Every other time somebody dies while there is nobody to notice.
                let orphan = (kill % 2 == 0).then_some((kill / 2) as usize % 2);
                if let Some(dead) = orphan {
                    total.client_kills += 1;
                    total.thrown_back += crews[dead].kill();
                }
                std::thread::sleep(Duration::from_micros(dice.below(10_000)));
                daemon.restart();
                if let Some(dead) = orphan {
                    eventually_back(&crews[dead], &daemon);
                    crews[dead].go(&bench, &daemon, dice.below(1 << 30));
                }
            }
            // Long enough for the keeper to meet the last daemon.
            let root = Agent::root();
            let watcher = root.connect(&daemon);
            for crew in &mut crews {
                crew.kill();
                eventually_back(crew, &daemon);
            }
            total.add_keeper(&keeper.order("stop keeper"), DAEMONS);
            drop(keeper);
            talea_kernel_tests::eventually("nothing is granted", || watcher.status().specs == 0);
            assert_eq!(watcher.status().attached, 0);
        }
        total.add_estate(estate.compare());
    }
    println!("{total} in {:.1} s", begun.elapsed().as_secs_f64());
}
