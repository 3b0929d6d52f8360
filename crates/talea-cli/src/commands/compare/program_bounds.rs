//! Bounds of a root with programs. Programs release their own jobs, so few bounds hold.

use talea_core::engine::NodeSpec;
use talea_study::compare::model::{Bound, Model};
use talea_system::Root;

/// Removes the bounds that depend on the behaviour of programs: those of the programs themselves,
/// and all bounds if a program has no server above it. Only a server limits the CPU time of a
/// program.
pub(super) fn drop_program_bounds(model: &mut Model, root: &Root) {
    let nothing = Bound { nominal: None, tolerant: None };
    let are_held = programs_are_held(root);
    for (bound, program) in model.bounds.iter_mut().zip(&root.programs) {
        if program.is_some() || !are_held {
            *bound = nothing;
        }
    }
}

/// Whether each program of a root has a server above it.
pub(super) fn programs_are_held(root: &Root) -> bool {
    let tasks = root.tree.nodes().filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)));
    let mut programs = tasks.zip(&root.programs).filter(|(_, program)| program.is_some());
    programs.all(|((id, _), _)| root.tree.ancestors(id).any(|(_, spec)| spec.reservation.is_some()))
}
