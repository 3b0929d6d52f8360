//! Which plugin gets a task in a world with a past (checklist R9), that an explanation is what the
//! request itself would be answered, and that a group is what its tasks are one by one, or nothing.

use super::stage::{MS, Words, world_of};
use crate::input::{Machine, SessionId};
use crate::sim::{Dice, World};
use talea_core::setup::{
    Access, Band, Bound, Confine, Domain, EdfOptions, FpLevels, FpOptions, PluginKind, PluginSetup,
    RmOptions, RmTest, Rule, Setup,
};
use talea_core::{Charge, CpuSet, Params, Priority, Span, Work};
use talea_proto::message::{Name, SpecId};
use talea_proto::refusal::Said;
use talea_proto::{Code, Refusal, Reply, Request, Task, VERSION};

const CPUS: u32 = 3;

/// Up to six plugins in any order, with bands that may meet or overlap.
fn plugins(dice: &mut Dice) -> Vec<PluginSetup> {
    let count = 1 + dice.below(6);
    let plugin = |i: u64, dice: &mut Dice| {
        let low = 1 + dice.below(90) as u8;
        let band = Some(Band { low: Priority(low), high: Priority(low + dice.below(9) as u8) });
        let refuse_sharing = dice.chance(300);
        let levels = dice.pick(&[FpLevels::Each, FpLevels::Common]);
        let (kind, band) = match dice.below(5) {
            0 => {
                let threshold = dice.chance(500).then(|| Charge::ratio(1 + dice.below(8), 10));
                (PluginKind::Edf(EdfOptions { threshold, confine: Confine::Partition }), None)
            }
            1 | 2 => {
                let test = dice.pick(&[RmTest::Hyperbolic, RmTest::LiuLayland, RmTest::Necessary]);
                (PluginKind::Rm(RmOptions { test, refuse_sharing }), band)
            }
            3 => (PluginKind::Fp(FpOptions { refuse_sharing, levels }), band),
            _ => (PluginKind::Rr(FpOptions { refuse_sharing, levels }), band),
        };
        let cpus = if dice.chance(700) {
            CpuSet::first(CPUS)
        } else {
            CpuSet::single(dice.below(3) as u32)
        };
        PluginSetup { name: format!("p{i}"), cpus, band, kind }
    };
    (0..count).map(|i| plugin(i, dice)).collect()
}

fn rules(dice: &mut Dice, plugins: u64) -> Vec<Rule> {
    let rule = |i: u64, dice: &mut Dice| {
        let bound = match dice.below(7) {
            0 | 1 => Bound::MaxUtilization(Charge::ratio(2 + dice.below(20), 10)),
            2 => Bound::MaxRuntime(Work::from_ns((1 + dice.below(6)) * MS)),
            3 => Bound::MinPeriod(Span::from_ns((1 + dice.below(6)) * MS)),
            4 => Bound::MaxPriority(Priority(40 + dice.below(61) as u8)),
            5 => Bound::IgnoreAdmission(dice.chance(700)),
            _ => Bound::AllowUnbounded(dice.chance(700)),
        };
        let plugin = dice.chance(400).then(|| dice.below(plugins) as usize);
        let domain = dice.pick(&[Domain::Global, Domain::User(1000), Domain::User(1001)]);
        Rule { domain, plugin, bound, origin: format!("talead.toml:{i}") }
    };
    (0..dice.below(8)).map(|i| rule(i, dice)).collect()
}

fn random_setup(dice: &mut Dice) -> Setup {
    let plugins = plugins(dice);
    let rules = rules(dice, plugins.len() as u64);
    let access = if dice.chance(400) { Access::Off } else { Access::Rules };
    Setup { plugins, rules, access, ..Setup::default() }
}

fn random_task(dice: &mut Dice, setup: &Setup) -> Task {
    let period = 2 + dice.below(12);
    let runtime = 1 + dice.below(period);
    let params = Params {
        period: dice.chance(800).then(|| Span::from_ns(period * MS)),
        runtime: dice.chance(800).then(|| Work::from_ns(runtime * MS / 2)),
        desired: dice.chance(200).then(|| Work::from_ns(runtime * MS)),
        deadline: dice.chance(200).then(|| Span::from_ns((runtime + dice.below(3)) * MS)),
        priority: dice.chance(600).then(|| Priority(1 + dice.below(99) as u8)),
    };
    let name = match dice.below(10) {
        0 => Name::new("nobody"),
        1 | 2 => Name::new(&setup.plugins[dice.below(setup.plugins.len() as u64) as usize].name),
        _ => None,
    };
    let cpus = if dice.chance(200) { CpuSet::single(dice.below(5) as u32) } else { CpuSet::EMPTY };
    Task {
        params,
        plugin: name,
        cpus,
        cpus_mandatory: dice.chance(500),
        ignore_admission: dice.chance(100),
        ..Task::default()
    }
}

