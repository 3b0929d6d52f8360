//! A request of a client makes a thread real-time, and its release ends that.

use crate::tasks::{periodic, ranked, reserved, with};
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs_root};
use talea_os::sched::Policy;
use talea_proto::Request;

#[test]
fn r2_an_unprivileged_client_gets_real_time_and_gives_it_back() {
    needs_root!();
    let bench = Bench::new("r2");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for (plugin, task) in
        [("rm", periodic(10)), ("rr", ranked(10)), ("fp", ranked(10)), ("edf", reserved(10, 1_000))]
    {
        let tid = alice.thread();
        let before = kernel::attr(tid);
        let cpus = kernel::affinity(tid);
        let granted = client.create(with(plugin, task));
        assert!(kernel::is_ordinary(tid), "{plugin}: nothing happens before attach");
        client.attach(granted.spec, tid);
        let attr = kernel::attr(tid);
        match plugin {
            "rm" | "fp" => assert_eq!(attr.policy, Policy::Fifo(granted.priority), "{plugin}"),
            "rr" => assert_eq!(attr.policy, Policy::Rr(granted.priority), "{plugin}"),
            _ => assert!(attr.policy.is_deadline(), "{plugin}: {attr:?}"),
        }
        assert!(attr.reset_on_fork, "{plugin}");
        client.done(&Request::Detach(granted.spec));
        assert_eq!(kernel::attr(tid), before, "{plugin}");
        assert_eq!(kernel::affinity(tid), cpus, "{plugin}");
        client.attach(granted.spec, tid);
        client.done(&Request::Release(granted.spec));
        assert_eq!(kernel::attr(tid), before, "{plugin}");
    }
    let granted = client.create(with("rm", periodic(10)));
    let tid = alice.thread();
    client.attach(granted.spec, tid);
    client.close();
    eventually("the thread of a gone session is ordinary", || kernel::is_ordinary(tid));
    assert_eq!(daemon.said_since_start(), [""; 0], "healthy is silent");
}
