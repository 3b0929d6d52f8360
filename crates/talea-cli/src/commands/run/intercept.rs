//! `talea run --intercept`: scheduling calls of a program become requests to the broker.
//!
//! Model: the program waits in the launcher, which has installed a filter in itself
//! ([`talea_os::sched_calls`]). The filter stops each call that sets a policy, a priority or a nice
//! value, of the program, its threads and its children. This process answers the calls one after
//! the other:
//!
//! | call | thread without a grant of this run | thread with one |
//! | --- | --- | --- |
//! | real-time policy | create a spec and attach the thread | change the spec |
//! | priority of the present policy | the kernel decides | change the spec |
//! | ordinary policy | the kernel decides | release the spec; then the kernel decides |
//! | lower nice value | request of the nice value | the kernel decides |
//! | other | the kernel decides | the kernel decides |
//!
//! "The kernel decides" by the rights of the program, as without Talea. The thread owns its grant,
//! so the grants outlive this process. A program of another user than this process is left to the
//! kernel: this process must not obtain for it what its own user may.
//!
//! Absent on purpose: reads. The kernel has what was granted, so it answers them itself.

mod refusals;

use super::events::{Event, exit_of, wait};
use super::{launcher, signals};
use crate::args::RunArgs;
use crate::broker_client::{BrokerClient, Options, Refused, Unreachable};
use crate::grant_text;
use anyhow::Context;
use launcher::StartResult;
use refusals::Refusals;
use rustix::event::Timespec;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::Duration;
use talea_core::{Params, Priority, mutate};
use talea_os::proc::Uids;
use talea_os::sched_calls::{Answer, Call, Listener, Wanted};
use talea_os::signals::Signals;
use talea_os::thread::Identity;
use talea_os::{Attr, Policy, Thread, Tid, sched};
use talea_proto::message::{Name, Token};
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Code, Granted, Owner, SpecId, Task};
use talea_study::exit::{Exit, usage};
use talea_study::output::note;

/// Time without a call after which a broker in this process stops until the next call.
const IDLE_AFTER: Duration = Duration::from_millis(100);

/// Runs the program until its main process ends.
pub(super) fn run(options: &Options, args: &RunArgs) -> anyhow::Result<Exit> {
    // As in `run_granted`: the child is started before signals are blocked.
    let mut waiting = launcher::start(&args.command, true)?;
    let signals = signals::collect()?;
    let listener = waiting.listener.take().context("the launcher has sent no listener")?;
    let link = match BrokerClient::open(options) {
        Ok(link) => link,
        Err(error) => {
            waiting.cancel();
            return Err(error);
        }
    };
    if options.verbose {
        note(&link.describe());
    }
    let supervisor = Supervisor::new(options, args, link, listener);
    let (mut child, pidfd, start) = waiting.release()?;
    if let StartResult::Failed(errno) = start {
        launcher::print_start_error(args, &std::io::Error::from_raw_os_error(errno));
    }
    let status = supervise(supervisor, &mut child, &pidfd, &signals)?;
    Ok(exit_of(status))
}

/// Waits for the end of the program, answers its calls and forwards signals.
fn supervise(
    supervisor: Supervisor,
    child: &mut Child,
    pidfd: &OwnedFd,
    signals: &Signals,
) -> anyhow::Result<ExitStatus> {
    let idle_after = Timespec::try_from(IDLE_AFTER)?;
    let mut supervisor = Some(supervisor);
    let mut is_idle = false;
    loop {
        let calls = supervisor.as_ref().map(|supervisor| supervisor.listener.as_fd());
        match wait(pidfd, signals, calls, (!is_idle).then_some(&idle_after))? {
            Event::Ended => break,
            Event::Signal => signals::forward(signals, child, pidfd)?,
            Event::Call => {
                is_idle = false;
                // Without a listener, the kernel answers calls with ENOSYS. A program must not
                // wait for a supervisor that has failed.
                if let Err(error) = supervisor.as_mut().map_or(Ok(()), Supervisor::serve) {
                    note(&format!("calls of the program fail from now on: {error:#}"));
                    supervisor = None;
                }
            }
            Event::Timeout => {
                is_idle = true;
                if let Some(supervisor) = &mut supervisor {
                    supervisor.link.suspend();
                }
            }
        }
    }
    if let Some(supervisor) = supervisor {
        supervisor.refusals.note_rest();
    }
    Ok(child.wait()?)
}

