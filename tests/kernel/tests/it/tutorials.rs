//! Tutorials of the manual and the README, followed literally: every command runs, as an
//! unprivileged user after `$` and as the superuser after `#`, and every shown line of its output
//! appears.
//!
//! Model. A page has fences with files (`toml NAME`) and sessions (`console`). A file named as the
//! daemon's configuration is appended to the configuration, as the text asks. Each user has one
//! shell for the page. Shown output consists of lines; `...` stands for any lines. Numbers with
//! their units are equal, because they differ from run to run: durations and counts of a page are
//! examples.
//!
//! Replaced, because they differ on this machine: the path of the configuration, the user `alice`,
//! the reload by systemd.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use talea_kernel_tests::bench::{copy, program};
use talea_kernel_tests::{ALICE, Bench, Daemon, Runs, eventually, needs_root};

/// Configuration file as the pages name it.
const CONFIGURATION: &str = "/etc/talea/talead.toml";

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(tree().join(path)).expect(path)
}

/// Line that follows the output of each command.
const END: &str = "--- end of a command ---";

/// Shell of one user. Dropping it ends its processes.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn new(bench: &Bench, daemon: &Daemon, uid: u32) -> Shell {
        let folder = program("talead").parent().expect("a folder").to_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("/bin/sh");
        command.current_dir(bench.path("work")).uid(uid).gid(uid).process_group(0);
        command.env("PATH", format!("{}:{path}", folder.display())).env("LC_ALL", "C");
        command.env("TALEA_SOCKET", daemon.socket()).env("HOME", bench.path("work"));
        command.env("PKG_CONFIG_PATH", bench.path("")).env("LD_LIBRARY_PATH", &folder);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Shell { child, input, output }
    }

    /// Runs a command line and returns its output. A line that ends with `&` goes on.
    fn run(&mut self, words: &str) -> String {
        let line = match words.strip_suffix(" &") {
            Some(words) => format!("{words} > /dev/null 2>&1 &\necho '{END}'\n"),
            None => format!("{{ {words}\n}} < /dev/null 2>&1\necho '{END}'\n"),
        };
        self.input.write_all(line.as_bytes()).expect("a shell reads");
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("text");
            assert!(read > 0, "the shell has ended: {printed}");
            if line.trim_end() == END {
                return printed;
            }
            printed.push_str(&line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id() as i32).expect("a process");
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Session in which the commands of one tutorial run.
struct Session<'a> {
    bench: &'a Bench,
    daemon: &'a Daemon,
    /// Text of the daemon's configuration.
    config: String,
    user: Shell,
    superuser: Shell,
    reloads: usize,
    /// All output so far.
    output: String,
}

