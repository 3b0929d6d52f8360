//! Allowed dependencies between packages, each with its reason.
//!
//! An edge without a line in the table is an error, and so is a line without an edge.

use crate::metadata;
use std::collections::BTreeSet;
use std::process::Command;

/// Edges of ordinary dependencies: package, dependency, reason.
const EDGES: &[(&str, &str, &str)] = &[
    ("talea-proto", "talea-core", "messages carry parameters, charges and attributes"),
    ("talea-proto", "zerocopy", "fixed layouts without unsafe"),
    ("talea-os", "talea-core", "sets the attributes that the core defines"),
    ("talea-os", "libc", "system calls that rustix has not"),
    ("talea-os", "rustix", "system calls"),
    ("talea-exec", "talea-core", "drives its engine"),
    ("talea-exec", "talea-os", "system calls"),
    ("talea-runtime", "talea-client", "requests its rights"),
    ("talea-runtime", "talea-core", "declares its trees"),
    ("talea-runtime", "talea-exec", "runs them"),
    ("talea-runtime", "talea-os", "CPUs of the process"),
    ("talea-runtime", "talea-config", "texts of a file"),
    ("talea-runtime", "talea-system", "an application as a system file"),
    (
        "talea-runtime",
        "crossbeam-queue",
        "data between jobs, which may be stopped while they move one",
    ),
    ("talea-analysis", "talea-core", "tests are about the core's tasks"),
    ("talea-sim", "talea-core", "drives its engine"),
    ("talea-config", "talea-core", "a file becomes the core's setup"),
    ("talea-config", "toml", "its parser keeps positions and recovers from errors"),
    ("talea-system", "talea-config", "diagnostics, and tables with positions"),
    ("talea-system", "talea-core", "a file becomes the core's trees"),
    ("talea-system", "toml", "its parser keeps positions and recovers from errors"),
    (
        "talea-import",
        "talea-config",
        "diagnostics, and the configuration that ReTiF's files become",
    ),
    ("talea-import", "talea-core", "time and mutation points"),
    ("talea-import", "talea-system", "the system that a file becomes"),
    ("talea-import", "roxmltree", "reads SF3P's XML, with positions"),
    ("talea-broker", "talea-core", "decides over the core's values"),
    ("talea-broker", "talea-analysis", "admission tests of `rm`"),
    ("talea-broker", "talea-proto", "requests in, replies out"),
    ("talea-deploy", "talea-core", "attributes, CPUs and times"),
    ("talea-deploy", "serde", "generations, records and requests as JSON"),
    ("talea-deploy", "serde_json", "generations, records and requests as JSON"),
    ("talea-deployd", "talea-client", "reserves its CPUs in the ledger of the daemon"),
    ("talea-deployd", "talea-core", "times and attributes"),
    ("talea-deployd", "talea-deploy", "the decisions"),
    ("talea-deployd", "talea-os", "system calls"),
    ("talea-deployd", "talea-proto", "the task that reserves a CPU"),
    ("talea-deployd", "lexopt", "a few options"),
    ("talea-deployd", "rustix", "files and error numbers"),
    ("talea-deployd", "sd-notify", "readiness under a service manager"),
    ("talea-governor", "talea-core", "CPUs"),
    ("talea-governor", "talea-exec", "the run"),
    ("talea-governor", "talea-os", "control groups, signals"),
    ("talea-governor", "talea-system", "the system file"),
    ("talea-governor", "anyhow", "a binary's errors"),
    ("talea-governor", "lexopt", "a few options"),
    ("talea-governor", "rustix", "poll"),
    ("talea-governor", "sd-notify", "readiness under a service manager"),
    ("talea-governor", "serde", "statistics"),
    ("talea-governor", "serde_json", "statistics in JSON"),
    ("talea-plugin-host", "talea-core", "mutation points"),
    ("talea-plugin-host", "talea-proto", "the questions of the daemon"),
    ("talea-plugin-host", "libloading", "loads the object in a process apart from the daemon"),
    ("talea-plugin-host", "landlock", "keeps plugins from files and processes"),
    ("talea-plugin-host", "libc", "drops its rights and enters its sandbox"),
    ("talea-plugin-host", "rustix", "its end of the socket"),
    ("talea-plugin-host", "zerocopy", "the fixed layouts of its questions"),
    ("talea-daemon", "talea-core", "time and attributes"),
    ("talea-daemon", "talea-broker", "the decisions"),
    ("talea-daemon", "talea-proto", "the wire"),
    ("talea-daemon", "talea-os", "system calls"),
    ("talea-daemon", "talea-config", "its configuration"),
    ("talea-daemon", "lexopt", "a few options"),
    ("talea-daemon", "rustix", "files and sockets"),
    ("talea-daemon", "sd-notify", "readiness under a service manager"),
    ("talea-daemon", "zerocopy", "the fixed layouts of plugin host messages"),
    ("talea-client", "talea-core", "parameters"),
    ("talea-client", "talea-proto", "the wire"),
    ("talea-client", "talea-os", "sockets, pidfds and clocks"),
    ("talea-client", "rustix", "system calls"),
    ("talea-client", "thiserror", "one error enum"),
    ("talea-rtkit", "talea-client", "requests to the daemon"),
    ("talea-rtkit", "talea-core", "parameters"),
    ("talea-rtkit", "talea-os", "threads by pidfd"),
    ("talea-rtkit", "talea-proto", "requests, and sentences of refusals"),
    ("talea-rtkit", "anyhow", "a binary's errors"),
    ("talea-rtkit", "lexopt", "a few options"),
    ("talea-rtkit", "rustix", "pidfds of callers"),
    ("talea-rtkit", "zbus", "D-Bus: its wire, and an object with properties"),
    ("talea-rtkit", "zruntime", "threads for requests beside the bus; the runtime of zbus"),
    ("talea-capi", "talea-core", "parameters"),
    ("talea-capi", "talea-client", "the functions for C"),
    ("talea-capi", "talea-proto", "refusals become C values"),
    ("talea-capi", "talea-runtime", "applications of tasks, given to C"),
    (
        "talea-capi",
        "crossbeam-queue",
        "free places of channels, which jobs take that may be stopped meanwhile",
    ),
    ("talea-capi", "libc", "C's types and errno"),
    ("talea-object", "talea-core", "policies and servers of an object are the core's"),
    ("talea-object", "talea-os", "files that no other user can change"),
    ("talea-object", "talea-system", "a file names what an object has"),
    ("talea-object", "libloading", "loads the object in the process of a run"),
    ("talea-object", "rustix", "whether the process is root's"),
    ("talea-object", "thiserror", "one error enum"),
    ("talea-study", "talea-core", "what runs"),
    ("talea-study", "talea-proto", "the exit code of a refusal"),
    ("talea-study", "talea-os", "clocks, and files of bounded size"),
    ("talea-study", "talea-config", "durations of options, diagnostics"),
    ("talea-study", "talea-system", "systems to run"),
    ("talea-study", "talea-sim", "simulates, and draws what sinks record"),
    ("talea-study", "talea-exec", "runs on threads"),
    ("talea-study", "talea-analysis", "bounds"),
    ("talea-study", "anyhow", "errors of binaries"),
    ("talea-study", "clap", "options that commands share"),
    ("talea-study", "serde", "JSON output"),
    ("talea-study", "serde_json", "JSON output"),
    (
        "talea-study",
        "toml_edit",
        "sweep changes values of a file and leaves its lines where they are",
    ),
    ("talea-study", "rustix", "system calls"),
    ("talea-lab", "talea-core", "parameters"),
    ("talea-lab", "talea-client", "requests to the daemon under measurement"),
    ("talea-lab", "talea-proto", "sizes of messages"),
    ("talea-lab", "talea-os", "state of the kernel"),
    ("talea-lab", "talea-config", "the configuration of the daemon under measurement"),
    ("talea-lab", "talea-system", "systems of the papers"),
    ("talea-lab", "talea-import", "SF3P's examples"),
    ("talea-lab", "talea-sim", "simulates the experiments"),
    ("talea-lab", "talea-exec", "runs them on threads"),
    ("talea-lab", "talea-runtime", "measures it"),
    ("talea-lab", "talea-study", "live runs, comparison, pictures"),
    ("talea-lab", "search-and-rescue", "runs it"),
    ("talea-lab", "talea-analysis", "bounds, and their speed"),
    ("talea-lab", "talea-broker", "the speed of admission"),
    ("talea-lab", "talea-daemon", "the daemon under measurement"),
    ("talea-lab", "anyhow", "a binary's errors"),
    ("talea-lab", "clap", "its options"),
    ("talea-lab", "serde", "JSON output"),
    ("talea-lab", "rustix", "system calls"),
    ("talea-lab", "serde_json", "answers of `talea deploy`"),
    ("talea-lab", "sha1", "answers of the echo server of L3C's experiments"),
    ("talea-cli", "talea-core", "parameters"),
    ("talea-cli", "talea-client", "requests to the daemon"),
    ("talea-cli", "talea-proto", "prints answers"),
    ("talea-cli", "talea-os", "state of the kernel"),
    ("talea-cli", "talea-config", "check, and durations of options"),
    ("talea-cli", "talea-deploy", "generations to plan"),
    ("talea-cli", "talea-object", "policies and servers of `--object`"),
    ("talea-cli", "talea-system", "system files"),
    ("talea-cli", "talea-import", "import"),
    ("talea-cli", "talea-sim", "simulate"),
    ("talea-cli", "talea-exec", "execute"),
    ("talea-cli", "talea-study", "runs and their results"),
    ("talea-cli", "talea-analysis", "latencies of chains"),
    ("talea-cli", "talea-daemon", "the driver of that broker"),
    ("talea-cli", "anyhow", "a binary's errors"),
    ("talea-cli", "clap", "the one list of options"),
    ("talea-cli", "clap_complete", "completions from that list"),
    ("talea-cli", "clap_mangen", "man pages from that list"),
    ("talea-cli", "serde", "JSON output"),
    ("talea-cli", "serde_json", "reads the audit trail"),
    ("talea-cli", "toml_edit", "texts in quotes, and the file that a sweep changes"),
    ("talea-cli", "libc", "constants of signals and errors"),
    ("talea-cli", "rustix", "system calls"),
    ("talea-kernel-tests", "talea-core", "parameters"),
    (
        "talea-kernel-tests",
        "talea-client",
        "attackers and honest programs use the library of users",
    ),
    ("talea-kernel-tests", "talea-deploy", "requests to the daemon of deployments"),
    ("talea-kernel-tests", "talea-os", "state of the kernel"),
    ("talea-kernel-tests", "talea-proto", "messages to the daemon without the client"),
    ("talea-kernel-tests", "rustix", "system calls"),
    ("talea-guest-tests", "rustix", "a first process mounts and switches off"),
    ("policy-edf-us", "talea-core", "the trait of a policy"),
    ("policy-llf", "talea-core", "the trait of a policy"),
    ("policy-llf", "talea-sim", "simulates the system"),
    ("policy-llf", "talea-system", "its name in a system file"),
    ("server-saver", "talea-core", "the trait of a server"),
    (
        "search-and-rescue",
        "talea-client",
        "the emulated device has a priority, which the daemon may have to grant",
    ),
    ("search-and-rescue", "talea-core", "additions to the system file of the runtime"),
    ("search-and-rescue", "talea-os", "the emulated device has a priority, costs are CPU time"),
    ("search-and-rescue", "talea-runtime", "the application"),
    ("search-and-rescue", "talea-system", "the application as a file"),
    ("search-and-rescue", "aes", "the cipher of secure mode"),
    ("search-and-rescue", "ctr", "the mode of that cipher"),
    ("search-and-rescue", "mavlink", "messages of the flight controller"),
    ("search-and-rescue", "num-traits", "one set of features for mavlink, with and without tests"),
    ("xtask", "anyhow", "a binary's errors"),
    ("xtask", "lexopt", "a few options"),
    ("xtask", "rustix", "kills hanging processes"),
    ("xtask", "serde_json", "messages of cargo"),
    ("xtask", "toml", "the registry of mutation points"),
];

