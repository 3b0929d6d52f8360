//! Objects that a C compiler builds: equal schedules, and refusals with their reasons.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use talea_core::Time;
use talea_core::workload::CostMode;
use talea_object::{ObjectError, load};
use talea_sim::rng::Rng;
use talea_sim::{Schedule, Simulation};
use talea_system::{self as system, Registry};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/c/objects");

/// Folder in which each directory is root's or this user's, as root requires of an object.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("talea-object-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        Scratch(folder)
    }

    /// Compiles a source file, with these definitions of the preprocessor.
    fn compile(&self, source: &Path, definitions: &[&str]) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let object = self.0.join(format!("{}.so", NEXT.fetch_add(1, Ordering::Relaxed)));
        let output = Command::new("cc")
            .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"])
            .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
            .args(definitions.iter().map(|definition| format!("-D{definition}")))
            .arg("-o")
            .args([object.as_path(), source])
            .output()
            .expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        object
    }

    /// Compiles an example.
    fn example(&self, name: &str) -> PathBuf {
        self.compile(&Path::new(EXAMPLES).join(name), &[])
    }

    /// Compiles a policy that is first come first served by child number, with a fault.
    fn faulty(&self, definitions: &[&str]) -> PathBuf {
        let source = self.0.join("faulty.c");
        std::fs::write(&source, FAULTY).expect("a source file");
        self.compile(&source, definitions)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The lowest ready child is first; a definition gives the object a fault.
const FAULTY: &str = r#"
#include "talea_sched.h"
#include <stdlib.h>
#ifndef NAME
#define NAME "lowest"
#endif
#ifndef ABI
#define ABI TALEA_SCHED_ABI
#endif
#ifndef SIZE
#define SIZE sizeof policy
#endif
#ifndef HEAD
#define HEAD head
#endif
static void *create(uint32_t children) { return calloc(children + 1, 1); }
static int32_t ready(void *self, uint64_t now, const struct talea_sched_child *entry)
{
    (void)now;
    ((char *)self)[entry->child] = 1;
    return TALEA_SCHED_PICK;
}
static int32_t finished(void *self, uint64_t now, uint32_t child)
{
    (void)now;
    ((char *)self)[child] = 0;
    return TALEA_SCHED_PICK;
}
static inline int64_t head(const void *self, uint64_t now)
{
    (void)now;
    for (int child = 0; child < 7; child++)
        if (((const char *)self)[child])
            return child;
    return TALEA_SCHED_NONE;
}
static inline int64_t wrong(const void *self, uint64_t now) { return (void)self, (void)now, 3; }
static int32_t before(const void *self, uint64_t now, const struct talea_sched_child *a,
                      const struct talea_sched_child *b)
{
    (void)self;
    (void)now;
    return a->child < b->child;
}
static const struct talea_sched_policy policy = {
    .size = SIZE, .name = NAME, .create = create, .destroy = free, .ready = ready,
    .finished = finished, .update = ready, .head = HEAD, .before = before,
#ifdef WAKE
    .wake = finished,
#endif
};
static const struct talea_sched_policy *const policies[] = {
#ifndef EMPTY
    &policy,
#endif
    NULL};
static const struct talea_sched_object object = {.size = sizeof object, .abi = ABI,
                                                 .policies = policies};
#ifndef ENTRY
#define ENTRY talea_sched_entry
#endif
const struct talea_sched_object *ENTRY(uint32_t abi);
const struct talea_sched_object *ENTRY(uint32_t abi)
{
#ifdef REFUSE
    return (void)abi, NULL;
#else
    /* No object without a use of every variable. */
    return abi && policy.size ? &object : NULL;
#endif
}
"#;

/// Returns the schedule of every root, and the number of completed jobs.
fn schedules(text: &str, registry: &Registry, seed: u64) -> (Vec<Schedule>, u64) {
    let read = system::read_with(text, "system.toml", &(), registry);
    let system = read.unwrap_or_else(|found| panic!("{found:?}\n{text}"));
    let until = Time::ZERO + system.duration;
    let schedule = |root: &system::Root| {
        let engine = root.tree.build().expect("a tree");
        let simulation = Simulation::new(engine, root.tree.cpus, &root.workload(seed));
        let mut schedule = Schedule::new(root.tree.cpus, usize::MAX);
        simulation.with_cost_mode(CostMode::Sampled).run(until, &mut schedule);
        schedule.finish(until);
        schedule
    };
    let schedules: Vec<Schedule> = system.roots.iter().map(schedule).collect();
    let jobs = schedules.iter().map(|schedule| schedule.ended.len() as u64).sum();
    (schedules, jobs)
}

/// Returns a random system: a root with a reservation, and tasks in both.
fn random_system(rng: &mut Rng, policy: &str, server: &str) -> String {
    let (budget, period) = (rng.below(6) + 4, rng.below(8) + 10);
    let mut text = format!(
        "duration = \"4s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"{policy}\"\n\
         [[scheduler]]\nname = \"band\"\nin = \"cpu\"\npolicy = \"{policy}\"\n\
         server = \"{server}\"\nbudget = \"{budget}ms\"\nperiod = \"{period}ms\"\n"
    );
    for number in 0..rng.below(4) + 2 {
        let parent = ["cpu", "band"][rng.below(2) as usize];
        let period = rng.below(30) + 5;
        let cost = rng.below(period / 3 + 1) * 1_000 + 300;
        let deadline = period - rng.below(period / 4 + 1);
        let _ = write!(
            text,
            "[[task]]\nname = \"t{number}\"\nin = \"{parent}\"\nperiod = \"{period}ms\"\n\
             deadline = \"{deadline}ms\"\ncost = {{ min = \"{}us\", max = \"{cost}us\" }}\n",
            cost / 2
        );
    }
    text
}

#[test]
fn l8_s19_least_laxity_first_in_c_and_in_rust_give_identical_schedules() {
    let scratch = Scratch::new();
    let object = load(&scratch.example("llf.c"), Registry::new()).expect("an object");
    let builtin = Registry::new().policy("llf", policy_llf::make);
    let (mut rng, mut jobs) = (Rng::for_part(1, 1), 0);
    for seed in 0..120 {
        let text = random_system(&mut rng, "llf", "deferrable");
        let ((c, of_c), (rust, _)) =
            (schedules(&text, &object, seed), schedules(&text, &builtin, seed));
        assert!(c == rust, "seed {seed}:\n{text}");
        jobs += of_c;
    }
    assert!(jobs >= 100_000, "{jobs} jobs");
}

#[test]
fn l5_l8_a_server_in_c_and_the_built_in_one_give_identical_schedules() {
    let scratch = Scratch::new();
    let object = load(&scratch.example("deferrable.c"), Registry::new()).expect("an object");
    let (mut rng, mut jobs) = (Rng::for_part(2, 1), 0);
    for seed in 0..30 {
        let text = random_system(&mut rng, "edf", "deferrable");
        let with_object = text.replace("\"deferrable\"", "\"deferrable-c\"");
        let (c, of_c) = schedules(&with_object, &object, seed);
        let (rust, _) = schedules(&text, &Registry::new(), seed);
        assert!(c == rust, "seed {seed}:\n{text}");
        jobs += of_c;
    }
    assert!(jobs >= 20_000, "{jobs} jobs");
}

#[test]
fn l8_an_object_that_cannot_be_used_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let refused = |definitions: &[&str]| {
        let object = scratch.faulty(definitions);
        load(&object, Registry::new()).expect_err("refused").to_string()
    };
    let cases: [(&[&str], &str); 11] = [
        (&["REFUSE"], "does not support version 1"),
        (&["ABI=2"], "struct talea_sched_object has size 24 and version 2; expected at least 24"),
        (&["SIZE=8"], "struct talea_sched_policy has size 8"),
        (&["ENTRY=other"], "exports no talea_sched_entry"),
        (&["EMPTY"], "neither a policy nor a server"),
        (&["HEAD=NULL"], "`lowest` has no function `head`"),
        (&["WAKE"], "`lowest` has no function `next_wakeup`"),
        (&["NAME=\"\""], "is no name"),
        (&["NAME=\"A b\""], "`A b` is no name"),
        (&["NAME=\"edf\""], "there is a policy or server `edf` already"),
        (&["HEAD=wrong"], "policy `lowest` violates its contract: "),
    ];
    for (definitions, reason) in cases {
        let said = refused(definitions);
        assert!(said.contains(reason), "{definitions:?}: {said}");
    }
    let text = scratch.0.join("text.so");
    std::fs::write(&text, "no object").expect("a file");
    let said = load(&text, Registry::new()).expect_err("refused").to_string();
    assert!(said.contains("the dynamic loader refuses it"), "{said}");
    let said = load(Path::new("nowhere.so"), Registry::new()).expect_err("refused");
    assert!(matches!(said, ObjectError::Path { .. }), "{said}");
}

#[test]
fn l8_root_loads_only_an_object_that_no_other_user_can_change() {
    let scratch = Scratch::new();
    let object = scratch.example("deferrable.c");
    std::fs::set_permissions(&object, PermissionsExt::from_mode(0o666)).expect("our file");
    let loaded = load(&object, Registry::new());
    if rustix::process::geteuid().is_root() {
        let said = loaded.expect_err("refused").to_string();
        assert!(said.contains("no other user can change"), "{said}");
    } else {
        assert!(loaded.is_ok(), "an object runs with the rights of its user");
    }
}
