//! Table of the papers' figures beside the results of `talea-lab all`.
//!
//! `papers.txt` has a line for each figure, with the paper's value, its source, and the place of
//! the value of this computer: an experiment, the first words of a line of its output, and the
//! words of that line. The chapter on the experiments in the manual has the table of one run.

use anyhow::Context;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Figures of the papers.
const FIGURES: &str = include_str!("papers.txt");
/// First lines of the table.
const HEAD: &str = "\
| paper | figure | quantity | paper | here | difference |
| --- | --- | --- | --- | --- | --- |
";
/// Cell of a value that no experiment has given.
const NOTHING: &str = "–";

/// Figure of a paper, or one value of it.
#[derive(Debug)]
struct Figure {
    paper: &'static str,
    place: &'static str,
    quantity: &'static str,
    /// Value in the paper.
    value: &'static str,
    experiment: &'static str,
    /// First words of the line with the value of this computer.
    line: &'static str,
    /// `words`: first word of the value after these, and number of words.
    words: (usize, usize),
    unit: &'static str,
    /// Difference in shape, and its reason.
    difference: &'static str,
}

/// Returns the figures, in the order of the table.
fn figures() -> impl Iterator<Item = Figure> {
    FIGURES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [paper, place, quantity, value, experiment, line, words, unit, difference] = cells[..]
        else {
            panic!("papers.txt: not nine cells: {line}");
        };
        let (from, count) = words.split_once('+').expect("papers.txt: FROM+COUNT");
        let number = |text: &str| text.parse().expect("papers.txt: a number");
        let words = (number(from), number(count));
        Figure { paper, place, quantity, value, experiment, line, words, unit, difference }
    })
}

impl Figure {
    /// Returns the value of this computer in the output of the experiment.
    fn value_in(&self, output: &str) -> Option<String> {
        let wanted: Vec<&str> = self.line.split_whitespace().collect();
        let rest = output.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.starts_with(&wanted).then(|| words[wanted.len()..].to_vec())
        })?;
        let (from, count) = self.words;
        let value = rest.get(from..from + count)?.join(" / ");
        Some(format!("{value} {}", self.unit).trim_end().to_owned())
    }
}

/// Writes the table of the results in `folder` as Markdown, and returns its path.
pub(super) fn write(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut table = HEAD.to_owned();
    for figure in figures() {
        let output = fs::read_to_string(folder.join(format!("{}.txt", figure.experiment)));
        let here = output.ok().and_then(|output| figure.value_in(&output));
        let here = here.as_deref().unwrap_or(NOTHING);
        let Figure { paper, place, quantity, value, difference, .. } = figure;
        writeln!(table, "| {paper} | {place} | {quantity} | {value} | {here} | {difference} |")?;
    }
    let path = folder.join("papers.md");
    fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_word_of_a_line_that_begins_so() {
        let line = "SF3P | Table II | late | 0 / 28 / 0 % | e | C1: table worst | 0+3 | % |";
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 9);
        let mut figure = figures().next().expect("a figure");
        (figure.line, figure.words, figure.unit) = ("C1: table worst", (0, 3), "%");
        let output = "HEAD\nC1:   table  average 9 9 9\nC1:   table  worst 0.0  27.5 0.0  x\n";
        assert_eq!(figure.value_in(output).as_deref(), Some("0.0 / 27.5 / 0.0 %"));
        figure.words = (2, 3);
        assert_eq!(figure.value_in(output), None, "too few words");
        figure.line = "C2: table";
        assert_eq!(figure.value_in(output), None);
    }

    #[test]
    fn the_chapter_has_every_figure_with_a_value_of_an_experiment() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let chapter = fs::read_to_string(root.join("docs/manual/experiments.md")).expect("text");
        let rows: Vec<Vec<&str>> = chapter
            .lines()
            .skip_while(|line| !line.starts_with("| paper | figure |"))
            .skip(2)
            .map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
            .map(|line| line.split(" | ").collect())
            .collect();
        let listed: Vec<Figure> = figures().collect();
        assert_eq!(rows.len(), listed.len(), "copy papers.md of `talea-lab all`");
        for (row, figure) in rows.iter().zip(&listed) {
            let known = [figure.paper, figure.place, figure.quantity, figure.value];
            assert_eq!(row[..4], known);
            assert!(row[4] != NOTHING && row[5] == figure.difference, "{row:?}");
            assert!(crate::all::is_experiment(figure.experiment), "{figure:?}");
        }
        // Each of the five papers.
        for paper in ["ReTiF (ISORC)", "ReTiF (JSA)", "SF3P", "YASMIN", "L3C"] {
            assert!(listed.iter().any(|figure| figure.paper == paper), "{paper}");
        }
    }
}
