//! Carrying out what the broker asks for, in its order.

use super::threads::Applied;
use super::{Ending, Server};
use talea_broker::input::Errno;
use talea_broker::{Effect, Input, LogEvent, SessionId};
use talea_core::Time;
use talea_core::mutate;
use talea_os::seqpacket;
use talea_os::thread::Restored;
use talea_proto::Reply;
use talea_proto::message::But;

impl Server {
    /// Does everything that is due. What an effect brings about goes back in at once, so the queue
    /// is empty when this returns.
    pub(super) fn obey(&mut self, now: Time) {
        while let Some(effect) = self.broker.poll_effect() {
            self.carry_out(now, effect);
        }
    }

    /// As [`Server::obey`], where the last effect is likely to be a reply.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "see `Server::run`: the reply leaves from the loop's own frame"
    )]
    pub(super) fn obey_inline(&mut self, now: Time) {
        while let Some(effect) = self.broker.poll_effect() {
            match effect {
                Effect::Reply { session, seq, reply } => self.answer(now, session, seq, reply),
                other => self.carry_out(now, other),
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Server::run`")]
    fn answer(&mut self, now: Time, session: SessionId, seq: u32, mut reply: Reply) {
        if let Reply::Status(status) = &mut reply {
            status.wakeups = self.wakeups;
        }
        let Some(open) = self.sessions.get(session) else { return };
        let length = reply.encode(seq, &mut self.outbox[..]);
        mutate!(
            "life-silent-reader",
            if seqpacket::send(&open.socket, &self.outbox[..length], None).is_err() {
                // It is gone, or does not read what it asked for (facts D2): nothing is owed to it.
                self.close(session);
                self.broker.handle(now, Input::Hungup { session });
            },
            if seqpacket::send(&open.socket, &self.outbox[..length], None).is_err() && length == 0 {
                // It is gone, or does not read what it asked for (facts D2): nothing is owed to it.
                self.close(session);
                self.broker.handle(now, Input::Hungup { session });
            }
        )
    }

    #[inline(never)]
    fn carry_out(&mut self, now: Time, effect: Effect) {
        match effect {
            Effect::Reply { session, seq, reply } => self.answer(now, session, seq, reply),
            Effect::Close { session } => {
                self.close(session);
            }
            Effect::Disarm { session } => {
                self.sessions.arm(session, mutate!("quota-disarm", false, true), &self.epoll)
            }
            Effect::Arm { session } => self.sessions.arm(session, true, &self.epoll),
            Effect::Apply { ticket, thread, attr } => {
                let input = match self.threads.apply(thread, &attr) {
                    Applied::Done(result) => Input::Done { ticket, result },
                    Applied::Asleep => Input::DoneBut { ticket, but: But::Asleep },
                    Applied::NotBefore(at) => Input::NotBefore { ticket, at },
                };
                self.broker.handle(now, input);
            }
            Effect::Restore { ticket, thread, attr } => {
                let input = match mutate!(
                    "kernel-restore",
                    self.threads.restore(thread, &attr),
                    Ok::<_, Errno>(Restored::Exactly)
                ) {
                    Ok(Restored::Exactly) => Input::Done { ticket, result: Ok(()) },
                    Ok(Restored::Wider) => Input::DoneBut { ticket, but: But::Wider },
                    Ok(Restored::Demoted(error)) => {
                        let errno =
                            error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
                        Input::DoneBut { ticket, but: But::Demoted { errno } }
                    }
                    Err(errno) => Input::Done { ticket, result: Err(errno) },
                };
                self.broker.handle(now, input);
            }
            Effect::Watch { thread } => {
                if let Err(error) = self.threads.watch(thread, &self.epoll)
                    && self.unwatched.is_due(now)
                {
                    // Its end will be noticed with its process's; a later daemon finds it too.
                    self.log.error(format_args!("a thread can't be watched: {error}"));
                }
            }
            Effect::Forget { thread } => {
                let left = self.threads.forget(thread, &self.epoll);
                self.report_left(left.as_ref());
            }
            Effect::WatchProcess { process } => match self.processes.watch(process, &self.epoll) {
                Ok(false) => self.broker.handle(now, Input::ProcessGone { process }),
                // Descriptors have run out: its connection's end will do.
                Err(error) if self.unwatched.is_due(now) => {
                    self.log
                        .error(format_args!("process {} can't be watched: {error}", process.pid));
                }
                Ok(true) | Err(_) => {}
            },
            Effect::ForgetProcess { process } => self.processes.forget(process),
            Effect::Remember { slot } => self.remember(slot),
            Effect::Erase { slot } => self.state.clear(slot as usize),
            Effect::Ask { ticket, plugin, question, timeout } => {
                self.hosts.ask(now, plugin, ticket, &question, timeout, &mut self.news, &self.log);
                if !self.news.is_empty() {
                    self.pass_on(now);
                }
            }
            Effect::EndHost { plugin } => {
                if self.hosts.dismiss(plugin) {
                    self.unwatch_host(plugin);
                }
            }
            Effect::Exit => self.ending = Some(Ending::Stopped),
            Effect::Log(event) => self.write_down(&event),
        }
    }

    fn remember(&mut self, slot: u32) {
        let Some(record) = self.broker.record(slot) else { return self.state.clear(slot as usize) };
        let length = record.encode_to(&mut self.outbox[..]);
        let written = self.state.write(slot as usize, &self.outbox[..length]);
        if let Err(error) = &written
            && !self.state_failing
        {
            self.log
                .error(format_args!("grants are not mirrored, a restart would lose them: {error}"));
        }
        self.state_failing = written.is_err();
    }

    /// A thread has taken what it was granted along into another program.
    pub(super) fn report_left(&self, left: Option<&Result<Restored, Errno>>) {
        match left {
            None => {}
            Some(Ok(_)) => {
                self.log.debug("a thread has started a program with a policy that it was granted; it is put back");
            }
            Some(Err(errno)) => self.log.error(format_args!(
                "a thread has started a program with a policy that it was granted and could not be put back: {}",
                std::io::Error::from_raw_os_error(errno.0)
            )),
        }
    }

    fn write_down(&self, event: &LogEvent) {
        let log = &self.log;
        let number = |errno: &Errno| std::io::Error::from_raw_os_error(errno.0);
        match event {
            LogEvent::Refused { uid, pid, refusal } => {
                log.info(format_args!("refused process {pid} of user {uid}: {}", crate::words::of(refusal)));
            }
            LogEvent::NotAsBefore { tid, uid, but } => match but {
                But::Demoted { errno } => log.warning(format_args!(
                    "thread {tid}, under a grant of user {uid}, was put back as an ordinary thread: the kernel no longer \
                     grants the policy it had before ({})",
                    std::io::Error::from_raw_os_error(*errno)
                )),
                But::Wider | But::Asleep => log.warning(format_args!(
                    "thread {tid}, under a grant of user {uid}, was put back on all CPUs: those it had before are gone"
                )),
            },
            LogEvent::RestoreFailed { tid, errno } => {
                log.error(format_args!("thread {tid} could not be put back: {}", number(errno)));
            }
            LogEvent::ApplyFailed { tid, errno } => {
                log.error(format_args!(
                    "thread {tid} could not be moved to its new priority: {}",
                    number(errno)
                ));
            }
            LogEvent::Adopted { spec, uid, tid } => match tid {
                Some(tid) => log.debug(format_args!("took over spec {} of user {uid}, thread {tid}", spec.0)),
                None => log.debug(format_args!("took over spec {} of user {uid}", spec.0)),
            },
            LogEvent::Dropped { spec } => {
                log.debug(format_args!("spec {} has nobody left and was given back", spec.0));
            }
            LogEvent::PluginOut { name, why } => {
                log.error(format_args!("plugin `{name}` is out of service until the next start: {why}"));
            }
            LogEvent::PluginLied { name, what } => {
                log.error(format_args!("plugin `{name}` answered outside its bounds: {what}"));
            }
            LogEvent::ReloadRefused { why } => {
                log.error(format_args!("the new configuration was not taken, the old one stays: {why}"));
            }
            LogEvent::RateLimited { uid } => {
                log.warning(format_args!("user {uid} is over its request rate and waits"));
            }
        }
    }
}
