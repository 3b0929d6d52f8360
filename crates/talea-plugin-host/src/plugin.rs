//! A loaded plugin: the boundary between its C code and the Rust code of the host.
//!
//! The host trusts no value that the plugin returns; the daemon checks it. What the plugin does to
//! this process affects this process only.

use crate::abi;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CString, c_void};
use std::fmt;
use talea_proto::host::{HostRequest, HostResponse, HostSetup, IGNORE_ADMISSION, PluginFunction};

/// Initialised plugin.
pub(crate) struct Plugin {
    table: abi::Plugin,
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
    /// The entry does not support the host's version of the interface.
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
                    "its talea_plugin_entry does not support version {} of the interface",
                    abi::ABI
                )
            }
            LoadError::Shape { size, abi } => write!(
                f,
                "its struct talea_plugin has size {size} and version {abi}; expected at least {} and {}",
                size_of::<abi::Plugin>(),
                abi::ABI
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
        // SAFETY: as above.
        let returned = unsafe { entry(abi::ABI) };
        let table = read_table(returned)?;
        let setup = abi::Setup {
            size: size_of::<abi::Setup>() as u32,
            priority_low: setup.priority_low,
            priority_high: setup.priority_high,
            reserved: 0,
            cpus: setup.cpus,
            name: name.as_ptr(),
            argument: argument.as_ptr(),
        };
        let mut this = std::ptr::null_mut();
        let init = table.init.ok_or(LoadError::Missing("init"))?;
        // SAFETY: both pointers are valid for the call; the strings live until its end.
        let code = unsafe { init(&raw const setup, &raw mut this) };
        if code != 0 {
            return Err(LoadError::Init(code));
        }
        Ok(Plugin { table, this, _library: library })
    }

    /// Calls the function that the request names; `None` if there is no such function.
    pub(crate) fn ask(&mut self, question: &HostRequest) -> Option<HostResponse> {
        let call = PluginFunction::from_number(question.call)?;
        let task = abi::Task {
            size: size_of::<abi::Task>() as u32,
            flags: if question.flags & IGNORE_ADMISSION != 0 { abi::IGNORE_ADMISSION } else { 0 },
            period_ns: question.period_ns,
            runtime_ns: question.runtime_ns,
            desired_ns: question.desired_ns,
            deadline_ns: question.deadline_ns,
            priority: question.priority,
            reserved: 0,
            cpus: question.cpus,
        };
        let mut place = abi::Place {
            size: size_of::<abi::Place>() as u32,
            cpu: question.place_cpu,
            priority: question.place_priority,
            reserved: 0,
        };
        let (this, table, id) = (self.this, &self.table, question.spec);
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
            }
        };
        let (cpu, priority) =
            if verdict == abi::NO { (-1, 0) } else { (place.cpu, place.priority) };
        Some(HostResponse { ticket: question.ticket, verdict, cpu, priority, reserved: 0 })
    }

    /// Calls the plugin's `fini`.
    pub(crate) fn finish(self) {
        if let Some(fini) = self.table.fini {
            // SAFETY: `this` is what init stored; nothing is called after this.
            unsafe { fini(self.this) };
        }
    }
}

/// Copies the plugin's table after checking that it is complete.
fn read_table(returned: *const abi::Plugin) -> Result<abi::Plugin, LoadError> {
    if returned.is_null() {
        return Err(LoadError::Version);
    }
    // SAFETY: not null; the header guarantees that at least `size` and `abi` are there, always at
    // this offset.
    let (size, version) = unsafe { ((*returned).size, (*returned).abi) };
    if (size as usize) < size_of::<abi::Plugin>() || version != abi::ABI {
        return Err(LoadError::Shape { size, abi: version });
    }
    // SAFETY: the plugin's size field covers all bytes that are read.
    let table = unsafe { *returned };
    let missing = [
        ("init", table.init.is_none()),
        ("accept", table.accept.is_none()),
        ("change", table.change.is_none()),
        ("schedule", table.schedule.is_none()),
        ("release", table.release.is_none()),
        ("attach", table.attach.is_none()),
        ("detach", table.detach.is_none()),
    ];
    match missing.into_iter().find(|&(_, missing)| missing) {
        Some((name, _)) => Err(LoadError::Missing(name)),
        None => Ok(table),
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
