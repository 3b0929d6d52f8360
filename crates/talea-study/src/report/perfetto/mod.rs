//! Trace for Perfetto: a process for every root, with a track for every CPU, task, server and table
//! of slots.
//!
//! Model: packets are written when events occur and none is kept, so a run of any length needs the
//! same memory. The clock is named `CLOCK_MONOTONIC`, as in traces of real runs; its zero is the
//! start of the run. Every root writes to its own packet sequence, whose first packet interns all
//! names. The packets of a sequence are ordered by time with one exception: the deadline of a job
//! is written when the job has ended, so it may precede or follow its neighbours. Perfetto sorts
//! packets by time and, at one instant, by their position in the file.
//!
//! | track | content |
//! | --- | --- |
//! | a CPU | a slice while a job runs, named after its task |
//! | a table | a slice for each slot, named after its owner |
//! | a server | a counter: the remaining budget, at each of its corners |
//! | a task | the same slices as on the CPUs; instants: arrivals, refusals, deadlines, misses, notifications of the engine |
//!
//! `job` is the job's number, `cpu` its CPU, and the last slice of a completed job has its
//! `response_ns`.
//!
//! Reference: the published schema, `perfetto_trace.proto`; the parts in use are in [`schema`].

mod schema;
mod wire;

use super::budget::Corner;
use super::outline::Outline;
use schema::{annotation, clock, defaults, event, interned, packet, trace, track};
use std::io::{self, Write};
use talea_core::engine::{Cpu, Job, Notification, TaskId};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_sim::{Completion, Sink};
use wire::{Bytes, EVENT_MAX_BYTES, EventBuffer, Message};

/// Categories, interned with every sequence and numbered from 1 in this order.
const CATEGORIES: [&str; 5] = ["run", "slot", "job", "miss", "note"];
const ANNOTATIONS: [&str; 3] = ["job", "cpu", "response_ns"];
/// Names of events, numbered after the tasks and the owners of slots.
const EVENTS: [&str; 8] = [
    "arrival",
    "refused",
    "deadline",
    "deadline missed",
    "overrun of a table's entry",
    "deadlock",
    "not ended",
    "not activated",
];

#[derive(Clone, Copy)]
enum Category {
    Run = 1,
    Slot,
    Job,
    Miss,
    Note,
}

#[derive(Clone, Copy)]
enum InstantKind {
    Arrival = 0,
    Refused,
    Deadline,
    Missed,
    Overrun,
    Deadlock,
    NotEnded,
    NotActivated,
}

#[derive(Clone, Copy)]
enum Annotation {
    Job = 1,
    Cpu,
    Response,
}

/// Number of bytes that are collected before they are written, so that the writer needs no buffer.
const FLUSH_BYTES: usize = 1 << 16;

/// Writer of a trace.
#[derive(Debug)]
pub struct Trace<W: Write> {
    out: W,
    /// Packets that are not written yet: `filled` bytes, followed by space for an event.
    packets: Vec<u8>,
    filled: usize,
    roots: u64,
    /// Id of the next track.
    uuid: u64,
    failed: Option<io::Error>,
}

