//! Passes of the tree analysis. Each is a function of the results of the passes before it.
//!
//! | pass | result | from |
//! | --- | --- | --- |
//! | [`Model::read`] | structure, sporadic models, overheads | the root |
//! | [`Blocking::of`] | blocking by resources | `Model` |
//! | [`WholeRoot::of`] | bounds of an off-line table or a single graph | `Model` |
//! | [`Bounds`] | bounds of all other roots, supplies, levels | all of these |

use super::blocking::Blocking;
use super::bounds::Bounds;
use super::model::Model;
use super::root_model::RootModel;
use super::suspension;
use super::whole_root::WholeRoot;

/// Results of the passes before the last one.
pub(super) struct Passes<'a> {
    pub(super) model: Model<'a>,
    blocking: Blocking,
    whole_root: WholeRoot,
}

impl<'a> Passes<'a> {
    /// Runs the passes on a root.
    pub(super) fn of(root: &RootModel<'a>) -> Passes<'a> {
        let mut model = Model::read(root);
        model.count_suspensions(suspension::models(root));
        let whole_root = WholeRoot::of(&model);
        let blocking = Blocking::of(&model);
        model.charge_late_blocking(&blocking);
        Passes { model, blocking, whole_root }
    }

    /// Begins the last pass.
    pub(super) fn bounds(&self) -> Bounds<'_> {
        Bounds::new(&self.model, &self.blocking, &self.whole_root)
    }
}
