//! Conversion of the kernel's scheduling classes to a tree, in which the tasks are placed.
//!
//! Each CPU has a root with fixed priorities. At its top is an EDF scheduler with one hard CBS for
//! each thread of the deadline class. The real-time priorities follow (round robin among the
//! SCHED_RR threads of one priority). The fair class is at the bottom. Threads that may use several
//! CPUs need a root of several CPUs, below which a scheduler has one CPU at a time. So there all
//! threads are of SCHED_FIFO, or all of the deadline class: then their reservations are the
//! children of an EDF root.

use super::graph::Edge;
use super::shape::{Arrivals, NEVER, Task};
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
    edges: &[Edge],
    cpus: Option<u32>,
    lines: &mut Lines,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    let named = tasks.iter().flat_map(|task| &task.thread.cpus).max().map_or(1, |cpu| cpu + 1);
    let count = cpus.unwrap_or(named);
    if let Some(task) = tasks.iter().find(|task| task.thread.cpus.iter().any(|cpu| *cpu >= count)) {
        let what =
            format!("this thread may use CPU {}", task.thread.cpus.iter().max().unwrap_or(&0));
        let why = format!("there are {count}, from 0");
        let remedy = "ask for a machine with more, or name others";
        findings.error(&task.thread.cpus_at, words(what, why, remedy));
        return None;
    }
    let is_pinned = tasks.iter().all(|task| task.thread.cpus.len() == 1);
    let has_locks = tasks.iter().any(|task| !task.marks.sections.is_empty());
    // Locks and channels are shared within a root.
    let is_shared = count > 1 && (!is_pinned || has_locks || !edges.is_empty());
    let is_deadline = |task: &Task<'_>| matches!(task.thread.class, Class::Deadline { .. });
    // Reservations alone are the children of a root of several CPUs.
    let is_reserved = is_shared && tasks.iter().all(is_deadline);
    if let Some(task) = tasks
        .iter()
        .find(|task| is_shared && !is_reserved && !matches!(task.thread.class, Class::Fifo(_)))
    {
        let what = "this thread shares several CPUs with others, and is not of SCHED_FIFO";
        let why = if is_deadline(task) {
            "on several CPUs all threads are of the deadline class here, or none"
        } else {
            "its class is round robin here, which serves one CPU"
        };
        let remedy = "pin every thread to one CPU (where they lock or wake each other, all to the same), or take SCHED_FIFO";
        findings.error(&task.thread.at, words(what, why, remedy));
        return None;
    }
    if cpus.is_none() && tasks.iter().all(|task| task.thread.cpus.is_empty()) {
        check_reservations(tasks, findings)?;
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
    for (at, task) in tasks.iter().enumerate() {
        // They differ already, except those of the parts of one thread.
        if at == 0 || !std::ptr::eq(tasks[at - 1].thread, task.thread) {
            names.give(&task.thread.name, "x");
        }
    }
    let mut place = Place { lines, made: BTreeMap::new(), names, is_reserved };
    let mut called = Vec::new();
    for task in tasks {
        if place.lines.is_full() {
            return None;
        }
        let cpu = if is_shared { 0 } else { task.thread.cpus.first().copied().unwrap_or(0) };
        let root = place.root(cpu, is_shared.then_some(count), &task.thread.at);
        for (resource, ..) in &task.marks.sections {
            place.resource(resource, &root, workload.inheritance, &task.thread.at);
        }
        called.push(place.thread(task, &root, is_shared.then_some(count)));
    }
    for (from, to) in edges {
        if let (Some(Some(start)), Some(Some(end))) = (called.get(*from), called.get(*to)) {
            let pairs = [("from", text(start)), ("to", text(end))];
            place.table("[[channel]]", &tasks[*to].thread.at, &pairs);
        }
    }
    Some(())
}

