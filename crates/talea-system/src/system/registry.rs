//! Names that a program adds to those of system files: policies, servers and selections from
//! outside (S19, Y21, L8, L19).

use super::keys::{POLICIES, SELECTIONS, SERVERS};
use talea_core::engine::VersionSelector;
use talea_core::mutate;
use talea_core::{sched, server};

/// Policies, servers and selections that a program adds to those of Talea; empty by default.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    policies: Vec<(&'static str, sched::PolicyFactory)>,
    servers: Vec<(&'static str, server::ServerFactory)>,
    choosers: Vec<(&'static str, VersionSelector)>,
}

impl Registry {
    /// Nothing.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Lets files say `policy = "name"`.
    ///
    /// # Panics
    /// If the name is taken: a file must not mean something else in another program.
    #[must_use]
    pub fn policy(mut self, name: &'static str, make: sched::PolicyFactory) -> Registry {
        assert!(!self.has_policy(name), "there is a policy {name} already");
        self.policies.push((name, make));
        self
    }

    /// Lets files say `server = "name"`.
    ///
    /// # Panics
    /// If the name is taken.
    #[must_use]
    pub fn server(mut self, name: &'static str, make: server::ServerFactory) -> Registry {
        let mut known = SERVERS.iter().copied().chain(self.servers.iter().map(|server| server.0));
        let is_new = mutate!("system-registry", known.all(|known| known != name), true);
        assert!(is_new, "there is a server {name} already");
        self.servers.push((name, make));
        self
    }

    /// Lets files say `selection = "name"`.
    ///
    /// # Panics
    /// If the name is taken.
    #[must_use]
    pub fn selection(mut self, name: &'static str, choose: VersionSelector) -> Registry {
        let mut known =
            SELECTIONS.iter().copied().chain(self.choosers.iter().map(|chooser| chooser.0));
        assert!(known.all(|known| known != name), "there is a selection {name} already");
        self.choosers.push((name, choose));
        self
    }

    /// Whether files may say `policy = "name"` already: one of Talea's own, or registered.
    pub fn has_policy(&self, name: &str) -> bool {
        POLICIES.contains(&name) || self.policies.iter().any(|policy| policy.0 == name)
    }

    /// The policies, by name.
    pub fn policies(&self) -> impl Iterator<Item = (&'static str, sched::PolicyFactory)> {
        self.policies.iter().copied()
    }

    /// The servers, by name.
    pub fn servers(&self) -> impl Iterator<Item = (&'static str, server::ServerFactory)> {
        self.servers.iter().copied()
    }

    /// The selections, by name.
    pub fn selections(&self) -> impl Iterator<Item = (&'static str, VersionSelector)> {
        self.choosers.iter().copied()
    }
}
