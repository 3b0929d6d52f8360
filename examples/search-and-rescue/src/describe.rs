//! The drone as a system file: for `talea check`, `simulate`, `analyze` and `compare`.
//!
//! The runtime says what is declared. What it can't know is what lies in the frames: how many
//! objects a detection hands on, which of them is the last of its frame, and when there are boats.

use crate::detect;
use crate::flight::{FRAME, Log, State};
use crate::mission::{Drone, Setup, frames};
use crate::scene::Kind;
use talea_core::engine::{ChannelId, Condition, NodeSpec};
use talea_core::workload::Cost;
use talea_core::{Span, Time};
use talea_system::diagnostic;
use talea_system::system::{self, Root};

/// Of each frame: its objects, and whether there are boats among them; none of a frame that is not
/// looked at.
fn seen(setup: &Setup) -> Vec<Option<(u32, bool)>> {
    let state = State::default();
    let log = Log::read(include_bytes!("../data/flight.tlog")).expect("a recording");
    let mut next = 0;
    let look = |(number, picture)| {
        let come = log.until(next, FRAME * number);
        next += come.len();
        state.hear_all(come);
        state.is_on().then(|| {
            let objects = detect::on_accelerator(picture);
            // A frame in which nothing is goes the same way.
            (objects.len().max(1) as u32, objects.iter().any(|object| object.kind == Kind::Boat))
        })
    };
    (0..setup.frames).zip(&frames()).map(look).collect()
}

impl Setup {
    /// The file.
    ///
    /// # Errors
    /// If the runtime can't say it, in its words.
    pub fn describe(&self) -> Result<String, String> {
        let text =
            Drone::new(self.clone()).application().describe().map_err(|error| error.to_string())?;
        let read = |text: &str| system::read(text, "the drone", &());
        let mut system = read(&text).map_err(|found| diagnostic::render(&found, false))?;
        let period = Span::from_ns(self.costs.period().as_nanos() as u64);
        system.duration = Span::from_ns(period.as_ns() * u64::from(self.frames));
        let seen = seen(self);
        let root = &mut system.roots[0];
        let counts: Vec<u32> = seen.iter().map(|seen| seen.map_or(0, |(count, _)| count)).collect();
        // Highlight and speed hand a frame on with its last object.
        let lasts: Vec<u32> = counts
            .iter()
            .flat_map(|&count| (1..=count).map(move |number| u32::from(number == count)))
            .collect();
        put(root, "detect", &counts);
        put(root, "highlight", &lasts);
        put(root, "speed", &lasts);
        let modes = (0..).zip(&seen).filter_map(|(frame, seen)| Some((frame, seen.as_ref()?.1)));
        let mut mode = false;
        for (frame, is_secure) in modes {
            if is_secure != mode {
                mode = is_secure;
                let at = Time::ZERO + Span::from_ns(period.as_ns() * frame);
                root.surroundings.changes.push((at, Condition::Mode(u8::from(is_secure))));
            }
        }
        system::write(&system).map_err(|error| error.to_string())
    }
}

/// What each job of a task puts into each of the channels that it puts into.
fn put(root: &mut Root, task: &str, counts: &[u32]) {
    let number = root.tasks.iter().position(|name| name == task).expect("one of the drone's");
    let mut tasks = root.tree.nodes().filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)));
    let (node, _) = tasks.nth(number).expect("as many nodes as names");
    let into: Vec<ChannelId> = (0..)
        .map(ChannelId)
        .zip(&root.tree.channels)
        .filter(|(_, channel)| channel.from == node)
        .map(|(id, _)| id)
        .collect();
    let marked =
        |cost: Cost| into.iter().fold(cost, |cost, &channel| cost.pushing(channel, counts));
    let source = &mut root.sources[number];
    source.cost = match std::mem::replace(&mut source.cost, Cost::Versions(Vec::new())) {
        Cost::Versions(costs) => Cost::Versions(costs.into_iter().map(marked).collect()),
        one => marked(one),
    };
}
