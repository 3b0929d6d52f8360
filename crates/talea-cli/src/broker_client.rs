//! Client of a broker: the daemon, or the same broker in this process.
//!
//! Model: one request, one reply, with either broker. A named socket (`--socket`, `TALEA_SOCKET`)
//! means the daemon at that socket and no other. Without a name, this process replaces a missing
//! daemon if its rights suffice. If they do not, the error has both reasons.

mod connection;
mod daemon;
mod embedded;
mod error;
mod options;
mod wire;

pub(crate) use embedded::state_file;
pub(crate) use error::{Refused, Unreachable, exit_of};
pub(crate) use options::Options;

use crate::grant_text;
use anyhow::{Context, bail};
use connection::Broker;
use error::unexpected;
use talea_os::Thread;
use talea_proto::message::{Caveat, CpuInfo, Name, PluginInfo, Status, Token};
use talea_proto::{
    Counters, Granted, PluginAnswer, Refusal, Reply, Request, SpecId, SpecInfo, Task, ThreadRef,
};
use talea_study::exit::usage;

/// Connection to a broker, with one method per request.
pub(crate) struct BrokerClient(Box<dyn Broker>);

/// Returns the reason why the environment disables Talea.
pub(crate) fn disabled() -> Option<String> {
    let value = std::env::var_os(talea_client::DISABLE_ENV)?;
    (!value.is_empty() && value != "0")
        .then(|| format!("{} is set to {}", talea_client::DISABLE_ENV, value.display()))
}

impl BrokerClient {
    /// Connects to the daemon, or starts a broker in this process.
    pub(crate) fn open(options: &Options) -> anyhow::Result<BrokerClient> {
        let missing = match BrokerClient::daemon(options) {
            Ok(link) => return Ok(link),
            Err(error) if options.named_socket().is_some() || !error.is::<Unreachable>() => {
                return Err(error);
            }
            Err(error) => error,
        };
        match embedded::open(options) {
            Ok(here) => Ok(BrokerClient(Box::new(here))),
            Err(why) => Err(Unreachable(format!(
                "{missing}\nWithout a daemon this process must decide, but cannot: {why:#}\n{REMEDY}"
            ))
            .into()),
        }
    }

    /// Connects to the daemon only.
    pub(crate) fn daemon(options: &Options) -> anyhow::Result<BrokerClient> {
        let path = match options.named_socket() {
            Some(path) => path,
            None => options.daemon_setup()?.socket.into(),
        };
        Ok(BrokerClient(Box::new(daemon::connect(path)?)))
    }

    /// Variant of [`BrokerClient::daemon`] for a command that needs the daemon. The error states
    /// how to start the daemon.
    pub(crate) fn require_daemon(options: &Options) -> anyhow::Result<BrokerClient> {
        BrokerClient::daemon(options).map_err(|error| match error.downcast::<Unreachable>() {
            Ok(Unreachable(why)) => Unreachable(format!("{why}\n{NEEDED}")).into(),
            Err(other) => other,
        })
    }

    /// Starts a broker in this process that restores the state that an earlier broker left.
    pub(crate) fn for_repair(options: &Options) -> anyhow::Result<BrokerClient> {
        Ok(BrokerClient(Box::new(embedded::open_for_repair(options)?)))
    }

    /// Describes the deciding broker in a sentence.
    pub(crate) fn describe(&self) -> String {
        self.0.describe()
    }

    /// Stops a broker in this process until the next request, so that its state file becomes
    /// available to others.
    pub(crate) fn suspend(&mut self) {
        self.0.suspend();
    }

    /// Sends a request. A refusal becomes the error [`Refused`].
    fn ask(&mut self, request: &Request, thread: Option<&Thread>) -> anyhow::Result<Reply> {
        match self.0.ask(request, thread)? {
            Reply::Refused(refusal) => Err(Refused(refusal).into()),
            reply => Ok(reply),
        }
    }

    /// Requests a grant for a thread.
    pub(crate) fn create(&mut self, task: &Task, thread: &Thread) -> anyhow::Result<Granted> {
        match self.ask(&Request::Create(meant_for(task, thread)), Some(thread))? {
            Reply::Granted(granted) => Ok(granted),
            other => unexpected(&other),
        }
    }

    /// Replaces the parameters of a spec. A refusal has no effect.
    pub(crate) fn change(&mut self, spec: SpecId, task: &Task) -> anyhow::Result<Granted> {
        match self.ask(&Request::Change { spec, task: *task }, None)? {
            Reply::Granted(granted) => Ok(granted),
            other => unexpected(&other),
        }
    }

