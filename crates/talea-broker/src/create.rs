//! Create, alone or as a group: reserve, then publish.
//!
//! A reserved spec has its place in the books and its slot, but no name yet: nobody can see it, and
//! the state file does not hold it. A group is published when its last task has its place, or not
//! at all.

use crate::broker::{Broker, Holder};
use crate::decide::{Job, Kind, ask_for};
use crate::exact::Tries;
use crate::input::{Effect, ForeignQuestion, ProcessId};
use crate::plugin::{Clip, Offer};
use crate::refuse::{plain, refusal};
use crate::spec::{Asker, Spec, Step};
use crate::suite::{Placed, Slot};
use talea_core::Time;
use talea_core::mutate;
use talea_proto::message::{SpecId, Token};
use talea_proto::record::Record;
use talea_proto::{Code, Field, GROUP_MAX, Granted, Owner, Refusal, Reply, Task};

/// Keeps the tokens of one group apart; odd, so that they are 2^128 steps apart before one repeats.
const TOKEN_STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

impl Broker {
    pub(crate) fn create(&mut self, asker: Asker, task: &Task, entropy: u128) {
        match self.first_round(asker, 1, task) {
            Ok(round) => {
                let (kind, tries) = (Kind::Create, Tries::default());
                self.deliberate(Job { asker, kind, entropy, round, tries }, None);
            }
            Err(refusal) => self.refuse(asker, refusal),
        }
    }

    pub(crate) fn create_group(&mut self, asker: Asker, tasks: Vec<Task>, entropy: u128) {
        let count = tasks.len();
        if count == 0 || count > GROUP_MAX {
            let limit = if count == 0 { 1 } else { GROUP_MAX as u64 };
            return self.refuse(asker, refusal(Code::Malformed, Field::Group, count as u64, limit));
        }
        // What makes no sense is said before anything is reserved, wherever in the group it stands.
        for (index, task) in tasks.iter().enumerate().skip(1) {
            if let Err(mut refusal) = crate::check::check(task, &self.machine.cpus) {
                refusal.index = index as u32;
                return self.refuse(asker, refusal);
            }
        }
        match self.first_round(asker, count as u32, &tasks[0]) {
            Ok(round) => {
                let kind = Kind::Group { tasks, reserved: Vec::with_capacity(count) };
                let tries = Tries::default();
                self.deliberate(Job { asker, kind, entropy, round, tries }, None);
            }
            Err(refusal) => self.refuse(asker, refusal),
        }
    }

    fn first_round(
        &mut self,
        asker: Asker,
        count: u32,
        task: &Task,
    ) -> Result<crate::decide::Round, Box<Refusal>> {
        let client = self.sessions[&asker.session].client;
        self.room_for(client, count)?;
        self.owner_can_be(client, task)?;
        self.round(client, task, None, false)
    }

    /// Whether this client may hold so many specs more.
    pub(crate) fn room_for(&self, client: u32, count: u32) -> Result<(), Box<Refusal>> {
        let quota = &self.setup.quota;
        let (_, own) = self.users.held(self.clients.peer(client).uid);
        let all = self.specs.len();
        for (held, limit) in [(own, quota.specs_per_user), (all, quota.specs)] {
            if mutate!(
                "quota-specs",
                held.saturating_add(count) > limit,
                false && held.saturating_add(count) > limit
            ) {
                return Err(refusal(
                    Code::Quota,
                    Field::Specs,
                    u64::from(held) + u64::from(count),
                    limit.into(),
                ));
            }
        }
        Ok(())
    }

    /// A process that we cannot see cannot own anything.
    pub(crate) fn owner_can_be(&self, client: u32, task: &Task) -> Result<(), Box<Refusal>> {
        match task.owner {
            Owner::Process if self.clients.peer(client).pid == 0 => {
                Err(plain(Code::Malformed, Field::Owner))
            }
            _ => Ok(()),
        }
    }

    /// Takes up a chosen offer. True when a group is not complete: `job` has its next task then.
    pub(crate) fn take_up(&mut self, job: &mut Job, plugin: u32, offer: &Offer) -> bool {
        let Job { asker, kind, entropy, round, .. } = job;
        let (asker, entropy) = (*asker, *entropy);
        self.recycle(round);
        match kind {
            Kind::Explain => unreachable!("a survey chooses nobody"),
            Kind::Change { spec } => self.take_up_change(asker, *spec, round, plugin, offer),
            Kind::Create => match self.reserve(asker, &round.task, plugin, offer, entropy) {
                Ok(slot) => {
                    self.publish(asker, slot);
                    let granted = self.granted_on(slot);
                    self.apply_moves(&[]);
                    self.reply(asker, Reply::Granted(granted));
                }
                Err(refusal) => self.refuse(asker, refusal),
            },
            Kind::Group { tasks, reserved } => {
                let index = reserved.len();
                let token = entropy.wrapping_add(TOKEN_STEP.wrapping_mul(index as u128));
                let booked = self.reserve(asker, &round.task, plugin, offer, token);
                let next = booked.and_then(|slot| {
                    reserved.push(slot);
                    let Some(task) = tasks.get(index + 1) else { return Ok(None) };
                    let client = self.sessions[&asker.session].client;
                    self.owner_can_be(client, task)?;
                    self.round(client, task, None, false).map(Some)
                });
                match next {
                    Ok(Some(next)) => {
                        *round = next;
                        return true;
                    }
                    Ok(None) => {
                        let granted = reserved.iter().map(|&slot| {
                            self.publish(asker, slot);
                            self.granted(slot)
                        });
                        let granted = granted.collect();
                        self.apply_moves(&[]);
                        self.reply(asker, Reply::GrantedGroup(granted));
                    }
                    Err(mut refusal) => {
                        refusal.index = reserved.len() as u32;
                        self.unreserve(std::mem::take(reserved));
                        self.refuse(asker, refusal);
                    }
                }
            }
        }
        false
    }

