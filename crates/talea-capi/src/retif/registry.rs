//! Connection of the process, and its tasks by their numbers.

use crate::ffi::{CallError, CallResult};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use talea_client::{Client, Code, Field, Grant, Refusal, SpecId};

/// First of the numbers for tasks whose own number does not fit into the structure.
const LARGE: u32 = 1 << 31;

/// Accepted task.
pub(super) struct Entry {
    pub(super) grant: Grant,
    /// Address of the structure for which the task was created.
    address: usize,
    /// Whether a thread has been attached to the task.
    pub(super) attached: AtomicBool,
}

struct Registry {
    client: Option<Client>,
    tasks: BTreeMap<u32, Arc<Entry>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { client: None, tasks: BTreeMap::new() });

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the connection of the process, which connects with its first request.
pub(super) fn client() -> CallResult<Client> {
    let mut registry = lock();
    if let Some(client) = &registry.client {
        return Ok(client.clone());
    }
    let client = Client::builder().lazy()?;
    registry.client = Some(client.clone());
    Ok(client)
}

/// Adds a new task to the registry, and returns its number.
pub(super) fn enter(grant: Grant, address: usize) -> u32 {
    let mut registry = lock();
    let own = u32::try_from(grant.spec().0).ok().filter(|id| (1..LARGE).contains(id));
    let free = |id: &u32| !registry.tasks.contains_key(id);
    let id = own
        .filter(free)
        .or_else(|| (LARGE..=u32::MAX).find(free))
        .expect("fewer tasks than numbers");
    registry.tasks.insert(id, Arc::new(Entry { grant, address, attached: AtomicBool::new(false) }));
    id
}

/// Returns the task with a number. Returns a refusal if there is none.
pub(super) fn find(id: u32) -> CallResult<Arc<Entry>> {
    lock().tasks.get(&id).cloned().ok_or_else(no_such_task)
}

/// Removes the task with a number from the registry, and returns the task.
pub(super) fn remove(id: u32) -> CallResult<Arc<Entry>> {
    lock().tasks.remove(&id).ok_or_else(no_such_task)
}

/// Returns the number of this process's task with a spec, if there is one.
pub(super) fn number_of(spec: SpecId) -> Option<u32> {
    lock().tasks.iter().find(|(_, entry)| entry.grant.spec() == spec).map(|(id, _)| *id)
}

/// Returns the tasks that were created for the structure at `address` and have had a thread.
///
/// A program of ReTiF (CatchingDrone) cancels a thread and creates its task again without releasing
/// the old task.
pub(super) fn former_tasks(address: usize) -> Vec<(u32, Arc<Entry>)> {
    let used = |entry: &Entry| entry.address == address && entry.attached.load(Ordering::Relaxed);
    lock()
        .tasks
        .iter()
        .filter(|(_, entry)| used(entry))
        .map(|(id, entry)| (*id, Arc::clone(entry)))
        .collect()
}

fn no_such_task() -> CallError {
    let refusal = Refusal {
        code: Code::NoSuchSpec,
        field: Field::Request,
        asked: 0,
        limit: 0,
        errno: 0,
        index: 0,
        rule: None,
        answers: Vec::new(),
    };
    refusal.into()
}
