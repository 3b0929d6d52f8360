//! What the flight controller says: MAVLink messages, from a recorded flight.
//!
//! A recording is a `.tlog`: each message behind eight bytes with the microsecond at which it came,
//! big end first. Heard are the position, and the commands that switch the camera on and off
//! (`MAV_CMD_IMAGE_START_CAPTURE`, `…_STOP_CAPTURE`) and this payload (`MAV_CMD_USER_1`, 1 or 0);
//! everything else is counted.

use crate::scene;
use mavlink::dialects::common::{
    COMMAND_LONG_DATA, GLOBAL_POSITION_INT_DATA, HEARTBEAT_DATA, MavCmd, MavMessage,
    SYSTEM_TIME_DATA,
};
use mavlink::{MAVLinkV2MessageRaw, MavHeader, MavlinkVersion, Message};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;
use talea_core::mutate;

/// A frame of the mission, whatever it takes here.
pub const FRAME: Duration = Duration::from_millis(500);
/// Between two looks for messages, in the time of the mission.
pub const LOOK: Duration = Duration::from_millis(125);

/// Where the mission begins, in 10⁻⁷ degrees.
const HOME: [i32; 2] = [540_000_000, 70_000_000];
/// 10⁻⁷ degrees of latitude or, here, two thirds of them of longitude, in half a metre: a pixel.
const PIXEL: i32 = 45;

/// A place on Earth, in 10⁻⁷ degrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// North.
    pub latitude: i32,
    /// East.
    pub longitude: i32,
}

impl Position {
    /// Where a pixel of a frame is that was taken from here: the drone is over its left border, in
    /// the middle, and flies east.
    #[must_use]
    pub fn of_pixel(self, x: i32, y: i32) -> Position {
        let north = scene::HEIGHT as i32 / 2 - y;
        Position {
            latitude: self.latitude + north * PIXEL,
            longitude: self.longitude + x * PIXEL * 3 / 2,
        }
    }
}

/// What is known of the flight. Written by the handler, read by everybody.
#[derive(Debug, Default)]
pub struct State {
    captures: AtomicBool,
    is_enabled: AtomicBool,
    latitude: AtomicI32,
    longitude: AtomicI32,
    heard: AtomicU32,
    spoiled: AtomicU32,
}

impl State {
    /// Whether frames are to be taken and looked at.
    pub fn is_on(&self) -> bool {
        self.captures.load(Ordering::Acquire) && self.is_enabled.load(Ordering::Acquire)
    }

    /// Where the drone is.
    pub fn position(&self) -> Position {
        Position {
            latitude: self.latitude.load(Ordering::Acquire),
            longitude: self.longitude.load(Ordering::Acquire),
        }
    }

    /// Messages that were sound, and those that were not.
    pub fn heard(&self) -> [u32; 2] {
        [self.heard.load(Ordering::Acquire), self.spoiled.load(Ordering::Acquire)]
    }

    /// Hears all of these.
    pub fn hear_all(&self, come: &[(Duration, Vec<u8>)]) {
        for (_, message) in come {
            self.hear(message);
        }
    }

    /// Hears one message, as it came.
    pub fn hear(&self, bytes: &[u8]) {
        let Some(message) = parsed(bytes) else {
            self.spoiled.fetch_add(1, Ordering::AcqRel);
            return;
        };
        self.heard.fetch_add(1, Ordering::AcqRel);
        match message {
            MavMessage::GLOBAL_POSITION_INT(at) => {
                self.latitude.store(at.lat, Ordering::Release);
                self.longitude.store(at.lon, Ordering::Release);
            }
            MavMessage::COMMAND_LONG(command) => match command.command {
                MavCmd::MAV_CMD_IMAGE_START_CAPTURE => self.captures.store(true, Ordering::Release),
                MavCmd::MAV_CMD_IMAGE_STOP_CAPTURE => self.captures.store(false, Ordering::Release),
                MavCmd::MAV_CMD_USER_1 => {
                    self.is_enabled.store(command.param1 > 0.5, Ordering::Release);
                }
                _ => {}
            },
            _ => {}
        }
    }
}

/// Checks its sum and reads it, without a byte of memory.
fn parsed(bytes: &[u8]) -> Option<MavMessage> {
    let mut raw = MAVLinkV2MessageRaw::new();
    raw.as_mut_slice().get_mut(..bytes.len())?.copy_from_slice(bytes);
    let is_whole = bytes.first() == Some(&mavlink::MAV_STX_V2)
        && raw.raw_bytes().len() == bytes.len()
        && mutate!(
            "drone-message-sum",
            raw.has_valid_crc::<MavMessage>(),
            raw.payload_length() > 0
        );
    if !is_whole {
        return None;
    }
    MavMessage::parse(MavlinkVersion::V2, raw.message_id(), raw.payload()).ok()
}

/// A recorded flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log(Vec<(Duration, Vec<u8>)>);

/// Bytes of a message beside its payload: the start, nine of the head, two of the sum.
const AROUND: usize = 12;

impl Log {
    /// Reads a recording.
    ///
    /// # Errors
    /// Says at which byte it is none.
    pub fn read(bytes: &[u8]) -> Result<Log, String> {
        let mut messages = Vec::new();
        let mut rest = bytes;
        while let Some((time, message)) = rest.split_first_chunk::<8>() {
            let length = message.get(1).map_or(0, |&payload| AROUND + usize::from(payload));
            let whole = message.get(..length).filter(|_| length > 0);
            let whole =
                whole.ok_or_else(|| format!("byte {}: cut off", bytes.len() - rest.len()))?;
            messages.push((Duration::from_micros(u64::from_be_bytes(*time)), whole.to_vec()));
            rest = &message[length..];
        }
        if rest.is_empty() { Ok(Log(messages)) } else { Err("half a time at the end".to_owned()) }
    }

