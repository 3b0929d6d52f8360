//! Task specification that the daemon has accepted. Dropping the grant releases the spec.

use crate::client::{Client, refused};
use crate::failure::{Outcome, refused_locally};
use crate::spec::Spec;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use talea_proto::message::{SpecInfo, Token};
use talea_proto::{Code, Field, GROUP_MAX, Granted, Refusal, Reply, Request, SpecId};

/// Accepted task specification.
///
/// Dropping the grant releases the spec: its bandwidth returns, and its thread gets the previous
/// attributes back. The drop does not report a failure, because the daemon releases all specs of an
/// owner that ends. [`Grant::release`] reports a failure.
#[must_use = "dropping a grant releases it"]
pub struct Grant {
    client: Client,
    spec: SpecId,
    released: bool,
}

/// Requests that return grants.
impl Client {
    /// Requests a grant for a task.
    pub fn create(&self, spec: &Spec) -> Outcome<Grant> {
        Ok(self.granted(&Request::Create(*spec.task()))?.map(|granted| self.grant(granted.spec)))
    }

    /// Requests grants for all of these tasks or none, at most 64. Returns the grants in the order
    /// of `specs`.
    pub fn create_group(&self, specs: &[Spec]) -> Outcome<Vec<Grant>> {
        if specs.is_empty() || specs.len() > GROUP_MAX {
            let refusal = refused_locally(Code::Malformed, Field::Group);
            return Ok(Err(Refusal {
                asked: specs.len() as u64,
                limit: GROUP_MAX as u64,
                ..refusal
            }));
        }
        let request = Request::CreateGroup(specs.iter().map(|spec| *spec.task()).collect());
        match self.session().ask_and_hold(&request)? {
            Reply::GrantedGroup(group) => {
                Ok(Ok(group.iter().map(|granted| self.grant(granted.spec)).collect()))
            }
            other => refused(other),
        }
    }

    /// Claims a spec of the same user, with the token of its grant.
    pub fn claim(&self, spec: SpecId, token: Token) -> Outcome<Grant> {
        Ok(self.granted(&Request::Claim { spec, token })?.map(|granted| self.grant(granted.spec)))
    }

    fn grant(&self, spec: SpecId) -> Grant {
        Grant::new(self.clone(), spec)
    }
}

impl Grant {
    fn new(client: Client, spec: SpecId) -> Grant {
        Grant { client, spec, released: false }
    }

    /// Returns the number of the spec.
    pub fn spec(&self) -> SpecId {
        self.spec
    }

    /// Returns what the daemon granted. Returns `None` in a child of the process that requested the
    /// grant.
    pub fn granted(&self) -> Option<Granted> {
        self.client.session().held(self.spec)
    }

    /// Returns Q^a: the CPU time of each activation, between the runtime and the desired runtime.
    /// Returns `None` if the spec declares no runtime.
    pub fn accepted_runtime(&self) -> Option<Duration> {
        self.granted()?.runtime.map(|runtime| Duration::from_nanos(runtime.as_ns()))
    }

    /// Whether the grant was lost in a reconnection, because the daemon did not know the spec. A
    /// child of the process that requested the grant has also lost it.
    pub fn is_lost(&self) -> bool {
        self.client.session().is_lost(self.spec)
    }

    /// Makes the calling thread real-time under the spec.
    pub fn attach_current(&self) -> Outcome<()> {
        self.client.attach(self.spec, 0)
    }

    /// Makes the thread with this number in this PID namespace real-time under the spec. A process
    /// number denotes the main thread of the process.
    pub fn attach(&self, tid: u32) -> Outcome<()> {
        self.client.attach(self.spec, tid)
    }

    /// Attaches the thread of `pidfd` to the spec.
    pub fn attach_pidfd(&self, pidfd: BorrowedFd) -> Outcome<()> {
        self.client.attach_pidfd(self.spec, pidfd)
    }

    /// Restores the attributes that the spec's thread had before the attach. Another thread can
    /// then be attached.
    pub fn detach(&self) -> Outcome<()> {
        self.client.detach(self.spec)
    }

    /// Replaces the parameters of the spec, which may move to another plugin. A refusal changes
    /// nothing. The owner remains the same.
    pub fn change(&self, spec: &Spec) -> Outcome<()> {
        let request = Request::Change { spec: self.spec, task: *spec.task() };
        Ok(self.client.granted(&request)?.map(|_| ()))
    }

    /// Returns everything that the daemon knows about the spec.
    pub fn info(&self) -> Outcome<SpecInfo> {
        self.client.query(self.spec)
    }

    /// Releases the spec and returns the result.
    pub fn release(mut self) -> Outcome<()> {
        self.released = true;
        self.client.release(self.spec)
    }

    /// Leaves the spec to its declared owner instead of releasing it. With [`Owner::Thread`] or
    /// [`Owner::Process`] the spec lives until the owner ends or an entitled user releases the
    /// spec. With [`Owner::Session`] it lives until the client's connection ends.
    ///
    /// [`Owner::Thread`]: crate::Owner::Thread
    /// [`Owner::Process`]: crate::Owner::Process
    /// [`Owner::Session`]: crate::Owner::Session
    pub fn disown(mut self) -> SpecId {
        self.released = true;
        self.client.session().forget(self.spec);
        self.spec
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        // In a child process and after a loss there is nothing to release.
        if self.is_lost() {
            self.client.session().forget(self.spec);
        } else if !self.released {
            self.client.session().release_soon(self.spec);
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("spec", &self.spec)
            .field("released", &self.released)
            .finish_non_exhaustive()
    }
}
