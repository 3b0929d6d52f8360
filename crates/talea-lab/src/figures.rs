//! `talea-lab retif`: the figures of ReTiF (JSA 2021), section 6, measured on this computer.
//!
//! `fig3`: duration of create by number of specs, for 1 to 20 declared CPUs. `fig4`: duration of
//! create by number of plugin instances and of concurrent clients (in the paper figure 3 on another
//! computer). `fig5`: duration of attach beside that of the direct call.

#![allow(clippy::cast_precision_loss, reason = "plotted")]

use super::baseline::RawExchange;
use super::bench::Sizes;
use super::placement::{self, Cpus, MeasuringThread, Place};
use super::reapply::Sleeper;
use super::request::{granted, us};
use super::samples::{Samples, ratio};
use super::server::{LabServer, Shape};
use super::tasks::{Kind, task};
use crate::folder;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use talea_core::CpuSet;
use talea_core::rng::Rng;
use talea_os::{Attr, Policy, Tid, sched};
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::plot::{Figure, Panel, Series};

/// Options of `talea-lab retif`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Figure to draw.
    figure: Which,
    /// Small numbers: shows that it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Directory for plots and data.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Which {
    Fig3,
    Fig4,
    Fig5,
}

/// Point of a series.
#[derive(Serialize)]
struct Point {
    plugin: Kind,
    /// Parameter of the series: `cpus`, `instances`, `clients` or `call`.
    what: &'static str,
    of: String,
    x: u64,
    median_ns: u64,
    p99_ns: u64,
}

/// Measures and draws one figure.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let (name, figure, points) = match args.figure {
        Which::Fig3 => fig3(args.quick)?,
        Which::Fig4 => fig4(args.quick)?,
        Which::Fig5 => fig5(args.quick)?,
    };
    let plot = folder::save(&args.out, &format!("{name}.svg"), &figure.svg())?;
    let data = output::to_json(&Data { points: &points })?;
    let data = folder::save(&args.out, &format!("{name}.json"), &data)?;
    let mut table = Table::new("PLUGIN | WHAT | OF | >X | >MEDIAN µs | >P99 µs");
    for point in &points {
        table.row(vec![
            point.plugin.name().to_owned(),
            point.what.to_owned(),
            point.of.clone(),
            point.x.to_string(),
            us(point.median_ns),
            us(point.p99_ns),
        ]);
    }
    output::print(&format!("{}\n{}", table.render(), folder::written(&[plot, data])))?;
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct Data<'a> {
    points: &'a [Point],
}

type Result3 = anyhow::Result<(&'static str, Figure<'static>, Vec<Point>)>;

/// Returns the numbers of specs at which create is measured.
fn marks(quick: bool) -> &'static [usize] {
    if quick { &[0, 16] } else { &[0, 64, 128, 256, 384, 512, 640, 768, 896, 1024] }
}

fn fig3(quick: bool) -> Result3 {
    let cpus = Cpus::of(Place::CrossCore).or_else(|_| Cpus::of(Place::SameCore))?;
    let declared: &[u32] = if quick { &[1, 20] } else { &[1, 2, 4, 8, 16, 20] };
    let fills = if quick { 1 } else { 20 };
    let mut points = Vec::new();
    let mut panels = Vec::new();
    for kind in Kind::ALL {
        let mut panel = Panel { title: kind.name().to_owned(), series: Vec::new() };
        let mut raw: Vec<(usize, Samples)> = Vec::new();
        for &count in declared {
            let of = output::count(count as usize, "CPU");
            output::note(&format!("fig3: {}, {of}", kind.name()));
            let shape = Shape { kind, instances: 1, declared: Some(count) };
            let (found, beside) = create_at(shape, cpus, marks(quick), fills)?;
            panel.series.push(series(&of, &found));
            points.extend(
                found.iter().map(|(x, samples)| point(kind, "cpus", &of, *x as u64, samples)),
            );
            if raw.is_empty() {
                raw = beside;
            } else {
                raw.iter_mut().zip(&beside).for_each(|((_, all), (_, more))| all.extend(more));
            }
        }
        panel.series.push(series("raw exchange", &raw));
        points.extend(
            raw.iter().map(|(x, samples)| point(kind, "cpus", "raw exchange", *x as u64, samples)),
        );
        panels.push(panel);
    }
    let figure = Figure {
        title: "Create against specs, for declared CPUs (ReTiF, Fig. 3)".to_owned(),
        x: "accepted specs",
        y: "create, median, µs",
        panels,
    };
    Ok(("fig3", figure, points))
}

