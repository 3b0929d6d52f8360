//! The drone as a system file for `talea check`, `simulate`, `analyze` and `compare`.
//!
//! The runtime describes the declared tasks. This module adds the contents of the frames: the
//! number of tokens that each detection pushes, the last object of each frame, and the changes of
//! mode.

use crate::detect;
use crate::flight::{FRAME_PERIOD, Log, State};
use crate::mission::{Drone, Setup, frames};
use crate::scene::Kind;
use talea_core::engine::{ChannelId, Condition, NodeSpec};
use talea_core::workload::Cost;
use talea_core::{Span, Time};
use talea_system::diagnostic;
use talea_system::{self as system, Root};

/// Returns the number of objects of each frame and whether boats are among them. The entry of a
/// frame is `None` if the drone is off.
fn frame_contents(setup: &Setup) -> Vec<Option<(u32, bool)>> {
    let state = State::default();
    let log = Log::read(include_bytes!("../data/flight.tlog")).expect("a recording");
    let mut next = 0;
    let contents = |(number, picture)| {
        let received = log.until(next, FRAME_PERIOD * number);
        next += received.len();
        state.handle_all(received);
        state.is_on().then(|| {
            let objects = detect::on_accelerator(picture);
            // A frame without objects passes the graph with one token.
            (objects.len().max(1) as u32, objects.iter().any(|object| object.kind == Kind::Boat))
        })
    };
    (0..setup.frames).zip(&frames()).map(contents).collect()
}

impl Setup {
    /// Returns the text of the system file.
    ///
    /// # Errors
    /// Returns the message of the runtime if it cannot describe the application.
    pub fn describe(&self) -> Result<String, String> {
        let text =
            Drone::new(self.clone()).application().describe().map_err(|error| error.to_string())?;
        let read = |text: &str| system::read(text, "the drone", &());
        let mut system = read(&text).map_err(|found| diagnostic::render(&found, false))?;
        let period = Span::from_ns(self.costs.period().as_nanos() as u64);
        system.duration = Span::from_ns(period.as_ns() * u64::from(self.frames));
        let contents = frame_contents(self);
        let root = &mut system.roots[0];
        let counts: Vec<u32> =
            contents.iter().map(|frame| frame.map_or(0, |(count, _)| count)).collect();
        // Highlight and speed push a frame with its last object.
        let last_objects: Vec<u32> = counts
            .iter()
            .flat_map(|&count| (1..=count).map(move |number| u32::from(number == count)))
            .collect();
        set_pushes(root, "detect", &counts);
        set_pushes(root, "highlight", &last_objects);
        set_pushes(root, "speed", &last_objects);
        let modes =
            (0..).zip(&contents).filter_map(|(number, frame)| Some((number, frame.as_ref()?.1)));
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

/// Sets the number of tokens that each job of a task pushes into each of its output channels.
fn set_pushes(root: &mut Root, task: &str, counts: &[u32]) {
    let number = root.tasks.iter().position(|name| name == task).expect("a task of the drone");
    let mut tasks = root.tree.nodes().filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)));
    let (node, _) = tasks.nth(number).expect("one node per name");
    let channels: Vec<ChannelId> = (0..)
        .map(ChannelId)
        .zip(&root.tree.channels)
        .filter(|(_, channel)| channel.from == node)
        .map(|(id, _)| id)
        .collect();
    let with_pushes =
        |cost: Cost| channels.iter().fold(cost, |cost, &channel| cost.pushing(channel, counts));
    let source = &mut root.sources[number];
    source.cost = match std::mem::replace(&mut source.cost, Cost::Versions(Vec::new())) {
        Cost::Versions(costs) => Cost::Versions(costs.into_iter().map(with_pushes).collect()),
        cost => with_pushes(cost),
    };
}
