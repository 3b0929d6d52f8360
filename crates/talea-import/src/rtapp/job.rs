//! A job of a thread that is being built from events: its work, and what it does on the way.

use super::workload::What;
use talea_core::Span;

/// Critical sections and suspensions of jobs, at offsets of their work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Critical sections: (resource, from, to).
    pub(super) sections: Vec<(String, Span, Span)>,
    /// Suspensions: (offset, length).
    pub(super) suspensions: Vec<(Span, Span)>,
}

/// Job that is being built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) cost: Span,
    pub(super) marks: Marks,
    pub(super) held: Vec<(String, Span)>,
}

impl Job {
    pub(super) fn count(&self) -> u64 {
        (self.marks.sections.len() + self.marks.suspensions.len()) as u64
    }

    /// Adds an event to the job. An error has the fault, its reason, and a remedy.
    pub(super) fn add(&mut self, what: &What) -> Result<(), (String, &'static str, &'static str)> {
        match what {
            What::Run(span) => {
                let sum = self.cost.checked_add(*span);
                self.cost = sum.ok_or_else(|| {
                    (
                        "the thread works for more than 584 years".to_owned(),
                        "that is too long",
                        "write less",
                    )
                })?;
            }
            What::Sleep(span) => match self.marks.suspensions.last_mut() {
                Some((at, length)) if *at == self.cost => {
                    *length = length.checked_add(*span).unwrap_or(*length);
                }
                _ => self.marks.suspensions.push((self.cost, *span)),
            },
            What::Lock(name) => {
                if self.held.iter().any(|(held, _)| held == name) {
                    let what = format!("`{name}` is locked by the thread already");
                    return Err((what, "it would wait for itself", "unlock it before"));
                }
                self.held.push((name.clone(), self.cost));
            }
            What::Unlock(name) => {
                let Some(at) = self.held.iter().position(|(held, _)| held == name) else {
                    let what = format!("`{name}` is not locked by the thread here");
                    return Err((
                        what,
                        "a job locks and unlocks, each loop for itself",
                        "lock it before, in the same loop",
                    ));
                };
                let (name, from) = self.held.remove(at);
                // Around nothing but sleep it would be held without work: sections are counted in
                // work.
                if from < self.cost {
                    self.marks.sections.push((name, from, self.cost));
                } else if self.marks.suspensions.last().is_some_and(|(at, _)| *at == from) {
                    let what = format!("`{name}` is held for a sleep only");
                    return Err((
                        what,
                        "sections are counted in work",
                        "let the thread run a little in it",
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
