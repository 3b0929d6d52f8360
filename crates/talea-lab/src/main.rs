//! `talea-lab`: the measurements of the papers, repeated on this computer.
//!
//! Model: one client and one server at real-time priority, on the same CPU or on two CPUs
//! ([`placement`]), which spinners keep awake. A raw exchange of the same sizes ([`baseline`]) and
//! the direct system calls alternate with each measurement. So compared values are of the same
//! second. Absolute times depend on the computer, ratios on the program.
//!
//! Reference: ReTiF (JSA 2021), section 6; the daemon and its client at priority 99 on pinned CPUs.
#![forbid(unsafe_code)]

mod admission;
mod all;
mod analysis;
mod baseline;
mod bench;
mod bounds;
mod calibration;
mod computer;
mod decision;
mod echo;
mod exec;
mod figures;
mod folder;
mod ipc;
mod l3c;
mod papers;
mod placement;
mod reapply;
mod request;
mod samples;
mod server;
mod sf3p;
mod speed;
mod tasks;
mod thresholds;
mod units;
mod wakeup;
mod yasmin;

use clap::Parser;
use std::process::ExitCode;
use talea_study::exit::Exit;
use talea_study::output;

/// Repeat the papers' measurements on this machine.
///
/// Ends with 7 if a measured value is below its threshold (FAIL), and with 6 if CPU stalls
/// disturbed too many jobs.
#[derive(Parser, Debug)]
#[command(name = "talea-lab", version, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Cost of requests: create, change, attach, detach and release beside their baselines.
    Ipc(ipc::Args),
    /// Cost of a grant in each period: none, as it should be.
    Wakeup(wakeup::Args),
    /// Cost and timing accuracy of the executor, beside the same by hand.
    Exec(exec::Args),
    /// The figures of ReTiF (JSA 2021), with plots.
    Retif(figures::Args),
    /// Speed of the simulator, relative to a reference loop.
    Sim(speed::Args),
    /// Speed of the schedulability tests, relative to a reference loop.
    Analysis(analysis::Args),
    /// Cost of exact admission beside thousands of existing grants.
    Admission(admission::Args),
    /// The experiments of L3C in PikeOS (RTNS 2017), simulated and on real threads.
    L3c(l3c::Args),
    /// The experiments of SF3P (RSP 2014), simulated and on real threads.
    Sf3p(sf3p::Args),
    /// The experiments of YASMIN (Middleware 2021), simulated and on real threads.
    Yasmin(yasmin::Args),
    /// Every experiment, one after the other, into a folder; goes on where it stopped.
    All(all::Args),
    /// A server for the measurements.
    #[command(hide = true)]
    Serve(server::ServeArgs),
    /// The other end of the raw exchange, on standard input.
    #[command(hide = true)]
    Pong,
    /// The echo server of L3C's experiments: answers UDP requests with their SHA-1.
    #[command(hide = true)]
    Echo(echo::ServeArgs),
    /// Asks that server at the times on standard input.
    #[command(hide = true)]
    Ask(echo::AskArgs),
    /// A periodic program of L3C's experiments: writes the release and the end of each job.
    #[command(hide = true)]
    Jobs(l3c::JobsArgs),
    /// Computes products of matrices, and writes their number.
    #[command(hide = true)]
    Products(l3c::ProductsArgs),
    /// Keeps a CPU awake.
    #[command(hide = true)]
    Spin(placement::SpinArgs),
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => match run(cli) {
            Ok(exit) => exit.into(),
            Err(error) => {
                output::print_error(&error);
                Exit::from_error(&error).into()
            }
        },
        Err(error) => {
            // Help and version go to standard output and are no failure.
            let _ = error.print();
            if error.exit_code() == 0 { Exit::Ok.into() } else { Exit::Usage.into() }
        }
    }
}

/// Runs an experiment.
fn run(cli: Cli) -> anyhow::Result<Exit> {
    match cli.what {
        What::Ipc(args) => ipc::run(&args),
        What::Wakeup(args) => wakeup::run(&args),
        What::Exec(args) => exec::run(&args),
        What::Retif(args) => figures::run(&args),
        What::Sim(args) => speed::run(&args),
        What::Analysis(args) => analysis::run(&args),
        What::Admission(args) => admission::run(&args),
        What::L3c(args) => l3c::run(&args),
        What::Sf3p(args) => sf3p::run(&args),
        What::Yasmin(args) => yasmin::run(&args),
        What::All(args) => all::run(&args),
        What::Serve(args) => server::serve(&args),
        What::Pong => baseline::pong(),
        What::Echo(args) => echo::serve(&args),
        What::Ask(args) => echo::ask(&args),
        What::Jobs(args) => l3c::jobs(&args),
        What::Products(args) => l3c::products(&args),
        What::Spin(args) => Ok(placement::spin(&args)),
    }
}
