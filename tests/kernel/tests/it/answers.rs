//! Answers that take the thread and the machine into account: `explain` and the request itself.

use crate::tasks::{ranked, reserved, with};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use talea_core::rng::Rng;
use talea_core::{CpuSet, Span, Work};
use talea_kernel_tests::{ALICE, Agent, Bench, Client, Daemon, config, kernel, needs, needs_root};
use talea_os::Tid;
use talea_os::sched::{self, Attr, Policy};
use talea_proto::{Code, Reply, Request, Task, ThreadRef};

/// A real-time thread of this process, without a grant. It never computes.
struct Ungranted {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Ungranted {
    /// Starts the thread; `None` if the kernel does not admit it.
    fn start(policy: Policy) -> Option<Ungranted> {
        let ((stop, stopped), (ready, started)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            let set = sched::set(Tid::current(), &Attr::grant(policy));
            ready.send(set.is_ok()).expect("a test");
            let _ = stopped.recv();
        });
        let thread = Ungranted { stop, thread: Some(thread) };
        started.recv().expect("a thread").then_some(thread)
    }
}

impl Drop for Ungranted {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends a request about a task that is meant for this thread.
fn ask_for(client: &Client, request: &dyn Fn(Task) -> Request, task: Task, tid: i32) -> Reply {
    client.ask(&request(Task { thread: Some(ThreadRef::Tid(tid as u32)), ..task }))
}

#[test]
fn explain_gives_the_answer_of_create_and_attach_in_fifty_random_worlds() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("worlds");
    let mut daemon = Daemon::start(&bench, &config::open());
    let agent = Agent::user(ALICE);
    let mut random = Rng::new(1);
    let (mut granted, mut refused, mut undetected) = (0, 0, 0);
    for world in 0..50 {
        let client = agent.connect(&daemon);
        let period = |random: &mut Rng| *random.pick(&[10, 20, 50, 100]);
        let mut others = Vec::new();
        for _ in 0..random.below(3) {
            let (period, share) = (period(&mut random), *random.pick(&[10, 40, 80]));
            let span = Span::from_ns(period * 1_000_000);
            others.extend(Ungranted::start(Policy::Deadline {
                runtime: Work::from_ns(period * share * 10_000),
                deadline: span,
                period: span,
            }));
        }
        for _ in 0..random.below(3) {
            let (period, share) = (period(&mut random), *random.pick(&[10, 30, 60]));
            let task = reserved(period, period * share * 10);
            if let Reply::Granted(spec) = client.ask(&Request::Create(task)) {
                let tid = agent.thread();
                let said = client.try_attach(spec.spec, tid);
                if is_detected_at_attach(&said, &others) {
                    undetected += 1;
                    continue;
                }
                assert_eq!(said, Reply::Done, "{world}");
                match random.below(3) {
                    0 => agent.end_thread(tid),
                    1 => client.done(&Request::Release(spec.spec)),
                    _ => {}
                }
            }
        }
        if random.below(5) == 0 {
            daemon.kill();
            daemon.restart();
        }
        // Of a process of its own: a thread of the same one could have inherited the mask.
        let other = Agent::user(ALICE);
        let client = other.connect(&daemon);
        let (tid, mask) = (other.thread(), CpuSet::from_words(word(1 + random.below(3))));
        sched::set_affinity(kernel::tid(tid), &mask).expect("an affinity");
        let (period, share) = (period(&mut random), *random.pick(&[5, 20, 40, 80, 90]));
        let task = match random.below(5) {
            0 => ranked(1 + random.below(90) as u8),
            1 => with("edf", reserved(period, period * share * 10)),
            2 => with("rm", reserved(period, period * share * 10)),
            _ => reserved(period, period * share * 10),
        };
        let explained = ask_for(&client, &Request::Explain, task, tid);
        let Reply::Explained { chosen, answers, refusal } = explained else {
            panic!("{world}: {explained:?}")
        };
        let created = if random.below(2) == 0 {
            client.ask(&Request::Create(task))
        } else {
            ask_for(&client, &Request::Create, task, tid)
        };
        let run = match created {
            Reply::Granted(spec) => client.try_attach(spec.spec, tid),
            other => other,
        };
        match (chosen, run) {
            (Some(_), Reply::Done) => {
                granted += 1;
                assert!(kernel::affinity(tid).is_subset(&mask), "{world}: outside of the mask");
            }
            (Some(_), said) if is_detected_at_attach(&said, &others) => undetected += 1,
            (None, Reply::Refused(said)) => {
                refused += 1;
                assert_eq!(Some(said.code), refusal.map(|refusal| refusal.code), "{world}");
            }
            (Some(_), Reply::Refused(said)) => {
                // A survey between both requests found threads that had started since the last.
                let again = ask_for(&client, &Request::Explain, task, tid);
                let Reply::Explained { refusal: Some(refusal), .. } = &again else {
                    panic!("{world}: {answers:?}, then {said:?}, then {again:?}")
                };
                assert_eq!(said.code, refusal.code, "{world}: {answers:?}, then {again:?}");
                undetected += 1;
            }
            (None, Reply::Done) => {
                // A survey between both requests missed threads that had ended since the last.
                other.end_thread(tid);
                client.close();
                let (free, next) = (other.connect(&daemon), other.thread());
                sched::set_affinity(kernel::tid(next), &mask).expect("an affinity");
                let again = ask_for(&free, &Request::Explain, task, next);
                let Reply::Explained { chosen: Some(_), .. } = again else {
                    panic!("{world}: {answers:?}, then granted, then {again:?}")
                };
                undetected += 1;
            }
            (chosen, run) => panic!("{world}: {chosen:?} {answers:?}, but {run:?}"),
        }
    }
    let counts = format!("{granted} granted, {refused} refused, {undetected} undetected");
    assert!(granted >= 10 && refused >= 5 && undetected <= 10, "{counts}");
}