/// Edges of tests: package, dependency, reason.
const TEST_EDGES: &[(&str, &str, &str)] = &[
    ("talea-study", "talea-broker", "admission agrees with the analysis"),
    ("talea-analysis", "allocation-counter", "counts allocations of a test in its scratch: none"),
    ("talea-analysis", "serde_json", "reads the answers of other tools"),
    ("talea-analysis", "talea-sim", "bounds against simulations, witnesses replayed"),
    ("talea-capi", "talea-kernel-tests", "one run at a time on the CPUs"),
    ("talea-capi", "talea-os", "tests look at real threads"),
    ("talea-capi", "rustix", "tests make system calls"),
    ("talea-cli", "talea-kernel-tests", "tests run against its daemon and its threads"),
    ("talea-rtkit", "talea-kernel-tests", "a real daemon, and users that call"),
    ("talea-rtkit", "serde_json", "the list and the checks of the command-line tool"),
    ("talea-lab", "talea-kernel-tests", "one run at a time on the CPUs"),
    ("talea-exec", "loom", "all interleavings of the mailbox"),
    ("talea-exec", "talea-sim", "the simulator is the reference model of the loop"),
    ("talea-runtime", "proptest", "random applications"),
    ("talea-runtime", "stats_alloc", "counts allocations of its threads: none"),
    ("policy-edf-us", "talea-sim", "its definition against the simulated engine"),
    ("server-saver", "talea-sim", "simulates the example's system"),
    ("server-saver", "talea-system", "reads the example's system"),
    ("talea-runtime", "policy-edf-us", "a policy that the runtime does not know"),
    ("talea-runtime", "talea-kernel-tests", "one run at a time on the CPUs"),
    ("talea-runtime", "talea-sim", "an application against the simulation of its own file"),
    ("search-and-rescue", "talea-kernel-tests", "one flight at a time on the CPUs"),
    ("talea-kernel-tests", "talea-exec", "real runs"),
    ("talea-kernel-tests", "talea-sim", "real runs against simulated ones"),
    ("talea-kernel-tests", "talea-system", "systems to run are files"),
    ("talea-guest-tests", "talea-core", "times and orders"),
    ("talea-guest-tests", "talea-exec", "runs whose clock is exact"),
    ("talea-guest-tests", "talea-kernel-tests", "a daemon and clients on eight CPUs"),
    ("talea-guest-tests", "talea-os", "the same without the executor"),
    ("talea-guest-tests", "talea-proto", "requests and replies"),
    ("talea-guest-tests", "talea-sim", "runs against simulated ones"),
    ("talea-guest-tests", "talea-import", "SF3P's examples"),
    ("talea-guest-tests", "talea-system", "systems to run are files"),
    ("talea-guest-tests", "serde_json", "grants as the tool lists them"),
    ("talea-plugin-host", "talea-broker", "tests compare plugins in C with the built-in ones"),
    ("talea-plugin-host", "talea-os", "tests start it as the daemon does"),
    ("talea-object", "policy-llf", "schedules of the same policy in C are equal"),
    ("talea-object", "talea-sim", "simulates the schedules"),
    ("talea-proto", "proptest", "reading what was written"),
    ("talea-sim", "allocation-counter", "counts what a run allocates: nothing"),
    ("talea-sim", "serde_json", "reads the schedules of other tools"),
    ("talea-config", "proptest", "reading what was written"),
    ("talea-import", "talea-sim", "imported systems do what the papers say"),
    ("talea-system", "talea-sim", "the shipped systems do what the papers say"),
];

