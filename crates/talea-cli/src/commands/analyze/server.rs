//! `--synthesize server`: the least budget with which the clients of a server meet their deadlines,
//! for its period and for others.
//!
//! Two ends are found by halving: above the one the server is not sure to have its budget in time,
//! below the other a client may be late. What is proposed is verified as a whole: every task that
//! was proved still is. More budget is more supply, except where the server itself then waits
//! longer for it; so smaller budgets are tried here and there as well, and what is found is a
//! budget that is enough, of which a nanosecond less is not.

use super::names::{below, find, name_of, tasks};
use super::{AnalyzeArgs, Progress};
use crate::commands::simulate::short;
use crate::exit::Exit;
use crate::output::{Table, note, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::supply::least_budget::least_budget;
use talea_analysis::tree::{Answer as Answered, Roots};
use talea_core::machine::{Body, NodeId};
use talea_core::mutate;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Work};
use talea_system::system::{Root, System};

/// So many smaller budgets are tried besides.
const PROBES: u64 = 32;

#[derive(Serialize)]
struct Answer {
    file: String,
    what_if: Vec<String>,
    found: bool,
    servers: Vec<ServerAnswer>,
    /// With all that is proposed at once: the first task that is then not proved any more, of every
    /// root in which more than one server is proposed anything. Each of them holds alone.
    not_together: Vec<String>,
}

#[derive(Serialize)]
struct ServerAnswer {
    name: String,
    kind: &'static str,
    /// As it is; nothing where there is no server yet.
    before: Option<Contract>,
    periods: Vec<PeriodAnswer>,
    /// What is proposed: verified.
    after: Option<Contract>,
}

#[derive(Serialize, Clone, Copy)]
struct Contract {
    budget_ns: u64,
    period_ns: u64,
}

#[derive(Serialize)]
struct PeriodAnswer {
    period_ns: u64,
    budget_ns: Option<u64>,
    why_not: Option<String>,
}

pub(super) fn server(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let is_scheduler = |body: &Body| matches!(body, Body::Scheduler(_));
    let has_server =
        |body: &Body| matches!(body, Body::Scheduler(spec) if spec.reservation.is_some());
    let mut chosen = Vec::new();
    for name in &args.server {
        match find(system, name, "scheduler", is_scheduler) {
            Ok(found) => chosen.push(found),
            Err(why) => return Ok(usage(&why)),
        }
    }
    if args.server.is_empty() {
        let all = system.roots.iter();
        chosen.extend(all.flat_map(|root| {
            root.tree
                .nodes()
                .filter(|(_, node)| has_server(&node.body))
                .map(move |(node, _)| (root, node))
        }));
    }
    if chosen.is_empty() {
        return Ok(usage(
            "there is no server in this system; name a scheduler that is to become one with --server NAME",
        ));
    }
    let mut servers = Vec::new();
    for &(root, node) in &chosen {
        if node == talea_core::machine::Tree::ROOT {
            return Ok(usage(&format!("{} is the root, which has the CPUs for itself", root.name)));
        }
        let Some(Body::Scheduler(spec)) = root.tree.get(node).map(|node| &node.body) else {
            continue;
        };
        if spec.reservation.is_none() && args.period.is_empty() {
            return Ok(usage(&format!(
                "{} has no server yet: say for which period with --period",
                spec.name
            )));
        }
        servers.push(one(args, root, node, spec.reservation));
    }
    let found = servers.iter().all(|server| server.after.is_some());
    let not_together = system.roots.iter().filter_map(|root| {
        let of_it = chosen.iter().zip(&servers).filter(|((of, _), _)| std::ptr::eq(*of, root));
        let all: Vec<(NodeId, Reservation)> =
            of_it.filter_map(|((_, node), server)| proposed(root, *node, server)).collect();
        together(root, &all)
    });
    let not_together = not_together.collect();
    let answer = Answer {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        found,
        servers,
        not_together,
    };
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer))?;
    }
    Ok(if found { Exit::Ok } else { Exit::Failure })
}

