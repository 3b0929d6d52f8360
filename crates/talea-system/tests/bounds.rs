//! The largest and the most hostile files: bounded time, memory and diagnostics. The tests only
//! measure that they finish. A quadratic reader would take minutes.

mod common;

use common::{names, target};
use talea_system::config::{FILE_MAX, read, read_bytes};
use talea_system::import::{File, retif};
use talea_system::system;

/// Returns `head` with as many repetitions of `piece` as fit into the largest file.
fn filled(head: &str, piece: &str) -> String {
    let mut text = head.to_owned();
    while text.len() + piece.len() <= FILE_MAX {
        text.push_str(piece);
    }
    text
}

/// Returns a file of many pieces ([`filled`]), with a number in place of `#`.
fn numbered(head: &str, piece: &str) -> String {
    numbered_to(FILE_MAX, head, piece)
}

fn numbered_to(most: usize, head: &str, piece: &str) -> String {
    let mut text = head.to_owned();
    for n in 0.. {
        let piece = piece.replace('#', &n.to_string());
        if text.len() + piece.len() > most {
            break;
        }
        text.push_str(&piece);
    }
    text
}

#[test]
fn a_megabyte_of_anything_is_read_in_bounded_time_with_bounded_complaints() {
    let plugin = "[[plugin]]\nname = \"p\"\nkind = \"edf\"\ncpus = \"0\"\n";
    let cases = [
        ("equal signs", "=\n".repeat(50_000)),
        ("brackets", filled("a = ", "[")),
        ("braces", filled("a = ", "{a=")),
        ("dots", filled("", "a.")),
        ("one key", filled("", "a = 1\n")),
        ("one table", filled("", "[a]\n")),
        ("keys twice", numbered("", "k# = 1\nk# = 2\n")),
        ("one line of unknown keys", numbered("plugin = [", "{ k# = 1 }, ")),
        ("one long line", filled("[daemon]\nx = \"", "y")),
        ("unknown keys", numbered("[daemon]\n", "k# = 1\n")),
        ("plugins", numbered("", "[[plugin]]\nname = \"p#\"\nkind = \"edf\"\ncpus = \"0\"\n")),
        ("plugins of one name", filled("", plugin)),
        (
            "rules",
            numbered(
                plugin,
                "[[rule]]\ndomain = \"##\"\nmin_period = \"9ms\"\nmax_period = \"1ms\"\n",
            ),
        ),
        (
            "rules of one subject",
            filled(plugin, "[[rule]]\ndomain = \"-\"\nmax_utilization = 0.5\n"),
        ),
        (
            "unresolved names",
            numbered(plugin, "[[rule]]\ndomain = \"u#\"\nplugin = \"q#\"\nmax_runtime = 5\n"),
        ),
        ("carets far to the right", filled("plugin = 5\n[daemon]\n", "ä")),
    ];
    for (name, text) in &cases {
        let found = read(text, "f", &names(), &target(4)).expect_err(name);
        assert!((1..=101).contains(&found.len()), "{name}: {}", found.len());
        assert!(found.iter().any(talea_system::Diagnostic::is_error), "{name}");
        let rendered = talea_system::diagnostic::render(&found, false);
        assert!(rendered.len() < 200_000, "{name}: {} bytes of complaints", rendered.len());
    }
}

#[test]
fn what_is_left_out_is_counted() {
    let text = numbered("[daemon]\n", "k# = 1\n");
    let found = read(&text, "f", &names(), &target(4)).expect_err("unknown keys");
    let keys = text.lines().count() - 1;
    let last = found.last().expect("complaints");
    // All of the keys, and that there is no plugin.
    assert!(last.what.contains(&format!("{} more", keys - 100)), "{keys}: {last}");
}

#[test]
fn a_byte_beyond_the_largest_file_is_refused() {
    let text = filled("# ", "x");
    let fits = format!("{}{}", text, "y".repeat(FILE_MAX - text.len()));
    let found = read(&fits, "f", &names(), &target(4)).expect_err("no plugin");
    assert!(found[0].what.contains("no plugin"), "{}", found[0]);
    for bytes in [
        format!("{fits}z").into_bytes(),
        vec![0xff; FILE_MAX + 1],
        "ä".repeat(FILE_MAX).into_bytes(),
    ] {
        let found = read_bytes(&bytes, "f", &names(), &target(4)).expect_err("too large");
        assert!(found[0].what.contains("larger than 1048576 bytes"), "{}", found[0]);
    }
    let large = format!("{fits}z");
    let found = retif(File { origin: "p", text: &large }, None).expect_err("too large");
    assert!(found[0].what.contains("larger than"), "{}", found[0]);
}

