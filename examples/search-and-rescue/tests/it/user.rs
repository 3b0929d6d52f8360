//! Tests of the drone as a program of an unprivileged user, with and without a running `talead`.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use talea_kernel_tests::{ALICE, Bench, Daemon, config, kernel, needs, needs_root};

/// Output of a flight.
struct Flight {
    out: String,
    err: String,
}

/// Runs a flight as the unprivileged user. The flight must succeed.
fn flight(bench: &Bench, socket: &Path) -> Flight {
    let program = bench.path("drone");
    talea_kernel_tests::bench::copy(env!("CARGO_BIN_EXE_search-and-rescue"), &program);
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("its permissions");
    let mut command = Command::new(&program);
    command.env("TALEA_SOCKET", socket).current_dir("/").uid(ALICE).gid(ALICE);
    // The output goes to files, because a pipe without a reader would block the program.
    let output = |name: &str| std::fs::File::create(bench.path(name)).expect("a file");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output("out"))
        .stderr(output("err"))
        .spawn()
        .expect("a started program");
    // The time limit of the bench ends a test that hangs.
    let status = child.wait().expect("a child of this process");
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).expect("the output");
    let flight = Flight { out: read("out"), err: read("err") };
    assert!(status.success(), "{status}: {}{}", flight.out, flight.err);
    flight
}

impl Flight {
    /// Returns the output lines of each frame, without times, modes and positions, which depend on
    /// timing.
    fn sent(&self) -> BTreeMap<u32, Vec<&str>> {
        let mut sent = BTreeMap::<u32, Vec<&str>>::new();
        let mut frame = None;
        for line in self.out.lines() {
            if let Some(rest) = line.strip_prefix("frame ") {
                frame = rest.split_whitespace().next().and_then(|number| number.parse().ok());
            } else if !line.starts_with("    ") {
                frame = None;
            }
            if let Some(frame) = frame {
                let words = sent.entry(frame).or_default();
                match line.strip_prefix("    ").and_then(|sighting| sighting.split_once(" at ")) {
                    Some((kind, rest)) => {
                        words.extend([kind, rest.rsplit(", ").next().unwrap_or_default()]);
                    }
                    None => words.extend(line.rsplit(": ").next()),
                }
            }
        }
        sent
    }
}

#[test]
fn y18_y22_an_unprivileged_drone_gets_real_time_from_the_daemon_and_detects_the_same_without_it() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("drone_user");
    // The rule is that of the manual.
    let rule = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 52\nallow_unbounded = true\n"
    );
    let mut daemon = Daemon::start(&bench, &config::common_levels_with_rules(&rule));
    let granted = flight(&bench, daemon.socket());
    println!("{}", granted.out.lines().last().unwrap_or_default());
    assert!(
        granted.out.contains("real-time priorities, granted by talead: jobs Fifo("),
        "{}{}",
        granted.err,
        granted.out
    );
    assert!(granted.out.contains(", dispatchers Fifo("), "{}", granted.out);
    assert!(!granted.err.contains("without real-time priorities"), "{}", granted.err);
    let client = talea_client::Client::builder().path(daemon.socket()).connect().expect("a daemon");
    let grants = client.list().expect("an answer").expect("a list");
    assert!(grants.is_empty(), "all grants are released: {grants:?}");
    daemon.terminate();

    let alone = flight(&bench, Path::new("/nonexistent"));
    assert_eq!(alone.err.matches("without real-time priorities").count(), 1, "once: {}", alone.err);
    assert!(
        alone.out.contains("\nwithout real-time priorities: nothing is guaranteed\n"),
        "{}",
        alone.out
    );

    // A late handler may lose frames at the start, so only frames of both flights are compared.
    let (with, without) = (granted.sent(), alone.sent());
    let both: Vec<u32> = with.keys().filter(|frame| without.contains_key(frame)).copied().collect();
    assert!(both.len() >= 10, "{both:?}: {}{}", granted.out, alone.out);
    for frame in both {
        assert_eq!(with[&frame], without[&frame], "frame {frame}");
    }
}
