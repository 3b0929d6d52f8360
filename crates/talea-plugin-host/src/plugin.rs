//! A loaded plugin: the boundary between its C code and the Rust code of the host.
//!
//! The host trusts no value that the plugin returns; the daemon checks it. What the plugin does to
//! this process affects this process only.

use crate::abi;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CString, c_void};
use std::fmt;
use talea_core::mutate;
use talea_proto::host::{
    HostRank, HostRequest, HostResponse, HostSetup, IGNORE_ADMISSION, PluginFunction, RANKS_MAX,
};

/// Initialised plugin.
pub(crate) struct Plugin {
    table: abi::Plugin,
    sizes: abi::Sizes,
    this: *mut c_void,
    // Never unloaded: `table` points into it, and running the plugin's destructors has no benefit.
    _library: std::mem::ManuallyDrop<Library>,
}

/// Reason why a plugin cannot be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The dynamic loader could not open the module.
    Open(libloading::Error),
    /// The module exports no `talea_plugin_entry`.
    Entry(libloading::Error),
    /// The entry supports no version of the interface that the host supports.
    Version,
    /// The structure is too small or of another version.
    Shape {
        /// Size field of the structure.
        size: u32,
        /// Version field of the structure.
        abi: u32,
    },
    /// The structure lacks this function.
    Missing(&'static str),
    /// The plugin's `init` returned this number instead of zero.
    Init(i32),
    /// A string of the setup contains a zero byte.
    Text,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Open(error) => write!(f, "{error}"),
            LoadError::Entry(error) => write!(f, "it exports no talea_plugin_entry: {error}"),
            LoadError::Version => {
                write!(
                    f,
                    "its talea_plugin_entry does not support versions {} to {} of the interface",
                    abi::ABI_OLDEST,
                    abi::ABI
                )
            }
            LoadError::Shape { size, abi } => write!(
                f,
                "its struct talea_plugin has size {size} and version {abi}; version {} has at least {} bytes",
                abi::ABI,
                size_of::<abi::Plugin>()
            ),
            LoadError::Missing(name) => write!(f, "its struct talea_plugin has no `{name}`"),
            LoadError::Init(code) => write!(f, "its init returned {code} instead of 0"),
            LoadError::Text => f.write_str("the setup contains a zero byte"),
        }
    }
}

impl Plugin {
    /// Loads `module` and calls its init.
    pub(crate) fn load(
        setup: &HostSetup,
        module: &[u8],
        argument: &[u8],
    ) -> Result<Plugin, LoadError> {
        let module = CString::new(module).map_err(|_| LoadError::Text)?;
        let argument = CString::new(argument).map_err(|_| LoadError::Text)?;
        let name_len =
            setup.name.iter().position(|&byte| byte == 0).unwrap_or(setup.name.len() - 1);
        let name = CString::new(&setup.name[..name_len]).map_err(|_| LoadError::Text)?;
        let path = std::path::Path::new(std::ffi::OsStr::from_encoded(&module));
        // SAFETY: runs the object's constructors, which is what this process is for; it has no
        // rights left.
        let library =
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(LoadError::Open)?;
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: the header declares the symbol with this signature; a plugin that lies hurts only
        // itself.
        let entry = unsafe { library.get::<abi::Entry>(b"talea_plugin_entry\0") }
            .map_err(LoadError::Entry)?;
        let (table, sizes) = read_newest_table(*entry)?;
        let setup = abi::Setup {
            size: sizes.setup,
            priority_low: setup.priority_low,
            priority_high: setup.priority_high,
            reserved: 0,
            cpus: setup.cpus,
            name: name.as_ptr(),
            argument: argument.as_ptr(),
            class: setup.class,
            reserved2: 0,
            deadline_share: setup.deadline_share,
            period_min_ns: setup.period_min_ns,
            period_max_ns: setup.period_max_ns,
        };
        let mut this = std::ptr::null_mut();
        let init = table.v1.init.ok_or(LoadError::Missing("init"))?;
        // SAFETY: both pointers are valid for the call; the strings live until its end.
        let code = unsafe { init(&raw const setup, &raw mut this) };
        if code != 0 {
            return Err(LoadError::Init(code));
        }
        Ok(Plugin { table, sizes, this, _library: library })
    }

    /// Calls the function that the request names, and after a notification `rank`. Stores the new
    /// levels in `ranks`. Returns `None` if there is no such function.
    pub(crate) fn ask(
        &mut self,
        question: &HostRequest,
        ranks: &mut Vec<HostRank>,
    ) -> Option<HostResponse> {
        let call = PluginFunction::from_number(question.call)?;
        let task = abi::Task {
            size: self.sizes.task,
            flags: if question.flags & IGNORE_ADMISSION != 0 { abi::IGNORE_ADMISSION } else { 0 },
            period_ns: question.period_ns,
            runtime_ns: question.runtime_ns,
            desired_ns: question.desired_ns,
            deadline_ns: question.deadline_ns,
            priority: question.priority,
            reserved: 0,
            cpus: question.cpus,
            preferred: question.preferred,
        };
        let is_placement = call == PluginFunction::Schedule;
        let mut place = abi::Place {
            size: self.sizes.place,
            cpu: question.place.cpu,
            priority: question.place.priority,
            reserved: 0,
            runtime_ns: question.place.runtime_ns,
            deadline_ns: question.place.deadline_ns,
            period_ns: question.place.period_ns,
            cpus: if is_placement { question.cpus } else { [0; 16] },
            reason: [0; abi::REASON],
        };
        let (this, table, id) = (self.this, &self.table.v1, question.spec);
        const CHECKED: &str = "read_table has refused a plugin without it";
        // SAFETY: every pointer is valid for the call and of the type that the header declares; the
        // functions are called from this one thread, after init.
        let verdict = unsafe {
            match call {
                PluginFunction::Accept => {
                    table.accept.expect(CHECKED)(this, &raw const task, &raw mut place)
                }
                PluginFunction::Change => {
                    table.change.expect(CHECKED)(this, id, &raw const task, &raw mut place)
                }
                PluginFunction::Schedule => {
                    table.schedule.expect(CHECKED)(this, id, &raw const task, &raw const place);
                    0
                }
                PluginFunction::Release => {
                    table.release.expect(CHECKED)(this, id);
                    0
                }
                PluginFunction::Attach => {
                    table.attach.expect(CHECKED)(this, id);
                    0
                }
                PluginFunction::Detach => {
                    table.detach.expect(CHECKED)(this, id);
                    0
                }
                PluginFunction::Rank => 0,
            }
        };
        let nothing = HostResponse { ticket: question.ticket, verdict, ..HostResponse::NOTHING };
        ranks.clear();
        Some(match call {
            PluginFunction::Accept | PluginFunction::Change => self.answer(&nothing, &place),
            _ => HostResponse { ranks: self.rank(ranks), ..nothing },
        })
    }

