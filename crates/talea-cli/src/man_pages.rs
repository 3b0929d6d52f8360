//! Man pages, completions and the manual's command-line chapter, generated from [`crate::args`].
//! The page about the configuration file is generated from its chapter of the manual, whose tables
//! come from the reader's list of keys.
//!
//! A test compares the committed files with this output.

mod roff;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roff::escape;
use std::fmt::Write;
use talea_study::exit::{Exit, RUN_TABLE, TABLE};
use talea_study::output::print;

/// Returns the visible commands, in the order of the definitions.
fn visible(cli: &Command) -> impl Iterator<Item = &Command> {
    cli.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Writes the man pages.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Exit> {
    let mut cli = Cli::command();
    cli.build();
    let Some(dir) = &args.dir else {
        print(&String::from_utf8(page(&cli, "talea")?)?)?;
        return Ok(Exit::Ok);
    };
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    write("talea.1", &page(&cli, "talea")?)?;
    for command in visible(&cli) {
        let name = format!("talea-{}", command.get_name());
        write(&format!("{name}.1"), &page(command, &name)?)?;
        for verb in visible(command) {
            let name = format!("{name}-{}", verb.get_name());
            write(&format!("{name}.1"), &page(verb, &name)?)?;
        }
    }
    let about = "configuration of talead";
    let see_also = "talead(8), talea-check(1), talea-import(1)";
    write(
        "talead.toml.5",
        roff::page("talead.toml", 5, about, CONFIGURATION, see_also).as_bytes(),
    )?;
    Ok(Exit::Ok)
}

/// Text of the chapter about the configuration file.
const CONFIGURATION: &str = include_str!("../../../docs/manual/configuration.md");

/// Renders one page. The date is omitted, because a page that changes every day cannot be compared.
fn page(command: &Command, name: &str) -> anyhow::Result<Vec<u8>> {
    let command = command.clone().display_name(name).flatten_help(false);
    let man = Man::new(command.clone())
        .title(name)
        .section("1")
        .date("")
        .source("Talea")
        .manual("Talea manual");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    out.extend_from_slice(synopsis(&command).as_bytes());
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(example) = command.get_after_help().map(ToString::to_string) {
        let example = escape(example.trim_start_matches("Example: "));
        out.extend_from_slice(format!(".SH EXAMPLE\n.nf\n{example}\n.fi\n").as_bytes());
    }
    out.extend_from_slice(exit_section(name == "talea-run").as_bytes());
    out.extend_from_slice(SEE_ALSO.as_bytes());
    Ok(out)
}

/// Returns the usage line of the help, with the names of values.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    format!(".SH SYNOPSIS\n{}\n", escape(usage.trim_start_matches("Usage: ")))
}

const SEE_ALSO: &str = ".SH ENVIRONMENT\n.TP\nTALEA_SOCKET\nThe daemon's socket; as \\-\\-socket.\n.TP\nTALEA_DISABLE\n\
                        If set and not 0, no grant is requested: run starts the program as an ordinary one.\n.TP\n\
                        NO_COLOR\nIf set, nothing is coloured.\n.SH SEE ALSO\ntalead(8), talead.toml(5), sched(7), chrt(1)\n";

fn exit_section(run: bool) -> String {
    let mut text = String::from(".SH EXIT STATUS\n");
    for (code, meaning) in table(run) {
        // Writing to a String can't fail.
        let _ = write!(text, ".TP\n{code}\n{}\n", escape(meaning));
    }
    text
}

fn table(run: bool) -> &'static [(&'static str, &'static str)] {
    if run { &RUN_TABLE } else { &TABLE }
}

/// Writes the completions of one shell.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut cli = shown();
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "talea", &mut out);
    print(&String::from_utf8(out)?)?;
    Ok(Exit::Ok)
}

/// Returns the definitions without the hidden commands, which completions would offer.
fn shown() -> Command {
    let cli = Cli::command();
    let commands: Vec<Command> = visible(&cli).cloned().collect();
    let mut shown = Command::new("talea").about(cli.get_about().cloned().unwrap_or_default());
    for argument in cli.get_arguments() {
        shown = shown.arg(argument.clone());
    }
    shown.subcommands(commands)
}

/// Writes the manual's chapter.
pub(crate) fn markdown() -> anyhow::Result<Exit> {
    print(&chapter()?)?;
    Ok(Exit::Ok)
}

fn chapter() -> anyhow::Result<String> {
    let mut cli = Cli::command().term_width(100);
    cli.build();
    let mut text = String::from(
        "# The command line\n\n<!-- Made by `talea markdown`; a test compares. Change crates/talea-cli/src/args.rs \
         instead. -->\n\n",
    );
    let about =
        cli.get_long_about().or(cli.get_about()).map(ToString::to_string).unwrap_or_default();
    writeln!(text, "{about}\n")?;
    writeln!(text, "| command | what it does |\n| --- | --- |")?;
    for command in visible(&cli) {
        let name = command.get_name();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(text, "| [`talea {name}`](#talea-{name}) | {} |", about.trim_end_matches('.'))?;
    }
    writeln!(text, "\n## Units\n\n{UNITS}\n## Exit codes\n\n| code | meaning |\n| --- | --- |")?;
    for (code, meaning) in TABLE {
        writeln!(text, "| {code} | {meaning} |")?;
    }
    writeln!(
        text,
        "\n`talea run` ends with the program's exit code, and with these where there is none:\n"
    )?;
    writeln!(text, "| code | meaning |\n| --- | --- |")?;
    for (code, meaning) in RUN_TABLE {
        writeln!(text, "| {code} | {meaning} |")?;
    }
    let names: Vec<String> = visible(&cli).map(|command| command.get_name().to_owned()).collect();
    for name in names {
        let command = cli.find_subcommand_mut(&name).context("a command that was just listed")?;
        let help = command.clone().term_width(100).render_long_help().to_string();
        writeln!(text, "\n## talea {name}\n\n```text\n{}\n```", help.trim_end())?;
        for verb in visible(command) {
            let help = verb.clone().term_width(100).render_long_help().to_string();
            let verb = verb.get_name();
            writeln!(text, "\n## talea {name} {verb}\n\n```text\n{}\n```", help.trim_end())?;
        }
    }
    Ok(text)
}

const UNITS: &str = "Durations carry their unit: `100us`, `1.5ms`, `2s`, `1024ns`; a number without a unit is refused. \
CPU lists are the kernel's: `0-3,5`. `-P` takes the one-word grammar of `rtla`: `d:2ms:10ms` (runtime and period), \
`f:80`, `r:10`, `o:0`.

`--json` prints an object whose first field is `\"schema\": 1`. Under one number fields may be added; none changes its meaning. Durations in it are nanoseconds (`…_ns`), shares are millionths of a CPU (`…_ppm`), unknown values are `null`.

`TALEA_SOCKET` names the daemon's socket, as `--socket`. `TALEA_DISABLE=1` switches Talea off: `run` starts programs as \
ordinary ones and says so. `NO_COLOR` switches colour off.
";
