//! Whom the commands ask: the daemon, or the same broker in this process.
//!
//! Model: one request, one reply, whoever decides. A socket that is named (`--socket`,
//! `TALEA_SOCKET`) means that daemon and no other; without a name a missing daemon is replaced by
//! this process where rights allow, and where they do not, both reasons are given.

mod daemon;
mod here;
mod wire;

pub(crate) use here::state_file;

use crate::exit::Exit;
use crate::words;
use anyhow::{Context, bail};
use std::fmt;
use std::path::{Path, PathBuf};
use talea_daemon::start::{CONFIG_PATH, StartError, load};
use talea_os::Thread;
use talea_os::machine::Machine;
use talea_proto::message::{But, CpuInfo, Name, PluginInfo, Status};
use talea_proto::{
    Answer, Granted, Named, Refusal, Reply, Request, SOCKET_ENV, SpecId, SpecInfo, Task,
};
use talea_system::config::{DaemonSetup, Loaded};

/// What every command knows about whom to ask.
#[derive(Debug)]
pub(crate) struct Options {
    /// The daemon's socket, if the user named one.
    pub(crate) socket: Option<PathBuf>,
    /// The daemon's configuration, if the user named one.
    pub(crate) config: Option<PathBuf>,
    /// Whether to say more.
    pub(crate) verbose: bool,
}

impl Options {
    /// The socket that was named, by option or by environment.
    pub(crate) fn named_socket(&self) -> Option<PathBuf> {
        let from_environment =
            || std::env::var_os(SOCKET_ENV).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.socket.clone().or_else(from_environment)
    }

    /// Where the configuration lies.
    pub(crate) fn config_path(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(CONFIG_PATH))
    }

    /// The configuration; `None` where there is none and none was named.
    pub(crate) fn load(&self, machine: &Machine) -> anyhow::Result<Option<Loaded>> {
        let path = self.config_path();
        if self.config.is_none() && !path.exists() {
            return Ok(None);
        }
        match load(path, machine) {
            Ok(loaded) => Ok(Some(loaded)),
            Err(StartError::Configuration(text) | StartError::Other(text)) => {
                let why = format!(
                    "the configuration cannot be used; talea check {} shows why:\n{}",
                    path.display(),
                    text.trim_end()
                );
                // Whoever names a file means that file.
                if self.config.is_some() { Err(Misuse(why).into()) } else { bail!("{why}") }
            }
        }
    }

    /// What the configuration says about the daemon, or what is usual. Fails only where a file was
    /// named.
    pub(crate) fn daemon_setup(&self) -> anyhow::Result<DaemonSetup> {
        let loaded = match (Machine::probe(), &self.config) {
            (Ok(machine), Some(_)) => self.load(&machine)?,
            (Ok(machine), None) => self.load(&machine).ok().flatten(),
            (Err(_), _) => None,
        };
        Ok(loaded.map_or_else(DaemonSetup::default, |loaded| loaded.daemon))
    }
}

/// One request, one reply.
trait Broker {
    /// Asks; a thread travels as a descriptor.
    fn ask(&mut self, request: &Request, thread: Option<&Thread>) -> anyhow::Result<Reply>;
    /// For people: who decides.
    fn who(&self) -> String;
    /// Nothing will be asked for a while: let go of what others may need.
    fn rest(&mut self);
}

/// A broker that answers.
pub(crate) struct Link(Box<dyn Broker>);

/// The broker said no. An error only here at the edge, where it ends the command.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Box<Refusal>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words::refusal(&self.0))
    }
}

impl std::error::Error for Refused {}

/// Nobody is there to decide.
#[derive(Debug)]
pub(crate) struct Unreachable(pub(crate) String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// The user asked for something that makes no sense.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// The exit code of an error that ends a command.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    if let Some(refused) = error.downcast_ref::<Refused>() {
        Exit::of(&refused.0)
    } else if error.is::<Unreachable>() {
        Exit::Unreachable
    } else if error.is::<Misuse>() {
        Exit::Usage
    } else {
        Exit::Failure
    }
}

