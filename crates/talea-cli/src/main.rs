//! `talea`: the command-line tool.
//!
//! Parses arguments, sends requests to a broker (the daemon, or the same broker in this process),
//! and prints the replies. The broker makes all decisions. Exit codes are in [`talea_study::exit`].
#![forbid(unsafe_code)]

mod args;
mod broker_client;
mod commands;
mod demo;
mod grant_text;
mod json;
mod kernel;
mod man_pages;
mod objects;
mod reserve;
mod user_names;

use args::{Cli, Command};
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;
use talea_study::exit::{Exit, RUN_FAILED};
use talea_study::output;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => {
            let runs = matches!(cli.command, Command::Run(_));
            let exit = dispatch(cli).unwrap_or_else(|error| {
                output::print_error(&error);
                broker_client::exit_of(&error)
            });
            // Small exit codes belong to the executed program.
            if runs && !matches!(exit, Exit::Program(_)) { RUN_FAILED.into() } else { exit.into() }
        }
        Err(error) => {
            // Help and version go to standard output and are no failure.
            let _ = error.print();
            match error.exit_code() {
                0 => Exit::Ok.into(),
                _ if command_word().is_some_and(|word| word == "run") => RUN_FAILED.into(),
                _ => Exit::Usage.into(),
            }
        }
    }
}

/// Returns the first word of the command line that is neither an option nor an option's value.
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
    let options =
        broker_client::Options { socket: cli.socket, config: cli.config, verbose: cli.verbose };
    match cli.command {
        Command::Run(args) => commands::run::run(&options, &args),
        Command::Attach(args) => commands::attach::run(&options, &args),
        Command::Release(args) => commands::release::run(&options, &args),
        Command::List(args) => commands::list::run(&options, &args),
        Command::Log(args) => commands::log::run(&options, &args),
        Command::Show(args) => commands::show::run(&options, &args),
        Command::Explain(args) => commands::explain::run(&options, &args),
        Command::Status(args) => commands::status::run(&options, &args),
        Command::Metrics(args) => commands::metrics::run(&options, &args),
        Command::Check(args) => commands::check::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Doctor(args) => commands::doctor::run(&options, &args),
        Command::Simulate(args) => commands::simulate::run(&args),
        Command::Execute(args) => commands::execute::run(&options, &args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Compare(args) => commands::compare::run(&options, &args),
        Command::Analyze(args) => commands::analyze::run(&args),
        Command::Deploy(args) => commands::deploy::run(&options, &args),
        Command::New(args) => commands::new::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Sweep(args) => commands::sweep::run(&options, &args),
        Command::Demo(args) => demo::run(args),
        Command::Man(args) => man_pages::man(&args),
        Command::Completions(args) => man_pages::completions(&args),
        Command::Markdown => man_pages::markdown(),
        Command::Launch(args) => commands::run::launcher::run_helper(&args),
    }
}
