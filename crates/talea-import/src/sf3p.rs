//! Import of SF3P's XML into a system file.
//!
//! SF3P (Gomez et al., RSP 2014), the format of its public program: `simulation` holds a `duration`
//! and one tree of `runnable`s, each a `scheduler` (EDF, FixedPriority, RateMonotonic, FIFO, TDMA)
//! or a `worker`. Times are `value="20" units="ms"`, whole numbers of `sec`, `ms` or `us`.
//!
//! Differences: a worker has one deadline for its check and for scheduling, and one period. SF3P
//! reads a second pair of values from `criteria` (100 ms if there is none). The import reports two
//! different values as an error. Priorities are 0 to 255.
//!
//! Absent on purpose: the `video` task, whose cost depends on the computer and on a clip.

use crate::lines::Lines;
use crate::system_file::{File, system_file};
use roxmltree::{Document, Node};
use std::collections::BTreeMap;
use std::ops::Range;
use talea_config::diagnostic::{Diagnostic, quoted};
use talea_config::source::{Findings, words};
use talea_config::suggest;
use talea_core::Span;
use talea_core::mutate;

/// Maximum number of levels of schedulers.
const DEPTH_MAX: usize = 64;
/// Default deadline of SF3P.
const DEADLINE: Span = Span::from_ns(100_000_000);
const PRIORITY: u8 = 100;

/// Converts an SF3P simulation into a system file.
///
/// # Errors
/// All diagnostics, with their positions.
pub fn sf3p(file: File<'_>) -> Result<String, Vec<Diagnostic>> {
    system_file(file, "sf3p", |text, lines, notes, findings| {
        let document = match Document::parse(text) {
            Ok(document) => document,
            Err(error) => return syntax(&error, text, findings),
        };
        let mut import = Import { text, lines, notes, findings, names: names(&document) };
        import.simulation(document.root_element());
    })
}

fn syntax(error: &roxmltree::Error, text: &str, findings: &mut Findings<'_>) {
    let position = error.pos();
    let line = text.split_inclusive('\n').take(position.row.saturating_sub(1) as usize);
    let start: usize = line.map(str::len).sum();
    let within = text[start..].char_indices().nth(position.col.saturating_sub(1) as usize);
    let at = within.map_or(text.len(), |(at, _)| start + at);
    // The position is said once already.
    let what = error.to_string();
    let what = what.split(" at ").next().unwrap_or(&what);
    let remedy = "write <simulation> with a <duration> and a <runnable>, each closed";
    findings.error(
        &(at..at + 1),
        words(format!("this is not XML: {what}"), "the file can't be read", remedy),
    );
}

struct Import<'a, 's> {
    text: &'a str,
    lines: &'a mut Lines,
    notes: &'a mut Vec<String>,
    findings: &'a mut Findings<'s>,
    /// `names[position]`: name of the element that begins at that position.
    names: BTreeMap<usize, String>,
}

/// Returns names for runnables, which have none in the file: their kind with a number.
fn names(document: &Document<'_>) -> BTreeMap<usize, String> {
    let (mut schedulers, mut workers) = (0, 0);
    let runnables = document.descendants().filter(|node| node.tag_name().name() == "runnable");
    let name = |node: Node<'_, '_>| {
        let (word, count) =
            policy(node).map_or(("worker", &mut workers), |policy| (policy, &mut schedulers));
        *count += 1;
        let name = format!("{word}{}", *count - 1);
        (node.range().start, name)
    };
    runnables.map(name).collect()
}

/// Returns the policy in system files for a scheduler's algorithm.
fn policy(node: Node<'_, '_>) -> Option<&'static str> {
    let word = node.attribute("algorithm")?;
    ALGORITHMS.iter().find(|(known, _)| *known == word).map(|(_, policy)| *policy)
}

/// Allowed child elements, by parent.
const IN_SIMULATION: [&str; 2] = ["duration", "runnable"];
const IN_SCHEDULER: [&str; 2] = ["time_slots", "runnable"];
const IN_WORKER: [&str; 7] =
    ["offset", "period", "jitter", "release_time", "wcet", "relative_deadline", "criteria"];