    /// Takes over a spec that an earlier connection has created.
    pub(crate) fn claim(&mut self, spec: SpecId, token: Token) -> anyhow::Result<Granted> {
        match self.ask(&Request::Claim { spec, token }, None)? {
            Reply::Granted(granted) => Ok(granted),
            other => unexpected(&other),
        }
    }

    /// Requests a nice value for a thread without a grant.
    pub(crate) fn nice(&mut self, nice: i8, thread: &Thread) -> anyhow::Result<()> {
        let named = reference_to(thread);
        match self.ask(&Request::Nice { nice, thread: named }, Some(thread))? {
            Reply::Done | Reply::DoneWithCaveat(_) => Ok(()),
            other => unexpected(&other),
        }
    }

    /// Requests `count` equal grants, all or none, for threads with the restrictions of `thread`.
    pub(crate) fn create_group(
        &mut self,
        task: &Task,
        count: usize,
        thread: &Thread,
    ) -> anyhow::Result<Vec<Granted>> {
        let tasks = vec![meant_for(task, thread); count];
        match self.ask(&Request::CreateGroup(tasks), Some(thread))? {
            Reply::GrantedGroup(granted) if granted.len() == count => Ok(granted),
            other => unexpected(&other),
        }
    }

    /// Requests these grants, all or none.
    pub(crate) fn create_each(&mut self, tasks: &[Task]) -> anyhow::Result<Vec<Granted>> {
        match self.ask(&Request::CreateGroup(tasks.to_vec()), None)? {
            Reply::GrantedGroup(granted) if granted.len() == tasks.len() => Ok(granted),
            other => unexpected(&other),
        }
    }

    /// Attaches a thread to a spec and returns the caveat, if there is one.
    pub(crate) fn attach(
        &mut self,
        spec: SpecId,
        thread: &Thread,
    ) -> anyhow::Result<Option<Caveat>> {
        match self.ask(&Request::Attach { spec, thread: ThreadRef::Pidfd }, Some(thread))? {
            Reply::Done => Ok(None),
            Reply::DoneWithCaveat(but) => Ok(Some(but)),
            other => unexpected(&other),
        }
    }

    /// Releases a spec.
    pub(crate) fn release(&mut self, spec: SpecId) -> anyhow::Result<()> {
        match self.ask(&Request::Release(spec), None)? {
            Reply::Done => Ok(()),
            Reply::DoneWithCaveat(but) => {
                talea_study::output::note(&format!("spec {}: {}", spec.0, grant_text::caveat(but)));
                Ok(())
            }
            other => unexpected(&other),
        }
    }

    /// Releases a spec that could not be used. A failure is only printed, because the user needs
    /// the earlier error.
    pub(crate) fn release_unused(&mut self, spec: SpecId) {
        if let Err(error) = self.release(spec) {
            talea_study::output::note(&format!("spec {} could not be released: {error:#}", spec.0));
        }
    }

    /// Returns all data of a spec.
    pub(crate) fn query(&mut self, spec: SpecId) -> anyhow::Result<SpecInfo> {
        match self.ask(&Request::Query(spec), None)? {
            Reply::Spec(info) => Ok(*info),
            other => unexpected(&other),
        }
    }

    /// Returns all visible specs, in ascending order of their numbers.
    pub(crate) fn specs(&mut self) -> anyhow::Result<Vec<SpecInfo>> {
        let mut specs: Vec<SpecInfo> = Vec::new();
        let mut next = SpecId(1);
        loop {
            match self.ask(&Request::NextSpec(next), None)? {
                Reply::Spec(info) => {
                    // Ends a daemon's endless list.
                    if info.granted.spec < next {
                        bail!("the daemon's list goes backwards");
                    }
                    next = SpecId(info.granted.spec.0.saturating_add(1));
                    specs.push(*info);
                }
                Reply::End => return Ok(specs),
                other => return unexpected(&other),
            }
        }
    }

    /// Returns the state of the daemon.
    pub(crate) fn status(&mut self) -> anyhow::Result<Status> {
        match self.ask(&Request::Status, None)? {
            Reply::Status(status) => Ok(*status),
            other => unexpected(&other),
        }
    }

