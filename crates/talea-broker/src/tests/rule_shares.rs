//! Shares of `max_utilization` for threads without a runtime, against a reference model.

use super::stage::{MS, Words, by, setup, timed, urgent, world_of};
use crate::input::{Limit, Platform, SessionId};
use crate::rules::shares::{MIN_BUDGET, WINDOW};
use crate::sim::{Rng, Simulation, Target};
use talea_core::setup::{Access, Bound, Domain, OnOverrun, Rule, Setup};
use talea_core::{Charge, Params, Span, Work};
use talea_proto::message::Notes;
use talea_proto::{Code, Field, Reply, Request, SpecId, Task, ThreadRef, VERSION};

/// Plugins of the tests, by index.
const PLUGINS: [&str; 4] = ["edf", "rm", "fp", "rr"];
const FP: usize = 2;

/// Users with their groups.
const USERS: [(u32, &[u32]); 4] = [(0, &[]), (1000, &[7]), (1001, &[7, 8]), (1002, &[])];

fn ruled(rules: &[(Domain, Option<usize>, Bound)]) -> Setup {
    let rule = |(at, &(domain, plugin, bound)): (usize, &(Domain, Option<usize>, Bound))| Rule {
        domain,
        plugin,
        bound,
        origin: format!("talead.toml:{}", at + 1),
    };
    Setup {
        access: Access::Rules,
        rules: rules.iter().enumerate().map(rule).collect(),
        ..setup(&PLUGINS, 4)
    }
}

/// The rules of the live test: a twentieth of a CPU for each user together.
fn twentieth(domain: Domain) -> Setup {
    let share = Bound::MaxUtilization(Charge::ratio(1, 20));
    ruled(&[(domain, None, share), (Domain::Global, None, Bound::AllowUnbounded(true))])
}

fn connect(world: &mut Simulation, (uid, groups): (u32, &[u32])) -> SessionId {
    let pid = world.kernel.free_id(100);
    world.kernel.spawn(pid, uid);
    let session = world.open_connection(pid, uid, groups);
    let hello = Request::Hello { min: VERSION, max: VERSION };
    assert!(matches!(world.call(session, hello), Reply::Welcome { .. }));
    session
}

fn spawn(world: &mut Simulation, session: SessionId) -> u32 {
    let (tid, own) = (world.kernel.free_id(2_000), world.kernel.ordinary());
    let tgid = world.tid_of(session);
    world.kernel.spawn_thread(tid, tgid, own);
    tid
}

fn limit_of(world: &Simulation, spec: SpecId) -> Option<Limit> {
    world.limits.get(&world.broker.thread_of(spec)?).copied()
}

fn budget_of(world: &Simulation, spec: SpecId) -> Option<u64> {
    limit_of(world, spec).map(|limit| limit.budget.as_ns())
}

fn unbounded() -> Task {
    by(urgent(5), "fp")
}

/// A grant of `percent` of a CPU by `fp`.
fn percent(percent: u64) -> Task {
    let params =
        Params { priority: urgent(5).params.priority, ..timed(percent * 100, 10_000).params };
    by(Task { params, ..Task::default() }, "fp")
}

#[test]
fn threads_without_a_runtime_share_what_declared_grants_leave_of_the_rule() {
    let mut world = world_of(twentieth(Domain::User(1000)), 4);
    let session = connect(&mut world, USERS[1]);
    let tids: Vec<u32> = (0..3).map(|_| spawn(&mut world, session)).collect();
    let first = world.attached(session, unbounded(), tids[0]);
    assert!(!first.notes.contains(Notes::UNLIMITED), "{first:?}");
    assert!(!first.notes.contains(Notes::BUDGET_NOT_ENFORCED), "{first:?}");
    let limit = limit_of(&world, first.spec).expect("a rule limits it");
    let expected = Limit {
        budget: Work::from_ns(5 * MS),
        period: WINDOW,
        on_overrun: OnOverrun::Throttle,
        uid: 1000,
    };
    assert_eq!(limit, expected);
    let second = world.attached(session, by(urgent(5), "rr"), tids[1]);
    for spec in [first.spec, second.spec] {
        assert_eq!(budget_of(&world, spec), Some(5 * MS / 2));
    }
    let declared = world.attached(session, percent(3), tids[2]);
    assert_eq!(budget_of(&world, declared.spec), Some(3 * MS / 10));
    for spec in [first.spec, second.spec] {
        assert_eq!(budget_of(&world, spec), Some(MS));
    }
    world.done(session, Request::Detach(second.spec));
    assert_eq!(budget_of(&world, first.spec), Some(2 * MS));
    world.done(session, Request::Release(declared.spec));
    assert_eq!(budget_of(&world, first.spec), Some(5 * MS));
    // With a runtime and a deadline, the rule counts a charge: that is the limit.
    let change = |task| Request::Change { spec: first.spec, task };
    let mut task = percent(2);
    (task.params.period, task.params.deadline) = (None, task.params.period);
    assert!(matches!(world.call(session, change(task)), Reply::Granted(_)));
    let limit = limit_of(&world, first.spec).expect("a limit");
    assert_eq!((limit.budget.as_ns(), limit.period.as_ns()), (MS / 5, 10 * MS));
}

