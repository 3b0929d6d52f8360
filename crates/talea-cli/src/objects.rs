//! Option `--object`: policies and servers from shared objects.

use std::path::PathBuf;
use talea_study::exit::usage;
use talea_system::Registry;

/// Objects whose policies and servers a system file may name.
#[derive(clap::Args, Debug)]
pub(crate) struct ObjectArgs {
    /// Load a shared object: the file may name its policies and servers (talea_sched.h). The object
    /// runs in this process; root loads only a file that no other user can change. Several times
    /// for several objects.
    #[arg(long = "object", value_name = "OBJECT")]
    objects: Vec<PathBuf>,
}

impl ObjectArgs {
    /// Loads the objects.
    ///
    /// # Errors
    /// An object cannot be loaded.
    pub(crate) fn registry(&self) -> anyhow::Result<Registry> {
        let load = |registry, path: &PathBuf| {
            talea_object::load(path, registry)
                .map_err(|why| usage(format!("object {}: {why}", path.display())))
        };
        self.objects.iter().try_fold(Registry::new(), load)
    }
}
