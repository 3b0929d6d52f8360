//! Questions to plugins outside: one at a time for each plugin, with a time-out, while everybody
//! else goes on.
//!
//! A plugin that is late, lies, or whose host has ended is out of service until the daemon starts
//! again: it is asked no more, whoever waits for it hears so, and what it has accepted keeps its
//! attributes (design, section 9).

use crate::broker::{Blocked, Broker};
use crate::decide::{Job, Kind};
use crate::input::{Effect, ForeignAnswer, ForeignQuestion, LogEvent, SessionId, Ticket};
use crate::plugin::Clip;
use crate::refuse::plain;
use std::collections::VecDeque;
use talea_proto::{Code, Field, SpecId};

/// The line to one plugin's host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// The question under way; `None` inside when nobody waits for its answer any more.
    asked: Option<(Ticket, Option<Question>)>,
    queue: VecDeque<Question>,
    out: bool,
}

/// What a host is to be asked.
#[derive(Debug)]
pub(crate) enum Question {
    /// Could you serve this? The job goes on with the answer.
    Accept(Box<Job>),
    /// Told rather than asked; only a missing answer matters.
    Tell(Box<ForeignQuestion>),
}

/// What comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// An answer.
    Answer(ForeignAnswer),
    /// The plugin is out of service.
    Down,
}

impl Word {
    pub(crate) fn answer(&self) -> Option<ForeignAnswer> {
        match self {
            Word::Answer(answer) => Some(*answer),
            Word::Down => None,
        }
    }
}

impl Host {
    /// What is left to tell when the plugin has not even heard of the opposite. Whoever attaches
    /// and detaches in a loop while the plugin takes its time must not make this queue grow.
    fn cancel_out(&mut self, what: ForeignQuestion) -> Option<ForeignQuestion> {
        let about = subject(&what)?;
        let last = self.queue.iter().rposition(|question| match question {
            Question::Tell(told) => subject(told) == Some(about),
            Question::Accept(_) => false,
        });
        let Some(at) = last else { return Some(what) };
        let Question::Tell(told) = &self.queue[at] else { return Some(what) };
        let opposite = matches!(
            (&**told, &what),
            (ForeignQuestion::Attach { .. }, ForeignQuestion::Detach { .. })
                | (ForeignQuestion::Detach { .. }, ForeignQuestion::Attach { .. })
                | (ForeignQuestion::Schedule { .. }, ForeignQuestion::Release { .. })
        );
        if opposite {
            self.queue.remove(at);
        }
        (!opposite).then_some(what)
    }

    pub(crate) fn is_out(&self) -> bool {
        self.out
    }
}

impl Broker {
    /// Puts a question, after those that are waiting.
    pub(crate) fn put_question(&mut self, plugin: u32, question: Question) {
        self.hosts[plugin as usize].queue.push_back(question);
        self.next_question(plugin);
    }

    /// Tells a foreign plugin what became of one of its specs; the others need no telling.
    pub(crate) fn tell(&mut self, plugin: u32, what: ForeignQuestion) {
        if self.suite.is_foreign(plugin)
            && !self.hosts[plugin as usize].out
            && let Some(what) = self.hosts[plugin as usize].cancel_out(what)
        {
            self.put_question(plugin, Question::Tell(Box::new(what)));
        }
    }

