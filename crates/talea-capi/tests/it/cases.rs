//! Cases of practitioners (`tests/cases`): programs in C, with the real daemon where they need one.
//!
//! The name of a test begins with the name of its file.

use crate::daemon::{Daemon, is_root, talead};
use crate::needs;
use crate::toolchain::{self, Language, built_library, command, compile, expect, here};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use talea_kernel_tests::Bench;

/// Names of `talea.h` that the cases use, with the present ones.
const RENAMED: [&str; 2] =
    ["-Dtalea_message=talea_last_error", "-Dtalea_app_follow=talea_app_set_table"];

/// Compiles a case under this name, as its author did: without warnings.
fn compiled(case: &str, name: &str, options: &[&str]) -> PathBuf {
    let source = here("../../tests/cases").join(case);
    let to = toolchain::folder().join(name);
    let (out, link) = (to.display().to_string(), format!("-L{}", toolchain::folder().display()));
    let own = ["-O2", "-w", "-xnone", "-pthread", "-o", &out, &link, "-ltalea", "-lretif"];
    compile(&source, Language::C("gnu11"), &[&RENAMED[..], options, &own].concat());
    to
}

/// Runs an application without a daemon, as the user of the tests.
fn application(program: &Path) -> String {
    expect(&mut command(program, Path::new("/nonexistent/talea.sock")), 0)
}

fn number(text: &str, before: &str) -> f64 {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{before}: {text}"));
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    rest[..end.unwrap_or(rest.len())].parse().unwrap_or_else(|_| panic!("{before}: {text}"))
}

#[test]
fn y11_table_c_is_accepted_with_versions_of_the_default_name() {
    needs!("two CPUs", crate::apps::workers() == 2);
    let _bench = Bench::new("case_table");
    let output = application(&compiled("papers/table.c", "case_table", &[]));
    // A hundred hyperperiods of 20 ms, of which the first task has two entries.
    let jobs: Vec<u64> = output
        .split_once("jobs ")
        .and_then(|(_, rest)| rest.split_once(','))
        .unwrap_or_else(|| panic!("{output}"))
        .0
        .split(' ')
        .map(|count| count.parse().expect("a count"))
        .collect();
    assert!(jobs[1] >= 90 && jobs[2] >= 90 && jobs[0] >= 2 * jobs[1] - 2, "{output}");
}

#[test]
fn y15_spin_c_polls_for_the_requested_length_and_half_of_the_wait_is_the_stated_limit() {
    needs!("two CPUs", crate::apps::workers() == 2);
    let _bench = Bench::new("case_spin");
    let share = |spin_ns: u64| {
        let option = format!("-DSP={spin_ns}");
        let program = compiled("papers/spin.c", &format!("case_spin_{spin_ns}"), &[&option]);
        let output = application(&program);
        println!("{output}");
        number(&output, "CPU ")
    };
    // A job each 2 ms: a poll of 200 µs is a tenth of the time, and one of 1 ms half of it.
    let [none, short, long] = [0, 200_000, 1_000_000].map(share);
    assert!(short - none > 6.0 && short - none < 14.0, "{none} {short}");
    assert!(long - none > 40.0 && long - none < 55.0, "{none} {long}");
    // The header states the limit.
    let header = std::fs::read_to_string(here("include/yasmin.h")).expect("the header");
    let words: Vec<&str> = header.split_whitespace().filter(|word| *word != "*").collect();
    assert!(words.join(" ").contains("before an event, at most 1 ms and half of the wait"));
}

#[test]
fn y15_blocks_c_keeps_the_worker_of_a_job_that_waits_without_a_declaration() {
    needs!("two CPUs", crate::apps::workers() == 2);
    let _bench = Bench::new("case_blocks");
    // Delay of the less urgent job, in milliseconds; the device of the other one takes 30.
    let delay = |workers: u32| {
        let option = format!("-DTH={workers}");
        let program = compiled("papers/blocks.c", &format!("case_blocks_{workers}"), &[&option]);
        let output = application(&program);
        let delays = output.lines().take(8).map(|line| number(line, "B began "));
        let mut delays: Vec<f64> = delays.collect();
        delays.sort_by(f64::total_cmp);
        delays[delays.len() / 2]
    };
    let (one, two) = (delay(1), delay(2));
    assert!(one >= 29.0 && two < 15.0, "{one} {two}");
}

