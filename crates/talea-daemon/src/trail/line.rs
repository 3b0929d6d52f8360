//! Format of the audit trail: one JSON object per line.
//!
//! Every line starts with `{"seq":N,"time":"T"`. `seq` counts the lines of one subject from 1; the
//! reader detects missing ones. `time` is UTC with microseconds, always of one length, so that
//! times can be compared as text. Keys without a value are absent. The manual lists the keys
//! (`docs/manual/audit.md`).

use rustix::time::{ClockId, clock_gettime};
use std::fmt::{self, Write};
use talea_broker::AuditRecord;
use talea_broker::trail::{AuditEvent, DemotionCause, Seen, SpecEnd, ThreadEnd};
use talea_core::{Monotonic, Policy};
use talea_os::clock;
use talea_proto::message::DetachCause;

const SECOND_NS: i128 = 1_000_000_000;

/// Relation of the monotonic clock to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Time of day minus monotonic time, in nanoseconds.
    offset_ns: i128,
    now: Monotonic,
}

impl Clocks {
    /// Reads both clocks.
    pub fn now() -> Clocks {
        let now = clock::now();
        let time = clock_gettime(ClockId::Realtime);
        let time_ns = i128::from(time.tv_sec) * SECOND_NS + i128::from(time.tv_nsec);
        Clocks { offset_ns: time_ns - i128::from(now.as_ns()), now }
    }

    fn time(&self, at: Monotonic) -> Time {
        let ns = (self.offset_ns + i128::from(at.as_ns())).max(0);
        Time { ns: u64::try_from(ns).unwrap_or(u64::MAX) }
    }
}

/// A time of day, printed in UTC with microseconds (RFC 3339).
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Nanoseconds since 1 January 1970.
    pub ns: u64,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, us) = (self.ns / 1_000_000_000, self.ns / 1_000 % 1_000_000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
    }
}

/// Returns year, month and day of a day since 1 January 1970, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days_of = |year: u64| if is_leap(year) { 366 } else { 365 };
    // A whole cycle of the calendar has 146,097 days.
    let (mut year, mut rest) = (1970 + 400 * (days / 146_097), days % 146_097);
    while rest >= days_of(year) {
        rest -= days_of(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while rest >= months[month] {
        rest -= months[month];
        month += 1;
    }
    (year, month as u64 + 1, rest + 1)
}

/// Events that were lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// Number of events.
    pub count: u64,
    first: Option<Monotonic>,
    last: Option<Monotonic>,
    /// Error of the last failure to write; 0 if the buffer was full.
    errno: i32,
}

impl Lost {
    /// Adds lost events.
    pub fn add(&mut self, count: u64, first: Monotonic, last: Monotonic, errno: i32) {
        self.merge(&Lost { count, first: Some(first), last: Some(last), errno });
    }

    /// Adds the events of `other`.
    pub fn merge(&mut self, other: &Lost) {
        self.count += other.count;
        self.first = self.first.or(other.first);
        self.last = other.last.or(self.last);
        self.errno = if other.errno == 0 { self.errno } else { other.errno };
    }
}

/// Text that is escaped for JSON.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                control if control.is_control() => write!(f, "\\u{:04x}", u32::from(control))?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

/// A line in progress.
struct Line(String);

impl Line {
    fn new(seq: u64, time: Time, event: &str) -> Line {
        let mut line = Line(String::with_capacity(256));
        // Writing to a String cannot fail.
        let _ = write!(line.0, "{{\"seq\":{seq},\"time\":\"{time}\",\"event\":\"{event}\"");
        line
    }

    fn number(&mut self, key: &str, number: impl fmt::Display) -> &mut Line {
        let _ = write!(self.0, ",\"{key}\":{number}");
        self
    }

    fn text(&mut self, key: &str, text: &str) -> &mut Line {
        let _ = write!(self.0, ",\"{key}\":{}", Text(text));
        self
    }