/// Whether the kernel has refused a thread because deadline threads without a grant have started
/// since the daemon's last survey, which is at most 20 of its durations ago.
fn is_detected_at_attach(said: &Reply, others: &[Ungranted]) -> bool {
    const EBUSY: i32 = 16;
    matches!(said, Reply::Refused(no) if (no.code, no.errno) == (Code::Kernel, EBUSY))
        && !others.is_empty()
}

fn word(bits: u64) -> [u64; talea_core::cpus::MAX_CPUS / 64] {
    std::array::from_fn(|index| if index == 0 { bits } else { 0 })
}

#[test]
fn r36_a_request_after_the_end_of_a_grant_waits_and_delays_no_other() {
    needs_root!();
    let bench = Bench::new("waits");
    let mut daemon = Daemon::start(&bench, &config::open());
    let (alice, other) = (Agent::user(ALICE), Agent::user(ALICE));
    let most = with("edf", reserved(900, 900_000 * 8 / 10));
    for end in ["exit", "kill", "release", "detach", "crash"] {
        let holder = Agent::user(ALICE);
        let client = holder.connect(&daemon);
        let (spec, tid) = (client.create(most).spec, holder.thread());
        client.attach(spec, tid);
        match end {
            "exit" => holder.end_thread(tid),
            "kill" => holder.kill(),
            "release" => client.done(&Request::Release(spec)),
            "detach" => {
                client.done(&Request::Detach(spec));
                client.done(&Request::Release(spec));
            }
            _ => {
                daemon.kill();
                holder.kill();
                daemon.restart();
            }
        }
        if end == "exit" {
            // The spec outlives its thread; its owner releases it.
            client.done(&Request::Release(spec));
        }
        let (waiting, busy) = (alice.connect(&daemon), other.connect(&daemon));
        waiting.send(&Request::Create(most));
        // Another client is served meanwhile.
        let beside = busy.create(ranked(5));
        busy.done(&Request::Release(beside.spec));
        let Some((_, Reply::Granted(granted))) = waiting.receive() else {
            panic!("{end}: not granted")
        };
        let tid = alice.thread();
        waiting.attach(granted.spec, tid);
        assert!(kernel::policy(tid).is_deadline(), "{end}");
        alice.end_thread(tid);
        waiting.close();
        busy.close();
        // The next round begins with a free domain.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

#[test]
fn a_thread_without_a_grant_above_the_band_is_noted() {
    needs_root!();
    let bench = Bench::new("above");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let above = talea_proto::message::Notes::UNGRANTED_ABOVE;
    assert!(!client.create(ranked(5)).notes.contains(above));
    let urgent = Ungranted::start(Policy::Fifo(98)).expect("root may");
    talea_kernel_tests::eventually("the daemon notices the thread", || {
        client.create(ranked(5)).notes.contains(above)
    });
    drop(urgent);
}

#[test]
fn r28_the_timer_slack_of_the_user_comes_back() {
    needs_root!();
    let bench = Bench::new("slack");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for task in [with("rm", reserved(10, 500)), with("edf", reserved(10, 500)), ranked(5)] {
        let tid = alice.thread();
        let path = format!("/proc/{tid}/timerslack_ns");
        let slack = || std::fs::read_to_string(&path).expect("a slack").trim().to_owned();
        std::fs::write(&path, "1234567").expect("root may");
        let spec = client.create(task).spec;
        client.attach(spec, tid);
        client.done(&Request::Detach(spec));
        assert_eq!(slack(), "1234567", "{task:?}");
        client.attach(spec, tid);
        client.done(&Request::Release(spec));
        assert_eq!(slack(), "1234567", "{task:?}");
    }
}
