//! Quotas, rules, and attempts to evade them.

use super::fixture::{Fixture, MALLORY, code, figure, small};
use crate::tasks::{owned_by, periodic, ranked, reserved, with};
use std::time::{Duration, Instant};
use talea_kernel_tests::{BOB, config, eventually, kernel, needs_root};
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Code, Field, Owner, Refusal, Reply, Request, Task, ThreadRef};

/// Low quotas.
const TIGHT: &str =
    "[daemon.quota]\nsessions_per_user = 6\nspecs_per_user = 10\nrequests_per_second = 20000\n";

#[test]
fn retif_d4_more_specs_than_the_quota_are_refused_on_any_number_of_connections() {
    needs_root!();
    let fixture = Fixture::with("attack-specs-quota", &(config::open() + TIGHT));
    let mallory = Fixture::mallory();
    fixture.under(|| {
        let clients = [mallory.connect(&fixture.daemon), mallory.connect(&fixture.daemon)];
        let mut grants = Vec::new();
        for round in 0..10 {
            let owner = [Owner::Session, Owner::Process, Owner::Thread][round % 3];
            let client = &clients[round % 2];
            grants.push((client, client.create(owned_by(owner, small()))));
        }
        for client in &clients {
            let no = client.refused(&Request::Create(small()));
            assert_eq!((no.code, no.field, no.limit), (Code::Quota, Field::Specs, 10), "{no:?}");
            let no = client.refused(&Request::CreateGroup(vec![small(); 64]));
            assert_eq!((no.code, no.field), (Code::Quota, Field::Specs));
        }
        // All or none: a group that fits in part is refused whole.
        let (client, grant) = grants.pop().expect("ten");
        client.done(&Request::Release(grant.spec));
        assert_eq!(client.refused(&Request::CreateGroup(vec![small(); 2])).code, Code::Quota);
        let spare = client.create(small());
        client.done(&Request::Release(spare.spec));
        for (client, grant) in grants {
            client.done(&Request::Release(grant.spec));
        }
        clients.iter().for_each(talea_kernel_tests::Client::close);
    });
}

#[test]
fn retif_d4_connections_beyond_the_quota_are_refused_and_closed() {
    needs_root!();
    let fixture = Fixture::with("attack-sessions-quota", &(config::open() + TIGHT));
    fixture.under(|| {
        // As many processes as she likes: the user counts.
        let processes = [Fixture::mallory(), Fixture::mallory(), Fixture::mallory()];
        let clients: Vec<_> =
            (0..6).map(|index| processes[index % 3].connect(&fixture.daemon)).collect();
        for process in &processes {
            let late = process.connect_silently(&fixture.daemon);
            let hello = Request::Hello { min: talea_proto::VERSION, max: talea_proto::VERSION };
            let no = late.refused(&hello);
            assert_eq!((no.code, no.field, no.limit), (Code::Quota, Field::Sessions, 6));
            assert_eq!(late.receive(), None);
        }
        clients[0].close();
        eventually("a place is free again", || {
            let again = processes[0].connect_silently(&fixture.daemon);
            let hello = Request::Hello { min: talea_proto::VERSION, max: talea_proto::VERSION };
            matches!(again.ask(&hello), Reply::Welcome { .. })
        });
    });
}

#[test]
fn retif_d4_a_client_above_the_request_rate_is_not_read_from_for_a_while() {
    needs_root!();
    // The honest client stays below the rate of each user; the attacker is another user.
    let quota = "[daemon.quota]\nrequests_per_second = 6000\nburst = 50\n";
    let fixture = Fixture::with("attack-rate", &(config::open() + quota));
    let test_clients = fixture.test_clients(MALLORY);
    let socket = fixture.daemon.socket().display();
    fixture.under(|| {
        let begun = Instant::now();
        assert_eq!(test_clients.order(&format!("start swarm swarm {socket} 4 status")), "started");
        std::thread::sleep(Duration::from_millis(500));
        let said = test_clients.order("stop swarm");
        let seconds = begun.elapsed().as_secs_f64();
        let answered = u32::try_from(figure(&said, "received")).map_or(f64::INFINITY, f64::from);
        println!("{said} in {seconds} s");
        assert!(answered > 100.0, "she is slowed down, not shut out");
        // The rate, the burst, and one more for each connection and its hello.
        let paid = 6000.0 * seconds + 50.0 + 8.0;
        assert!(answered <= paid * 1.02, "{answered} answers in {seconds} s, {paid} were paid for");
    });
    assert!(fixture.daemon.log().contains("exceeds the request rate"), "{}", fixture.daemon.log());
}

