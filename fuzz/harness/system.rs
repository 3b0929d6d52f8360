//! Properties of `talea-system` that must hold for any bytes. Panics where one does not.

#[path = "config.rs"]
pub(crate) mod config;

use config::complaints_are_sound;
use talea_config::{FILE_MAX, Severity, diagnostic};
use talea_core::Time;
use talea_core::engine::{NodeSpec, Tree};
use talea_sim::{Jobs, Simulation};
use talea_system::{self as system, Include, Root, System};

/// The other parts of the bytes, by number.
struct Parts<'a>(Vec<&'a str>);

impl Include for Parts<'_> {
    fn text(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        let text =
            path.parse().ok().and_then(|part: usize| self.0.get(part)).ok_or("no such part")?;
        Ok((path.to_owned(), (*text).to_owned()))
    }
}

/// A system file, and after zero bytes the files that it includes as `"1"`, `"2"` and so on. What
/// is accepted can be built and simulated.
pub(crate) fn description(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parts: Vec<&str> = text.split('\0').collect();
    let main = parts[0];
    match system::read(main, "fuzz", &Parts(parts.clone())) {
        Err(found) => {
            assert!(
                found.iter().any(|d| d.severity == Severity::Error),
                "refused without an error"
            );
            if parts.len() == 1 {
                complaints_are_sound(&found, main.as_bytes());
            }
        }
        Ok(system) => {
            // Memory is taken when a machine is built: what is fine for a user is too much for a
            // fuzzer.
            if system.roots.iter().map(room).sum::<u64>() > 1 << 20 {
                return;
            }
            reads_back(&system);
            system.modes.iter().for_each(|mode| reads_back(&mode.system));
            for root in &system.roots {
                let machine = root.tree.build().expect("what was accepted can be built");
                assert_eq!(machine.tasks(), root.tasks.len());
                let mut world =
                    Simulation::new(machine, root.tree.cpus, &root.workload(system.seed))
                        .with_environment(&root.surroundings);
                let (mut jobs, end) = (Jobs::default(), Time::ZERO + system.duration);
                for _ in 0..300 {
                    if world.next_event() >= end || !world.advance(&mut jobs) {
                        break;
                    }
                }
            }
        }
    }
}

/// Checks that the written text of a system is read as the same system.
fn reads_back(system: &System) {
    let text = system::write(system).expect("it comes from a file");
    if text.len() > FILE_MAX {
        return;
    }
    let again = system::read(&text, "again", &())
        .unwrap_or_else(|found| panic!("{}\n{text}", diagnostic::render(&found, false)));
    // Lines are the text's, and there are functions in it, which know no equality. The text has the
    // system of one mode.
    let shown = |system: &System| {
        let mut system = System { warnings: Vec::new(), modes: Vec::new(), ..system.clone() };
        system.expectations.iter_mut().for_each(|expectation| expectation.line = 0);
        system.chains.iter_mut().for_each(|chain| chain.line = 0);
        format!("{system:#?}")
    };
    let (before, after) = (shown(system), shown(&again));
    let differs = before.lines().zip(after.lines()).position(|(before, after)| before != after);
    assert!(before == after, "differs from line {differs:?}:\n{text}\n{before}");
}

/// Jobs and tokens that a tree has room for.
fn room(root: &Root) -> u64 {
    let tokens =
        |tree: &Tree| tree.channels.iter().map(|channel| u64::from(channel.size)).sum::<u64>();
    let jobs = root.tree.nodes().map(|(_, node)| match &node.spec {
        NodeSpec::Task(spec) => 1 + u64::from(spec.backlog.capacity),
        NodeSpec::Scheduler(_) => 1,
    });
    jobs.sum::<u64>() + tokens(&root.tree)
}
