//! Reader of `[daemon]` and `[daemon.quota]`.

use crate::diagnostic::quoted;
use crate::keys::Section;
use crate::setup::{DaemonSetup, LogLevel, SOCKET_PATH_MAX};
use crate::source::{Findings, words};
use crate::table::{Field, Piece, Table};
use crate::target::Names;
use talea_core::setup::{Access, Groups, Quota, Root};
use toml::de::DeValue;

pub(super) const ACCESS: [(&str, Access); 2] = [("rules", Access::Rules), ("off", Access::Off)];
pub(super) const ROOT: [(&str, Root); 2] =
    [("unrestricted", Root::Unrestricted), ("ruled", Root::Ruled)];
pub(super) const GROUPS: [(&str, Groups); 2] =
    [("all", Groups::All), ("effective", Groups::Effective)];

/// Largest audit trail, in MiB.
const AUDIT_MIB: u32 = 65_536;

/// Contents of the two tables.
#[derive(Default)]
pub(super) struct DaemonPart {
    pub(super) daemon: DaemonSetup,
    pub(super) access: Access,
    pub(super) root: Root,
    pub(super) groups: Groups,
    pub(super) quota: Quota,
    pub(super) front_ends: Vec<u32>,
}

pub(super) fn read(
    table: &Table<'_, Section>,
    names: &dyn Names,
    findings: &mut Findings<'_>,
) -> DaemonPart {
    let mut part = DaemonPart::default();
    if let Some(path) = path(table, "socket", SOCKET_PATH_MAX, findings) {
        part.daemon.socket = path;
    }
    if let Some(mode) = table.take("socket_mode").and_then(|field| mode(&field, findings)) {
        part.daemon.socket_mode = mode;
    }
    part.daemon.socket_owner =
        table.take("socket_owner").and_then(|field| id(&field, Id::User, names, findings));
    let group = table.take("socket_group");
    part.daemon.socket_group =
        group.as_ref().and_then(|field| id(field, Id::Group, names, findings));
    if let Some(path) = path(table, "state_directory", 4_096, findings) {
        part.daemon.state_directory = path;
    }
    if let Some(path) = path(table, "audit_directory", 4_096, findings) {
        part.daemon.audit_directory = path;
    }
    if let Some(size) =
        table.take("audit_mib").and_then(|field| field.integer(0, AUDIT_MIB, findings))
    {
        part.daemon.audit_mib = size;
    }
    if let Some(level) =
        table.take("log_level").and_then(|field| field.word(&LogLevel::WORDS, findings))
    {
        part.daemon.log_level = level;
    }
    if let Some(access) = table.take("access").and_then(|field| field.word(&ACCESS, findings)) {
        part.access = access;
    }
    if let Some(root) = table.take("root").and_then(|field| field.word(&ROOT, findings)) {
        part.root = root;
    }
    if let Some(groups) = table.take("groups").and_then(|field| field.word(&GROUPS, findings)) {
        part.groups = groups;
    }
    if let Some(field) = table.take("front_ends") {
        part.front_ends = users(&field, names, findings);
    }
    match table.take("quota") {
        None => {}
        Some(Field { value: DeValue::Table(quota), at, .. }) => {
            part.quota = read_quota(&Table::new(Section::Quota, quota, at, findings), findings);
        }
        Some(field) => field.mistyped(findings),
    }
    if let (Some(field), Some(_), 0o6 | 0o7 | 0o2 | 0o3) =
        (group, part.daemon.socket_group, part.daemon.socket_mode & 0o7)
    {
        findings.warning(
            &field.at,
            words(
                "`socket_group` excludes no user",
                format!(
                    "every user can connect to a socket of mode {:04o}",
                    part.daemon.socket_mode
                ),
                "write `socket_mode = \"0660\"` to let only the group connect",
            ),
        );
    }
    part
}

