//! Which plugin gets a task: the first in order of precedence that serves it in full, else the
//! first that serves it in part (ReTiF 3.3; checklist R9). Who names a plugin has only that one
//! asked (R10).
//!
//! A foreign plugin answers later. Meanwhile other requests go on, so what was heard before may no
//! longer hold: an answer given on older books is asked for once more, and a partial offer that was
//! kept is weighed again before it is taken. Rules are looked at each time, because aggregates may
//! have grown meanwhile.

use crate::broker::{Blocked, Broker};
use crate::exact::Tries;
use crate::foreign::{Question, Word};
use crate::input::ForeignAnswer;
use crate::plugin::{Ask, Clip, Offer, Verdict};
use crate::refuse::{plain, refusal};
use crate::rules::Denial;
use crate::spec::Asker;
use crate::suite::Slot;
use talea_core::CpuSet;
use talea_core::mutate;
use talea_proto::refusal::{Answer, Reason, Said};
use talea_proto::{Code, Field, No, Refusal, Reply, SpecId, Task};

/// A request on its way through the plugins.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) asker: Asker,
    pub(crate) kind: Kind,
    pub(crate) entropy: u128,
    pub(crate) round: Round,
    /// The exact tests that are left to all of its tasks together.
    pub(crate) tries: Tries,
}

/// What becomes of the chosen offer.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A new spec.
    Create,
    /// Several new specs or none; `reserved` are those that have their place already.
    Group { tasks: Vec<Task>, reserved: Vec<u32> },
    /// Other terms for a spec.
    Change { spec: SpecId },
    /// Only talk.
    Explain,
}

/// One task before the plugins.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) task: Task,
    /// Whose rules hold, unless they are those of the spec that leaves.
    client: u32,
    /// The spec that would make room, for a change, and the slot that it had when the round began.
    leaving: Option<(SpecId, u32)>,
    /// Ask everybody, whoever could serve it.
    survey: bool,
    next: u32,
    end: u32,
    answers: Vec<Answer>,
    first_ok: Option<u32>,
    partial: Option<Partial>,
    /// The denial that tells most.
    denial: Option<Denial>,
    /// Whether the foreign plugin at `next` has been asked twice.
    again: bool,
    /// Whether anything may have changed since the round began.
    waited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Partial {
    plugin: u32,
    offer: Offer,
    /// The words of a foreign plugin.
    word: Option<ForeignAnswer>,
}

/// Where a round stands.
enum Outcome {
    /// This foreign plugin must be heard first.
    Ask(u32),
    /// This plugin serves the task on these terms.
    Chosen(u32, Offer),
    /// Nobody does, or everybody has been heard.
    Over,
}

/// What a plugin answers, for the broker.
enum Weighed {
    Verdict(Verdict),
    Denied(Denial),
    /// A foreign plugin must be asked, or asked again.
    Unheard,
}

/// What a plugin sees of `task`.
pub(crate) fn ask_for(task: &Task, clip: Clip) -> Ask<'_> {
    let (allowed, wished) =
        if task.cpus_mandatory { (task.cpus, CpuSet::EMPTY) } else { (CpuSet::EMPTY, task.cpus) };
    let ignore_admission = task.ignore_admission;
    Ask { params: &task.params, allowed, wished, ignore_admission, clip, tries: None }
}

impl Broker {
    /// Starts a round, or says what keeps the task from every plugin.
    pub(crate) fn round(
        &mut self,
        client: u32,
        task: &Task,
        leaving: Option<(SpecId, u32)>,
        survey: bool,
    ) -> Result<Round, Box<Refusal>> {
        crate::check::check(task, &self.machine.cpus)?;
        let (next, end) = match &task.plugin {
            None => (0, self.suite.len() as u32),
            Some(name) => {
                let count = self.suite.len() as u64;
                let unknown = || refusal(Code::UnknownPlugin, Field::Plugin, 0, count);
                let plugin = self.suite.find(name).ok_or_else(unknown)?;
                (plugin, mutate!("plugin-named", plugin + 1, count as u32))
            }
        };
        let mut answers = std::mem::take(&mut self.answers);
        answers.clear();
        Ok(Round {
            task: *task,
            client,
            leaving,
            survey,
            next,
            end,
            answers,
            first_ok: None,
            partial: None,
            denial: None,
            again: false,
            waited: false,
        })
    }

