//! Systems of the figures, whose bounds are compared with simulated responses.

use super::args::Which;
use super::base::{MINUTE, Plan, base_system};
use super::fig4::figure4_system;
use super::fig5::{FIG5_RUN, FIG5_SLOTS, figure5_system};
use super::fig6::{FIG6_RUN, HARMONIC, figure6_system};
use super::scenarios::SCENARIOS;
use crate::bounds::Case;
use crate::units::MS;
use talea_core::Time;

/// Returns the cases of a figure. Figures 7 and 8 have the base system.
pub(super) fn cases(figure: Which) -> Vec<Case> {
    match figure {
        Which::Fig4 => [(false, "(a) priorities"), (true, "(b) reservations")]
            .map(|(reserved, name)| {
                let (tree, workload) = figure4_system(reserved, 1);
                Case::new(name.to_owned(), tree, workload, Time::from_ns(100 * MS))
            })
            .into(),
        Which::Fig5 => {
            let one = |slot| {
                let (tree, workload) = figure5_system(slot, None);
                Case::new(format!("slots of {slot} ms"), tree, workload, FIG5_RUN).showing(&[1])
            };
            FIG5_SLOTS.map(one).into()
        }
        Which::Fig6 => {
            let mut cases = Vec::new();
            for periods in HARMONIC {
                for tenth in 1..=5 {
                    let (tree, workload) = figure6_system(&periods, tenth, None);
                    let name = format!("{periods:?} U 0.{tenth}");
                    cases.push(Case::new(name, tree, workload, FIG6_RUN).showing(&[7]));
                }
            }
            cases
        }
        Which::Fig7 | Which::Fig8 => SCENARIOS
            .map(|(name, service, load)| {
                let (tree, workload) = base_system(&Plan::minute(service, load));
                Case::new(name.to_owned(), tree, workload, MINUTE)
            })
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::rows;
    use talea_core::Span;

    fn all() -> Vec<Case> {
        [Which::Fig4, Which::Fig5, Which::Fig6, Which::Fig7].into_iter().flat_map(cases).collect()
    }

    #[test]
    fn l12_no_bound_of_a_figure_is_exceeded() {
        let mut bounded = 0;
        for row in all().iter().flat_map(rows) {
            assert!(!row.is_exceeded(), "{}: {} above {:?}", row.name, row.longest, row.bound());
            bounded += usize::from(row.bound().is_some());
        }
        assert!(bounded > 100, "{bounded}");
    }

    #[test]
    fn l_o5_a_bound_in_a_partition_is_the_slot_and_the_service_and_is_reached() {
        for (case, slot) in cases(Which::Fig5).iter().zip(FIG5_SLOTS) {
            let echo = &rows(case)[1];
            let expected = Span::from_ns(slot * MS + 650_000);
            assert_eq!(
                (echo.bound(), echo.longest),
                (Some(expected), expected),
                "slots of {slot} ms"
            );
        }
    }

    #[test]
    fn l_o2_a_reservation_bounds_a_and_b_whatever_the_echo_server_is_asked() {
        let ms = |ms| Some(Span::from_ns(ms * MS));
        let bounds: Vec<_> = cases(Which::Fig7)
            .iter()
            .map(|case| rows(case).iter().map(crate::bounds::BoundRow::bound).collect::<Vec<_>>())
            .collect();
        // The effect of bursts without a reservation is unbounded. With a reservation they cost
        // other tasks at most its budget, twice in the worst case.
        assert_eq!(bounds[2][..2], [None, None]);
        assert_eq!(bounds[3][1], ms(4));
        assert!(bounds[3][0] < ms(40), "{:?}", bounds[3][0]);
    }
}
