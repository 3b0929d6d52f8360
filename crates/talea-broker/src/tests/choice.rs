//! Choice of the plugin in a system with a history (R9). An explanation equals the answer of the
//! request itself. A group equals its tasks one by one, or has no effect.

use super::stage::{MS, Words, world_of};
use crate::input::{Platform, SessionId};
use crate::sim::{Rng, Simulation};
use talea_core::setup::{
    Access, Band, Bound, Confine, Domain, EdfOptions, FpLevels, FpOptions, OnOverrun, PluginKind,
    PluginSetup, RmOptions, RmTest, Rule, Setup,
};
use talea_core::{Charge, CpuSet, Params, Priority, Span, Work};
use talea_proto::message::{Name, SpecId};
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Code, Refusal, Reply, Request, Task, VERSION};

const CPUS: u32 = 3;

/// Returns up to six plugins in any order, with bands that may overlap.
fn plugins(rng: &mut Rng) -> Vec<PluginSetup> {
    let count = 1 + rng.below(6);
    let plugin = |i: u64, rng: &mut Rng| {
        let low = 1 + rng.below(90) as u8;
        let band = Some(Band { low: Priority(low), high: Priority(low + rng.below(9) as u8) });
        let refuse_sharing = rng.chance(300);
        let levels = rng.pick(&[FpLevels::Each, FpLevels::Common]);
        let (kind, band) = match rng.below(5) {
            0 => {
                let threshold = rng.chance(500).then(|| Charge::ratio(1 + rng.below(8), 10));
                (PluginKind::Edf(EdfOptions { threshold, confine: Confine::Partition }), None)
            }
            1 | 2 => {
                let test = rng.pick(&[RmTest::Hyperbolic, RmTest::LiuLayland, RmTest::Necessary]);
                (PluginKind::Rm(RmOptions { test, refuse_sharing }), band)
            }
            3 => (PluginKind::Fp(FpOptions { refuse_sharing, levels }), band),
            _ => (PluginKind::Rr(FpOptions { refuse_sharing, levels }), band),
        };
        let cpus =
            if rng.chance(700) { CpuSet::first(CPUS) } else { CpuSet::single(rng.below(3) as u32) };
        PluginSetup { name: format!("p{i}"), cpus, band, kind, on_overrun: OnOverrun::Throttle }
    };
    (0..count).map(|i| plugin(i, rng)).collect()
}

fn rules(rng: &mut Rng, plugins: u64) -> Vec<Rule> {
    let rule = |i: u64, rng: &mut Rng| {
        let bound = match rng.below(7) {
            0 | 1 => Bound::MaxUtilization(Charge::ratio(2 + rng.below(20), 10)),
            2 => Bound::MaxRuntime(Work::from_ns((1 + rng.below(6)) * MS)),
            3 => Bound::MinPeriod(Span::from_ns((1 + rng.below(6)) * MS)),
            4 => Bound::MaxPriority(Priority(40 + rng.below(61) as u8)),
            5 => Bound::IgnoreAdmission(rng.chance(700)),
            _ => Bound::AllowUnbounded(rng.chance(700)),
        };
        let plugin = rng.chance(400).then(|| rng.below(plugins) as usize);
        let domain = rng.pick(&[Domain::Global, Domain::User(1000), Domain::User(1001)]);
        Rule { domain, plugin, bound, origin: format!("talead.toml:{i}") }
    };
    (0..rng.below(8)).map(|i| rule(i, rng)).collect()
}

fn random_setup(rng: &mut Rng) -> Setup {
    let plugins = plugins(rng);
    let rules = rules(rng, plugins.len() as u64);
    let access = if rng.chance(400) { Access::Off } else { Access::Rules };
    Setup { plugins, rules, access, ..Setup::default() }
}

fn random_task(rng: &mut Rng, setup: &Setup) -> Task {
    let period = 2 + rng.below(12);
    let runtime = 1 + rng.below(period);
    let params = Params {
        period: rng.chance(800).then(|| Span::from_ns(period * MS)),
        runtime: rng.chance(800).then(|| Work::from_ns(runtime * MS / 2)),
        desired: rng.chance(200).then(|| Work::from_ns(runtime * MS)),
        deadline: rng.chance(200).then(|| Span::from_ns((runtime + rng.below(3)) * MS)),
        priority: rng.chance(600).then(|| Priority(1 + rng.below(99) as u8)),
    };
    let name = match rng.below(10) {
        0 => Name::new("nobody"),
        1 | 2 => Name::new(&setup.plugins[rng.below(setup.plugins.len() as u64) as usize].name),
        _ => None,
    };
    let cpus = if rng.chance(200) { CpuSet::single(rng.below(5) as u32) } else { CpuSet::EMPTY };
    Task {
        params,
        plugin: name,
        cpus,
        cpus_mandatory: rng.chance(500),
        ignore_admission: rng.chance(100),
        ..Task::default()
    }
}