impl<'a> Session<'a> {
    fn new(bench: &'a Bench, daemon: &'a Daemon, config: String) -> Session<'a> {
        let libraries = program("talead").parent().expect("a folder").to_owned();
        let headers = tree().join("crates/talea-capi/include");
        let package = format!(
            "Name: talea\nDescription: libtalea\nVersion: 1\nCflags: -I{}\nLibs: -L{} -ltalea\n",
            headers.display(),
            libraries.display()
        );
        bench.write("talea.pc", &package);
        std::fs::create_dir(bench.path("work")).expect("a folder");
        std::os::unix::fs::chown(bench.path("work"), Some(ALICE), Some(ALICE)).expect("chown");
        let user = Shell::new(bench, daemon, ALICE);
        let superuser = Shell::new(bench, daemon, 0);
        Session { bench, daemon, config, user, superuser, reloads: 0, output: String::new() }
    }

    fn play(&mut self, page: &str) {
        let text = read(page);
        let mut lines = text.lines().peekable();
        let mut commands = 0;
        while let Some(line) = lines.next() {
            let Some(fence) = line.strip_prefix("```") else { continue };
            let mut body: Vec<&str> = Vec::new();
            body.extend(lines.by_ref().take_while(|line| *line != "```"));
            if fence == "console" {
                commands += self.console(page, &body);
            } else if let Some(("toml", name)) = fence.split_once(' ') {
                self.file(name, &body.join("\n"));
            }
        }
        assert!(commands > 3, "{page} shows {commands} commands");
    }

    /// Writes a file of the page, or adds it to the daemon's configuration.
    fn file(&mut self, name: &str, text: &str) {
        let text = text.replace("\"alice\"", &format!("\"#{ALICE}\""));
        if CONFIGURATION.ends_with(&format!("/{name}")) {
            write!(self.config, "\n{text}\n").expect("a string grows");
            self.bench.write("talead.toml", &self.config);
        } else {
            self.bench.write(&format!("work/{name}"), &text);
        }
    }

    /// Runs the commands of a block and compares their output. Returns their number.
    fn console(&mut self, page: &str, body: &[&str]) -> usize {
        let is_command = |line: &&str| line.starts_with("$ ") || line.starts_with("# ");
        let mut rest = body;
        let mut commands = 0;
        while let Some((command, after)) = rest.split_first() {
            assert!(is_command(command), "{page}: {command:?} is not a command");
            let shown = after.iter().take_while(|line| !is_command(line)).count();
            let printed = self.run(command);
            self.output.push_str(&printed);
            appear(&after[..shown], &printed, &format!("{page}: {command}"));
            rest = &after[shown..];
            commands += 1;
        }
        commands
    }

    fn run(&mut self, line: &str) -> String {
        let (prompt, words) = line.split_at(2);
        if words == "systemctl reload talead" {
            self.daemon.reload(&self.config);
            self.reloads += 1;
            let log = || self.daemon.said_since_start();
            eventually("the daemon reloads", || {
                log().iter().filter(|line| line.contains("was reloaded")).count() == self.reloads
            });
            return String::new();
        }
        let config = self.bench.path("talead.toml");
        let words = words.replace(CONFIGURATION, &config.to_string_lossy());
        let shell = if prompt == "$ " { &mut self.user } else { &mut self.superuser };
        if !words.starts_with("talea compare") {
            return shell.run(&words);
        }
        let is_conclusive = |printed: &String| !printed.contains("inconclusive");
        let conclusive = Runs::at_least(1).repeat(|| Some(shell.run(&words)).filter(is_conclusive));
        conclusive.expect("one conclusive run")
    }
}

/// Builds the programs and the library of the tutorials once, and stages them beside the daemon.
/// `TALEA_BIN_DIR` names a folder that already contains them.
fn build() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(build_and_stage);
}

fn build_and_stage() {
    let own = std::env::current_exe().expect("our own path");
    let mut folder = own.parent().and_then(Path::parent).expect("a target folder").to_owned();
    if let Some(built) = std::env::var_os("TALEA_BIN_DIR") {
        folder = built.into();
    } else {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "-p", "talea-cli", "-p", "talea-capi", "--target-dir"]);
        cargo.arg(folder.parent().expect("a target folder")).current_dir(tree());
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo").success(), "the programs do not build");
    }
    let staged = program("talead").parent().expect("a folder").to_owned();
    copy(folder.join("talea"), staged.join("talea"));
    for name in ["libtalea.so", "libtalea.so.0"] {
        copy(folder.join("deps/libtalea.so"), staged.join(name));
    }
}

/// Asserts that the shown lines appear in the output, in this order.
fn appear(shown: &[&str], printed: &str, place: &str) {
    let printed_lines: Vec<String> = printed.lines().map(plain).collect();
    let mut at = 0;
    let mut may_skip = false;
    for line in shown {
        if *line == "..." {
            may_skip = true;
            continue;
        }
        let wanted = plain(line);
        let rest = &printed_lines[at.min(printed_lines.len())..];
        let found = rest.iter().position(|line| *line == wanted);
        let found = found.filter(|&found| found == 0 || may_skip);
        let Some(found) = found else {
            panic!("{place}\nshows {wanted:?}\nand printed:\n{printed}");
        };
        (at, may_skip) = (at + found + 1, false);
    }
    assert!(
        at == printed_lines.len() || shown.last() == Some(&"...") || shown.is_empty(),
        "{place}: more was printed:\n{printed}"
    );
}