/// Grant of a thread.
struct Held {
    identity: Identity,
    spec: SpecId,
    /// Secret with which another connection of this process may change the grant.
    token: Token,
    policy: Policy,
    /// The only plugin that the request has asked, if it has named one.
    plugin: Option<Name>,
}

/// Supervisor of the calls of a program.
struct Supervisor<'a> {
    options: &'a Options,
    /// Declaration that each request has beside the parameters of its call.
    task: Task,
    link: BrokerClient,
    listener: Listener,
    /// Plugins with their kinds.
    kinds: Vec<(Name, Name)>,
    held: BTreeMap<Tid, Held>,
    /// Number of grants above which those of ended threads are removed from `held`.
    prune_above: usize,
    refusals: Refusals,
}

/// Minimum of [`Supervisor::prune_above`].
const MIN_PRUNE: usize = 64;

impl<'a> Supervisor<'a> {
    fn new(
        options: &'a Options,
        args: &RunArgs,
        link: BrokerClient,
        listener: Listener,
    ) -> Supervisor<'a> {
        Supervisor {
            options,
            task: args.task.to_task(Owner::Thread),
            link,
            listener,
            kinds: Vec::new(),
            held: BTreeMap::new(),
            prune_above: MIN_PRUNE,
            refusals: Refusals::default(),
        }
    }

    /// Receives a call and answers it.
    fn serve(&mut self) -> anyhow::Result<()> {
        let Some(call) = self.listener.next().context("no call from the filter")? else {
            return Ok(());
        };
        let answer = self.decide(&call);
        self.listener.answer(&call, answer).context("the call cannot be answered")
    }

    fn decide(&mut self, call: &Call) -> Answer {
        let wanted = call.wanted();
        if wanted == Wanted::Kernel {
            return Answer::Continue;
        }
        // The kernel has the error number for a thread that does not exist.
        let Some((caller, thread)) = threads_of(call) else { return Answer::Continue };
        let is_ours = is_ours(&caller) && is_ours(&thread);
        // After this check, what was read by the caller's number is about the caller.
        if !mutate!("run-intercept-user", is_ours, true) || !self.listener.is_waiting(call) {
            return Answer::Continue;
        }
        let held = self.held_policy(&thread);
        let result = match (wanted, held) {
            (Wanted::RealTime(policy), _) => self.make_realtime(&thread, policy),
            (Wanted::Unsupported(what), _) => Err(usage(format!("no grant has {what}"))),
            (Wanted::Priority(priority), Some(held)) => match with_priority(held, priority) {
                Some(policy) => self.make_realtime(&thread, policy),
                None => return Answer::Continue,
            },
            (Wanted::Ordinary { policy, keeps_nice }, _) => {
                match self.make_ordinary(&thread, policy, keeps_nice) {
                    Ok(Done::Completely) => Ok(()),
                    Ok(Done::UpToTheKernel) => return Answer::Continue,
                    Err(error) => Err(error),
                }
            }
            (Wanted::Nice(nice), None) if needs_request(&thread, nice) => {
                match self.make_nice(&thread, nice) {
                    // The error number of `setpriority` for a nice value without a right.
                    Err(error) => {
                        self.refusals.note(&thread, &format!("nice {nice}"), &error);
                        return Answer::Failure(libc::EACCES);
                    }
                    done => done,
                }
            }
            (Wanted::Priority(_) | Wanted::Nice(_) | Wanted::Kernel, _) => return Answer::Continue,
        };
        match result {
            Ok(()) => Answer::Success,
            Err(error) => {
                self.refusals.note(&thread, &asked(wanted), &error);
                Answer::Failure(number_of(&error))
            }
        }
    }

    /// Returns the policy that the thread has requested and still holds, as far as this run knows.
    fn held_policy(&mut self, thread: &Thread) -> Option<Policy> {
        let held = self.held.get(&thread.tid())?;
        if thread.identity().is_ok_and(|identity| identity == held.identity) {
            return Some(held.policy);
        }
        self.held.remove(&thread.tid());
        None
    }

    /// Makes the thread real-time under a grant.
    fn make_realtime(&mut self, thread: &Thread, policy: Policy) -> anyhow::Result<()> {
        let task = self.task_for(policy);
        let kind = kind_of(policy);
        if let Some(&Held { spec, token, policy: held, plugin, .. }) = self.held.get(&thread.tid())
        {
            match self.ask(|link, kinds| {
                // An explanation would count the grant that the change replaces.
                let task = if kind == kind_of(held) {
                    Task { plugin, ..task }
                } else {
                    choose_plugin(link, kinds, task, kind, thread)?
                };
                let changed = match link.change(spec, &task) {
                    // The connection is another one than that of the creation.
                    Err(error) if code_of(&error) == Some(Code::NotOwner) => {
                        mutate!("run-intercept-claim", link.claim(spec, token).map(drop)?);
                        link.change(spec, &task)
                    }
                    other => other,
                };
                Ok((changed?, task))
            }) {
                Ok((granted, task)) => {
                    if let Some(held) = self.held.get_mut(&thread.tid()) {
                        (held.policy, held.plugin) = (policy, task.plugin);
                    }
                    self.note_grant(thread, &granted, &task);
                    return Ok(());
                }
                // The daemon has ended the grant, for example after an overrun.
                Err(error) if code_of(&error) == Some(Code::NoSuchSpec) => {
                    self.held.remove(&thread.tid());
                }
                Err(error) => return Err(error),
            }
        }
        let (granted, task) = self.ask(|link, kinds| {
            let task = choose_plugin(link, kinds, task, kind, thread)?;
            let granted = link.create(&task, thread)?;
            // The thread waits for this process, so a pending wake-up follows with the answer.
            if let Err(error) = link.attach(granted.spec, thread) {
                link.release_unused(granted.spec);
                return Err(error);
            }
            Ok((granted, task))
        })?;
        let identity = thread.identity()?;
        let (spec, token, plugin) = (granted.spec, granted.token, task.plugin);
        self.held.insert(thread.tid(), Held { identity, spec, token, policy, plugin });
        self.prune();
        self.note_grant(thread, &granted, &task);
        Ok(())
    }

    /// Prints a grant, if the user asks for details.
    fn note_grant(&mut self, thread: &Thread, granted: &Granted, task: &Task) {
        if self.options.verbose {
            // The grant holds, also if the daemon has ended meanwhile.
            let plugin = self.link.plugin_name(granted.plugin).unwrap_or_default();
            note(&format!(
                "{}: spec {}: {}",
                refusals::named(thread),
                granted.spec.0,
                grant_text::granted(granted, &plugin, task)
            ));
        }
    }

    /// Removes the grants of ended threads, in amortized constant time.
    fn prune(&mut self) {
        if self.held.len() > self.prune_above {
            self.held.retain(|_, held| Thread::reopen(&held.identity).is_ok());
            self.prune_above = (2 * self.held.len()).max(MIN_PRUNE);
        }
    }

    /// Prepares an ordinary policy of the thread: ends its grant, and requests the nice value.
    ///
    /// A thread with reset-on-fork, which a granted nice value has set, must keep this flag, and
    /// the program does not know it. So this process executes the call, with the flag.
    fn make_ordinary(
        &mut self,
        thread: &Thread,
        policy: Policy,
        keeps_nice: bool,
    ) -> anyhow::Result<Done> {
        self.release(thread);
        let tid = thread.tid();
        let nice = match policy {
            Policy::Other { nice } | Policy::Batch { nice } | Policy::Ext { nice }
                if !keeps_nice =>
            {
                if needs_request(thread, nice) {
                    self.make_nice(thread, nice)?;
                }
                nice
            }
            _ => sched::get_nice(tid)?,
        };
        if mutate!("run-intercept-reset", !sched::get(tid)?.reset_on_fork, true) {
            return Ok(Done::UpToTheKernel);
        }
        let policy = match policy {
            Policy::Other { .. } => Policy::Other { nice },
            Policy::Batch { .. } => Policy::Batch { nice },
            other => other,
        };
        sched::set(tid, &Attr { reset_on_fork: true, ..Attr::plain(policy) })?;
        Ok(Done::Completely)
    }

    /// Ends the grant of a thread. A grant that has ended before is no failure.
    fn release(&mut self, thread: &Thread) {
        let Some(held) = self.held.remove(&thread.tid()) else { return };
        match self.ask(|link, _| link.release(held.spec)) {
            Err(error) if code_of(&error) != Some(Code::NoSuchSpec) => {
                note(&format!("spec {} could not be released: {error:#}", held.spec.0));
            }
            _ => {}
        }
    }

    fn make_nice(&mut self, thread: &Thread, nice: i32) -> anyhow::Result<()> {
        let nice = i8::try_from(nice).context("a nice value is at most 19")?;
        self.ask(|link, _| link.nice(nice, thread))
    }

    fn task_for(&self, policy: Policy) -> Task {
        let params = match policy {
            Policy::Deadline { runtime, deadline, period } => Params {
                period: Some(period),
                runtime: Some(runtime),
                deadline: Some(deadline),
                ..Params::default()
            },
            _ => Params { priority: Some(Priority(policy.priority())), ..self.task.params },
        };
        Task { params, ..self.task }
    }

    /// Sends requests. If the connection is lost, connects again and repeats them once: the daemon
    /// may have been restarted.
    fn ask<T>(
        &mut self,
        request: impl Fn(&mut BrokerClient, &mut Vec<(Name, Name)>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        match request(&mut self.link, &mut self.kinds) {
            Err(error) if error.is::<Unreachable>() => {
                self.link = BrokerClient::open(self.options)?;
                self.kinds.clear();
                request(&mut self.link, &mut self.kinds)
            }
            other => other,
        }
    }
}