fn read_quota(table: &Table<'_, Section>, findings: &mut Findings<'_>) -> Quota {
    const SESSIONS: u32 = 65_536;
    const SPECS: u32 = 1_048_576;
    const LEVELS: u32 = 99;
    const RATE: u32 = 1_000_000;
    let mut quota = Quota::default();
    let mut set = |name: &str, most: u32, value: &mut u32| {
        if let Some(number) = table.take(name).and_then(|field| field.integer(1, most, findings)) {
            *value = number;
        }
    };
    set("sessions_per_user", SESSIONS, &mut quota.sessions_per_user);
    set("sessions", SESSIONS, &mut quota.sessions);
    set("sessions_without_rule", SESSIONS, &mut quota.sessions_without_rule);
    set("specs_per_user", SPECS, &mut quota.specs_per_user);
    set("specs", SPECS, &mut quota.specs);
    set("levels_per_user", LEVELS, &mut quota.levels_per_user);
    set("requests_per_second", RATE, &mut quota.requests_per_second);
    set("burst", RATE, &mut quota.burst);
    for (one, all, mine, total) in [
        ("sessions_per_user", "sessions", quota.sessions_per_user, quota.sessions),
        ("specs_per_user", "specs", quota.specs_per_user, quota.specs),
    ] {
        // Only if the file sets one of the two: a default is not a mistake of its author.
        if let (true, Some(field)) = (mine > total, table.take(one).or_else(|| table.take(all))) {
            findings.warning(
                &field.at,
                words(
                    format!("one user may take all: `{one}` is {mine}, `{all}` is {total}"),
                    "a bound for one user protects the others only while it is below the total",
                    format!("lower `{one}` below {total}, or raise `{all}`"),
                ),
            );
        }
    }
    quota
}

/// Reads an absolute path of at most `most` bytes.
fn path(
    table: &Table<'_, Section>,
    name: &str,
    most: usize,
    findings: &mut Findings<'_>,
) -> Option<String> {
    let field = table.take(name)?;
    let piece = field.text(findings)?;
    absolute(&field, &piece, most, findings).then(|| piece.text.to_owned())
}

/// Whether `piece` is an absolute path of at most `most` bytes. Reports an error if not.
pub(super) fn absolute(
    field: &Field<'_, Section>,
    piece: &Piece<'_>,
    most: usize,
    findings: &mut Findings<'_>,
) -> bool {
    let (name, example) = (field.key.name, field.key.example);
    let remedy = format!("write it like `{name} = {example}`");
    let (what, why) = if !piece.text.starts_with('/') {
        (
            format!("`{name}` is not an absolute path"),
            "a daemon has no working directory that a relative path could start from".to_owned(),
        )
    } else if piece.text.contains('\0') {
        (format!("`{name}` holds a zero byte"), "the kernel ends paths there".to_owned())
    } else if piece.text.contains(char::is_control) {
        (
            format!("`{name}` holds a control character"),
            "no log and no terminal could show it".to_owned(),
        )
    } else if piece.text.ends_with('/') && !name.ends_with("_directory") {
        (
            format!("`{name}` is the path of a directory"),
            "what ends with a slash is no file".to_owned(),
        )
    } else if piece.text.len() > most {
        (
            format!("`{name}` is longer than {most} bytes"),
            "the kernel takes no longer path here".to_owned(),
        )
    } else {
        return true;
    };
    findings.error(&piece.at, words(what, why, remedy));
    false
}