    /// Takes a job as far as it gets: to its answer, or to a foreign plugin.
    pub(crate) fn deliberate(&mut self, mut job: Job, mut word: Option<Word>) {
        loop {
            if self.changing > 0
                && let Some(word) = word
            {
                return self.blocked.push_back(Blocked::Resume(Box::new(job), word));
            }
            match self.go_round(&mut job.round, &job.tries, word.take()) {
                Outcome::Ask(plugin) => {
                    self.takes_long(job.asker.session);
                    // The first tasks of a group may have moved others; the plugin may take its
                    // time.
                    self.apply_moves(&[]);
                    return self.put_question(plugin, Question::Accept(Box::new(job)));
                }
                Outcome::Chosen(plugin, offer) => {
                    if !self.take_up(&mut job, plugin, &offer) {
                        return;
                    }
                }
                Outcome::Over => return self.nobody(job),
            }
        }
    }

    fn go_round(&mut self, round: &mut Round, tries: &Tries, mut word: Option<Word>) -> Outcome {
        while round.next < round.end {
            let plugin = round.next;
            let said = match self.weigh(round, tries, plugin, word.as_ref()) {
                Weighed::Unheard => {
                    round.again = word.is_some();
                    round.waited = true;
                    return Outcome::Ask(plugin);
                }
                Weighed::Denied(denial) => {
                    round.note_denial(&denial);
                    Said::Denied {
                        code: denial.code,
                        field: denial.field,
                        asked: denial.asked,
                        limit: denial.limit,
                    }
                }
                Weighed::Verdict(Verdict::Ok(offer)) => {
                    if mutate!("message-explain", !round.survey, true) {
                        return Outcome::Chosen(plugin, offer);
                    }
                    round.first_ok.get_or_insert(plugin);
                    Said::Ok { cpu: offer.cpu, charge: offer.charge, notes: offer.notes }
                }
                Weighed::Verdict(Verdict::Partial(offer)) => {
                    let words = word.as_ref().and_then(Word::answer);
                    round.partial.get_or_insert(Partial { plugin, offer, word: words });
                    Said::Partial { cpu: offer.cpu, charge: offer.charge, notes: offer.notes }
                }
                Weighed::Verdict(Verdict::No(no)) => Said::No(no),
            };
            round.answers.push(Answer { plugin, name: self.names[plugin as usize], verdict: said });
            round.next += 1;
            round.again = false;
            word = None;
        }
        if round.survey { Outcome::Over } else { self.settle_for_part(round, tries) }
    }

    /// The first partial offer, if it still holds.
    fn settle_for_part(&mut self, round: &mut Round, tries: &Tries) -> Outcome {
        let Some(partial) = round.partial.take() else { return Outcome::Over };
        if !round.waited {
            return Outcome::Chosen(partial.plugin, partial.offer);
        }
        round.again = true;
        let word = partial.word.map(Word::Answer);
        let said = match self.weigh(round, tries, partial.plugin, word.as_ref()) {
            Weighed::Verdict(Verdict::Ok(offer) | Verdict::Partial(offer)) => {
                return Outcome::Chosen(partial.plugin, offer);
            }
            Weighed::Verdict(Verdict::No(no)) => Said::No(no),
            Weighed::Unheard => Said::No(out_of_service()),
            Weighed::Denied(Denial { code, field, asked, limit, .. }) => {
                Said::Denied { code, field, asked, limit }
            }
        };
        if let Some(answer) =
            round.answers.iter_mut().find(|answer| answer.plugin == partial.plugin)
        {
            answer.verdict = said;
        }
        Outcome::Over
    }

    /// Rules first, then the plugin's own word.
    fn weigh(&mut self, round: &Round, tries: &Tries, plugin: u32, word: Option<&Word>) -> Weighed {
        let leaving = self.slot_of_leaving(round);
        let holds = leaving.map(|slot| {
            let spec = self.specs.at(slot);
            (spec.plugin, spec.offer.charge)
        });
        let client = leaving.map_or(round.client, |slot| self.specs.at(slot).client);
        let snapshot = self.clients.snapshot(client);
        let clip = match self.rules.admit(snapshot, plugin, &round.task, holds) {
            Ok(clip) => clip,
            Err(denial) => return Weighed::Denied(denial),
        };
        let (ask, leaving) = (ask_for(&round.task, clip), leaving.map(Slot));
        let ask = Ask { tries: Some(tries), ..ask };
        if !self.suite.is_foreign(plugin) {
            return Weighed::Verdict(self.suite.ask(plugin, &ask, leaving));
        }
        if self.hosts[plugin as usize].is_out() {
            return Weighed::Verdict(Verdict::No(out_of_service()));
        }
        match word {
            None => Weighed::Unheard,
            Some(Word::Down) => Weighed::Verdict(Verdict::No(out_of_service())),
            Some(Word::Answer(answer))
                if mutate!(
                    "plugin-foreign-stale",
                    answer.epoch != self.suite.epoch() && !round.again,
                    false
                ) =>
            {
                Weighed::Unheard
            }
            Some(Word::Answer(answer)) => match self.suite.judge(plugin, &ask, answer, leaving) {
                Ok(verdict) => Weighed::Verdict(verdict),
                Err(lie) => {
                    self.plugin_lied(plugin, &lie.0);
                    Weighed::Verdict(Verdict::No(out_of_service()))
                }
            },
        }
    }