    /// Of those from the `from`th on that have come until then, and how many there are.
    pub fn until(&self, from: usize, time: Duration) -> &[(Duration, Vec<u8>)] {
        let rest = self.0.get(from..).unwrap_or_default();
        &rest[..rest.iter().take_while(|(at, _)| *at <= time).count()]
    }

    /// All of them.
    pub fn messages(&self) -> &[(Duration, Vec<u8>)] {
        &self.0
    }
}

/// The flight over the sea of [`scene`]: time and life signs each second, the position four times
/// in it, and the commands: the payload from 0.3 s on, the camera from 0.8 s on, so that the third
/// frame is the first, both until the end.
pub fn recording() -> Vec<u8> {
    let seconds = u64::from(scene::FRAMES) * FRAME.as_millis() as u64 / 1_000;
    let mut messages: Vec<(u64, MavMessage)> = Vec::new();
    for second in 0..=seconds {
        let milliseconds = (second * 1_000) as u32;
        let time_unix_usec = 1_600_000_000_000_000 + second * 1_000_000;
        let time = SYSTEM_TIME_DATA { time_unix_usec, time_boot_ms: milliseconds };
        messages.push((second * 1_000, MavMessage::SYSTEM_TIME(time)));
        messages.push((second * 1_000 + 10, MavMessage::HEARTBEAT(HEARTBEAT_DATA::default())));
    }
    for quarter in 0..=seconds * 4 {
        let milliseconds = quarter * 250;
        let east = (milliseconds as i32 / 250) * scene::PACE / 2;
        let at = Position { latitude: HOME[0], longitude: HOME[1] + east * PIXEL * 3 / 2 };
        let at = GLOBAL_POSITION_INT_DATA {
            time_boot_ms: milliseconds as u32,
            lat: at.latitude,
            lon: at.longitude,
            alt: 60_000,
            relative_alt: 60_000,
            vy: (scene::PACE * 100) as i16,
            hdg: 9_000,
            ..GLOBAL_POSITION_INT_DATA::default()
        };
        // Before the frame that is taken there, by more than a look.
        messages.push((milliseconds.saturating_sub(150), MavMessage::GLOBAL_POSITION_INT(at)));
    }
    let mut command = |milliseconds: u64, command: MavCmd, param1: f32| {
        let command = COMMAND_LONG_DATA { command, param1, ..COMMAND_LONG_DATA::default() };
        messages.push((milliseconds, MavMessage::COMMAND_LONG(command)));
    };
    command(300, MavCmd::MAV_CMD_USER_1, 1.0);
    command(800, MavCmd::MAV_CMD_IMAGE_START_CAPTURE, 0.0);
    command(seconds * 1_000, MavCmd::MAV_CMD_IMAGE_STOP_CAPTURE, 0.0);
    command(seconds * 1_000 + 5, MavCmd::MAV_CMD_USER_1, 0.0);
    messages.sort_by_key(|(at, _)| *at);
    let mut bytes = Vec::new();
    for (number, (at, message)) in messages.iter().enumerate() {
        bytes.extend_from_slice(&(at * 1_000).to_be_bytes());
        let header = MavHeader { system_id: 1, component_id: 1, sequence: number as u8 };
        mavlink::write_v2_msg(&mut bytes, header, message).expect("memory takes everything");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recording_is_what_is_made() {
        let kept = include_bytes!("../data/flight.tlog");
        let made = recording();
        if std::env::var_os("TALEA_BLESS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/flight.tlog"), &made)
                .expect("written");
        } else {
            assert!(
                kept[..] == made[..],
                "data/flight.tlog is stale: run this test with TALEA_BLESS=1"
            );
        }
    }

    #[test]
    fn commands_switch_positions_move_and_what_is_spoiled_does_neither() {
        let log = Log::read(&recording()).expect("sound");
        let state = State::default();
        let hear = |from: usize, until: u64| {
            let messages = log.until(from, Duration::from_millis(until));
            state.hear_all(messages);
            from + messages.len()
        };
        let next = hear(0, 500);
        assert!(!state.is_on(), "enabled, but without a camera");
        let next = hear(next, 1_000);
        assert!(state.is_on());
        let here = state.position();
        assert_eq!(here.latitude, HOME[0]);
        assert_eq!(here.longitude, HOME[1] + 2 * scene::PACE * PIXEL * 3 / 2);
        let last = hear(next, 60_000);
        assert!(!state.is_on());
        assert_eq!((last, state.heard()), (log.messages().len(), [last as u32, 0]));
        // A bit of a position, and half of a message.
        let at = |message: &(Duration, Vec<u8>)| message.1[7..10] == [33, 0, 0];
        let mut spoiled =
            log.messages().iter().find(|message| at(message)).expect("a position").1.clone();
        spoiled[20] ^= 1;
        state.hear(&spoiled);
        state.hear(&log.messages()[0].1[..9]);
        state.hear(&[]);
        assert_eq!(state.heard(), [last as u32, 3]);
    }

    #[test]
    fn a_recording_that_is_cut_off_is_refused() {
        let bytes = recording();
        assert!(Log::read(&bytes[..bytes.len() - 1]).is_err());
        assert!(Log::read(&bytes[..3]).is_err());
        assert_eq!(Log::read(&[]), Ok(Log(Vec::new())));
    }
}
