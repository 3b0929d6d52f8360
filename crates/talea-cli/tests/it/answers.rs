//! Output of the commands, as text and as JSON.

use crate::fake::{Fake, granted, name, refusal, refused, spec, status, task};
use crate::harness::{Scratch, run, snapshot};
use talea_core::{Charge, Span};
use talea_proto::message::Notes;
use talea_proto::refusal::{PluginText, PluginVerdict, RejectionReason, Witness};
use talea_proto::{
    Code, Field, Owner, PluginAnswer, Refusal, Rejection, Reply, Request, SpecId, Task,
};

/// Compares both forms of a command's output with the snapshots, and parses the JSON.
fn both(label: &str, fake: &Fake, scratch: &Scratch, arguments: &[&str]) -> serde_json::Value {
    let socket = fake.socket.to_str().unwrap();
    let mut words = vec!["--socket", socket];
    words.extend(arguments);
    // Computers differ in the nice value of process 1, whose policy is listed.
    let nice =
        talea_os::sched::get_nice(talea_os::Tid::new(1).expect("positive")).expect("readable");
    let hide = |text: String| {
        let text = text.replace(socket, "SOCKET").replace(&format!("OTHER nice {nice}"), "OTHER");
        text.replace(&format!("\"nice\": {nice}\n"), "\"nice\": 0\n")
    };
    snapshot(label, &hide(run(scratch, &words).transcript()));
    words.push("--json");
    let ended = run(scratch, &words);
    snapshot(&format!("{label}-json"), &hide(ended.transcript()));
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(answer["schema"], 1, "{label}");
    answer
}

#[test]
fn list_shows_each_grant_with_what_the_kernel_says() {
    let scratch = Scratch::new();
    // Thread 1 has no deadline policy: the grant and the kernel's policy differ.
    let specs = [spec(3, None), spec(12, Some(1))];
    let fake = Fake::start(&scratch, move |request| match request {
        Request::NextSpec(SpecId(from)) => specs
            .iter()
            .find(|spec| spec.granted.spec.0 >= *from)
            .map_or(Reply::End, |spec| Reply::Spec(Box::new(*spec))),
        other => panic!("{other:?}"),
    });
    let answer = both("list", &fake, &scratch, &["list"]);
    assert_eq!(answer["specs"][1]["held"], false);
    assert_eq!(answer["specs"][0]["held"], serde_json::Value::Null);
    let bare = run(&scratch, &["--socket", fake.socket.to_str().unwrap(), "list", "--no-legend"]);
    assert_eq!(bare.out.lines().count(), 2);
}

#[test]
fn an_empty_list_says_so() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| Reply::End);
    both("list-empty", &fake, &scratch, &["list"]);
}

#[test]
fn an_endless_list_ends() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| Reply::Spec(Box::new(spec(1, None))));
    let ended = run(&scratch, &["--socket", fake.socket.to_str().unwrap(), "list"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
}

#[test]
fn show_prints_all_data_of_one_grant() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |request| {
        assert_eq!(*request, Request::Query(SpecId(12)));
        let mut info = spec(12, None);
        info.granted.notes = Notes::BELOW_DESIRED.with(Notes::BUDGET_NOT_ENFORCED);
        info.task.owner = Owner::Thread;
        Reply::Spec(Box::new(info))
    });
    both("show", &fake, &scratch, &["show", "12"]);
}

#[test]
fn status_shows_plugins_and_cpus() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| Reply::Status(Box::new(status())));
    both("status", &fake, &scratch, &["status"]);
}

fn answers() -> Vec<PluginAnswer> {
    let no = |reason, field, asked, limit, fits, witness| {
        PluginVerdict::No(Rejection { reason, field, cpu: Some(1), asked, limit, fits, witness })
    };
    let ms = |count: u64| Span::from_ns(count * 1_000_000);
    let late = Witness::DeadlineMiss {
        own: false,
        period: ms(20),
        deadline: ms(15),
        response: Some(ms(17)),
    };
    let answer = |plugin: u32, label: &str, verdict| PluginAnswer {
        plugin,
        name: name(label),
        verdict,
        text: PluginText::NONE,
    };
    vec![
        answer(
            0,
            "edf",
            no(RejectionReason::NoRoom, Field::Utilization, 200_000, 150_000, 150_000, None),
        ),
        answer(
            1,
            "rm",
            no(
                RejectionReason::NoRoom,
                Field::Runtime,
                2_000_000,
                1_500_000,
                1_500_000,
                Some(late),
            ),
        ),
        answer(2, "background", no(RejectionReason::Missing, Field::Priority, 0, 0, 0, None)),
        answer(3, "mine", no(RejectionReason::OutOfRange, Field::Period, 50_000, 100_000, 0, None)),
        answer(
            4,
            "vip",
            PluginVerdict::Denied {
                code: Code::RuleBound,
                field: Field::Utilization,
                asked: 200_000,
                limit: 100_000,
            },
        ),
    ]
}