    /// Books an offer. What was heard from a foreign plugin may be late for the quota.
    fn reserve(
        &mut self,
        asker: Asker,
        task: &Task,
        plugin: u32,
        offer: &Offer,
        entropy: u128,
    ) -> Result<u32, Box<Refusal>> {
        let session = &self.sessions[&asker.session];
        let (client, uid, process) = (session.client, session.uid, session.process);
        self.room_for(client, 1)?;
        let spec = Spec {
            id: SpecId(0),
            token: Token(entropy.to_le_bytes()),
            uid,
            process,
            watched: false,
            process_gone: false,
            client,
            session: None,
            awaiting: false,
            task: *task,
            booked: true,
            disowned: false,
            plugin,
            offer: *offer,
            thread: None,
            lags_until: Time::ZERO,
            step: Step::Idle,
        };
        let slot = self.specs.insert(spec);
        self.suite.admit(plugin, Slot(slot), &ask_for(task, Clip::default()), offer);
        self.rules.charge(self.clients.snapshot(client), plugin, offer.charge);
        self.clients.hold(client);
        self.users.of(uid).specs += 1;
        Ok(slot)
    }

    /// Takes reservations back, the last one first.
    pub(crate) fn unreserve(&mut self, reserved: Vec<u32>) {
        for slot in reserved.into_iter().rev() {
            let spec = self.specs.remove(slot).expect("it was reserved");
            self.suite.release(Slot(slot), None);
            self.rules.discharge(
                self.clients.snapshot(spec.client),
                spec.plugin,
                spec.offer.charge,
            );
            self.users.of(spec.uid).specs -= 1;
            self.clients.let_go(spec.client);
        }
        self.apply_moves(&[]);
    }

    /// Gives a reserved spec its name.
    fn publish(&mut self, asker: Asker, slot: u32) {
        let id = SpecId(self.next_id);
        self.next_id += 1;
        self.ids.insert(id, slot);
        self.users.of(self.specs.at(slot).uid).ids.insert(id, slot);
        self.command(asker.session, slot);
        let spec = self.specs.at_mut(slot);
        spec.id = id;
        let (owner, process) = (spec.task.owner, spec.process);
        if owner == Owner::Process {
            spec.watched = true;
            self.watch_process(process, Holder::Spec(slot));
        }
        mutate!(
            "message-create",
            {
                self.emit(Effect::Remember { slot });
            },
            {}
        );

        self.tell_scheduled(slot);
    }

    /// Tells a foreign plugin that a spec is its own now.
    pub(crate) fn tell_scheduled(&mut self, slot: u32) {
        let spec = self.specs.at(slot);
        if self.suite.is_foreign(spec.plugin) {
            let question = ForeignQuestion::Schedule {
                spec: spec.id,
                task: spec.task,
                cpu: spec.offer.cpu.unwrap_or(0),
                priority: spec.offer.priority,
            };
            self.tell(spec.plugin, question);
        }
    }

    /// What the holder of a spec is told.
    pub(crate) fn granted(&self, slot: u32) -> Granted {
        self.granted_as(slot, &self.suite.placed(Slot(slot)))
    }

    /// As [`Broker::granted`] right after the spec's offer was taken up: see [`Suite::placed_on`].
    ///
    /// [`Suite::placed_on`]: crate::suite::Suite::placed_on
    pub(crate) fn granted_on(&self, slot: u32) -> Granted {
        self.granted_as(slot, &self.suite.placed_on(Slot(slot), &self.specs.at(slot).offer))
    }

    fn granted_as(&self, slot: u32, placed: &Placed) -> Granted {
        let spec = self.specs.at(slot);
        Granted {
            spec: spec.id,
            token: spec.token,
            plugin: placed.plugin,
            cpu: placed.cpu,
            runtime: placed.runtime,
            charge: placed.charge,
            priority: placed.priority,
            mechanism: placed.mechanism,
            grain: placed.grain,
            notes: placed.notes,
        }
    }
}

impl Spec {
    /// What survives the daemon.
    pub(crate) fn record(&self, plugin: talea_proto::message::Name) -> Record {
        let ProcessId { pid, start } = self.process;
        Record {
            spec: self.id,
            token: self.token,
            uid: self.uid,
            pid,
            pid_start: start,
            task: self.task,
            plugin,
            cpu: self.offer.cpu,
            runtime: self.offer.runtime,
            charge: self.offer.charge,
            priority: self.offer.priority,
            thread: self.thread.as_ref().map(|thread| thread.record()),
        }
    }
}
