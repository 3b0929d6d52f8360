//! The interface `org.freedesktop.RealtimeKit1` of rtkit 0.13 and 0.14.
//!
//! Methods, types, properties and names of errors are those of rtkit, so that its clients need no
//! change. `docs/manual/realtimekit.md` lists the differences.

use crate::caller::caller_of;
use crate::options::Options;
use crate::service::{Service, Wanted};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use talea_core::mutate;
use zbus::fdo::Error;
use zbus::message::Header;
use zbus::{Connection, fdo, interface};

/// Name on the bus, and name of the interface.
pub(crate) const BUS_NAME: &str = "org.freedesktop.RealtimeKit1";
/// Path of the only object.
pub(crate) const OBJECT_PATH: &str = "/org/freedesktop/RealtimeKit1";

/// Maximum number of calls in progress of all users.
const MAX_CALLS: usize = 64;
/// Maximum number of calls of one user in progress, and of one connection before the bus has named
/// its user.
const MAX_CALLS_PER_CALLER: usize = 16;

/// Object that the bus name serves.
pub(crate) struct RealtimeKit {
    service: Arc<Service>,
    by_connection: Arc<Calls<String>>,
    by_user: Arc<Calls<u32>>,
}

/// Number of calls in progress, by caller.
///
/// Model: a call first counts for its connection, while the bus is asked for the user, and then for
/// the user. A user with many connections exhausts no limit that other users share.
struct Calls<K>(Mutex<BTreeMap<K, usize>>);

impl<K> Default for Calls<K> {
    fn default() -> Calls<K> {
        Calls(Mutex::default())
    }
}

/// A call in progress.
struct Call<K: Ord> {
    calls: Arc<Calls<K>>,
    caller: K,
}

impl<K: Ord + Clone> Calls<K> {
    /// Counts a call, or returns the error if too many are in progress: `max` in total.
    fn begin(self: &Arc<Calls<K>>, caller: K, max: usize) -> fdo::Result<Call<K>> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (calls.values().sum::<usize>(), calls.get(&caller).copied().unwrap_or(0));
        if all >= max || mutate!("rtkit-calls-per-caller", own >= MAX_CALLS_PER_CALLER, false) {
            return Err(Error::LimitsExceeded(format!(
                "{own} calls of this caller and {all} in total are in progress; at most \
                 {MAX_CALLS_PER_CALLER} and {MAX_CALLS} are served at a time"
            )));
        }
        *calls.entry(caller.clone()).or_default() += 1;
        Ok(Call { calls: Arc::clone(self), caller })
    }
}

impl<K: Ord> Drop for Call<K> {
    fn drop(&mut self) {
        let mut calls = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = calls.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                calls.remove(&self.caller);
            }
        }
    }
}

fn not_here(method: &str) -> Error {
    Error::NotSupported(format!(
        "{method} is not served: `talea list` shows the grants, and `talea release` ends one"
    ))
}

impl RealtimeKit {
    /// Creates the object.
    pub(crate) fn new(options: Options) -> RealtimeKit {
        let service = Arc::new(Service::new(options));
        RealtimeKit { service, by_connection: Arc::default(), by_user: Arc::default() }
    }

    /// Serves one call: thread `thread` of process `process`, or of the caller.
    async fn serve(
        &self,
        header: &Header<'_>,
        connection: &Connection,
        process: Option<u64>,
        thread: u64,
        wanted: Wanted,
    ) -> fdo::Result<()> {
        let sender = header
            .sender()
            .ok_or_else(|| Error::AccessDenied("the call has no sender".to_owned()))?;
        let asking = self.by_connection.begin(sender.to_string(), usize::MAX)?;
        let caller = caller_of(connection, sender).await?;
        let call = self.by_user.begin(caller.uid, MAX_CALLS)?;
        drop(asking);
        let service = Arc::clone(&self.service);
        zruntime::unblock(move || {
            let _call = call;
            service.serve(&caller, process, thread, wanted)
        })
        .await
    }
}

#[allow(clippy::unused_self, reason = "each is a method of the object on the bus")]
#[interface(name = "org.freedesktop.RealtimeKit1", introspection_docs = false)]
impl RealtimeKit {
    /// Makes a thread of the calling process real-time.
    async fn make_thread_realtime(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
        thread: u64,
        priority: u32,
    ) -> fdo::Result<()> {
        self.serve(&header, connection, None, thread, Wanted::Priority(priority)).await
    }

    /// Makes a thread of a process of the same user real-time.
    #[zbus(name = "MakeThreadRealtimeWithPID")]
    async fn make_thread_realtime_with_pid(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
        process: u64,
        thread: u64,
        priority: u32,
    ) -> fdo::Result<()> {
        self.serve(&header, connection, Some(process), thread, Wanted::Priority(priority)).await
    }

    /// Makes a thread of the calling process ordinary, with this nice value.
    async fn make_thread_high_priority(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
        thread: u64,
        priority: i32,
    ) -> fdo::Result<()> {
        self.serve(&header, connection, None, thread, Wanted::Nice(priority)).await
    }

    /// Makes a thread of a process of the same user ordinary, with this nice value.
    #[zbus(name = "MakeThreadHighPriorityWithPID")]
    async fn make_thread_high_priority_with_pid(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
        process: u64,
        thread: u64,
        priority: i32,
    ) -> fdo::Result<()> {
        self.serve(&header, connection, Some(process), thread, Wanted::Nice(priority)).await
    }

    /// Demotes the threads that this process has served: refused, because it keeps no list.
    fn reset_known(&self) -> fdo::Result<()> {
        Err(not_here("ResetKnown"))
    }

    /// Demotes all real-time threads: refused, because other grants are none of this name.
    fn reset_all(&self) -> fdo::Result<()> {
        Err(not_here("ResetAll"))
    }

    /// Ends rtkit. This process ends by its service manager only: callers keep the name.
    fn exit(&self) {}

    /// Suspends rtkit's watchdog before the computer sleeps. No clock of Talea's budgets runs
    /// during that time, so there is nothing to suspend.
    fn suspend(&self) {}

    /// Resumes rtkit's watchdog.
    fn resume(&self) {}

    /// Property `RTTimeUSecMax`.
    #[zbus(property(emits_changed_signal = "const"), name = "RTTimeUSecMax")]
    fn rttime_usec_max(&self) -> i64 {
        self.service.options().rttime_max_us
    }

    /// Property `MaxRealtimePriority`.
    #[zbus(property(emits_changed_signal = "const"))]
    fn max_realtime_priority(&self) -> i32 {
        self.service.options().max_priority.into()
    }

    /// Property `MinNiceLevel`.
    #[zbus(property(emits_changed_signal = "const"))]
    fn min_nice_level(&self) -> i32 {
        self.service.options().min_nice.into()
    }
}
