//! The daemon admits exactly what `talea analyze` proves of the equivalent system file.
//!
//! The test submits random tasks with deadlines up to their periods, on one CPU, one by one to the
//! broker's plugins and to the analysis. `rm` uses its exact test: its kernel priorities are levels
//! of an `fp` scheduler, sometimes fewer than there are deadlines. `edf` has the whole CPU.

use super::{Progress, analyze_root};
use std::fmt::Write;
use talea_broker::input::Platform;
use talea_broker::plugin::{PluginRequest, RuntimeCap, ThreadScope, Verdict};
use talea_broker::{PluginSet, SpecSlot};
use talea_core::setup::{Band, EdfOptions, OnOverrun, PluginKind, PluginSetup, RmOptions, Setup};
use talea_core::{Charge, CpuSet, Params, Priority, Span, Work};
use talea_sim::rng::Rng;
use talea_system::{self as system, Beside};

fn suite(kind: PluginKind, levels: u8) -> PluginSet {
    let cpus = CpuSet::single(0);
    let band = Band { low: Priority(1), high: Priority(levels) };
    let band = (!matches!(kind, PluginKind::Edf(_))).then_some(band);
    let plugins = vec![PluginSetup {
        name: "one".to_owned(),
        cpus,
        band,
        kind,
        on_overrun: OnOverrun::default(),
    }];
    let machine =
        Platform { partitionable: cpus, deadline_share: Charge::ONE, ..Platform::declared(1) };
    PluginSet::new(&Setup { plugins, ..Setup::default() }, &machine).expect("a sound setup")
}

fn ask(params: &Params, ignore_admission: bool) -> PluginRequest<'_> {
    let (allowed, preferred) = (CpuSet::EMPTY, CpuSet::EMPTY);
    PluginRequest {
        params,
        allowed,
        preferred,
        ignore_admission,
        cap: RuntimeCap::default(),
        exact_tests: None,
        thread: ThreadScope::default(),
    }
}

/// Draws a task; about four of them fill a CPU.
fn task(rng: &mut Rng) -> Params {
    const UNIT: u64 = 100_000;
    let period = [4, 5, 6, 8, 10, 12, 15, 20, 24, 30][rng.between(0, 9) as usize] * UNIT * 10;
    let runtime = rng.between(1, (period / UNIT / 3).max(1)) * UNIT;
    let deadline = rng.between(runtime / UNIT, period / UNIT) * UNIT;
    Params {
        period: Some(Span::from_ns(period)),
        runtime: Some(Work::from_ns(runtime)),
        deadline: Some(Span::from_ns(deadline)),
        ..Params::default()
    }
}

/// Returns the equivalent system file. The priorities are those that the broker granted, or 0 under
/// EDF.
fn file(tasks: &[(Params, u8)]) -> String {
    let policy = if tasks.iter().all(|&(_, level)| level == 0) { "edf" } else { "fp" };
    let mut text =
        format!("duration = \"1ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"{policy}\"\n");
    for (number, (params, level)) in tasks.iter().enumerate() {
        let ns = |span: Option<Span>| span.expect("declared").as_ns();
        let (period, deadline) = (ns(params.period), ns(params.deadline));
        let cost = params.runtime.expect("declared").as_ns();
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "[[task]]\nname = \"t{number}\"\nin = \"cpu\"\nperiod = \"{period}ns\"\ncost = \"{cost}ns\"\n\
             deadline = \"{deadline}ns\"\n"
        );
        if *level > 0 {
            let _ = writeln!(text, "priority = {level}");
        }
    }
    text
}

fn is_proved(tasks: &[(Params, u8)]) -> bool {
    let text = file(tasks);
    let system = system::read(&text, "drawn.toml", &Beside(|_: &_| Err(String::new())))
        .expect("a sound file");
    let answer = analyze_root(&system, 0, &system.roots[0], &mut Progress::silent(), &mut None)
        .expect("an answer");
    answer.0.proved
}

#[test]
fn r16_what_the_broker_admits_is_what_analyze_proves_of_the_same_system() {
    let mut rng = Rng::new(16);
    for is_edf in [false, true] {
        let (mut yes, mut no) = (0, 0);
        for _ in 0..120 {
            let kind = if is_edf {
                PluginKind::Edf(EdfOptions::default())
            } else {
                PluginKind::Rm(RmOptions::default())
            };
            let levels = [2, 3, 99][rng.between(0, 2) as usize];
            let mut suite = suite(kind, levels);
            let mut held: Vec<Params> = Vec::new();
            for _ in 0..10 {
                let params = task(&mut rng);
                let said = suite.ask(0, &ask(&params, false), None);
                // Admitted regardless of the test, to learn all placements. The kernel's own sum
                // can still refuse.
                let Verdict::Ok(anyway) = suite.ask(0, &ask(&params, true), None) else {
                    assert!(is_edf && matches!(said, Verdict::No(_)), "{said:?}");
                    continue;
                };
                let mut all = suite.clone();
                all.admit(0, SpecSlot(held.len() as u32), &ask(&params, true), &anyway);
                let tasks: Vec<(Params, u8)> = held
                    .iter()
                    .chain([&params])
                    .enumerate()
                    .map(|(slot, params)| (*params, all.placement(SpecSlot(slot as u32)).priority))
                    .collect();
                let admitted = matches!(said, Verdict::Ok(_));
                assert_eq!(admitted, is_proved(&tasks), "{said:?} for\n{}", file(&tasks));
                if let Verdict::Ok(offer) = said {
                    suite.admit(0, SpecSlot(held.len() as u32), &ask(&params, false), &offer);
                    held.push(params);
                    yes += 1;
                } else {
                    no += 1;
                }
            }
        }
        assert!(yes > 200 && no > 200, "{yes} {no}");
    }
}
