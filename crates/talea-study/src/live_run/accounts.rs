//! Users of the programs of a file.
//!
//! Model: a program runs as the user who runs the file. Root names the user of each program in the
//! file (`user`), because a file that root runs by habit would otherwise give root's rights to each
//! program in it. The variables of `sudo` are not used: a caller sets them as it likes. Root runs
//! programs only from files that no other user can change, and only root's own executables as root.

use super::recording::SourceTexts;
use crate::exit::not_executable;
use std::path::Path;
use talea_core::mutate;
use talea_os::files::check_trusted;
use talea_os::launch::Program;
use talea_os::users::{self, Account};
use talea_system::{Root, System};

/// `accounts[root][task]`: account of the program. `None` stands for the account of this process.
pub type Accounts = Vec<Vec<Option<Account>>>;

/// Returns the account of each program of a system that was read from `texts`.
///
/// # Errors
/// The reason why this process does not run them (`NotExecutable`).
pub fn accounts(system: &System, texts: &SourceTexts) -> anyhow::Result<Accounts> {
    accounts_of(system, texts).map_err(not_executable)
}

fn accounts_of(system: &System, texts: &SourceTexts) -> Result<Accounts, String> {
    let uid = rustix::process::getuid().as_raw();
    let has_programs = system.roots.iter().any(|root| root.programs.iter().any(Option::is_some));
    if uid == 0 && has_programs {
        for (path, text) in &texts.0 {
            let file = Path::new(path);
            mutate!("execute-trusted-file", check_trusted(file), Ok(())).map_err(|untrusted| {
                format!(
                    "root runs programs only from a file that no other user can change: {untrusted}"
                )
            })?;
            // From now on no other user can change it; before, another one may have.
            if std::fs::read_to_string(file).ok().as_ref() != Some(text) {
                return Err(format!("{path} has changed while it was read"));
            }
        }
    }
    system.roots.iter().map(|root| of_root(root, uid)).collect()
}

fn of_root(root: &Root, uid: u32) -> Result<Vec<Option<Account>>, String> {
    let tasks = root.tasks.iter().zip(root.programs.iter().zip(&root.users));
    let account = |(task, (program, user)): (&String, (&Option<Vec<String>>, &Option<String>))| {
        let Some(words) = program else { return Ok(None) };
        let Some(user) = user else {
            return match uid {
                0 => Err(format!(
                    "root runs it, and {task} names no user for its program: add `user = \"NAME\"` to the task, with \"root\" if that is intended"
                )),
                _ => Ok(None),
            };
        };
        let account = users::account(user)
            .map_err(|error| format!("{task}: the account {user} cannot be read: {error}"))?
            .ok_or_else(|| format!("{task}: there is no account {user} here"))?;
        if uid != 0 && account.user.uid != uid {
            return Err(format!("{task} runs as {user}: only root may start it"));
        }
        if account.user.uid == 0 {
            is_roots(words).map_err(|why| format!("{task} runs as root: {why}"))?;
        }
        Ok((uid == 0).then_some(account))
    };
    tasks.map(account).collect()
}

/// Checks that no other user can change the executable.
fn is_roots(words: &[String]) -> Result<(), String> {
    let program = Program::find(words).map_err(|error| format!("{}: {error}", words[0]))?;
    let file: &Path = program.file();
    check_trusted(file).map_err(|untrusted| untrusted.to_string())
}