    /// Returns the counts of events since the start of the daemon.
    pub(crate) fn counters(&mut self) -> anyhow::Result<Counters> {
        match self.ask(&Request::Counters, None)? {
            Reply::Counters(counters) => Ok(*counters),
            other => unexpected(&other),
        }
    }

    /// Returns the plugins in order of precedence.
    pub(crate) fn plugins(&mut self) -> anyhow::Result<Vec<PluginInfo>> {
        let mut plugins = Vec::new();
        for index in 0..=talea_proto::PLUGINS_MAX as u32 {
            match self.ask(&Request::Plugin(index), None)? {
                Reply::Plugin(info) => plugins.push(*info),
                Reply::End => break,
                other => return unexpected(&other),
            }
        }
        Ok(plugins)
    }

    /// Returns a plugin's state on each of its CPUs.
    pub(crate) fn plugin_cpus(&mut self, plugin: u32) -> anyhow::Result<Vec<CpuInfo>> {
        let mut cpus = Vec::new();
        for index in 0..talea_core::cpus::MAX_CPUS as u32 {
            match self.ask(&Request::PluginCpu { plugin, index }, None)? {
                Reply::PluginCpu(info) => cpus.push(info),
                Reply::End => break,
                other => return unexpected(&other),
            }
        }
        Ok(cpus)
    }

    /// Returns a plugin's name.
    pub(crate) fn plugin_name(&mut self, index: u32) -> anyhow::Result<String> {
        match self.ask(&Request::Plugin(index), None)? {
            Reply::Plugin(info) => Ok(info.name.as_str().to_owned()),
            other => unexpected(&other),
        }
    }

    /// Returns the plugins' answers to a request for a thread, without a grant.
    pub(crate) fn explain(&mut self, task: &Task, thread: &Thread) -> anyhow::Result<Explanation> {
        match self.0.ask(&Request::Explain(meant_for(task, thread)), Some(thread))? {
            Reply::Explained { chosen, answers, refusal } => {
                Ok(Explanation { chosen, answers, refusal })
            }
            Reply::Refused(refusal) => Ok(Explanation {
                chosen: None,
                answers: refusal.answers.clone(),
                refusal: Some(refusal),
            }),
            other => unexpected(&other),
        }
    }

    /// Adds a plugin of the kind that `-P` requires: the first that accepts the request, or else
    /// the first of the kind.
    pub(crate) fn choose_plugin(
        &mut self,
        task: Task,
        kind: Option<&str>,
        thread: &Thread,
    ) -> anyhow::Result<Task> {
        let Some(kind) = kind else { return Ok(task) };
        let plugins = self.plugins().context("cannot list the plugins")?;
        let names: Vec<Name> = plugins
            .iter()
            .filter(|plugin| plugin.kind.as_str() == kind)
            .map(|plugin| plugin.name)
            .collect();
        let Some(&first) = names.first() else {
            return Err(usage(format!(
                "no plugin of kind {kind} is configured, which -P asks for; talea status lists the plugins"
            )));
        };
        for &name in &names {
            let named = Task { plugin: Some(name), ..task };
            if names.len() == 1 || self.explain(&named, thread)?.chosen.is_some() {
                return Ok(named);
            }
        }
        Ok(Task { plugin: Some(first), ..task })
    }
}

/// Answers of the plugins to a request, and the plugin that would serve it.
#[derive(Debug)]
pub(crate) struct Explanation {
    /// Index into `answers` of the plugin that would serve the request.
    pub(crate) chosen: Option<u32>,
    /// Answers, one per plugin.
    pub(crate) answers: Vec<PluginAnswer>,
    /// Refusal that precedes the plugins' answers.
    pub(crate) refusal: Option<Box<Refusal>>,
}

/// Returns the task with a reference to its thread.
fn meant_for(task: &Task, thread: &Thread) -> Task {
    Task { thread: Some(reference_to(thread)), ..*task }
}

/// Returns a reference to the thread, in the form in which [`wire::Wire`] sends it.
fn reference_to(thread: &Thread) -> ThreadRef {
    if wire::goes_as_descriptor(thread) {
        ThreadRef::Pidfd
    } else {
        ThreadRef::Tid(thread.tid().as_raw() as u32)
    }
}

/// Remedies for a missing broker.
const REMEDY: &str = "Start talead (systemctl start talead, or talead in a root shell), or run this command with \
                      CAP_SYS_NICE; talea doctor shows more.";

/// Remedy if only a daemon helps.
const NEEDED: &str =
    "Start talead (systemctl start talead, or talead in a root shell); talea doctor shows more.";