#[test]
fn dependencies_point_one_way() {
    let mut findings = Vec::new();
    for (kind, table) in [("normal", EDGES), ("dev", TEST_EDGES)] {
        let built = edges(kind);
        let allowed: BTreeSet<_> =
            table.iter().map(|&(from, to, _)| (from.to_owned(), to.to_owned())).collect();
        for (from, to) in built.difference(&allowed) {
            findings.push(format!("{from} uses {to} ({kind}): add a line with a reason to xtask/tests/tidy/dependencies.rs, or remove the dependency"));
        }
        for (from, to) in allowed.difference(&built) {
            findings.push(format!(
                "{from} no longer uses {to} ({kind}): remove the line from the table"
            ));
        }
    }
    findings.extend(
        edges("build")
            .iter()
            .map(|(from, to)| format!("{from} uses {to} as a build dependency: none is allowed")),
    );
    crate::none(&findings);
}

#[test]
fn no_package_depends_on_the_ends_of_the_chain() {
    for end in [
        "talea-cli",
        "talea-lab",
        "talea-capi",
        "talea-plugin-host",
        "policy-edf-us",
        "policy-llf",
        "server-saver",
        "xtask",
    ] {
        assert!(edges("normal").iter().all(|(_, to)| to != end), "{end} must not be a dependency");
    }
}

