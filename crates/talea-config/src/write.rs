//! Writer of a setup as a configuration file.
//!
//! Model: the written text reads back as the same setup, except for `Rule::origin`, which has the
//! new lines. Ids stay numbers (`#1000`), because a name may mean another id on another computer.
//!
//! # Panics
//! For a setup that no file could describe (a plugin without its band, a utilisation above 1024
//! CPUs). This is an error of the caller.

use crate::decimal::write_charge;
use crate::key::FileSection;
use crate::keys::Section;
use crate::setup::{DaemonSetup, LogLevel};
use std::fmt::Write;
use talea_core::setup::{
    Access, Bound, Confine, Domain, ForeignClass, FpLevels, Groups, PluginKind, PluginSetup,
    RmTest, Root, Rule, Setup,
};
use talea_core::{Charge, Span};

/// Returns the file that describes `daemon` and `setup`.
pub fn write(daemon: &DaemonSetup, setup: &Setup) -> String {
    let mut out = String::from("[daemon]\n");
    let level = LogLevel::WORDS
        .iter()
        .find(|(_, level)| *level == daemon.log_level)
        .map_or("info", |(word, _)| word);
    pair(&mut out, "socket", &text(&daemon.socket));
    pair(&mut out, "socket_mode", &format!("\"{:04o}\"", daemon.socket_mode));
    if let Some(uid) = daemon.socket_owner {
        pair(&mut out, "socket_owner", &format!("\"#{uid}\""));
    }
    if let Some(gid) = daemon.socket_group {
        pair(&mut out, "socket_group", &format!("\"#{gid}\""));
    }
    pair(&mut out, "state_directory", &text(&daemon.state_directory));
    pair(&mut out, "audit_directory", &text(&daemon.audit_directory));
    pair(&mut out, "audit_mib", &daemon.audit_mib.to_string());
    pair(&mut out, "log_level", &text(level));
    let access = match setup.access {
        Access::Rules => "\"rules\"",
        Access::Off => "\"off\"",
    };
    let root = match setup.root {
        Root::Unrestricted => "\"unrestricted\"",
        Root::Ruled => "\"ruled\"",
    };
    let groups = match setup.groups {
        Groups::All => "\"all\"",
        Groups::Effective => "\"effective\"",
    };
    pair(&mut out, "access", access);
    pair(&mut out, "root", root);
    pair(&mut out, "groups", groups);
    if !setup.front_ends.is_empty() {
        let users: Vec<String> = setup.front_ends.iter().map(|uid| format!("\"#{uid}\"")).collect();
        pair(&mut out, "front_ends", &format!("[{}]", users.join(", ")));
    }
    out.push_str("\n[daemon.quota]\n");
    let quota = &setup.quota;
    for (name, value) in [
        ("sessions_per_user", quota.sessions_per_user),
        ("sessions", quota.sessions),
        ("sessions_without_rule", quota.sessions_without_rule),
        ("specs_per_user", quota.specs_per_user),
        ("specs", quota.specs),
        ("levels_per_user", quota.levels_per_user),
        ("requests_per_second", quota.requests_per_second),
        ("burst", quota.burst),
    ] {
        debug_assert!(Section::Quota.key(name).is_some());
        pair(&mut out, name, &value.to_string());
    }
    for plugin in &setup.plugins {
        write_plugin(&mut out, plugin);
    }
    write_rules(&mut out, setup);
    out
}

