//! Changes of single values of a system, written in one line (`--what-if`).
//!
//! ```text
//! change   = quantity "(" name ")" operator value
//! quantity = "cost" | "jitter"                of tasks
//!          | "budget"                         of servers
//!          | "period" | "deadline" | "offset" of both
//! name     = a task or server, or the beginning of several with "*"
//! operator = "*" | "/" | "+" | "-" | "="
//! value    = a plain decimal after "*" and "/", else a duration
//! ```
//!
//! Multiplication is exact and rounds up to a nanosecond, which is safe for costs. A deadline that
//! equals the period follows the period. If a cost is scaled, the offsets of its job's steps scale,
//! too. If a cost grows or shrinks by an amount, the offsets are unchanged. A step beyond the cost
//! then happens at the end of the job, or not at all, as in any job that costs less. Listed
//! arrivals have no period, and a jitter stays below its period, as in a file.

use crate::system::System;
use std::fmt;
use talea_config::duration::parse_span;
use talea_config::suggest::nearest;
use talea_core::engine::{NodeSpec, TaskSpec};
use talea_core::mutate;
use talea_core::server::Reservation;
use talea_core::workload::distances::{DistanceFunction, DistanceSpec};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// Value that a change can apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Cost,
    Period,
    Deadline,
    Jitter,
    Offset,
    Budget,
}

const QUANTITIES: [(&str, Quantity); 6] = [
    ("cost", Quantity::Cost),
    ("period", Quantity::Period),
    ("deadline", Quantity::Deadline),
    ("jitter", Quantity::Jitter),
    ("offset", Quantity::Offset),
    ("budget", Quantity::Budget),
];

impl Quantity {
    fn is_of_servers(self) -> bool {
        !matches!(self, Quantity::Cost | Quantity::Jitter)
    }

    fn is_of_tasks(self) -> bool {
        self != Quantity::Budget
    }

    /// Returns the kind of item that has the value.
    fn whose(self) -> &'static str {
        match self {
            Quantity::Cost | Quantity::Jitter => "task",
            Quantity::Budget => "server",
            Quantity::Period | Quantity::Deadline | Quantity::Offset => "task or server",
        }
    }
}

/// Operation of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// Scales by a fraction: numerator and denominator.
    Scale(u64, u64),
    Add(Span),
    Subtract(Span),
    Set(Span),
}

/// Change that was read and not yet applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    quantity: Quantity,
    name: String,
    operation: Operation,
    text: String,
}

/// Reason why a change could not be read or applied, with the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeError {
    change: String,
    why: String,
    is_unknown: bool,
}

impl ChangeError {
    /// Whether the system has no item of the name, so that nothing was changed.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what-if {:?}: {}", self.change, self.why)
    }
}

