//! `--synthesize server`: the smallest budget with which the clients of a server meet their
//! deadlines, for its period and for others.
//!
//! Bisection finds two limits. Above the upper limit the server may not get its budget in time.
//! Below the lower limit a client may be late. The proposal is verified as a whole: every task that
//! was proved before still is. A larger budget is more supply, except if the server itself then
//! waits longer for it. So some smaller budgets are tried as well, and the result is a sufficient
//! budget of which a nanosecond less is not sufficient.

use super::args::AnalyzeArgs;
use super::model::model_of;
use super::names::{find_node, name_of, subtree, tasks_among};
use super::progress::Progress;
use crate::exit::{Exit, usage};
use crate::output::Table;
use crate::run_summary::short;
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::supply::least_budget::least_budget;
use talea_analysis::tree::TaskBound as Answered;
use talea_core::engine::{NodeId, NodeSpec};
use talea_core::mutate;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Work};
use talea_system::{Root, System};

/// Number of smaller budgets that are tried after the bisection.
const SMALLER_BUDGET_PROBES: u64 = 32;

#[derive(Serialize)]
struct ServersReport {
    file: String,
    what_if: Vec<String>,
    found: bool,
    servers: Vec<ServerProposal>,
    /// First tasks that are not proved when all proposals are applied, one for each root with more
    /// than one proposal. Each proposal holds alone.
    not_together: Vec<String>,
}

#[derive(Serialize)]
struct ServerProposal {
    name: String,
    kind: &'static str,
    /// Current parameters of the server; `None` if there is no server yet.
    before: Option<Contract>,
    periods: Vec<PeriodProposal>,
    /// Parameters of the verified proposal; `None` if there is none.
    after: Option<Contract>,
}

#[derive(Serialize, Clone, Copy)]
struct Contract {
    budget_ns: u64,
    period_ns: u64,
}

#[derive(Serialize)]
struct PeriodProposal {
    period_ns: u64,
    budget_ns: Option<u64>,
    why_not: Option<String>,
}

pub(super) fn server(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let is_scheduler = |body: &NodeSpec| matches!(body, NodeSpec::Scheduler(_));
    let has_server =
        |body: &NodeSpec| matches!(body, NodeSpec::Scheduler(spec) if spec.reservation.is_some());
    let mut chosen = Vec::new();
    for name in &args.server {
        let found = find_node(system, name, "scheduler", is_scheduler);
        chosen.push(found.map_err(|why| wrong(&why))?);
    }
    if args.server.is_empty() {
        let all = system.roots.iter();
        chosen.extend(all.flat_map(|root| {
            root.tree
                .nodes()
                .filter(|(_, node)| has_server(&node.spec))
                .map(move |(node, _)| (root, node))
        }));
    }
    if chosen.is_empty() {
        return Err(wrong(
            "there is no server in this system; name a scheduler that is to become one with --server NAME",
        ));
    }
    let mut servers = Vec::new();
    for &(root, node) in &chosen {
        if node == talea_core::engine::Tree::ROOT {
            return Err(wrong(&format!(
                "{} is the root, which has its CPUs without a server",
                root.name
            )));
        }
        let Some(NodeSpec::Scheduler(spec)) = root.tree.get(node).map(|node| &node.spec) else {
            continue;
        };
        if spec.reservation.is_none() && args.period.is_empty() {
            return Err(wrong(&format!(
                "{} has no server yet: give its period with --period",
                spec.name
            )));
        }
        servers.push(propose_server(args, root, node, spec.reservation));
    }
    let found = servers.iter().all(|server| server.after.is_some());
    let not_together = system.roots.iter().filter_map(|root| {
        let of_it = chosen.iter().zip(&servers).filter(|((of, _), _)| std::ptr::eq(*of, root));
        let all: Vec<(NodeId, Reservation)> = of_it
            .filter_map(|((_, node), server)| proposed_reservation(root, *node, server))
            .collect();
        first_unproved_with_all(root, &all)
    });
    let not_together = not_together.collect();
    let answer = ServersReport {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        found,
        servers,
        not_together,
    };
    args.output.print(&answer, || text(&answer))?;
    Ok(if found { Exit::Ok } else { Exit::Failure })
}

/// Returns the reservation that the proposal describes.
fn proposed_reservation(
    root: &Root,
    node: NodeId,
    server: &ServerProposal,
) -> Option<(NodeId, Reservation)> {
    let Some(NodeSpec::Scheduler(spec)) = root.tree.get(node).map(|node| &node.spec) else {
        return None;
    };
    let like = spec
        .reservation
        .unwrap_or_else(|| Reservation::new(ServerKind::Sporadic, Work::ZERO, Span::ZERO));
    let Contract { budget_ns, period_ns } = server.after?;
    Some((node, with_contract(like, Work::from_ns(budget_ns), Span::from_ns(period_ns))))
}

