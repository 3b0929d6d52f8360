//! Events of the kernel about processes that start a program or change their user ids.
//!
//! Source: the process events connector (`Documentation/driver-api/connector.rst`,
//! `linux/cn_proc.h`). A socket of `NETLINK_CONNECTOR` receives them; nothing polls. A socket
//! filter drops the events of all processes but the wanted ones, so those wake no reader.
//!
//! Where there are none: in a PID, user or network namespace other than the first, on kernels
//! without `CONFIG_PROC_EVENTS`, and before Linux 6.6 without `CAP_NET_ADMIN`.
//! [`ProcEvents::open`] waits for no reply: the kernel acknowledges a subscription within the call
//! that makes it, so a missing acknowledgement is an answer, too.
//!
//! Layout of a message: `struct nlmsghdr` (16 bytes), `struct cn_msg` (20), then
//! `struct proc_event`: the kind, the CPU, the time, and from `OF_EVENT` + 16 the thread and its
//! process.

use crate::Tid;
use crate::sys::{check, errno, is};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Group of the process events, `CN_IDX_PROC`; also the identifiers of their messages.
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
/// Subscription and its end, `PROC_CN_MCAST_LISTEN` and `PROC_CN_MCAST_IGNORE`.
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;
/// Kinds of events: an acknowledgement, `PROC_EVENT_EXEC` and `PROC_EVENT_UID`.
const NONE: u32 = 0;
const EXEC: u32 = 2;
const UID: u32 = 4;

const HEADER: usize = 16;
/// Position of `struct proc_event` in a message.
const OF_EVENT: usize = HEADER + 20;
/// Position of the process of an event; of an acknowledgement's error, 4 bytes earlier.
const OF_PROCESS: usize = OF_EVENT + 20;
/// Length of the part of a message that is read.
const MESSAGE: usize = OF_PROCESS + 4;

/// Maximum number of processes that the filter tells apart. With more, the events of all processes
/// are received.
pub const MAX_FILTERED: usize = 1_000;

/// Result of [`ProcEvents::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcEvent {
    /// A thread of this process has started a program or changed its user ids.
    Changed(Tid),
    /// Events were lost: any process may have changed.
    Lost,
}

/// Socket that receives the events of some processes. At first it receives none.
#[derive(Debug)]
pub struct ProcEvents(OwnedFd);