#[test]
fn a_megabyte_of_retif_is_imported_or_refused_in_bounded_time() {
    let cases = [
        "x\n".repeat(50_000),
        "EDF 100-100 0\n".repeat(20_000),
        numbered("", "EDF# EDF.so 100-100 0\n"),
        format!("plugins:\n{}", "- name: a\n".repeat(20_000)),
        format!("plugins:\n{}", "  - \n".repeat(20_000)),
        filled("plugins:\n  - cores:\n", "    - 1\n"),
        format!("system:\n{}", "a: b\n".repeat(50_000)),
    ];
    for text in &cases {
        let found = retif(File { origin: "p", text }, None).expect_err("none of these loads");
        assert!((1..=102).contains(&found.len()), "{}", found.len());
    }
    let rules = numbered("", "u# - max_runtime 5\n");
    let found = retif(
        File { origin: "p", text: "EDF EDF.so 100-100 0\n" },
        Some(File { origin: "r", text: &rules }),
    );
    assert!(found.is_err_and(|found| found[0].origin == "r"), "more rules than a file may have");
}

#[test]
fn s22_a_quarter_of_a_megabyte_of_a_system_is_read_in_bounded_time_with_bounded_complaints() {
    // Not of the largest file: trees are built of these, and checked.
    let many = |head: &str, piece: &str| numbered_to(FILE_MAX / 4, head, piece);
    let root = "[[scheduler]]\nname = \"r\"\npolicy = \"edf\"\n";
    let task = "[[task]]\nname = \"t#\"\nperiod = \"1ms\"\ncost = \"1us\"\n";
    let table =
        "[[scheduler]]\nname = \"r\"\npolicy = \"table\"\ncpus = 64\nhyperperiod = \"1s\"\n";
    let one = task.replace('#', "");
    let partitions = "[[task]]\nname = \"t\"\nperiod = \"1s\"\ncost = \"1us\"\n\
                      [[scheduler]]\nname = \"r\"\npolicy = \"partitions\"\nframe = \"1s\"\n";
    let cases = [
        ("brackets", many("a = ", "[")),
        ("tasks", many(root, task)),
        ("tasks of one name", many(root, &task.replace('#', ""))),
        ("copies", many(root, &format!("{task}count = 10000\n"))),
        ("roots", many("", "[[scheduler]]\nname = \"r#\"\npolicy = \"edf\"\n")),
        (
            "schedulers in themselves",
            many("", "[[scheduler]]\nname = \"r#\"\nin = \"r#\"\npolicy = \"edf\"\n"),
        ),
        (
            "schedulers in unknown ones",
            many(root, "[[scheduler]]\nname = \"s#\"\nin = \"x#\"\npolicy = \"edf\"\n"),
        ),
        ("slots", many(partitions, "[[scheduler.slot]]\nowner = \"t\"\nlength = \"1us\"\n")),
        (
            "slots of unknown owners",
            many(partitions, "[[scheduler.slot]]\nowner = \"x#\"\nlength = \"1us\"\n"),
        ),
        (
            "entries",
            many(&(one.clone() + table), "[[scheduler.entry]]\nowner = \"t\"\nlength = \"1us\"\n"),
        ),
        (
            "channels",
            many(
                &(root.to_owned() + &one + "[[task]]\nname = \"u\"\ncost = \"1us\"\n"),
                "[[channel]]\nfrom = \"t\"\nto = \"u\"\n",
            ),
        ),
        (
            "a star",
            many(
                &format!("{root}[[task]]\nname = \"sum\"\ncost = \"1us\"\n"),
                &format!("{task}[[channel]]\nfrom = \"t#\"\nto = \"sum\"\n"),
            ),
        ),
        (
            "a circle",
            many(
                root,
                "[[task]]\nname = \"t#\"\ncost = \"1us\"\n[[channel]]\nfrom = \"t#\"\nto = \"t0\"\n",
            ),
        ),
        ("channels of unknown tasks", many(root, "[[channel]]\nfrom = \"a#\"\nto = \"b#\"\n")),
        (
            "sections",
            many(
                &format!("{root}[[resource]]\nname = \"b\"\n{task}"),
                "[[task.section]]\nresource = \"b\"\nlength = \"1us\"\n",
            ),
        ),
        (
            "versions",
            many(
                &format!("{root}[[task]]\nname = \"t\"\nperiod = \"1ms\"\n"),
                "[[task.version]]\nname = \"v#\"\ncost = \"1us\"\n",
            ),
        ),
        ("accelerators", many(root, "[[accelerator]]\nname = \"a#\"\n")),
        ("stalls", many(root, "[[stall]]\nstart = \"1ms\"\nlength = \"1us\"\n")),
        ("expectations", many(root, "[[expect]]\ntask = \"x#\"\nmisses = 0\n")),
    ];
    for (name, text) in &cases {
        if let Err(found) = talea_system::system::read(text, "f", &()) {
            assert!(found.len() <= 101, "{name}: {} complaints", found.len());
        }
    }
}

