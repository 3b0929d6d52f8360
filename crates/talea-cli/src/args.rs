//! Command-line definitions: the single list of commands and options.
//!
//! Help texts, man pages, completions and `docs/manual/cli.md` are generated from these
//! definitions. Durations carry their unit (`10ms`), CPU lists have the kernel's form (`0-3,5`),
//! and `-P` takes the one-word grammar of `rtla`.

pub(crate) mod task;

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use talea_study::options::{self, Output};
use task::TaskArgs;

/// Declare what a program needs; get real time for it.
#[derive(Parser, Debug)]
#[command(name = "talea", version, disable_help_subcommand = true, max_term_width = 100)]
#[command(
    about = "Declare what a program needs; get real time for it",
    long_about = "Declare what a program needs; get real time for it.\n\nA program says what it needs (a period, a \
runtime, a deadline, a priority: any of them). Talea finds the scheduling policy that can serve it, proves that it \
fits beside everything granted before, sets it up, and tells what happened. Without a running talead the commands \
run, attach and explain decide by themselves where the caller has the rights."
)]
pub(crate) struct Cli {
    /// The daemon's socket.
    ///
    /// With this option only that daemon is asked. Without it, this process replaces a missing
    /// daemon where rights allow.
    #[arg(long, global = true, value_name = "PATH")]
    #[arg(help_heading = "Everywhere")]
    pub(crate) socket: Option<PathBuf>,
    /// The daemon's configuration, if it is not /etc/talea/talead.toml.
    ///
    /// Names the daemon's socket. Without a daemon, it names the rules and the state file that this
    /// process uses.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) config: Option<PathBuf>,
    /// Print more: what is not covered, which broker decided, how a thread is enforced.
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Run(RunArgs),
    Attach(AttachArgs),
    Release(ReleaseArgs),
    List(ListArgs),
    Show(ShowArgs),
    Explain(ExplainArgs),
    Status(StatusArgs),
    Metrics(crate::commands::metrics::MetricsArgs),
    Log(crate::commands::log::LogArgs),
    Check(CheckArgs),
    Import(crate::commands::import::ImportArgs),
    Doctor(DoctorArgs),
    Simulate(SimulateArgs),
    Execute(crate::commands::execute::ExecuteArgs),
    Replay(crate::commands::replay::ReplayArgs),
    Compare(crate::commands::compare::CompareArgs),
    Analyze(talea_study::analysis::AnalyzeArgs),
    Deploy(crate::commands::deploy::DeployArgs),
    Sweep(crate::commands::sweep::Args),
    Generate(crate::commands::generate::Args),
    New(NewArgs),
    /// Demonstrate one audio job under load, without and with Talea.
    Demo(crate::demo::Args),
    /// Write the man pages.
    #[command(hide = true)]
    Man(ManArgs),
    /// Write shell completions.
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the command-line chapter of the manual.
    #[command(hide = true)]
    Markdown,
    /// Wait at a socket for permission, then execute another program.
    #[command(hide = true)]
    Launch(LaunchArgs),
}

/// Run a program under a grant.
///
/// The program's main thread becomes real-time before its first instruction; the grant ends with
/// the thread. TERM, INT, HUP and USR1 sent to talea are forwarded to the program, and talea ends
/// with the program's exit code. Threads that the program starts are ordinary unless --all-threads
/// is given or they request a grant themselves; -v lists them as "not held".
#[derive(Args, Debug)]
#[command(after_help = "Example: talea run --period 10ms --runtime 2ms -- ./control-loop")]
pub(crate) struct RunArgs {
    /// Request a separate grant with these parameters for every thread of the program.
    ///
    /// Each thread is charged in full. New threads are detected every 100 ms: a thread that lives
    /// shorter may be missed, and one that does not fit stays ordinary. Child processes are not
    /// covered.
    #[arg(long)]
    pub(crate) all_threads: bool,
    /// Turn the scheduling calls of the program into requests for grants.
    ///
    /// The program starts as an ordinary one. Each call of its threads and children that sets a
    /// real-time policy (sched_setscheduler, sched_setparam, sched_setattr, and what C libraries
    /// build from them, such as pthread_setschedparam) requests a grant for the thread, and
    /// setpriority requests the nice value. The program gets the kernel's return values: 0, or
    /// EPERM with a line on standard error that has the reason. --runtime and --period add a budget
    /// to each request for SCHED_FIFO or SCHED_RR. Set-user-id programs gain no privileges.
    #[arg(
        long,
        conflicts_with_all = ["all_threads", "report", "policy", "priority", "deadline", "desired"]
    )]
    pub(crate) intercept: bool,
    /// Write the grant and the program's exit status to FILE as JSON when the program ends.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The program and its arguments.
    // Not with `allow_hyphen_values`: a misspelt option in front of the program would become the
    // program.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
}

/// Put a running thread under a grant.
///
/// A process id means the process's main thread, a thread id that thread. The grant ends with the
/// thread, or with talea release. Threads that are not covered are listed.
#[derive(Args, Debug)]
#[command(after_help = "Example: talea attach 4711 --period 10ms --runtime 2ms")]
pub(crate) struct AttachArgs {
    /// The thread, or a process for its main thread.
    #[arg(value_name = "PID|TID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) thread: i32,
    /// Cover every thread that the process has now: all of them, or none.
    ///
    /// Each thread gets a grant of its own with these parameters and is charged in full.
    #[arg(long)]
    pub(crate) all_threads: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
}

