//! Store of generations and of the record, below the state directory.
//!
//! | file | content | written |
//! | --- | --- | --- |
//! | `lock` | number of the process that owns the directory | at the start |
//! | `generations/NUMBER` | a generation with the texts of its system file | once, never changed |
//! | `record` | the record | at each change, by a rename |
//!
//! Invariants. A written file is durable before its name exists: temporary name, `fsync`, rename,
//! `fsync` of the directory. The generations that a record names exist before the record.
//!
//! If no generation is in force, there is none in the store.

use crate::failure::Failure;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_deploy::text::{StoredGeneration, StoredRecord};
use talea_deploy::{Generation, Record};
use talea_os::file_lock::{self, Lock};
use talea_os::files::check_trusted_directory;

/// Maximum size of a file in bytes.
const MAX_SIZE: u64 = 32 << 20;
/// Time for which a start waits for the lock: a child that another driver was starting when it was
/// killed holds it until its exec.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Store of one driver.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// Boot of the computer.
    boot: String,
    _lock: File,
}

impl Store {
    /// Opens the store in `directory`, and creates it if it is missing.
    pub(crate) fn open(directory: &Path, boot: &str) -> Result<Store, Failure> {
        create_directory(directory)?;
        let lock = lock(&directory.join("lock"))?;
        create_directory(&directory.join("generations"))?;
        Ok(Store { directory: directory.to_owned(), boot: boot.to_owned(), _lock: lock })
    }

    /// Reads the record; the default record if there is none.
    pub(crate) fn record(&self) -> Result<Record, Failure> {
        let path = self.directory.join("record");
        let Some(text) = read(&path)? else { return Ok(Record::default()) };
        let remedy = "restore it from a backup, or remove it: then no generation is in force, and \
                      the programs are stopped";
        let refused = |error: talea_deploy::text::TextError| {
            Failure::new(format!("{}: {error}", path.display()), remedy)
        };
        let stored = StoredRecord::from_text(&text).map_err(refused)?;
        let (in_force, before) = stored.generations();
        let generation = |number: Option<u64>| match number {
            Some(number) => self.generation(number).map(|stored| Some(stored.generation)),
            None => Ok(None),
        };
        stored.into_record(generation(in_force)?, generation(before)?, &self.boot).map_err(refused)
    }

    /// Reads a generation.
    pub(crate) fn generation(&self, number: u64) -> Result<StoredGeneration, Failure> {
        let path = self.path(number);
        let remedy = "restore it from a backup, or remove it and the record: then no generation is \
                      in force, and the programs are stopped";
        let refused = |why: String| Failure::new(format!("{}: {why}", path.display()), remedy);
        let text = read(&path)?.ok_or_else(|| {
            Failure::new(
                format!("there is no generation {number}: {} is missing", path.display()),
                "restore it from a backup, or name another one: talea deploy status has the one before",
            )
        })?;
        let stored = StoredGeneration::from_text(&text).map_err(|why| refused(why.to_string()))?;
        if stored.generation.number() != number {
            return Err(refused("its name is not its number".to_owned()));
        }
        Ok(stored)
    }

    /// Writes a new generation.
    pub(crate) fn add(&self, stored: &StoredGeneration) -> Result<(), Failure> {
        write(&self.path(stored.generation.number()), &stored.to_text())
    }

    /// Removes a generation that was not put in force.
    pub(crate) fn discard(&self, number: u64) {
        // A file that stays costs only its number.
        drop(std::fs::remove_file(self.path(number)));
    }

    /// Returns the highest number of a file of a generation.
    pub(crate) fn last_number(&self) -> u64 {
        self.numbers().max().unwrap_or(0)
    }

    /// Writes the record. It is durable afterwards.
    pub(crate) fn store(&self, record: &Record) -> Result<(), Failure> {
        let text = StoredRecord::new(record, &self.boot).to_text();
        write(&self.directory.join("record"), &text)?;
        if record.in_force.is_none() {
            self.numbers().for_each(|number| self.discard(number));
        }
        Ok(())
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        let entries = std::fs::read_dir(self.generations()).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    fn generations(&self) -> PathBuf {
        self.directory.join("generations")
    }

    fn path(&self, number: u64) -> PathBuf {
        self.generations().join(number.to_string())
    }
}

/// Returns a generation with another number.
pub(crate) fn numbered(stored: StoredGeneration, number: u64) -> StoredGeneration {
    let generation = Generation::clone(&stored.generation).with_number(number);
    StoredGeneration { generation: Arc::new(generation), ..stored }
}

/// Creates a directory that only this user may enter, if it is missing.
fn create_directory(path: &Path) -> Result<(), Failure> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(
                format!("{}: {error}", path.display()),
                "create the directory above it, or name another one with --state",
            ));
        }
        _ => {}
    }
    if let Err(untrusted) = check_trusted_directory(path) {
        return Err(Failure::new(untrusted.to_string(), "only root may change the state"));
    }
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(path, mode)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display()), "look at its owner"))
}

/// Locks the file of the owner, and writes the number of this process into it.
fn lock(path: &Path) -> Result<File, Failure> {
    let os = |error: io::Error| {
        Failure::new(format!("{}: {error}", path.display()), "look at the file system")
    };
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        let file = file_lock::open(path).map_err(os)?;
        match file_lock::lock(path, file).map_err(os)? {
            Lock::Taken(mut file) | Lock::Replaced(mut file) => {
                file.set_len(0).map_err(os)?;
                writeln!(file, "{}", std::process::id()).map_err(os)?;
                return Ok(file);
            }
            Lock::Held(mut file) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).map_err(os)?;
                let pid = holder.trim();
                if Path::new("/proc").join(pid).exists() || Instant::now() > end {
                    return Err(Failure::new(
                        format!("process {pid} has the lock {}", path.display()),
                        "only one talea-deployd keeps a deployment; stop that process first",
                    ));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Reads a file of this user that no other user can change. Returns `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Failure> {
    let refused = |why: String, remedy: &str| {
        Err(Failure::new(format!("{}: {why}", path.display()), remedy.to_owned()))
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let options = File::options().read(true).custom_flags(flags.bits() as i32).clone();
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return refused(error.to_string(), "look at the file"),
    };
    let meta = match file.metadata() {
        Ok(meta) => meta,
        Err(error) => return refused(error.to_string(), "look at the file"),
    };
    let own = rustix::process::geteuid().as_raw();
    let is_foreign = !meta.is_file() || meta.uid() != own || meta.mode() & 0o022 != 0;
    if mutate!("deployd-foreign-file", is_foreign, false) {
        let why =
            format!("it belongs to user {}, with mode {:04o}", meta.uid(), meta.mode() & 0o7777);
        return refused(
            why,
            "find out who wrote it; restore it, owned by root with mode 0600, or remove it",
        );
    }
    if meta.len() > MAX_SIZE {
        return refused(format!("it has more than {MAX_SIZE} bytes"), "restore or remove it");
    }
    let mut text = String::new();
    match file.take(MAX_SIZE).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(error) => refused(error.to_string(), "restore or remove it"),
    }
}

/// Writes a file that only this user may read, and makes it durable.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let os = |error: io::Error| {
        let remedy = "make space or mend the file system; the programs run on meanwhile";
        Failure::new(format!("{} cannot be written: {error}", path.display()), remedy)
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || -> io::Result<()> {
        let mut file = File::from(rustix::fs::open(
            &beside,
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().map_err(os)
}
