//! Statements of the manual and of the service units.

use crate::harness::{Scratch, run};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    let path = root().join("docs/manual").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the blocks of a page that are marked with `language`.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == format!("```{language}");
            if inside {
                blocks.push(String::new());
            }
        } else if inside {
            let block = blocks.last_mut().expect("a block has begun");
            block.push_str(line);
            block.push('\n');
        }
    }
    blocks
}

#[test]
fn the_rules_in_the_manual_are_sound() {
    let plugins = "[[plugin]]\nname = \"edf\"\nkind = \"edf\"\ncpus = \"all\"\n\n[[plugin]]\nname = \"fp\"\nkind = \
                   \"fp\"\ncpus = \"all\"\npriorities = \"1-49\"\n\n";
    let scratch = Scratch::new();
    let mut seen = 0;
    for name in ["getting-started.md", "administrators.md"] {
        for block in blocks(&page(name), "toml") {
            // The users of the manual do not exist on every computer.
            let block =
                ["@audio", "robot"].iter().fold(block, |text, name| text.replace(name, "root"));
            scratch.file("talead.toml", &format!("{plugins}{block}"));
            let ended = run(&scratch, &["check", "talead.toml", "--cpus", "2"]);
            assert_eq!(ended.code, Some(0), "{name}:\n{block}\n{}", ended.out);
            seen += 1;
        }
    }
    assert!(seen >= 2, "the manual shows rules");
}

#[test]
fn every_command_that_the_manual_shows_can_be_parsed() {
    let scratch = Scratch::new();
    let mut seen = 0;
    for name in ["getting-started.md", "administrators.md"] {
        for line in blocks(&page(name), "console").join("\n").lines() {
            let Some(command) =
                line.strip_prefix("$ talea ").or_else(|| line.strip_prefix("# talea "))
            else {
                continue;
            };
            let command = command.split('#').next().expect("a first part").trim();
            let mut words: Vec<&str> = command.split_whitespace().collect();
            // The whole line is parsed before the help of that command is printed.
            let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            words.insert(at, "--help");
            assert_eq!(run(&scratch, &words).code, Some(0), "{name}: {line}");
            seen += 1;
        }
    }
    assert!(seen >= 4, "the manual shows commands");
}

#[test]
fn the_pages_of_the_manual_link_to_pages_that_exist() {
    for name in [
        "index.md",
        "getting-started.md",
        "c-api.md",
        "administrators.md",
        "troubleshooting.md",
        "cli.md",
    ] {
        for target in page(name).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().expect("a first part");
            if !file.is_empty() && !file.contains("://") {
                assert!(root().join("docs/manual").join(file).exists(), "{name} links to {target}");
            }
        }
    }
}

#[test]
fn the_units_listen_where_clients_connect_and_keep_what_grants_need() {
    let read = |name: &str| {
        std::fs::read_to_string(root().join("etc/systemd").join(name)).expect("the unit")
    };
    let has = |text: &str, wanted: &str| text.lines().any(|line| line == wanted);
    let socket = read("talead.socket");
    assert!(
        has(&socket, &format!("ListenSequentialPacket={}", talea_proto::SOCKET_PATH)),
        "{socket}"
    );
    let service = read("talead.service");
    for wanted in [
        "AmbientCapabilities=CAP_SYS_NICE CAP_PERFMON",
        "SystemCallFilter=perf_event_open",
        "RuntimeDirectory=talea",
        "RuntimeDirectoryPreserve=yes",
        "RestrictAddressFamilies=AF_UNIX AF_NETLINK",
        "CPUSchedulingPolicy=fifo",
        "CPUSchedulingPriority=98",
        "CPUSchedulingResetOnFork=yes",
    ] {
        assert!(has(&service, wanted), "{wanted}");
    }
    // Each of these makes every scheduling call fail; the last one makes process events invisible.
    for forbidden in [
        "PrivateUsers=yes",
        "RestrictRealtime=yes",
        "PrivatePIDs=yes",
        "SystemCallFilter=~@resources",
        "PrivateNetwork=yes",
    ] {
        assert!(!has(&service, forbidden), "{forbidden}");
    }
    assert!(
        read("talea.sysusers.conf")
            .lines()
            .any(|line| line.split_whitespace().take(2).eq(["u", "talea"]))
    );
}
