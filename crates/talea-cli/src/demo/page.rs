//! Page with the results: the picture, the table and an explanation, in one file without scripts or
//! external resources.

use super::picture::{ms, svg};
use super::run::{Outcome, Run, RunMeasurement};
use std::fmt::Write;
use talea_study::svg::escaped;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:1080px;margin:2rem auto;padding:0 1rem;\
                     color:#222;background:#fff}table{border-collapse:collapse}\
                     td,th{padding:.25rem 1rem .25rem 0;text-align:left;border-bottom:1px solid #ddd}\
                     td.n,th.n{text-align:right}svg{width:100%;height:auto}code{background:#f3f3f3;padding:0 .2em}";

/// Renders the page as HTML.
pub(super) fn html(outcome: &Outcome) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Talea: one job, three times</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>One audio job, one CPU, three times</h1>\n\
         <p>A program must compute 10 ms of sound every 10 ms; each block takes it {} of computing. Beside it, \
         on the same CPU ({}), run {}. The program, the sound and the load are the \
         same each time; only what is declared to the kernel differs.</p>\n",
        ms(outcome.size.block.as_ns()),
        outcome.cpu,
        super::picture::busy(outcome.load),
    );
    text.push_str(&svg(outcome));
    text.push_str(
        "<table><tr><th>run</th><th class=\"n\">median</th><th class=\"n\">p99</th><th class=\"n\">max</th>\
         <th class=\"n\">missed</th><th>the kernel says</th><th>what was granted</th></tr>\n",
    );
    for run in &outcome.runs {
        row(&mut text, run);
    }
    text.push_str("</table>\n");
    if let Some(why) = outcome.why() {
        let _ = writeln!(text, "<p>Why it was granted: {}.</p>", escaped(&why));
    }
    if let Some(missing) = &outcome.missing {
        let _ = writeln!(text, "<p><strong>{}</strong></p>", escaped(missing));
    }
    text.push_str(
        "<h2>How to read it</h2>\n<p>The response time of a block is its completion minus its <em>nominal</em> release, \
         start + k &middot; 10 ms, whatever happened to the blocks before it. A block whose response time exceeds 10 ms \
         is missed. A thread above all others on the same CPU asks to be woken four times a millisecond; where it was late, the \
         machine itself stood still. Misses that are explained by that are counted and named \
         &ldquo;in stalls&rdquo;; they say nothing about scheduling.</p>\n\
         <p>Nothing of the job changes between the first run and the third: <code>talea run --period 10ms --runtime 4ms \
         -- convolver &hellip;</code>. In the second the program itself declares what it needs, in C, through \
         <code>libtalea</code>.</p>\n</body></html>\n",
    );
    text
}

fn row(text: &mut String, run: &Run) {
    let title = run.variant.title();
    match &run.measurement {
        Ok(measurement) => {
            let verdict = &measurement.verdict;
            let _ = writeln!(
                text,
                "<tr><td>{title}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
                ms(verdict.median.as_ns()),
                ms(verdict.p99.as_ns()),
                ms(verdict.max.as_ns()),
                missed(measurement),
                escaped(&measurement.policy),
                escaped(measurement.grant.as_deref().unwrap_or("nothing")),
            );
        }
        Err(why) => {
            let _ = writeln!(
                text,
                "<tr><td>{title}</td><td colspan=\"6\">not shown: {}</td></tr>",
                escaped(why)
            );
        }
    }
}

/// Renders the number of misses, as in `0 of 800`, with the number of misses in stalls.
pub(super) fn missed(measurement: &RunMeasurement) -> String {
    let verdict = &measurement.verdict;
    let mut text = format!("{} of {}", verdict.missed(), measurement.blocks.len());
    if verdict.in_stalls() > 0 {
        let _ = write!(text, " ({} in stalls)", verdict.in_stalls());
    }
    text
}