/// What a server would be with what is proposed.
fn proposed(root: &Root, node: NodeId, server: &ServerAnswer) -> Option<(NodeId, Reservation)> {
    let Some(Body::Scheduler(spec)) = root.tree.get(node).map(|node| &node.body) else {
        return None;
    };
    let like = spec
        .reservation
        .unwrap_or_else(|| Reservation::new(Kind::Sporadic, Work::ZERO, Span::ZERO));
    let Contract { budget_ns, period_ns } = server.after?;
    Some((node, fitted(like, Work::from_ns(budget_ns), Span::from_ns(period_ns))))
}

/// Of several servers at once: the first task that was proved, or is theirs, and is not with all of
/// them.
fn together(root: &Root, all: &[(NodeId, Reservation)]) -> Option<String> {
    if all.len() < mutate!("analyze-not-together", 2, 3) {
        return None;
    }
    let clients: Vec<NodeId> =
        all.iter().flat_map(|&(node, _)| tasks(&root.tree, &below(&root.tree, node))).collect();
    let mut changed = root.clone();
    for &(node, of) in all {
        if let Some(Body::Scheduler(spec)) = changed.tree.get_mut(node).map(|node| &mut node.body) {
            spec.reservation = Some(of);
        }
    }
    if let Err(error) = changed.tree.check() {
        return Some(name_of(&root.tree, error.node).to_owned());
    }
    let before = roots(root).bounds();
    let after = roots(&changed).bounds();
    let is_due = |before: &Answered| {
        before.is_proved() || (before.has_deadline() && clients.contains(&before.node))
    };
    let lost =
        before.iter().zip(&after).find(|(before, after)| is_due(before) && !after.is_proved());
    lost.map(|(before, _)| name_of(&root.tree, before.node).to_owned())
}

fn usage(why: &str) -> Exit {
    note(&format!("--synthesize server: {why}"));
    Exit::Usage
}

fn one(args: &AnalyzeArgs, root: &Root, node: NodeId, before: Option<Reservation>) -> ServerAnswer {
    let kind = before.map_or(Kind::Sporadic, |of| of.kind);
    let periods = if args.period.is_empty() {
        let own = before.map_or(1, |of| of.period.as_ns());
        [own / 4, own / 2, own, own.saturating_mul(2)].map(Span::from_ns).to_vec()
    } else {
        args.period.clone()
    };
    let search = Search::new(
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
            search.least(period, &mut progress)
        };
        let (budget_ns, why_not) = match found {
            Ok(budget) => (Some(budget.as_ns()), None),
            Err(why) => (None, Some(why)),
        };
        rows.push(PeriodAnswer { period_ns: period.as_ns(), budget_ns, why_not });
    }
    progress.end();
    let contract =
        |row: &PeriodAnswer| Some(Contract { budget_ns: row.budget_ns?, period_ns: row.period_ns });
    let after = match before {
        Some(of) if args.period.is_empty() => {
            rows.iter().find(|row| row.period_ns == of.period.as_ns()).and_then(contract)
        }
        // The one that takes least of the CPU.
        _ => rows.iter().filter_map(contract).min_by(|a, b| {
            let cross =
                |x: &Contract, y: &Contract| u128::from(x.budget_ns) * u128::from(y.period_ns);
            cross(a, b).cmp(&cross(b, a))
        }),
    };
    ServerAnswer {
        name: name_of(&root.tree, node).to_owned(),
        kind: kind.name(),
        before: before
            .map(|of| Contract { budget_ns: of.budget.as_ns(), period_ns: of.period.as_ns() }),
        periods: rows,
        after,
    }
}

/// The search for one server.
struct Search<'r> {
    root: &'r Root,
    node: NodeId,
    like: Reservation,
    clients: Vec<NodeId>,
    /// Others that are proved as it is.
    others: Vec<NodeId>,
}