/// State of a call after the work of this process.
enum Done {
    Completely,
    /// The kernel executes the call.
    UpToTheKernel,
}

/// Names the plugin of the kind that belongs to the policy, if one of them serves the task.
/// Otherwise the order of the configuration decides.
fn choose_plugin(
    link: &mut BrokerClient,
    kinds: &mut Vec<(Name, Name)>,
    task: Task,
    kind: &str,
    thread: &Thread,
) -> anyhow::Result<Task> {
    if task.plugin.is_some() {
        return Ok(task);
    }
    if kinds.is_empty() {
        *kinds = link.plugins()?.into_iter().map(|plugin| (plugin.name, plugin.kind)).collect();
    }
    let answers = link.explain(&task, thread)?.answers;
    let named = answers.iter().find(|answer| {
        matches!(answer.verdict, PluginVerdict::Ok { .. } | PluginVerdict::Partial { .. })
            && kinds.iter().any(|(name, of)| *name == answer.name && of.as_str() == kind)
    });
    let plugin = mutate!("run-intercept-plugin", named.map(|answer| answer.name), None);
    Ok(Task { plugin, ..task })
}

/// Returns the kind of plugin that grants a policy.
fn kind_of(policy: Policy) -> &'static str {
    match policy {
        Policy::Deadline { .. } => "edf",
        Policy::Rr(_) => "rr",
        _ => "fp",
    }
}