/// Times at each mark, which is a number of specs.
type Marked = Vec<(usize, Samples)>;

/// Measures create at each mark while specs accumulate up to the last mark, `fills` times. Raw
/// exchanges of the same sizes alternate with the creates, because absolute times depend on the
/// computer and on the minute.
fn create_at(
    shape: Shape,
    cpus: Cpus,
    marks: &[usize],
    fills: usize,
) -> anyhow::Result<(Marked, Marked)> {
    const AT_EACH: usize = 16;
    let server = LabServer::start(shape, cpus.server)?;
    let client = server.client()?;
    let _measuring = MeasuringThread::set_up(cpus)?;
    let mut raw = RawExchange::start(cpus.server)?;
    let mut found: Marked = marks.iter().map(|&mark| (mark, Samples::default())).collect();
    let mut beside = found.clone();
    let mut random = Rng::new(2021);
    for _ in 0..fills {
        let mut grants = Vec::new();
        for ((mark, samples), (_, baseline)) in found.iter_mut().zip(&mut beside) {
            while grants.len() < *mark {
                grants.push(granted(client.create(&task(shape.kind, &mut random)))?);
            }
            for _ in 0..AT_EACH {
                let spec = task(shape.kind, &mut random);
                let sizes = Sizes::of(&spec);
                let grant = samples.time(|| granted(client.create(&spec)))?;
                baseline.time(|| raw.exchange(sizes.create))?;
                granted(grant.release())?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        grants.into_iter().try_for_each(|grant| granted(grant.release()))?;
    }
    Ok((found, beside))
}

fn series(name: &str, found: &[(usize, Samples)]) -> Series {
    let points = found
        .iter()
        .map(|(x, samples)| (*x as f64, samples.quantile(50) as f64 / 1000.0))
        .collect();
    Series { name: name.to_owned(), points }
}

fn point(plugin: Kind, what: &'static str, of: &str, x: u64, samples: &Samples) -> Point {
    let of = of.to_owned();
    Point { plugin, what, of, x, median_ns: samples.quantile(50), p99_ns: samples.quantile(99) }
}

fn fig4(quick: bool) -> Result3 {
    let cpus = Cpus::of(Place::CrossCore).or_else(|_| Cpus::of(Place::SameCore))?;
    let instances: &[u32] = if quick { &[1, 4] } else { &[1, 4, 16] };
    let clients: &[usize] = if quick { &[1, 4] } else { &[1, 8, 64] };
    let fills = if quick { 1 } else { 30 };
    let mut points = Vec::new();
    let mut by_instances = Panel { title: "plugin instances".to_owned(), series: Vec::new() };
    let mut by_clients =
        Panel { title: "clients, one of them urgent".to_owned(), series: Vec::new() };
    for kind in Kind::ALL {
        let mut line = Vec::new();
        for &count in instances {
            output::note(&format!(
                "fig4: {}, {}",
                kind.name(),
                output::count(count as usize, "plugin")
            ));
            let shape = Shape { kind, instances: count, declared: None };
            let (found, _) = create_at(shape, cpus, &[0], fills)?;
            points.push(point(kind, "instances", "create", u64::from(count), &found[0].1));
            line.push((f64::from(count), found[0].1.quantile(50) as f64 / 1000.0));
        }
        by_instances.series.push(Series { name: kind.name().to_owned(), points: line });
        let mut line = Vec::new();
        for &count in clients {
            output::note(&format!("fig4: {}, {}", kind.name(), output::count(count, "client")));
            let samples = concurrently(kind, cpus, count, if quick { 10 } else { 200 })?;
            points.push(point(kind, "clients", "create", count as u64, &samples));
            line.push((count as f64, samples.quantile(50) as f64 / 1000.0));
        }
        by_clients.series.push(Series { name: kind.name().to_owned(), points: line });
    }
    let figure = Figure {
        title: "Create against plugin instances and clients (ReTiF, Fig. 4)".to_owned(),
        x: "how many",
        y: "create, median, µs",
        panels: vec![by_instances, by_clients],
    };
    Ok(("fig4", figure, points))
}

/// Measures one client at real-time priority while the other clients create and release at the same
/// time.
fn concurrently(kind: Kind, cpus: Cpus, count: usize, rounds: usize) -> anyhow::Result<Samples> {
    use std::sync::atomic::{AtomicBool, Ordering};
    let server = LabServer::start(Shape { kind, instances: 1, declared: None }, cpus.server)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        let others: Vec<_> = (1..count)
            .map(|number| {
                scope.spawn(move || -> anyhow::Result<()> {
                    let client = server.client()?;
                    let mut random = Rng::new(number as u64 * 2 + 1);
                    while !stop.load(Ordering::Relaxed) {
                        granted(granted(client.create(&task(kind, &mut random)))?.release())?;
                    }
                    Ok(())
                })
            })
            .collect();
        let measured = (|| {
            let client = server.client()?;
            let _measuring = MeasuringThread::set_up(cpus)?;
            let mut samples = Samples::default();
            let mut random = Rng::new(99);
            for _ in 0..rounds {
                let spec = task(kind, &mut random);
                granted(samples.time(|| granted(client.create(&spec)))?.release())?;
                // The measurement of the paper pauses as well, and the other clients need CPU time.
                std::thread::sleep(Duration::from_micros(100));
            }
            anyhow::Ok(samples)
        })();
        stop.store(true, Ordering::Relaxed);
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        measured
    })
}