const IN_CRITERIA: [&str; 3] = ["relative_deadline", "period", "priority"];

/// SF3P's algorithms, and the policies in system files.
const ALGORITHMS: [(&str, &str); 5] = [
    ("EDF", "edf"),
    ("FixedPriority", "fp"),
    ("RateMonotonic", "rm"),
    ("FIFO", "fifo"),
    ("TDMA", "partitions"),
];

const UNITS: [(&str, u64); 3] = [("sec", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];

/// Allowed attributes of an element; `None` for elements without a meaning of their own.
fn attributes(node: Node<'_, '_>) -> Option<&'static [&'static str]> {
    match (node.tag_name().name(), node.attribute("type")) {
        ("simulation", _) => Some(&["name"]),
        ("runnable", Some("scheduler")) => Some(&["type", "algorithm"]),
        ("runnable", Some("worker")) => Some(&["type", "periodicity", "task"]),
        ("criteria", _) => Some(&["type"]),
        ("time_slots", _) => Some(&[]),
        ("priority", _) => Some(&["value"]),
        (name, _) if IN_WORKER.contains(&name) || matches!(name, "duration" | "time_slot") => {
            Some(&["value", "units"])
        }
        _ => None,
    }
}

/// Scheduler above a runnable.
#[derive(Clone, Copy)]
struct Parent<'p> {
    name: &'p str,
    /// Criteria of the children that a scheduler above reads, at any depth.
    asks: Asks,
}

/// Policies of the schedulers above an element.
#[derive(Clone, Copy, Default)]
struct Asks {
    rm: bool,
    edf: bool,
}

