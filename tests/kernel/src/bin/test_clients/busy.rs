//! A client that has requests in progress all the time, until it is killed.
//!
//! The client requests grants, attaches threads of its own and of another process, changes,
//! detaches and releases, in an order that a seed determines. A refusal does not stop the client.

use crate::work::{self, Habit};
use crate::{PATIENCE, number};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use talea_client::{Client, Grant, Owner, Spec};
use talea_core::rng::Rng;

/// Number of the client's own threads; the habits follow in turn.
const OWN: usize = 6;

struct Place {
    tid: u32,
    /// Whether the thread belongs to another process. Its grant must not outlive the client, so
    /// such a thread never owns its grant.
    foreign: bool,
    grant: Option<Grant>,
    attached: bool,
}

pub(crate) fn run(words: &[&str], stop: &AtomicBool, ready: impl FnOnce()) -> io::Result<String> {
    let [path, seed, ref foreign @ ..] = *words else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let client = Client::builder().path(path).timeout(PATIENCE).lazy().map_err(io::Error::other)?;
    let mut rng = Rng::new(number(seed)? as u64);
    let mut places = Vec::new();
    for habit in Habit::ALL.into_iter().cycle().take(OWN) {
        places.push(Place {
            tid: work::start(habit)? as u32,
            foreign: false,
            grant: None,
            attached: false,
        });
    }
    for tid in foreign {
        places.push(Place {
            tid: number(tid)? as u32,
            foreign: true,
            grant: None,
            attached: false,
        });
    }
    // Everything is attached before `ready`: a client that is killed now leaves all of it behind.
    for place in &mut places {
        begin(&client, place, &mut rng);
    }
    ready();
    let mut steps = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let index = rng.below(places.len() as u64) as usize;
        step(&client, &mut places[index], &mut rng);
        steps += 1;
        if rng.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(rng.below(300)));
        }
    }
    Ok(format!("steps={steps}"))
}

fn begin(client: &Client, place: &mut Place, rng: &mut Rng) {
    place.grant = client.create(&spec(place.foreign, rng)).ok().and_then(Result::ok);
    place.attached =
        place.grant.as_ref().is_some_and(|grant| matches!(grant.attach(place.tid), Ok(Ok(()))));
}

/// Executes one more request for one of the grants. Requests may fail, because the test kills
/// daemons.
fn step(client: &Client, place: &mut Place, rng: &mut Rng) {
    let Some(grant) = &place.grant else { return begin(client, place, rng) };
    if grant.is_lost() {
        place.grant = None;
        return;
    }
    match rng.below(5) {
        0 => {
            let _ = grant.change(&spec(place.foreign, rng));
        }
        1 if place.attached => place.attached = !matches!(grant.detach(), Ok(Ok(()))),
        2 => {
            if let Some(grant) = place.grant.take() {
                let _ = grant.release();
            }
        }
        _ if !place.attached => place.attached = matches!(grant.attach(place.tid), Ok(Ok(()))),
        _ => {
            let _ = grant.info();
        }
    }
}

fn spec(foreign: bool, rng: &mut Rng) -> Spec {
    let ms = Duration::from_millis;
    let builder = match rng.below(5) {
        0 | 1 => {
            let period = [5, 10, 20, 50][rng.below(4) as usize];
            Spec::builder().plugin("edf").period(ms(period)).runtime(ms(period) / 25)
        }
        2 => Spec::builder().plugin("rm").period(ms(5 + rng.below(40))),
        3 => Spec::builder().plugin("rr").priority(1 + rng.below(90) as u8),
        _ => Spec::builder().plugin("fp").priority(1 + rng.below(90) as u8),
    };
    let owner = match rng.below(6) {
        0 if !foreign => Owner::Thread,
        1 => Owner::Process,
        _ => Owner::Session,
    };
    builder.owner(owner).build().expect("a specification")
}
