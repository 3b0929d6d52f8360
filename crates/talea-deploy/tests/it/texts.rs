//! Texts of generations, records, instances and messages: reading what was written, and refusal of
//! all else.

use crate::world::{ms, task};
use std::sync::Arc;
use talea_core::{CpuSet, Monotonic, Policy, Priority, Span, Work};
use talea_deploy::record::{Counters, TaskRecord};
use talea_deploy::text::frames::{Assembly, BadPacket, MAX_MESSAGE, MAX_PACKET, packets};
use talea_deploy::text::message::{Answer, Ask, StatusText};
use talea_deploy::text::{Instance, SourceFile, StoredGeneration, StoredRecord, TextError};
use talea_deploy::{
    Command, Deployment, FileHash, Generation, Governed, Health, Inactive, Input, OnFailure,
    ProcessId, Record, Request, Restart, RestartOn, Role, RootSpec, TaskSpec, ThreadId,
};

/// Returns a generation with a value of each kind.
fn stored(number: u64) -> StoredGeneration {
    let files = vec![
        SourceFile {
            path: "system.toml".to_owned(),
            text: "include = [\"a\"]\n\u{1}\"".to_owned(),
        },
        SourceFile { path: "a.toml".to_owned(), text: String::new() },
    ];
    let policies = [
        Policy::Other { nice: -3 },
        Policy::Batch { nice: 4 },
        Policy::Idle,
        Policy::Fifo(Priority(93)),
        Policy::Rr(Priority(51)),
        Policy::Deadline {
            runtime: Work::from_ns(1),
            deadline: Span::from_ns(2),
            period: Span::from_ns(u64::MAX),
        },
    ];
    let health = Health {
        ready: Some(ms(3)),
        on_failure: OnFailure::Ignore,
        restart: Restart { when: RestartOn::Always, attempts: 7, within: ms(5), backoff: ms(1) },
    };
    let mut tasks: Vec<TaskSpec> = Vec::new();
    for (at, policy) in policies.into_iter().enumerate() {
        let name = format!("task \u{fc} {at}");
        let mut of = task(&name, "word", 1);
        of.attr.policy = policy;
        of.health = if at % 2 == 0 { health } else { Health::default() };
        tasks.push(of);
    }
    tasks[0].command.user = None;
    tasks[1].command.words.push("a \"quoted\" word".to_owned());
    tasks[2].attr.cpus = CpuSet::EMPTY;
    let root = RootSpec { name: "cpu0".to_owned(), cpus: CpuSet::first(70) };
    let mut of = task("governed", "word", 1);
    of.command.role = Role::Governed(root.cpus);
    tasks.push(of);
    tasks.push(TaskSpec::governor(
        0,
        Governed {
            root: "cpu0".to_owned(),
            cpus: root.cpus,
            system: "[[scheduler]]\n".to_owned(),
            tasks: vec!["governed".to_owned()],
        },
    ));
    let hash = FileHash::of(files.iter().map(|file| file.text.as_str()));
    let report = "proved\n\twell".to_owned();
    let generation = Generation::new(number, hash, vec![root], tasks, report, true);
    StoredGeneration { generation: Arc::new(generation.expect("valid")), files }
}

fn record() -> Record {
    let of = |inactive| TaskRecord {
        inactive,
        restarts: vec![Monotonic::from_ns(1), Monotonic::from_ns(u64::MAX)],
        not_before: Some(Monotonic::from_ns(3)),
        process: Some(ProcessId { start: 9, pid: 8 }),
        started_at: Some(Monotonic::from_ns(4)),
        counters: Counters { starts: 1, failures: 2, repairs: 3 },
        contended: vec![
            (ThreadId { start: 1, tid: 2 }, talea_deploy::input::SettingKind::Policy),
            (ThreadId { start: 1, tid: 2 }, talea_deploy::input::SettingKind::Cpus),
        ],
    };
    let generation = stored(5).generation;
    let mut tasks = vec![TaskRecord::default(); generation.tasks().len()];
    let reasons = [Inactive::Ended, Inactive::Failed, Inactive::Idle, Inactive::Drained];
    for (task, why) in tasks.iter_mut().zip(reasons) {
        *task = of(Some(why));
    }
    Record {
        last_number: 6,
        in_force: Some(generation),
        before: Some(stored(3).generation),
        trial_until: Some(Monotonic::from_ns(77)),
        tasks,
    }
}

fn instance() -> Instance {
    Instance {
        boot: "b".to_owned(),
        task: "t".to_owned(),
        command: Command {
            words: vec!["a".to_owned(), "b".to_owned()],
            user: None,
            role: Role::Linux,
        },
        group: "/sys/fs/cgroup/talea-deploy/1".to_owned(),
        process: Some(ProcessId { start: 1, pid: 2 }),
        is_ready: true,
    }
}

#[test]
fn d16_a_text_is_read_as_it_was_written() {
    let generation = stored(5);
    assert_eq!(StoredGeneration::from_text(&generation.to_text()), Ok(generation));
    let record = record();
    let text = StoredRecord::new(&record, "boot").to_text();
    let read = StoredRecord::from_text(&text).expect("our text");
    assert_eq!(read.generations(), (Some(5), Some(3)));
    let generations = (record.in_force.clone(), record.before.clone());
    let again = read.clone().into_record(generations.0.clone(), generations.1.clone(), "boot");
    assert_eq!(again.as_ref(), Ok(&record));
    // Another boot has neither its processes nor its times.
    let later = read.clone().into_record(generations.0.clone(), generations.1, "other");
    assert_eq!(later, Ok(record.after_boot()));
    assert_eq!(read.into_record(generations.0, None, "boot"), Err(TextError::OtherGeneration));
    for process in [None, Some(ProcessId { start: 1, pid: 2 })] {
        for role in
            [Role::Linux, Role::Governed(CpuSet::first(3)), Role::Governor(FileHash([9; 32]))]
        {
            let command = Command { role, ..instance().command };
            let instance = Instance { process, command, ..instance() };
            assert_eq!(Instance::from_text(&instance.to_text()), Ok(instance));
        }
    }
}

