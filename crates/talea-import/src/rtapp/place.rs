//! Conversion of the kernel's scheduling classes to a tree, in which the tasks are placed.
//!
//! Each CPU has a root with fixed priorities. At its top is an EDF scheduler with one hard CBS for
//! each thread of the deadline class. The real-time priorities follow (round robin among the
//! SCHED_RR threads of one priority). The fair class is at the bottom. Threads that may use several
//! CPUs need a root of several CPUs, below which a scheduler has one CPU at a time. So only
//! SCHED_FIFO can be expressed there.

use super::shape::{NEVER, Task};
use super::workload::{Class, Workload, note};
use crate::lines::Lines;
use crate::names::Names;
use std::collections::BTreeMap;
use std::ops::Range;
use talea_config::source::{Findings, words};
use talea_core::Span;

/// The kernel's quantum of SCHED_RR.
const QUANTUM: &str = "100ms";
/// Approximate time slice of the fair class.
const SLICE: &str = "3ms";

/// Writes the system file.
pub(super) fn write(
    workload: &Workload,
    tasks: &[Task<'_>],
    cpus: Option<u32>,
    lines: &mut Lines,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) {
    let named = tasks.iter().flat_map(|task| &task.thread.cpus).max().map_or(1, |cpu| cpu + 1);
    let count = cpus.unwrap_or(named);
    if let Some(task) = tasks.iter().find(|task| task.thread.cpus.iter().any(|cpu| *cpu >= count)) {
        let what =
            format!("this thread may use CPU {}", task.thread.cpus.iter().max().unwrap_or(&0));
        let why = format!("there are {count}, from 0");
        let remedy = "ask for a machine with more, or name others";
        return findings.error(&task.thread.cpus_at, words(what, why, remedy));
    }
    let is_pinned = tasks.iter().all(|task| task.thread.cpus.len() == 1);
    let has_locks = tasks.iter().any(|task| !task.marks.sections.is_empty());
    // Locks are shared within a root.
    let is_shared = count > 1 && (!is_pinned || has_locks);
    if let Some(task) =
        tasks.iter().find(|task| is_shared && !matches!(task.thread.class, Class::Fifo(_)))
    {
        let what = "this thread shares several CPUs with others, and is not of SCHED_FIFO";
        let why = "a scheduler below a root of several CPUs has one of them at a time";
        let remedy =
            "pin every thread to one CPU (where they lock, all to the same), or take SCHED_FIFO";
        return findings.error(&task.thread.at, words(what, why, remedy));
    }
    if cpus.is_none() && tasks.iter().all(|task| task.thread.cpus.is_empty()) {
        note(notes, "the file names no CPUs: one is taken");
    }
    if share_a_queue(tasks) {
        note(
            notes,
            "threads of SCHED_FIFO and SCHED_RR at one priority share a queue in Linux; here those of SCHED_RR take turns in a \
             scheduler of that priority",
        );
    }
    if let Some((duration, at)) = &workload.duration {
        lines.from(&format!("duration = \"{duration}\""), (), at);
    }
    let mut names = Names::default();
    for task in tasks {
        // They differ already.
        names.give(&task.thread.name, "x");
    }
    let mut place = Place { lines, made: BTreeMap::new(), names };
    for task in tasks {
        if place.lines.is_full() {
            return;
        }
        let cpu = if is_shared { 0 } else { task.thread.cpus.first().copied().unwrap_or(0) };
        let root = place.root(cpu, is_shared.then_some(count), &task.thread.at);
        for (resource, ..) in &task.marks.sections {
            place.resource(resource, &root, workload.inheritance, &task.thread.at);
        }
        place.thread(task, &root, is_shared);
    }
}

/// Whether threads of both real-time classes have one priority and a common CPU.
fn share_a_queue(tasks: &[Task<'_>]) -> bool {
    // By priority and CPU: whether there is one of each class. Tasks that may use any CPU
    // compete with all others.
    let mut queues: BTreeMap<(u8, Option<u32>), (bool, bool)> = BTreeMap::new();
    for thread in tasks.iter().map(|task| task.thread) {
        let (priority, is_fifo) = match thread.class {
            Class::Fifo(priority) => (priority, true),
            Class::RoundRobin(priority) => (priority, false),
            Class::Fair | Class::Deadline { .. } => continue,
        };
        let cpus = thread.cpus.iter().map(|cpu| Some(*cpu));
        for cpu in cpus.chain(thread.cpus.is_empty().then_some(None)) {
            let (fifo, rr) = queues.entry((priority, cpu)).or_default();
            *fifo |= is_fifo;
            *rr |= !is_fifo;
        }
    }
    queues.iter().any(|(&(priority, _), &(fifo, rr))| {
        let (any_fifo, any_rr) = queues.get(&(priority, None)).copied().unwrap_or_default();
        (fifo && (rr || any_rr)) || (rr && any_fifo)
    })
}

struct Place<'a> {
    lines: &'a mut Lines,
    /// `made[purpose]`: name of the scheduler or resource for a purpose.
    made: BTreeMap<String, String>,
    names: Names,
}

fn text(value: &str) -> String {
    format!("\"{value}\"")
}

fn span(span: Span) -> String {
    if span.is_zero() { text("0") } else { text(&span.to_string()) }
}

impl Place<'_> {
    fn table(&mut self, header: &str, at: &Range<usize>, pairs: &[(&str, String)]) {
        self.lines.say("");
        self.lines.from(header, (), at);
        for (key, value) in pairs {
            self.lines.from(&format!("{key} = {value}"), (), at);
        }
    }

    /// Returns the name of the scheduler or resource for `purpose`. The first call for a purpose
    /// writes the item.
    fn once(
        &mut self,
        purpose: String,
        preferred: &str,
        header: &str,
        at: &Range<usize>,
        pairs: &[(&str, String)],
    ) -> String {
        if let Some(name) = self.made.get(&purpose) {
            return name.clone();
        }
        let called = self.names.give(preferred, "x");
        self.made.insert(purpose, called.clone());
        let mut all = vec![("name", text(&called))];
        all.extend(pairs.iter().cloned());
        self.table(header, at, &all);
        called
    }

    fn root(&mut self, cpu: u32, shared: Option<u32>, at: &Range<usize>) -> String {
        let mut pairs = vec![("policy", text("fp"))];
        pairs.extend(shared.map(|count| ("cpus", count.to_string())));
        self.once(format!("root {cpu}"), &format!("cpu{cpu}"), "[[scheduler]]", at, &pairs)
    }

    fn resource(&mut self, called: &str, root: &str, inheritance: bool, at: &Range<usize>) {
        let protocol = text(if inheritance { "inheritance" } else { "none" });
        let pairs = [("in", text(root)), ("protocol", protocol)];
        self.once(format!("resource {called}"), called, "[[resource]]", at, &pairs);
    }

    fn thread(&mut self, task: &Task<'_>, root: &str, is_shared: bool) {
        let at = &task.thread.at;
        let group = |place: &mut Self,
                     preferred: &str,
                     policy: &str,
                     quantum: Option<&str>,
                     priority: u8| {
            let mut pairs = vec![
                ("in", text(root)),
                ("policy", text(policy)),
                ("priority", priority.to_string()),
            ];
            pairs.extend(quantum.map(|quantum| ("quantum", text(quantum))));
            place.once(format!("{preferred} in {root}"), preferred, "[[scheduler]]", at, &pairs)
        };
        let count = task.thread.instances;
        let many = (count > 1).then(|| ("count", count.to_string()));
        let called = &task.thread.name;
        match task.thread.class {
            Class::Fifo(priority) => {
                let mut more = vec![("priority", priority.to_string())];
                if is_shared && !task.thread.cpus.is_empty() {
                    let cpus: Vec<String> = task.thread.cpus.iter().map(u32::to_string).collect();
                    more.push(("affinity", text(&cpus.join(","))));
                }
                more.extend(many);
                self.task(task, called, root, &more);
            }
            Class::RoundRobin(priority) => {
                let home = group(self, &format!("rr{priority}"), "rr", Some(QUANTUM), priority);
                self.task(task, called, &home, many.as_slice());
            }
            Class::Fair => {
                let home = group(self, "fair", "rr", Some(SLICE), 0);
                self.task(task, called, &home, many.as_slice());
            }
            Class::Deadline { runtime, period, deadline } => {
                let home = group(self, "deadline", "edf", None, u8::MAX);
                for copy in 0..count {
                    if self.lines.is_full() {
                        return;
                    }
                    let called = if count > 1 { format!("{called}{copy}") } else { called.clone() };
                    let pairs = [
                        ("in", text(&home)),
                        ("server", text("cbs")),
                        ("budget", span(runtime)),
                        ("period", span(period)),
                        ("deadline", span(deadline)),
                    ];
                    let preferred = format!("{called}.cbs");
                    let server =
                        self.once(format!("cbs {called}"), &preferred, "[[scheduler]]", at, &pairs);
                    self.task(task, &called, &server, &[]);
                }
            }
        }
    }

    fn task(&mut self, task: &Task<'_>, called: &str, home: &str, more: &[(&str, String)]) {
        let at = &task.thread.at;
        let costs: Vec<String> = task.costs.iter().map(|cost| span(*cost)).collect();
        let cost =
            if let [cost] = &costs[..] { cost.clone() } else { format!("[{}]", costs.join(", ")) };
        let mut pairs = vec![
            ("name", text(called)),
            ("in", text(home)),
            ("period", span(task.period)),
            ("cost", cost),
        ];
        if let Class::Deadline { deadline, .. } = task.thread.class
            && task.period < NEVER
            && deadline != task.period
        {
            pairs.push(("deadline", span(deadline)));
        }
        pairs.extend(more.iter().cloned());
        match task.jobs {
            Some(jobs) => {
                let time = |job: u64| {
                    let after = task.period.as_ns().saturating_mul(job);
                    span(Span::from_ns(task.offset.as_ns().saturating_add(after)))
                };
                let times: Vec<String> = (0..jobs).map(time).collect();
                pairs.push(("arrivals", format!("[{}]", times.join(", "))));
            }
            None if task.offset.is_zero() => {}
            None => pairs.push(("offset", span(task.offset))),
        }
        self.table("[[task]]", at, &pairs);
        for (resource, from, to) in &task.marks.sections {
            let name = self.made.get(&format!("resource {resource}")).cloned().unwrap_or_default();
            let length = Span::from_ns(to.as_ns().saturating_sub(from.as_ns()));
            let pairs =
                [("resource", text(&name)), ("start", span(*from)), ("length", span(length))];
            self.table("[[task.section]]", at, &pairs);
        }
        for (start, length) in &task.marks.suspensions {
            self.table(
                "[[task.suspension]]",
                at,
                &[("start", span(*start)), ("length", span(*length))],
            );
        }
    }
}