/// Applies several proposals at once. Returns the first task that is not proved with all of them,
/// among the clients and the tasks that were proved before.
fn first_unproved_with_all(root: &Root, all: &[(NodeId, Reservation)]) -> Option<String> {
    if all.len() < mutate!("analyze-not-together", 2, 3) {
        return None;
    }
    let clients: Vec<NodeId> = all
        .iter()
        .flat_map(|&(node, _)| tasks_among(&root.tree, &subtree(&root.tree, node)))
        .collect();
    let mut changed = root.clone();
    for &(node, of) in all {
        if let Some(NodeSpec::Scheduler(spec)) =
            changed.tree.get_mut(node).map(|node| &mut node.spec)
        {
            spec.reservation = Some(of);
        }
    }
    if let Err(error) = changed.tree.check() {
        return Some(name_of(&root.tree, error.node).to_owned());
    }
    let before = model_of(root).bounds();
    let after = model_of(&changed).bounds();
    let is_due = |before: &Answered| {
        before.is_proved() || (before.has_deadline() && clients.contains(&before.node))
    };
    let lost =
        before.iter().zip(&after).find(|(before, after)| is_due(before) && !after.is_proved());
    lost.map(|(before, _)| name_of(&root.tree, before.node).to_owned())
}

fn wrong(why: &str) -> anyhow::Error {
    usage(format!("--synthesize server: {why}"))
}

fn propose_server(
    args: &AnalyzeArgs,
    root: &Root,
    node: NodeId,
    before: Option<Reservation>,
) -> ServerProposal {
    let kind = before.map_or(ServerKind::Sporadic, |of| of.kind);
    let periods = if args.period.is_empty() {
        let own = before.map_or(1, |of| of.period.as_ns());
        [own / 4, own / 2, own, own.saturating_mul(2)].map(Span::from_ns).to_vec()
    } else {
        args.period.clone()
    };
    let search = BudgetSearch::new(
        root,
        node,
        before.unwrap_or_else(|| Reservation::new(kind, Work::ZERO, Span::ZERO)),
    );
    let mut progress = Progress::new();
    let mut rows = Vec::new();
    for &period in &periods {
        let found = if period.is_zero() {
            Err("too short".to_owned())
        } else {
            search.min_budget(period, &mut progress)
        };
        let (budget_ns, why_not) = match found {
            Ok(budget) => (Some(budget.as_ns()), None),
            Err(why) => (None, Some(why)),
        };
        rows.push(PeriodProposal { period_ns: period.as_ns(), budget_ns, why_not });
    }
    progress.finish_line();
    let contract = |row: &PeriodProposal| {
        Some(Contract { budget_ns: row.budget_ns?, period_ns: row.period_ns })
    };
    let after = match before {
        Some(of) if args.period.is_empty() => {
            rows.iter().find(|row| row.period_ns == of.period.as_ns()).and_then(contract)
        }
        // The candidate with the smallest utilisation.
        _ => rows.iter().filter_map(contract).min_by(|a, b| {
            let cross =
                |x: &Contract, y: &Contract| u128::from(x.budget_ns) * u128::from(y.period_ns);
            cross(a, b).cmp(&cross(b, a))
        }),
    };
    ServerProposal {
        name: name_of(&root.tree, node).to_owned(),
        kind: kind.name(),
        before: before
            .map(|of| Contract { budget_ns: of.budget.as_ns(), period_ns: of.period.as_ns() }),
        periods: rows,
        after,
    }
}

/// Search for one server's budget.
struct BudgetSearch<'r> {
    root: &'r Root,
    node: NodeId,
    template: Reservation,
    clients: Vec<NodeId>,
    /// Other tasks that are proved before the change.
    others: Vec<NodeId>,
}

