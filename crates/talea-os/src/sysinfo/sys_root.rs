//! Source of the files of a machine: the live `/proc` and `/sys`, or copies below a directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use talea_core::CpuSet;

pub(super) struct SysRoot(PathBuf);

impl SysRoot {
    pub(super) fn live() -> SysRoot {
        SysRoot::below(Path::new("/"))
    }

    pub(super) fn below(root: &Path) -> SysRoot {
        SysRoot(root.to_owned())
    }

    pub(super) fn path(&self, absolute: &str) -> PathBuf {
        self.0.join(absolute.trim_start_matches('/'))
    }

    pub(super) fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(path))
    }

    /// Reads a file without its line end.
    pub(super) fn text(&self, path: &str) -> io::Result<String> {
        // Thread and group names may be invalid UTF-8.
        Ok(String::from_utf8_lossy(&fs::read(self.path(path))?).trim_end().to_owned())
    }

    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path).ok()?.trim().parse().ok()
    }

    /// Reads a CPU list. An empty file yields an empty set.
    pub(super) fn cpus(&self, path: &str) -> Option<CpuSet> {
        let text = self.text(path).ok()?;
        if text.trim().is_empty() { Some(CpuSet::EMPTY) } else { CpuSet::parse(&text).ok() }
    }

    /// Returns the names of the directories directly below `path`.
    pub(super) fn children(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::SysRoot;

    #[test]
    fn a_file_with_invalid_utf_8_is_readable() {
        let directory = std::env::temp_dir().join(format!("talea-source-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("debug"), b"a \xff thread\nnumber: 7\n").expect("a file");
        let text = SysRoot::below(&directory).text("/debug");
        std::fs::remove_dir_all(&directory).expect("it was there");
        assert!(text.expect("it is read").ends_with("number: 7"));
    }
}