    /// Returns the answer to a question. Only a rejection has a reason, and only another verdict
    /// has a placement. A plugin of version 1 does not have the fields of version 2.
    fn answer(&self, nothing: &HostResponse, place: &abi::Place) -> HostResponse {
        let is_new = self.sizes != abi::Sizes::V1;
        if nothing.verdict == abi::NO {
            let reason = if is_new { place.reason } else { [0; abi::REASON] };
            return HostResponse { reason, ..*nothing };
        }
        let placed = HostResponse { cpu: place.cpu, priority: place.priority, ..*nothing };
        if !is_new {
            return placed;
        }
        HostResponse {
            runtime_ns: place.runtime_ns,
            deadline_ns: place.deadline_ns,
            period_ns: place.period_ns,
            cpus: place.cpus,
            ..placed
        }
    }

    /// Calls the plugin's `rank`, if it has one, and returns the number that `rank` returns. The
    /// daemon refuses a number that differs from the length of `ranks`.
    fn rank(&self, ranks: &mut Vec<HostRank>) -> u32 {
        let Some(rank) = self.table.rank else { return 0 };
        let mut room = [abi::Rank::default(); RANKS_MAX];
        // SAFETY: `room` has RANKS_MAX elements and is valid for the call; called after init.
        let count = unsafe { rank(self.this, room.as_mut_ptr(), RANKS_MAX as i32) };
        let stored = usize::try_from(count).map_or(0, |count| count.min(RANKS_MAX));
        let message =
            |rank: &abi::Rank| HostRank { spec: rank.id, priority: rank.priority, reserved: 0 };
        ranks.extend(room[..stored].iter().map(message));
        count as u32
    }

    /// Calls the plugin's `fini`.
    pub(crate) fn finish(self) {
        if let Some(fini) = self.table.v1.fini {
            // SAFETY: `this` is what init stored; nothing is called after this.
            unsafe { fini(self.this) };
        }
    }
}

/// Returns the table of the newest version that the plugin supports, with the sizes of its
/// structures.
fn read_newest_table(entry: abi::Entry) -> Result<(abi::Plugin, abi::Sizes), LoadError> {
    let oldest = mutate!("plugin-abi-one", abi::ABI_OLDEST, abi::ABI);
    for version in (oldest..=abi::ABI).rev() {
        // SAFETY: the header declares the symbol with this signature; a plugin that lies hurts only
        // itself.
        let returned = unsafe { entry(version) };
        if !returned.is_null() {
            return read_table(returned);
        }
    }
    Err(LoadError::Version)
}

/// Copies the plugin's table after checking that it is complete.
fn read_table(returned: *const abi::PluginV1) -> Result<(abi::Plugin, abi::Sizes), LoadError> {
    // SAFETY: not null; the header guarantees that at least `size` and `abi` are there, always at
    // this offset.
    let (size, version) = unsafe { ((*returned).size, (*returned).abi) };
    let sizes = abi::Sizes::of(version).filter(|sizes| size >= sizes.plugin);
    let Some(sizes) = sizes else { return Err(LoadError::Shape { size, abi: version }) };
    let table = if sizes == abi::Sizes::V1 {
        // SAFETY: the plugin's size field covers all bytes that are read.
        abi::Plugin { v1: unsafe { *returned }, rank: None }
    } else {
        // SAFETY: as above; a table of version 2 begins with that of version 1.
        unsafe { *returned.cast::<abi::Plugin>() }
    };
    let v1 = &table.v1;
    let missing = [
        ("init", v1.init.is_none()),
        ("accept", v1.accept.is_none()),
        ("change", v1.change.is_none()),
        ("schedule", v1.schedule.is_none()),
        ("release", v1.release.is_none()),
        ("attach", v1.attach.is_none()),
        ("detach", v1.detach.is_none()),
    ];
    match missing.into_iter().find(|&(_, missing)| missing) {
        Some((name, _)) => Err(LoadError::Missing(name)),
        None => Ok((table, sizes)),
    }
}

/// Conversion of a path from its bytes.
trait FromEncoded {
    fn from_encoded(text: &CString) -> &Self;
}

impl FromEncoded for std::ffi::OsStr {
    fn from_encoded(text: &CString) -> &std::ffi::OsStr {
        std::os::unix::ffi::OsStrExt::from_bytes(text.as_bytes())
    }
}