#[test]
fn a_thread_that_would_get_less_than_the_minimum_is_refused_with_the_rule_and_the_rest() {
    let share = Bound::MaxUtilization(Charge::ratio(25, 10_000));
    let allow = (Domain::Global, None, Bound::AllowUnbounded(true));
    let mut world = world_of(ruled(&[allow, (Domain::Global, Some(FP), share)]), 4);
    let (session, other) = (connect(&mut world, USERS[1]), connect(&mut world, USERS[2]));
    let specs: Vec<_> = (0..3).map(|_| world.create(session, unbounded())).collect();
    for granted in &specs[..2] {
        let tid = spawn(&mut world, session);
        assert_eq!(world.attach(session, granted.spec, tid), Reply::Done);
    }
    assert_eq!(budget_of(&world, specs[1].spec), Some(125_000));
    let tid = spawn(&mut world, session);
    let Reply::Refused(refusal) = world.attach(session, specs[2].spec, tid) else {
        panic!("a share of 83 us per window")
    };
    assert_eq!((refusal.code, refusal.field), (Code::RuleBound, Field::Utilization));
    assert_eq!((refusal.asked, refusal.limit), (1_000, 500), "millionths of a CPU");
    assert_eq!(refusal.rule.as_deref(), Some("talead.toml:2"));
    // The answer to a request is that of its attach, and a declared grant cannot take the minimum.
    for task in [unbounded(), percent(1)] {
        assert_eq!(world.refused(other, Request::Create(task)).code, Code::RuleBound);
    }
    // A reload that leaves less than the minimum detaches no thread.
    let less = Bound::MaxUtilization(Charge::ratio(1, 10_000));
    world.reload(ruled(&[allow, (Domain::Global, Some(FP), less)]));
    world.run_until_idle();
    for granted in &specs[..2] {
        assert_eq!(budget_of(&world, granted.spec), Some(MIN_BUDGET.as_ns()));
    }
}

#[test]
fn a_share_of_a_whole_cpu_and_a_reaction_that_only_counts_leave_the_grant_unlimited() {
    let two = Bound::MaxUtilization(Charge::ratio(2, 1));
    let allow = (Domain::Global, None, Bound::AllowUnbounded(true));
    let mut world = world_of(ruled(&[allow, (Domain::Global, None, two)]), 4);
    let session = connect(&mut world, USERS[1]);
    let specs: Vec<_> = (0..3).map(|_| world.create(session, unbounded())).collect();
    assert!(specs[0].notes.contains(Notes::UNLIMITED));
    for (count, granted) in specs.iter().enumerate() {
        let tid = spawn(&mut world, session);
        assert_eq!(world.attach(session, granted.spec, tid), Reply::Done);
        let budget = (count == 2).then_some(200 * MS / 3);
        assert_eq!(budget_of(&world, granted.spec), budget);
    }
    let info = world.query(session, specs[0].spec).expect("it exists");
    assert!(!info.granted.notes.contains(Notes::UNLIMITED));
    let notify = (Domain::Global, None, Bound::OnOverrun(OnOverrun::Notify));
    world.reload(ruled(&[allow, (Domain::Global, None, two), notify]));
    world.run_until_idle();
    let info = world.query(session, specs[0].spec).expect("it exists");
    assert!(info.granted.notes.contains(Notes::UNLIMITED));
    let limit = limit_of(&world, specs[0].spec).expect("its overruns are counted");
    assert_eq!(limit.on_overrun, OnOverrun::Notify);
}

#[test]
fn adopted_threads_get_their_shares_after_the_last_record() {
    let mut world = world_of(twentieth(Domain::Global), 4);
    let session = connect(&mut world, USERS[1]);
    let specs: Vec<_> = (0..5)
        .map(|_| {
            let tid = spawn(&mut world, session);
            world.attached(session, unbounded(), tid).spec
        })
        .collect();
    world.restart();
    world.run_until_idle();
    for spec in specs {
        assert_eq!(budget_of(&world, spec), Some(MS));
    }
}

