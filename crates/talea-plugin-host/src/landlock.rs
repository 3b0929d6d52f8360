//! Landlock rules: a plugin reads libraries and its own shared object, and no other file.
//!
//! The rules also refuse the network, abstract Unix sockets, and signals and `ptrace` to every
//! process outside. They are in force before the first instruction of the plugin. A kernel without
//! Landlock (before 5.13, or without it in `lsm=`), or with an older version, enforces less.
//!
//! Reference: `Documentation/userspace-api/landlock.rst`. Landlock does not restrict `stat`: a
//! plugin sees whether a path exists, and its owner.

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use std::path::Path;

/// Newest version whose rights are listed here (Linux 6.12).
const VERSION: ABI = ABI::V6;
/// Directories and files that the dynamic loader reads.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"];
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Isolation that remains on a kernel without Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// File system, process list and user of a unit.
    Unit,
    /// A user that owns nothing.
    User,
    /// None: the process has the user of the daemon.
    Nothing,
}

/// Restricts this process to reading libraries and `module`.
///
/// Returns the part that this kernel does not enforce, in words. `without` has the isolation that
/// then remains.
///
/// # Errors
/// A kernel that has Landlock refused the rules; or there is no Landlock, and the process runs as
/// the daemon's user.
pub(crate) fn confine(module: &Path, without: Without) -> Result<Option<&'static str>, String> {
    let failed = |error: landlock::RulesetError| format!("Landlock: {error}");
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(VERSION)))
        .and_then(|rules| rules.scope(Scope::from_all(VERSION)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let libraries = path_beneath_rules(LIBRARIES, AccessFs::from_read(VERSION));
    rules = rules.add_rules(libraries).map_err(failed)?;
    for file in [module, Path::new(LOADER_CACHE)] {
        // A module that does not exist is reported by the loader, in its own words.
        if let Ok(file) = PathFd::new(file) {
            let rule = PathBeneath::new(file, AccessFs::ReadFile);
            rules = rules.add_rule(rule).map_err(failed)?;
        }
    }
    let status = rules.restrict_self().map_err(failed)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => None,
        RulesetStatus::PartiallyEnforced => Some(
            "this kernel's Landlock is older than Linux 6.12: the plugin reads only libraries, but not every \
             other restriction is enforced",
        ),
        RulesetStatus::NotEnforced => match without {
            Without::Unit => Some(
                "this kernel has no Landlock: talead-plugin@.service alone restricts the files and processes that \
                 the plugin reaches",
            ),
            Without::User => Some(
                "this kernel has no Landlock: the plugin can read every file that all users may read, and /proc",
            ),
            Without::Nothing => {
                return Err(
                    "this kernel has no Landlock, and this program runs as talead's user: the plugin could read \
                     talead's files; start talead as root, or enable talead-plugin.socket"
                        .to_owned(),
                );
            }
        },
    })
}