    /// Nobody serves it, or it was only talk.
    fn nobody(&mut self, job: Job) {
        let Job { asker, kind, mut round, .. } = job;
        if let Kind::Explain = kind {
            let chosen = round.first_ok.or(round.partial.map(|partial| partial.plugin));
            let chosen =
                chosen.and_then(|plugin| round.answers.iter().position(|a| a.plugin == plugin));
            // Word for word what the request itself would be answered.
            let refusal = if chosen.is_none() { Some(self.why_nobody(&round)) } else { None };
            let answers = std::mem::take(&mut round.answers);
            let reply = Reply::Explained { chosen: chosen.map(|at| at as u32), answers, refusal };
            return self.reply(asker, reply);
        }
        let mut refusal = self.why_nobody(&round);
        self.recycle(&mut round);
        if let Kind::Group { reserved, .. } = kind {
            refusal.index = reserved.len() as u32;
            self.unreserve(reserved);
        }
        self.refuse(asker, refusal);
    }

    /// Whose rules hold: for a change, those of whoever holds the spec, also when root commands.
    /// Read anew each time, for the spec may be claimed or released while a foreign plugin thinks.
    fn client_of(&self, round: &Round) -> u32 {
        self.slot_of_leaving(round).map_or(round.client, |slot| self.specs.at(slot).client)
    }

    /// The slot of the spec that would make room, if it still exists: while a foreign plugin thinks
    /// it may have ended.
    fn slot_of_leaving(&self, round: &Round) -> Option<u32> {
        let (spec, slot) = round.leaving?;
        if round.waited { self.ids.get(spec) } else { Some(slot) }
    }

    #[expect(clippy::unnecessary_box_returns, reason = "refusals travel boxed")]
    fn why_nobody(&self, round: &Round) -> Box<Refusal> {
        let all_denied =
            round.answers.iter().all(|answer| matches!(answer.verdict, Said::Denied { .. }));
        let mut refusal = match &round.denial {
            _ if !self.rules.any(self.clients.snapshot(self.client_of(round))) => {
                plain(Code::NotAllowed, Field::Request)
            }
            Some(denial) if all_denied => {
                let mut refusal = refusal(denial.code, denial.field, denial.asked, denial.limit);
                refusal.rule = denial.rule.map(|rule| self.rules.origin(rule).to_owned());
                refusal
            }
            _ => plain(Code::NoPlugin, Field::Request),
        };
        refusal.answers.clone_from(&round.answers);
        refusal
    }

    /// Keeps the buffers of a finished round, of which only the task is still good, for the next
    /// one.
    pub(crate) fn recycle(&mut self, round: &mut Round) {
        self.answers = std::mem::take(&mut round.answers);
    }

    /// Would this be accepted, and what does everybody say? Nothing is changed.
    pub(crate) fn explain(&mut self, asker: Asker, task: &Task) {
        let client = self.sessions[&asker.session].client;
        let round = self.room_for(client, 1).and_then(|()| self.owner_can_be(client, task));
        match round.and_then(|()| self.round(client, task, None, true)) {
            Ok(round) => {
                let (kind, tries) = (Kind::Explain, Tries::default());
                self.deliberate(Job { asker, kind, entropy: 0, round, tries }, None);
            }
            Err(refusal) => {
                let refusal = Some(refusal);
                self.reply(asker, Reply::Explained { chosen: None, answers: Vec::new(), refusal });
            }
        }
    }
}

impl Round {
    /// Keeps the denial that tells most: a bound with its numbers before an omission before "no
    /// rule".
    fn note_denial(&mut self, denial: &Denial) {
        let worth = |denial: &Denial| match denial.code {
            Code::RuleBound => 2,
            Code::RuleOmission => 1,
            _ => 0,
        };
        if self.denial.as_ref().is_none_or(|kept| worth(kept) < worth(denial)) {
            self.denial = Some(*denial);
        }
    }

    /// What the foreign plugin at the head of the round is shown.
    pub(crate) fn leaving(&self) -> Option<SpecId> {
        self.leaving.map(|(spec, _)| spec)
    }

    /// The slot of the spec that would make room, where nobody can have done anything about it
    /// since the round began.
    pub(crate) fn slot_still(&self) -> Option<u32> {
        self.leaving.filter(|_| !self.waited).map(|(_, slot)| slot)
    }
}

/// The "no" of a plugin that cannot be asked.
fn out_of_service() -> No {
    No {
        reason: Reason::OutOfService,
        field: Field::Plugin,
        cpu: None,
        asked: 0,
        limit: 0,
        fits: 0,
        witness: None,
    }
}