/// Why nothing may be asked for, when the environment says so.
pub(crate) fn disabled() -> Option<String> {
    let value = std::env::var_os(talea_client::DISABLE_ENV)?;
    (!value.is_empty() && value != "0")
        .then(|| format!("{} is set to {}", talea_client::DISABLE_ENV, value.display()))
}

impl Link {
    /// The daemon, or this process in its place.
    pub(crate) fn open(options: &Options) -> anyhow::Result<Link> {
        let missing = match Link::daemon(options) {
            Ok(link) => return Ok(link),
            Err(error) if options.named_socket().is_some() || !error.is::<Unreachable>() => {
                return Err(error);
            }
            Err(error) => error,
        };
        match here::open(options) {
            Ok(here) => Ok(Link(Box::new(here))),
            Err(why) => Err(Unreachable(format!(
                "{missing}\nWithout a daemon this process must decide, and cannot: {why:#}\n{REMEDY}"
            ))
            .into()),
        }
    }

    /// The daemon and nobody else.
    pub(crate) fn daemon(options: &Options) -> anyhow::Result<Link> {
        let path = match options.named_socket() {
            Some(path) => path,
            None => options.daemon_setup()?.socket.into(),
        };
        Ok(Link(Box::new(daemon::connect(path)?)))
    }

    /// As [`Link::daemon`], for a command that is nothing without one: says how to get it.
    pub(crate) fn needed_daemon(options: &Options) -> anyhow::Result<Link> {
        Link::daemon(options).map_err(|error| match error.downcast::<Unreachable>() {
            Ok(Unreachable(why)) => Unreachable(format!("{why}\n{NEEDED}")).into(),
            Err(other) => other,
        })
    }

    /// A broker in this process for putting back what an earlier one left.
    pub(crate) fn for_repair(options: &Options) -> anyhow::Result<Link> {
        Ok(Link(Box::new(here::open_for_repair(options)?)))
    }

    /// For people: who decides.
    pub(crate) fn who(&self) -> String {
        self.0.who()
    }

    /// Nothing will be asked for a while: a broker in this process lets go of the state that it
    /// holds alone.
    pub(crate) fn rest(&mut self) {
        self.0.rest();
    }

    /// Asks; a refusal becomes the error [`Refused`].
    fn ask(&mut self, request: &Request, thread: Option<&Thread>) -> anyhow::Result<Reply> {
        match self.0.ask(request, thread)? {
            Reply::Refused(refusal) => Err(Refused(refusal).into()),
            reply => Ok(reply),
        }
    }

    /// Asks for a grant.
    pub(crate) fn create(&mut self, task: &Task) -> anyhow::Result<Granted> {
        match self.ask(&Request::Create(*task), None)? {
            Reply::Granted(granted) => Ok(granted),
            other => unexpected(&other),
        }
    }

    /// Asks for `count` grants of this kind, all or none.
    pub(crate) fn create_group(
        &mut self,
        task: &Task,
        count: usize,
    ) -> anyhow::Result<Vec<Granted>> {
        match self.ask(&Request::CreateGroup(vec![*task; count]), None)? {
            Reply::GrantedGroup(granted) if granted.len() == count => Ok(granted),
            other => unexpected(&other),
        }
    }

    /// Makes a thread real-time under a spec; what is missing, if anything.
    pub(crate) fn attach(&mut self, spec: SpecId, thread: &Thread) -> anyhow::Result<Option<But>> {
        match self.ask(&Request::Attach { spec, thread: Named::Pidfd }, Some(thread))? {
            Reply::Done => Ok(None),
            Reply::DoneBut(but) => Ok(Some(but)),
            other => unexpected(&other),
        }
    }

    /// Gives a spec back.
    pub(crate) fn release(&mut self, spec: SpecId) -> anyhow::Result<()> {
        match self.ask(&Request::Release(spec), None)? {
            Reply::Done => Ok(()),
            Reply::DoneBut(but) => {
                crate::output::note(&format!("spec {}: {}", spec.0, words::but(but)));
                Ok(())
            }
            other => unexpected(&other),
        }
    }

