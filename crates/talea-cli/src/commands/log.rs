//! `talea log`: prints the audit trail of the daemon.
//!
//! Reads the files of the trail (`talea_daemon::trail::store`), so it works without a daemon and
//! never delays one. The kernel decides which files a user may read.

mod entry;
mod reader;

use crate::broker_client::Options;
use crate::user_names::UserNames;
use anyhow::Context;
use clap::Args;
pub(super) use entry::Entry;
pub(super) use reader::Reader;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use talea_daemon::trail::line::{EVENTS, Time};
use talea_study::exit::Exit;
use talea_study::options::Output;
use talea_study::output::{count, note};

/// Time between two readings with `--follow`.
const PERIOD: Duration = Duration::from_millis(250);

/// Show who got real time, who was refused, and why a grant ended.
///
/// Prints the audit trail: grants, refusals, overruns, demotions and changes of threads, with user,
/// process, thread and rule. Root sees all records, a user the own ones and those about the daemon.
/// Equal refusals are one record with a count. Times are UTC.
#[derive(Args, Debug)]
#[command(after_help = "Example: talea log --since 12h --event refusal,demotion")]
pub(crate) struct LogArgs {
    /// Continue with new records until interrupted.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Omit records before this time: a duration before now (`12h`, `30min`, `7d`), or a date with
    /// an optional time in UTC (`2026-11-28`, `2026-11-28T22:30`).
    ///
    /// With --follow the default is now.
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<String>,
    /// Only records about this user.
    #[arg(long, value_name = "USER", value_parser = user)]
    pub(crate) uid: Option<u32>,
    /// Only these events.
    #[arg(long, value_name = "EVENT", value_delimiter = ',', value_parser = EVENTS)]
    pub(crate) event: Vec<String>,
    /// The directory of the trail, if it is not the one in the daemon's configuration.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print the records as they are stored, one JSON object per line.
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) fn run(options: &Options, args: &LogArgs) -> anyhow::Result<Exit> {
    let directory = match &args.dir {
        Some(directory) => directory.clone(),
        None => options.daemon_setup().unwrap_or_default().audit_directory.into(),
    };
    let mut reader = Reader::new(directory.clone());
    let since = match &args.since {
        None if args.follow => now(),
        since => since.clone().unwrap_or_default(),
    };
    let is_wanted = |entry: &Entry| {
        entry.time() >= since.as_str()
            && args.uid.is_none_or(|uid| entry.uid() == Some(uid))
            && (args.event.is_empty() || args.event.iter().any(|event| event == entry.event()))
    };
    let mut users = UserNames::default();
    loop {
        let found = reader
            .read(&since)
            .with_context(|| format!("cannot read the audit trail in {}", directory.display()))?;
        let mut text = String::new();
        for entry in found.entries.iter().filter(|entry| is_wanted(entry)) {
            if args.output.json {
                text.push_str(entry.line());
            } else {
                text.push_str(&entry.text(&mut users));
            }
            text.push('\n');
        }
        if !write(&text)? {
            return Ok(Exit::Ok);
        }
        report(&found);
        if !args.follow {
            return Ok(Exit::Ok);
        }
        std::thread::sleep(PERIOD);
    }
}

/// Reports what the trail does not contain.
fn report(found: &reader::Found) {
    if found.missing > 0 {
        note(&format!("{} missing", count(found.missing as usize, "record")));
    }
    if found.damaged > 0 {
        note(&format!("{} skipped: not a complete record", count(found.damaged, "line")));
    }
}

/// Prints text; returns `false` if the reader of the output has ended.
fn write(text: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

fn now() -> String {
    time_before(0)
}

/// Returns the time of day `ns` nanoseconds ago, in the form of the trail.
pub(super) fn time_before(ns: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    Time { ns: now.saturating_sub(ns) }.to_string()
}

/// Parses the time of `--since`: times of the trail are compared as text.
fn since(text: &str) -> Result<String, String> {
    if let Ok(span) = talea_config::duration::parse_span(text) {
        return Ok(time_before(span.as_ns()));
    }
    let text = text.trim_end_matches('Z').replace(' ', "T");
    let pattern = "0000-00-00T00:00:00.000000";
    let fits = |(byte, pattern): (u8, u8)| match pattern {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    };
    let is_time = [10, 16, 19].contains(&text.len()) || (21..=26).contains(&text.len());
    if is_time && text.bytes().zip(pattern.bytes()).all(fits) {
        return Ok(text);
    }
    Err("a time is a duration before now (12h, 30min, 7d) or a date with an optional time in UTC \
         (2026-11-28, 2026-11-28T22:30)"
        .to_owned())
}

/// Parses a user: a number, or a name of this machine.
fn user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match talea_os::users::user_by_name(text) {
        Ok(Some(user)) => Ok(user.uid),
        Ok(None) => Err(format!("there is no user {text:?} on this machine")),
        Err(error) => Err(format!("users are not readable: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_or_durations_before_now() {
        for (text, time) in [
            ("2026-11-28", "2026-11-28"),
            ("2026-11-28T22:30", "2026-11-28T22:30"),
            ("2026-11-28 22:30:05Z", "2026-11-28T22:30:05"),
            ("2026-11-28T22:30:05.123Z", "2026-11-28T22:30:05.123"),
        ] {
            assert_eq!(since(text).as_deref(), Ok(time));
        }
        let before = time_before(3_600_000_000_000);
        let hour = since("1h").expect("a duration");
        assert!(hour >= before && hour < now(), "{hour}");
        for wrong in ["", "yesterday", "2026-11", "2026-11-28T22", "2026/11/28", "5"] {
            assert!(since(wrong).is_err(), "{wrong:?}");
        }
    }
}