/// Release grants; their threads return to their earlier policy.
#[derive(Args, Debug)]
#[command(after_help = "Example: talea release 12")]
pub(crate) struct ReleaseArgs {
    /// Specs, as talea list numbers them.
    #[arg(value_name = "SPEC", required_unless_present = "pid", value_parser = spec)]
    pub(crate) specs: Vec<u64>,
    /// Every grant whose thread belongs to this process, or is this thread.
    #[arg(
        long, value_name = "PID|TID", conflicts_with = "specs",
        value_parser = clap::value_parser!(i32).range(1..)
    )]
    pub(crate) pid: Option<i32>,
}

/// List the grants, with the thread's current policy in the kernel.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only the grants of programs that asked over D-Bus, and the nice values of the last day: what
    /// they asked for, what they have, and what is in force. The calls that were refused in the
    /// last day follow, with the limit that refused them and a remedy.
    #[arg(long)]
    pub(crate) dbus: bool,
    /// Omit the line of headings.
    #[arg(long)]
    pub(crate) no_legend: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Show all data of one grant.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The spec, as talea list numbers it.
    #[arg(value_parser = spec)]
    pub(crate) spec: u64,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Show every plugin's answer to a request, and what would fit. Nothing is changed.
#[derive(Args, Debug)]
#[command(after_help = "Example: talea explain --period 10ms --runtime 2ms")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
}

/// Show the daemon's counters, plugins and CPUs, with the reserved and the free share.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Validate a configuration and print positions, reasons and remedies.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The file, such as /etc/talea/talead.toml.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Check for a machine with this many CPUs instead of this one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) cpus: Option<u32>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Diagnose why real-time scheduling would fail here, with remedies.
///
/// Checks rights, limits, control groups, throttling, root domains, kernel options, the clock and
/// the daemon. Changes nothing without --repair.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Restore threads that a broker which no longer runs left real-time.
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Run a described system under a simulated clock.
///
/// FILE describes CPUs, schedulers, tasks and their load (see the chapter on system files). The
/// scheduling engine of the simulation is the one that drives real threads. The same file, seed and
/// duration give the same result, byte by byte. Ends with 1 if an expectation of the file does not
/// hold.
#[derive(Args, Debug)]
#[command(after_help = "Example: talea simulate system.toml --duration 60s")]
pub(crate) struct SimulateArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How long to run, instead of what the file says.
    #[arg(long, visible_alias = "for", value_name = "DURATION", value_parser = options::run_length)]
    pub(crate) duration: Option<talea_core::Span>,
    /// The seed, instead of the file's.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Simulate this mode, instead of the initial mode.
    #[arg(long, value_name = "NAME")]
    pub(crate) mode: Option<String>,
    /// Request a switch to a mode at a time, such as 1.2s=landing. May be repeated, in the order of
    /// time. A switch takes effect for each root at the end of its major frame, or without tables
    /// at an idle instant.
    #[arg(long, value_name = "TIME=MODE", value_parser = switch, conflicts_with = "witness")]
    pub(crate) switch: Vec<(talea_core::Span, String)>,
    /// Run the arrivals of a witness that talea analyze --witness has written, with worst-case
    /// costs. Ends with 0 if the same job is late by the same time.
    #[arg(long, value_name = "WITNESS", conflicts_with = "seed")]
    pub(crate) witness: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) objects: crate::objects::ObjectArgs,
    #[command(flatten)]
    pub(crate) files: talea_study::run_summary::FileArgs,
    #[command(flatten)]
    pub(crate) limit: talea_study::limit::LimitArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Create a new project: a scheduling policy.
///
/// Writes a program with tests that registers the policy, reads a system file that names the
/// policy, and simulates it. The initial policy is least laxity first and works at once: cargo
/// test, cargo run -- system.toml. The project uses Talea's source tree.
#[derive(Args, Debug)]
#[command(after_help = "Example: talea new policy shortest-first --dir ~/shortest-first")]
pub(crate) struct NewArgs {
    /// Kind of project.
    #[arg(value_enum, ignore_case = true, value_name = "KIND")]
    pub(crate) kind: NewKind,
    /// Name of the policy in system files: small letters, digits and dashes.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Destination instead of policy-NAME: a folder that is empty or does not exist yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Talea's source tree, if neither this folder nor this program is inside of it.
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
}

/// Kind of a new project.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewKind {
    /// A scheduling policy.
    Policy,
}

/// Parses the request of a switch.
fn switch(text: &str) -> Result<(talea_core::Span, String), String> {
    let (time, mode) = text.split_once('=').ok_or("write it like 1.2s=landing")?;
    let time = if time == "0" { talea_core::Span::ZERO } else { options::run_length(time)? };
    Ok((time, mode.to_owned()))
}

fn spec(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("specs are numbers from 1, as talea list shows them".to_owned()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Destination folder, one file per command; without it, talea.1 goes to standard output.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate for.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct LaunchArgs {
    /// Name of the abstract socket.
    pub(crate) name: String,
    /// Send a listener of the program's scheduling calls over the socket.
    #[arg(long)]
    pub(crate) intercept: bool,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}
