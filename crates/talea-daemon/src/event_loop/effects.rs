//! Execution of the broker's effects, in order.

use super::threads::ApplyOutcome;
use super::{Daemon, ExitReason};
use talea_broker::input::Errno;
use talea_broker::{Effect, Input, LogEvent, SessionId};
use talea_core::Monotonic;
use talea_core::mutate;
use talea_os::seqpacket;
use talea_os::thread::Restored;
use talea_proto::Reply;
use talea_proto::message::{Caveat, DetachCause};

impl Daemon {
    /// Executes all queued effects. The results are passed to the broker at once, so the queue is
    /// empty when this returns.
    pub(super) fn run_effects(&mut self, now: Monotonic) {
        while let Some(effect) = self.broker.poll_effect() {
            self.execute(now, effect);
        }
        self.store_audit();
    }

    /// Passes the queued records of the audit trail to the recorder. Called after the replies.
    #[inline]
    pub(super) fn store_audit(&mut self) {
        if !self.broker.has_audit() {
            return;
        }
        let records = std::iter::from_fn(|| self.broker.poll_audit());
        match &self.trail {
            Some(trail) => trail.add(records),
            None => records.for_each(drop),
        }
    }

    /// Executes all queued effects in the caller's frame, for a last effect that is likely a reply.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "see `Daemon::run`: the reply is sent in the loop's own frame"
    )]
    pub(super) fn run_effects_inline(&mut self, now: Monotonic) {
        while let Some(effect) = self.broker.poll_effect() {
            match effect {
                Effect::Reply { session, seq, reply } => self.send_reply(now, session, seq, reply),
                other => self.execute(now, other),
            }
        }
        self.store_audit();
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Daemon::run`")]
    fn send_reply(&mut self, now: Monotonic, session: SessionId, seq: u32, mut reply: Reply) {
        match &mut reply {
            Reply::Status(status) => status.wakeups = self.wakeups,
            Reply::Counters(counters) => counters.request_times = self.sessions.request_times(),
            Reply::Spec(info) => {
                let thread = self.broker.thread_of(info.granted.spec);
                let overruns = thread.map(|thread| self.threads.overruns(thread));
                info.overruns = overruns.unwrap_or_default();
            }
            _ => {}
        }
        self.sessions.answered(session);
        let Some(open) = self.sessions.get(session) else { return };
        let length = reply.encode(seq, &mut self.buffers.outbox[..]);
        mutate!(
            "life-silent-reader",
            if seqpacket::send(&open.socket, &self.buffers.outbox[..length], None).is_err() {
                // The peer is gone or does not read its replies: the connection is closed.
                self.close(session);
                self.broker.handle(now, Input::Disconnected { session });
            },
            if seqpacket::send(&open.socket, &self.buffers.outbox[..length], None).is_err()
                && length == 0
            {
                // The peer is gone or does not read its replies: the connection is closed.
                self.close(session);
                self.broker.handle(now, Input::Disconnected { session });
            }
        )
    }

    #[inline(never)]
    fn execute(&mut self, now: Monotonic, effect: Effect) {
        match effect {
            Effect::Reply { session, seq, reply } => self.send_reply(now, session, seq, reply),
            Effect::Close { session } => {
                self.close(session);
            }
            Effect::CloseIfSilent { session } => self.close_if_silent(now, session),
            Effect::SuspendReading { session } => self.sessions.set_reading(
                session,
                mutate!("quota-disarm", false, true),
                &self.epoll,
            ),
            Effect::ResumeReading { session } => {
                self.sessions.set_reading(session, true, &self.epoll);
            }
            Effect::Apply { ticket, thread, attr, owner } => {
                if !self.threads.is_applied(thread) {
                    self.sample_cpu_time(now, thread);
                }
                let input = match self.threads.apply(thread, &attr, owner) {
                    ApplyOutcome::Done(result) => Input::Done { ticket, result },
                    ApplyOutcome::PendingWakeup => {
                        Input::DoneWithCaveat { ticket, caveat: Caveat::PendingWakeup }
                    }
                    ApplyOutcome::NotBefore(at) => Input::NotBefore { ticket, at },
                    ApplyOutcome::Unexpected(found) => Input::NotApplied { ticket, found },
                };
                self.broker.handle(now, input);
            }
            Effect::SetNice(order) => {
                let result = self.threads.set_nice(order.thread.thread, order.nice, order.owner);
                self.broker.handle(now, Input::NiceSet { order, result });
            }
            Effect::Restore { ticket, thread, attr, applied, owner } => {
                self.report_overruns(now, thread);
                self.sample_cpu_time(now, thread);
                let input = match mutate!(
                    "kernel-restore",
                    self.threads.restore(thread, &attr, &applied, owner),
                    Ok::<_, Errno>(Restored::Exactly)
                ) {
                    Ok(Restored::Exactly) => Input::Done { ticket, result: Ok(()) },
                    Ok(Restored::AffinityWidened) => {
                        Input::DoneWithCaveat { ticket, caveat: Caveat::AffinityWidened }
                    }
                    Ok(Restored::PolicyLost(error)) => {
                        let errno =
                            error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
                        Input::DoneWithCaveat { ticket, caveat: Caveat::PolicyLost { errno } }
                    }
                    Err(errno) => Input::Done { ticket, result: Err(errno) },
                };
                self.broker.handle(now, input);
            }
            Effect::Limit { thread, limit } => {
                if let Err(error) = self.threads.limit(thread, limit) {
                    // A client can repeat its attach.
                    if self.limiters.unwatched.allows(now) {
                        self.log.error(format_args!(
                            "a thread's budget cannot be enforced: {error}; it is not granted"
                        ));
                    }
                    self.broker.handle(now, Input::Overrun { thread });
                }
            }
            Effect::Inspect { threads } => self.inspect(now, threads),
            Effect::CheckCanaries { cpus } => self.check_canaries(now, &cpus),
            Effect::WatchThread { thread } => {
                if let Err(error) = self.threads.watch(thread, &self.epoll)
                    && self.limiters.unwatched.allows(now)
                {
                    // The thread's exit is detected with that of its process; a later daemon
                    // detects it too.
                    self.log.error(format_args!("a thread's exit cannot be watched: {error}"));
                }
            }
            Effect::ForgetThread { thread } => {
                let left = self.threads.forget(thread, &self.epoll);
                self.log_revoked(left.as_ref());
            }
            Effect::WatchProcess { process } => match self.processes.watch(process, &self.epoll) {
                Ok(false) => self.broker.handle(now, Input::ProcessExited { process }),
                // Descriptors have run out: the end of the process's connection replaces the event.
                Err(error) if self.limiters.unwatched.allows(now) => {
                    self.log.error(format_args!(
                        "the exit of process {} cannot be watched: {error}",
                        process.pid
                    ));
                }
                Ok(true) | Err(_) => {}
            },
            Effect::ForgetProcess { process } => self.processes.forget(process),
            Effect::WriteRecord { slot } => self.write_record(slot),
            Effect::EraseRecord { slot } => self.state.file.clear(slot as usize),
            Effect::CallPlugin { ticket, plugin, call, timeout } => {
                self.hosts.enqueue(
                    now,
                    plugin,
                    ticket,
                    &call,
                    timeout,
                    &mut self.host_events,
                    &self.log,
                );
                if !self.host_events.is_empty() {
                    self.forward_host_events(now);
                }
            }
            Effect::StopHost { plugin } => {
                if self.hosts.stop_host(plugin) {
                    self.unwatch_host(plugin);
                }
            }
            Effect::Exit => self.exit = Some(ExitReason::Requested),
            // The kernel's throttling ends such an interval each second.
            Effect::Log(LogEvent::StarvedByOthers { .. }) if !self.limiters.starved.allows(now) => {
            }
            Effect::Log(event) => self.log_event(&event),
        }
    }

    fn write_record(&mut self, slot: u32) {
        let Some(record) = self.broker.record(slot) else {
            return self.state.file.clear(slot as usize);
        };
        let length = record.encode_to(&mut self.buffers.outbox[..]);
        let record = &self.buffers.outbox[..length];
        let written = mutate!(
            "recovery-mirror",
            self.state.file.write(slot as usize, record).map(drop),
            Ok(())
        );
        written.expect("the broker uses allocated slots only");
    }

    /// Allocates the slots of the state file that the broker asks for, and passes their number to
    /// the broker. Without room the broker refuses.
    pub(super) fn allocate_records(&mut self, now: Monotonic) {
        if let Some(slots) = self.broker.wanted_slots() {
            self.grow_state(now, slots);
        }
    }

    #[cold]
    fn grow_state(&mut self, now: Monotonic, slots: u32) {
        let errno = self.state.reserve(slots, &self.log);
        let slots = self.state.slots();
        self.handle_input(now, Input::RecordSlots { slots, errno });
    }

    /// Logs that a thread has started another program with a granted policy.
    pub(super) fn log_revoked(&self, left: Option<&Result<Restored, Errno>>) {
        match left {
            None => {}
            Some(Ok(_)) => {
                self.log.debug("a thread has started a program with a granted policy; its previous attributes are restored");
            }
            Some(Err(errno)) => self.log.error(format_args!(
                "a thread has started a program with a granted policy, and restoring its previous attributes failed: {}",
                std::io::Error::from_raw_os_error(errno.0)
            )),
        }
    }

    fn log_event(&self, event: &LogEvent) {
        let log = &self.log;
        let number = |errno: &Errno| std::io::Error::from_raw_os_error(errno.0);
        match event {
            LogEvent::Refused { uid, pid, refusal } => {
                log.info(format_args!("refused process {pid} of user {uid}: {}", crate::text::one_line(refusal)));
            }
            LogEvent::Demoted { tid, uid } => log.warning(format_args!(
                "thread {tid}, under a grant of user {uid}, was demoted: it exceeded its budget, or its CPU time is not known"
            )),
            LogEvent::RestoredWithCaveat { tid, uid, caveat } => match caveat {
                Caveat::PolicyLost { errno } => log.warning(format_args!(
                    "thread {tid}, under a grant of user {uid}, was restored as an ordinary thread: the kernel no longer \
                     grants its previous policy ({})",
                    std::io::Error::from_raw_os_error(*errno)
                )),
                Caveat::AffinityWidened | Caveat::PendingWakeup => log.warning(format_args!(
                    "thread {tid}, under a grant of user {uid}, was restored on all CPUs: its previous CPUs are offline"
                )),
            },
            LogEvent::RestoreFailed { tid, errno } => {
                log.error(format_args!("restoring the attributes of thread {tid} failed: {}", number(errno)));
            }
            LogEvent::ApplyFailed { tid, errno } => {
                log.error(format_args!(
                    "setting the scheduling attributes of thread {tid} failed: {}",
                    number(errno)
                ));
            }
            LogEvent::Detached { tid, uid, cause } => {
                let why = match cause {
                    DetachCause::Credentials => "it no longer runs as that user only",
                    DetachCause::Affinity => "it has left the CPUs of its grant again",
                    DetachCause::Policy => "its policy or priority was changed",
                    DetachCause::Starvation => "it left ordinary threads no time on its CPU",
                    DetachCause::Offline => "its CPU went off-line",
                };
                log.warning(format_args!("thread {tid} was detached from a grant of user {uid}: {why}"));
            }
            LogEvent::StarvedByOthers { cpu } => log.warning(format_args!(
                "ordinary threads get no time on CPU {cpu}; no thread of a FIFO or RR grant is the cause"
            )),
            LogEvent::ReturnedToCpus { tid, uid } => {
                log.warning(format_args!(
                    "thread {tid}, under a grant of user {uid}, had left the CPUs of its grant and was returned to them"
                ));
            }
            LogEvent::Adopted { spec, uid, tid } => match tid {
                Some(tid) => log.debug(format_args!("adopted spec {} of user {uid}, thread {tid}", spec.0)),
                None => log.debug(format_args!("adopted spec {} of user {uid}", spec.0)),
            },
            LogEvent::Dropped { spec } => {
                log.debug(format_args!("spec {} has no owner or no plugin any more and was released", spec.0));
            }
            LogEvent::PluginOutOfService { name, why } => {
                log.error(format_args!("plugin `{name}` is out of service: {why}"));
            }
            LogEvent::PluginInService { name } => {
                log.info(format_args!("plugin `{name}` is in service again"));
            }
            LogEvent::PluginOutOfBounds { name, what } => {
                log.error(format_args!("plugin `{name}` answered outside its bounds: it named {what}"));
            }
            LogEvent::ReloadRefused { why } => {
                log.error(format_args!("the new configuration is refused, the old one stays in force: {why}"));
            }
            LogEvent::RateLimited { subject } => {
                log.warning(format_args!(
                    "{subject} exceeds the request rate; its connections are not read until the rate is met"
                ));
            }
            LogEvent::Suppressed { lines, subject } => {
                log.warning(format_args!(
                    "{lines} log lines were suppressed in one second, most of them about {subject}"
                ));
            }
        }
    }
}
