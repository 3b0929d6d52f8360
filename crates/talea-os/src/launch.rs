//! Starting a program that stands still in its group until it is let go.
//!
//! Model: between fork and exec the child takes the place that is meant for it (CPU, priority),
//! enters its group, which is frozen, and so stops there. It is the program when the group is
//! thawed for the first time: nothing of it, not even its beginning, is outside of what is metered.
//! Whoever starts it waits until then, so this is for a thread of its own.
//!
//! It dies with the thread that starts it: the kernel is asked for that first, and the child ends
//! by itself if its parent was gone before.
//!
//! The last net: if all who could end it are gone, too (the run, its keeper), a program at a
//! real-time priority would have its CPU for ever. So each of its threads may use only so much CPU
//! time at a stretch as the whole run could give it and some seconds (`RLIMIT_RTTIME`); then the
//! kernel kills the process. That is counted in ticks, from the last time that the thread slept;
//! whoever a program creates inherits the limit, and one with rights may lift it.
//!
//! Who is scheduled by somebody else must not schedule itself: the program, and whoever it creates,
//! has no CAP_SYS_NICE, also not as root, and may have no real-time priority but the one that it is
//! given (`RLIMIT_RTPRIO`). The kernel refuses it a higher priority and another real-time policy;
//! to step back from its own, and to go to another CPU, everybody may, and one with
//! CAP_SYS_RESOURCE can lift the limit.
//!
//! Everything between fork and exec is async-signal-safe: system calls on data prepared before.

use crate::Tid;
use crate::dropcaps::Capability;
use crate::groups::Group;
use crate::sys::check;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use talea_core::CpuSet;

/// A program that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    file: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// `arguments`, of which the first names the program: a path, or without a slash a file in one
    /// of the folders of `PATH`.
    ///
    /// # Errors
    /// If there is no such file that this process may execute.
    pub fn find(arguments: &[impl AsRef<OsStr>]) -> io::Result<Program> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is no such program");
        let name = arguments.first().ok_or_else(none)?.as_ref();
        let may = |file: &Path| {
            file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        };
        let file = if name.as_encoded_bytes().contains(&b'/') {
            Some(PathBuf::from(name)).filter(|file| may(file))
        } else {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| may(file))
        };
        let arguments = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
        Ok(Program { file: file.ok_or_else(none)?, arguments })
    }

    /// Starts it in `group`, on `cpu`; returns when it has begun, which is not before the group is
    /// thawed. At SCHED_RR, `priority`: its threads and children take turns with each other, and
    /// inherit that; they get no higher one and no other real-time policy. It reads nothing, and
    /// what it prints goes to standard error. It dies with the calling thread, and if one of its
    /// threads has used `most` of CPU time without a pause.
    ///
    /// # Errors
    /// If the kernel refuses any of it.
    pub fn start(
        &self,
        group: &Group,
        cpu: u32,
        priority: u8,
        most: Option<Duration>,
    ) -> io::Result<Child> {
        let door = group.door()?;
        let (mask, raw) = (mask(&CpuSet::single(cpu)), door.as_raw_fd());
        let limit = most.map(limit).transpose()?;
        let parent = Tid::of_process().as_raw();
        let mut command = Command::new(&self.file);
        command.arg0(&self.arguments[0]).args(&self.arguments[1..]).stdin(Stdio::null());
        command.stdout(io::stderr());
        let enter = move || {
            let parameters = libc::sched_param { sched_priority: i32::from(priority) };
            // SAFETY: integers, and structures that live as long as the calls; the descriptor is
            // open until exec.
            unsafe {
                // A signal of the terminal is for whoever started it.
                check(libc::setpgid(0, 0))?;
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
                // It may have died before that was asked for.
                if libc::getppid() != parent {
                    libc::_exit(127);
                }
                if let Some(limit) = &limit {
                    check(libc::setrlimit(libc::RLIMIT_RTTIME, limit))?;
                }
                check(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask))?;
                check(libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters))?;
                // It has what it is to have. Both are refused only to those who could not do either
                // in any case.
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const none);
                libc::prctl(libc::PR_CAPBSET_DROP, Capability::SysNice as libc::c_ulong, 0, 0, 0);
                // Zero: whoever writes. It stops on the way back from this.
                if libc::write(raw, c"0".as_ptr().cast(), 1) != 1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure runs between fork and exec and only makes system calls; `door`
        // outlives the start.
        unsafe { command.pre_exec(enter) };
        let child = command.spawn();
        drop(door);
        child
    }
}

/// So much real-time CPU time at a stretch; less, where this process may not have so much itself.
fn limit(most: Duration) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid structure, which the kernel fills.
    check(unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) })?;
    let most = u64::try_from(most.as_micros()).unwrap_or(libc::RLIM_INFINITY).min(limit.rlim_max);
    // Both: the first would be a signal that a program may catch.
    Ok(libc::rlimit { rlim_cur: most, rlim_max: most })
}

fn mask(cpus: &CpuSet) -> libc::cpu_set_t {
    // SAFETY: a set of bits, of which none is a valid value.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: sets a bit of the set, which has one for each CPU that a `CpuSet` can have.
        unsafe { libc::CPU_SET(cpu as usize, &mut mask) };
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_path_or_in_the_folders_of_path_and_a_text_is_none() {
        assert!(Program::find(&["sh"]).is_ok());
        assert!(Program::find(&["/bin/sh", "-c", "true"]).is_ok());
        for wrong in [&["no-such-program-anywhere"][..], &["/etc/passwd"], &["/bin"], &[""], &[]] {
            let error = Program::find(wrong).expect_err("none");
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{wrong:?}");
        }
    }
}