fn fig5(quick: bool) -> Result3 {
    let cpus = Cpus::of(Place::CrossCore).or_else(|_| Cpus::of(Place::SameCore))?;
    let rounds = if quick { 10 } else { 2000 };
    let mut points = Vec::new();
    let mut panels = Vec::new();
    for kind in [Kind::Rm, Kind::Fp, Kind::Rr] {
        output::note(&format!("fig5: {}", kind.name()));
        let server = LabServer::start(Shape { kind, instances: 1, declared: None }, cpus.server)?;
        let client = server.client()?;
        let sleeper = Sleeper::start()?;
        let mut random = Rng::new(5);
        let grant = granted(client.create(&task(kind, &mut random)))?;
        let _measuring = MeasuringThread::set_up(cpus)?;
        let (mut attach, mut direct) = (Samples::default(), Samples::default());
        for round in 0..rounds {
            attach.time(|| granted(grant.attach(sleeper.tid().as_raw() as u32)))?;
            granted(grant.detach())?;
            by_hand(kind, sleeper.tid(), &mut direct)?;
            if round % 64 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let percent = |samples: &Samples| {
            (1..=99).map(|p| (samples.quantile(p) as f64 / 1000.0, p as f64)).collect()
        };
        panels.push(Panel {
            title: format!(
                "{}: × {}",
                kind.name(),
                ratio(attach.quantile(50), direct.quantile(50))
            ),
            series: vec![
                Series { name: "attach".to_owned(), points: percent(&attach) },
                Series { name: "direct call".to_owned(), points: percent(&direct) },
            ],
        });
        points.push(point(kind, "call", "attach", 0, &attach));
        points.push(point(kind, "call", "sched_setscheduler", 0, &direct));
    }
    let figure = Figure {
        title: "Attach against the direct call (ReTiF, Fig. 5)".to_owned(),
        x: "µs",
        y: "percent of the calls that took no longer",
        panels,
    };
    Ok(("fig5", figure, points))
}

/// Attaches by the direct calls. Times only the call that makes the thread real-time.
fn by_hand(kind: Kind, tid: Tid, direct: &mut Samples) -> anyhow::Result<()> {
    let before = sched::get_affinity(tid)?;
    sched::set_affinity(tid, &CpuSet::single(before.iter().next().unwrap_or(0)))?;
    let policy = if kind == Kind::Rr { Policy::Rr(10) } else { Policy::Fifo(10) };
    direct.time(|| Ok(sched::set(tid, &Attr::grant(policy))?))?;
    sched::set(tid, &Attr::plain(Policy::Other { nice: 0 }))?;
    Ok(sched::set_affinity(tid, &before)?)
}

// The priority of the measuring threads limits the priorities of attached threads.
const _: () = assert!(placement::PRIORITY > 80, "measuring threads run above measured ones");
