//! Messages of the flight controller: MAVLink, from a recorded flight.
//!
//! A recording is a `.tlog` file: eight bytes with the time of reception in microseconds, in
//! big-endian order, precede each message. The handler uses the position and the commands that
//! switch the camera (`MAV_CMD_IMAGE_START_CAPTURE`, `…_STOP_CAPTURE`) and this payload
//! (`MAV_CMD_USER_1`, 1 or 0). The handler only counts other messages.

use crate::scene;
use mavlink::dialects::common::{
    COMMAND_LONG_DATA, GLOBAL_POSITION_INT_DATA, HEARTBEAT_DATA, MavCmd, MavMessage,
    SYSTEM_TIME_DATA,
};
use mavlink::{MAVLinkV2MessageRaw, MavHeader, MavlinkVersion, Message};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;
use talea_core::mutate;

/// Period of the frames in mission time, which may differ from real time.
pub const FRAME_PERIOD: Duration = Duration::from_millis(500);
/// Period of the handler in mission time.
pub const POLL_PERIOD: Duration = Duration::from_millis(125);

/// Latitude and longitude of the start of the mission, in 10⁻⁷ degrees.
const HOME: [i32; 2] = [540_000_000, 70_000_000];
/// Extent of a pixel, half a metre, in 10⁻⁷ degrees of latitude. In degrees of longitude the extent
/// is one and a half times as large here.
const PIXEL_LATITUDE: i32 = 45;

/// A position on Earth, in 10⁻⁷ degrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Degrees north.
    pub latitude: i32,
    /// Degrees east.
    pub longitude: i32,
}

impl Position {
    /// Returns the position of a pixel in a frame that the drone takes at the position `self`. The
    /// drone flies east, and is over the middle of the frame's left border.
    #[must_use]
    pub fn of_pixel(self, x: i32, y: i32) -> Position {
        let north = scene::HEIGHT as i32 / 2 - y;
        Position {
            latitude: self.latitude + north * PIXEL_LATITUDE,
            longitude: self.longitude + x * PIXEL_LATITUDE * 3 / 2,
        }
    }
}

/// State of the flight, written by the handler and read by the other tasks.
#[derive(Debug, Default)]
pub struct State {
    is_capturing: AtomicBool,
    is_enabled: AtomicBool,
    latitude: AtomicI32,
    longitude: AtomicI32,
    valid_messages: AtomicU32,
    corrupt_messages: AtomicU32,
}

impl State {
    /// Whether the camera and the payload are on, so that the drone processes frames.
    pub fn is_on(&self) -> bool {
        self.is_capturing.load(Ordering::Acquire) && self.is_enabled.load(Ordering::Acquire)
    }

    /// Returns the position of the drone.
    pub fn position(&self) -> Position {
        Position {
            latitude: self.latitude.load(Ordering::Acquire),
            longitude: self.longitude.load(Ordering::Acquire),
        }
    }

    /// Returns the numbers of valid and of corrupt messages.
    pub fn message_counts(&self) -> [u32; 2] {
        let counters = [&self.valid_messages, &self.corrupt_messages];
        counters.map(|counter| counter.load(Ordering::Acquire))
    }

    /// Handles received messages in order. The times of reception have no effect.
    pub fn handle_all(&self, received: &[(Duration, Vec<u8>)]) {
        for (_, message) in received {
            self.handle(message);
        }
    }

    /// Handles the bytes of one message: counts it, and applies a position or a command.
    pub fn handle(&self, bytes: &[u8]) {
        let Some(message) = parse(bytes) else {
            self.corrupt_messages.fetch_add(1, Ordering::AcqRel);
            return;
        };
        self.valid_messages.fetch_add(1, Ordering::AcqRel);
        match message {
            MavMessage::GLOBAL_POSITION_INT(at) => {
                self.latitude.store(at.lat, Ordering::Release);
                self.longitude.store(at.lon, Ordering::Release);
            }
            MavMessage::COMMAND_LONG(command) => match command.command {
                MavCmd::MAV_CMD_IMAGE_START_CAPTURE => {
                    self.is_capturing.store(true, Ordering::Release);
                }
                MavCmd::MAV_CMD_IMAGE_STOP_CAPTURE => {
                    self.is_capturing.store(false, Ordering::Release);
                }
                MavCmd::MAV_CMD_USER_1 => {
                    self.is_enabled.store(command.param1 > 0.5, Ordering::Release);
                }
                _ => {}
            },
            _ => {}
        }
    }
}

/// Parses a message and verifies its checksum, without allocation. `None` if the message is
/// corrupt.
fn parse(bytes: &[u8]) -> Option<MavMessage> {
    let mut raw = MAVLinkV2MessageRaw::new();
    raw.as_mut_slice().get_mut(..bytes.len())?.copy_from_slice(bytes);
    let is_valid = bytes.first() == Some(&mavlink::MAV_STX_V2)
        && raw.raw_bytes().len() == bytes.len()
        && mutate!(
            "drone-message-sum",
            raw.has_valid_crc::<MavMessage>(),
            raw.payload_length() > 0
        );
    if !is_valid {
        return None;
    }
    MavMessage::parse(MavlinkVersion::V2, raw.message_id(), raw.payload()).ok()
}