impl std::error::Error for ChangeError {}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Change {
    /// Reads a change such as `cost(video)*1.2`.
    ///
    /// # Errors
    /// The fault of the text, and a remedy.
    pub fn parse(text: &str) -> Result<Change, ChangeError> {
        let wrong = |why: String| ChangeError { change: text.into(), why, is_unknown: false };
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let parts = plain.split_once('(').and_then(|(quantity, rest)| {
            let (name, change) = rest.split_once(')')?;
            let operator = change.chars().next()?;
            Some((quantity, name, operator, &change[operator.len_utf8()..]))
        });
        let Some((quantity, name, operator, value)) = parts else {
            return Err(wrong("write it like cost(video)*1.2 or period(video)=20ms".into()));
        };
        let Some(&(_, quantity)) = QUANTITIES.iter().find(|(known, _)| *known == quantity) else {
            let names = QUANTITIES.map(|(name, _)| name);
            let known = match nearest(quantity, names) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("there are {}", names.join(", ")),
            };
            return Err(wrong(format!("there is no quantity {quantity:?}; {known}")));
        };
        if name.is_empty() {
            return Err(wrong("say whose: a name, or * for all".into()));
        }
        let span = || {
            parse_span(value).map_err(|error| wrong(format!("{value:?} is no duration: {error}")))
        };
        let ratio = || {
            decimal(value).filter(|&(parts, _)| parts > 0).ok_or_else(|| {
                wrong(format!("{value:?} is no factor: write a plain decimal above zero, such as 1.2, with 9 decimals at most"))
            })
        };
        let operation = match operator {
            '*' => ratio().map(|(parts, of)| Operation::Scale(parts, of))?,
            '/' => ratio().map(|(parts, of)| Operation::Scale(of, parts))?,
            '+' => Operation::Add(span()?),
            '-' => Operation::Subtract(span()?),
            '=' => Operation::Set(span()?),
            other => return Err(wrong(format!("{other:?} is no operator: there are * / + - ="))),
        };
        Ok(Change { quantity, name: name.into(), operation, text: text.into() })
    }

    /// Whether the change names this item. The function records the name for suggestions.
    fn is_called(&self, name: &str, names: &mut Vec<String>) -> bool {
        names.push(name.into());
        self.name.strip_suffix('*').map_or(self.name == name, |start| name.starts_with(start))
    }

    fn server(&self, reservation: &mut Reservation) -> Result<(), String> {
        match self.quantity {
            Quantity::Budget => reservation.budget = self.work(reservation.budget)?,
            Quantity::Offset => reservation.offset = self.span(reservation.offset, 0)?,
            Quantity::Deadline => {
                reservation.deadline = Some(self.span(reservation.relative_deadline(), 1)?);
            }
            _ => {
                let period = self.span(reservation.period, 1)?;
                if reservation.deadline == Some(reservation.period) {
                    reservation.deadline = Some(period);
                }
                reservation.period = period;
            }
        }
        Ok(())
    }

    fn task(&self, spec: &mut TaskSpec, source: &mut Source) -> Result<(), String> {
        match self.quantity {
            // Without end stays without end.
            Quantity::Cost if source.is_endless() => {}
            Quantity::Cost => {
                self.cost(&mut source.cost)?;
                spec.cost = spec.cost.map(|cost| self.work(cost)).transpose()?;
            }
            Quantity::Deadline => spec.deadline = self.span(spec.deadline, 1)?,
            Quantity::Period => {
                let period = self.span(spec.period, 1)?;
                if mutate!(
                    "system-what-if-deadline",
                    spec.deadline == spec.period,
                    spec.deadline > spec.period
                ) {
                    spec.deadline = period;
                }
                match &mut source.arrivals {
                    Arrivals::Periodic { period: own, .. } => *own = period,
                    Arrivals::Sporadic { separation, .. } => *separation = period,
                    // Its arrivals are listed or come from activations, so the period would only
                    // change the priority under `rm`.
                    Arrivals::Curve { distances, .. } => {
                        let DistanceSpec::Jittered { jitter, separation, .. } = *distances.spec()
                        else {
                            return Err(
                                "its jobs come by their distances, not with a period".into()
                            );
                        };
                        let spec = DistanceSpec::Jittered { period, jitter, separation };
                        let changed = DistanceFunction::new(spec);
                        **distances = changed
                            .map_err(|_| format!("its curve permits no period of {period}"))?;
                    }
                    Arrivals::List(_) | Arrivals::Observed(_)
                        if mutate!("what-if-listed", !spec.enforced, spec.enforced) =>
                    {
                        return Err("its jobs come when they are listed, not with a period".into());
                    }
                    Arrivals::List(_) | Arrivals::Observed(_) => {}
                }
                spec.period = period;
            }
            _ => self.arrivals(&mut source.arrivals)?,
        }
        Ok(())
    }

    /// Applies the change. Afterwards the system may be one that no file could describe. Building
    /// its engines then returns the error.
    ///
    /// # Errors
    /// No task or server has the name, or a value would fall below its minimum.
    pub fn make(&self, system: &mut System) -> Result<(), ChangeError> {
        let wrong = |why: String| ChangeError { change: self.text.clone(), why, is_unknown: false };
        let mut found = false;
        let mut names: Vec<String> = Vec::new();
        for root in &mut system.roots {
            let nodes: Vec<_> = root.tree.nodes().map(|(node, _)| node).collect();
            let mut task = 0;
            for node in nodes {
                let node = root.tree.get_mut(node).expect("it was just there");
                let changed = match &mut node.spec {
                    NodeSpec::Scheduler(spec) => {
                        let Some(reservation) = &mut spec.reservation else { continue };
                        if !self.quantity.is_of_servers() || !self.is_called(&spec.name, &mut names)
                        {
                            continue;
                        }
                        self.server(reservation)
                    }
                    NodeSpec::Task(spec) => {
                        task += 1;
                        if !self.quantity.is_of_tasks() || !self.is_called(&spec.name, &mut names) {
                            continue;
                        }
                        self.task(spec, &mut root.sources[task - 1])
                    }
                };
                changed.map_err(wrong)?;
                found = true;
            }
        }
        if found {
            return Ok(());
        }
        let kind = self.quantity.whose();
        let known = match nearest(&self.name, names.iter().map(String::as_str)) {
            Some(meant) => format!("; did you mean {meant}?"),
            None if names.is_empty() => format!("; there is no {kind} at all"),
            None => String::new(),
        };
        let why = format!("there is no {kind} {:?}{known}", self.name);
        Err(ChangeError { is_unknown: true, ..wrong(why) })
    }

    fn span(&self, before: Span, least: u64) -> Result<Span, String> {
        let after = match self.operation {
            Operation::Scale(parts, of) => {
                u64::try_from((u128::from(before.as_ns()) * u128::from(parts)).div_ceil(of.into()))
                    .ok()
                    .map(Span::from_ns)
            }
            Operation::Add(more) => before.checked_add(more),
            Operation::Subtract(less) => before.checked_sub(less),
            Operation::Set(value) => Some(value),
        };
        let longest = talea_core::engine::MAX_RUN;
        after.filter(|after| (least..=longest.as_ns()).contains(&after.as_ns())).ok_or_else(|| {
            format!(
                "{before} would become too short or too long: at least {} and at most {longest} are possible",
                Span::from_ns(least)
            )
        })
    }

    fn work(&self, before: Work) -> Result<Work, String> {
        self.span(Span::from_ns(before.as_ns()), 1).map(|span| Work::from_ns(span.as_ns()))
    }

    fn cost(&self, cost: &mut Cost) -> Result<(), String> {
        match cost {
            Cost::Constant(work) => *work = self.work(*work)?,
            Cost::Uniform { min, max } => (*min, *max) = (self.work(*min)?, self.work(*max)?),
            Cost::Pair { low, high, .. } => (*low, *high) = (self.work(*low)?, self.work(*high)?),
            Cost::List(list) => {
                for work in list {
                    *work = self.work(*work)?;
                }
            }
            Cost::Versions(costs) => costs.iter_mut().try_for_each(|cost| self.cost(cost))?,
            Cost::WithSteps { base: of, steps: marks } => {
                self.cost(of)?;
                if matches!(self.operation, Operation::Scale(..)) {
                    for mark in marks
                        .iter_mut()
                        .filter(|mark| mark.at.as_ns() < u64::MAX && !mark.at.is_zero())
                    {
                        mark.at = self.work(mark.at)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn arrivals(&self, arrivals: &mut Arrivals) -> Result<(), String> {
        let place = match (self.quantity, arrivals) {
            (Quantity::Jitter, Arrivals::Periodic { jitter, .. }) => jitter,
            (
                Quantity::Offset,
                Arrivals::Periodic { offset, .. }
                | Arrivals::Sporadic { offset, .. }
                | Arrivals::Curve { offset, .. },
            ) => offset,
            _ => return Err("its arrivals have no such value".into()),
        };
        *place = self.span(*place, 0)?;
        Ok(())
    }
}

/// Returns a plain decimal as a fraction: numerator, and a power of ten as denominator.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || !is_plain(whole)
        || !is_plain(fraction)
        || whole.len() > 9
        || fraction.len() > 9
    {
        return None;
    }
    let of = 10u64.pow(fraction.len() as u32);
    Some((format!("{whole}{fraction}").parse().ok()?, of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use std::fmt::Write;

    const TEXT: &str = r#"
[[scheduler]]
name = "cpu"
policy = "fp"

[[scheduler]]
name = "band"
in = "cpu"
policy = "fifo"
server = "deferrable"
budget = "2ms"
period = "10ms"

[[task]]
name = "video"
in = "cpu"
period = "20ms"
cost = "5ms"

[[task]]
name = "voice"
in = "band"
period = "10ms"
deadline = "8ms"
cost = { min = "1ms", max = "2ms" }
"#;

    fn system() -> System {
        read(TEXT, "test", &()).unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    fn after(change: &str) -> Result<String, String> {
        let mut system = system();
        let change = Change::parse(change).map_err(|error| error.to_string())?;
        change.make(&mut system).map_err(|error| error.to_string())?;
        let root = &system.roots[0];
        let mut seen = String::new();
        let mut task = 0;
        for (_, node) in root.tree.nodes() {
            match &node.spec {
                NodeSpec::Scheduler(spec) => {
                    if let Some(reservation) = &spec.reservation {
                        let _ = write!(
                            seen,
                            "{} {}/{}; ",
                            spec.name, reservation.budget, reservation.period
                        );
                    }
                }
                NodeSpec::Task(spec) => {
                    let source = &root.sources[task];
                    task += 1;
                    let Arrivals::Periodic { offset, period, jitter } = &source.arrivals else {
                        panic!("periodic")
                    };
                    assert_eq!(*period, spec.period);
                    let _ = write!(
                        seen,
                        "{} {} {offset}+{period}+{jitter} {}; ",
                        spec.name,
                        source.cost.max(),
                        spec.deadline
                    );
                }
            }
        }
        Ok(seen)
    }

    #[test]
    fn values_change_and_nothing_else_does() {
        let all = |server: &str, video: &str, voice: &str| {
            Ok(format!("band {server}; video {video}; voice {voice}; "))
        };
        let (server, video, voice) = ("2ms/10ms", "5ms 0+20ms+0 20ms", "2ms 0+10ms+0 8ms");
        for (change, expected) in [
            ("cost(video)*1.2", all(server, "6ms 0+20ms+0 20ms", voice)),
            ("cost(video) / 2", all(server, "2500us 0+20ms+0 20ms", voice)),
            ("cost(video)/3", all(server, "1666667ns 0+20ms+0 20ms", voice)),
            ("cost(v*)+1ms", all(server, "6ms 0+20ms+0 20ms", "3ms 0+10ms+0 8ms")),
            ("cost(*)-500us", all(server, "4500us 0+20ms+0 20ms", "1500us 0+10ms+0 8ms")),
            ("cost(voice)=700us", all(server, video, "700us 0+10ms+0 8ms")),
            ("period(video)=30ms", all(server, "5ms 0+30ms+0 30ms", voice)),
            ("period(voice)=30ms", all(server, video, "2ms 0+30ms+0 8ms")),
            ("deadline(video)-5ms", all(server, "5ms 0+20ms+0 15ms", voice)),
            ("jitter(video)=1ms", all(server, "5ms 0+20ms+1ms 20ms", voice)),
            ("offset(video)+3ms", all(server, "5ms 3ms+20ms+0 20ms", voice)),
            ("budget(band)*1.5", all("3ms/10ms", video, voice)),
            ("period(band)=5ms", all("2ms/5ms", video, voice)),
            ("period(*)*2", all("2ms/20ms", "5ms 0+40ms+0 40ms", "2ms 0+20ms+0 8ms")),
        ] {
            assert_eq!(after(change), expected, "{change}");
        }
    }

    #[test]
    fn nonsense_is_named_with_what_would_be_right() {
        for (change, part) in [
            ("video*2", "write it like"),
            ("cost(video)", "write it like"),
            ("costs(video)*2", "did you mean cost"),
            ("weight(video)*2", "there are cost, period"),
            ("cost()*2", "say whose"),
            ("cost(video)^2", "there are * / + - ="),
            ("cost(video)*2ms", "plain decimal"),
            ("cost(video)*0", "above zero"),
            ("cost(video)*-1", "plain decimal"),
            ("cost(video)*1.0000000001", "9 decimals"),
            ("cost(video)+2", "no duration"),
            ("cost(vidoe)*2", "did you mean video"),
            ("cost(xyzzy)*2", "there is no task \"xyzzy\""),
            ("budget(video)*2", "there is no server \"video\""),
            ("cost(video)-5ms", "too short or too long"),
            ("period(video)=0", "too short or too long"),
        ] {
            let error = after(change).expect_err(change);
            assert!(error.contains(part), "{change}: {error}");
        }
    }

    #[test]
    fn what_no_file_could_say_of_arrivals_is_refused() {
        let listed = "[[task]]\nname = \"alarm\"\nin = \"cpu\"\nperiod = \"9ms\"\narrivals = [\"1ms\", \"7ms\"]\ncost = \"1ms\"\n";
        let late = "[[task]]\nname = \"late\"\nin = \"cpu\"\nperiod = \"9ms\"\njitter = \"4ms\"\ncost = \"1ms\"\n";
        let text = format!("{TEXT}{listed}{late}");
        let make = |change: &str| {
            let mut system = read(&text, "test", &()).unwrap_or_else(|errors| panic!("{errors:?}"));
            Change::parse(change).expect("one").make(&mut system).map_err(|error| error.to_string())
        };
        for (change, part) in [
            ("period(alarm)*2", "come when they are listed"),
            ("jitter(alarm)=1ms", "no such value"),
        ] {
            let error = make(change).expect_err(change);
            assert!(error.contains(part), "{change}: {error}");
        }
        for change in
            ["period(late)=5ms", "jitter(late)=8ms", "cost(alarm)*2", "deadline(alarm)=3ms"]
        {
            assert_eq!(make(change), Ok(()), "{change}");
        }
    }
}
