//! `talea import-retif`: the papers' two files in, our configuration on standard output.

use crate::args::ImportArgs;
use crate::exit::Exit;
use crate::output::print;
use anyhow::Context;
use std::io::{IsTerminal, Write};
use std::path::Path;
use talea_system::import::{File, retif};

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<Exit> {
    let read = |path: &Path| {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        anyhow::Ok((path.display().to_string(), text))
    };
    let conf = read(&args.conf)?;
    let rules = args.rules.as_deref().map(read).transpose()?;
    let rules = rules.as_ref().map(|(origin, text)| File { origin, text });
    match retif(File { origin: &conf.0, text: &conf.1 }, rules) {
        Ok(text) => {
            print(&text)?;
            Ok(Exit::Ok)
        }
        Err(diagnostics) => {
            // The result goes to standard output, usually into a file; complaints must not end up in it.
            let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let text = talea_system::diagnostic::render(&diagnostics, color);
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
            Ok(Exit::Usage)
        }
    }
}