fn write_plugin(out: &mut String, plugin: &PluginSetup) {
    out.push_str("\n[[plugin]]\n");
    pair(out, "name", &text(&plugin.name));
    pair(out, "kind", &text(plugin.kind.name()));
    pair(out, "cpus", &text(&plugin.cpus.to_string()));
    match (&plugin.kind, plugin.band) {
        (kind, _) if kind.is_deadline() => {}
        (_, Some(band)) => {
            pair(out, "priorities", &format!("\"{}-{}\"", band.low.0, band.high.0));
            pair(out, "on_overrun", &text(plugin.on_overrun.name()));
        }
        (_, None) => panic!("plugin {} has no band", plugin.name),
    }
    match &plugin.kind {
        PluginKind::Edf(options) => {
            if let Some(threshold) = options.threshold {
                pair(out, "threshold", &charge(threshold));
            }
            pair(out, "confine", confine(options.confine));
        }
        PluginKind::Rm(options) => {
            let test = match options.test {
                RmTest::Necessary => "\"necessary\"",
                RmTest::LiuLayland => "\"liu-layland\"",
                RmTest::Hyperbolic => "\"hyperbolic\"",
                RmTest::Exact => "\"exact\"",
            };
            pair(out, "test", test);
            pair(out, "refuse_sharing", &options.refuse_sharing.to_string());
        }
        PluginKind::Fp(options) | PluginKind::Rr(options) => {
            let levels = match options.levels {
                FpLevels::Each => "\"each\"",
                FpLevels::Common => "\"common\"",
            };
            pair(out, "refuse_sharing", &options.refuse_sharing.to_string());
            pair(out, "levels", levels);
        }
        PluginKind::Foreign(options) => {
            let class = match options.class {
                ForeignClass::Fifo => "\"fifo\"",
                ForeignClass::Rr => "\"rr\"",
                ForeignClass::Deadline => "\"deadline\"",
            };
            pair(out, "module", &text(&options.module));
            pair(out, "argument", &text(&options.argument));
            pair(out, "timeout", &span(options.timeout));
            pair(out, "class", class);
            if options.class == ForeignClass::Deadline {
                pair(out, "confine", confine(options.confine));
            }
        }
    }
}

fn confine(confine: Confine) -> &'static str {
    match confine {
        Confine::Auto => "\"auto\"",
        Confine::Partition => "\"partition\"",
        Confine::Global => "\"global\"",
    }
}

fn write_rules(out: &mut String, setup: &Setup) {
    let mut last: Option<&Rule> = None;
    let mut said: Vec<&'static str> = Vec::new();
    for rule in &setup.rules {
        let key = rule.bound.key();
        let is_same_rule = last.is_some_and(|l| (l.domain, l.plugin) == (rule.domain, rule.plugin))
            && !said.contains(&key);
        if !is_same_rule {
            said.clear();
            out.push_str("\n[[rule]]\n");
            let domain = match rule.domain {
                Domain::Global => "\"-\"".to_owned(),
                Domain::User(uid) => format!("\"#{uid}\""),
                Domain::Group(gid) => format!("\"@#{gid}\""),
            };
            pair(out, "domain", &domain);
            let plugin = rule.plugin.map_or("-", |index| &setup.plugins[index].name);
            pair(out, "plugin", &text(plugin));
        }
        let value = match rule.bound {
            Bound::MaxUtilization(most) => charge(most),
            Bound::MaxRuntime(work) => span(Span::from_ns(work.as_ns())),
            Bound::MinPeriod(s)
            | Bound::MaxPeriod(s)
            | Bound::MinDeadline(s)
            | Bound::MaxDeadline(s) => span(s),
            Bound::MinPriority(level) | Bound::MaxPriority(level) => level.0.to_string(),
            Bound::OnOverrun(reaction) => text(reaction.name()),
            Bound::MinNice(nice) => nice.to_string(),
            Bound::IgnoreAdmission(flag) | Bound::AllowUnbounded(flag) => flag.to_string(),
        };
        pair(out, key, &value);
        said.push(key);
        last = Some(rule);
    }
}

fn pair(out: &mut String, name: &str, value: &str) {
    // Writing to a String can't fail.
    let _ = writeln!(out, "{name} = {value}");
}

fn span(span: Span) -> String {
    format!("\"{span}\"")
}

fn charge(charge: Charge) -> String {
    write_charge(charge).expect("a configured utilisation is at most 1024 CPUs")
}

/// Returns `text` as a TOML basic string.
pub fn text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                // Writing to a String can't fail.
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