impl<W: Write> Trace<W> {
    /// Creates the trace of a run that begins at zero.
    pub fn new(out: W) -> Trace<W> {
        let mut trace = Trace {
            out,
            packets: vec![0; FLUSH_BYTES + EVENT_MAX_BYTES],
            filled: 0,
            roots: 0,
            uuid: 1,
            failed: None,
        };
        trace.packet(|message| {
            message.number(packet::SEQUENCE, 1);
            message.number(packet::TIMESTAMP, 0);
            message.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                snapshot.message(clock::CLOCKS, |one| {
                    one.number(clock::ID, clock::MONOTONIC);
                    one.number(clock::TIMESTAMP, 0);
                });
                snapshot.number(clock::PRIMARY, clock::MONOTONIC);
            });
        });
        trace
    }

    /// Describes the tracks of the next root, which runs for `duration`.
    pub fn root<'a>(&'a mut self, outline: &'a Outline, duration: Span) -> Tracks<'a, W> {
        self.roots += 1;
        let (tables, servers) = (outline.tables.len() as u64, outline.servers.len() as u64);
        let process = self.uuid;
        let cpu = process + 1;
        let table = cpu + u64::from(outline.cpus);
        let server = table + tables;
        let task = server + servers;
        self.uuid = task + outline.tasks.len() as u64;
        let slots = outline.tables.iter().map(|table| table.slots.len() as u64).sum::<u64>();
        let tracks = Tracks {
            outline,
            sequence: self.roots,
            until: duration.as_ns(),
            first: FirstTracks { cpu, table, server, task },
            names: 1 + outline.tasks.len() as u64 + slots,
            on_cpu: vec![None; outline.cpus as usize],
            of_task: vec![None; outline.tasks.len()],
            slots: vec![SlotCursor::default(); outline.tables.len()],
            trace: self,
        };
        tracks.trace.describe(&tracks.first, process, tracks.sequence, outline);
        tracks
    }

    /// Flushes the trace and returns the first error.
    pub fn finish(mut self) -> io::Result<()> {
        self.write();
        self.failed.map_or_else(|| self.out.flush(), Err)
    }

    fn packet(&mut self, fill: impl FnOnce(&mut Message)) {
        let mut packet: Message = Message::default();
        packet.message(trace::PACKET, fill);
        self.write();
        self.write_out(&packet.0);
    }

    /// Variant of [`Trace::packet`] for an event.
    #[inline]
    fn event_packet(&mut self, fill: impl FnOnce(&mut Message<EventBuffer<'_>>)) {
        let room =
            self.packets[self.filled..].first_chunk_mut().expect("there is room for one more");
        let mut packet = EventBuffer::message(room);
        packet.message(trace::PACKET, fill);
        self.filled += packet.0.count();
        if self.filled >= FLUSH_BYTES {
            self.write();
        }
    }

    fn write(&mut self) {
        let (packets, filled) =
            (std::mem::take(&mut self.packets), std::mem::take(&mut self.filled));
        self.write_out(&packets[..filled]);
        self.packets = packets;
    }

    fn write_out(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(bytes).err();
        }
    }

    /// Writes the first packet of a sequence, with its names, and a packet for each of its tracks.
    fn describe(&mut self, first: &FirstTracks, process: u64, sequence: u64, outline: &Outline) {
        self.packet(|message| {
            message.number(packet::SEQUENCE, sequence);
            message.number(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED | packet::NEEDS_STATE);
            message.message(packet::DEFAULTS, |set| set.number(defaults::CLOCK, clock::MONOTONIC));
            message.message(packet::INTERNED_DATA, |data| {
                let owners = outline.tables.iter().flat_map(|table| &table.slots);
                let tasks = outline.tasks.iter().map(|task| task.name.as_str());
                let names = tasks.chain(owners.map(|slot| slot.owner.as_str())).chain(EVENTS);
                intern(data, interned::CATEGORIES, CATEGORIES.into_iter());
                intern(data, interned::NAMES, names);
                intern(data, interned::ANNOTATIONS, ANNOTATIONS.into_iter());
            });
        });
        self.packet(|message| {
            message.number(packet::SEQUENCE, sequence);
            message.message(packet::TRACK_DESCRIPTOR, |described| {
                described.number(track::UUID, process);
                described.message(track::PROCESS, |about| {
                    about.number(track::PROCESS_PID, sequence);
                    about.text(track::PROCESS_NAME, &outline.name);
                });
                described.number(track::CHILD_ORDERING, track::EXPLICIT);
            });
        });
        let mut child = |uuid: u64, name: &str, counter: bool| {
            self.packet(|message| {
                message.number(packet::SEQUENCE, sequence);
                message.message(packet::TRACK_DESCRIPTOR, |described| {
                    described.number(track::UUID, uuid);
                    described.number(track::PARENT, process);
                    described.text(track::NAME, name);
                    if counter {
                        let unit = |about: &mut Message| {
                            about.number(track::COUNTER_UNIT, track::NANOSECONDS);
                        };
                        described.message(track::COUNTER, unit);
                    }
                    described.number(track::RANK, uuid - process);
                });
            });
        };
        for cpu in 0..u64::from(outline.cpus) {
            child(first.cpu + cpu, &format!("CPU {cpu}"), false);
        }
        for (uuid, table) in (first.table..).zip(&outline.tables) {
            let on = table.cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
            child(uuid, &format!("slots of {}{on}", table.name), false);
        }
        for (uuid, server) in (first.server..).zip(&outline.servers) {
            child(uuid, &format!("budget of {}", server.name), true);
        }
        for (uuid, task) in (first.task..).zip(&outline.tasks) {
            child(uuid, &task.name, false);
        }
    }
}

