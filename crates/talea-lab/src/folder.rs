//! Directory to which an experiment writes its plots and data.

use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes one file to `folder`, which it creates if necessary. Returns the path of the file.
pub(super) fn save(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Returns the line that lists the written files.
pub(super) fn written(files: &[PathBuf]) -> String {
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    format!("written: {}\n", files.join(", "))
}