    /// Gives back what could not be used. The reason why it could not is what the user must hear
    /// of.
    pub(crate) fn give_back(&mut self, spec: SpecId) {
        if let Err(error) = self.release(spec) {
            crate::output::note(&format!("spec {} could not be given back: {error:#}", spec.0));
        }
    }

    /// What is known of a spec.
    pub(crate) fn query(&mut self, spec: SpecId) -> anyhow::Result<SpecInfo> {
        match self.ask(&Request::Query(spec), None)? {
            Reply::Spec(info) => Ok(*info),
            other => unexpected(&other),
        }
    }

    /// Every spec that may be seen, by number.
    pub(crate) fn specs(&mut self) -> anyhow::Result<Vec<SpecInfo>> {
        let mut specs: Vec<SpecInfo> = Vec::new();
        let mut next = SpecId(1);
        loop {
            match self.ask(&Request::NextSpec(next), None)? {
                Reply::Spec(info) => {
                    // A daemon that answers in circles must not keep us here.
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

    /// The daemon in numbers.
    pub(crate) fn status(&mut self) -> anyhow::Result<Status> {
        match self.ask(&Request::Status, None)? {
            Reply::Status(status) => Ok(*status),
            other => unexpected(&other),
        }
    }

    /// The plugins in order of precedence.
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

    /// What a plugin has on each of its CPUs.
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

    /// A plugin's name.
    pub(crate) fn plugin_name(&mut self, index: u32) -> anyhow::Result<String> {
        match self.ask(&Request::Plugin(index), None)? {
            Reply::Plugin(info) => Ok(info.name.as_str().to_owned()),
            other => unexpected(&other),
        }
    }

    /// What would happen to a request.
    pub(crate) fn explain(&mut self, task: &Task) -> anyhow::Result<Explained> {
        match self.0.ask(&Request::Explain(*task), None)? {
            Reply::Explained { chosen, answers, refusal } => {
                Ok(Explained { chosen, answers, refusal })
            }
            Reply::Refused(refusal) => Ok(Explained {
                chosen: None,
                answers: refusal.answers.clone(),
                refusal: Some(refusal),
            }),
            other => unexpected(&other),
        }
    }

    /// The request with a plugin of the kind that `-P` asks for: the first that takes it, else the
    /// first there is.
    pub(crate) fn choose(&mut self, task: Task, kind: Option<&str>) -> anyhow::Result<Task> {
        let Some(kind) = kind else { return Ok(task) };
        let plugins = self.plugins().context("cannot learn which plugins there are")?;
        let names: Vec<Name> = plugins
            .iter()
            .filter(|plugin| plugin.kind.as_str() == kind)
            .map(|plugin| plugin.name)
            .collect();
        let Some(&first) = names.first() else {
            return Err(Misuse(format!(
                "no plugin of kind {kind} is configured, which -P asks for; talea status lists the plugins"
            ))
            .into());
        };
        for &name in &names {
            let named = Task { plugin: Some(name), ..task };
            if names.len() == 1 || self.explain(&named)?.chosen.is_some() {
                return Ok(named);
            }
        }
        Ok(Task { plugin: Some(first), ..task })
    }
}

/// What each plugin says to a request, and who would get it.
#[derive(Debug)]
pub(crate) struct Explained {
    /// Index into `answers`.
    pub(crate) chosen: Option<u32>,
    /// One answer a plugin.
    pub(crate) answers: Vec<Answer>,
    /// What would be refused before any plugin is asked.
    pub(crate) refusal: Option<Box<Refusal>>,
}

/// How to get what is missing.
const REMEDY: &str = "Start talead (systemctl start talead, or talead in a root shell), or run this command with \
                      CAP_SYS_NICE; talea doctor tells more.";

/// The same where no other command would do.
const NEEDED: &str =
    "Start talead (systemctl start talead, or talead in a root shell); talea doctor tells more.";

fn unexpected<T>(reply: &Reply) -> anyhow::Result<T> {
    bail!("the broker answered with something else than was asked: {reply:?}")
}
