//! Driver: feeds the machine with observations and requests, and executes its effects.
//!
//! One thread, which waits neither for programs nor for `talead`: other ones receive reports of
//! readiness and reserve CPUs, and a start that hangs is killed after five seconds. Effects are
//! executed in order, each before the next one, so an observation includes all effects before it.
//! An observation is made when the machine orders it, and in addition when a program has ended or
//! reports that it is ready.

use crate::attributes;
use crate::clients::Clients;
use crate::failure::Failure;
use crate::log::{event_text, log};
use crate::programs::{ProgramReport, Programs, Ready};
use crate::reservation::Reservation;
use crate::store::{Store, numbered};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use talea_core::{CpuSet, Monotonic, Span, mutate};
use talea_deploy::input::RequestId;
use talea_deploy::text::message::{Answer, Ask, StatusText, refusal_sentence};
use talea_deploy::{Deployment, Effect, EffectNumber, Generation, Input, Observation, Request};
use talea_os::clock;
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::notify_socket::NotifySocket;
use talea_os::signals::Signals;

/// Maximum time between two signs of life.
const LIFE_PERIOD: Span = Span::from_ns(2_000_000_000);
/// Minimum time between two lines about ignored reports.
const IGNORED_PERIOD: Span = Span::from_ns(60_000_000_000);
/// Maximum number of reports of programs that are read before anything else.
const MAX_REPORTS: usize = 64;

const LISTENER: u64 = 0;
const NOTIFY: u64 = 1;
const SIGNALS: u64 = 2;
/// First token of a program. Programs and clients alternate: even and odd tokens.
const FIRST: u64 = 4;

/// Driver of one deployment.
pub(crate) struct Driver {
    machine: Deployment,
    store: Store,
    programs: Programs,
    clients: Clients,
    reservation: Reservation,
    notify: NotifySocket,
    signals: Signals,
    epoll: Epoll,
    /// Names of the programs whose pidfds are watched, with their tokens.
    watched: BTreeMap<String, u64>,
    next_token: u64,
    /// Last effect that was executed.
    done: EffectNumber,
    /// Requests whose answers are due: the connection, and the number of an applied generation.
    asked: BTreeMap<RequestId, (u64, Option<u64>)>,
    next_request: u64,
    inputs: VecDeque<Input>,
    /// Number of reports of foreign processes, and the time of the last line about them.
    ignored: (u64, Option<Monotonic>),
}

impl Driver {
    pub(crate) fn new(
        store: Store,
        programs: Programs,
        clients: Clients,
        reservation: Reservation,
        (notify, signals): (NotifySocket, Signals),
    ) -> Result<Driver, Failure> {
        let machine = Deployment::restore(store.record()?, clock::now());
        let os = |error: io::Error| Failure::new(format!("epoll: {error}"), "start it again");
        let epoll = Epoll::new().map_err(os)?;
        epoll.add(clients.listener(), Interest::READ, LISTENER).map_err(os)?;
        epoll.add(&notify, Interest::READ, NOTIFY).map_err(os)?;
        epoll.add(&signals, Interest::READ, SIGNALS).map_err(os)?;
        Ok(Driver {
            machine,
            store,
            programs,
            clients,
            reservation,
            notify,
            signals,
            epoll,
            watched: BTreeMap::new(),
            next_token: FIRST,
            done: EffectNumber(0),
            asked: BTreeMap::new(),
            next_request: 0,
            inputs: VecDeque::new(),
            ignored: (0, None),
        })
    }

    /// Returns the number of the generation in force.
    pub(crate) fn in_force(&self) -> Option<u64> {
        self.machine.in_force().map(Generation::number)
    }

    /// Returns the CPUs of the generation in force.
    fn cpus(&self) -> CpuSet {
        let in_force = self.machine.in_force();
        let roots = in_force.into_iter().flat_map(Generation::roots);
        roots.fold(CpuSet::EMPTY, |all, root| all.union(&root.cpus))
    }

