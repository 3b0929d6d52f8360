//! Loads a shared object, checks the contract of its policies, and registers them with its servers.

use crate::abi;
use crate::policy::{ObjectPolicy, PolicyTable};
use crate::server::{ObjectServer, ServerTable};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use talea_core::mutate;
use talea_core::sched::{Policy, PolicyFactory, PolicySpec, contract};
use talea_core::server::{Reservation, Server, ServerFactory};
use talea_os::files::check_trusted;
use talea_system::Registry;
use thiserror::Error;

/// Maximum number of policies that a process loads.
pub const MAX_POLICIES: usize = 8;
/// Maximum number of servers that a process loads.
pub const MAX_SERVERS: usize = 8;
/// Maximum length of a name, in bytes.
const NAME_MAX: usize = 32;

/// Reason why an object cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The file is not there, or its path cannot be resolved.
    #[error("{path}: {error}")]
    Path {
        /// Path of the object.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Another user than root can change the file, and this process is root.
    #[error("root loads only an object that no other user can change: {0}")]
    Untrusted(String),
    /// The dynamic loader cannot open the file.
    #[error("the dynamic loader refuses it: {0}")]
    Open(libloading::Error),
    /// The object has no entry.
    #[error("it exports no talea_sched_entry: {0}")]
    Entry(libloading::Error),
    /// The entry does not support this version of the interface.
    #[error("it does not support version {} of talea_sched.h", abi::ABI)]
    Version,
    /// A table is smaller than that of the header, or has another version.
    #[error(
        "{table} has size {size} and version {version}; expected at least {expected} and {}",
        abi::ABI
    )]
    Shape {
        /// Name of the structure.
        table: &'static str,
        /// Its size field, in bytes.
        size: u32,
        /// Its version, or that of the object.
        version: u32,
        /// Smallest size, in bytes.
        expected: usize,
    },
    /// A name is not one of small letters, digits and dashes.
    #[error("`{0}` is no name: small letters, digits and dashes, at most {NAME_MAX}")]
    Name(String),
    /// There is a policy or server of this name already.
    #[error("there is a policy or server `{0}` already; give it another name")]
    Taken(String),
    /// A function is missing.
    #[error("`{name}` has no function `{function}`")]
    Missing {
        /// Name of the policy or server.
        name: &'static str,
        /// Name of the function.
        function: &'static str,
    },
    /// The process has loaded [`MAX_POLICIES`] policies or [`MAX_SERVERS`] servers.
    #[error("a command loads at most {MAX_POLICIES} policies and {MAX_SERVERS} servers")]
    TooMany,
    /// The object has neither a policy nor a server.
    #[error("it has neither a policy nor a server")]
    Empty,
    /// A policy violates the contract of [`Policy`].
    #[error("policy `{name}` violates its contract: {rule}")]
    Contract {
        /// Name of the policy.
        name: &'static str,
        /// The violated rule.
        rule: String,
    },
}

/// Loads the object at `path` and adds its policies and servers to `registry`.
///
/// The object stays loaded until the process ends. Its policies have kept the
/// [contract](talea_core::sched::contract) in random sequences of calls.
///
/// # Errors
/// See [`ObjectError`]. As root, an object that another user can change.
pub fn load(path: &Path, mut registry: Registry) -> Result<Registry, ObjectError> {
    let failed = |error| ObjectError::Path { path: path.to_owned(), error };
    // An absolute path: the loader would search a bare name elsewhere.
    let path = path.canonicalize().map_err(failed)?;
    if rustix::process::geteuid().is_root() {
        let checked = mutate!("object-trusted", check_trusted(&path), Ok(()));
        checked.map_err(|untrusted| ObjectError::Untrusted(untrusted.to_string()))?;
    }
    let object = open(&path)?;
    let (mut policies, mut servers) = (Vec::new(), Vec::new());
    for table in tables(object.policies) {
        policies.push(policy_table(table)?);
    }
    for table in tables(object.servers) {
        servers.push(server_table(table)?);
    }
    if policies.is_empty() && servers.is_empty() {
        return Err(ObjectError::Empty);
    }
    for table in policies {
        let name = table.name;
        if registry.has_policy(name) {
            return Err(ObjectError::Taken(name.to_owned()));
        }
        let make = keep_policy(table)?;
        let checked = contract::check(&PolicySpec::Custom { name, make });
        mutate!("object-contract", checked, Ok(()))
            .map_err(|rule| ObjectError::Contract { name, rule })?;
        registry = registry.policy(name, make);
    }
    for table in servers {
        let name = table.name;
        if registry.has_server(name) {
            return Err(ObjectError::Taken(name.to_owned()));
        }
        registry = registry.server(name, keep_server(table)?);
    }
    Ok(registry)
}

