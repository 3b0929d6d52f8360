//! A refusal in a line for the log.

use std::fmt;
use talea_proto::refusal::{Refusal, Said};

/// Shows `refusal` as one line: the code, the field, the numbers, and what each plugin said.
pub(crate) fn of(refusal: &Refusal) -> impl fmt::Display + '_ {
    Line(refusal)
}

struct Line<'a>(&'a Refusal);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = self.0;
        write!(f, "{:?}", refusal.code)?;
        if refusal.asked != 0 || refusal.limit != 0 {
            write!(f, ", {:?} {} against {}", refusal.field, refusal.asked, refusal.limit)?;
        }
        if refusal.errno != 0 {
            write!(f, ", {}", std::io::Error::from_raw_os_error(refusal.errno))?;
        }
        if let Some(rule) = &refusal.rule {
            write!(f, ", rule {rule}")?;
        }
        for answer in &refusal.answers {
            match &answer.verdict {
                Said::No(no) => {
                    write!(f, "; {}: {:?}", answer.name, no.reason)?;
                    if no.asked != 0 || no.limit != 0 {
                        write!(f, " ({:?} {} against {})", no.field, no.asked, no.limit)?;
                    }
                }
                Said::Denied { code, field, .. } => {
                    write!(f, "; {}: {code:?} ({field:?})", answer.name)?
                }
                Said::Ok { .. } | Said::Partial { .. } => {}
            }
        }
        Ok(())
    }
}
