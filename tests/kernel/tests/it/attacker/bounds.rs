//! More than one's share: quotas, rules, and the ways around them.

use super::siege::{MALLORY, Siege, code, figure, small};
use crate::tasks::{owned_by, periodic, ranked, reserved, with};
use std::time::{Duration, Instant};
use talea_kernel_tests::{BOB, config, eventually, kernel, needs_root};
use talea_proto::refusal::Said;
use talea_proto::{Code, Field, Named, Owner, Refusal, Reply, Request, Task};

/// Few of everything.
const TIGHT: &str =
    "[daemon.quota]\nsessions_per_user = 6\nspecs_per_user = 10\nrequests_per_second = 20000\n";

#[test]
fn retif_d4_more_specs_than_the_quota_are_refused_on_any_number_of_connections() {
    needs_root!();
    let siege = Siege::with("attack-specs-quota", &(config::open() + TIGHT));
    let mallory = Siege::mallory();
    siege.under(|| {
        let clients = [mallory.connect(&siege.daemon), mallory.connect(&siege.daemon)];
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
fn retif_d4_more_connections_than_the_quota_are_told_so_and_closed() {
    needs_root!();
    let siege = Siege::with("attack-sessions-quota", &(config::open() + TIGHT));
    siege.under(|| {
        // As many processes as she likes: the user counts.
        let processes = [Siege::mallory(), Siege::mallory(), Siege::mallory()];
        let clients: Vec<_> =
            (0..6).map(|index| processes[index % 3].connect(&siege.daemon)).collect();
        for process in &processes {
            let late = process.connect_silently(&siege.daemon);
            let hello = Request::Hello { min: talea_proto::VERSION, max: talea_proto::VERSION };
            let no = late.refused(&hello);
            assert_eq!((no.code, no.field, no.limit), (Code::Quota, Field::Sessions, 6));
            assert_eq!(late.receive(), None);
        }
        clients[0].close();
        eventually("a place is free again", || {
            let again = processes[0].connect_silently(&siege.daemon);
            let hello = Request::Hello { min: talea_proto::VERSION, max: talea_proto::VERSION };
            matches!(again.ask(&hello), Reply::Welcome { .. })
        });
    });
}

#[test]
fn retif_d4_whoever_asks_too_fast_is_not_read_from_for_a_while() {
    needs_root!();
    // The honest client keeps to the rate that everybody has; hers is a user of its own.
    let quota = "[daemon.quota]\nrequests_per_second = 6000\nburst = 50\n";
    let siege = Siege::with("attack-rate", &(config::open() + quota));
    let troupe = siege.troupe(MALLORY);
    let socket = siege.daemon.socket().display();
    siege.under(|| {
        let begun = Instant::now();
        assert_eq!(troupe.order(&format!("start swarm swarm {socket} 4 status")), "started");
        std::thread::sleep(Duration::from_millis(500));
        let said = troupe.order("stop swarm");
        let seconds = begun.elapsed().as_secs_f64();
        let answered = u32::try_from(figure(&said, "received")).map_or(f64::INFINITY, f64::from);
        println!("{said} in {seconds} s");
        assert!(answered > 100.0, "she is slowed down, not shut out");
        // The rate, the burst, and one more for each connection and its hello.
        let paid = 6000.0 * seconds + 50.0 + 8.0;
        assert!(answered <= paid * 1.02, "{answered} answers in {seconds} s, {paid} were paid for");
    });
    assert!(siege.daemon.log().contains("over its request rate"), "{}", siege.daemon.log());
}

/// Why the rules refuse it, wherever in the refusal that stands.
fn denial(refusal: &Refusal) -> Option<Code> {
    let ruled = |code| matches!(code, Code::NotAllowed | Code::RuleBound | Code::RuleOmission);
    let of_plugins = || {
        refusal.answers.iter().find_map(|answer| match answer.verdict {
            Said::Denied { code, .. } => Some(code),
            _ => None,
        })
    };
    if ruled(refusal.code) { Some(refusal.code) } else { of_plugins() }
}

/// Bob and Carol may do what the siege wants of them.
fn ruled(rules: &str) -> String {
    let helpers = format!(
        "[[rule]]\ndomain = \"#{BOB}\"\nplugin = \"quiet\"\nmin_priority = 1\n\
         [[rule]]\ndomain = \"#60003\"\nplugin = \"rm\"\nmin_period = \"1ms\"\n"
    );
    // Rules name plugins that must stand in the file: `QUIET` is put behind by the siege, so it is
    // not here.
    config::with_rules(&(helpers + rules))
}

#[test]
fn r22_no_omission_no_detour_and_no_sum_of_parts_gets_around_a_bound() {
    needs_root!();
    let rules = format!(
        "[[rule]]\ndomain = \"#{MALLORY}\"\nmax_utilization = 0.3\nmax_runtime = \"2ms\"\n"
    );
    let siege = Siege::with("attack-omission", &ruled(&rules));
    let mallory = Siege::mallory();
    let client = mallory.connect(&siege.daemon);
    let tid = mallory.thread();
    siege.under(|| {
        let denied = |request: Request| {
            let no = client.refused(&request);
            denial(&no).unwrap_or_else(|| panic!("not by the rules: {no:?}"))
        };
        // What says nothing of its runtime could use all of a CPU.
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
        // Nor does a bound give way to a flag, to a longer period, or to a wish.
        for task in [reserved(10, 2_001), reserved(4_000, 3_000)] {
            assert_eq!(denied(Request::Create(task)), Code::RuleBound, "{task:?}");
        }
        let ignoring = Task { ignore_admission: true, ..reserved(10, 1_000) };
        assert_eq!(denied(Request::Create(ignoring)), Code::NotAllowed);
        let mut wishing = with("rm", reserved(20, 1_000));
        wishing.params.desired = Some(crate::tasks::work_us(19_000));
        let granted = client.create(wishing);
        assert!(
            granted.runtime <= Some(crate::tasks::work_us(2_000)),
            "a wish is clipped: {granted:?}"
        );
        // In the sum over plugins, connections and changes it is still the same user.
        let second = mallory.connect(&siege.daemon);
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
fn r20_whoever_no_rule_speaks_of_gets_nothing_in_any_form() {
    needs_root!();
    let siege = Siege::with("attack-unruled", &ruled(""));
    let mallory = Siege::mallory();
    let client = mallory.connect(&siege.daemon);
    siege.under(|| {
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
    let siege = Siege::new("attack-many-threads");
    let (mallory, second) = (Siege::mallory(), Siege::mallory());
    let client = mallory.connect(&siege.daemon);
    siege.under(|| {
        let threads: Vec<i32> = (0..4).map(|_| mallory.thread()).chain([second.thread()]).collect();
        let grant = client.create(small());
        let other = client.create(with("fp", ranked(9)));
        client.attach(grant.spec, threads[0]);
        for &tid in &threads {
            let expected = if tid == threads[0] { "itself" } else { "a second thread" };
            assert_eq!(code(client.try_attach(grant.spec, tid)), Code::SpecTaken, "{expected}");
        }
        assert_eq!(code(client.try_attach(other.spec, threads[0])), Code::ThreadTaken);
        // One after the other: whoever is detached is ordinary before the next is not.
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
                    .send(&Request::Attach { spec: grant.spec, thread: Named::Number(tid as u32) })
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
fn retif_s6_what_an_attached_thread_begets_is_ordinary() {
    needs_root!();
    let siege = Siege::new("attack-fork");
    let mallory = Siege::mallory();
    let client = mallory.connect(&siege.daemon);
    siege.beside_grants(|| {
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
