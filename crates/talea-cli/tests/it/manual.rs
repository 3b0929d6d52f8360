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

/// Returns the names of all pages but the generated ones.
fn pages() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join("docs/manual"))
        .expect("the manual")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "md") && !path.ends_with("cli.md"))
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
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
    for name in ["getting-started.md", "administrators.md", "realtimekit.md"] {
        for block in blocks(&page(name), "toml") {
            // The users of the manual do not exist on every computer.
            let block = ["@audio", "@pipewire", "robot"]
                .iter()
                .fold(block, |text, name| text.replace(name, "root"));
            scratch.file("talead.toml", &format!("{plugins}{block}"));
            let ended = run(&scratch, &["check", "talead.toml", "--cpus", "2"]);
            assert_eq!(ended.code, Some(0), "{name}:\n{block}\n{}", ended.out);
            seen += 1;
        }
    }
    assert!(seen >= 3, "the manual shows rules");
}

#[test]
fn every_command_that_the_manual_shows_can_be_parsed() {
    let scratch = Scratch::new();
    let mut seen = 0;
    for name in pages() {
        let name = name.as_str();
        for line in blocks(&page(name), "console").join("\n").lines() {
            let Some(command) =
                line.strip_prefix("$ talea ").or_else(|| line.strip_prefix("# talea "))
            else {
                continue;
            };
            let end = ["#", "; ", " &", " |"].iter().filter_map(|end| command.find(end)).min();
            let command = command[..end.unwrap_or(command.len())].trim().replace('\'', "");
            let mut words: Vec<&str> = command.split_whitespace().collect();
            // The whole line is parsed before the help of that command is printed.
            let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            words.insert(at, "--help");
            assert_eq!(run(&scratch, &words).code, Some(0), "{name}: {line}");
            seen += 1;
        }
    }
    assert!(seen >= 40, "the manual shows commands: {seen}");
}

#[test]
fn the_table_of_kernels_names_every_check_of_the_doctor() {
    let scratch = Scratch::new();
    let ended = run(&scratch, &["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let text = page("kernels.md");
    let checks = found["checks"].as_array().expect("a list");
    assert!(checks.len() > 15, "{found}");
    for check in checks {
        let id = check["id"].as_str().expect("a name");
        let is_there = text.contains(&format!("`{id}`")) || text.contains(&format!(" {id} "));
        assert!(is_there, "kernels.md lacks {id}");
    }
}

#[test]
fn the_unit_of_deployments_lets_programs_outlive_it() {
    let path = root().join("etc/systemd/talea-deploy.service");
    let unit = std::fs::read_to_string(path).expect("the unit");
    let has = |wanted: &str| unit.lines().any(|line| line == wanted);
    for wanted in [
        "Type=notify",
        "Delegate=yes",
        "KillMode=process",
        "RuntimeDirectory=talea-deploy",
        "RuntimeDirectoryPreserve=yes",
        "StateDirectory=talea-deploy",
        "StateDirectoryMode=0700",
    ] {
        assert!(has(wanted), "{wanted}");
    }
    // The programs inherit these, and real-time programs need what they take.
    for forbidden in ["RestrictRealtime=yes", "PrivateUsers=yes", "ProtectControlGroups=yes"] {
        assert!(!has(forbidden), "{forbidden}");
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
