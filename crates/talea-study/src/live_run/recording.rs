//! Recording of a real run: the description of the system, the inputs and the orders of each engine
//! in one file.
//!
//! Form: [`HEADER`]; `seed N`; for each file of the description `file PATH` and its lines after a
//! `|`; for each root `root NUMBER CPUS` and its record ([`talea_exec::record::text`]). A replay
//! needs only this file, neither the computer of the recording nor the current files.

use crate::exit::invalid_file;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use talea_exec::RecordEntry;
use talea_exec::record::text;
use talea_system::{self as system, Beside, Registry, System, folded};

/// First line of a recording. The number changes with the form.
pub(super) const HEADER: &str = "talea-recording 1";

/// Texts of a description, the main file first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTexts(pub Vec<(String, String)>);

impl SourceTexts {
    /// Reads a description and keeps its texts.
    ///
    /// # Errors
    /// The file cannot be read, or it is invalid.
    pub fn load(path: &Path, registry: &Registry) -> anyhow::Result<(System, SourceTexts)> {
        let (origin, own) = (path.display().to_string(), crate::system_file::read_text(path)?);
        let included = RefCell::new(Vec::new());
        let beside = Beside(|path: &Path| {
            let text = crate::system_file::read_include(path)?;
            included.borrow_mut().push((path.display().to_string(), text.clone()));
            Ok(text)
        });
        let system = system::read_with(&own, &origin, &beside, registry).map_err(invalid_file)?;
        crate::system_file::print_warnings(&system);
        let mut texts = vec![(origin, own)];
        texts.append(&mut included.borrow_mut());
        Ok((system, SourceTexts(texts)))
    }

    /// Parses the texts.
    pub fn system(&self, registry: &Registry) -> anyhow::Result<System> {
        let Some((origin, own)) = self.0.first() else { return Err(invalid_file(Vec::new())) };
        let kept: BTreeMap<PathBuf, &str> =
            self.0.iter().map(|(path, text)| (folded(Path::new(path)), text.as_str())).collect();
        let beside = Beside(|path: &Path| {
            let found = kept.get(path);
            found
                .map(|text| (*text).to_owned())
                .ok_or_else(|| "it is not in the recording".to_owned())
        });
        system::read_with(own, origin, &beside, registry).map_err(invalid_file)
    }
}

/// Recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Texts of the system file and of its included files.
    pub texts: SourceTexts,
    /// `roots[n]`: CPUs and record of root `n`.
    pub roots: Vec<(Vec<u32>, Vec<RecordEntry>)>,
}

impl Recording {
    /// Maximum length of a recording that a replay reads, in bytes.
    pub const MAX_BYTES: usize = 1 << 28;

    /// Writes the recording line by line.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{HEADER}\nseed {}", self.seed)?;
        for (path, content) in &self.texts.0 {
            writeln!(out, "file {}", path.replace(char::is_control, "?"))?;
            // `split` instead of `lines` keeps the text byte by byte.
            for line in content.split('\n') {
                writeln!(out, "|{line}")?;
            }
        }
        for (number, (cpus, record)) in self.roots.iter().enumerate() {
            let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
            writeln!(out, "root {number} {}", list.join(","))?;
            text::write(record, out)?;
        }
        Ok(())
    }

    /// Reads a recording.
    ///
    /// # Errors
    /// The first invalid line, as a sentence.
    pub fn read(content: &str) -> Result<Recording, String> {
        let mut lines = (1..).zip(content.split_terminator('\n')).peekable();
        if lines.next().is_none_or(|(_, line)| line != HEADER) {
            return Err(format!(
                "line 1: this is no recording of talea execute, which begins with `{HEADER}`"
            ));
        }
        let mut recording = Recording::default();
        while let Some((at, line)) = lines.next() {
            let wrong = |why: &str| format!("line {at}: {why}");
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "seed" => {
                    recording.seed = rest.parse().map_err(|_| wrong("the seed is no number"))?;
                }
                "file" => {
                    let mut content = String::new();
                    let mut first = true;
                    while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with('|')) {
                        if !std::mem::take(&mut first) {
                            content.push('\n');
                        }
                        content.push_str(&line[1..]);
                    }
                    recording.texts.0.push((rest.to_owned(), content));
                }
                "root" => {
                    let cpus = rest.split_once(' ').and_then(|(number, list)| {
                        (number.parse() == Ok(recording.roots.len())).then_some(())?;
                        list.split(',').map(|cpu| cpu.parse().ok()).collect::<Option<Vec<u32>>>()
                    });
                    let cpus = cpus.ok_or_else(|| wrong("a root has its number and its CPUs"))?;
                    let mut record = String::new();
                    while let Some((_, line)) =
                        lines.next_if(|(_, line)| !line.starts_with("root "))
                    {
                        // Writing to a String can't fail.
                        let _ = writeln!(record, "{line}");
                    }
                    let record = text::read(&record)
                        .map_err(|wrong| format!("line {}: {}", at + wrong.line, wrong.reason))?;
                    recording.roots.push((cpus, record));
                }
                _ => return Err(wrong("unknown word")),
            }
        }
        Ok(recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Time;
    use talea_core::engine::{Cpu, Order, TaskId};
    use talea_exec::RecordKind;

    fn recording() -> Recording {
        let order = Order::Run { cpu: Cpu(0), task: TaskId(1), job: 2, version: 0 };
        let entry = |number, what| RecordEntry { number, now: Time::from_ns(number), kind: what };
        let record = vec![
            entry(0, RecordKind::Step),
            entry(1, RecordKind::Order(order)),
            entry(2, RecordKind::Polled),
        ];
        let texts = [("a b.toml", "include = [\"c\"]\n\n|#\n"), ("c", "no line end")];
        let texts =
            SourceTexts(texts.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
        Recording { seed: 7, texts, roots: vec![(vec![3, 5], record), (vec![0], Vec::new())] }
    }

    fn written() -> String {
        let mut out = Vec::new();
        recording().write(&mut out).expect("memory takes all");
        String::from_utf8(out).expect("plain text")
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(Recording::read(&written()), Ok(recording()));
    }

    #[test]
    fn a_line_that_means_nothing_is_named_by_its_number() {
        let count = written().lines().count();
        for (line, word) in
            [("root 2 x", "its CPUs"), ("root 5 1", "its number"), ("7 jumped 1", "unknown word")]
        {
            let said = Recording::read(&format!("{}{line}\n", written())).expect_err(line);
            assert!(
                said.starts_with(&format!("line {}", count + 1)) && said.contains(word),
                "{said}"
            );
        }
        assert!(Recording::read("").expect_err("nothing").contains("line 1"));
        assert!(
            Recording::read("talea-recording 1\nseed x\n").expect_err("no seed").contains("line 2")
        );
        assert!(
            Recording::read("talea-recording 1\nsomething\n")
                .expect_err("no word")
                .contains("line 2")
        );
    }
}
