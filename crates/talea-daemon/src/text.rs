//! Refusals as log lines.

use std::fmt;
use talea_proto::refusal::{PluginVerdict, Refusal};

/// Formats `refusal` as one line: the code, the field, the numbers, and the answer of each plugin.
pub(crate) fn one_line(refusal: &Refusal) -> impl fmt::Display + '_ {
    Line(refusal)
}

struct Line<'a>(&'a Refusal);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = self.0;
        write!(f, "{:?}", refusal.code)?;
        if refusal.asked != 0 || refusal.limit != 0 {
            write!(f, ", {:?} {}, limit {}", refusal.field, refusal.asked, refusal.limit)?;
        }
        if refusal.errno != 0 {
            write!(f, ", {}", std::io::Error::from_raw_os_error(refusal.errno))?;
        }
        if let Some(rule) = &refusal.rule {
            write!(f, ", rule {rule}")?;
        }
        for answer in &refusal.answers {
            match &answer.verdict {
                PluginVerdict::No(no) => {
                    write!(f, "; {}: {:?}", answer.name, no.reason)?;
                    if no.asked != 0 || no.limit != 0 {
                        write!(f, " ({:?} {}, limit {})", no.field, no.asked, no.limit)?;
                    }
                }
                PluginVerdict::Denied { code, field, .. } => {
                    write!(f, "; {}: {code:?} ({field:?})", answer.name)?;
                }
                PluginVerdict::Ok { .. } | PluginVerdict::Partial { .. } => {}
            }
        }
        Ok(())
    }
}
