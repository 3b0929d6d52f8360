//! A file of a file system whose program does not answer (FUSE).
//!
//! Opening the file works; closing it blocks, and no signal interrupts that. Users get such files
//! from `fusermount` or in a user namespace. Here the superuser creates the file, in a mount
//! namespace that ends with this process.
//!
//! A process that inspects a blocked process may block, too, so a close takes at most [`PATIENCE`].
//! From then on this process must start no program, because the child would close its copies of the
//! file.
//!
//! Reference: `Documentation/filesystems/fuse`, `linux/fuse.h` (protocol 7.31).

use rustix::fs::OFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Number of the operation `FUSE_INIT`.
const INIT: u32 = 26;
/// Number of the operation `FUSE_FLUSH`, which a close sends.
const FLUSH: u32 = 25;
/// `ENOSYS`, on which the kernel does without the operation.
const NOT_THERE: i32 = -38;

/// Duration of a close.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns a copy of the only such file; the first call mounts it over the file at `path`. The
/// caller must never close the copy.
pub(crate) fn open(path: &str) -> io::Result<OwnedFd> {
    static FILE: OnceLock<(OwnedFd, ChildStdin)> = OnceLock::new();
    if let Some((file, _)) = FILE.get() {
        return file.try_clone();
    }
    // Another process answers: ours could not end while it waits for itself. That one ends with its
    // standard input, which the kernel closes before the file, and with it the file system.
    let mut server = Command::new(std::env::current_exe()?);
    server.args([ROLE, path]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server.spawn()?;
    let (Some(stdin), Some(mut stdout)) = (server.stdin.take(), server.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut ready = [0; READY.len()];
    stdout.read_exact(&mut ready)?;
    let file =
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    FILE.get_or_init(|| (file.into(), stdin)).0.try_clone()
}

/// First argument of the process that does not answer.
pub(crate) const ROLE: &str = "hang";
const READY: &[u8] = b"mounted\n";

/// Mounts the file system and answers its requests until standard input ends.
pub(crate) fn run(path: &str) -> io::Result<()> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    fcntl_setfd(&device, FdFlags::empty())?;
    let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", device.as_raw_fd());
    let mut mount = Command::new("mount");
    mount.args(["-i", "-t", "fuse", "-o", &options, "hung", path]).stderr(Stdio::null());
    if !mount.stdin(Stdio::null()).stdout(Stdio::null()).status()?.success() {
        return Err(io::Error::other("nothing can be mounted here"));
    }
    let device = Arc::new(device);
    std::thread::spawn(move || serve(&device));
    io::stdout().write_all(READY)?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Answers every request at once, except the request of a close.
fn serve(device: &Arc<File>) {
    let mut request = vec![0; 256 * 1024];
    while let Ok(length) = (&**device).read(&mut request) {
        let word =
            |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        // Length, operation, and the number that the answer must carry.
        let (operation, unique) = (word(4), &request[8..16]);
        if length < 40 {
            continue;
        }
        let body: Vec<u8> = match operation {
            // Version 7.31, and nothing of what a file system could do: 64 bytes.
            INIT => [7u32, 31].into_iter().flat_map(u32::to_ne_bytes).chain([0; 56]).collect(),
            _ => Vec::new(),
        };
        let error = if matches!(operation, INIT | FLUSH) { 0 } else { NOT_THERE };
        let mut answer = (16 + body.len() as u32).to_ne_bytes().to_vec();
        answer.extend(error.to_ne_bytes());
        answer.extend(unique);
        answer.extend(body);
        let device = device.clone();
        let say = move || (&*device).write(&answer);
        if operation == FLUSH {
            std::thread::spawn(move || {
                std::thread::sleep(PATIENCE);
                let _ = say();
            });
        } else if say().is_err() {
            return;
        }
    }
}