impl<'a> Import<'a, '_> {
    fn error(&mut self, at: Range<usize>, what: String, why: &str, remedy: impl Into<String>) {
        self.findings.error(&at, words(what, why, remedy));
    }

    /// Returns the range of the start tag of an element.
    fn at(&self, node: Node<'_, '_>) -> Range<usize> {
        let range = node.range();
        let end = self.text[range.clone()].find('>').map_or(range.end, |end| range.start + end + 1);
        range.start..end
    }

    /// Returns the child elements of `node`, and reports elements that are not `known`.
    fn children<'d>(&mut self, node: Node<'d, 'a>, known: &[&str]) -> Vec<Node<'d, 'a>> {
        let mut found = Vec::new();
        for child in node.children().filter(Node::is_element) {
            let name = child.tag_name().name();
            if known.contains(&name) {
                found.push(child);
                continue;
            }
            let remedy = match suggest::nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean <{near}>?"),
                None => {
                    format!(
                        "in <{}> stand {}",
                        node.tag_name().name(),
                        suggest::list(known.iter().copied())
                    )
                }
            };
            let what = format!("<{}> means nothing in <{}>", cut(name), node.tag_name().name());
            self.error(self.at(child), what, "it would be ignored without a word", remedy);
        }
        found
    }

    /// Reports attributes without a meaning. Attributes of another namespace describe the text, not
    /// the simulation.
    fn known_attributes(&mut self, node: Node<'_, 'a>) {
        let Some(known) = attributes(node) else { return };
        let element = node.tag_name().name();
        for attribute in node.attributes().filter(|attribute| attribute.namespace().is_none()) {
            let name = attribute.name();
            if known.contains(&name) {
                continue;
            }
            let remedy = match suggest::nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => "leave it out".to_owned(),
                None => format!("<{element}> has {}", suggest::list(known.iter().copied())),
            };
            let what = format!("`{}` means nothing in <{element}>", cut(name));
            self.error(attribute.range_qname(), what, "it would be ignored without a word", remedy);
        }
    }

    /// Returns the only child with the given name.
    fn one<'d>(&mut self, children: &[Node<'d, 'a>], name: &str) -> Option<Node<'d, 'a>> {
        let mut found = children.iter().filter(|child| child.tag_name().name() == name);
        let first = found.next().copied();
        if let Some(second) = found.next() {
            let what = format!("<{name}> is there twice");
            self.error(self.at(*second), what, "only one of them can hold", "leave one out");
        }
        first
    }

    fn attribute(&mut self, node: Node<'_, 'a>, name: &str, words: &[&str]) -> Option<&'a str> {
        let Some(attribute) = node.attributes().find(|attribute| attribute.name() == name) else {
            let what = format!("<{}> has no `{name}`", node.tag_name().name());
            let remedy = format!("write one of {}", suggest::list(words.iter().copied()));
            self.error(self.at(node), what, "it says what the element is", remedy);
            return None;
        };
        let value = &self.text[attribute.range_value()];
        if words.contains(&value) {
            return Some(value);
        }
        let remedy = match suggest::nearest(value, words.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", suggest::list(words.iter().copied())),
        };
        let what = format!("{} is not a value of `{name}`", quoted(value));
        self.error(attribute.range_value(), what, "SF3P has no such value", remedy);
        None
    }

    /// Reads a whole number in `value`, or between the tags.
    fn number(&mut self, node: Node<'_, 'a>, most: u64) -> Option<u64> {
        let written = match node.attributes().find(|attribute| attribute.name() == "value") {
            Some(attribute) => Some((&self.text[attribute.range_value()], attribute.range_value())),
            None => node
                .text()
                .map(|text| (text.trim(), self.at(node)))
                .filter(|(text, _)| !text.is_empty()),
        };
        let name = node.tag_name().name();
        let Some((text, at)) = written else {
            let remedy = format!("write <{name} value=\"20\" units=\"ms\"/>");
            self.error(
                self.at(node),
                format!("<{name}> has no `value`"),
                "there is nothing to take",
                remedy,
            );
            return None;
        };
        match text.parse::<u64>() {
            Ok(number) if number <= most => Some(number),
            _ => {
                let what = format!("{} is not a whole number from 0 to {most}", quoted(text));
                let (why, remedy) = if most == u64::MAX {
                    ("SF3P's numbers are whole", "write digits only; times may use smaller units")
                } else {
                    (
                        "priorities are 0 to 255 here, larger is more urgent",
                        "number them anew, in the same order",
                    )
                };
                self.error(at, what, why, remedy);
                None
            }
        }
    }

    fn time(&mut self, node: Node<'_, 'a>) -> Option<Span> {
        let unit = self.attribute(node, "units", &UNITS.map(|(unit, _)| unit));
        let number = self.number(node, u64::MAX);
        let factor = unit.and_then(|unit| UNITS.iter().find(|(known, _)| *known == unit))?.1;
        let span = number?.checked_mul(factor).map(Span::from_ns);
        if span.is_none() {
            let what = format!("<{}> is longer than 584 years", node.tag_name().name());
            self.error(
                self.at(node),
                what,
                "time is kept in 64 bits of nanoseconds",
                "write a shorter time",
            );
        }
        span
    }

    /// Reads the time of the only child with the given name. The result is `Err` if the child is
    /// invalid.
    fn time_of(
        &mut self,
        children: &[Node<'_, 'a>],
        name: &str,
    ) -> Result<Option<(Span, Range<usize>)>, ()> {
        match self.one(children, name) {
            None => Ok(None),
            Some(node) => self.time(node).map(|span| Some((span, self.at(node)))).ok_or(()),
        }
    }

    fn simulation(&mut self, root: Node<'_, 'a>) {
        if root.tag_name().name() != "simulation" {
            let what =
                format!("the file holds <{}>, not <simulation>", cut(root.tag_name().name()));
            let remedy = "name a file of SF3P, or write <simulation> around it";
            return self.error(self.at(root), what, "this is no simulation of SF3P", remedy);
        }
        for node in root.descendants().filter(Node::is_element) {
            self.known_attributes(node);
        }
        let children = self.children(root, &IN_SIMULATION);
        if let Ok(Some((duration, at))) = self.time_of(&children, "duration") {
            self.lines.from(&format!("duration = \"{duration}\""), (), &at);
        }
        match self.one(&children, "runnable") {
            None => {
                let remedy =
                    "write <runnable type=\"scheduler\" algorithm=\"EDF\"> with workers in it";
                self.error(
                    self.at(root),
                    "there is no <runnable>".to_owned(),
                    "nothing would run",
                    remedy,
                );
            }
            Some(node) => self.runnable(node, None, 0),
        }
    }

    /// Writes the tree below a runnable.
    fn runnable(&mut self, node: Node<'_, 'a>, parent: Option<Parent<'_>>, depth: usize) {
        if depth == DEPTH_MAX {
            let what = format!("there are more than {DEPTH_MAX} levels of schedulers");
            return self.error(
                self.at(node),
                what,
                "what one file may hold is bounded",
                "use fewer levels",
            );
        }
        match (self.attribute(node, "type", &["scheduler", "worker"]), parent) {
            (Some("scheduler"), _) => self.scheduler(node, parent, depth),
            (Some(_), Some(parent)) => self.worker(node, parent),
            (Some(_), None) => {
                let remedy = "put it into <runnable type=\"scheduler\" algorithm=\"FIFO\">";
                let what = "a worker stands in no scheduler".to_owned();
                self.error(self.at(node), what, "a scheduler must decide when it runs", remedy);
            }
            (None, _) => {}
        }
    }

    fn scheduler(&mut self, node: Node<'_, 'a>, parent: Option<Parent<'_>>, depth: usize) {
        let at = self.at(node);
        let algorithm = self.attribute(node, "algorithm", &ALGORITHMS.map(|(word, _)| word));
        let children = self.children(node, &IN_SCHEDULER);
        let runnables: Vec<Node<'_, 'a>> = children
            .iter()
            .copied()
            .filter(|child| child.tag_name().name() == "runnable")
            .collect();
        let slots = self.one(&children, "time_slots");
        let policy = algorithm.and_then(|_| policy(node));
        // What stands below is looked at in any case: its mistakes don't depend on this one.
        let policy_or_any = policy.unwrap_or("fifo");
        let name = self.names.get(&node.range().start).cloned().unwrap_or_default();
        if runnables.is_empty() {
            let remedy = "put a worker into it, or leave it out";
            self.error(
                at.clone(),
                "there is nothing in this scheduler".to_owned(),
                "it would never run",
                remedy,
            );
        }
        self.lines.say("");
        self.lines.from("[[scheduler]]", (), &at);
        self.lines.from(&format!("name = \"{name}\""), (), &at);
        if let Some(Parent { name, .. }) = parent {
            self.lines.from(&format!("in = \"{name}\""), (), &at);
        }
        self.lines.from(&format!("policy = \"{policy_or_any}\""), (), &at);
        match (slots, policy) {
            (Some(slots), Some("partitions")) => self.slots(slots, &runnables),
            (None, Some("partitions")) => {
                let remedy = "write <time_slots> with a <time_slot> for each child, in their order";
                self.error(
                    at,
                    "TDMA has no <time_slots>".to_owned(),
                    "no task would ever run",
                    remedy,
                );
            }
            (Some(slots), Some(_)) => {
                let what = "<time_slots> belong to TDMA, and this is none".to_owned();
                self.error(
                    self.at(slots),
                    what,
                    "they would be ignored without a word",
                    "leave them out",
                );
            }
            (_, None) | (None, Some(_)) => {}
        }
        let above = parent.map_or(Asks::default(), |parent| parent.asks);
        let asks =
            Asks { rm: above.rm || policy == Some("rm"), edf: above.edf || policy == Some("edf") };
        for child in runnables {
            self.runnable(child, Some(Parent { name: &name, asks }), depth + 1);
        }
    }

    /// Writes the slots of a frame, in the order of its children.
    fn slots(&mut self, node: Node<'_, 'a>, owners: &[Node<'_, 'a>]) {
        let slots = self.children(node, &["time_slot"]);
        if slots.len() != owners.len() {
            let what =
                format!("there are {} time slots for {} children", slots.len(), owners.len());
            let remedy = "write a <time_slot> for each child, in their order";
            return self.error(
                self.at(node),
                what,
                "slots and children are matched by their order",
                remedy,
            );
        }
        let lengths: Vec<Option<Span>> = slots.iter().map(|slot| self.time(*slot)).collect();
        let Some(lengths) = lengths.into_iter().collect::<Option<Vec<Span>>>() else { return };
        let Some(frame) =
            lengths.iter().try_fold(Span::ZERO, |sum, length| sum.checked_add(*length))
        else {
            let remedy = "write shorter slots";
            return self.error(
                self.at(node),
                "the frame is longer than 584 years".to_owned(),
                "it is too long",
                remedy,
            );
        };
        let frame_at = self.at(node);
        self.lines.from(&format!("frame = \"{frame}\""), (), &frame_at);
        let owners: Vec<_> = mutate!(
            "import-sf3p-slots",
            owners.to_vec(),
            owners.iter().rev().copied().collect::<Vec<_>>()
        );
        for ((slot, owner), length) in slots.iter().zip(&owners).zip(lengths) {
            let name = self.names.get(&owner.range().start).cloned().unwrap_or_default();
            let at = self.at(*slot);
            self.lines.say("");
            self.lines.from("[[scheduler.slot]]", (), &at);
            self.lines.from(&format!("owner = \"{name}\""), (), &at);
            self.lines.from(&format!("length = \"{length}\""), (), &at);
        }
    }

    fn worker(&mut self, node: Node<'_, 'a>, parent: Parent<'_>) {
        let at = self.at(node);
        let name = self.names.get(&node.range().start).cloned().unwrap_or_default();
        let periodicity =
            self.attribute(node, "periodicity", &["periodic", "periodic_jitter", "aperiodic"]);
        let task = self.attribute(node, "task", &["busy_wait", "video"]);
        let children = self.children(node, &IN_WORKER);
        let mut time = |name| self.time_of(&children, name);
        let times = [
            time("wcet"),
            time("period"),
            time("offset"),
            time("jitter"),
            time("relative_deadline"),
        ];
        let releases: Vec<Node<'_, 'a>> = children
            .iter()
            .copied()
            .filter(|child| child.tag_name().name() == "release_time")
            .collect();
        if let (Some(release), Some("periodic" | "periodic_jitter")) =
            (releases.first(), periodicity)
        {
            let remedy = "write periodicity=\"aperiodic\", or leave it out";
            let what = "<release_time> belongs to aperiodic".to_owned();
            self.error(self.at(*release), what, "jobs of this worker come every period", remedy);
        }
        let releases: Vec<Option<Span>> =
            releases.into_iter().map(|release| self.time(release)).collect();
        let criteria = self
            .one(&children, "criteria")
            .map_or(Ok(Criteria::default()), |node| self.criteria(node));
        if task == Some("video") {
            let remedy = "write task=\"busy_wait\" with a <wcet>";
            let what = "a video has no stated cost".to_owned();
            self.error(at.clone(), what, "it depends on the machine and on the clip", remedy);
        }
        let (Some(periodicity), Some("busy_wait"), Ok(criteria)) = (periodicity, task, criteria)
        else {
            return;
        };
        let [Ok(wcet), Ok(period), Ok(offset), Ok(jitter), Ok(deadline)] = times else { return };
        let Some(releases) = releases.into_iter().collect::<Option<Vec<Span>>>() else { return };
        let Some(wcet) = wcet else {
            return self.error(
                at,
                "the worker has no <wcet>".to_owned(),
                "its execution time is unknown",
                "add one",
            );
        };
        let deadline = match (deadline, &criteria.deadline) {
            (Some(deadline), _) => deadline,
            (None, Some(scheduled)) => scheduled.clone(),
            (None, None) => {
                self.note("a worker without a <relative_deadline> has SF3P's, 100 ms");
                (DEADLINE, at.clone())
            }
        };
        if parent.asks.edf && criteria.deadline.is_none() && deadline.0 != DEADLINE {
            self.note(
                "EDF orders by the workers' deadlines; SF3P takes 100 ms for all that don't repeat theirs in <criteria>",
            );
        }
        if let Some((scheduled, at)) =
            criteria.deadline.filter(|(scheduled, _)| *scheduled != deadline.0)
        {
            let what = format!(
                "it is scheduled by a deadline of {scheduled} and judged by one of {}",
                deadline.0
            );
            return self.error(at, what, "a task has one deadline", "make them equal");
        }
        let period = match (periodicity, period) {
            ("aperiodic", given) => {
                if let Some((_, at)) = given.or(jitter.clone()).or(offset.clone()) {
                    let why = "its jobs come at its release times";
                    return self.error(
                        at,
                        "this means nothing for an aperiodic worker".to_owned(),
                        why,
                        "leave it out",
                    );
                }
                if releases.is_empty() {
                    let remedy = "add <release_time value=\"5\" units=\"ms\"/>";
                    return self.error(
                        at,
                        "there is no <release_time>".to_owned(),
                        "it would never run",
                        remedy,
                    );
                }
                // It orders by period only where it has one to order by.
                criteria.period.clone().unwrap_or_else(|| deadline.clone())
            }
            (_, Some(period)) => period,
            (_, None) => {
                let remedy = "add <period value=\"100\" units=\"ms\"/>";
                return self.error(
                    at,
                    "the worker has no <period>".to_owned(),
                    "its arrivals are unknown",
                    remedy,
                );
            }
        };
        if parent.asks.rm {
            match criteria.period {
                Some((scheduled, at)) if scheduled != period.0 => {
                    let what = format!("it is scheduled by a period of {scheduled} and released every {}", period.0);
                    return self.error(at, what, "a task has one period", "make them equal");
                }
                Some(_) => {}
                None => self.note(
                    "RateMonotonic orders by the workers' periods; SF3P takes 100 ms for all that don't repeat theirs in \
                     <criteria>",
                ),
            }
        }
        self.lines.say("");
        self.lines.from("[[task]]", (), &at);
        self.lines.from(&format!("name = \"{name}\""), (), &at);
        self.lines.from(&format!("in = \"{}\"", parent.name), (), &at);
        let mut pair = |key: &str, (span, at): &(Span, Range<usize>)| {
            let text = if span.is_zero() { "0".to_owned() } else { span.to_string() };
            self.lines.from(&format!("{key} = \"{text}\""), (), at);
        };
        pair("period", &period);
        pair("deadline", &deadline);
        pair("cost", &wcet);
        if let Some(offset) = &offset {
            pair("offset", offset);
        }
        match (&jitter, periodicity) {
            (Some(jitter), "periodic_jitter") => pair("jitter", jitter),
            (Some((_, at)), _) => {
                let remedy = "write periodicity=\"periodic_jitter\", or leave it out";
                let at = at.clone();
                self.error(
                    at,
                    "<jitter> belongs to periodic_jitter".to_owned(),
                    "it would be ignored",
                    remedy,
                );
            }
            _ => {}
        }
        if periodicity == "aperiodic" {
            let mut times = releases;
            times.sort_unstable();
            let text = |span: &Span| {
                if span.is_zero() { "\"0\"".to_owned() } else { format!("\"{span}\"") }
            };
            let times: Vec<String> = times.iter().map(text).collect();
            self.lines.from(&format!("arrivals = [{}]", times.join(", ")), (), &at);
        }
        let (priority, priority_at) = criteria.priority.unwrap_or((PRIORITY, at));
        self.lines.from(&format!("priority = {priority}"), (), &priority_at);
    }

    fn criteria(&mut self, node: Node<'_, 'a>) -> Result<Criteria, ()> {
        self.attribute(node, "type", &["inclusive"]).ok_or(())?;
        let children = self.children(node, &IN_CRITERIA);
        let deadline = self.time_of(&children, "relative_deadline");
        let period = self.time_of(&children, "period");
        let priority = match self.one(&children, "priority") {
            None => None,
            Some(node) => Some((self.number(node, 255).ok_or(())? as u8, self.at(node))),
        };
        Ok(Criteria { deadline: deadline?, period: period?, priority })
    }

    fn note(&mut self, text: &str) {
        if self.notes.iter().all(|note| note != text) {
            self.notes.push(text.to_owned());
        }
    }
}

/// Scheduling parameters of an SF3P worker.
#[derive(Default)]
struct Criteria {
    deadline: Option<(Span, Range<usize>)>,
    period: Option<(Span, Range<usize>)>,
    priority: Option<(u8, Range<usize>)>,
}

/// Returns a name cut to 40 characters.
fn cut(name: &str) -> String {
    name.chars().take(40).collect()
}