/// Returns the plugin chosen by ReTiF 3.3: the first that serves the task in full, else the first
/// that serves it in part.
fn by_the_paper(answers: &[talea_proto::PluginAnswer]) -> Option<u32> {
    let ok = answers.iter().position(|answer| matches!(answer.verdict, PluginVerdict::Ok { .. }));
    let partial =
        answers.iter().position(|answer| matches!(answer.verdict, PluginVerdict::Partial { .. }));
    ok.or(partial).map(|at| at as u32)
}

/// Returns the free charges, the number of specs and the number of records.
fn seen(world: &mut Simulation, root: SessionId) -> (Vec<u64>, u32, usize) {
    (world.free(root), world.broker.specs(), world.file.len())
}

#[test]
fn r9_the_first_ok_else_the_first_partial_is_chosen_and_explain_agrees() {
    let mut rng = Rng::Seed(9);
    let (mut granted, mut partial, mut refused, mut denied) = (0, 0, 0, 0);
    for _ in 0..120 {
        let setup = random_setup(&mut rng);
        let mut world = world_of(setup.clone(), CPUS);
        let (root, users) = (world.connect(0), [world.connect(1000), world.connect(1001)]);
        let mut held: Vec<(SessionId, SpecId)> = vec![];
        for _ in 0..25 {
            let client = rng.pick(&users);
            if rng.chance(200) && !held.is_empty() {
                let (client, spec) = held.swap_remove(rng.below(held.len() as u64) as usize);
                world.done(client, Request::Release(spec));
            }
            let task = random_task(&mut rng, &setup);
            let before = seen(&mut world, root);
            let Reply::Explained { chosen, answers, refusal } =
                world.call(client, Request::Explain(task))
            else {
                panic!("an explanation");
            };
            assert_eq!(seen(&mut world, root), before, "explaining changes nothing");
            assert_eq!(chosen, by_the_paper(&answers), "{answers:?}");
            match world.call(client, Request::Create(task)) {
                Reply::Granted(grant) => {
                    let said =
                        &answers[chosen.expect("a granted task has a chosen plugin") as usize];
                    let (PluginVerdict::Ok { cpu, charge, notes }
                    | PluginVerdict::Partial { cpu, charge, notes }) = said.verdict
                    else {
                        panic!("{said:?}");
                    };
                    assert_eq!(
                        (said.plugin, cpu, charge, notes),
                        (grant.plugin, grant.cpu, grant.charge, grant.notes)
                    );
                    assert_eq!(refusal, None);
                    held.push((client, grant.spec));
                    granted += 1;
                    partial += u32::from(matches!(said.verdict, PluginVerdict::Partial { .. }));
                }
                Reply::Refused(no) => {
                    assert_eq!((chosen, refusal.as_ref()), (None, Some(&no)), "{task:?}");
                    assert_eq!(seen(&mut world, root), before, "a refusal changes nothing");
                    denied += u32::from(no.rule.is_some());
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        world.check_idle(false);
    }
    let all = [granted, partial, refused, denied];
    assert!(granted > 600 && partial > 60 && refused > 600 && denied > 60, "{all:?}");
}

/// Returns the answer to each task of a group, one by one; `Err` with the first refusal.
fn one_by_one(
    world: &mut Simulation,
    client: SessionId,
    tasks: &[Task],
) -> Result<Vec<(u32, Option<u32>)>, Refusal> {
    let (mut places, mut specs) = (vec![], vec![]);
    let mut refusal = None;
    for task in tasks {
        match world.call(client, Request::Create(*task)) {
            Reply::Granted(grant) => {
                places.push((grant.plugin, grant.cpu));
                specs.push(grant.spec);
            }
            Reply::Refused(no) => {
                refusal = Some(Refusal { index: places.len() as u32, ..*no });
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    if let Some(refusal) = refusal {
        for spec in specs {
            world.done(client, Request::Release(spec));
        }
        return Err(refusal);
    }
    Ok(places)
}

#[test]
fn a_group_equals_its_tasks_one_by_one_or_has_no_effect() {
    let mut rng = Rng::Seed(64);
    let (mut whole, mut none) = (0, 0);
    for _ in 0..60 {
        let setup = random_setup(&mut rng);
        let (mut world, mut reference) =
            (world_of(setup.clone(), CPUS), world_of(setup.clone(), CPUS));
        let (client, other) = (world.connect(1000), reference.connect(1000));
        let (root, watcher) = (world.connect(0), reference.connect(0));
        for _ in 0..12 {
            let tasks: Vec<Task> =
                (0..=rng.below(5)).map(|_| random_task(&mut rng, &setup)).collect();
            let before = seen(&mut world, root);
            let expected = one_by_one(&mut reference, other, &tasks);
            match (world.call(client, Request::CreateGroup(tasks.clone())), expected) {
                (Reply::GrantedGroup(group), Ok(places)) => {
                    let said: Vec<_> =
                        group.iter().map(|grant| (grant.plugin, grant.cpu)).collect();
                    assert_eq!(said, places, "{tasks:?}");
                    whole += 1;
                }
                (Reply::Refused(no), Err(expected)) => {
                    // An invalid task is refused first, at any position.
                    if no.code == Code::Malformed {
                        assert!(no.index >= expected.index, "{tasks:?}: {no:?}");
                    } else {
                        assert_eq!(*no, expected, "{tasks:?}");
                    }
                    assert_eq!(seen(&mut world, root), before, "all or nothing");
                    none += 1;
                }
                (said, expected) => panic!("{tasks:?}: {said:?} but {expected:?}"),
            }
            assert_eq!(world.free(root), reference.free(watcher));
        }
        world.check_idle(false);
    }
    assert!(whole > 60 && none > 60, "{whole} {none}");
}

/// Returns one of the 256 sets of what a request may declare beside its owner.
fn declared(bits: u32) -> Task {
    let has = |bit: u32| bits & (1 << bit) != 0;
    Task {
        params: Params {
            period: has(0).then_some(Span::from_ns(123_456_789)),
            runtime: has(1).then_some(Work::from_ns(1_234_567)),
            desired: has(2).then_some(Work::from_ns(2_345_678)),
            deadline: has(3).then_some(Span::from_ns(98_765_432)),
            priority: has(4).then_some(Priority(37)),
        },
        plugin: if has(5) { Name::new("rm") } else { None },
        ignore_admission: has(6),
        cpus: if has(7) { CpuSet::single(1) } else { CpuSet::EMPTY },
        cpus_mandatory: has(7),
        ..Task::default()
    }
}

#[test]
fn r3_every_declared_parameter_is_stored_and_returned_unchanged() {
    let mut buffer = vec![0xa5; talea_proto::MESSAGE_MAX];
    let mut kept = 0;
    for bits in 0..256 {
        let task = declared(bits);
        let length = Request::Create(task).encode(7, &mut buffer);
        let (seq, request) =
            talea_proto::wire::decode_request(&buffer[..length]).expect("well-formed");
        assert_eq!((seq, &request), (7, &Request::Create(task)));
        let mut world = world_of(super::stage::setup(&["edf", "rm", "fp", "rr"], 2), 2);
        let client = world.connect(1000);
        let Reply::Granted(granted) = world.call(client, request) else { continue };
        kept += 1;
        let pid = world.tid_of(client);
        for life in ["the first daemon", "the next one"] {
            let client = if life == "the first daemon" {
                client
            } else {
                world.open_connection(pid, 1000, &[])
            };
            if life != "the first daemon" {
                world.call(client, Request::Hello { min: VERSION, max: VERSION });
            }
            let info = world.query(client, granted.spec).expect("it is there");
            let length = Reply::Spec(Box::new(info)).encode(8, &mut buffer);
            let (_, reply) =
                talea_proto::wire::decode_reply(&buffer[..length]).expect("well-formed");
            let Reply::Spec(info) = reply else { panic!("{reply:?}") };
            assert_eq!(info.task, task, "{life}");
            world.restart();
            world.run_until_idle();
        }
    }
    assert_eq!(kept, 192 - 32, "T alone is enough for rm, P for fp; with rm named only T counts");
}

#[test]
fn retif_m8_a_plugin_without_a_usable_cpu_rejects_every_task() {
    // On CPUs that cannot be confined, edf has no usable CPU; the other plugins are asked for CPUs
    // that they lack.
    let platform = Platform::declared(4);
    let mut setup = super::stage::setup(&["edf", "rm", "fp", "rr"], 2);
    for plugin in &mut setup.plugins {
        plugin.cpus = CpuSet::single(2);
        if let PluginKind::Edf(options) = &mut plugin.kind {
            options.confine = Confine::Auto;
        }
    }
    let mut world = Simulation::new(setup, platform, true, Rng::Seed(1));
    let client = world.connect(1000);
    for plugin in ["edf", "rm", "fp", "rr"] {
        let mut task = declared(0b1_1111);
        task.plugin = Name::new(plugin);
        (task.cpus, task.cpus_mandatory) = (CpuSet::single(3), true);
        assert_eq!(world.refused(client, Request::Create(task)).code, Code::NoPlugin, "{plugin}");
        (task.cpus, task.cpus_mandatory) = (CpuSet::EMPTY, false);
        match (plugin, world.call(client, Request::Create(task))) {
            ("edf", Reply::Refused(no)) => assert_eq!(no.code, Code::NoPlugin),
            (_, Reply::Granted(granted)) => assert_eq!(granted.cpu, Some(2)),
            (_, said) => panic!("{plugin}: {said:?}"),
        }
    }
    world.check_idle(false);
}