/// A grant in the reference model.
#[derive(Clone, Debug)]
struct Held {
    session: SessionId,
    /// Index in [`USERS`].
    user: usize,
    spec: SpecId,
    /// Index in [`PLUGINS`].
    plugin: usize,
    task: Task,
    tid: Option<u32>,
}

impl Held {
    fn charge(&self) -> Option<Charge> {
        self.task.params.runtime.and_then(|runtime| self.task.params.charge_of(runtime))
    }

    fn is_subject_of(&self, rule: &Rule) -> bool {
        let (uid, groups) = USERS[self.user];
        rule.plugin.is_none_or(|only| only == self.plugin)
            && match rule.domain {
                Domain::Global => true,
                Domain::User(user) => user == uid,
                Domain::Group(group) => group == uid || groups.contains(&group),
            }
    }

    /// Whether the grant has an attached thread that shares a rule. Rules do not bind root.
    fn shares(&self) -> bool {
        self.tid.is_some() && self.charge().is_none() && USERS[self.user].0 != 0
    }
}

/// Returns the rest of a rule for sharing threads, in units of 2^-64 of a CPU, and their number.
fn rest(rule: &Rule, all: &[Held]) -> Option<(i128, i128)> {
    let Bound::MaxUtilization(limit) = rule.bound else { return None };
    let subject = all.iter().filter(|held| held.is_subject_of(rule));
    let (mut left, mut count) = (limit.bits() as i128, 0);
    for held in subject {
        left -= held.charge().map_or(0, |charge| charge.bits() as i128);
        count += i128::from(held.shares());
    }
    Some((left, count))
}

const MIN_BITS: i128 = (1 << 64) / 1_000;
/// More than the rounding errors of all charges.
const ROUNDING: i128 = 1 << 10;

fn any_rules(rng: &mut Rng) -> Setup {
    let mut rules = vec![(Domain::Global, None, Bound::AllowUnbounded(true))];
    for _ in 0..rng.below(4) {
        let domain = rng.pick(&[Domain::Global, Domain::User(1000), Domain::Group(7)]);
        let ppm = rng.pick(&[500, 2_500, 10_000, 50_000, 200_000, 3_000_000]);
        let bound = Bound::MaxUtilization(Charge::ratio(ppm, 1_000_000));
        rules.push((domain, rng.pick(&[None, None, Some(FP)]), bound));
    }
    ruled(&rules)
}

fn any_task(rng: &mut Rng) -> (usize, Task) {
    let plugin = rng.pick(&[1, FP, FP, 3]);
    let runtime = rng.pick(&[0, 0, 0, 7, 100, 300]);
    let mut task = by(timed(runtime, 10_000), PLUGINS[plugin]);
    task.params.priority = urgent(5).params.priority;
    if plugin != 1 && rng.chance(500) {
        task.params.deadline = task.params.period.take().filter(|_| rng.chance(500));
    }
    (plugin, task)
}

/// Compares every limit with the model. Returns the rules whose subjects hold more than they allow.
fn compare(world: &Simulation, all: &[Held]) -> Vec<bool> {
    let rules = &world.setup().rules;
    for held in all.iter().filter(|held| held.tid.is_some()) {
        let limit = limit_of(world, held.spec).map(|limit| (limit.budget, limit.period));
        let params = &held.task.params;
        let rests = rules.iter().filter(|rule| held.is_subject_of(rule) && USERS[held.user].0 != 0);
        let rests: Vec<_> = rests.filter_map(|rule| rest(rule, all)).collect();
        if let Some(declared) = params.runtime.zip(params.period) {
            assert_eq!(limit, Some(declared), "{held:?}");
        } else if rests.is_empty() {
            assert_eq!(limit, None, "{held:?}");
        } else if held.charge().is_some() {
            assert_eq!(limit, params.runtime.zip(params.deadline), "{held:?}");
        } else {
            let share = rests.iter().map(|(left, count)| left / count).min().expect("a rule");
            let budget = ((share.max(MIN_BITS) * 100_000_000) >> 64) as u64;
            let (found, period) =
                limit.map_or((WINDOW.as_ns(), WINDOW), |(budget, period)| (budget.as_ns(), period));
            assert_eq!(period, WINDOW);
            let budget = budget.min(WINDOW.as_ns());
            assert!(found.abs_diff(budget) <= 1, "{found} instead of {budget}: {held:?}");
        }
    }
    let mut over = Vec::new();
    for rule in rules {
        let Some((left, count)) = rest(rule, all) else { continue };
        let sharing = all.iter().filter(|held| held.shares() && held.is_subject_of(rule));
        // A thread without a limit gets one CPU at most.
        let budgets = sharing.map(|held| budget_of(world, held.spec).unwrap_or(WINDOW.as_ns()));
        let sum = (i128::from(budgets.sum::<u64>()) << 64) / i128::from(WINDOW.as_ns());
        let is_over = left + ROUNDING < count * MIN_BITS;
        assert!(is_over || sum <= left + ROUNDING, "shares of {sum} exceed {left}: {rule:?}");
        over.push(is_over);
    }
    over
}