/// Returns the policy with another priority; `None` if it has none or the priority does not exist.
fn with_priority(policy: Policy, priority: i32) -> Option<Policy> {
    let priority = u8::try_from(priority).ok().filter(|level| (1..=99).contains(level))?;
    match policy {
        Policy::Fifo(_) => Some(Policy::Fifo(priority)),
        Policy::Rr(_) => Some(Policy::Rr(priority)),
        _ => None,
    }
}

/// Whether a nice value needs a right: it is below the present one.
fn needs_request(thread: &Thread, nice: i32) -> bool {
    sched::get_nice(thread.tid()).is_ok_and(|present| nice < present)
}

/// Opens the calling thread and the thread that the call is about.
fn threads_of(call: &Call) -> Option<(Thread, Thread)> {
    let caller = Thread::open(call.caller()?).ok()?;
    let target = Thread::open(call.target().ok()?).ok()?;
    Some((caller, target))
}

/// Whether all user ids of the thread are the user of this process.
fn is_ours(thread: &Thread) -> bool {
    let Uids { real, effective, saved } = thread.uids();
    [real, effective, saved].iter().all(|&id| id == geteuid().as_raw())
}

/// Describes the requested policy.
fn asked(wanted: Wanted) -> String {
    match wanted {
        Wanted::RealTime(Policy::Fifo(priority)) => format!("SCHED_FIFO {priority}"),
        Wanted::RealTime(Policy::Rr(priority)) => format!("SCHED_RR {priority}"),
        Wanted::RealTime(Policy::Deadline { runtime, period, .. }) => {
            format!("SCHED_DEADLINE {runtime} every {period}")
        }
        Wanted::Priority(priority) => format!("priority {priority}"),
        Wanted::Nice(nice) => format!("nice {nice}"),
        Wanted::Ordinary { .. } => "an ordinary policy".to_owned(),
        Wanted::Unsupported(_) | Wanted::RealTime(_) | Wanted::Kernel => "real time".to_owned(),
    }
}

fn code_of(error: &anyhow::Error) -> Option<Code> {
    error.downcast_ref::<Refused>().map(|refused| refused.0.code)
}

/// Returns the error number of a request that has failed. The program sees the number that the
/// kernel has for a missing right, whatever the reason.
fn number_of(error: &anyhow::Error) -> i32 {
    match code_of(error) {
        Some(Code::NoSuchThread) => libc::ESRCH,
        _ => libc::EPERM,
    }
}