#[test]
fn r37_pure_crates_need_no_linux() {
    let all = edges("normal");
    for pure in crate::purity::PURE {
        let (mut open, mut seen) = (vec![pure.to_owned()], BTreeSet::new());
        while let Some(name) = open.pop() {
            open.extend(all.iter().filter(|(from, _)| *from == name).map(|(_, to)| to.clone()));
            seen.insert(name);
        }
        for linux in ["talea-os", "rustix", "libc", "sd-notify", "libloading"] {
            assert!(!seen.contains(linux), "{pure} needs {linux}");
        }
    }
}

#[test]
fn s23_the_engine_and_the_simulator_depend_on_no_other_package() {
    // SF3P needs POSIX priorities and timers. The engine needs not even these; another crate
    // applies its orders.
    let from = |name: &str| -> Vec<String> {
        let all = edges("normal");
        all.iter().filter(|(from, _)| from == name).map(|(_, to)| to.clone()).collect()
    };
    assert_eq!(from("talea-core"), [""; 0]);
    assert_eq!(from("talea-sim"), ["talea-core"]);
    let ours = ["crates/talea-core", "crates/talea-sim"];
    let sources = crate::sources(&["rs"]);
    let sources: Vec<_> =
        sources.iter().filter(|path| ours.iter().any(|dir| path.starts_with(dir))).collect();
    let mut findings = Vec::new();
    for path in &sources {
        // No files of the kernel: no cgroup, no module, no device.
        for kernel in ["\"/sys", "\"/proc", "\"/dev"] {
            if crate::read(path).contains(kernel) {
                findings.push(format!("{} names a file below {kernel}\"", path.display()));
            }
        }
    }
    crate::none(&findings);
    // `s1_s18_s23_…` of talea-import runs SF3P's examples. Its program depends on these packages.
    let mut open = vec!["talea-import".to_owned()];
    let mut made = BTreeSet::new();
    while let Some(name) = open.pop() {
        let kinds: &[&str] = if name == "talea-import" { &["normal", "dev"] } else { &["normal"] };
        let below = kinds.iter().flat_map(|kind| edges(kind)).filter(|(from, _)| *from == name);
        open.extend(below.map(|(_, to)| to).filter(|to| made.insert(to.clone())));
    }
    let ours: Vec<_> = made.iter().filter(|name| name.starts_with("talea-")).collect();
    assert_eq!(ours, ["talea-config", "talea-core", "talea-sim", "talea-system"]);
}

