//! The drone as an ordinary user's program, with the daemon and without it: a real user, real
//! `talead`, and what the program says.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use talea_kernel_tests::{ALICE, Bench, Daemon, config, kernel, needs, needs_root};

/// What a flight said.
struct Flight {
    out: String,
    err: String,
}

/// A flight of hers; it must end well.
fn flight(bench: &Bench, socket: &Path) -> Flight {
    let program = bench.path("drone");
    talea_kernel_tests::bench::copy(env!("CARGO_BIN_EXE_search-and-rescue"), &program);
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("its permissions");
    let mut command = Command::new(&program);
    command.env("TALEA_SOCKET", socket).current_dir("/").uid(ALICE).gid(ALICE);
    // Files, not pipes: nobody waits for a reader.
    let said = |name: &str| std::fs::File::create(bench.path(name)).expect("a file");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(said("out"))
        .stderr(said("err"))
        .spawn()
        .expect("it is started");
    // The turn that it has ends a test that hangs.
    let status = child.wait().expect("a child of ours");
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).expect("what it said");
    let flight = Flight { out: read("out"), err: read("err") };
    assert!(status.success(), "{status}: {}{}", flight.out, flight.err);
    flight
}

impl Flight {
    /// What was said of each frame that was sent, but for when and how; and for where the drone
    /// was, which it has from its last message.
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
                let of = sent.entry(frame).or_default();
                match line.strip_prefix("    ").and_then(|sighting| sighting.split_once(" at ")) {
                    Some((kind, rest)) => {
                        of.extend([kind, rest.rsplit(", ").next().unwrap_or_default()]);
                    }
                    None => of.extend(line.rsplit(": ").next()),
                }
            }
        }
        sent
    }
}

#[test]
fn y18_y22_an_ordinary_users_drone_is_real_time_with_the_daemon_and_sees_the_same_without() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("drone_user");
    // As in the manual.
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
    let left = client.list().expect("an answer").expect("a list");
    assert!(left.is_empty(), "everything was given back: {left:?}");
    daemon.terminate();

    let alone = flight(&bench, Path::new("/nonexistent"));
    assert_eq!(alone.err.matches("without real-time priorities").count(), 1, "once: {}", alone.err);
    assert!(
        alone.out.contains("\nwithout real-time priorities: nothing is promised\n"),
        "{}",
        alone.out
    );

    // What a late handler lets go by at the begin is in neither.
    let (with, without) = (granted.sent(), alone.sent());
    let both: Vec<u32> = with.keys().filter(|frame| without.contains_key(frame)).copied().collect();
    assert!(both.len() >= 10, "{both:?}: {}{}", granted.out, alone.out);
    for frame in both {
        assert_eq!(with[&frame], without[&frame], "frame {frame}");
    }
}
