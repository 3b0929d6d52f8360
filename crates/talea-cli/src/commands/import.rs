//! `talea import`: converts files of other programs to Talea's files.
//!
//! One command reads every form. [`form`] recognises the form of a text, and `--from` overrides the
//! result.

mod form;
#[cfg(test)]
mod tests;

use anyhow::Context;
use form::{Content, Form, recognise};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use talea_config::Diagnostic;
use talea_config::FILE_MAX;
use talea_import::{self as import, File};
use talea_os::bounded_read::read_text_bounded;
use talea_study::exit::{Exit, Unreadable};
use talea_study::output::{note, print};

/// Convert files of other programs to Talea's files, on standard output.
///
/// The form of a file is recognised by its content. SF3P's XML and rt-app's JSON become system
/// files; ReTiF's plugins and rules become the daemon's configuration. Elements that Talea cannot
/// express are refused with position and reason; differences are stated in notes at the top of the
/// result.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea import edf.xml > edf.toml && talea simulate edf.toml")]
pub(crate) struct ImportArgs {
    /// Form of the files, instead of the recognised one.
    #[arg(long, value_enum, ignore_case = true, value_name = "FORM")]
    from: Option<Form>,
    /// Number of CPUs, for rt-app; by default as many as the file names.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
    /// The file; for ReTiF the plugins, followed by the rules if they have their own file.
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
}

/// Text of a file, and the file's name in messages.
struct Input {
    origin: String,
    text: String,
}

impl Input {
    fn read(path: &Path) -> anyhow::Result<Input> {
        let origin = path.display().to_string();
        let text = read_text_bounded(path, FILE_MAX).with_context(|| Unreadable::file(path))?;
        Ok(Input { origin, text })
    }

    fn file(&self) -> File<'_> {
        File { origin: &self.origin, text: &self.text }
    }
}

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<Exit> {
    let mut inputs =
        args.files.iter().map(|path| Input::read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let form = match args.from {
        Some(form) => form,
        None => match common_form(&inputs) {
            Ok(form) => form,
            Err(why) => return Ok(usage(&why)),
        },
    };
    if args.cpus.is_some() && form != Form::RtApp {
        return Ok(usage(&format!("--cpus is for rt-app, and the form of the file is {form}")));
    }
    if inputs.len() > 1 && form != Form::Retif {
        let count = inputs.len();
        return Ok(usage(&format!(
            "{form} is one file, and {count} are named; import them one by one"
        )));
    }
    // Rules that are named first would be read as plugins.
    if let [first, second] = inputs.as_slice()
        && (recognise(&first.text), recognise(&second.text))
            == (Ok(Content::RetifRules), Ok(Content::RetifPlugins))
    {
        inputs.reverse();
    }
    let file = inputs[0].file();
    finish(match form {
        Form::Retif => import::retif(file, inputs.get(1).map(Input::file)),
        Form::Sf3p => import::sf3p(file),
        Form::RtApp => import::rtapp(file, args.cpus),
        Form::Poet => import::poet(file),
        Form::A653 => import::a653(file),
    })
}

/// Recognises the form of all inputs. The error is a sentence with the known forms.
fn common_form(inputs: &[Input]) -> Result<Form, String> {
    let mut common: Option<(Form, &Input)> = None;
    for input in inputs {
        let form = match recognise(&input.text) {
            Ok(content) => content.form(),
            Err(why) => {
                return Err(format!("{}: {why}. {}", input.origin, Form::overview()));
            }
        };
        match common {
            Some((first, _)) if first == form => {}
            Some((first, other)) => {
                return Err(format!(
                    "{} is {first} and {} is {form}: import them one by one",
                    other.origin, input.origin
                ));
            }
            None => common = Some((form, input)),
        }
    }
    common.map(|(form, _)| form).ok_or_else(Form::overview)
}

fn usage(why: &str) -> Exit {
    note(why);
    Exit::Usage
}

fn finish(result: Result<String, Vec<Diagnostic>>) -> anyhow::Result<Exit> {
    match result {
        Ok(text) => {
            print(&text)?;
            Ok(Exit::Ok)
        }
        Err(diagnostics) => {
            // Standard output is usually redirected to a file, so errors must not go there.
            let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let text = talea_config::diagnostic::render(&diagnostics, color);
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
            Ok(Exit::Usage)
        }
    }
}