    fn next_question(&mut self, plugin: u32) {
        let host = &mut self.hosts[plugin as usize];
        if host.out || host.asked.is_some() {
            return;
        }
        let Some(next) = host.queue.pop_front() else { return };
        let question = match &next {
            Question::Tell(what) => ForeignQuestion::clone(what),
            Question::Accept(job) => {
                let ask = crate::decide::ask_for(&job.round.task, Clip::default());
                ForeignQuestion::Accept {
                    task: job.round.task,
                    cpus: self.suite.cpus_for(plugin, &ask),
                    replaces: job.round.leaving(),
                    epoch: self.suite.epoch(),
                }
            }
        };
        let ticket = self.ticket(plugin);
        self.hosts[plugin as usize].asked = Some((ticket, Some(next)));
        let timeout = self.suite.timeout(plugin);
        self.emit(Effect::Ask { ticket, plugin, question: Box::new(question), timeout });
    }

    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Option<ForeignAnswer>) {
        let plugin = ticket.0 as u32;
        let Some(host) = self.hosts.get_mut(plugin as usize) else { return };
        if host.asked.as_ref().is_none_or(|(asked, _)| *asked != ticket) {
            return;
        }
        let Some(answer) = answer else {
            let why = format!("no answer within {}", self.suite.timeout(plugin));
            return self.plugin_out(plugin, &why);
        };
        let question = host.asked.take().and_then(|(_, question)| question);
        if let Some(Question::Accept(job)) = question {
            self.deliberate(*job, Some(Word::Answer(answer)));
        }
        self.next_question(plugin);
    }

    pub(crate) fn plugin_lied(&mut self, plugin: u32, what: &str) {
        let name = self.names[plugin as usize].to_string();
        self.log(LogEvent::PluginLied { name, what: what.to_owned() });
        self.plugin_out(plugin, "it answered outside its bounds");
    }

    /// Takes a plugin out of service and lets everybody who waits for it go on.
    pub(crate) fn plugin_out(&mut self, plugin: u32, why: &str) {
        let Some(host) = self.hosts.get_mut(plugin as usize).filter(|host| !host.out) else {
            return;
        };
        host.out = true;
        let asked = host.asked.take().and_then(|(_, question)| question);
        let queue = std::mem::take(&mut host.queue);
        self.suite.out_of_service(plugin);
        let name = self.names[plugin as usize].to_string();
        self.log(LogEvent::PluginOut { name, why: why.to_owned() });
        self.emit(Effect::EndHost { plugin });
        for question in asked.into_iter().chain(queue) {
            if let Question::Accept(job) = question {
                self.deliberate(*job, Some(Word::Down));
            }
        }
    }

    /// The connection whose request is before a plugin has ended: nobody waits any more.
    pub(crate) fn abandon(&mut self, session: SessionId) {
        self.blocked
            .retain(|blocked| !matches!(blocked, Blocked::Request(id, _) if *id == session));
        let of_it = |job: &Job| job.asker.session == session;
        for job in self.take_pending(of_it) {
            self.drop_job(job);
        }
    }

    /// The daemon is stopping: whoever waits for a plugin or for somebody's change hears so.
    pub(crate) fn refuse_pending(&mut self) {
        for job in self.take_pending(|_| true) {
            let asker = job.asker;
            self.drop_job(job);
            self.refuse(asker, plain(Code::Stopping, Field::Request));
        }
    }

    fn drop_job(&mut self, mut job: Job) {
        if let Kind::Group { reserved, .. } = job.kind {
            self.unreserve(reserved);
        }
        self.recycle(&mut job.round);
    }

    fn take_pending(&mut self, wanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut sift = |question: Question| match question {
            Question::Accept(job) if wanted(&job) => {
                jobs.push(*job);
                None
            }
            other => Some(other),
        };
        for host in &mut self.hosts {
            if let Some((_, asked)) = &mut host.asked {
                *asked = asked.take().and_then(&mut sift);
            }
            host.queue =
                std::mem::take(&mut host.queue).into_iter().filter_map(&mut sift).collect();
        }
        for blocked in std::mem::take(&mut self.blocked) {
            match blocked {
                Blocked::Resume(job, _) if wanted(&job) => jobs.push(*job),
                other => self.blocked.push_back(other),
            }
        }
        jobs
    }
}

/// The spec that a plugin is told about.
fn subject(what: &ForeignQuestion) -> Option<SpecId> {
    match *what {
        ForeignQuestion::Accept { .. } => None,
        ForeignQuestion::Schedule { spec, .. }
        | ForeignQuestion::Release { spec }
        | ForeignQuestion::Attach { spec }
        | ForeignQuestion::Detach { spec } => Some(spec),
    }
}
