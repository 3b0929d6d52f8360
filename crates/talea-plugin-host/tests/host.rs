//! The host from the daemon's side: a socket and a process.

mod paper;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use talea_os::spawn::{Child, Sandbox, spawn_sandboxed};
use talea_proto::host::{
    HOST_VERSION, HostRank, HostRequest, HostResponse, HostSetup, PluginFunction, RANKS_MAX,
    RESPONSE_MAX, class, failure,
};
use zerocopy::IntoBytes;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Header of the present version.
const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
/// Header of version 1, as plugins of that time were compiled against it.
const HEADER_OF_ABI_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/abi1");

/// Compiles `source` to a shared object that any user may read.
fn build(name: &str, source: &Path) -> PathBuf {
    build_with(HEADER, name, source)
}

fn build_with(header: &str, name: &str, source: &Path) -> PathBuf {
    let object = directory().join(format!("{name}.so"));
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-shared", "-fPIC", "-o"])
        .arg(&object)
        .arg(format!("-I{header}"))
        .arg(source)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

fn build_text(name: &str, text: &str) -> PathBuf {
    let source =
        std::env::temp_dir().join(format!("talea-host-test-{}-{name}.c", std::process::id()));
    std::fs::write(&source, text).expect("write");
    let object = build(name, &source);
    std::fs::remove_file(source).expect("remove");
    object
}

struct Host {
    child: Child,
    socket: OwnedFd,
    said: File,
}

impl Host {
    fn start(module: &Path, argument: &str) -> (Host, HostResponse) {
        Host::start_with(&setup(module, argument))
    }

    fn start_with(message: &[u8]) -> (Host, HostResponse) {
        let (ours, theirs) = talea_os::seqpacket::pair(false).expect("a pair of sockets");
        talea_os::seqpacket::set_timeout(&ours, std::time::Duration::from_secs(10))
            .expect("time-out");
        let root = rustix::process::geteuid().is_root();
        let sandbox = Sandbox { user: root.then_some((65534, 65534)), ..Sandbox::default() };
        let (said, stderr) = pipe();
        let exe = stage(Path::new(env!("CARGO_BIN_EXE_talea-plugin-host")));
        let child = loop {
            let ends = (theirs.try_clone().expect("a socket"), stderr.try_clone().expect("a pipe"));
            match spawn_sandboxed(&exe, [""; 0], ends.0, ends.1.into(), &sandbox) {
                // Another test has just forked a process, which for a moment has every descriptor
                // open, also the one with which this one was written.
                Err(busy) if busy.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::yield_now();
                }
                child => break child.expect("host"),
            }
        };
        drop((theirs, stderr));
        rustix::net::send(&ours, message, SendFlags::NOSIGNAL).expect("send");
        let host = Host { child, socket: ours, said };
        let answer = host.answer().expect("an answer to the setup");
        (host, answer)
    }

    fn answer(&self) -> Option<HostResponse> {
        self.answer_with_ranks().map(|(answer, _)| answer)
    }

    fn answer_with_ranks(&self) -> Option<(HostResponse, Vec<HostRank>)> {
        let mut bytes = [0; RESPONSE_MAX + 1];
        let (length, _) = rustix::net::recv(&self.socket, &mut bytes, RecvFlags::empty()).ok()?;
        HostResponse::read_message(&bytes[..length])
    }

    fn ask(&self, question: &HostRequest) -> Option<HostResponse> {
        self.ask_with_ranks(question).map(|(answer, _)| answer)
    }

    fn ask_with_ranks(&self, question: &HostRequest) -> Option<(HostResponse, Vec<HostRank>)> {
        rustix::net::send(&self.socket, question.as_bytes(), SendFlags::NOSIGNAL).ok()?;
        self.answer_with_ranks()
    }

    /// Ends the connection; returns the host's output and its exit status.
    fn end(self) -> (String, ExitStatus) {
        let Host { mut child, socket, mut said } = self;
        drop(socket);
        let status = child.wait().expect("wait");
        let mut text = String::new();
        said.read_to_string(&mut text).expect("read");
        (text, status)
    }
}