/// Loads the object and returns its table.
fn open(path: &Path) -> Result<abi::Object, ObjectError> {
    // SAFETY: runs the constructors of a file that the user has named to run it in this process.
    let library =
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(ObjectError::Open)?;
    // Never unloaded: the registered functions are in it.
    let library = ManuallyDrop::new(library);
    // SAFETY: the header states this type for the one symbol.
    let entry = unsafe { library.get::<abi::Entry>(b"talea_sched_entry\0") };
    let entry = entry.map_err(ObjectError::Entry)?;
    // SAFETY: the header's contract of the entry.
    let object = unsafe { entry(abi::ABI) };
    if object.is_null() {
        return Err(ObjectError::Version);
    }
    // SAFETY: the entry returns NULL, or a table that is valid as long as the object is loaded. Any
    // version of the table begins with these two fields.
    let (size, version) = unsafe { ((*object).size, (*object).abi) };
    shape("struct talea_sched_object", size, version, size_of::<abi::Object>())?;
    // SAFETY: as above; the table is large enough.
    Ok(unsafe { object.read() })
}

fn shape(table: &'static str, size: u32, version: u32, expected: usize) -> Result<(), ObjectError> {
    if (size as usize) < expected || version != abi::ABI {
        return Err(ObjectError::Shape { table, size, version, expected });
    }
    Ok(())
}

/// Returns the pointers of a list that ends with NULL.
fn tables<T>(list: *const *const T) -> Vec<*const T> {
    let mut found = Vec::new();
    while !list.is_null() {
        // SAFETY: by the header, every entry up to the first NULL is valid.
        let table = unsafe { list.add(found.len()).read() };
        if table.is_null() {
            break;
        }
        found.push(table);
    }
    found
}

fn name_of(name: *const c_char) -> Result<&'static str, ObjectError> {
    if name.is_null() {
        return Err(ObjectError::Name(String::new()));
    }
    // SAFETY: by the header, a name is a C string, valid as long as the object is loaded: forever.
    let name = unsafe { CStr::from_ptr::<'static>(name) };
    let is_of_name = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    match name.to_str() {
        Ok(name)
            if (1..=NAME_MAX).contains(&name.len()) && name.as_bytes().iter().all(is_of_name) =>
        {
            Ok(name)
        }
        _ => Err(ObjectError::Name(name.to_string_lossy().into_owned())),
    }
}

/// Returns the function, or that it is missing.
fn needed<T>(
    name: &'static str,
    function: &'static str,
    found: Option<T>,
) -> Result<T, ObjectError> {
    found.ok_or(ObjectError::Missing { name, function })
}

fn policy_table(table: *const abi::Policy) -> Result<PolicyTable, ObjectError> {
    // SAFETY: by the header, every table begins with its size.
    let size = unsafe { (*table).size };
    shape("struct talea_sched_policy", size, abi::ABI, size_of::<abi::Policy>())?;
    // SAFETY: the table is large enough, and valid as long as the object is loaded.
    let table = unsafe { table.read() };
    let name = name_of(table.name)?;
    let wakeups = match (table.next_wakeup, table.wake) {
        (None, None) => None,
        (next, wake) => Some((needed(name, "next_wakeup", next)?, needed(name, "wake", wake)?)),
    };
    Ok(PolicyTable {
        name,
        create: needed(name, "create", table.create)?,
        destroy: needed(name, "destroy", table.destroy)?,
        admit: table.admit,
        ready: needed(name, "ready", table.ready)?,
        finished: needed(name, "finished", table.finished)?,
        update: needed(name, "update", table.update)?,
        head: needed(name, "head", table.head)?,
        before: needed(name, "before", table.before)?,
        charge: table.charge,
        allowance: table.allowance,
        wakeups,
    })
}

