//! `talea`: the command-line tool.
//!
//! Parses, asks a broker (the daemon, or the same broker in this process), and prints. Decides
//! nothing itself. Reference: design, section 7; exit codes in [`exit`].
#![forbid(unsafe_code)]

mod args;
mod batch;
mod commands;
mod compare;
mod demo;
mod exit;
mod json;
mod kernel;
mod lab;
mod link;
mod measured;
mod outcome;
mod output;
mod pages;
mod report;
mod sweep;
mod witness;
mod words;

use args::{Cli, Command};
use clap::Parser;
use exit::{Exit, RUN_FAILED};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => {
            let runs = matches!(cli.command, Command::Run(_));
            let exit = dispatch(cli).unwrap_or_else(|error| {
                output::complain(&error);
                link::exit_of(&error)
            });
            // The small numbers belong to the program that is run.
            if runs && !matches!(exit, Exit::Program(_)) { RUN_FAILED.into() } else { exit.into() }
        }
        Err(error) => {
            // Help and version go to standard output and are no failure; clap knows.
            let _ = error.print();
            match error.exit_code() {
                0 => Exit::Ok.into(),
                _ if command_word().is_some_and(|word| word == "run") => RUN_FAILED.into(),
                _ => Exit::Usage.into(),
            }
        }
    }
}

/// The first word of the command line that is neither an option nor an option's value.
fn command_word() -> Option<OsString> {
    let mut words = std::env::args_os().skip(1);
    loop {
        let word = words.next()?;
        if word == "--socket" || word == "--config" {
            words.next()?;
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return Some(word);
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let link = link::Options { socket: cli.socket, config: cli.config, verbose: cli.verbose };
    match cli.command {
        Command::Run(args) => commands::run::run(&link, &args),
        Command::Attach(args) => commands::attach::run(&link, &args),
        Command::Release(args) => commands::release::run(&link, &args),
        Command::List(args) => commands::list::run(&link, &args),
        Command::Show(args) => commands::show::run(&link, &args),
        Command::Explain(args) => commands::explain::run(&link, &args),
        Command::Status(args) => commands::status::run(&link, &args),
        Command::Check(args) => commands::check::run(&args),
        Command::ImportRetif(args) => commands::import::retif(&args),
        Command::ImportSf3p(args) => commands::import::sf3p(&args),
        Command::ImportRtApp(args) => commands::import::rtapp(&args),
        Command::Doctor(args) => commands::doctor::run(&link, &args),
        Command::Simulate(args) => commands::simulate::run(&args),
        Command::Execute(args) => commands::execute::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Analyze(args) => commands::analyze::run(&args),
        Command::New(args) => commands::new::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Man(args) => pages::man(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Markdown => pages::markdown(),
        Command::Gate(args) => commands::run::gate::enter(&args),
    }
}
