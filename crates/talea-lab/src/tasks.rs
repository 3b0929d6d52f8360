//! Random tasks as in ReTiF's benchmark, but small, because the experiments measure the cost of a
//! request, not the cost of a refusal.

use talea_client::Spec;
use talea_core::rng::Rng;
use talea_core::{Params, Priority, Span, Work};
use talea_proto::Task;

/// Plugin that serves a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Edf,
    Rm,
    Fp,
    Rr,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Edf, Kind::Rm, Kind::Fp, Kind::Rr];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Edf => "edf",
            Kind::Rm => "rm",
            Kind::Fp => "fp",
            Kind::Rr => "rr",
        }
    }

    /// Returns a plugin that refuses the tasks of this plugin, because a mandatory parameter is
    /// missing.
    pub(super) fn other(self) -> Kind {
        match self {
            Kind::Edf | Kind::Rm => Kind::Fp,
            Kind::Fp | Kind::Rr => Kind::Rm,
        }
    }
}

/// Draws a task that `kind` serves and its [`Kind::other`] does not. 20,000 such tasks fit on one
/// CPU.
pub(super) fn task(kind: Kind, random: &mut Rng) -> Spec {
    let params = match kind {
        Kind::Edf | Kind::Rm => Params {
            period: Some(Span::from_ns(random.between(1_000_000_000, 4_000_000_000))),
            runtime: Some(Work::from_ns(random.between(1_024, 4_000))),
            ..Params::default()
        },
        Kind::Fp | Kind::Rr => {
            Params { priority: Some(Priority(random.between(10, 59) as u8)), ..Params::default() }
        }
    };
    Spec::from_task(Task { params, ..Task::default() })
}
