//! The largest and the most hostile files: bounded time, memory and diagnostics. The tests only
//! measure that they finish. A quadratic reader would take minutes.

#[path = "../../talea-config/tests/common/large.rs"]
mod large;

use large::{numbered, numbered_to};
use talea_config::FILE_MAX;
use talea_system as system;

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
        if let Err(found) = system::read(text, "f", &()) {
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
