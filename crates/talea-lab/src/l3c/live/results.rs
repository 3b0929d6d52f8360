//! Results of a live figure: tables, claims, plots and raw data.

use super::super::args::Args;
use super::verdict::{Claim, Verdict};
use crate::folder;
use crate::units::ms;
use serde::Serialize;
use std::fmt::Write as _;
use talea_core::Span;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::plot::Figure;

/// Raw data of a figure.
#[derive(Serialize)]
struct RawData<T: Serialize> {
    figure: String,
    rows: Vec<T>,
    claims: Vec<Claim>,
    verdict: &'static str,
}

/// Prints the table and the claims, and writes the plots and the raw data.
pub(super) fn finish<T: Serialize>(
    args: &Args,
    name: &str,
    table: &Table,
    figures: &[(&str, Figure<'_>)],
    rows: Vec<T>,
    claims: Vec<Claim>,
) -> anyhow::Result<Exit> {
    let verdict =
        claims.iter().fold(Verdict::Holds, |worst, claim| worst.and(claim.verdict.clone()));
    let mut text = table.render();
    for claim in &claims {
        let _ = writeln!(text, "{}", claim.line(output::colored()));
    }
    let mut files = Vec::new();
    for (name, figure) in figures {
        files.push(folder::save(&args.out, &format!("{name}-live.svg"), &figure.svg())?);
    }
    let raw = RawData { figure: name.to_owned(), rows, claims, verdict: verdict.word() };
    files.push(folder::save(&args.out, &format!("{name}-live.json"), &output::to_json(&raw)?)?);
    text += &folder::written(&files);
    output::print(&text)?;
    Ok(verdict.exit())
}

/// Renders milliseconds with two digits, or a dash for `None`.
pub(super) fn ms_text(span: Option<Span>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| format!("{:.2}", ms(span)))
}