/// Returns the first message to a host of a FIFO instance.
fn setup(module: &Path, argument: &str) -> Vec<u8> {
    setup_of(module, argument, class::FIFO, (10, 19), 0b11, 0xe666_6666_6666_6667)
}

/// Returns the first message to a host with these priorities, CPUs and share of the deadline class.
fn setup_of(
    module: &Path,
    argument: &str,
    class: u32,
    (low, high): (u8, u8),
    cpus: u64,
    deadline_share: u64,
) -> Vec<u8> {
    let mut words = [0; 16];
    words[0] = cpus;
    let mut name = [0; 32];
    name[..4].copy_from_slice(b"test");
    let module = module.to_str().expect("a path");
    let setup = HostSetup {
        version: HOST_VERSION,
        priority_low: low.into(),
        priority_high: high.into(),
        module_len: module.len() as u16,
        argument_len: argument.len() as u16,
        cpus: words,
        name,
        class,
        reserved: 0,
        deadline_share,
        period_min_ns: 100_000,
        period_max_ns: 4_194_304_000,
    };
    let mut message = setup.as_bytes().to_vec();
    message.extend(module.bytes());
    message.extend(argument.bytes());
    message
}

/// Creates a pipe: a file would run into the limit on file sizes of the host.
fn pipe() -> (File, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    (File::from(read), write)
}

/// Copies the program to a place where another user can execute it.
fn stage(exe: &Path) -> PathBuf {
    let staged = directory().join("talea-plugin-host");
    if !staged.exists() {
        let fresh = staged.with_extension(format!("{:?}", std::thread::current().id()));
        std::fs::copy(exe, &fresh).expect("copy");
        std::fs::rename(fresh, &staged).expect("rename");
    }
    staged
}