#[test]
fn explain_shows_every_plugins_answer_and_what_would_fit() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |request| {
        let thread = Some(talea_proto::ThreadRef::Pidfd);
        assert_eq!(*request, Request::Explain(Task { thread, ..task() }), "for this process");
        Reply::Explained { chosen: None, answers: answers(), refusal: None }
    });
    let arguments = ["explain", "--period", "10ms", "--runtime", "2ms"];
    let answer = both("explain-refused", &fake, &scratch, &arguments);
    assert_eq!(answer["answers"][1]["fits"], 1_500_000);
    assert_eq!(answer["answers"][1]["unit"], "ns");
    let socket = fake.socket.to_str().unwrap();
    assert_eq!(run(&scratch, &[&["--socket", socket][..], &arguments].concat()).code, Some(3));
}

#[test]
fn explain_names_the_plugin_that_would_serve() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| {
        let mut answers = answers();
        answers.truncate(2);
        let charge = Charge::ratio(2, 10);
        answers[0].verdict = PluginVerdict::Ok { cpu: None, charge, notes: Notes::default() };
        answers[1].verdict =
            PluginVerdict::Partial { cpu: Some(1), charge, notes: Notes::NOT_PROVED };
        Reply::Explained { chosen: Some(0), answers, refusal: None }
    });
    let answer = both(
        "explain-granted",
        &fake,
        &scratch,
        &["explain", "--period", "10ms", "--runtime", "2ms"],
    );
    assert_eq!(answer["chosen"], "edf");
}

#[test]
fn explain_of_a_denied_request_is_exit_code_4_with_the_rule() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| {
        let rule = Some("talead.toml:12".to_owned());
        let denial = Refusal {
            field: Field::Period,
            asked: 1_000_000,
            limit: 5_000_000,
            rule,
            ..refusal(Code::RuleBound)
        };
        Reply::Explained { chosen: None, answers: Vec::new(), refusal: Some(Box::new(denial)) }
    });
    both("explain-denied", &fake, &scratch, &["explain", "--period", "1ms"]);
    let socket = fake.socket.to_str().unwrap();
    assert_eq!(run(&scratch, &["--socket", socket, "explain", "--period", "1ms"]).code, Some(4));
}

#[test]
fn a_denial_says_what_would_help() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| {
        let denied =
            |code, field, asked, limit| PluginVerdict::Denied { code, field, asked, limit };
        let answers = vec![
            PluginAnswer {
                plugin: 0,
                name: name("edf"),
                verdict: denied(Code::RuleOmission, Field::Priority, 100, 40),
                text: PluginText::NONE,
            },
            PluginAnswer {
                plugin: 1,
                name: name("rm"),
                verdict: denied(Code::NotAllowed, Field::IgnoreAdmission, 1, 0),
                text: PluginText::NONE,
            },
            PluginAnswer {
                plugin: 2,
                name: name("fp"),
                verdict: denied(Code::RuleOmission, Field::Runtime, 0, 2_000_000),
                text: PluginText::NONE,
            },
        ];
        Reply::Explained { chosen: None, answers, refusal: None }
    });
    let socket = fake.socket.to_str().unwrap();
    let ended = run(&scratch, &["--socket", socket, "explain", "--period", "10ms"]);
    let why: Vec<&str> = ended.out.lines().skip(2).collect();
    assert!(
        why[0].contains("at most 40") && why[0].contains("assigns priority 100 by itself"),
        "{}",
        ended.out
    );
    assert!(why[1].contains("ignore_adm_test"), "{}", ended.out);
    assert!(why[2].contains("declare it"), "{}", ended.out);
    assert_eq!(ended.code, Some(4));
}

#[test]
fn one_word_policies_ask_the_plugin_of_their_kind() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| Reply::Explained {
        chosen: None,
        answers: Vec::new(),
        refusal: None,
    });
    let socket = fake.socket.to_str().unwrap();
    for policy in ["d:2ms:10ms", "f:30"] {
        assert_eq!(run(&scratch, &["--socket", socket, "explain", "-P", policy]).code, Some(3));
    }
    let requests = fake.requests();
    let plugin = |index: usize| match &requests[index] {
        Request::Explain(task) => (task.plugin, task.params),
        other => panic!("{other:?}"),
    };
    assert_eq!(plugin(0), (Some(name("edf")), task().params));
    assert_eq!(plugin(1).0, Some(name("background")));
    assert_eq!(plugin(1).1.priority, Some(talea_core::Priority(30)));
    let ended = run(&scratch, &["--socket", socket, "explain", "-P", "r:30"]);
    assert_eq!(ended.code, Some(2), "there is no plugin of kind rr: {}", ended.err);
}