/// Packages of others that the daemon links. It runs as root: the only parser of files among them
/// is that of TOML, with its parts.
const LINKED_AS_ROOT: [&str; 13] = [
    "bitflags",
    "lexopt",
    "libc",
    "linux-raw-sys",
    "rustix",
    "sd-notify",
    "serde_core",
    "serde_spanned",
    "toml",
    "toml_datetime",
    "toml_parser",
    "winnow",
    "zerocopy",
];

/// Packages of others that the daemon of deployments links. It reads its own files and the requests
/// of root, all of them JSON, and the answers of `talead`.
const LINKED_IN_DEPLOYD: [&str; 14] = [
    "bitflags",
    "itoa",
    "lexopt",
    "libc",
    "linux-raw-sys",
    "memchr",
    "rustix",
    "sd-notify",
    "serde",
    "serde_core",
    "serde_json",
    "thiserror",
    "zerocopy",
    "zmij",
];

#[test]
fn root_daemons_link_no_parser_but_toml_and_json() {
    let ours = |name: &String| name.starts_with("talea-");
    let found: Vec<_> = linked("talea-daemon").into_iter().filter(|name| !ours(name)).collect();
    assert_eq!(found, LINKED_AS_ROOT, "give a reason for a package that runs as root");
    for crates in ["talea-system", "talea-import"] {
        assert!(!linked("talea-daemon").contains(crates), "{crates} reads no file of the daemon");
    }
    let found: Vec<_> = linked("talea-deployd").into_iter().filter(|name| !ours(name)).collect();
    assert_eq!(found, LINKED_IN_DEPLOYD, "give a reason for a package that runs as root");
    let own: Vec<_> = linked("talea-deployd").into_iter().filter(ours).collect();
    let expected = ["client", "core", "deploy", "deployd", "os", "proto"];
    assert_eq!(own, expected.map(|name| format!("talea-{name}")));
    // The same question finds the parser where there is one.
    assert!(linked("talea-import").contains("roxmltree"));
}

/// Returns the names of the packages that are linked into a package, without those that only run
/// at build time.
fn linked(package: &str) -> BTreeSet<String> {
    let selection = ["-p", package, "-e", "normal,no-proc-macro", "--prefix", "none"];
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--format", "{p}"])
        .args(selection)
        .current_dir(crate::root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Returns every edge of a kind from a member of the workspace.
fn edges(kind: &str) -> BTreeSet<(String, String)> {
    let metadata = metadata("Cargo.toml");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("normal").to_owned();
    let mut edges = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages") {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            if text(&dependency["kind"]) == kind {
                edges.insert((text(&package["name"]), text(&dependency["name"])));
            }
        }
    }
    edges
}