/// A recorded flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log(Vec<(Duration, Vec<u8>)>);

/// Length of a message without its payload: the start byte, 9 bytes of the header and 2 bytes of
/// the checksum.
const FRAMING_LEN: usize = 12;

impl Log {
    /// Parses a recording.
    ///
    /// # Errors
    /// Returns the offset of the first invalid byte and the reason.
    pub fn read(bytes: &[u8]) -> Result<Log, String> {
        let mut messages = Vec::new();
        let mut rest = bytes;
        while let Some((time, message)) = rest.split_first_chunk::<8>() {
            let length = message.get(1).map_or(0, |&payload| FRAMING_LEN + usize::from(payload));
            let content = message.get(..length).filter(|_| length > 0).ok_or_else(|| {
                format!("byte {}: the message is truncated", bytes.len() - rest.len())
            })?;
            let time = Duration::from_micros(u64::from_be_bytes(*time));
            messages.push((time, content.to_vec()));
            rest = &message[length..];
        }
        if !rest.is_empty() {
            return Err(format!("byte {}: the time is truncated", bytes.len() - rest.len()));
        }
        Ok(Log(messages))
    }

    /// Returns the messages from number `from` on that were received until `time`.
    pub fn until(&self, from: usize, time: Duration) -> &[(Duration, Vec<u8>)] {
        let rest = self.0.get(from..).unwrap_or_default();
        &rest[..rest.iter().take_while(|(at, _)| *at <= time).count()]
    }

    /// Returns all messages.
    pub fn messages(&self) -> &[(Duration, Vec<u8>)] {
        &self.0
    }
}

/// Generates the recording of the flight over the sea of [`scene`].
///
/// The recording has time and heartbeat every second, and the position four times a second.
/// Commands switch the payload on at 0.3 s and the camera at 0.8 s, and both off at the end. So the
/// third frame is the first frame that the drone processes.
pub fn recording() -> Vec<u8> {
    let seconds = u64::from(scene::FRAMES) * FRAME_PERIOD.as_millis() as u64 / 1_000;
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
        let east = (milliseconds as i32 / 250) * scene::CAMERA_STEP / 2;
        let at = Position { latitude: HOME[0], longitude: HOME[1] + east * PIXEL_LATITUDE * 3 / 2 };
        let at = GLOBAL_POSITION_INT_DATA {
            time_boot_ms: milliseconds as u32,
            lat: at.latitude,
            lon: at.longitude,
            alt: 60_000,
            relative_alt: 60_000,
            vy: (scene::CAMERA_STEP * 100) as i16,
            hdg: 9_000,
            ..GLOBAL_POSITION_INT_DATA::default()
        };
        // The position precedes its frame by more than a period of the handler.
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
        mavlink::write_v2_msg(&mut bytes, header, message).expect("a write to memory succeeds");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_recording_equals_the_generated_one() {
        let stored = include_bytes!("../data/flight.tlog");
        let generated = recording();
        if std::env::var_os("TALEA_BLESS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/flight.tlog"), &generated)
                .expect("written");
        } else {
            assert!(
                stored[..] == generated[..],
                "data/flight.tlog is stale: run this test with TALEA_BLESS=1"
            );
        }
    }

    #[test]
    fn commands_and_positions_have_an_effect_and_corrupt_messages_have_none() {
        let log = Log::read(&recording()).expect("a recording");
        let state = State::default();
        let handle = |from: usize, until: u64| {
            let messages = log.until(from, Duration::from_millis(until));
            state.handle_all(messages);
            from + messages.len()
        };
        let next = handle(0, 500);
        assert!(!state.is_on(), "the payload is on, the camera is off");
        let next = handle(next, 1_000);
        assert!(state.is_on());
        let here = state.position();
        assert_eq!(here.latitude, HOME[0]);
        assert_eq!(here.longitude, HOME[1] + 2 * scene::CAMERA_STEP * PIXEL_LATITUDE * 3 / 2);
        let count = handle(next, 60_000);
        assert!(!state.is_on());
        assert_eq!(count, log.messages().len());
        assert_eq!(state.message_counts(), [count as u32, 0]);
        // A position with an inverted bit, a truncated message, and an empty one.
        let is_position = |message: &&(Duration, Vec<u8>)| message.1[7..10] == [33, 0, 0];
        let mut corrupt = log.messages().iter().find(is_position).expect("a position").1.clone();
        corrupt[20] ^= 1;
        state.handle(&corrupt);
        state.handle(&log.messages()[0].1[..9]);
        state.handle(&[]);
        assert_eq!(state.message_counts(), [count as u32, 3]);
    }

    #[test]
    fn a_truncated_recording_is_refused() {
        let bytes = recording();
        assert!(Log::read(&bytes[..bytes.len() - 1]).is_err());
        assert!(Log::read(&bytes[..3]).is_err());
        assert_eq!(Log::read(&[]), Ok(Log(Vec::new())));
    }
}
