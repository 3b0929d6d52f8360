//! Model of a root for the analysis.

use talea_analysis::tree::RootModel;
use talea_system::Root;

/// Returns the model of a root for the analysis.
pub(super) fn model_of(root: &Root) -> RootModel<'_> {
    RootModel::with_environment(&root.tree, &root.sources, &root.surroundings)
        .with_phases_known(root.phases_known)
}
