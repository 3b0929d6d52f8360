//! Clients of one user that connect, send a file whose close blocks, and leave, again and again.
//!
//! The superuser opens the file (module `unresponsive_fs`); the connections have the user's rights.

use crate::unresponsive_fs;
use crate::{bytes, number};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use talea_os::seqpacket;

/// Maximum time for a connect: a connection that is not accepted is tried again.
const PATIENCE: Duration = Duration::from_millis(100);

/// Connects to a socket as a user until `stop`, and sends each time this message with the file.
/// Returns the numbers of connections and of failures.
pub(crate) fn run(words: &[&str], stop: &AtomicBool, ready: impl FnOnce()) -> io::Result<String> {
    let [socket, uid, hex, path] = *words else { return Err(io::ErrorKind::InvalidInput.into()) };
    // A close of the file would block.
    let file = ManuallyDrop::new([unresponsive_fs::open(path)?]);
    let (message, uid) = (bytes(hex)?, Uid::from_raw(number(uid)? as u32));
    set_thread_res_uid(uid, uid, uid)?;
    ready();
    let (mut made, mut failed) = (0u64, 0u64);
    while !stop.load(Ordering::Relaxed) {
        let sent = seqpacket::connect(Path::new(socket), PATIENCE)
            .and_then(|connection| crate::fd_passing::send(&connection, &message, &*file));
        if sent.is_ok() {
            made += 1;
        } else {
            failed += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(format!("made={made} failed={failed}"))
}
