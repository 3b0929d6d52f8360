//! Reads a file that another program may have written, with a bound on its length and on the time
//! without data.
//!
//! A path that a user names can be anything: a device without an end (`/dev/zero`), a sparse file
//! of a terabyte, a FIFO without a writer. None of them may exhaust the memory or block the caller
//! forever. A pipe with a writer is read to its end (`talea simulate <(generate)`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest time without data from a pipe, a terminal or a socket, in seconds.
pub const PATIENCE_S: i64 = 10;

/// Size of one read.
const CHUNK: usize = 1 << 16;

/// Returns the content of the file at `path`, or its first `max` + 1 bytes if it is longer than
/// `max`, so that the caller detects a longer file.
///
/// # Errors
/// The kernel's error; [`io::ErrorKind::TimedOut`] after [`PATIENCE_S`] without data.
pub fn read_bounded(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    read_within(path, max, PATIENCE_S)
}

/// Variant of [`read_bounded`] for text.
///
/// # Errors
/// Those of [`read_bounded`]; [`io::ErrorKind::FileTooLarge`] for a file longer than `max`;
/// [`io::ErrorKind::InvalidData`] for other bytes than UTF-8.
pub fn read_text_bounded(path: &Path, max: usize) -> io::Result<String> {
    let bytes = read_bounded(path, max)?;
    if bytes.len() > max {
        let why = format!("the file is longer than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8 text"))
}

fn read_within(path: &Path, max: usize, patience_s: i64) -> io::Result<Vec<u8>> {
    // Non-blocking: a FIFO without a writer opens at once. A terminal does not become the
    // controlling one.
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let mut content = Vec::new();
    while content.len() <= max {
        wait_for_data(&file, patience_s)?;
        let old = content.len();
        content.resize(old + CHUNK.min(max + 1 - old), 0);
        let result = file.read(&mut content[old..]);
        content.truncate(old + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(content)
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Waits until the file has data or has ended. Regular files are always ready.
fn wait_for_data(file: &File, patience_s: i64) -> io::Result<()> {
    let limit = Timespec { tv_sec: patience_s, tv_nsec: 0 };
    let mut polled = [PollFd::new(file, PollFlags::IN)];
    match poll(&mut polled, Some(&limit)) {
        Ok(0) => {
            let why = format!("no data for {patience_s} s; a pipe needs a program that writes it");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::path::PathBuf;

    /// A folder that its test removes.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("talea-read-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn attack_20_a_device_without_an_end_is_read_up_to_the_bound() {
        let found = read_bounded(Path::new("/dev/zero"), 300_000).expect("readable");
        assert_eq!(found.len(), 300_001);
        let error = read_text_bounded(Path::new("/dev/zero"), 10).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn attack_20_a_fifo_without_a_writer_times_out() {
        let folder = Folder::new("fifo");
        let fifo = folder.0.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("a FIFO");
        let error = read_within(&fifo, 10, 0).expect_err("no data");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_pipe_with_a_slow_writer_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let write = std::thread::spawn(move || {
            for _ in 0..3 {
                std::thread::sleep(std::time::Duration::from_millis(20));
                writer.write_all(&vec![b'x'; 40_000]).expect("written");
            }
        });
        let found = read_bounded(Path::new(&path), 1 << 20).expect("readable");
        write.join().expect("a writer");
        assert_eq!(found.len(), 120_000);
    }

    #[test]
    fn a_regular_file_of_exactly_the_bound_is_not_too_long() {
        let folder = Folder::new("text");
        let path = folder.0.join("text");
        std::fs::write(&path, "abcd").expect("written");
        assert_eq!(read_text_bounded(&path, 4).expect("short enough"), "abcd");
        assert!(read_text_bounded(&path, 3).is_err());
        assert!(read_bounded(&folder.0, 3).is_err(), "a folder is no file");
    }
}