/// The first that serves it in full, else the first that serves it in part: ReTiF 3.3, in the words
/// of the paper.
fn by_the_paper(answers: &[talea_proto::Answer]) -> Option<u32> {
    let ok = answers.iter().position(|answer| matches!(answer.verdict, Said::Ok { .. }));
    let partial = answers.iter().position(|answer| matches!(answer.verdict, Said::Partial { .. }));
    ok.or(partial).map(|at| at as u32)
}

/// Everything that a client can see of the books.
fn seen(world: &mut World, root: SessionId) -> (Vec<u64>, u32, usize) {
    (world.free(root), world.broker.specs(), world.file.len())
}

#[test]
fn r9_the_first_ok_else_the_first_partial_else_nobody_and_explain_says_so_before() {
    let mut dice = Dice::Seed(9);
    let (mut granted, mut partial, mut refused, mut denied) = (0, 0, 0, 0);
    for _ in 0..120 {
        let setup = random_setup(&mut dice);
        let mut world = world_of(setup.clone(), CPUS);
        let (root, users) = (world.connect(0), [world.connect(1000), world.connect(1001)]);
        let mut held: Vec<(SessionId, SpecId)> = vec![];
        for _ in 0..25 {
            let client = dice.pick(&users);
            if dice.chance(200) && !held.is_empty() {
                let (client, spec) = held.swap_remove(dice.below(held.len() as u64) as usize);
                world.done(client, Request::Release(spec));
            }
            let task = random_task(&mut dice, &setup);
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
                    let said = &answers[chosen.expect("granted, so somebody was chosen") as usize];
                    let (Said::Ok { cpu, charge, notes } | Said::Partial { cpu, charge, notes }) =
                        said.verdict
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
                    partial += u32::from(matches!(said.verdict, Said::Partial { .. }));
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
        world.check_quiet(false);
    }
    let all = [granted, partial, refused, denied];
    assert!(granted > 600 && partial > 60 && refused > 600 && denied > 60, "{all:?}");
}

/// What each task of a group would be answered, one by one; `Err` with the first refusal.
fn one_by_one(
    world: &mut World,
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
fn a_group_is_what_its_tasks_are_one_by_one_or_nothing() {
    let mut dice = Dice::Seed(64);
    let (mut whole, mut none) = (0, 0);
    for _ in 0..60 {
        let setup = random_setup(&mut dice);
        let (mut world, mut twin) = (world_of(setup.clone(), CPUS), world_of(setup.clone(), CPUS));
        let (client, other) = (world.connect(1000), twin.connect(1000));
        let (root, watcher) = (world.connect(0), twin.connect(0));
        for _ in 0..12 {
            let tasks: Vec<Task> =
                (0..=dice.below(5)).map(|_| random_task(&mut dice, &setup)).collect();
            let before = seen(&mut world, root);
            let expected = one_by_one(&mut twin, other, &tasks);
            match (world.call(client, Request::CreateGroup(tasks.clone())), expected) {
                (Reply::GrantedGroup(group), Ok(places)) => {
                    let said: Vec<_> =
                        group.iter().map(|grant| (grant.plugin, grant.cpu)).collect();
                    assert_eq!(said, places, "{tasks:?}");
                    whole += 1;
                }
                (Reply::Refused(no), Err(expected)) => {
                    // What makes no sense is said first, wherever it stands.
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
            assert_eq!(world.free(root), twin.free(watcher));
        }
        world.check_quiet(false);
    }
    assert!(whole > 60 && none > 60, "{whole} {none}");
}

/// One of the 256 sets of what a request may declare beside its owner.
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
fn r3_whatever_is_declared_travels_is_kept_and_comes_back_as_it_was() {
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
            let client =
                if life == "the first daemon" { client } else { world.dial(pid, 1000, &[]) };
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
            world.settle();
        }
    }
    assert_eq!(kept, 192 - 32, "T alone is enough for rm, P for fp; with rm named only T counts");
}

#[test]
fn retif_m8_a_plugin_without_a_usable_cpu_refuses_and_is_never_asked_beyond_its_list() {
    // On CPUs that can't be confined edf has none that it may use; the others are asked for CPUs
    // that they lack.
    let machine = Machine::declared(4);
    let mut setup = super::stage::setup(&["edf", "rm", "fp", "rr"], 2);
    for plugin in &mut setup.plugins {
        plugin.cpus = CpuSet::single(2);
        if let PluginKind::Edf(options) = &mut plugin.kind {
            options.confine = Confine::Auto;
        }
    }
    let mut world = World::new(setup, machine, true, Dice::Seed(1));
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
    world.check_quiet(false);
}