    /// Drives the machine until a signal ends the process. `sign_of_life` is called at least every
    /// [`LIFE_PERIOD`].
    pub(crate) fn run(&mut self, mut sign_of_life: impl FnMut()) -> Result<(), Failure> {
        let mut events = Events::with_capacity(64);
        loop {
            self.watch()?;
            self.reservation.set(self.cpus());
            sign_of_life();
            let now = clock::now();
            let latest = now.saturating_add(LIFE_PERIOD);
            let until = self.machine.next_wakeup().map_or(latest, |at| at.min(latest));
            self.epoll
                .wait(&mut events, Some(until))
                .map_err(|error| Failure::new(format!("epoll: {error}"), "start it again"))?;
            let mut is_changed = false;
            for event in events.iter() {
                match event.token {
                    LISTENER => self.accept(),
                    NOTIFY => is_changed |= self.receive_reports(),
                    SIGNALS => {
                        if let Ok(Some(_)) = self.signals.take() {
                            return Ok(());
                        }
                    }
                    token if token % 2 == 0 => is_changed = true,
                    token => {
                        let client = (token - FIRST - 1) / 2;
                        self.serve(client)?;
                        self.send(client);
                    }
                }
            }
            if is_changed {
                self.observe(self.done);
            }
            if self.machine.next_wakeup().is_some_and(|at| at <= clock::now()) {
                self.inputs.push_back(Input::Timer);
            }
            self.handle_inputs()?;
        }
    }