fn directory() -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let directory = std::env::temp_dir().join(format!("talea-host-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("scratch folder");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).expect("mode");
    directory
}

fn question(call: PluginFunction, spec: u64) -> HostRequest {
    let mut question = HostRequest::ZERO;
    question.ticket = 7;
    question.call = call as u32;
    question.spec = spec;
    question.priority = 50;
    question.cpus[0] = 0b11;
    question
}

/// The example, compiled against the header of version 1 and against the present one, gives the
/// same answers.
#[test]
fn r18_the_example_places_on_the_least_loaded_cpu() {
    let source = Path::new(ROOT).join("examples/plugin-least-loaded/least_loaded.c");
    places_on_the_least_loaded_cpu(&build_with(HEADER_OF_ABI_1, "least_loaded_1", &source));
    places_on_the_least_loaded_cpu(&build("least_loaded", &source));
}

fn places_on_the_least_loaded_cpu(object: &Path) {
    let (host, ready) = Host::start(object, "");
    assert_eq!(ready.verdict, 0);
    let mut places = Vec::new();
    for spec in 1..=4 {
        let answer = host.ask(&question(PluginFunction::Accept, 0)).expect("an answer");
        assert_eq!((answer.ticket, answer.verdict), (7, 1));
        assert_eq!(answer.priority, 10 + 49 * 9 / 98);
        let mut placed = question(PluginFunction::Schedule, spec);
        (placed.place.cpu, placed.place.priority) = (answer.cpu, answer.priority);
        host.ask(&placed).expect("an answer");
        places.push(answer.cpu);
    }
    assert_eq!(places, [0, 1, 0, 1]);
    host.ask(&question(PluginFunction::Release, 2)).expect("an answer");
    assert_eq!(host.ask(&question(PluginFunction::Accept, 0)).expect("an answer").cpu, 1);
    // Without spec 1, CPU 0 has one task, as CPU 1 has: the tie goes to the lower number.
    assert_eq!(host.ask(&question(PluginFunction::Change, 1)).expect("an answer").cpu, 0);
    let mut nothing = question(PluginFunction::Accept, 0);
    nothing.priority = 0;
    assert_eq!(host.ask(&nothing).expect("an answer").verdict, -1);
    let (said, status) = host.end();
    assert!(status.success(), "{said}");
    assert_eq!(said, "");
}

/// A plugin of version 1 gets the sizes of version 1, and the host uses no field of version 2 of
/// its answer.
#[test]
fn r18_a_plugin_of_version_1_sees_and_answers_only_version_1() {
    let text = format!(
        "{STUBS}
        static int32_t judge(void *s, const struct talea_plugin_task *t, struct talea_plugin_place *p)
        {{ (void)s; memset(p, 0x55, 264); p->cpu = 1; p->priority = 12;
           return t->size == 176 && sizeof *p == 16 ? t->priority == 50 : 7; }}
        static int32_t init(const struct talea_plugin_setup *setup, void **self)
        {{ (void)self; return setup->size == 160 ? 0 : 1; }}
        {TABLE}"
    );
    let source = directory().join("version_1.c");
    std::fs::write(&source, &text).expect("write");
    let (host, ready) = Host::start(&build_with(HEADER_OF_ABI_1, "version_1", &source), "");
    assert_eq!(ready.verdict, 0);
    let answer = host.ask(&question(PluginFunction::Accept, 0)).expect("an answer");
    let expected =
        HostResponse { ticket: 7, verdict: 1, cpu: 1, priority: 12, ..HostResponse::NOTHING };
    assert_eq!(answer, expected);
    let (_, ranks) =
        host.ask_with_ranks(&question(PluginFunction::Schedule, 1)).expect("an answer");
    assert_eq!(ranks, []);
    assert!(host.end().1.success());
}

/// Grants a runtime, gives levels and reasons, and sees the facts of the deadline class.
#[test]
fn r18_a_plugin_of_version_2_grants_ranks_and_tells() {
    let text = format!(
        "{STUBS}
        static uint64_t held; static int32_t left = 300;
        static int32_t judge(void *s, const struct talea_plugin_task *t, struct talea_plugin_place *p)
        {{ (void)s;
           if (!talea_plugin_has_cpu(&t->preferred, 1)) {{ snprintf(p->reason, sizeof p->reason, \"no CPU 1\"); return -1; }}
           p->cpu = 1; p->priority = 12; p->runtime_ns = t->desired_ns; return 1; }}
        static int32_t init(const struct talea_plugin_setup *setup, void **self)
        {{ (void)self; return setup->sched_class == TALEA_PLUGIN_FIFO && setup->deadline_share >> 60 == 14
           && setup->period_min_ns == 100000 && setup->period_max_ns == 4194304000 ? 0 : 1; }}
        static void keep(void *s, uint64_t id, const struct talea_plugin_task *t, const struct talea_plugin_place *p)
        {{ (void)s, (void)t; held = p->runtime_ns == 9 ? id : 0; }}
        static int32_t rank(void *s, struct talea_plugin_rank *ranks, int32_t room)
        {{ (void)s; int32_t n = left < room ? left : room; left -= n;
           for (int32_t i = 0; i < n; i++) ranks[i] = (struct talea_plugin_rank){{ .id = held, .priority = 10 + i % 10 }};
           return n; }}
        const struct talea_plugin *talea_plugin_entry(uint32_t abi)
        {{ static const struct talea_plugin plugin = {{ .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init,
            .accept = judge, .change = change, .schedule = keep, .release = news, .attach = news, .detach = news,
            .rank = rank }};
           (void)schedule; return abi == TALEA_PLUGIN_ABI ? &plugin : 0; }}"
    );
    let (host, ready) = Host::start(&build_text("version_2", &text), "");
    assert_eq!(ready.verdict, 0);
    let mut asked = question(PluginFunction::Accept, 0);
    (asked.runtime_ns, asked.desired_ns) = (3, 9);
    let refused = host.ask(&asked).expect("an answer");
    assert_eq!((refused.verdict, refused.cpu), (-1, -1));
    assert_eq!(&refused.reason[..9], b"no CPU 1\0");
    asked.preferred[0] = 0b10;
    let granted = host.ask(&asked).expect("an answer");
    assert_eq!((granted.verdict, granted.cpu, granted.runtime_ns), (1, 1, 9));
    let mut placed = question(PluginFunction::Schedule, 77);
    placed.place.runtime_ns = 9;
    let (answer, ranks) = host.ask_with_ranks(&placed).expect("an answer");
    assert_eq!((answer.ranks as usize, ranks.len()), (RANKS_MAX, RANKS_MAX));
    assert_eq!(ranks[3], HostRank { spec: 77, priority: 13, reserved: 0 });
    let (_, rest) = host.ask_with_ranks(&question(PluginFunction::Rank, 0)).expect("an answer");
    assert_eq!(rest.len(), 300 - RANKS_MAX);
    assert!(host.end().1.success());
}

const STUBS: &str = r#"
#include "talea_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void news(void *s, uint64_t id) { (void)s, (void)id; }
static void schedule(void *s, uint64_t id, const struct talea_plugin_task *t, const struct talea_plugin_place *p)
{ (void)s, (void)id, (void)t, (void)p; }
static int32_t change(void *s, uint64_t id, const struct talea_plugin_task *t, struct talea_plugin_place *p)
{ (void)s, (void)id, (void)t, (void)p; return -1; }
"#;

const TABLE: &str = r"
const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = { .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init,
        .accept = judge, .change = change, .schedule = schedule, .release = news, .attach = news, .detach = news };
    return abi == TALEA_PLUGIN_ABI ? &plugin : 0;
}
";

#[test]
fn r18_init_gets_its_argument_and_may_refuse() {
    let text = format!(
        "{STUBS}
        static int32_t judge(void *s, const struct talea_plugin_task *t, struct talea_plugin_place *p)
        {{ (void)s, (void)t, (void)p; return -1; }}
        static int32_t init(const struct talea_plugin_setup *setup, void **self)
        {{ (void)self; fprintf(stderr, \"%s wants %s\\n\", setup->name, setup->argument); return 42; }}
        {TABLE}"
    );
    let (host, answer) = Host::start(&build_text("refuses", &text), "an argument");
    assert_eq!(answer.verdict, 42);
    let (said, status) = host.end();
    assert!(!status.success());
    assert!(said.contains("test wants an argument"), "{said}");
    assert!(said.contains("its init returned 42"), "{said}");
}

#[test]
fn r18_retif_m8_an_invalid_plugin_is_refused_with_a_reason() {
    let (host, answer) = Host::start(Path::new("/nonexistent/plugin.so"), "");
    assert_eq!(answer.verdict, failure::LOAD);
    assert!(host.end().0.contains("/nonexistent/plugin.so"));

    let (host, answer) = Host::start(&build_text("empty", "int nothing;\n"), "");
    assert_eq!(answer.verdict, failure::LOAD);
    assert!(host.end().0.contains("talea_plugin_entry"));

    let other = "#include \"talea_plugin.h\"
        const struct talea_plugin *talea_plugin_entry(uint32_t abi)
        { static const struct talea_plugin plugin = { .size = sizeof plugin, .abi = 9 }; (void)abi; return &plugin; }";
    let (host, answer) = Host::start(&build_text("version", other), "");
    assert_eq!(answer.verdict, failure::LOAD);
    assert!(host.end().0.contains("version 9"));

    let incomplete = "#include \"talea_plugin.h\"
        const struct talea_plugin *talea_plugin_entry(uint32_t abi)
        { static const struct talea_plugin plugin = { .size = sizeof plugin, .abi = 1 }; (void)abi; return &plugin; }";
    let (host, answer) = Host::start(&build_text("incomplete", incomplete), "");
    assert_eq!(answer.verdict, failure::LOAD);
    assert!(host.end().0.contains("no `init`"));
}

/// Number of calls by which `hostile.c` tries to reach a file, a process, the network or a right.
const ESCAPES: usize = 44;
/// Number of calls in it that a plugin needs.
const NEEDS: usize = 4;

/// The calls run twice: in a constructor of the shared object, which is the first code of a plugin,
/// and in an answer.
#[test]
fn attack_23_r18_a_plugin_can_do_nothing_but_compute() {
    // The host cannot ask for its parent.
    let daemon = std::process::id();
    let text = format!("#define DAEMON {daemon}\n{}", include_str!("plugins/hostile.c"));
    let (host, ready) = Host::start(&build_text("breaks_out", &text), "");
    assert_eq!(ready.verdict, 0);
    let answer = host.ask(&question(PluginFunction::Accept, 0)).expect("an answer");
    assert_eq!(answer.verdict, 1);
    let (said, _) = host.end();
    if std::env::var_os("TALEA_MEASURE").is_some() {
        println!("{said}");
    }
    let runs: Vec<&str> = said.split("==\n").collect();
    assert_eq!(runs.len(), 3, "{said}");
    for run in &runs[..2] {
        let (escapes, needs) = run.split_once("--\n").expect("both lists");
        let granted: Vec<&str> =
            escapes.lines().filter(|line| !line.starts_with("cannot ")).collect();
        assert!(granted.is_empty(), "{granted:#?}");
        assert_eq!(escapes.lines().count(), ESCAPES);
        let missing: Vec<&str> = needs.lines().filter(|line| !line.starts_with("can ")).collect();
        assert!(missing.is_empty() && needs.lines().count() == NEEDS, "{missing:#?}");
    }
}

#[test]
fn attack_23_a_plugin_has_no_protection_from_the_out_of_memory_killer() {
    let own = Path::new("/proc/self/oom_score_adj");
    let before = std::fs::read_to_string(own).expect("readable");
    // Refused without rights; then this process is as unprotected as the host must be.
    let _ = std::fs::write(own, "-500");
    let module =
        build("least_loaded", &Path::new(ROOT).join("examples/plugin-least-loaded/least_loaded.c"));
    let (host, ready) = Host::start(&module, "");
    let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", host.child.pid()));
    std::fs::write(own, before).expect("as before");
    assert_eq!((ready.verdict, score.expect("readable").trim()), (0, "0"));
    host.end();
}

/// The supervisor of a service ends the host with the connection.
#[test]
fn attack_23_a_service_ends_a_plugin_that_hangs() {
    let text = format!(
        "{STUBS}
        #include <unistd.h>
        static int32_t init(const struct talea_plugin_setup *setup, void **self)
        {{ (void)setup, (void)self; fputs(\"hangs\\n\", stderr); for (;;) sleep(1); return 0; }}
        static int32_t judge(void *s, const struct talea_plugin_task *t, struct talea_plugin_place *p)
        {{ (void)s, (void)t, (void)p; return 0; }}
        {TABLE}"
    );
    let module = build_text("hangs", &text);
    let exe = stage(Path::new(env!("CARGO_BIN_EXE_talea-plugin-host")));
    let (ours, theirs) = talea_os::seqpacket::pair(false).expect("a pair of sockets");
    let root = rustix::process::geteuid().is_root();
    // The service manager has no such filter; the supervisor forks.
    let user = root.then_some((65534, 65534));
    let sandbox = Sandbox { user, seccomp: false, ..Sandbox::default() };
    let start = format!("export LISTEN_FDS=1 LISTEN_PID=$$; exec {}", exe.display());
    let (_said, stderr) = pipe();
    let mut service =
        spawn_sandboxed(Path::new("/bin/sh"), ["-c", &start], theirs, stderr.into(), &sandbox)
            .expect("a service");
    // The standard error of the plugin comes with the setup.
    let (mut of_plugin, pass) = pipe();
    talea_os::seqpacket::send(&ours, &setup(&module, ""), Some(pass.as_fd())).expect("send");
    drop(pass);
    let mut line = [0; 6];
    of_plugin.read_exact(&mut line).expect("a plugin in `init`");
    assert_eq!(&line, b"hangs\n");
    drop(ours);
    // The pipe ends with the plugin.
    let mut end = [PollFd::new(&of_plugin, PollFlags::empty())];
    let watchdog = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut end, Some(&watchdog)), Ok(1), "the plugin survives the connection");
    service.wait().expect("the supervisor ends, too");
}