#[test]
fn r35_cpus_are_a_condition_and_preferred_cpus_a_preference() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| Reply::Explained {
        chosen: None,
        answers: Vec::new(),
        refusal: None,
    });
    let socket = fake.socket.to_str().unwrap();
    run(&scratch, &["--socket", socket, "explain", "--cpus", "0-2,5"]);
    run(&scratch, &["--socket", socket, "explain", "--prefer-cpus", "1"]);
    let cpus: Vec<(String, bool)> = fake
        .requests()
        .iter()
        .map(|request| match request {
            Request::Explain(task) => (task.cpus.to_string(), task.cpus_mandatory),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(cpus, [("0-2,5".to_owned(), true), ("1".to_owned(), false)]);
}

#[test]
fn release_reports_which_specs_failed() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |request| match request {
        Request::Release(SpecId(2)) => refused(Code::NotOwner),
        Request::Release(_) => Reply::Done,
        other => panic!("{other:?}"),
    });
    let socket = fake.socket.to_str().unwrap();
    let ended = run(&scratch, &["--socket", socket, "-v", "release", "1", "2", "3"]);
    snapshot("release", &ended.transcript());
    let released = [1, 2, 3].map(|spec| Request::Release(SpecId(spec)));
    assert_eq!(fake.requests(), released);
}

#[test]
fn a_process_is_released_by_its_number() {
    let scratch = Scratch::new();
    let me = std::process::id();
    let specs = [spec(5, Some(me)), spec(6, Some(1)), spec(7, None)];
    let fake = Fake::start(&scratch, move |request| match request {
        Request::NextSpec(SpecId(from)) => specs
            .iter()
            .find(|spec| spec.granted.spec.0 >= *from)
            .map_or(Reply::End, |spec| Reply::Spec(Box::new(*spec))),
        Request::Release(_) => Reply::Done,
        other => panic!("{other:?}"),
    });
    let socket = fake.socket.to_str().unwrap();
    let ended = run(&scratch, &["--socket", socket, "release", "--pid", &me.to_string()]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let released: Vec<Request> = fake
        .requests()
        .into_iter()
        .filter(|request| matches!(request, Request::Release(_)))
        .collect();
    assert_eq!(released, [Request::Release(SpecId(5))]);
}

#[test]
fn attach_passes_the_thread_itself_and_owns_by_thread() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |request| match request {
        Request::Create(task) => {
            assert_eq!(task.owner, Owner::Thread);
            Reply::Granted(granted(9))
        }
        Request::Attach { spec: SpecId(9), .. } => Reply::Done,
        other => panic!("{other:?}"),
    });
    let socket = fake.socket.to_str().unwrap();
    let me = std::process::id().to_string();
    let ended = run(
        &scratch,
        &["--socket", socket, "attach", &me, "--period", "10ms", "--runtime", "2ms", "--json"],
    );
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(answer["held"][0]["tid"].to_string(), me);
    assert_eq!(answer["held"][0]["grant"]["spec"], 9);
    assert!(
        !answer["not_held"].as_array().expect("a list").is_empty(),
        "test programs have more threads"
    );
    let asked: Vec<_> = fake.asked.try_iter().collect();
    let thread = asked[1].thread.as_ref().expect("a descriptor came along");
    assert_eq!(thread.tid().as_raw().to_string(), me);
}

#[test]
fn a_failed_attach_releases_the_grant() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |request| match request {
        Request::Create(_) => Reply::Granted(granted(9)),
        Request::Attach { .. } => {
            Reply::Refused(Box::new(Refusal { errno: libc::EBUSY, ..refusal(Code::Kernel) }))
        }
        Request::Release(SpecId(9)) => Reply::Done,
        other => panic!("{other:?}"),
    });
    let socket = fake.socket.to_str().unwrap();
    let me = std::process::id().to_string();
    let ended = run(&scratch, &["--socket", socket, "attach", &me, "--period", "10ms"]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.err.contains("EBUSY"), "{}", ended.err);
    assert_eq!(fake.requests().last(), Some(&Request::Release(SpecId(9))));
}

#[test]
fn a_refused_attach_is_json_too() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |_| {
        Reply::Refused(Box::new(Refusal { answers: answers(), ..refusal(Code::NoPlugin) }))
    });
    let socket = fake.socket.to_str().unwrap();
    let me = std::process::id().to_string();
    let ended = run(&scratch, &["--socket", socket, "attach", &me, "--json"]);
    assert_eq!(ended.code, Some(3));
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(answer["refusal"]["code"], "no-plugin");
    snapshot("refusal-in-words", &ended.err);
}

#[test]
fn attack_24_a_hostile_thread_name_does_not_reach_the_terminal() {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, |request| match request {
        Request::Create(_) => Reply::Granted(granted(9)),
        _ => Reply::Done,
    });
    let (stay, stop) = std::sync::mpsc::channel::<()>();
    let (sender, receiver) = std::sync::mpsc::channel();
    let hostile = std::thread::spawn(move || {
        rustix::thread::set_name(c"\x1b[31m\u{202e}red").expect("a name");
        sender.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("the test listens");
        let _ = stop.recv();
    });
    let tid = receiver.recv().expect("a thread");
    let ended =
        run(&scratch, &["--socket", fake.socket.to_str().unwrap(), "attach", &tid.to_string()]);
    drop(stay);
    hostile.join().expect("the thread ends");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("(\u{fffd}[31m\u{fffd}red)"), "{:?}", ended.out);
    assert!(!ended.out.contains('\x1b') && !ended.err.contains('\x1b'), "{:?}", ended.err);
}