    fn end(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}

/// Returns the line of the start of the daemon. `before` is whether the trail has an earlier start,
/// and whether that daemon has recorded its stop.
pub fn start(seq: u64, clocks: &Clocks, before: Option<bool>) -> String {
    let mut line = Line::new(seq, clocks.time(clocks.now), "start");
    line.number("pid", std::process::id()).text("version", env!("CARGO_PKG_VERSION"));
    if before == Some(false) {
        line.text("cause", "no-stop-recorded");
    }
    line.end()
}

/// Returns the line of the orderly end of the daemon.
pub fn stop(seq: u64, clocks: &Clocks) -> String {
    let mut line = Line::new(seq, clocks.time(clocks.now), "stop");
    line.number("pid", std::process::id());
    line.end()
}

/// Returns the line of lost events.
pub fn lost(seq: u64, clocks: &Clocks, lost: &Lost) -> String {
    let first = lost.first.unwrap_or(clocks.now);
    let mut line = Line::new(seq, clocks.time(first), "lost");
    line.number("count", lost.count);
    line.text("last", &clocks.time(lost.last.unwrap_or(first)).to_string());
    if lost.errno != 0 {
        line.number("errno", lost.errno);
    }
    line.end()
}

/// Returns the line of a record.
pub fn record(seq: u64, clocks: &Clocks, record: &AuditRecord) -> String {
    let mut line = Line::new(seq, clocks.time(record.first), event_name(&record.event));
    let is_about_daemon = record.subject.is_none();
    match record.uid {
        _ if is_about_daemon => {}
        u32::MAX => {}
        uid => drop(line.number("uid", uid)),
    }
    if record.process.pid != 0 {
        line.number("pid", record.process.pid).number("pid_start", record.process.start);
    }
    if record.count != 1 {
        line.number("count", record.count);
        line.text("last", &clocks.time(record.last).to_string());
    }
    if record.spec.0 != 0 {
        line.number("spec", record.spec.0);
    }
    if let Some(plugin) = &record.plugin {
        line.text("plugin", plugin.as_str());
    }
    if let Some(thread) = &record.thread {
        line.number("tid", thread.tid).number("tgid", thread.tgid);
        for (key, number) in [("tid_start", thread.start), ("tid_inode", thread.inode)] {
            if number != 0 {
                line.number(key, number);
            }
        }
    }
    if let Some(rule) = &record.rule {
        line.text("rule", rule);
    }
    if let Some(by) = record.by {
        line.number("by", by);
    }
    write_event(&mut line, &record.event);
    line.end()
}

fn write_event(line: &mut Line, event: &AuditEvent) {
    match event {
        AuditEvent::Grant { cpu } | AuditEvent::Change { cpu } => {
            if let Some(cpu) = cpu {
                line.number("cpu", cpu);
            }
        }
        AuditEvent::Adopt { .. } | AuditEvent::Claim | AuditEvent::Attach | AuditEvent::Reload => {}
        AuditEvent::Release(end) => drop(line.text("cause", spec_end(*end))),
        AuditEvent::Detach(end) => drop(line.text("cause", thread_end(*end))),
        AuditEvent::Demotion(cause) => drop(line.text("cause", demotion(*cause))),
        AuditEvent::Drift(seen) => match &**seen {
            Seen::Uids(uids) => {
                let ids = format!("[{},{},{}]", uids.real, uids.effective, uids.saved);
                line.number("seen_uids", ids);
            }
            Seen::Attr(attr) => {
                line.text("seen_policy", &policy(&attr.policy));
                line.text("seen_cpus", &attr.cpus.to_string());
            }
        },
        AuditEvent::Overrun { consumed, budget, period } => {
            line.number("consumed_ns", consumed.as_ns()).number("budget_ns", budget.as_ns());
            line.number("period_ns", period.as_ns());
        }
        AuditEvent::Refusal { request, code, field, asked, limit, errno, reason } => {
            line.text("request", request).text("code", code.stable_name());
            line.text("field", field.stable_name());
            if *asked != 0 || *limit != 0 {
                line.number("asked", asked).number("limit", limit);
            }
            if errno.0 != 0 {
                line.number("errno", errno.0);
            }
            if let Some((plugin, text)) = reason.as_deref() {
                line.text("reason_of", plugin.as_str()).text("reason", text.as_str());
            }
        }
        AuditEvent::Starved { cpu } => drop(line.number("cpu", cpu)),
        AuditEvent::Nice { nice } => drop(line.number("nice", nice)),
    }
}

fn event_name(event: &AuditEvent) -> &'static str {
    match event {
        AuditEvent::Grant { .. } => "grant",
        AuditEvent::Adopt { .. } => "adopt",
        AuditEvent::Claim => "claim",
        AuditEvent::Change { .. } => "change",
        AuditEvent::Release(_) => "release",
        AuditEvent::Attach => "attach",
        AuditEvent::Detach(_) => "detach",
        AuditEvent::Demotion(_) => "demotion",
        AuditEvent::Drift(_) => "drift",
        AuditEvent::Overrun { .. } => "overrun",
        AuditEvent::Refusal { .. } => "refusal",
        AuditEvent::Starved { .. } => "starved",
        AuditEvent::Reload => "reload",
        AuditEvent::Nice { .. } => "nice",
    }
}