    /// Watches the pidfds of new programs. A watch ends with its pidfd.
    fn watch(&mut self) -> Result<(), Failure> {
        let present: BTreeSet<&str> = self.programs.watched().map(|(name, _)| name).collect();
        self.watched.retain(|name, _| present.contains(name.as_str()));
        for (name, pidfd) in self.programs.watched() {
            if !self.watched.contains_key(name) {
                self.epoll
                    .add(pidfd, Interest::READ, self.next_token)
                    .map_err(|error| Failure::new(format!("epoll: {error}"), "start it again"))?;
                self.watched.insert(name.to_owned(), self.next_token);
                self.next_token += 2;
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        match self.clients.accept() {
            Ok(Some((number, socket))) => {
                // Without a watch the client gets no answer, and ends by its time-out.
                let _ = self.epoll.add(socket, Interest::READ, client_token(number));
            }
            Ok(None) => {}
            Err(error) => log(&format!("a connection is not accepted: {error}")),
        }
    }

    /// Reads reports of programs. Returns whether a program is ready, or has another table.
    fn receive_reports(&mut self) -> bool {
        let mut is_ready = false;
        for _ in 0..MAX_REPORTS {
            let Some((text, sender)) = self.notify.receive() else { break };
            let report = ProgramReport::of(&text);
            let is_report = report != ProgramReport::default();
            let Some(pid) = sender.and_then(|sender| sender.pid).filter(|_| is_report) else {
                continue;
            };
            match self.programs.note_report(pid, report) {
                Ready::Now(task) => {
                    log(&format!("{task}: is ready"));
                    is_ready = true;
                }
                Ready::Adjusted(task) => {
                    log(&format!("{task}: its table is in force"));
                    is_ready = true;
                }
                Ready::Before => {}
                Ready::Foreign => self.ignore_report(pid),
            }
        }
        is_ready
    }

    /// Ignores the report of a foreign process. Every user may send, so most are only counted.
    fn ignore_report(&mut self, pid: talea_os::Tid) {
        let now = clock::now();
        let (count, logged) = &mut self.ignored;
        *count += 1;
        if logged.is_none_or(|at| now.saturating_since(at) >= IGNORED_PERIOD) {
            log(&format!(
                "process {pid} is no program of the deployment: its report of readiness is ignored \
                 ({count} so far)"
            ));
            *logged = Some(now);
        }
    }

    fn serve(&mut self, client: u64) -> Result<(), Failure> {
        let Some(message) = self.clients.receive(client) else { return Ok(()) };
        let what = match Ask::from_text(&message) {
            Ok(ask) => self.request(ask),
            Err(error) => Err(Answer::Refused(format!(
                "the request is not understood ({error}); use the talea of this version"
            ))),
        };
        match what {
            Err(answer) => self.clients.answer(client, &answer),
            Ok((what, number)) => {
                let request = RequestId(self.next_request);
                self.next_request += 1;
                self.asked.insert(request, (client, number));
                self.inputs.push_back(Input::Requested { request, what });
                self.handle_inputs()?;
            }
        }
        Ok(())
    }

    /// Returns the machine's request with the number of its generation, or the answer.
    fn request(&mut self, ask: Ask) -> Result<(Request, Option<u64>), Answer> {
        Ok(match ask {
            Ask::Status => {
                let status = StatusText::of(&self.machine.status(), clock::now());
                return Err(Answer::Status(status));
            }
            Ask::InForce => {
                return Err(Answer::InForce(self.machine.in_force().cloned()));
            }
            Ask::Apply { generation, confirm } => {
                let last = self.machine.record().last_number.max(self.store.last_number());
                let stored = numbered(generation, last + 1);
                if let Err(failure) = self.store.add(&stored) {
                    return Err(Answer::Refused(failure.to_string()));
                }
                (Request::Apply { generation: stored.generation, confirm }, Some(last + 1))
            }
            Ask::Confirm => (Request::Confirm, None),
            Ask::RollBack(None) => (Request::RollBack { to: None }, None),
            Ask::RollBack(Some(number)) => match self.store.generation(number) {
                Ok(stored) => (Request::RollBack { to: Some(stored.generation) }, None),
                Err(failure) => return Err(Answer::Refused(failure.to_string())),
            },
            Ask::Drain { task, within } => (Request::Drain { task, within }, None),
            Ask::Remove => (Request::Remove, None),
        })
    }

    /// Passes the waiting inputs to the machine, and executes its effects.
    fn handle_inputs(&mut self) -> Result<(), Failure> {
        while let Some(input) = self.inputs.pop_front() {
            let now = clock::now();
            self.machine.handle(now, input);
            while let Some((number, effect)) = self.machine.poll_effect() {
                self.execute(number, effect, now)?;
                self.done = self.done.max(number);
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        number: EffectNumber,
        effect: Effect,
        now: Monotonic,
    ) -> Result<(), Failure> {
        let done = match effect {
            Effect::Store(record) => return self.store.store(&record),
            Effect::Observe => {
                self.observe(number);
                Ok(())
            }
            Effect::Start(task) => self.programs.start(&task),
            Effect::Stop { process, signal } => {
                self.programs.stop(process, signal);
                Ok(())
            }
            Effect::Forget { process } => {
                self.programs.forget(process);
                Ok(())
            }
            Effect::Adjust { process, task } => self.programs.adjust(process, &task),
            Effect::Set { thread, setting } => {
                mutate!("deployd-set", attributes::set(thread, &setting), Ok(()))
            }
            Effect::Report(event) => {
                log(&event_text(&event, now));
                Ok(())
            }
            Effect::Answer { request, answer } => {
                self.answer(request, answer.map_err(|refusal| refusal_sentence(&refusal)));
                Ok(())
            }
        };
        if let Err(error) = done {
            self.inputs.push_back(Input::Failed { effect: number, error });
        }
        Ok(())
    }

    /// Observes the computer. All effects up to `seen` have been executed.
    fn observe(&mut self, seen: EffectNumber) {
        let (programs, occupied) = self.programs.observe();
        self.inputs.push_back(Input::Observed(Observation { seen, programs, occupied }));
    }

    fn answer(&mut self, request: RequestId, answer: Result<(), String>) {
        let Some((client, applied)) = self.asked.remove(&request) else { return };
        let answer = match answer {
            Ok(()) => Answer::Done(self.in_force()),
            Err(why) => {
                if let Some(number) = applied {
                    self.store.discard(number);
                }
                Answer::Refused(why)
            }
        };
        self.clients.answer(client, &answer);
        self.send(client);
    }

    /// Sends answers of a connection, and watches it for space if it cannot take all.
    fn send(&mut self, client: u64) {
        if let Some((socket, is_full)) = self.clients.send(client) {
            let interest = if is_full { Interest::READ_WRITE } else { Interest::READ };
            // Without a watch the client ends by its time-out.
            let _ = self.epoll.modify(socket, interest, client_token(client));
        }
    }
}

fn client_token(client: u64) -> u64 {
    FIRST + 1 + client * 2
}
