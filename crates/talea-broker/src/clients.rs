//! Who asked, with the rules that hold for them, shared by a connection and by the specs that
//! outlive it.

use crate::input::Peer;
use crate::rules::{Rules, Snapshot};

/// One peer and its compiled rules.
#[derive(Debug)]
struct Client {
    peer: Peer,
    snapshot: Snapshot,
    holders: u32,
}

/// Clients by number; a number is used again when nobody holds it any more.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    clients: Vec<Option<Client>>,
    free: Vec<u32>,
}

impl Clients {
    /// Adds a client with one holder.
    pub(crate) fn insert(&mut self, peer: Peer, rules: &Rules) -> u32 {
        let client = Some(Client { snapshot: rules.snapshot(&peer), peer, holders: 1 });
        if let Some(number) = self.free.pop() {
            self.clients[number as usize] = client;
            return number;
        }
        self.clients.push(client);
        self.clients.len() as u32 - 1
    }

    /// One more holder.
    pub(crate) fn hold(&mut self, number: u32) {
        self.client_mut(number).holders += 1;
    }

    /// One holder less; the last one takes the client along.
    pub(crate) fn let_go(&mut self, number: u32) {
        let client = self.client_mut(number);
        client.holders -= 1;
        if client.holders == 0 {
            self.clients[number as usize] = None;
            self.free.push(number);
        }
    }

    /// Who it is.
    pub(crate) fn peer(&self, number: u32) -> &Peer {
        &self.client(number).peer
    }

    /// What holds for it.
    pub(crate) fn snapshot(&self, number: u32) -> &Snapshot {
        &self.client(number).snapshot
    }

    /// Compiles every snapshot anew.
    pub(crate) fn rebuild(&mut self, rules: &Rules) {
        for client in self.clients.iter_mut().flatten() {
            client.snapshot = rules.snapshot(&client.peer);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.clients.len() - self.free.len()
    }

    fn client(&self, number: u32) -> &Client {
        self.clients[number as usize].as_ref().expect("a client without holders was named")
    }

    fn client_mut(&mut self, number: u32) -> &mut Client {
        self.clients[number as usize].as_mut().expect("a client without holders was named")
    }
}