/// Names of all events.
pub const EVENTS: [&str; 17] = [
    "grant", "adopt", "claim", "change", "release", "attach", "detach", "demotion", "drift",
    "overrun", "refusal", "starved", "reload", "nice", "start", "stop", "lost",
];

fn spec_end(end: SpecEnd) -> &'static str {
    match end {
        SpecEnd::Requested => "requested",
        SpecEnd::Administrator => "administrator",
        SpecEnd::OwnerEnded => "owner-ended",
        SpecEnd::Stopped => "daemon-stopped",
    }
}

fn thread_end(end: ThreadEnd) -> &'static str {
    match end {
        ThreadEnd::Requested => "requested",
        ThreadEnd::Exited => "exited",
        ThreadEnd::OwnerEnded => "owner-ended",
        ThreadEnd::Stopped => "daemon-stopped",
    }
}

fn demotion(cause: DemotionCause) -> &'static str {
    match cause {
        DemotionCause::Detached(DetachCause::Credentials) => "credentials",
        DemotionCause::Detached(DetachCause::Affinity) => "affinity",
        DemotionCause::Detached(DetachCause::Policy) => "policy",
        DemotionCause::Detached(DetachCause::Starvation) => "starvation",
        DemotionCause::Detached(DetachCause::Offline) => "offline",
        DemotionCause::Overrun => "overrun",
        DemotionCause::Administrator => "administrator",
    }
}

fn policy(policy: &Policy) -> String {
    match policy {
        Policy::Other { nice } => format!("other, nice {nice}"),
        Policy::Batch { nice } => format!("batch, nice {nice}"),
        Policy::Idle => "idle".to_owned(),
        Policy::Fifo(priority) => format!("fifo {}", priority.0),
        Policy::Rr(priority) => format!("rr {}", priority.0),
        Policy::Deadline { runtime, deadline, period } => {
            format!("deadline {runtime}/{deadline}/{period}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_of_one_length() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001_000, "2000-02-29T00:00:00.000001Z"),
            (4_107_542_399_999_999_999, "2100-02-28T23:59:59.999999Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000Z"),
            (1_795_849_200_000_000_000, "2026-11-28T07:00:00.000000Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551Z"),
        ] {
            assert_eq!(Time { ns }.to_string(), text);
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(Text("a\"b\\c\n\u{7f}é").to_string(), "\"a\\\"b\\\\c\\u000a\\u007fé\"");
    }
}