fn intern<'a>(data: &mut Message, field: u32, texts: impl Iterator<Item = &'a str>) {
    for (iid, text) in (1..).zip(texts) {
        data.message(field, |entry| {
            entry.number(interned::IID, iid);
            entry.text(interned::TEXT, text);
        });
    }
}

/// First track of each kind.
#[derive(Debug)]
struct FirstTracks {
    cpu: u64,
    table: u64,
    server: u64,
    task: u64,
}

/// Position of the next slot of a table.
#[derive(Clone, Copy, Debug, Default)]
struct SlotCursor {
    frame: u64,
    slot: usize,
}

/// Tracks of a root while it runs.
#[derive(Debug)]
pub struct Tracks<'a, W: Write> {
    trace: &'a mut Trace<W>,
    outline: &'a Outline,
    sequence: u64,
    /// End of the trace: later slots and deadlines are not written.
    until: u64,
    first: FirstTracks,
    /// Interned number of the first of [`EVENTS`].
    names: u64,
    /// `on_cpu[cpu]`: task with the open slice on the CPU.
    on_cpu: Vec<Option<TaskId>>,
    /// `of_task[task]`: CPU of the task's open slice.
    of_task: Vec<Option<Cpu>>,
    slots: Vec<SlotCursor>,
}

impl<W: Write> Tracks<'_, W> {
    #[inline]
    fn event(
        &mut self,
        at: u64,
        kind: u64,
        track: u64,
        more: impl FnOnce(&mut Message<EventBuffer<'_>>),
    ) {
        let sequence = self.sequence;
        self.trace.event_packet(|message| {
            message.number(packet::TIMESTAMP, at);
            message.number(packet::SEQUENCE, sequence);
            message.number(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
            message.message(packet::TRACK_EVENT, |said| {
                said.number(event::TYPE, kind);
                said.number(event::TRACK, track);
                more(said);
            });
        });
    }

    fn begin(
        &mut self,
        at: u64,
        track: u64,
        category: Category,
        name: u64,
        also: &[(Annotation, u64)],
    ) {
        self.event(at, event::BEGIN, track, |said| {
            said.number(event::CATEGORY, category as u64);
            said.number(event::NAME, name);
            annotate(said, also);
        });
    }

    fn end(&mut self, at: u64, track: u64, also: &[(Annotation, u64)]) {
        self.event(at, event::END, track, |said| annotate(said, also));
    }

    fn instant(
        &mut self,
        at: Time,
        task: TaskId,
        category: Category,
        what: InstantKind,
        also: &[(Annotation, u64)],
    ) {
        let (track, name) = (self.first.task + u64::from(task.0), self.names + what as u64);
        self.event(at.as_ns(), event::INSTANT, track, |said| {
            said.number(event::CATEGORY, category as u64);
            said.number(event::NAME, name);
            annotate(said, also);
        });
    }

    /// Ends the slice on `cpu`.
    fn close(&mut self, now: Time, cpu: Cpu, also: &[(Annotation, u64)]) {
        let Some(task) = self.on_cpu[cpu.0 as usize].take() else { return };
        self.end(now.as_ns(), self.first.cpu + u64::from(cpu.0), &[]);
        // The task may already have migrated to another CPU.
        if mutate!(
            "sim-report-trace-moved",
            self.of_task[task.0 as usize] == Some(cpu),
            self.of_task[task.0 as usize].is_some()
        ) {
            self.of_task[task.0 as usize] = None;
            self.end(now.as_ns(), self.first.task + u64::from(task.0), also);
        }
    }

    /// Writes the slots that have begun by now.
    fn write_slots(&mut self, now: Time) {
        let mut name = 1 + self.outline.tasks.len() as u64;
        for number in 0..self.slots.len() {
            let table = &self.outline.tables[number];
            loop {
                let SlotCursor { frame, slot } = self.slots[number];
                let Some(line) = table.slots.get(slot) else { break };
                let (start, end) =
                    (frame.saturating_add(line.start_ns), frame.saturating_add(line.end_ns));
                if start >= now.as_ns() {
                    break;
                }
                let track = self.first.table + number as u64;
                self.begin(start, track, Category::Slot, name + slot as u64, &[]);
                self.end(
                    mutate!(
                        "sim-report-trace-slot-end",
                        end.min(self.until),
                        frame.saturating_add(table.frame_ns).min(self.until)
                    ),
                    track,
                    &[],
                );
                self.slots[number] = if slot + 1 == table.slots.len() {
                    SlotCursor { frame: frame.saturating_add(table.frame_ns), slot: 0 }
                } else {
                    SlotCursor { frame, slot: slot + 1 }
                };
            }
            name += table.slots.len() as u64;
        }
    }

    /// Writes a corner of a budget.
    pub fn budget(&mut self, corner: Corner) {
        let track = self.first.server + corner.server as u64;
        self.event(corner.at.as_ns(), event::COUNTER, track, |said| {
            said.number(event::COUNTER_VALUE, corner.left_ns);
        });
    }

    /// Ends the trace, with the unfinished jobs.
    pub fn finish(&mut self, now: Time, unfinished: &[(TaskId, Job)]) {
        self.write_slots(now);
        for cpu in 0..self.on_cpu.len() as u32 {
            self.close(now, Cpu(cpu), &[]);
        }
        for (task, job) in unfinished {
            let also = [(Annotation::Job, job.number)];
            self.instant(now, *task, Category::Job, InstantKind::NotEnded, &also);
            if job.deadline <= now {
                self.instant(job.deadline, *task, Category::Miss, InstantKind::Missed, &also);
            }
        }
    }
}

#[inline]
fn annotate<B: Bytes>(said: &mut Message<B>, also: &[(Annotation, u64)]) {
    for &(name, number) in also {
        said.message(event::ANNOTATION, |one| {
            one.number(annotation::NAME, name as u64);
            one.number(annotation::NUMBER, number);
        });
    }
}

impl<W: Write> Sink for Tracks<'_, W> {
    fn on_arrival(&mut self, now: Time, task: TaskId, _nominal: Time) {
        self.write_slots(now);
        self.instant(now, task, Category::Job, InstantKind::Arrival, &[]);
    }

    fn on_refusal(&mut self, now: Time, task: TaskId) {
        self.instant(now, task, Category::Miss, InstantKind::Refused, &[]);
    }

    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.write_slots(now);
        self.close(now, cpu, &[]);
        let (at, row) = (now.as_ns(), task.0 as usize);
        let track = self.first.task + u64::from(task.0);
        if self.of_task[row].take().is_some() {
            self.end(at, track, &[]);
        }
        self.on_cpu[cpu.0 as usize] = Some(task);
        self.of_task[row] = Some(cpu);
        let (name, job, on) =
            (1 + u64::from(task.0), (Annotation::Job, job), (Annotation::Cpu, u64::from(cpu.0)));
        self.begin(at, self.first.cpu + u64::from(cpu.0), Category::Run, name, &[job]);
        self.begin(at, track, Category::Run, name, &[job, on]);
    }

    fn on_notification(&mut self, now: Time, note: &Notification) {
        match *note {
            Notification::Overrun { task, job, .. } => {
                self.instant(
                    now,
                    task,
                    Category::Note,
                    InstantKind::Overrun,
                    &[(Annotation::Job, job)],
                );
            }
            Notification::Deadlock { task } => {
                self.instant(now, task, Category::Note, InstantKind::Deadlock, &[]);
            }
            // The instant belongs to the task that waits for the token.
            Notification::NotActivated { channel } => {
                if let Some(&sink) = mutate!(
                    "sim-trace-not-activated",
                    self.outline.sinks.get(channel.0 as usize),
                    self.outline.sinks.get(channel.0 as usize + 1)
                ) {
                    self.instant(now, sink, Category::Note, InstantKind::NotActivated, &[]);
                }
            }
            // Reported as an arrival or a refusal.
            Notification::Activated { .. } | Notification::Refused { .. } => {}
        }
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.write_slots(now);
        self.close(now, cpu, &[]);
    }

    fn on_completion(&mut self, job: &Completion) {
        self.close(job.end, job.cpu, &[(Annotation::Response, job.response().as_ns())]);
        if job.deadline.as_ns() > self.until {
            return;
        }
        let (category, what) = if job.is_late() {
            (Category::Miss, InstantKind::Missed)
        } else {
            (Category::Job, InstantKind::Deadline)
        };
        self.instant(job.deadline, job.task, category, what, &[(Annotation::Job, job.job)]);
    }
}