impl<'r> BudgetSearch<'r> {
    fn new(root: &'r Root, node: NodeId, like: Reservation) -> BudgetSearch<'r> {
        let clients = tasks_among(&root.tree, &subtree(&root.tree, node));
        let proved = model_of(root).bounds().into_iter().filter(Answered::is_proved);
        let others =
            proved.map(|answer| answer.node).filter(|node| !clients.contains(node)).collect();
        BudgetSearch { root, node, template: like, clients, others }
    }

    /// Returns the root with this reservation. Returns `None` if the tree is invalid.
    fn root_with(&self, budget: Work, period: Span) -> Option<Root> {
        let mut root = self.root.clone();
        let of = with_contract(self.template, budget, period);
        let NodeSpec::Scheduler(spec) = &mut root.tree.get_mut(self.node)?.spec else {
            return None;
        };
        spec.reservation = Some(of);
        root.tree.check().is_ok().then_some(root)
    }

    fn is_served(&self, budget: Work, period: Span) -> bool {
        let changed = self.root_with(budget, period);
        changed.is_some_and(|root| model_of(&root).supplied(self.node, Span::from_ns(1)).is_ok())
    }

    fn is_enough(&self, budget: Work, period: Span) -> bool {
        let changed = self.root_with(budget, period);
        changed.is_some_and(|root| {
            model_of(&root)
                .bounds_of(&self.clients)
                .iter()
                .all(|of| of.is_proved() || !of.has_deadline())
        })
    }

    /// Returns the smallest sufficient budget, or the reason why none suffices.
    fn min_budget(&self, period: Span, progress: &mut Progress) -> Result<Work, String> {
        let name = name_of(&self.root.tree, self.node);
        let clients = model_of(self.root).bounds_of(&self.clients);
        if clients.is_empty() {
            return Err("it has no clients, so that any budget is enough".into());
        }
        if !clients.iter().any(Answered::has_deadline) {
            return Err("none of its clients has a deadline, so that any budget is enough".into());
        }
        // The largest budget that the server is guaranteed to get.
        let (mut most, mut over) = (0, period.as_ns() + 1);
        while over - most > 1 {
            progress.tried(name);
            let middle = most + (over - most) / 2;
            if self.is_served(Work::from_ns(middle), period) {
                most = middle;
            } else {
                over = middle;
            }
        }
        if most == 0 {
            return Err("no budget is guaranteed within the period".to_owned());
        }
        let mut up_to = |most: u64| {
            // This closure cannot fail: a question without an answer counts as no.
            let found = least_budget(Span::from_ns(most), |budget| {
                progress.tried(name);
                Ok(self.is_enough(budget, period))
            });
            found.ok().flatten()
        };
        let Some(mut least) = up_to(most) else {
            return Err(format!(
                "even {}, the largest guaranteed budget, is not enough",
                Span::from_ns(most)
            ));
        };
        for probe in 1..SMALLER_BUDGET_PROBES {
            let smaller = least.as_ns() / SMALLER_BUDGET_PROBES * probe;
            if smaller > 0 && self.is_enough(Work::from_ns(smaller), period) {
                least = up_to(smaller).unwrap_or(least);
                break;
            }
        }
        let changed = self
            .root_with(least, period)
            .ok_or_else(|| "the changed tree is invalid".to_owned())?;
        let others = model_of(&changed).bounds_of(&self.others);
        match mutate!(
            "analyze-budget-others",
            others.iter().find(|answer| !answer.is_proved()),
            others.iter().find(|answer| !answer.is_proved() && answer.deadline.is_zero())
        ) {
            None => Ok(least),
            Some(late) => Err(format!(
                "{} would be enough, and {} would not be proved any more",
                short(least.as_ns()),
                name_of(&self.root.tree, late.node)
            )),
        }
    }
}

/// Replaces budget and period. A deadline that becomes impossible and an offset beyond the period
/// return to their defaults.
fn with_contract(like: Reservation, budget: Work, period: Span) -> Reservation {
    let mut of = Reservation { budget, period, ..like };
    of.deadline =
        of.deadline.filter(|&deadline| deadline < period && deadline.as_ns() >= budget.as_ns());
    if of.offset >= period {
        of.offset = Span::ZERO;
    }
    of
}

fn share(of: Contract) -> String {
    let hundredths = (u128::from(of.budget_ns) * 10_000).div_ceil(u128::from(of.period_ns.max(1)));
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn text(answer: &ServersReport) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    for change in &answer.what_if {
        let _ = writeln!(out, "what if {change}");
    }
    for server in &answer.servers {
        let as_is = |of: Contract| {
            format!("{} every {}, {}", short(of.budget_ns), short(of.period_ns), share(of))
        };
        let before = server.before.map_or_else(|| "no server yet".to_owned(), as_is);
        let _ = writeln!(out, "{}: {}, {before}", server.name, server.kind);
        let mut table = Table::new(">period | >least budget | >utilisation | ");
        for row in &server.periods {
            let budget =
                row.budget_ns.map_or_else(|| "-".to_owned(), |ns| Span::from_ns(ns).to_string());
            let contract =
                row.budget_ns.map(|budget_ns| Contract { budget_ns, period_ns: row.period_ns });
            let share = contract.map_or_else(|| "-".to_owned(), share);
            table.row(vec![
                short(row.period_ns),
                budget,
                share,
                row.why_not.clone().unwrap_or_default(),
            ]);
        }
        out.push_str(&table.render());
        let Some(after) = server.after else {
            let _ = writeln!(out, "{}: no budget found", server.name);
            continue;
        };
        let _ = writeln!(
            out,
            "\nin [[scheduler]] {}:",
            toml_edit::Value::from(server.name.as_str()).to_string().trim()
        );
        if server.before.is_none() {
            let _ = writeln!(out, "server = \"{}\"", server.kind);
        }
        for (key, now, was) in [
            ("budget", after.budget_ns, server.before.map(|of| of.budget_ns)),
            ("period", after.period_ns, server.before.map(|of| of.period_ns)),
        ] {
            let was = match was {
                Some(was) if was == now => continue,
                Some(was) => format!("  # was \"{}\"", Span::from_ns(was)),
                None => String::new(),
            };
            let _ = writeln!(out, "{key} = \"{}\"{was}", Span::from_ns(now));
        }
        let _ = writeln!(
            out,
            "\nverified: with it every client is proved, and every other task that was proved before; with a nanosecond less a client is not"
        );
    }
    for task in &answer.not_together {
        let _ = writeln!(
            out,
            "\nnot all at once: each proposal assumes the others unchanged, and with all of them {task} is not proved; change one and repeat"
        );
    }
    out
}
