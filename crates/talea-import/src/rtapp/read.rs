//! Reader of rt-app's terms: threads with their properties, phases, events.

use super::workload::{Class, Event, Loops, Phase, Thread, What, Workload, note};
use crate::json::{Json, Member, Value};
use crate::names::Names;
use std::ops::Range;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_config::suggest;
use talea_core::Span;
use talea_core::mutate;

/// Maximum number of threads in one file.
const THREADS_MAX: usize = 10_000;
const INSTANCES_MAX: u64 = 10_000;
/// Default priority of rt-app.
const PRIORITY: u8 = 10;

const TOP: [&str; 3] = ["global", "resources", "tasks"];
const GLOBAL: [&str; 17] = [
    "duration",
    "default_policy",
    "pi_enabled",
    "calibration",
    "lock_pages",
    "logdir",
    "log_basename",
    "log_size",
    "ftrace",
    "gnuplot",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
    "frag",
    "logstats",
    "pi",
    "resources",
];
const THREAD: [&str; 5] = ["instance", "delay", "loop", "phases", "taskgroup"];
/// Keys of a thread or of one of its phases.
const PROPERTIES: [&str; 9] = [
    "policy",
    "priority",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "cpus",
    "nodes_membind",
    "util_min",
    "util_max",
];

/// Names of events, the longer names first, because a key may have a suffix.
const EVENTS: [&str; 21] = [
    "sem_post", "sem_wait", "runtime", "barrier", "suspend", "memrun", "unlock", "resume",
    "signal", "iorun", "sleep", "timer", "broad", "yield", "lock", "wait", "sync", "fork", "sig",
    "mem", "run",
];

const POLICIES: [&str; 6] =
    ["SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_RR", "SCHED_FIFO", "SCHED_DEADLINE"];

/// Reads the contents of a file.
pub(super) fn workload(
    root: &Json<'_>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<Workload> {
    let mut read = Read { notes, findings, default_policy: "SCHED_OTHER", names: Names::default() };
    let top = read.object(root, "the file")?;
    let mut workload = Workload { duration: None, inheritance: false, threads: Vec::new() };
    let top = read.members(top, "the file", |key| TOP.contains(&key), &TOP);
    // The resources are made by the threads that name them.
    if let Some(global) = top.iter().find(|member| member.key == "global") {
        read.global(&global.value, &mut workload);
    }
    let Some(tasks) = top.iter().find(|member| member.key == "tasks") else {
        read.error(
            &root.at,
            "there is no `tasks`".to_owned(),
            "there is nothing to run",
            "add \"tasks\": { … }",
        );
        return None;
    };
    let tasks = read.object(&tasks.value, "`tasks`")?;
    if tasks.is_empty() || tasks.len() > THREADS_MAX {
        let what = format!("there are {} threads", tasks.len());
        read.error(&root.at, what, "a workload has 1 to 10000", "add some, or use several files");
        return None;
    }
    let threads: Vec<Option<Thread>> = tasks.iter().map(|member| read.thread(member)).collect();
    workload.threads = threads.into_iter().collect::<Option<_>>()?;
    Some(workload)
}

struct Read<'a, 's> {
    notes: &'a mut Vec<String>,
    findings: &'a mut Findings<'s>,
    default_policy: &'static str,
    names: Names,
}

impl Read<'_, '_> {
    fn error(&mut self, at: &Range<usize>, what: String, why: &str, remedy: &str) {
        self.findings.error(at, words(what, why, remedy));
    }

