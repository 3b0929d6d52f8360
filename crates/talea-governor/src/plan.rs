//! Root of a system file that a governor can govern, with a group for each task.
//!
//! The first line of the file may name it: `# governs LABEL`. The governor repeats the label when
//! the file is in force, so the process that wrote the file knows which one is.

use crate::options::Options;
use anyhow::{Context, bail};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use talea_os::cgroup::Cgroup;
use talea_system::{Beside, Diagnostic, Root};

/// Maximum size of a system file in bytes.
const MAX_SYSTEM_BYTES: u64 = 16 << 20;

/// Begin of the line that names a file.
const LABEL: &str = "# governs ";

/// System file that was read.
#[derive(Debug)]
pub(crate) struct SystemFile {
    pub(crate) system: talea_system::System,
    pub(crate) label: Option<String>,
}

/// Root with the groups of its tasks.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: Root,
    /// Label of the file.
    pub(crate) label: Option<String>,
    /// `groups[t]`: group of task `t`.
    pub(crate) groups: Vec<Arc<Cgroup>>,
    pub(crate) cpus: Vec<u32>,
}

/// Reads the system file.
pub(crate) fn read(path: &Path) -> anyhow::Result<SystemFile> {
    let bounded = |file: &mut dyn Read| {
        let mut text = String::new();
        file.take(MAX_SYSTEM_BYTES).read_to_string(&mut text).map(|_| text)
    };
    let (label, read) = if path == Path::new("-") {
        let text = bounded(&mut std::io::stdin()).context("standard input")?;
        (label(&text), talea_system::read(&text, "standard input", &()))
    } else {
        let open = |path: &Path| std::fs::File::open(path).and_then(|mut file| bounded(&mut file));
        let name = path.display().to_string();
        let text = open(path).with_context(|| name.clone())?;
        let include = Beside(|path: &Path| open(path).map_err(|error| error.to_string()));
        (label(&text), talea_system::read(&text, &name, &include))
    };
    let system = read.map_err(|found| {
        let lines: Vec<String> = found.iter().map(Diagnostic::to_string).collect();
        anyhow::anyhow!("{}", lines.join("\n"))
    })?;
    Ok(SystemFile { system, label })
}

fn label(text: &str) -> Option<String> {
    text.lines().next()?.strip_prefix(LABEL).map(str::to_owned)
}

/// Finds the root of the options.
fn root(system: talea_system::System, options: &Options) -> anyhow::Result<Root> {
    let names: Vec<String> = system.roots.iter().map(|root| root.name.clone()).collect();
    let root = system.roots.into_iter().find(|root| root.name == options.root);
    root.with_context(|| {
        format!("the system has no root {}: its roots are {}", options.root, names.join(", "))
    })
}

/// Reads the file of a running governor again. Its root must have the same tasks in the same order.
pub(crate) fn read_again(options: &Options, plan: &Plan) -> anyhow::Result<(Root, Option<String>)> {
    if options.system == Path::new("-") {
        bail!("standard input cannot be read again: --system needs a file");
    }
    let SystemFile { system, label } = read(&options.system)?;
    let root = root(system, options)?;
    if root.tasks != plan.root.tasks {
        bail!(
            "{} has the tasks {}, and the governor was started with {}: start another one",
            root.name,
            root.tasks.join(", "),
            plan.root.tasks.join(", ")
        );
    }
    Ok((root, label))
}

/// Finds the root, and opens the group of each of its tasks.
pub(crate) fn plan(file: SystemFile, options: &Options) -> anyhow::Result<Plan> {
    let root = root(file.system, options)?;
    let cpus: Vec<u32> = options.cpus.iter().collect();
    if cpus.len() != 1 || root.tree.cpus != 1 {
        bail!(
            "{} has {} CPUs, and --cpus names {}: a governor governs programs, which cannot \
             migrate, so the root needs one CPU",
            root.name,
            root.tree.cpus,
            cpus.len()
        );
    }
    for (name, _) in &options.groups {
        if !root.tasks.contains(name) {
            bail!("--group {name}: {} has no such task", root.name);
        }
    }
    let mut groups: Vec<Arc<Cgroup>> = Vec::new();
    for name in &root.tasks {
        let mut found = options.groups.iter().filter(|(task, _)| task == name);
        let (Some((_, path)), None) = (found.next(), found.next()) else {
            bail!("task {name} needs one --group: a governor governs whole roots of programs");
        };
        let group = Cgroup::open(path.clone()).with_context(|| path.display().to_string())?;
        if groups.iter().any(|other| other.path() == group.path()) {
            bail!("{}: two tasks have this group", path.display());
        }
        groups.push(Arc::new(group));
    }
    Ok(Plan { root, label: file.label, groups, cpus })
}