/// Configuration of the case, which names the daemon of this test.
fn configured() -> Daemon {
    let text = std::fs::read_to_string(here("../../tests/cases/programs/talead.toml"));
    let text = text.expect("the case");
    let (head, plugins) = text.split_once("\n[[plugin]]").expect("plugins");
    let access = head.strip_prefix("[daemon]\n").expect("the daemon's table");
    Daemon::start_with(access, &format!("[[plugin]]{plugins}"))
}

#[test]
fn r2_talead_toml_and_jsa_c_are_real_time_when_the_attach_returns() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    needs!("two CPUs", crate::apps::workers() == 2);
    let _bench = Bench::new("case_jsa");
    let daemon = configured();
    let output =
        expect(&mut command(&compiled("programs/jsa.c", "case_jsa", &[]), &daemon.socket()), 0);
    println!("{output}");
    let attached = output.lines().find(|line| line.starts_with("attached: ")).expect("a line");
    assert!(["FIFO", "RR", "DEADLINE"].iter().any(|policy| attached.contains(policy)), "{output}");
    assert!(output.contains("released: OTHER"), "{output}");
}

#[test]
fn r7_tchange_c_changes_between_the_classes_each_time() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    needs!("two CPUs", crate::apps::workers() == 2);
    let _bench = Bench::new("case_tchange");
    let daemon = configured();
    let program = compiled("programs/tchange.c", "case_tchange", &[]);
    let output = expect(&mut command(&program, &daemon.socket()), 0);
    println!("{output}");
    // The thread enters the partition while it sleeps: after the first change. The policy is then
    // SCHED_DEADLINE with SCHED_RESET_ON_FORK.
    assert_eq!(output.matches(": ok; policy ").count(), 4, "{output}");
    assert_eq!(output.matches(&format!(": ok; policy {}", 0x4000_0006)).count(), 3, "{output}");
}

#[test]
fn busy_toml_is_refused_beside_victim_c_which_keeps_its_deadlines() {
    needs!("root", is_root());
    needs!("talead, which `cargo build` makes", talead().is_some());
    let talea = built_library().with_file_name("talea");
    let talea = talea.parent().and_then(Path::parent).expect("a folder").join("talea");
    needs!("talea, which `cargo build` makes", talea.exists());
    let _bench = Bench::new("case_busy");
    let daemon = Daemon::start_with(
        "access = \"off\"",
        "[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"0\"\npriorities = \"50-60\"\n",
    );
    let program = compiled("programs/victim.c", "case_victim", &[]);
    let victim = command(&program, &daemon.socket())
        .arg("rm")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut client = talea_client::Client::builder().path(daemon.socket()).connect();
    talea_kernel_tests::eventually("the grant has a thread", || {
        let client = client.as_mut().expect("a connection");
        client.list().is_ok_and(|list| list.is_ok_and(|specs| specs.len() == 1))
    });
    let file = here("../../tests/cases/programs/busy.toml");
    let executed = Command::new(&talea)
        .arg("--socket")
        .arg(daemon.socket())
        .arg("execute")
        .arg(file)
        .args(["--cpus", "0"])
        .output()
        .expect("talea can be run");
    let said = String::from_utf8_lossy(&executed.stderr).into_owned();
    assert_eq!(executed.status.code(), Some(3), "{said}");
    assert!(said.contains("it would break a grant") && said.contains("(rm, CPU 0)"), "{said}");
    let victim = victim.wait_with_output().expect("it ends");
    let output = String::from_utf8_lossy(&victim.stdout);
    assert!(victim.status.success() && output.contains("dmiss 0"), "{output}");
}
