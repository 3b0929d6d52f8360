//! Carrying out what the broker asks for, in its order.

use super::threads::Applied;
use super::{Ending, Server};
use talea_broker::input::Errno;
use talea_broker::{Effect, Input, LogEvent};
use talea_core::Time;
use talea_os::seqpacket;
use talea_os::thread::Restored;
use talea_proto::Reply;

impl Server {
    /// Does everything that is due. What an effect brings about goes back in at once, so the queue is empty when
    /// this returns.
    pub(super) fn obey(&mut self, now: Time) {
        while let Some(effect) = self.broker.poll_effect() {
            self.carry_out(now, effect);
        }
    }

    fn carry_out(&mut self, now: Time, effect: Effect) {
        match effect {
            Effect::Reply { session, seq, mut reply } => {
                if let Reply::Status(status) = &mut reply {
                    status.wakeups = self.wakeups;
                }
                let Some(open) = self.sessions.get(session) else { return };
                let length = reply.encode(seq, &mut self.outbox[..]);
                if seqpacket::send(&open.socket, &self.outbox[..length], None).is_err() {
                    // It is gone, or does not read what it asked for (facts D2): nothing is owed to it.
                    self.sessions.close(session);
                    self.broker.handle(now, Input::Hungup { session });
                }
            }
            Effect::Close { session } => {
                self.sessions.close(session);
            }
            Effect::Disarm { session } => self.sessions.arm(session, false, &self.epoll),
            Effect::Arm { session } => self.sessions.arm(session, true, &self.epoll),
            Effect::Apply { ticket, thread, attr } => match self.threads.apply(now, thread, &attr) {
                Applied::Done(result) => self.broker.handle(now, Input::Done { ticket, result }),
                Applied::NotBefore(at) => self.put_off.push((at, effect)),
            },
            Effect::Restore { ticket, thread, attr } => {
                let result = self.threads.restore(thread, &attr).map(|how| self.report(&how));
                self.broker.handle(now, Input::Done { ticket, result });
            }
            Effect::Watch { thread } => {
                if let Err(error) = self.threads.watch(thread, &self.epoll)
                    && self.unwatched.is_due(now)
                {
                    // Its end will be noticed with its process's; a later daemon finds it too.
                    self.log.error(format_args!("a thread can't be watched: {error}"));
                }
            }
            Effect::Forget { thread } => self.threads.forget(thread, &self.epoll),
            Effect::WatchProcess { process } => match self.processes.watch(process, &self.epoll) {
                Ok(false) => self.broker.handle(now, Input::ProcessGone { process }),
                // Descriptors have run out: its connection's end will do.
                Err(error) if self.unwatched.is_due(now) => {
                    self.log.error(format_args!("process {} can't be watched: {error}", process.pid));
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
            Effect::Exit => self.ending = Some(Ending::Stopped),
            Effect::Log(event) => {
                self.write_down(&event);
                if let LogEvent::PluginOut { name, .. } = &event
                    && let Some(plugin) = self.hosts.dismiss(name)
                {
                    self.unwatch_host(plugin);
                }
            }
        }
    }

    /// When the first order is due that was put off.
    pub(super) fn next_put_off(&self) -> Option<Time> {
        self.put_off.iter().map(|&(at, _)| at).min()
    }

    /// Gives the orders again that were put off until now.
    pub(super) fn catch_up(&mut self, now: Time) {
        while let Some(due) = self.put_off.iter().position(|&(at, _)| at <= now) {
            let (_, effect) = self.put_off.swap_remove(due);
            self.carry_out(now, effect);
        }
        self.obey(now);
    }

    fn remember(&mut self, slot: u32) {
        let Some(record) = self.broker.record(slot) else { return self.state.clear(slot as usize) };
        let written = self.state.write(slot as usize, &record.encode()[..record.encoded_len()]);
        if let Err(error) = &written
            && !self.state_failing
        {
            self.log.error(format_args!("grants are not mirrored, a restart would lose them: {error}"));
        }
        self.state_failing = written.is_err();
    }

    fn report(&self, how: &Restored) {
        match how {
            Restored::Exactly => {}
            Restored::Wider => self.log.warning("a thread's old CPUs are gone; it may use all of its cpuset"),
            Restored::Demoted(error) => self.log.warning(format_args!(
                "a thread's old real-time policy is no longer granted ({error}); it is an ordinary thread now"
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