fn server_table(table: *const abi::Server) -> Result<ServerTable, ObjectError> {
    // SAFETY: by the header, every table begins with its size.
    let size = unsafe { (*table).size };
    shape("struct talea_sched_server", size, abi::ABI, size_of::<abi::Server>())?;
    // SAFETY: the table is large enough, and valid as long as the object is loaded.
    let table = unsafe { table.read() };
    let name = name_of(table.name)?;
    Ok(ServerTable {
        name,
        create: needed(name, "create", table.create)?,
        destroy: needed(name, "destroy", table.destroy)?,
        wake: needed(name, "wake", table.wake)?,
        idle: needed(name, "idle", table.idle)?,
        charge: needed(name, "charge", table.charge)?,
        exhausted: needed(name, "exhausted", table.exhausted)?,
        refill: needed(name, "refill", table.refill)?,
        budget: needed(name, "budget", table.budget)?,
        next_refill: needed(name, "next_refill", table.next_refill)?,
        deadline: needed(name, "deadline", table.deadline)?,
    })
}

// The constructors of the core are plain functions, which carry no data. So each loaded table has a
// place of its own, and a constructor for each place.

static POLICIES: [OnceLock<PolicyTable>; MAX_POLICIES] = [const { OnceLock::new() }; MAX_POLICIES];
static SERVERS: [OnceLock<ServerTable>; MAX_SERVERS] = [const { OnceLock::new() }; MAX_SERVERS];
/// Protects the choice of a place.
static LOADING: Mutex<()> = Mutex::new(());

fn make_policy<const PLACE: usize>(children: usize) -> Box<dyn Policy + Send> {
    let table = POLICIES[PLACE].get().expect("registered only with its table");
    Box::new(ObjectPolicy::new(*table, children))
}

fn make_server<const PLACE: usize>(of: &Reservation) -> Box<dyn Server + Send> {
    let table = SERVERS[PLACE].get().expect("registered only with its table");
    Box::new(ObjectServer::new(*table, of))
}

fn keep_policy(table: PolicyTable) -> Result<PolicyFactory, ObjectError> {
    const MAKE: [PolicyFactory; MAX_POLICIES] = [
        make_policy::<0>,
        make_policy::<1>,
        make_policy::<2>,
        make_policy::<3>,
        make_policy::<4>,
        make_policy::<5>,
        make_policy::<6>,
        make_policy::<7>,
    ];
    keep(&POLICIES, table).map(|place| MAKE[place])
}

fn keep_server(table: ServerTable) -> Result<ServerFactory, ObjectError> {
    const MAKE: [ServerFactory; MAX_SERVERS] = [
        make_server::<0>,
        make_server::<1>,
        make_server::<2>,
        make_server::<3>,
        make_server::<4>,
        make_server::<5>,
        make_server::<6>,
        make_server::<7>,
    ];
    keep(&SERVERS, table).map(|place| MAKE[place])
}

/// Stores the table in the first free place, and returns its number.
fn keep<T>(places: &[OnceLock<T>], table: T) -> Result<usize, ObjectError> {
    let _guard = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    let place = places.iter().position(|place| place.get().is_none());
    let place = place.ok_or(ObjectError::TooMany)?;
    // The lock makes this the only writer, so the place is still free.
    let _ = places[place].set(table);
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_more_than_there_are_places_is_refused() {
        let places: [OnceLock<u8>; 2] = [const { OnceLock::new() }; 2];
        assert!(matches!((keep(&places, 5), keep(&places, 6)), (Ok(0), Ok(1))));
        assert!(matches!(keep(&places, 7), Err(ObjectError::TooMany)));
        assert_eq!(places.map(|place| place.get().copied()), [Some(5), Some(6)]);
    }
}