/// Each limit is ordered only if it has changed: the simulation asserts that.
fn run(seed: u64) -> [u32; 3] {
    let mut rng = Rng::Seed(seed);
    let rules = any_rules(&mut rng);
    let mut world = Simulation::new(rules, Platform::declared(4), true, Rng::Seed(seed));
    let sessions: Vec<SessionId> = USERS.iter().map(|user| connect(&mut world, *user)).collect();
    let mut all: Vec<Held> = Vec::new();
    let mut over = compare(&world, &all);
    let mut counts = [0; 3];
    for _ in 0..25 {
        // Rules do not bind root, but count what it holds.
        let mut is_exempt = false;
        let at = rng.below(all.len().max(1) as u64) as usize;
        match rng.below(20) {
            0..6 => {
                let user = rng.below(4) as usize;
                is_exempt = USERS[user].0 == 0;
                let (plugin, task) = any_task(&mut rng);
                if let Reply::Granted(granted) = world.call(sessions[user], Request::Create(task)) {
                    let (session, spec) = (sessions[user], granted.spec);
                    all.push(Held { session, user, spec, plugin, task, tid: None });
                }
            }
            6..13 if !all.is_empty() && all[at].tid.is_none() => {
                let held = all[at].clone();
                let tid = spawn(&mut world, held.session);
                let request = Request::Attach { spec: held.spec, thread: ThreadRef::Pidfd };
                let reply = world.call_about(held.session, request, Some(Target::Thread(tid)));
                let fits = world.setup().rules.iter().filter(|rule| held.is_subject_of(rule)).all(
                    |rule| {
                        rest(rule, &all)
                            .is_none_or(|(left, count)| left + ROUNDING >= (count + 1) * MIN_BITS)
                    },
                );
                let fits = fits || held.charge().is_some() || USERS[held.user].0 == 0;
                assert_eq!(reply == Reply::Done, fits, "{reply:?}: {held:?}");
                counts[usize::from(!fits)] += 1;
                all[at].tid = fits.then_some(tid);
            }
            13 if !all.is_empty() => {
                let (plugin, task) = any_task(&mut rng);
                is_exempt = USERS[all[at].user].0 == 0;
                let request = Request::Change { spec: all[at].spec, task };
                if let Reply::Granted(_) = world.call(all[at].session, request) {
                    (all[at].plugin, all[at].task) = (plugin, task);
                }
            }
            14 if !all.is_empty() => {
                if let Some(tid) = all[at].tid.take() {
                    world.kernel.end_thread(tid, world.now);
                    world.run_until_idle();
                }
            }
            15 | 16 if !all.is_empty() && all[at].tid.is_some() => {
                world.done(all[at].session, Request::Detach(all[at].spec));
                all[at].tid = None;
            }
            17 if !all.is_empty() => {
                let held = all.swap_remove(at);
                world.done(held.session, Request::Release(held.spec));
            }
            18 => {
                let rules = any_rules(&mut rng);
                world.reload(rules);
                world.run_until_idle();
                is_exempt = true;
            }
            _ => {}
        }
        world.check_idle(false);
        let now = compare(&world, &all);
        if is_exempt {
            counts[2] += u32::from(now.contains(&true));
        } else {
            let worse = over.iter().zip(&now).any(|(before, now)| !before && *now);
            assert!(!worse, "a request has taken the minimum share of a thread: {all:#?}");
        }
        over = now;
    }
    counts
}

#[test]
fn random_histories_never_exceed_a_rule_and_equal_the_model() {
    let mut sums = [0; 3];
    for seed in 0..1_000 {
        struct Named(u64);
        impl Drop for Named {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("seed {}", self.0);
                }
            }
        }
        let named = Named(seed);
        for (sum, count) in sums.iter_mut().zip(run(seed)) {
            *sum += count;
        }
        drop(named);
    }
    let [attached, refused, over] = sums;
    assert!(attached > 1_000 && refused > 100 && over > 50, "{sums:?}");
}

#[test]
fn the_window_and_the_minimum_are_those_of_the_manual() {
    assert_eq!((WINDOW, MIN_BUDGET), (Span::from_ns(100 * MS), Work::from_ns(100_000)));
}
