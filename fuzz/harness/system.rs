//! Properties of `talea-system` that must hold for any bytes. Panics where one does not.

use talea_core::cpus::MAX_CPUS;
use talea_core::engine::{NodeSpec, Tree};
use talea_core::setup::Setup;
use talea_core::{CpuSet, Time};
use talea_sim::{Jobs, Simulation};
use talea_system::config::{self, FILE_MAX, Names, Target};
use talea_system::duration::{parse_reservation, parse_span};
use talea_system::import::{File, retif, rtapp, sf3p};
use talea_system::system::{self, Include, Root, System};
use talea_system::write::write;
use talea_system::{Diagnostic, Severity, diagnostic};

/// Every name exists: the meaning of a file must not depend on the machine that fuzzes it.
struct AnyName;

impl Names for AnyName {
    fn user(&self, name: &str) -> Option<u32> {
        // FNV-1a; below the kernel's "no id".
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
        Some(hash.min(u32::MAX - 1))
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.user(name)
    }
}

/// A configuration file.
pub(crate) fn config(bytes: &[u8]) {
    let target = Target::new(CpuSet::first(8));
    match config::read_bytes(bytes, "fuzz", &AnyName, &target) {
        Err(found) => {
            assert!(
                found.iter().any(|d| d.severity == Severity::Error),
                "refused without an error"
            );
            complaints_are_sound(&found, bytes);
        }
        Ok(loaded) => {
            assert!(
                loaded.warnings.iter().all(|d| d.severity == Severity::Warning),
                "loaded with an error"
            );
            complaints_are_sound(&loaded.warnings, bytes);
            assert_eq!(loaded.setup.plugins.len(), loaded.plugin_origins.len());
            let text = write(&loaded.daemon, &loaded.setup);
            if text.len() > FILE_MAX {
                return;
            }
            let again = config::read(&text, "again", &AnyName, &target)
                .unwrap_or_else(|found| panic!("{}\n{text}", diagnostic::render(&found, false)));
            assert_eq!(again.daemon, loaded.daemon);
            assert_eq!(without_origins(again.setup), without_origins(loaded.setup));
        }
    }
}

fn without_origins(mut setup: Setup) -> Setup {
    for rule in &mut setup.rules {
        rule.origin.clear();
    }
    setup
}

/// Places exist, order is the file's, and printing them does nothing to a terminal.
fn complaints_are_sound(found: &[Diagnostic], bytes: &[u8]) {
    assert!(found.len() <= 101, "complaints are bounded");
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines: Vec<&str> = text.split('\n').collect();
    let mut last = (0, 0);
    for d in found {
        let line = lines.get(d.line as usize - 1).unwrap_or_else(|| panic!("no such line: {d}"));
        assert!(d.column as usize <= line.chars().count() + 1, "no such column: {d}");
        assert!((d.line, d.column) >= last, "out of order: {d}");
        last = (d.line, d.column);
        assert!(
            ![&d.what, &d.why, &d.remedy].iter().any(|s| s.trim().is_empty()),
            "a sentence is missing: {d:?}"
        );
        assert!(!d.render(false).chars().any(|c| c.is_control() && c != '\n'), "{d:?}");
        assert!(!d.to_string().chars().any(char::is_control), "{d:?}");
    }
}

/// ReTiF's files: the plugins, and after a zero byte the rules.
pub(crate) fn import_retif(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (plugins, rules) = match text.split_once('\0') {
        Some((plugins, rules)) => (plugins, Some(File { origin: "rules", text: rules })),
        None => (text.as_ref(), None),
    };
    match retif(File { origin: "plugins", text: plugins }, rules) {
        Err(found) => assert!(!found.is_empty(), "refused without a complaint"),
        Ok(toml) => {
            let everything = Target::new(CpuSet::first(MAX_CPUS as u32));
            if toml.len() > FILE_MAX {
                return;
            }
            if let Err(found) = config::read(&toml, "imported", &AnyName, &everything) {
                panic!("{}\n{toml}", diagnostic::render(&found, false));
            }
        }
    }
}

/// A duration, and a reservation.
pub(crate) fn duration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse_span(&text) {
        Ok(span) => assert_eq!(parse_span(&span.to_string()), Ok(span), "{text}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(error) = parse_reservation(&text) {
        assert!(!error.to_string().is_empty());
    }
}

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
    // Lines are the text's, and there are functions in it, which know no equality.
    let shown = |system: &System| {
        let mut system = System { warnings: Vec::new(), ..system.clone() };
        system.expectations.iter_mut().for_each(|expectation| expectation.line = 0);
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

/// An SF3P simulation: what is imported can be built and simulated.
pub(crate) fn import_sf3p(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    imported(sf3p(File { origin: "fuzz", text: &text }), &text);
}

/// An rt-app workload, likewise; the first byte is the number of CPUs, if it is a digit.
pub(crate) fn import_rtapp(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let cpus = text.chars().next().and_then(|c| c.to_digit(10)).filter(|cpus| *cpus > 0);
    let text = if cpus.is_some() { &text[1..] } else { &text };
    imported(rtapp(File { origin: "fuzz", text }, cpus), text);
}

fn imported(result: Result<String, Vec<Diagnostic>>, text: &str) {
    match result {
        Err(found) => {
            assert!(
                found.iter().any(|d| d.severity == Severity::Error),
                "refused without an error"
            );
            complaints_are_sound(&found, text.as_bytes());
        }
        Ok(toml) if toml.len() > FILE_MAX => {}
        Ok(toml) => {
            if let Err(found) = system::read(&toml, "imported", &()) {
                panic!("{}\n{toml}", diagnostic::render(&found, false));
            }
            description(toml.as_bytes());
        }
    }
}