/// Checks that one CPU, which is an assumption, has room for the reservations.
fn check_reservations(tasks: &[Task<'_>], findings: &mut Findings<'_>) -> Option<()> {
    let mut seen: Vec<&str> = Vec::new();
    let mut sum = 0_u64;
    for task in tasks {
        let Class::Deadline { runtime, period, .. } = task.thread.class else { continue };
        if seen.last() == Some(&&*task.thread.name) {
            continue;
        }
        seen.push(&task.thread.name);
        // Per mille, rounded down: a sum that is too small by this is refused later.
        let one = u128::from(runtime.as_ns()) * 1_000 / u128::from(period.as_ns());
        sum = sum.saturating_add(one as u64 * u64::from(task.thread.instances));
        if sum > 1_000 {
            let all: u64 = sum.div_ceil(1_000);
            let what = format!(
                "the reservations of the deadline class up to this thread take {} per cent of a CPU",
                sum / 10
            );
            let why = "the file names no CPUs, and one is assumed";
            let remedy = format!("import it with `--cpus {}`, or add `cpus`", all.max(2));
            findings.error(&task.thread.at, words(what, why, remedy));
            return None;
        }
    }
    Some(())
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
    /// Whether the root has reservations only.
    is_reserved: bool,
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
        let policy = if self.is_reserved { "edf" } else { "fp" };
        let mut pairs = vec![("policy", text(policy))];
        pairs.extend(shared.map(|count| ("cpus", count.to_string())));
        self.once(format!("root {cpu}"), &format!("cpu{cpu}"), "[[scheduler]]", at, &pairs)
    }

    fn resource(&mut self, called: &str, root: &str, inheritance: bool, at: &Range<usize>) {
        let protocol = text(if inheritance { "inheritance" } else { "none" });
        let pairs = [("in", text(root)), ("protocol", protocol)];
        self.once(format!("resource {called}"), called, "[[resource]]", at, &pairs);
    }

    /// Writes the task, and returns its name if it is one task.
    fn thread(&mut self, task: &Task<'_>, root: &str, shared: Option<u32>) -> Option<String> {
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
        let called = match task.part {
            None => task.thread.name.clone(),
            Some(part) => self.names.give(&format!("{}.{part}", task.thread.name), "x"),
        };
        let mut more = Vec::new();
        let named = task.thread.cpus.len() as u32;
        if let Some(count) = shared
            && (1..count).contains(&named)
        {
            let cpus: Vec<String> = task.thread.cpus.iter().map(u32::to_string).collect();
            more.push(("affinity", text(&cpus.join(","))));
        }
        match task.thread.class {
            Class::Fifo(priority) => {
                more.insert(0, ("priority", priority.to_string()));
                more.extend(many);
                self.task(task, &called, root, &more);
            }
            Class::RoundRobin(priority) => {
                let home = group(self, &format!("rr{priority}"), "rr", Some(QUANTUM), priority);
                self.task(task, &called, &home, many.as_slice());
            }
            Class::Fair => {
                let home = group(self, "fair", "rr", Some(SLICE), 0);
                self.task(task, &called, &home, many.as_slice());
            }
            Class::Deadline { runtime, period, deadline } => {
                let home = if self.is_reserved {
                    root.to_owned()
                } else {
                    group(self, "deadline", "edf", None, u8::MAX)
                };
                for copy in 0..count {
                    if self.lines.is_full() {
                        return None;
                    }
                    let number = if count > 1 { copy.to_string() } else { String::new() };
                    let mut pairs = vec![
                        ("in", text(&home)),
                        ("server", text("cbs")),
                        ("budget", span(runtime)),
                        ("period", span(period)),
                        ("deadline", span(deadline)),
                    ];
                    pairs.extend(more.iter().cloned());
                    let thread = format!("{}{number}", task.thread.name);
                    let preferred = format!("{thread}.cbs");
                    let server =
                        self.once(format!("cbs {thread}"), &preferred, "[[scheduler]]", at, &pairs);
                    self.task(task, &format!("{called}{number}"), &server, &[]);
                }
            }
        }
        Some(called)
    }

    fn task(&mut self, task: &Task<'_>, called: &str, home: &str, more: &[(&str, String)]) {
        let at = &task.thread.at;
        let costs: Vec<String> = task.costs.iter().map(|cost| span(*cost)).collect();
        let cost =
            if let [cost] = &costs[..] { cost.clone() } else { format!("[{}]", costs.join(", ")) };
        let mut pairs = vec![("name", text(called)), ("in", text(home))];
        // The end of a channel has the period of its graph.
        if task.arrivals != Arrivals::Activated {
            pairs.push(("period", span(task.period)));
        }
        pairs.push(("cost", cost));
        if let Class::Deadline { deadline, .. } = task.thread.class
            && task.period < NEVER
            && task.arrivals != Arrivals::Activated
            && deadline != task.period
        {
            pairs.push(("deadline", span(deadline)));
        }
        pairs.extend(more.iter().cloned());
        match &task.arrivals {
            Arrivals::At(times) => {
                let times: Vec<String> = times.iter().map(|time| span(*time)).collect();
                pairs.push(("arrivals", format!("[{}]", times.join(", "))));
            }
            Arrivals::From(offset) if offset.is_zero() => {}
            Arrivals::From(offset) => pairs.push(("offset", span(*offset))),
            Arrivals::Activated => {}
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