/// Returns the code with which the rules have refused, from the refusal or from a plugin's answer.
fn denial(refusal: &Refusal) -> Option<Code> {
    let ruled = |code| matches!(code, Code::NotAllowed | Code::RuleBound | Code::RuleOmission);
    let of_plugins = || {
        refusal.answers.iter().find_map(|answer| match answer.verdict {
            PluginVerdict::Denied { code, .. } => Some(code),
            _ => None,
        })
    };
    if ruled(refusal.code) { Some(refusal.code) } else { of_plugins() }
}

/// Returns a configuration with these rules, and those that Bob and Carol need in the fixture.
fn ruled(rules: &str) -> String {
    let helpers = format!(
        "[[rule]]\ndomain = \"#{BOB}\"\nplugin = \"quiet\"\nmin_priority = 1\n\
         [[rule]]\ndomain = \"#60003\"\nplugin = \"rm\"\nmin_period = \"1ms\"\n"
    );
    // Rules name plugins of the file: the fixture appends `QUIET`, so it is not here.
    config::with_rules(&(helpers + rules))
}

#[test]
fn r22_neither_omissions_nor_sums_of_parts_exceed_a_bound() {
    needs_root!();
    let rules = format!(
        "[[rule]]\ndomain = \"#{MALLORY}\"\nmax_utilization = 0.3\nmax_runtime = \"2ms\"\n"
    );
    let fixture = Fixture::with("attack-omission", &ruled(&rules));
    let mallory = Fixture::mallory();
    let client = mallory.connect(&fixture.daemon);
    let tid = mallory.thread();
    fixture.under(|| {
        let denied = |request: Request| {
            let no = client.refused(&request);
            denial(&no).unwrap_or_else(|| panic!("not by the rules: {no:?}"))
        };
        // A task without a runtime could use all of a CPU.
        for task in [
            periodic(10),
            with("rm", periodic(10)),
            ranked(99),
            with("fp", ranked(1)),
            with("rr", ranked(1)),
            with("quiet", ranked(1)),
            Task::default(),
        ] {
            assert_eq!(denied(Request::Create(task)), Code::RuleOmission, "{task:?}");
        }
        // Neither a flag, nor a longer period, nor a desired runtime lifts a bound.
        for task in [reserved(10, 2_001), reserved(4_000, 3_000)] {
            assert_eq!(denied(Request::Create(task)), Code::RuleBound, "{task:?}");
        }
        let ignoring = Task { ignore_admission: true, ..reserved(10, 1_000) };
        assert_eq!(denied(Request::Create(ignoring)), Code::NotAllowed);
        let mut desiring = with("rm", reserved(20, 1_000));
        desiring.params.desired = Some(crate::tasks::work_us(19_000));
        let granted = client.create(desiring);
        assert!(
            granted.runtime <= Some(crate::tasks::work_us(2_000)),
            "a desired runtime is clipped: {granted:?}"
        );
        // In the sum over plugins, connections and changes it is still the same user.
        let second = mallory.connect(&fixture.daemon);
        let more = second.create(with("edf", reserved(20, 1_900)));
        let code = |no: Refusal| denial(&no);
        let over = Request::Create(with("rm", reserved(10, 1_900)));
        assert_eq!(code(second.refused(&over)), Some(Code::RuleBound));
        client.attach(granted.spec, tid);
        let given = kernel::attr(tid);
        for (task, expected) in [
            (with("rm", reserved(5, 1_999)), Code::RuleBound),
            (with("rm", reserved(50, 2_001)), Code::RuleBound),
            (with("rm", periodic(20)), Code::RuleOmission),
            (with("fp", ranked(99)), Code::RuleOmission),
        ] {
            let no = client.refused(&Request::Change { spec: granted.spec, task });
            assert_eq!(code(no), Some(expected), "{task:?}");
        }
        let group = Request::CreateGroup(vec![with("rm", reserved(20, 500)); 8]);
        assert_eq!(code(client.refused(&group)), Some(Code::RuleBound));
        assert_eq!(kernel::attr(tid), given);
        second.done(&Request::Release(more.spec));
        client.done(&Request::Release(granted.spec));
        second.close();
        assert!(kernel::is_ordinary(tid));
    });
}

