//! Names that a program adds to those of system files: external policies, servers and selections
//! (S19, Y21, L8, L19).

use crate::keys::{POLICIES, SELECTIONS, SERVERS};
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
    /// Creates an empty registry.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds an external policy, which files name by `policy = "name"`.
    ///
    /// # Panics
    /// If the name exists already. A file must have the same meaning in every program.
    #[must_use]
    pub fn policy(mut self, name: &'static str, make: sched::PolicyFactory) -> Registry {
        assert!(!self.has_policy(name), "there is a policy {name} already");
        self.policies.push((name, make));
        self
    }

    /// Adds an external server, which files name by `server = "name"`.
    ///
    /// # Panics
    /// If the name exists already.
    #[must_use]
    pub fn server(mut self, name: &'static str, make: server::ServerFactory) -> Registry {
        let is_new = mutate!("system-registry", !self.has_server(name), true);
        assert!(is_new, "there is a server {name} already");
        self.servers.push((name, make));
        self
    }

    /// Adds an external selection, which files name by `selection = "name"`.
    ///
    /// # Panics
    /// If the name exists already.
    #[must_use]
    pub fn selection(mut self, name: &'static str, choose: VersionSelector) -> Registry {
        let mut known =
            SELECTIONS.iter().copied().chain(self.choosers.iter().map(|chooser| chooser.0));
        assert!(known.all(|known| known != name), "there is a selection {name} already");
        self.choosers.push((name, choose));
        self
    }

    /// Whether files may state `policy = "name"`: the policy is one of Talea's own, or registered.
    pub fn has_policy(&self, name: &str) -> bool {
        POLICIES.contains(&name) || self.policies.iter().any(|policy| policy.0 == name)
    }

    /// Whether files may state `server = "name"`: the server is one of Talea's own, or registered.
    pub fn has_server(&self, name: &str) -> bool {
        SERVERS.contains(&name) || self.servers.iter().any(|server| server.0 == name)
    }

    /// Returns the registered policies, with their names.
    pub fn policies(&self) -> impl Iterator<Item = (&'static str, sched::PolicyFactory)> {
        self.policies.iter().copied()
    }

    /// Returns the registered servers, with their names.
    pub fn servers(&self) -> impl Iterator<Item = (&'static str, server::ServerFactory)> {
        self.servers.iter().copied()
    }

    /// Returns the registered selections, with their names.
    pub fn selections(&self) -> impl Iterator<Item = (&'static str, VersionSelector)> {
        self.choosers.iter().copied()
    }
}