    fn object<'j, 't>(&mut self, json: &'j Json<'t>, name: &str) -> Option<&'j [Member<'t>]> {
        match &json.value {
            Value::Object(members) => Some(members),
            other => {
                let what = format!("{name} is {}, not an object", other.kind());
                self.error(&json.at, what, "its parts have names", "write { … }");
                None
            }
        }
    }

    /// Returns the members with known keys. The function reports unknown keys, and repeated keys
    /// except events.
    fn members<'j, 't>(
        &mut self,
        members: &'j [Member<'t>],
        of: &str,
        known: impl Fn(&str) -> bool,
        names: &[&str],
    ) -> Vec<&'j Member<'t>> {
        let mut found: Vec<&Member<'t>> = Vec::new();
        for member in members {
            if !known(&member.key) {
                let what = format!("{} means nothing in {of}", quoted(&member.key));
                let remedy = match suggest::nearest(&member.key, names.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known are {}", suggest::list(names.iter().copied())),
                };
                self.error(&member.key_at, what, "it would be ignored without a word", &remedy);
            } else if mutate!(
                "import-rtapp-repeated",
                event(&member.key).is_none() && found.iter().any(|other| other.key == member.key),
                found.iter().any(|other| other.key == member.key)
            ) {
                let what = format!("{} is there twice", quoted(&member.key));
                self.error(&member.key_at, what, "only one of them can hold", "leave one out");
            } else {
                found.push(member);
            }
        }
        found
    }

    fn number(&mut self, json: &Json<'_>, name: &str, range: (i64, i64)) -> Option<i64> {
        let number = match json.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| (range.0..=range.1).contains(number));
        if number.is_none() {
            let what = format!("`{name}` is not a whole number from {} to {}", range.0, range.1);
            let why = match json.value {
                Value::Number(text) => format!("it is {}", quoted(text)),
                ref other => format!("it is {}", other.kind()),
            };
            let remedy = format!("write a number such as {}", 1_000.clamp(range.0.max(1), range.1));
            self.error(&json.at, what, &why, &remedy);
        }
        number
    }

    /// Reads a number of microseconds.
    fn time(&mut self, json: &Json<'_>, name: &str, least: i64) -> Option<Span> {
        // A month, in microseconds.
        let us = self.number(json, name, (least, 2_592_000_000_000))?;
        Some(Span::from_ns(us as u64 * 1_000))
    }

    fn text<'j>(&mut self, json: &'j Json<'_>, name: &str) -> Option<&'j str> {
        match &json.value {
            Value::Text(text) => Some(text),
            other => {
                let what = format!("`{name}` is {}, not a text", other.kind());
                self.error(&json.at, what, "it is a name", "write it in quotes");
                None
            }
        }
    }

    fn global(&mut self, json: &Json<'_>, workload: &mut Workload) {
        let Some(members) = self.object(json, "`global`") else { return };
        for member in self.members(members, "`global`", |key| GLOBAL.contains(&key), &GLOBAL) {
            match &*member.key {
                "duration" => {
                    let seconds = self.number(&member.value, "duration", (-1, 31_536_000));
                    let Some(seconds @ 1..) = seconds else { continue };
                    workload.duration = Some((
                        Span::from_ns(seconds as u64 * 1_000_000_000),
                        member.value.at.clone(),
                    ));
                }
                "default_policy" => {
                    if let Some(policy) = self.policy(&member.value) {
                        self.default_policy = policy;
                    }
                }
                "pi_enabled" => {
                    if let Value::Bool(enabled) = member.value.value {
                        workload.inheritance = enabled;
                    } else {
                        let what = "`pi_enabled` is neither true nor false".to_owned();
                        let why = "it says whether locks inherit";
                        self.error(&member.value.at, what, why, "write true or false");
                    }
                }
                // About logs and the machine, not about the workload.
                _ => {}
            }
        }
    }

    fn policy(&mut self, json: &Json<'_>) -> Option<&'static str> {
        let text = self.text(json, "policy")?;
        let found = POLICIES.into_iter().find(|policy| policy.eq_ignore_ascii_case(text));
        if found.is_none() {
            let what = format!("{} is not a policy", quoted(text));
            let remedy = match suggest::nearest(text, POLICIES) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("write one of {}", suggest::list(POLICIES)),
            };
            self.error(&json.at, what, "rt-app has no such value", &remedy);
        }
        found
    }

    fn thread(&mut self, member: &Member<'_>) -> Option<Thread> {
        let called = quoted(&member.key);
        let all = self.object(&member.value, &called)?;
        let before = self.findings.has_errors();
        let known =
            |key: &str| THREAD.contains(&key) || PROPERTIES.contains(&key) || event(key).is_some();
        let names: Vec<&str> = THREAD.iter().chain(&PROPERTIES).chain(&EVENTS).copied().collect();
        if let Some(old) = all.iter().find(|member| matches!(&*member.key, "period" | "deadline")) {
            let what = format!("{} is a key of rt-app before 1.0", quoted(&old.key));
            let remedy = format!("write `dl-{}` for the deadline class, or a `timer`", old.key);
            self.error(&old.key_at, what, "what it meant depends on keys that are gone", &remedy);
            return None;
        }
        let members = self.members(all, &format!("thread {called}"), known, &names);
        let get =
            |key: &str| members.iter().find(|member| member.key == key).map(|member| &member.value);
        let instances =
            get("instance").map(|json| self.number(json, "instance", (1, INSTANCES_MAX as i64)));
        let delay = get("delay").map(|json| self.time(json, "delay", 0));
        let loops = get("loop").map_or(Some(Loops::Forever), |json| self.loops(json));
        let mut phases = Vec::new();
        match get("phases") {
            None => phases.extend(self.phase(&member.value.at, &members, Some(Loops::Times(1)))),
            Some(json) => {
                if let Some(event) = members.iter().find(|member| event(&member.key).is_some()) {
                    let what = format!("{} stands beside `phases`", quoted(&event.key));
                    self.error(
                        &event.key_at,
                        what,
                        "events of a thread with phases stand in them",
                        "move it",
                    );
                }
                for phase in self.object(json, "`phases`")? {
                    let of = format!("phase {}", quoted(&phase.key));
                    let Some(inner) = self.object(&phase.value, &of) else { continue };
                    let known = |key: &str| {
                        key == "loop" || PROPERTIES.contains(&key) || event(key).is_some()
                    };
                    let names: Vec<&str> =
                        ["loop"].iter().chain(&PROPERTIES).chain(&EVENTS).copied().collect();
                    let inner = self.members(inner, &of, known, &names);
                    self.same_properties(&inner, &members);
                    let loops = inner.iter().find(|member| member.key == "loop");
                    let loops =
                        loops.map_or(Some(Loops::Times(1)), |member| self.loops(&member.value));
                    phases.extend(self.phase(&phase.key_at, &inner, loops));
                }
            }
        }
        let class = self.class(&members, &member.key_at);
        let cpus = get("cpus").map_or(Some(Vec::new()), |json| self.cpus(json));
        for (left_out, why) in [
            ("nodes_membind", "memory is as near to one CPU as to another here"),
            ("util_min", "CPUs are all alike and at full speed here"),
            ("util_max", "CPUs are all alike and at full speed here"),
            ("taskgroup", "groups of threads have no share or limit of their own here"),
        ] {
            if get(left_out).is_some() {
                note(self.notes, &format!("`{left_out}` is left out: {why}"));
            }
        }
        let name = self.names.give(&member.key, "thread");
        if self.findings.has_errors() && !before {
            return None;
        }
        Some(Thread {
            name,
            at: member.key_at.clone(),
            instances: instances.map_or(Some(1), |found| found.map(|n| n as u32))?,
            delay: delay.unwrap_or(Some(Span::ZERO))?,
            loops: loops?,
            class: class?,
            cpus: cpus?,
            cpus_at: get("cpus").map_or_else(|| member.key_at.clone(), |json| json.at.clone()),
            phases,
        })
    }

    /// Checks that a phase repeats the properties of its thread and does not change them.
    fn same_properties(&mut self, phase: &[&Member<'_>], thread: &[&Member<'_>]) {
        for member in phase.iter().filter(|member| PROPERTIES.contains(&&*member.key)) {
            let same = thread
                .iter()
                .any(|other| other.key == member.key && alike(&other.value, &member.value));
            if !same {
                let what = format!("{} changes from phase to phase", quoted(&member.key));
                let why = "a task has the same scheduling parameters for all its jobs";
                self.error(
                    &member.key_at,
                    what,
                    why,
                    "write it for the whole thread, or make two threads of it",
                );
            }
        }
    }

    /// Reads `loop`. The value -1 repeats forever.
    fn loops(&mut self, json: &Json<'_>) -> Option<Loops> {
        match self.number(json, "loop", (-1, 1_000_000_000))? {
            -1 => Some(Loops::Forever),
            0 => {
                let remedy = "write 1 or more, or -1 for an endless loop";
                self.error(&json.at, "`loop` is 0".to_owned(), "it would never happen", remedy);
                None
            }
            loops => Some(Loops::Times(loops as u64)),
        }
    }

    fn cpus(&mut self, json: &Json<'_>) -> Option<Vec<u32>> {
        let items = match &json.value {
            Value::List(items) if !items.is_empty() => items,
            other => {
                let what = format!(
                    "`cpus` is {}",
                    if matches!(other, Value::List(_)) { "empty" } else { other.kind() }
                );
                self.error(
                    &json.at,
                    what,
                    "it lists the CPUs that a thread may use",
                    "write a list such as [0, 1]",
                );
                return None;
            }
        };
        let cpus: Vec<Option<i64>> =
            items.iter().map(|item| self.number(item, "cpus", (0, 63))).collect();
        let mut cpus: Vec<u32> =
            cpus.into_iter().map(|cpu| cpu.map(|cpu| cpu as u32)).collect::<Option<_>>()?;
        cpus.sort_unstable();
        cpus.dedup();
        Some(cpus)
    }

    fn class(&mut self, members: &[&Member<'_>], thread_at: &Range<usize>) -> Option<Class> {
        let get =
            |key: &str| members.iter().find(|member| member.key == key).map(|member| &member.value);
        let policy = get("policy").map_or(Some(self.default_policy), |json| self.policy(json))?;
        let priority = get("priority");
        match policy {
            "SCHED_FIFO" | "SCHED_RR" => {
                let level = if let Some(json) = priority {
                    self.number(json, "priority", (1, 99))? as u8
                } else {
                    note(self.notes, "a real-time thread without a `priority` has rt-app's, 10");
                    PRIORITY
                };
                Some(if policy == "SCHED_RR" {
                    Class::RoundRobin(level)
                } else {
                    Class::Fifo(level)
                })
            }
            "SCHED_DEADLINE" => {
                let mut time = |key: &str| get(key).map(|json| self.time(json, key, 1));
                let (runtime, period, deadline) =
                    (time("dl-runtime"), time("dl-period"), time("dl-deadline"));
                let Some(runtime) = runtime else {
                    let what = "a thread of the deadline class has no `dl-runtime`".to_owned();
                    self.error(
                        thread_at,
                        what,
                        "it is what the class reserves",
                        "add \"dl-runtime\": 2000",
                    );
                    return None;
                };
                // The kernel takes one for the other where only one is given.
                let (period, deadline) = match (period, deadline) {
                    (Some(period), deadline) => (period?, deadline.unwrap_or(period)?),
                    (None, Some(deadline)) => (deadline?, deadline?),
                    (None, None) => {
                        let what = "a thread of the deadline class has no `dl-period`".to_owned();
                        self.error(
                            thread_at,
                            what,
                            "its runtime comes back every period",
                            "add \"dl-period\": 10000",
                        );
                        return None;
                    }
                };
                Some(Class::Deadline { runtime: runtime?, period, deadline })
            }
            _ => {
                if let Some(json) = priority {
                    self.number(json, "priority", (-20, 19))?;
                    note(
                        self.notes,
                        "nice values are left out: the fair class is round robin here",
                    );
                }
                note(
                    self.notes,
                    "the fair class (SCHED_OTHER, BATCH and IDLE) is round robin of 3 ms here, below all others",
                );
                Some(Class::Fair)
            }
        }
    }

    fn phase(
        &mut self,
        at: &Range<usize>,
        members: &[&Member<'_>],
        loops: Option<Loops>,
    ) -> Option<Phase> {
        let mut events = Vec::new();
        let mut fine = true;
        for member in members {
            let Some(event) = event(&member.key) else { continue };
            match self.event(event, member) {
                Ok(what) => events.extend(what.map(|what| {
                    let at = member.key_at.start..member.value.at.end;
                    Event { at, what }
                })),
                Err(()) => fine = false,
            }
        }
        if fine && events.is_empty() {
            let remedy = "add a `run`, or leave it out";
            self.error(
                at,
                "there are no events in this".to_owned(),
                "it does nothing, as often as it likes",
                remedy,
            );
        }
        let phase = Phase { at: at.clone(), loops: loops?, events };
        fine.then_some(phase)
    }

    /// Reads an event; `Ok(None)` if the event has no effect. The function reports errors itself.
    fn event(&mut self, event: &str, member: &Member<'_>) -> Result<Option<What>, ()> {
        let json = &member.value;
        let some = |span: Span, what: fn(Span) -> What| (!span.is_zero()).then(|| what(span));
        match event {
            "run" => Ok(some(self.time(json, "run", 0).ok_or(())?, What::Run)),
            "runtime" => {
                note(self.notes, "`runtime` is CPU time here; in rt-app it is elapsed time");
                Ok(some(self.time(json, "runtime", 0).ok_or(())?, What::Run))
            }
            "sleep" => Ok(some(self.time(json, "sleep", 0).ok_or(())?, What::Sleep)),
            "lock" => Ok(Some(What::Lock(self.text(json, "lock").ok_or(())?.to_owned()))),
            "unlock" => Ok(Some(What::Unlock(self.text(json, "unlock").ok_or(())?.to_owned()))),
            "timer" => Ok(Some(self.timer(json).ok_or(())?)),
            _ => {
                let (why, remedy) = match event {
                    "mem" | "memrun" | "iorun" => (
                        "how long so many bytes take depends on the machine",
                        "measure it, and write `run` with its time",
                    ),
                    "yield" => ("the kernel selects the thread that runs next", "leave it out"),
                    "fork" => (
                        "it makes a thread on the way",
                        "write that thread beside this one, with a `delay`",
                    ),
                    _ => (
                        "it waits for another thread or wakes one",
                        "leave it out, and write a [[channel]] from one task to the other into the result",
                    ),
                };
                self.error(
                    &member.key_at,
                    format!("a task can't hold {}", quoted(&member.key)),
                    why,
                    remedy,
                );
                Err(())
            }
        }
    }

    fn timer(&mut self, json: &Json<'_>) -> Option<What> {
        const KEYS: [&str; 3] = ["ref", "period", "mode"];
        let members = self.object(json, "`timer`")?;
        let members = self.members(members, "`timer`", |key| KEYS.contains(&key), &KEYS);
        let get =
            |key: &str| members.iter().find(|member| member.key == key).map(|member| &member.value);
        let Some(period) = get("period") else {
            let remedy = "add \"period\": 20000";
            self.error(
                &json.at,
                "the timer has no `period`".to_owned(),
                "its expiry time is unknown",
                remedy,
            );
            return None;
        };
        let mode = match get("mode") {
            None => "relative",
            Some(json) => self.text(json, "mode")?,
        };
        match mode {
            "absolute" => {}
            "relative" => note(
                self.notes,
                "after an overrun rt-app's relative timers start anew; jobs here keep their times and queue",
            ),
            _ => {
                let at = get("mode").map_or_else(|| json.at.clone(), |json| json.at.clone());
                let remedy = "write \"relative\" or \"absolute\"";
                self.error(
                    &at,
                    format!("{} is not a mode", quoted(mode)),
                    "a timer has two",
                    remedy,
                );
                return None;
            }
        }
        self.time(period, "period", 1).map(What::Timer)
    }
}

/// Returns the event that a key names.
fn event(key: &str) -> Option<&'static str> {
    let is_other = TOP.contains(&key)
        || THREAD.contains(&key)
        || PROPERTIES.contains(&key)
        || GLOBAL.contains(&key);
    EVENTS.into_iter().find(|event| !is_other && key.starts_with(event))
}

/// Whether two values are equal. Objects never are.
fn alike(one: &Json<'_>, other: &Json<'_>) -> bool {
    match (&one.value, &other.value) {
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(_), _) | (_, Value::Object(_)) => false,
        (a, b) => a == b,
    }
}
