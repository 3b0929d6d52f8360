//! Page of `talea analyze --html`: bounds, and demand against supply.

use serde::Serialize;
use talea_analysis::tree::DemandPlot;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Kind of a node with a supply.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SupplyKind {
    /// A whole CPU.
    Cpu,
    /// Slots of a time table.
    Partition,
    /// Budget of a server.
    Server,
}

/// Demand against supply at one node, as columns of whole nanoseconds.
#[derive(Debug, Serialize)]
pub struct Plot {
    node: String,
    place: SupplyKind,
    subject: String,
    /// Whether the subject is a scheduler, whose deadlines are then plotted.
    by_deadlines: bool,
    window: u64,
    supply: [Vec<u64>; 2],
    demand: [Vec<u64>; 2],
    mark: u64,
    asked: u64,
    given: u64,
    due: u64,
    exceeded: bool,
}

impl Plot {
    /// Builds a plot, with the names of the node and of the subject.
    pub fn new(
        of: &DemandPlot,
        node: &str,
        place: SupplyKind,
        subject: &str,
        by_deadlines: bool,
    ) -> Plot {
        let columns = |curve: &[(Span, Work)]| {
            let (at, work) = curve.iter().map(|(at, work)| (at.as_ns(), work.as_ns())).unzip();
            [at, work]
        };
        Plot {
            node: node.to_owned(),
            place,
            subject: subject.to_owned(),
            by_deadlines,
            window: of.window.as_ns(),
            supply: columns(&of.supply),
            demand: columns(&of.demand),
            mark: of.mark.as_ns(),
            asked: of.demand_at_mark.as_ns(),
            given: of.supply_at_mark.as_ns(),
            due: of.due.as_ns(),
            exceeded: mutate!(
                "analyze-page-late",
                of.is_exceeded(),
                of.is_exceeded() && of.window.is_zero()
            ),
        }
    }
}

/// Bounds of one root as in the text output, and the root's plots.
#[derive(Debug, Serialize)]
pub struct RootBounds<'a, R> {
    /// Bounds.
    #[serde(flatten)]
    pub answer: &'a R,
    /// Supply and demand of the nodes with a supply.
    pub plots: Vec<Plot>,
}

#[derive(Serialize)]
struct Data<'a, R> {
    title: &'a str,
    what_if: &'a [String],
    roots: &'a [RootBounds<'a, R>],
}

/// Returns the page.
pub fn bounds_html<R: Serialize>(
    title: &str,
    what_if: &[String],
    roots: &[RootBounds<'_, R>],
) -> anyhow::Result<String> {
    let style = [include_str!("page/page.css"), include_str!("bounds/page.css")].concat();
    let script = [include_str!("page/base.js"), include_str!("bounds/page.js")].concat();
    super::assemble(
        include_str!("bounds/page.html"),
        &style,
        &Data { title, what_if, roots },
        &script,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_stays_a_name_in_the_page_of_bounds() {
        #[derive(Serialize)]
        struct Root {
            name: &'static str,
        }
        let page = |name: &'static str| {
            let plot = Plot {
                node: name.to_owned(),
                place: SupplyKind::Server,
                subject: name.to_owned(),
                by_deadlines: false,
                window: 10,
                supply: [vec![0, 10], vec![0, 10]],
                demand: [vec![0], vec![3]],
                mark: 3,
                asked: 3,
                given: 3,
                due: 5,
                exceeded: false,
            };
            let root = RootBounds { answer: &Root { name }, plots: vec![plot] };
            bounds_html(name, &[name.to_owned()], &[root]).expect("a page")
        };
        for name in ["</script><script>boom()</script>", "<!--<script>", "a & b <i>"] {
            let (hostile, clean) = (page(name), page("x"));
            for markup in ["<script", "</script", "<!--", "<i>"] {
                let count = |page: &str| page.matches(markup).count();
                assert_eq!(count(&hostile), count(&clean), "{name:?} adds {markup}");
            }
        }
    }
}
