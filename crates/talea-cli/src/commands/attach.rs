//! `talea attach`: requests grants for running threads.
//!
//! The grant belongs to the thread. It outlives this command, and ends with the thread or with
//! `talea release`.

use crate::args::AttachArgs;
use crate::args::task::TaskRequest;
use crate::broker_client::{BrokerClient, Options, Refused};
use crate::grant_text;
use crate::json::{GrantJson, RefusalJson, TaskJson};
use crate::kernel::name_of;
use anyhow::{Context, bail};
use serde::Serialize;
use talea_os::{Thread, Tid, proc};
use talea_proto::{GROUP_MAX, Granted, Owner, Task};
use talea_study::exit::{Exit, usage};
use talea_study::output::{count, note, print, print_json};

#[derive(Serialize)]
struct AttachReport {
    task: TaskJson,
    held: Vec<HeldThread>,
    not_held: Vec<UncoveredThread>,
    refusal: Option<RefusalJson>,
}

#[derive(Serialize)]
struct HeldThread {
    tid: i32,
    name: Option<String>,
    grant: GrantJson,
}

#[derive(Serialize)]
struct UncoveredThread {
    tid: i32,
    name: Option<String>,
}

pub(crate) fn run(options: &Options, args: &AttachArgs) -> anyhow::Result<Exit> {
    let TaskRequest::Grant { task, kind } = args.task.to_request(Owner::Thread) else {
        return Err(usage(
            "an ordinary thread (-P o:…) needs no grant; talea release releases a grant",
        ));
    };
    if let Some(why) = crate::broker_client::disabled() {
        bail!("{why}; nothing is attached");
    }
    let tid = Tid::new(args.thread).context("thread numbers start at 1")?;
    let main = Thread::open(tid).with_context(|| format!("cannot hold thread {tid}"))?;
    let all = proc::threads_of(main.tgid())
        .with_context(|| format!("cannot list the threads of {tid}"))?;
    let threads = if args.all_threads { open_all(&all)? } else { vec![main] };
    let mut link = BrokerClient::open(options)?;
    let task = link.choose_plugin(task, kind, &threads[0])?;
    let granted = match grant(&mut link, &task, &threads) {
        Ok(granted) => granted,
        Err(error) => {
            if let (true, Some(Refused(refusal))) = (args.output.json, error.downcast_ref()) {
                let refusal = Some(RefusalJson::from(&**refusal));
                print_json(&AttachReport {
                    task: (&task).into(),
                    held: vec![],
                    not_held: vec![],
                    refusal,
                })?;
            }
            return Err(error);
        }
    };
    let others: Vec<Tid> =
        all.into_iter().filter(|tid| threads.iter().all(|thread| thread.tid() != *tid)).collect();
    let plugin = link.plugin_name(granted[0].plugin)?;
    if args.output.json {
        let held = threads.iter().zip(&granted).map(|(thread, granted)| HeldThread {
            tid: thread.tid().as_raw(),
            name: name(thread.tid()),
            grant: GrantJson::new(granted, &plugin),
        });
        let not_held =
            others.iter().map(|&tid| UncoveredThread { tid: tid.as_raw(), name: name(tid) });
        print_json(&AttachReport {
            task: (&task).into(),
            held: held.collect(),
            not_held: not_held.collect(),
            refusal: None,
        })?;
        return Ok(Exit::Ok);
    }
    for (thread, granted) in threads.iter().zip(&granted) {
        let line = grant_text::granted(granted, &plugin, &task);
        print(&format!("spec {}: thread {}: {line}\n", granted.spec.0, named(thread.tid())))?;
        if options.verbose {
            for sentence in grant_text::notes(granted.notes) {
                note(sentence);
            }
        }
    }
    if !others.is_empty() {
        let list: Vec<String> = others.iter().map(|&tid| named(tid)).collect();
        note(&format!(
            "not held: {}: {} (--all-threads covers them)",
            count(list.len(), "other thread"),
            list.join(", ")
        ));
    }
    Ok(Exit::Ok)
}

/// Opens every thread. Skips threads that have just ended.
fn open_all(tids: &[Tid]) -> anyhow::Result<Vec<Thread>> {
    let threads: Vec<Thread> = tids.iter().filter_map(|&tid| Thread::open(tid).ok()).collect();
    match threads.len() {
        0 => bail!("the process has just ended"),
        n if n > GROUP_MAX => {
            bail!("the process has {n} threads; at most {GROUP_MAX} can be covered in one request")
        }
        _ => Ok(threads),
    }
}

/// Requests a grant for each thread, all or none.
fn grant(link: &mut BrokerClient, task: &Task, threads: &[Thread]) -> anyhow::Result<Vec<Granted>> {
    let granted = match threads.len() {
        1 => vec![link.create(task, &threads[0])?],
        count => link.create_group(task, count, &threads[0])?,
    };
    for (thread, one) in threads.iter().zip(&granted) {
        let error = match link.attach(one.spec, thread) {
            Ok(None) => continue,
            Ok(Some(but)) => {
                note(&format!("thread {}: {}", named(thread.tid()), grant_text::caveat(but)));
                continue;
            }
            Err(error) => error,
        };
        // A thread that has ended meanwhile needs no grant. Its grant is released; the others stay.
        if threads.len() > 1 && !thread.is_alive() {
            link.release_unused(one.spec);
            continue;
        }
        for grant in &granted {
            link.release_unused(grant.spec);
        }
        return Err(error);
    }
    Ok(granted)
}

fn name(tid: Tid) -> Option<String> {
    name_of(u32::try_from(tid.as_raw()).ok()?)
}

fn named(tid: Tid) -> String {
    name(tid).map_or_else(|| tid.to_string(), |name| format!("{tid} ({name})"))
}