impl<'r> Search<'r> {
    fn new(root: &'r Root, node: NodeId, like: Reservation) -> Search<'r> {
        let clients = tasks(&root.tree, &below(&root.tree, node));
        let proved = roots(root).bounds().into_iter().filter(Answered::is_proved);
        let others =
            proved.map(|answer| answer.node).filter(|node| !clients.contains(node)).collect();
        Search { root, node, like, clients, others }
    }

    /// The root with such a server.
    fn with(&self, budget: Work, period: Span) -> Option<Root> {
        let mut root = self.root.clone();
        let of = fitted(self.like, budget, period);
        let Body::Scheduler(spec) = &mut root.tree.get_mut(self.node)?.body else { return None };
        spec.reservation = Some(of);
        root.tree.check().is_ok().then_some(root)
    }

    fn is_served(&self, budget: Work, period: Span) -> bool {
        let changed = self.with(budget, period);
        changed.is_some_and(|root| roots(&root).supplied(self.node, Span::from_ns(1)).is_ok())
    }

    fn is_enough(&self, budget: Work, period: Span) -> bool {
        let changed = self.with(budget, period);
        changed.is_some_and(|root| {
            roots(&root)
                .bounds_of(&self.clients)
                .iter()
                .all(|of| of.is_proved() || !of.has_deadline())
        })
    }

    /// The least budget, or what stands against every one.
    fn least(&self, period: Span, progress: &mut Progress) -> Result<Work, String> {
        let name = name_of(&self.root.tree, self.node);
        let clients = roots(self.root).bounds_of(&self.clients);
        if clients.is_empty() {
            return Err("it has no clients, so that any budget is enough".into());
        }
        if !clients.iter().any(Answered::has_deadline) {
            return Err("none of its clients has a deadline, so that any budget is enough".into());
        }
        // The largest budget that it is sure to have.
        let (mut most, mut over) = (0, period.as_ns() + 1);
        while over - most > 1 {
            progress.tried(name);
            let middle = most + (over - most) / 2;
            if self.is_served(Work::from_ns(middle), period) {
                most = middle
            } else {
                over = middle
            }
        }
        if most == 0 {
            return Err("no budget is sure to be had within the period".to_owned());
        }
        let mut up_to = |most: u64| {
            // Nothing here can fail: a question that has no answer is a no.
            let found = least_budget(Span::from_ns(most), |budget| {
                progress.tried(name);
                Ok(self.is_enough(budget, period))
            });
            found.ok().flatten()
        };
        let Some(mut least) = up_to(most) else {
            return Err(format!(
                "even {}, the most that it is sure to have, is not enough",
                Span::from_ns(most)
            ));
        };
        for probe in 1..PROBES {
            let smaller = least.as_ns() / PROBES * probe;
            if smaller > 0 && self.is_enough(Work::from_ns(smaller), period) {
                least = up_to(smaller).unwrap_or(least);
                break;
            }
        }
        let changed =
            self.with(least, period).ok_or_else(|| "not a tree that can be".to_owned())?;
        let others = roots(&changed).bounds_of(&self.others);
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

/// A deadline that is no longer possible, and an offset beyond the period, go back to what they are
/// by default.
fn fitted(like: Reservation, budget: Work, period: Span) -> Reservation {
    let mut of = Reservation { budget, period, ..like };
    of.deadline =
        of.deadline.filter(|&deadline| deadline < period && deadline.as_ns() >= budget.as_ns());
    if of.offset >= period {
        of.offset = Span::ZERO;
    }
    of
}

fn roots(root: &Root) -> Roots<'_> {
    Roots::within(&root.tree, &root.sources, &root.surroundings)
}

fn share(of: Contract) -> String {
    let hundredths = (u128::from(of.budget_ns) * 10_000).div_ceil(u128::from(of.period_ns.max(1)));
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn text(answer: &Answer) -> String {
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
        let mut table = Table::new(&[">period", ">least budget", ">utilisation", ""]);
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
            "\nverified: with it every client is proved, and so is every other task that was; with a nanosecond less a client is not"
        );
    }
    for task in &answer.not_together {
        let _ = writeln!(
            out,
            "\nnot all at once: each of these is for the others as they are, and with all of them {task} is not proved; change one and ask again"
        );
    }
    out
}