impl ProcEvents {
    /// Subscribes. `None` if the kernel sends no events to this process.
    pub fn open() -> io::Result<Option<ProcEvents>> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes three integers.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR) });
        let fd = match fd {
            Ok(fd) => fd,
            // The family or the protocol does not exist, or a sandbox forbids it.
            Err(error)
                if [libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT, libc::EPERM, libc::EACCES]
                    .iter()
                    .any(|&number| is(&error, number)) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // SAFETY: the call has just made this descriptor for us.
        let events = ProcEvents(unsafe { OwnedFd::from_raw_fd(fd) });
        // Before the group is joined: nothing but acknowledgements is ever queued.
        events.set_filter(&[load(OF_EVENT), jump(NONE, 0, 1), accept(), reject()])?;
        match events.join() {
            Ok(()) => {}
            Err(error) if is(&error, libc::EPERM) => return Ok(None),
            Err(error) => return Err(error),
        }
        // With a list of kinds the kernel does not even build other events (Linux 6.6). Older
        // kernels ignore the longer form.
        let kinds = EXEC | UID;
        let long = [LISTEN.to_ne_bytes(), kinds.to_ne_bytes()].concat();
        for body in [&long[..], &LISTEN.to_ne_bytes()] {
            match events.send(body) {
                Ok(()) => {}
                // The connector listens in the first network namespace only.
                Err(error) if is(&error, libc::ECONNREFUSED) => return Ok(None),
                Err(error) => return Err(error),
            }
            match events.acknowledgement()? {
                Some(0) => return Ok(Some(events)),
                Some(_) => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    /// Receives the events of these processes only from now on.
    pub fn set_processes(&self, processes: &[Tid]) -> io::Result<()> {
        self.set_filter(&program(processes))
    }

    /// Returns the next event; `None` if there is none at the moment.
    pub fn next(&self) -> io::Result<Option<ProcEvent>> {
        loop {
            let mut message = [0; MESSAGE];
            match self.receive(&mut message) {
                Ok(true) => {}
                // Not from the kernel, or cut.
                Ok(false) => continue,
                Err(error) if is(&error, libc::EAGAIN) => return Ok(None),
                Err(error) if is(&error, libc::EINTR) => continue,
                Err(error) if is(&error, libc::ENOBUFS) => return Ok(Some(ProcEvent::Lost)),
                Err(error) => return Err(error),
            }
            let is_change = [EXEC, UID].contains(&number(&message, OF_EVENT));
            let process = Tid::new(number(&message, OF_PROCESS) as i32);
            if let Some(process) = process.filter(|_| is_change) {
                return Ok(Some(ProcEvent::Changed(process)));
            }
        }
    }

    /// Returns the error number of the acknowledgement that has arrived, if one has.
    fn acknowledgement(&self) -> io::Result<Option<u32>> {
        loop {
            let mut message = [0; MESSAGE];
            match self.receive(&mut message) {
                Ok(true) if number(&message, OF_EVENT) == NONE => {
                    return Ok(Some(number(&message, OF_PROCESS - 4)));
                }
                Ok(_) => {}
                Err(error) if is(&error, libc::EAGAIN) => return Ok(None),
                Err(error) if is(&error, libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn join(&self) -> io::Result<()> {
        // SAFETY: all bytes of the structure may be zero.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = CN_IDX_PROC;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is a local variable of the given length.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(())
    }

    /// Sends `body` to the connector.
    fn send(&self, body: &[u8]) -> io::Result<()> {
        let mut message = Vec::with_capacity(OF_EVENT + body.len());
        message.extend(((OF_EVENT + body.len()) as u32).to_ne_bytes());
        message.extend((libc::NLMSG_DONE as u16).to_ne_bytes());
        // Flags, number and sender.
        message.extend([0; 10]);
        message.extend(CN_IDX_PROC.to_ne_bytes());
        message.extend(CN_VAL_PROC.to_ne_bytes());
        // Number, acknowledged number.
        message.extend([0; 8]);
        message.extend((body.len() as u16).to_ne_bytes());
        message.extend([0; 2]);
        message.extend(body);
        rustix::net::send(&self.0, &message, rustix::net::SendFlags::empty())?;
        Ok(())
    }

    /// Receives one message. `false` if it is not a whole event of the kernel.
    fn receive(&self, message: &mut [u8; MESSAGE]) -> io::Result<bool> {
        // SAFETY: all bytes of the structure may be zero.
        let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: buffer and address are local variables of the given lengths. The rest of a longer
        // message is dropped.
        let received = unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                message.as_mut_ptr().cast(),
                MESSAGE,
                0,
                (&raw mut from).cast(),
                &raw mut length,
            )
        };
        match usize::try_from(received) {
            Ok(received) => Ok(received == MESSAGE && from.nl_pid == 0),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    fn set_filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let length = u16::try_from(program.len()).map_err(|_| errno(libc::E2BIG))?;
        let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
        // SAFETY: the kernel copies the program, which lives until the call returns, and does not
        // write to it.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }
}

impl Drop for ProcEvents {
    fn drop(&mut self) {
        // Before Linux 6.6 the kernel would count the listener forever.
        let _ = self.send(&IGNORE.to_ne_bytes());
    }
}

/// Readable when an event has arrived.
impl AsFd for ProcEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn number(message: &[u8; MESSAGE], at: usize) -> u32 {
    u32::from_ne_bytes(message[at..at + 4].try_into().expect("four bytes"))
}

/// Returns the filter that accepts EXEC and UID events of `processes`, or of all processes if there
/// are too many.
fn program(processes: &[Tid]) -> Vec<libc::sock_filter> {
    let mut program = vec![load(OF_EVENT), jump(EXEC, 2, 0), jump(UID, 1, 0), reject()];
    if processes.len() > MAX_FILTERED {
        program.push(accept());
        return program;
    }
    program.push(load(OF_PROCESS));
    for process in processes {
        program.extend([jump(process.as_raw() as u32, 0, 1), accept()]);
    }
    program.push(reject());
    program
}

const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Loads four bytes of the message, as a number in network byte order.
const fn load(at: usize) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32, 0, 0)
}

/// Skips `jt` instructions if the loaded number is `value`, else `jf`. The message has host byte
/// order.
const fn jump(value: u32, jt: u8, jf: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value.to_be(), jt, jf)
}

const fn accept() -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, u32::MAX, 0, 0)
}

const fn reject() -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Interprets the few instructions of [`program`].
    fn accepts(program: &[libc::sock_filter], message: &[u8]) -> bool {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let bytes = &message[k as usize..k as usize + 4];
                    loaded = u32::from_be_bytes(bytes.try_into().expect("four bytes"));
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if loaded == k { jt } else { jf });
                }
                _ => return k != 0,
            }
        }
    }

    fn message(kind: u32, process: u32) -> [u8; MESSAGE] {
        let mut message = [0; MESSAGE];
        message[OF_EVENT..OF_EVENT + 4].copy_from_slice(&kind.to_ne_bytes());
        message[OF_PROCESS..].copy_from_slice(&process.to_ne_bytes());
        message
    }

    #[test]
    fn the_filter_accepts_changes_of_the_given_processes_only() {
        let tids = |numbers: &[i32]| -> Vec<Tid> {
            numbers.iter().filter_map(|&number| Tid::new(number)).collect()
        };
        let many: Vec<i32> = (1..=MAX_FILTERED as i32).collect();
        for wanted in [&[][..], &[7], &[7, 70_000, 9], &many] {
            let filter = program(&tids(wanted));
            assert!(filter.len() <= 4_096, "the kernel's limit");
            for process in [1, 7, 9, 70_000, 70_001, 4_000_000] {
                for (kind, is_change) in [(EXEC, true), (UID, true), (NONE, false), (1, false)] {
                    let expected = is_change && wanted.contains(&process);
                    let found = accepts(&filter, &message(kind, process as u32));
                    assert_eq!(found, expected, "{process} {kind} of {}", wanted.len());
                }
            }
        }
        let all: Vec<i32> = (1..=MAX_FILTERED as i32 + 1).collect();
        let filter = program(&tids(&all));
        assert!(accepts(&filter, &message(EXEC, 4_000_000)));
        assert!(!accepts(&filter, &message(0x8000_0000, 5)));
    }

    #[test]
    fn a_program_start_of_a_given_process_is_reported_and_no_other() {
        let Some(events) = ProcEvents::open().expect("a socket") else {
            eprintln!("skipped: needs the process events connector");
            return;
        };
        assert_eq!(events.next().expect("an answer"), None);
        let mut child = Command::new("sh");
        child.args(["-c", "read x; exec sleep 60"]);
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().expect("sh");
        let process = Tid::new(child.id() as i32).expect("a process");
        events.set_processes(&[process]).expect("a filter");
        // Another one's start is not received.
        Command::new("true").status().expect("true");
        // Whether the first `exec` of the child came before the filter is not known.
        while let Some(event) = events.next().expect("an answer") {
            assert_eq!(event, ProcEvent::Changed(process));
        }
        drop(child.stdin.take());
        let end = Instant::now() + Duration::from_secs(10);
        let event = loop {
            match events.next().expect("an answer") {
                Some(event) => break event,
                None => assert!(Instant::now() < end, "no event"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(event, ProcEvent::Changed(process));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}
