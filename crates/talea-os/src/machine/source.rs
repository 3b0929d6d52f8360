//! Where facts are read from: the live `/proc` and `/sys`, or copies below a directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use talea_core::CpuSet;

pub(super) struct Source(PathBuf);

impl Source {
    pub(super) fn live() -> Source {
        Source::below(Path::new("/"))
    }

    pub(super) fn below(root: &Path) -> Source {
        Source(root.to_owned())
    }

    pub(super) fn path(&self, absolute: &str) -> PathBuf {
        self.0.join(absolute.trim_start_matches('/'))
    }

    pub(super) fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(path))
    }

    /// Without the line end.
    pub(super) fn text(&self, path: &str) -> io::Result<String> {
        // Threads and groups have what names their owners like.
        Ok(String::from_utf8_lossy(&fs::read(self.path(path))?).trim_end().to_owned())
    }

    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path).ok()?.trim().parse().ok()
    }

    /// A CPU list; an empty file is an empty set.
    pub(super) fn cpus(&self, path: &str) -> Option<CpuSet> {
        let text = self.text(path).ok()?;
        if text.trim().is_empty() { Some(CpuSet::EMPTY) } else { CpuSet::parse(&text).ok() }
    }

    /// The directories directly below `path`, by name.
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
    use super::Source;

    #[test]
    fn what_somebody_named_in_bytes_of_his_own_keeps_nobody_from_reading_the_rest() {
        let folder = std::env::temp_dir().join(format!("talea-source-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("debug"), b"a \xff thread\nnumber: 7\n").expect("a file");
        let text = Source::below(&folder).text("/debug");
        std::fs::remove_dir_all(&folder).expect("it was there");
        assert!(text.expect("it is read").ends_with("number: 7"));
    }
}
