//! Parts of a simulated run: which mode of a root is in force from when to when.
//!
//! Each part is a simulation of its mode with a time zero of its own. A first simulation of the
//! part finds the switch instant by the rule of the tree ([`SwitchRule`]). The second one, with the
//! same seed, ends there and is recorded.

use talea_core::engine::{SwitchCause, SwitchRule};
use talea_core::workload::Environment;
use talea_core::{Span, Time};
use talea_sim::{Simulation, Stall};
use talea_study::run_summary::RunPart;
use talea_system::{Root, System};

/// Part of the run of one root.
pub(super) struct Part {
    /// Root in the mode of the part, with the environment since the start of the part.
    pub(super) root: Root,
    pub(super) seed: u64,
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) about: RunPart,
}

/// Request of a switch: the time, and the system in the new mode with its name.
pub(super) type Request<'s> = (Time, &'s str, &'s System);

/// Returns the parts of the run of root `number`, which ends at `end`. A request before the switch
/// of an earlier request replaces the mode, but not the instant of the switch.
pub(super) fn parts(
    initial: (&str, &System),
    number: usize,
    requests: &[Request<'_>],
    seed: u64,
    end: Time,
) -> anyhow::Result<Vec<Part>> {
    let (mut mode, mut system) = initial;
    let (mut from, mut requested, mut at) = (Time::ZERO, None, 0);
    let mut parts = Vec::new();
    loop {
        let mut root = system.roots[number].clone();
        root.surroundings = since(&root.surroundings, from);
        // The parts differ in their random values, too.
        let seed = seed.wrapping_add(parts.len() as u64);
        let mut next = None;
        if let Some(&(first, ..)) = requests.get(at)
            && first < end
        {
            let (instant, cause) = switch_instant(&root, seed, first.max(from).since(from))?;
            let instant = from.saturating_add(instant);
            while requests.get(at + 1).is_some_and(|later| later.0 < instant) {
                at += 1;
            }
            let (time, name, system) = requests[at];
            next = (instant < end).then_some((time, name, system, instant, cause));
        }
        let to = next.map_or(end, |next| next.3);
        parts.push(Part {
            root,
            seed,
            from,
            to,
            about: RunPart {
                mode: mode.to_owned(),
                requested_ns: requested.map(Time::as_ns),
                from_ns: from.as_ns(),
                to_ns: to.as_ns(),
                until: next.map(|next| next.4),
                pending: 0,
            },
        });
        let Some((time, name, new, instant, _)) = next else { return Ok(parts) };
        (requested, mode, system, from, at) = (Some(time), name, new, instant, at + 1);
    }
}

/// Returns the instant at which a switch that is requested at `request` takes effect, in the time
/// of the part, with its cause.
fn switch_instant(root: &Root, seed: u64, request: Span) -> anyhow::Result<(Span, &'static str)> {
    let engine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    let world = Simulation::new(engine, root.tree.cpus, &root.workload(seed));
    let mut world = world.with_environment(&root.surroundings);
    let rule = SwitchRule::of(&root.tree);
    let instant = world.run_to_switch(&rule, Time::ZERO + request, &mut ());
    let cause = match instant.cause {
        SwitchCause::Idle => "idle instant",
        SwitchCause::FrameEnd => "end of frame",
        SwitchCause::Limit => "longest period",
    };
    Ok((instant.at.since(Time::ZERO), cause))
}

/// Returns an environment in the time of a part that starts at `from`.
fn since(environment: &Environment, from: Time) -> Environment {
    let start = from.since(Time::ZERO);
    let shifted = |time: Time| Time::from_ns(time.as_ns().saturating_sub(start.as_ns()));
    let stalls = environment.stalls.iter().filter(|stall| stall.to > from);
    let changes = environment.changes.iter();
    Environment {
        overheads: environment.overheads,
        stalls: stalls
            .map(|stall| Stall { cpu: stall.cpu, from: shifted(stall.from), to: shifted(stall.to) })
            .collect(),
        changes: changes.map(|(at, condition)| (shifted(*at), *condition)).collect(),
    }
}
