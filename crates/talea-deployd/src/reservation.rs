//! Reservation of the deployment's CPUs in the ledger of `talead`.
//!
//! A deployment schedules its programs above all grants. So this process holds an exclusive spec on
//! each of its CPUs, as a run does, and `talead` places no task there. Without `talead` there is no
//! grant, and nothing to reserve.
//!
//! A thread of its own holds the specs: the driver never waits for `talead`. It looks again every
//! second, because `talead` may start or restart at any time, and a grant that stood in the way may
//! end.

use crate::log::log;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;
use talea_client::{Client, Failure, Grant, Spec};
use talea_core::{CpuSet, mutate};
use talea_proto::Task;

/// Time between two looks at the reservation.
const PERIOD: Duration = Duration::from_secs(1);
/// Time limit of a request to `talead`.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Handle of the thread that reserves CPUs. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Reservation {
    wanted: Sender<CpuSet>,
    last: CpuSet,
}

impl Reservation {
    /// Starts the thread, for the `talead` at `socket`.
    pub(crate) fn start(socket: &Path) -> io::Result<Reservation> {
        let (wanted, changes) = channel();
        let mut ledger = Ledger::new(socket.to_owned());
        Builder::new().name("talea-reserve".into()).spawn(move || {
            let mut wanted = CpuSet::EMPTY;
            loop {
                match changes.recv_timeout(PERIOD) {
                    Ok(cpus) => wanted = cpus,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                ledger.hold(&wanted);
            }
        })?;
        Ok(Reservation { wanted, last: CpuSet::EMPTY })
    }

    /// Changes the CPUs that are to be reserved.
    pub(crate) fn set(&mut self, cpus: CpuSet) {
        if self.last != cpus {
            self.last = cpus;
            // The thread ends with this handle only.
            let _ = self.wanted.send(cpus);
        }
    }
}

/// Specs that are held.
struct Ledger {
    socket: PathBuf,
    client: Option<Client>,
    held: BTreeMap<u32, Grant>,
    /// Last line about the reservation.
    said: String,
}

impl Ledger {
    fn new(socket: PathBuf) -> Ledger {
        Ledger { socket, client: None, held: BTreeMap::new(), said: String::new() }
    }

    /// Holds one spec on each of these CPUs, and no other one.
    fn hold(&mut self, wanted: &CpuSet) {
        // A dropped grant is released.
        // A lost one is requested again.
        self.held.retain(|&cpu, grant| wanted.contains(cpu) && !grant.is_lost());
        if wanted.is_empty() {
            (self.client, self.said) = (None, String::new());
            return;
        }
        let line = match self.try_hold(wanted) {
            Ok(None) => format!("CPU {wanted}: reserved in the ledger of talead"),
            Ok(Some(why)) => format!("{why}; talead may grant the CPU to other programs meanwhile"),
            // Nothing to reserve.
            Err(Failure::Connection { .. } | Failure::Disabled) => String::new(),
            Err(failure) => format!("CPU {wanted}: not reserved: {failure}"),
        };
        if self.said != line {
            self.said = line;
            if !self.said.is_empty() {
                log(&self.said);
            }
        }
    }

    /// Requests the missing specs. Returns the first refusal in words.
    fn try_hold(&mut self, wanted: &CpuSet) -> Result<Option<String>, Failure> {
        let builder = || Client::builder().path(&self.socket).timeout(TIMEOUT).lazy();
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(builder()?).clone(),
        };
        // A request finds out that `talead` has restarted, and claims the specs.
        client.status()?.ok();
        let mut refused = None;
        for cpu in wanted {
            if self.held.get(&cpu).is_some_and(|grant| !grant.is_lost()) {
                continue;
            }
            let task = Task::whole_cpu(cpu);
            let exclusive = mutate!("deployd-reservation", task.exclusive, false);
            match client.create(&Spec::from_task(Task { exclusive, ..task }))? {
                Ok(grant) => drop(self.held.insert(cpu, grant)),
                Err(refusal) => {
                    let why = format!("CPU {cpu}: talead does not reserve it: {refusal}");
                    refused.get_or_insert(why);
                }
            }
        }
        Ok(refused)
    }
}
