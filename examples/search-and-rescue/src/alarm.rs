//! Messages to the ground station: the detected objects of a frame, each with its position, drift
//! and picture for a human observer.
//!
//! In secure mode the drone encrypts a message with AES-128 in counter mode. The initial counter
//! contains the number of the frame, so that it differs between messages.
//!
//! Absent on purpose: authentication of the sender. A real drone would add a message authentication
//! code.

use crate::flight::Position;
use crate::picture::Picture;
use crate::scene::Kind;
use crate::speed::Drift;
use aes::Aes128;
use ctr::Ctr64BE;
use ctr::cipher::{KeyIvInit, StreamCipher};

/// An object in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Kind of the object.
    pub kind: Kind,
    /// Position on Earth.
    pub position: Position,
    /// Movement since the frame before.
    pub drift: Drift,
    /// Highlighted picture of the object.
    pub picture: Picture,
}

/// Message about one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Number of the frame in the mission.
    pub frame: u32,
    /// Objects of the frame, from left to right.
    pub sightings: Vec<Sighting>,
    /// The frame itself.
    pub picture: Picture,
}

/// Key that the drone and the ground station share.
pub const KEY: [u8; 16] = *b"sixteen secrets.";

/// Length of the unencrypted header in bytes: 1 for the mode, 4 for the number of the frame.
const HEADER_LEN: usize = 5;

impl Alarm {
    /// Returns the number of boats.
    pub fn boats(&self) -> usize {
        self.sightings.iter().filter(|sighting| sighting.kind == Kind::Boat).count()
    }

    /// Encodes the message as plain text.
    pub fn plain(&self) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&self.frame.to_le_bytes());
        bytes.push(self.sightings.len() as u8);
        for sighting in &self.sightings {
            bytes.push(u8::from(sighting.kind == Kind::Boat));
            let Position { latitude, longitude } = sighting.position;
            for number in [latitude, longitude, sighting.drift.x, sighting.drift.y] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for sighting in &self.sightings {
            sighting.picture.write(&mut bytes);
        }
        self.picture.write(&mut bytes);
        bytes
    }

    /// Encodes the message and encrypts it with the key.
    pub fn encrypted(&self, key: &[u8; 16]) -> Vec<u8> {
        let mut bytes = self.plain();
        bytes[0] = 1;
        crypt(&mut bytes, key);
        bytes
    }

    /// Decodes a message, and decrypts it if it is encrypted.
    ///
    /// # Errors
    /// Returns the reason if the bytes are not a message.
    pub fn read(bytes: &[u8], key: &[u8; 16]) -> Result<Alarm, String> {
        let mut bytes = bytes.to_vec();
        if bytes.len() > HEADER_LEN && bytes[0] == 1 {
            crypt(&mut bytes, key);
        }
        let mut rest = &bytes[..];
        let [_mode] = split_array(&mut rest)?;
        let frame = u32::from_le_bytes(split_array(&mut rest)?);
        let [count] = split_array(&mut rest)?;
        let mut decoded = Vec::new();
        for _ in 0..count {
            let [kind] = split_array(&mut rest)?;
            let mut number = || split_array(&mut rest).map(i32::from_le_bytes);
            let position = Position { latitude: number()?, longitude: number()? };
            let drift = Drift { x: number()?, y: number()? };
            decoded.push((if kind == 1 { Kind::Boat } else { Kind::Flotsam }, position, drift));
        }
        let mut pictures = Picture::read_all(rest)?;
        if pictures.len() != decoded.len() + 1 {
            return Err(format!("{} pictures for {count} objects and a frame", pictures.len()));
        }
        let picture = pictures.pop().ok_or("the picture of the frame is missing")?;
        let sightings = decoded.into_iter().zip(pictures);
        let sighting =
            |((kind, position, drift), picture)| Sighting { kind, position, drift, picture };
        Ok(Alarm { frame, sightings: sightings.map(sighting).collect(), picture })
    }
}

/// Removes the first `N` bytes and returns them.
fn split_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], String> {
    let (first, rest) = bytes.split_first_chunk().ok_or("the message is truncated")?;
    *bytes = rest;
    Ok(*first)
}

/// Encrypts or decrypts the part after the header. In counter mode both are the same operation.
fn crypt(bytes: &mut [u8], key: &[u8; 16]) {
    let (head, body) = bytes.split_at_mut(HEADER_LEN);
    let mut start = [0; 16];
    // The lower half of the counter counts the blocks.
    start[..4].copy_from_slice(&head[1..]);
    Ctr64BE::<Aes128>::new(key.into(), &start.into()).apply_keystream(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm() -> Alarm {
        let mut picture = Picture::new(20, 10);
        picture.set(3, 3, 200);
        let position = Position { latitude: -5, longitude: 70_000_000 };
        let sighting = |kind| Sighting {
            kind,
            position,
            drift: Drift { x: 4, y: -2 },
            picture: picture.clone(),
        };
        let sightings = vec![sighting(Kind::Boat), sighting(Kind::Flotsam)];
        Alarm { frame: 7, sightings, picture: picture.clone() }
    }

    #[test]
    fn a_plain_message_is_decoded_and_an_encrypted_one_only_with_the_key() {
        let alarm = alarm();
        assert_eq!(alarm.boats(), 1);
        assert_eq!(Alarm::read(&alarm.plain(), &KEY).as_ref(), Ok(&alarm));
        let encrypted = alarm.encrypted(&KEY);
        assert_eq!(Alarm::read(&encrypted, &KEY).as_ref(), Ok(&alarm));
        assert_ne!(Alarm::read(&encrypted, &[0; 16]).as_ref(), Ok(&alarm));
        // The ciphertext has no run of black pixels.
        assert!(encrypted.windows(8).all(|bytes| bytes != [0; 8]));
        assert!(Alarm::read(&encrypted[..40], &KEY).is_err() && Alarm::read(&[], &KEY).is_err());
    }

    #[test]
    fn equal_contents_of_two_frames_have_different_ciphertexts() {
        let (first, second) = (alarm(), Alarm { frame: 8, ..alarm() });
        let same = first.encrypted(&KEY)[HEADER_LEN..]
            .iter()
            .zip(&second.encrypted(&KEY)[HEADER_LEN..])
            .filter(|(a, b)| a == b)
            .count();
        assert!(same < 40, "{same} of 800 bytes");
    }

    #[test]
    fn the_cipher_agrees_with_the_test_vector_of_nist() {
        // SP 800-38A, F.5.1. Only the first block is compared, because the counter of the vector
        // begins at a value at which no message begins.
        let key = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
        let start = 0xf0f1_f2f3_f4f5_f6f7_f8f9_fafb_fcfd_feff_u128.to_be_bytes();
        let mut block = 0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a_u128.to_be_bytes();
        Ctr64BE::<Aes128>::new(&key.into(), &start.into()).apply_keystream(&mut block);
        assert_eq!(block, 0x874d_6191_b620_e326_1bef_6864_990d_b6ce_u128.to_be_bytes());
    }
}