#[test]
fn r20_a_user_without_a_rule_gets_nothing_in_any_form() {
    needs_root!();
    let fixture = Fixture::with("attack-unruled", &ruled(""));
    let mallory = Fixture::mallory();
    let client = mallory.connect(&fixture.daemon);
    fixture.under(|| {
        for task in
            [Task::default(), small(), periodic(10), ranked(1), with("edf", reserved(10, 100))]
        {
            for request in [Request::Create(task), Request::CreateGroup(vec![task; 3])] {
                assert_eq!(client.refused(&request).code, Code::NotAllowed);
            }
        }
    });
}

#[test]
fn retif_s5_s9_one_admission_is_one_thread() {
    needs_root!();
    let fixture = Fixture::new("attack-many-threads");
    let (mallory, second) = (Fixture::mallory(), Fixture::mallory());
    let client = mallory.connect(&fixture.daemon);
    fixture.under(|| {
        let threads: Vec<i32> = (0..4).map(|_| mallory.thread()).chain([second.thread()]).collect();
        let grant = client.create(small());
        let other = client.create(with("fp", ranked(9)));
        client.attach(grant.spec, threads[0]);
        for &tid in &threads {
            let expected = if tid == threads[0] { "itself" } else { "a second thread" };
            assert_eq!(code(client.try_attach(grant.spec, tid)), Code::SpecTaken, "{expected}");
        }
        assert_eq!(code(client.try_attach(other.spec, threads[0])), Code::ThreadTaken);
        // One after the other: a detached thread is ordinary before the next one is real-time.
        for pair in threads.windows(2) {
            client.done(&Request::Detach(grant.spec));
            assert!(kernel::is_ordinary(pair[0]));
            client.attach(grant.spec, pair[1]);
            let real_time =
                threads.iter().filter(|&&tid| kernel::policy(tid).is_realtime()).count();
            assert_eq!(real_time, 1);
        }
        // Sent all at once, without waiting for answers.
        client.done(&Request::Detach(grant.spec));
        let sent: Vec<u32> = threads
            .iter()
            .map(|&tid| {
                client
                    .send(&Request::Attach { spec: grant.spec, thread: ThreadRef::Tid(tid as u32) })
            })
            .collect();
        let done =
            sent.iter().filter(|_| client.receive().expect("an answer").1 == Reply::Done).count();
        assert_eq!(done, 1);
        let real_time = threads.iter().filter(|&&tid| kernel::policy(tid).is_realtime()).count();
        assert_eq!(real_time, 1);
        client.done(&Request::Release(grant.spec));
        client.done(&Request::Release(other.spec));
        assert!(threads.iter().all(|&tid| kernel::is_ordinary(tid)));
        threads[..4].iter().for_each(|&tid| mallory.end_thread(tid));
        second.end_thread(threads[4]);
    });
}

#[test]
fn retif_s6_children_of_an_attached_thread_are_ordinary() {
    needs_root!();
    let fixture = Fixture::new("attack-fork");
    let mallory = Fixture::on_all_cpus(Fixture::mallory());
    let client = mallory.connect(&fixture.daemon);
    fixture.beside_grants(|| {
        for task in [
            with("rm", periodic(100)),
            with("rr", ranked(9)),
            with("fp", ranked(9)),
            with("edf", reserved(20, 500)),
        ] {
            let tid = mallory.thread();
            let grant = client.create(task);
            client.attach(grant.spec, tid);
            assert!(kernel::attr(tid).reset_on_fork);
            let (thread, program) = (mallory.child_of(tid), mallory.program_from(tid));
            for child in [thread, program] {
                assert!(kernel::is_ordinary(child), "{task:?}");
            }
            client.done(&Request::Release(grant.spec));
            assert!(
                kernel::is_ordinary(tid)
                    && kernel::is_ordinary(thread)
                    && kernel::is_ordinary(program)
            );
            mallory.end_thread(tid);
        }
    });
}