/// Full files whose build and check once took quadratic time: between ten seconds and minutes.
#[test]
fn s22_the_largest_system_is_read_in_bounded_time() {
    let root = "[[scheduler]]\nname=\"r\"\npolicy=\"edf\"\n";
    let task = "[[task]]\nname=\"t#\"\nperiod=\"1s\"\ncost=\"1us\"\n";
    // Half of the file is roots of a graph, the other half a chain below them: every node has all
    // of the roots above it.
    let roots =
        numbered_to(FILE_MAX / 2, root, &format!("{task}[[channel]]\nfrom=\"t#\"\nto=\"c0\"\n"));
    let first = "[[task]]\nname=\"c0\"\ncost=\"1us\"\n";
    let link = |n: usize| {
        format!(
            "[[task]]\nname=\"c{n}\"\ncost=\"1us\"\n[[channel]]\nfrom=\"c{}\"\nto=\"c{n}\"\n",
            n - 1
        )
    };
    let mut chain = roots + first;
    for link in (1..).map(link) {
        if chain.len() + link.len() > FILE_MAX {
            break;
        }
        chain.push_str(&link);
    }
    let system = system::read(&chain, "f", &()).unwrap_or_else(|found| panic!("{:?}", found[0]));
    assert!(system.roots[0].tree.channels.len() > 10_000, "a long one");
    let depth = |n: u32| {
        format!("[[scheduler]]\nname=\"s{n}\"\nin=\"s{}\"\npolicy=\"edf\"\n", n.saturating_sub(1))
    };
    let top = "[[scheduler]]\nname=\"s0\"\npolicy=\"edf\"\n";
    let nested = |levels: u32| (1..levels).map(depth).fold(top.to_owned(), |text, one| text + &one);
    assert!(system::read(&nested(64), "f", &()).is_ok());
    for levels in [65, 15_000] {
        let found = system::read(&nested(levels), "f", &()).expect_err("too deep");
        assert_eq!((found.len(), found[0].line), (1, 3 + 64 * 4 - 2), "{}", found[0]);
        assert!(found[0].why.contains("levels of schedulers: at most 64"), "{}", found[0]);
    }
    // Wide ones: as many schedulers, children of a table, and owners of its slots.
    let wide = numbered(root, "[[scheduler]]\nname=\"s#\"\nin=\"r\"\npolicy=\"edf\"\n");
    assert!(system::read(&wide, "f", &()).is_ok_and(|system| system.warnings.is_empty()));
    let table = "[[scheduler]]\nname=\"r\"\npolicy=\"partitions\"\nframe=\"1s\"\n";
    let slots =
        numbered_to(FILE_MAX * 2 / 5, table, "[[scheduler.slot]]\nowner=\"t#\"\nlength=\"1us\"\n");
    let owners = slots.matches("owner").count();
    let tasks = (0..owners).map(|n| task.replace('#', &n.to_string()));
    let text = tasks.fold(slots, |text, one| text + &one);
    let system = system::read(&text, "f", &()).unwrap_or_else(|found| panic!("{:?}", found[0]));
    assert_eq!((system.roots[0].tasks.len(), system.warnings.len()), (owners, 0));
}