/// Reads octal permission bits.
fn mode(field: &Field<'_, Section>, findings: &mut Findings<'_>) -> Option<u32> {
    if let DeValue::Integer(number) = field.value {
        let remedy =
            format!("write `socket_mode = \"0{}\"`", number.as_str().trim_start_matches('0'));
        let why = "a bare number is decimal, permissions are octal";
        findings.error(
            &field.at,
            words("`socket_mode` must be text in quotes, not a number", why, remedy),
        );
        return None;
    }
    let piece = field.text(findings)?;
    let octal = !piece.text.is_empty()
        && piece.text.len() <= 5
        && piece.text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let bits = u32::from_str_radix(piece.text, 8).ok().filter(|&bits| octal && bits <= 0o777);
    match bits {
        None => {
            let what = format!("{} is not a mode", quoted(piece.text));
            let why = "permissions are three octal digits: owner, group, others";
            findings
                .error(&field.at, words(what, why, "write `socket_mode = \"0660\"` or \"0666\""));
        }
        Some(bits) if bits & 0o222 == 0 => findings.warning(
            &field.at,
            words(
                "only root can connect to this socket",
                "connecting requires write permission, and this mode grants it to no user",
                "write `socket_mode = \"0660\"` or \"0666\"",
            ),
        ),
        Some(_) => {}
    }
    bits
}

/// Kind of a name: user or group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    User,
    Group,
}

/// Reads a user or group, by name or `#number`.
fn id(
    field: &Field<'_, Section>,
    which: Id,
    names: &dyn Names,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    let piece = field.text(findings)?;
    lookup(field, piece.text, piece.at.clone(), which, names, findings)
}

/// Reads a list of users, by name or `#number`, in increasing order. Root needs no entry.
fn users(field: &Field<'_, Section>, names: &dyn Names, findings: &mut Findings<'_>) -> Vec<u32> {
    let pieces = field.texts(findings).unwrap_or_default();
    let mut uids: Vec<u32> = pieces
        .into_iter()
        .filter_map(|piece| lookup(field, piece.text, piece.at, Id::User, names, findings))
        .collect();
    uids.sort_unstable();
    uids.dedup();
    uids
}

/// Returns the id of `name` (or `#number`), whose position is `at`. Reports an error in the name.
pub(super) fn lookup(
    field: &Field<'_, Section>,
    name: &str,
    at: std::ops::Range<usize>,
    which: Id,
    names: &dyn Names,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    let (what, sigil) = match which {
        Id::User => ("user", "#"),
        Id::Group => ("group", "@#"),
    };
    let sigil = if field.key.section == Section::Daemon { "#" } else { sigil };
    if let Some(number) = name.strip_prefix('#') {
        // The largest number is the kernel's "no id".
        let id = number.parse().ok().filter(|&id: &u32| id != u32::MAX);
        if id.is_none() || number.starts_with('+') {
            let why = format!("a {what} number is 0 to {}", u32::MAX - 1);
            let text = if number.is_empty() {
                format!("the {what}'s number is missing")
            } else {
                format!("{} is not a {what} number", quoted(number))
            };
            findings.error(&at, words(text, why, format!("write it like \"{sigil}1000\"")));
            return None;
        }
        return id;
    }
    if name.is_empty() {
        let text = format!("the {what}'s name is empty");
        let remedy = format!("write a name, or a number like \"{sigil}1000\"");
        findings.error(&at, words(text, field.key.reason(), remedy));
        return None;
    }
    let id = match which {
        Id::User => names.user(name),
        Id::Group => names.group(name),
    };
    if id.is_none() {
        let other = match which {
            Id::User => names
                .group(name)
                .map(|_| format!("there is a group of that name: write \"@{name}\"")),
            Id::Group => {
                names.user(name).map(|_| format!("there is a user of that name: write \"{name}\""))
            }
        };
        let in_rule = field.key.section == Section::Rule;
        let remedy = match other {
            Some(other) if in_rule => other,
            _ if name.bytes().all(|b| b.is_ascii_digit()) => {
                format!("numbers are written \"{sigil}{name}\"")
            }
            _ => format!("create the {what}, or write a number like \"{sigil}1000\""),
        };
        let why = format!("no {what} of this name is known on this machine");
        findings.error(&at, words(format!("unknown {what} {}", quoted(name)), why, remedy));
    }
    id
}
