//! Reader of rt-app's terms: threads with their properties, phases, events.

use super::workload::{Class, Event, Line, Loops, Phase, Thread, Timer, What, Workload, note};
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

pub(super) const TOP: [&str; 3] = ["global", "resources", "tasks"];
pub(super) const GLOBAL: [&str; 17] = [
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
pub(super) const THREAD: [&str; 4] = ["instance", "delay", "loop", "phases"];
/// Keys of a thread or of one of its phases.
pub(super) const PROPERTIES: [&str; 11] = [
    "policy",
    "priority",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "cpus",
    "nodes_membind",
    "membind_nodes",
    "util_min",
    "util_max",
    "taskgroup",
];

/// Properties without an effect here, each with the reason.
const LEFT_OUT: [(&str, &str); 5] = [
    ("nodes_membind", "memory is as near to one CPU as to another here"),
    ("membind_nodes", "memory is as near to one CPU as to another here"),
    ("util_min", "CPUs are all alike and at full speed here"),
    ("util_max", "CPUs are all alike and at full speed here"),
    ("taskgroup", "groups of threads have no share or limit of their own here"),
];

/// Names of events, the longer names first, because a key may have a suffix.
pub(super) const EVENTS: [&str; 20] = [
    "sem_post", "sem_wait", "runtime", "barrier", "suspend", "memrun", "unlock", "resume",
    "signal", "iorun", "sleep", "timer", "broad", "yield", "lock", "wait", "sync", "fork", "mem",
    "run",
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
    let threads = threads.into_iter().collect::<Option<Vec<_>>>()?;
    workload.threads = threads.into_iter().filter(|thread| thread.instances > 0).collect();
    if workload.threads.is_empty() {
        let what = "no thread of the workload is started".to_owned();
        let why = "a thread with 0 instances waits for a `fork`";
        read.error(&root.at, what, why, "give a thread 1 or more instances");
        return None;
    }
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
        let get = |key: &str| find(&members, key).map(|member| &member.value);
        let instances =
            get("instance").map(|json| self.number(json, "instance", (0, INSTANCES_MAX as i64)));
        let delay = get("delay").map(|json| self.time(json, "delay", 0));
        let loops = get("loop").map_or(Some(Loops::Forever), |json| self.loops(json));
        let mut phases = Vec::new();
        // The properties that hold in each phase, those of the phase first.
        let mut held: Vec<Vec<&Member<'_>>> = Vec::new();
        match get("phases") {
            None => {
                phases.extend(self.phase(member, &members, Some(Loops::Times(1))));
                held.push(members.clone());
            }
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
                    let loops = inner.iter().find(|member| member.key == "loop");
                    let loops =
                        loops.map_or(Some(Loops::Times(1)), |member| self.loops(&member.value));
                    phases.extend(self.phase_of(&member.key, &phase.key_at, &inner, loops));
                    held.push(inner.into_iter().chain(members.iter().copied()).collect());
                }
            }
        }
        let (class, cpus) = self.properties(&held, &member.key_at)?;
        let cpus_at = held.first().and_then(|held| find(held, "cpus"));
        let cpus_at = cpus_at.map_or_else(|| member.key_at.clone(), |cpus| cpus.value.at.clone());
        for (left_out, why) in LEFT_OUT {
            if held.iter().any(|held| find(held, left_out).is_some()) {
                note(self.notes, &format!("`{left_out}` is left out: {why}"));
            }
        }
        if instances == Some(Some(0)) {
            note(self.notes, "a thread with 0 instances is left out: only a `fork` starts it");
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
            class,
            cpus,
            cpus_at,
            phases,
        })
    }

    /// Reads the scheduling parameters and the CPUs that hold in the phases. All phases must have
    /// the same.
    fn properties(
        &mut self,
        held: &[Vec<&Member<'_>>],
        thread_at: &Range<usize>,
    ) -> Option<(Class, Vec<u32>)> {
        let mut found: Option<(Class, Vec<u32>)> = None;
        for held in held {
            let cpus = match find(held, "cpus") {
                None => Vec::new(),
                Some(cpus) => self.cpus(&cpus.value)?,
            };
            let class = self.class(held, thread_at)?;
            let Some((first, first_cpus)) = &found else {
                found = Some((class, cpus));
                continue;
            };
            let changes: &[&str] = match (*first != class, *first_cpus != cpus) {
                (false, false) => continue,
                (true, _) => &["policy", "priority", "dl-runtime", "dl-period", "dl-deadline"],
                (false, true) => &["cpus"],
            };
            let changed = held.iter().find(|member| changes.contains(&&*member.key));
            let (at, key) = changed.map_or((thread_at, "policy"), |it| (&it.key_at, &*it.key));
            let what = format!("{} changes from phase to phase", quoted(key));
            let why = "a task has the same scheduling parameters for all its jobs";
            let remedy = "write it for the whole thread, or make two threads of it";
            self.error(at, what, why, remedy);
            return None;
        }
        found
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
                // rt-app's defaults: the period is the runtime, the deadline is the period.
                let runtime = runtime?;
                let period = period.unwrap_or(Some(runtime))?;
                let deadline = deadline.unwrap_or(Some(period))?;
                if period < deadline || deadline < runtime {
                    let what = format!(
                        "a reservation of {runtime} until {deadline} in every {period} is none"
                    );
                    let why = "the kernel takes runtime <= deadline <= period; without `dl-period` \
                               rt-app takes the runtime for it";
                    let remedy = "add or lengthen `dl-period`";
                    self.error(thread_at, what, why, remedy);
                    return None;
                }
                if priority.is_some_and(|json| json.value != Value::Number("0")) {
                    note(self.notes, "a `priority` in the deadline class is left out: it has none");
                }
                Some(Class::Deadline { runtime, period, deadline })
            }
            _ => {
                if get("dl-runtime").is_some() {
                    note(
                        self.notes,
                        "`dl-runtime` of a fair thread is left out: it is the slice of the thread there, and 3 ms for all here",
                    );
                }
                for key in ["dl-period", "dl-deadline"] {
                    if get(key).is_some() {
                        note(
                            self.notes,
                            &format!("`{key}` of a fair thread is left out: it has no effect"),
                        );
                    }
                }
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
        thread: &Member<'_>,
        members: &[&Member<'_>],
        loops: Option<Loops>,
    ) -> Option<Phase> {
        self.phase_of(&thread.key, &thread.value.at, members, loops)
    }

    fn phase_of(
        &mut self,
        thread: &str,
        at: &Range<usize>,
        members: &[&Member<'_>],
        loops: Option<Loops>,
    ) -> Option<Phase> {
        let mut events = Vec::new();
        let mut has_events = false;
        let mut fine = true;
        for member in members {
            let Some(event) = event(&member.key) else { continue };
            has_events = true;
            match self.event(event, member, thread) {
                Ok(found) => events.extend(found.into_iter().map(|what| {
                    let at = member.key_at.start..member.value.at.end;
                    Event { at, what }
                })),
                Err(()) => fine = false,
            }
        }
        if fine && !has_events {
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

    /// Reads an event of `thread`; none if the event has no effect. The function reports errors
    /// itself.
    fn event(&mut self, event: &str, member: &Member<'_>, thread: &str) -> Result<Vec<What>, ()> {
        let json = &member.value;
        let some = |span: Span, what: fn(Span) -> What| {
            Ok(if span.is_zero() { Vec::new() } else { vec![what(span)] })
        };
        match event {
            "run" => some(self.time(json, "run", 0).ok_or(())?, What::Run),
            "runtime" => {
                note(self.notes, "`runtime` is CPU time here; in rt-app it is elapsed time");
                some(self.time(json, "runtime", 0).ok_or(())?, What::Run)
            }
            "sleep" => some(self.time(json, "sleep", 0).ok_or(())?, What::Sleep),
            "lock" => Ok(vec![What::Lock(self.name(json, "lock")?)]),
            "unlock" => Ok(vec![What::Unlock(self.name(json, "unlock")?)]),
            "timer" => Ok(self.timer(json)?.into_iter().map(What::Timer).collect()),
            "signal" => {
                let line = Line::Condition(self.name(json, "signal")?);
                Ok(vec![What::Wake { line, all: false }])
            }
            "broad" => {
                let line = Line::Condition(self.name(json, "broad")?);
                Ok(vec![What::Wake { line, all: true }])
            }
            "resume" => {
                let line = Line::Condition(self.name(json, "resume")?);
                Ok(vec![What::Wake { line, all: true }])
            }
            "suspend" => {
                let line = Line::Condition(match &json.value {
                    // The name of the thread, as in workgen.
                    Value::Null => thread.to_owned(),
                    Value::Text(text) if text.is_empty() => thread.to_owned(),
                    _ => self.name(json, "suspend")?,
                });
                Ok(vec![What::Wait { line, mutex: None }])
            }
            "wait" | "sync" => {
                let (line, mutex) = self.wait(json, event)?;
                let wait = What::Wait { line: line.clone(), mutex: Some(mutex) };
                let wake = (event == "sync").then_some(What::Wake { line, all: false });
                Ok(wake.into_iter().chain([wait]).collect())
            }
            "sem_post" => {
                let line = Line::Semaphore(self.name(json, "sem_post")?);
                Ok(vec![What::Wake { line, all: false }])
            }
            "sem_wait" => {
                let line = Line::Semaphore(self.name(json, "sem_wait")?);
                Ok(vec![What::Wait { line, mutex: None }])
            }
            "barrier" => Ok(vec![What::Barrier(self.name(json, "barrier")?)]),
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
                    _ => ("rt-app has no such event", "leave it out"),
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

    fn name(&mut self, json: &Json<'_>, key: &str) -> Result<String, ()> {
        self.text(json, key).map(str::to_owned).ok_or(())
    }

    /// Reads the condition variable and the mutex of `wait` or `sync`. rt-app calls both `unknown`
    /// if they have no names.
    fn wait(&mut self, json: &Json<'_>, event: &str) -> Result<(Line, String), ()> {
        const KEYS: [&str; 2] = ["ref", "mutex"];
        let of = format!("`{event}`");
        let members = self.object(json, &of).ok_or(())?;
        let members = self.members(members, &of, |key| KEYS.contains(&key), &KEYS);
        let mut name = |key: &str| match find(&members, key) {
            None => Ok("unknown".to_owned()),
            Some(member) => self.name(&member.value, key),
        };
        Ok((Line::Condition(name("ref")?), name("mutex")?))
    }

    /// Reads a timer; `Ok(None)` if the timer never waits.
    fn timer(&mut self, json: &Json<'_>) -> Result<Option<Timer>, ()> {
        const KEYS: [&str; 3] = ["ref", "period", "mode"];
        let members = self.object(json, "`timer`").ok_or(())?;
        let members = self.members(members, "`timer`", |key| KEYS.contains(&key), &KEYS);
        let get =
            |key: &str| members.iter().find(|member| member.key == key).map(|member| &member.value);
        let name = match get("ref") {
            None => "unknown",
            Some(json) => self.text(json, "ref").ok_or(())?,
        };
        let period = match get("period") {
            None => Span::ZERO,
            Some(json) => self.time(json, "period", 0).ok_or(())?,
        };
        if period.is_zero() {
            note(
                self.notes,
                "a `timer` with period 0, which is rt-app's default, is left out: it never waits",
            );
            return Ok(None);
        }
        let mode = match get("mode") {
            None => "relative",
            Some(json) => self.text(json, "mode").ok_or(())?,
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
                return Err(());
            }
        }
        let is_shared = !name.starts_with("unique");
        Ok(Some(Timer { name: name.to_owned(), is_shared, first: period, period }))
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

/// Returns the first member with the key.
fn find<'m, 'j, 't>(members: &'m [&'j Member<'t>], key: &str) -> Option<&'m &'j Member<'t>> {
    members.iter().find(|member| member.key == key)
}
