//! Health of programs in system files: `ready`, `on_failure` and `[task.restart]`.

use talea_core::Span;
use talea_core::health::{Health, OnFailure, Restart, RestartOn};
use talea_system::{System, diagnostic, read, write};

fn file(keys: &str) -> String {
    format!(
        "[[scheduler]]\nname = \"cpu0\"\npolicy = \"fp\"\n\n[[task]]\nname = \"a\"\n\
         program = [\"a\"]\n{keys}"
    )
}

fn system(keys: &str) -> System {
    read(&file(keys), "f", &())
        .unwrap_or_else(|found| panic!("{}", diagnostic::render(&found, false)))
}

fn ms(count: u64) -> Span {
    Span::from_ns(count * 1_000_000)
}

#[test]
fn d12_the_health_of_a_program_is_read_and_written_again() {
    let usual = Restart::default();
    for (keys, health) in [
        ("", Health::default()),
        ("ready = \"1s\"\n", Health { ready: Some(ms(1_000)), ..Health::default() }),
        ("on_failure = \"idle\"\n", Health { on_failure: OnFailure::Idle, ..Health::default() }),
        (
            "on_failure = \"ignore\"\n",
            Health { on_failure: OnFailure::Ignore, ..Health::default() },
        ),
        (
            "[task.restart]\nwhen = \"always\"\nattempts = 0\nwithin = \"5s\"\nbackoff = \"0\"\n",
            Health {
                restart: Restart {
                    when: RestartOn::Always,
                    attempts: 0,
                    within: ms(5_000),
                    backoff: Span::ZERO,
                },
                ..Health::default()
            },
        ),
        (
            // The usual back-off would be longer than the window.
            "restart = { within = \"500ms\" }\n",
            Health {
                restart: Restart { within: ms(500), backoff: ms(500), ..usual },
                ..Health::default()
            },
        ),
    ] {
        let system = system(keys);
        assert_eq!(system.roots[0].health, [health], "{keys}");
        let again = write(&system).expect("it has a text");
        let again = read(&again, "again", &()).expect("it is valid");
        assert_eq!(again.roots[0].health, [health], "{keys}");
    }
}

#[test]
fn d12_an_invalid_health_has_its_place_and_a_remedy() {
    for (keys, line, column, what) in [
        ("ready = 5\n", 8, 9, "`ready` must be a duration in quotes, not a number"),
        ("ready = \"0\"\n", 8, 9, "`ready` is zero"),
        ("on_failure = \"reboot\"\n", 8, 14, "`reboot` is not a value of `on_failure`"),
        ("restart = 3\n", 8, 11, "`restart` must be a table, not a number"),
        ("[task.restart]\nattempts = 1001\n", 9, 12, "`attempts` must be 0 to 1000"),
        (
            "[task.restart]\nwithin = \"1s\"\nbackoff = \"2s\"\n",
            10,
            11,
            "`backoff` is longer than the window of 1s",
        ),
        ("[task.restart]\ntries = 3\n", 9, 1, "unknown key `tries` in [task.restart]"),
        (
            "on_failure = \"idle\"\nrestart = { attempts = 1 }\n",
            9,
            1,
            "`restart` means nothing beside this `on_failure`",
        ),
    ] {
        let found = read(&file(keys), "f", &()).expect_err(keys);
        assert_eq!(found.len(), 1, "{keys}: {found:?}");
        let first = &found[0];
        assert_eq!((first.line, first.column, first.what.as_str()), (line, column, what), "{keys}");
        assert!(!first.why.is_empty() && !first.remedy.is_empty(), "{keys}");
    }
    let text = file("ready = \"1s\"\n")
        .replace("program = [\"a\"]\n", "period = \"1ms\"\ncost = \"1us\"\n");
    let found = read(&text, "f", &()).expect_err("no program");
    assert_eq!(found[0].what, "`ready` means nothing here");
}
