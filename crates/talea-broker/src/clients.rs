//! Clients: peers with their compiled rules, shared by a connection and by the specs that outlive
//! it.

use crate::input::Peer;
use crate::rules::{Rules, Snapshot};

/// A peer and its compiled rules.
#[derive(Debug)]
struct Client {
    peer: Peer,
    snapshot: Snapshot,
    references: u32,
    /// User of the front end that acts for the peer, if one does.
    front_end: Option<u32>,
    /// Whether a front end acts for the peer. Its user is unknown after a restart of the daemon.
    has_front_end: bool,
}

/// Clients by number, with reference counts; the number of a removed client is reused.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    clients: Vec<Option<Client>>,
    free: Vec<u32>,
}

impl Clients {
    /// Adds a client with one reference.
    pub(crate) fn insert(&mut self, peer: Peer, rules: &Rules) -> u32 {
        let snapshot = rules.snapshot(&peer);
        let client =
            Some(Client { snapshot, peer, references: 1, front_end: None, has_front_end: false });
        if let Some(number) = self.free.pop() {
            self.clients[number as usize] = client;
            return number;
        }
        self.clients.push(client);
        self.clients.len() as u32 - 1
    }

    /// Adds a reference.
    pub(crate) fn acquire(&mut self, number: u32) {
        self.client_mut(number).references += 1;
    }

    /// Drops a reference; the last one removes the client.
    pub(crate) fn release(&mut self, number: u32) {
        let client = self.client_mut(number);
        client.references -= 1;
        if client.references == 0 {
            self.clients[number as usize] = None;
            self.free.push(number);
        }
    }

    /// Returns the peer.
    pub(crate) fn peer(&self, number: u32) -> &Peer {
        &self.client(number).peer
    }

    /// Returns the user of the front end that acts for the client; `None` if none does.
    pub(crate) fn front_end(&self, number: u32) -> Option<u32> {
        self.client(number).front_end
    }

    /// Whether a front end acts for the client.
    pub(crate) fn has_front_end(&self, number: u32) -> bool {
        self.client(number).has_front_end
    }

    /// Notes that a front end acts for the client; `uid` is its user, if known.
    pub(crate) fn set_front_end(&mut self, number: u32, uid: Option<u32>) {
        let client = self.client_mut(number);
        client.front_end = uid;
        client.has_front_end = true;
    }

    /// Returns the rules that apply to the client.
    pub(crate) fn snapshot(&self, number: u32) -> &Snapshot {
        &self.client(number).snapshot
    }

    /// Compiles every snapshot again.
    pub(crate) fn rebuild(&mut self, rules: &Rules) {
        for client in self.clients.iter_mut().flatten() {
            client.snapshot = rules.snapshot(&client.peer);
        }
    }

    /// Returns the number of clients.
    pub(crate) fn len(&self) -> usize {
        self.clients.len() - self.free.len()
    }

    fn client(&self, number: u32) -> &Client {
        self.clients[number as usize].as_ref().expect("a removed client was used")
    }

    fn client_mut(&mut self, number: u32) -> &mut Client {
        self.clients[number as usize].as_mut().expect("a removed client was used")
    }
}