/// Returns a line with each number and its unit as `0`, and with single spaces. A folder before a
/// file name is omitted.
fn plain(line: &str) -> String {
    let line = line.replace("alice", &ALICE.to_string());
    let mut plain = String::new();
    for word in line.split_whitespace() {
        let word = if word.contains('/') && !word.contains("ms/") {
            word.rsplit('/').next().unwrap_or(word)
        } else {
            word
        };
        let mut chars = word.chars().peekable();
        while let Some(c) = chars.next() {
            if !c.is_ascii_digit() {
                plain.push(c);
                continue;
            }
            plain.push('0');
            let mut before = c;
            while let Some(&next) = chars.peek() {
                let goes_on = next.is_ascii_digit() || (next == '.' && before.is_ascii_digit());
                if !goes_on {
                    break;
                }
                before = next;
                chars.next();
            }
            if before == '.' {
                plain.push('.');
            }
            // The unit of a duration.
            let rest: String = chars.clone().collect();
            if let Some(unit) = ["ns", "us", "ms", "s"].iter().find(|unit| {
                rest.strip_prefix(**unit)
                    .is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric()))
            }) {
                for _ in unit.chars() {
                    chars.next();
                }
            }
        }
        plain.push(' ');
    }
    // A bound may be printed as a range.
    plain.trim_end().replace("0..0", "0")
}

#[test]
fn numbers_and_their_units_are_equal_and_words_are_not() {
    assert_eq!(plain("audio  5ms 2.025ms 3"), plain("audio 10us  2s 400"));
    assert_eq!(plain("at /a/b/talead.toml:94 allows"), plain("at talead.toml:7 allows"));
    assert_ne!(plain("proved 5ms"), plain("unknown 5ms"));
    assert_eq!(plain("up to 5."), plain("up to 44."));
    assert_eq!(plain("2ms..2.54ms"), plain("3s"));
    appear(&["a 1", "...", "c"], "a 2\nb\nc\n", "here");
    assert!(std::panic::catch_unwind(|| appear(&["a", "c"], "a\nb\nc\n", "here")).is_err());
    assert!(std::panic::catch_unwind(|| appear(&["a"], "a\nb\n", "here")).is_err());
}

#[test]
fn the_readme_and_the_tutorial_of_a_program_print_what_they_show() {
    needs_root!();
    // Before the lock of the machine.
    build();
    let bench = Bench::new("tutorial-program");
    let rule = format!("[[rule]]\ndomain = \"#{ALICE}\"\nmax_utilization = 0.5\n");
    let config = format!("{}\n{rule}", read("etc/talead.toml"));
    let daemon = Daemon::start(&bench, &config);
    let mut session = Session::new(&bench, &daemon, config);
    for entry in std::fs::read_dir(tree().join("examples/convolver")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let to = bench.path("work").join(path.file_name().expect("a name"));
        std::fs::copy(&path, to).expect("a copy");
    }
    session.play("docs/manual/tutorial-program.md");
    session.play("README.md");
    let late: Vec<u32> =
        session.output.lines().filter_map(|line| line.split_once(" of ")?.0.parse().ok()).collect();
    let [before, after, inside, today, talea] = late[..] else { panic!("{}", session.output) };
    // Stalls of a virtual computer make some blocks late.
    assert!(before > 3 * after && before > 3 * inside && today > 3 * talea, "{late:?}");
}

#[test]
fn the_tutorial_of_rules_prints_what_it_shows() {
    needs_root!();
    // Before the lock of the machine.
    build();
    let bench = Bench::new("tutorial-rules");
    let config = read("etc/talead.toml");
    let daemon = Daemon::start(&bench, &config);
    Session::new(&bench, &daemon, config).play("docs/manual/tutorial-rules.md");
}

#[test]
fn the_tutorial_of_a_system_prints_what_it_shows() {
    needs_root!();
    // Before the lock of the machine.
    build();
    let bench = Bench::new("tutorial-system");
    let config = read("etc/talead.toml");
    let daemon = Daemon::start(&bench, &config);
    Session::new(&bench, &daemon, config).play("docs/manual/tutorial-system.md");
}