#[test]
fn d16_a_torn_or_edited_text_is_refused() {
    let texts =
        [stored(5).to_text(), StoredRecord::new(&record(), "boot").to_text(), instance().to_text()];
    let read = |text: &str| {
        StoredGeneration::from_text(text)
            .map(drop)
            .or_else(|_| StoredRecord::from_text(text).map(drop))
            .or_else(|_| Instance::from_text(text).map(drop))
    };
    for text in &texts {
        assert_eq!(read(text), Ok(()));
        let ends = (0..text.len()).filter(|&end| text.is_char_boundary(end));
        for end in ends {
            assert!(read(&text[..end]).is_err(), "torn at {end}");
        }
        for at in (0..text.len()).step_by(7).filter(|&at| text.as_bytes()[at].is_ascii_digit()) {
            let mut edited = text.clone().into_bytes();
            edited[at] = if edited[at] == b'9' { b'8' } else { edited[at] + 1 };
            assert!(read(&String::from_utf8(edited).expect("digits")).is_err(), "edited at {at}");
        }
    }
    // An edit that keeps the form has a reason of its own.
    let edited = texts[0].replace("word", "sword");
    assert_eq!(StoredGeneration::from_text(&edited), Err(TextError::Changed));
    assert_eq!(
        StoredGeneration::from_text(&texts[1]),
        Err(TextError::NotOurs { kind: "generation" })
    );
    let other = texts[0].replacen("generation 1 ", "generation 2 ", 1);
    assert_eq!(StoredGeneration::from_text(&other), Err(TextError::Version { found: 2 }));
}

#[test]
fn d16_a_generation_has_the_hash_of_its_files() {
    let mut other = stored(5);
    other.files[1].text.push('x');
    assert_eq!(StoredGeneration::from_text(&other.to_text()), Err(TextError::OtherFile));
}

#[test]
fn d16_an_unknown_key_of_a_message_is_an_error() {
    let asks = [
        Ask::Apply { generation: stored(0), confirm: Some(ms(2)) },
        Ask::Confirm,
        Ask::RollBack(Some(3)),
        Ask::Drain { task: Some("t".to_owned()), within: ms(1) },
        Ask::Remove,
        Ask::Status,
        Ask::InForce,
    ];
    for ask in asks {
        let text = ask.to_text();
        assert_eq!(Ask::from_text(&text), Ok(ask));
        let more = text.replacen('{', "{ \"more\": 1,", 1);
        let Err(TextError::Malformed(why)) = Ask::from_text(&more) else { panic!("{more}") };
        assert!(why.contains("unknown field `more`"), "{why}");
        let later = text.replace("\"version\": 1", "\"version\": 2");
        assert_eq!(Ask::from_text(&later), Err(TextError::Version { found: 2 }));
    }
}

#[test]
fn d16_an_answer_is_read_as_it_was_written() {
    let mut machine = Deployment::restore(Record::default(), Monotonic::ZERO);
    let generation = stored(5).generation;
    let request = talea_deploy::input::RequestId(1);
    let what = Request::Apply { generation: generation.clone(), confirm: Some(ms(9)) };
    machine.handle(Monotonic::ZERO, Input::Requested { request, what });
    let status = StatusText::of(&machine.status(), Monotonic::from_ns(ms(2).as_ns()));
    assert_eq!(status.trial_left_ns, Some(ms(7).as_ns()));
    assert!(!status.has_problem());
    let answers = [
        Answer::Done(Some(4)),
        Answer::Refused("why".to_owned()),
        Answer::Status(status),
        Answer::InForce(Some((*generation).clone())),
        Answer::InForce(None),
    ];
    for answer in answers {
        assert_eq!(Answer::from_text(&answer.to_text()), Ok(answer));
    }
}

#[test]
fn d16_a_long_message_has_several_packets() {
    for length in [1, MAX_PACKET - 1, MAX_PACKET, 5 * MAX_PACKET] {
        let message = "x\u{fc}".repeat(length / 3 + 1);
        let mut assembly = Assembly::default();
        for _ in 0..2 {
            let packets: Vec<_> = packets(&message).collect();
            let (last, rest) = packets.split_last().expect("a packet");
            assert!(packets.iter().all(|packet| packet.len() <= MAX_PACKET));
            assert!(rest.iter().all(|packet| assembly.push(packet) == Ok(None)));
            assert_eq!(assembly.push(last), Ok(Some(message.clone())));
        }
    }
    for bad in [&b""[..], b"\x02x", b"\x01\xff"] {
        assert_eq!(Assembly::default().push(bad), Err(BadPacket));
    }
    let mut endless = Assembly::default();
    let packet = vec![0; MAX_PACKET];
    let pushed = (0..=MAX_MESSAGE / MAX_PACKET + 1).find(|_| endless.push(&packet).is_err());
    assert!(pushed.is_some(), "a message has a bound");
}
