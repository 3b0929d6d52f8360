//! What is sent to the ground: what was seen, where, how fast it drifts, and the picture for a
//! person to judge. In secure mode encrypted with AES-128 in counter mode; the number of the frame
//! makes each counter's start another one.
//!
//! Nothing proves to the ground who has sent it: a real drone would add a code of authentication.

use crate::flight::Position;
use crate::picture::Picture;
use crate::scene::Kind;
use crate::speed::Drift;
use aes::Aes128;
use ctr::Ctr64BE;
use ctr::cipher::{KeyIvInit, StreamCipher};

/// An object as the ground is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// What it is.
    pub kind: Kind,
    /// Where.
    pub position: Position,
    /// How it moves.
    pub drift: Drift,
    /// So that a person can see it.
    pub picture: Picture,
}

/// What one frame has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Of the mission.
    pub frame: u32,
    /// From left to right.
    pub sightings: Vec<Sighting>,
    /// The frame itself.
    pub picture: Picture,
}

/// Both ends have it.
pub const KEY: [u8; 16] = *b"sixteen secrets.";

/// How a message begins: whether it can be read by everybody, and its frame.
const HEAD: usize = 5;

impl Alarm {
    /// How many boats.
    pub fn boats(&self) -> usize {
        self.sightings.iter().filter(|sighting| sighting.kind == Kind::Boat).count()
    }

    /// For everybody to read.
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

    /// For who has the key.
    pub fn encrypted(&self, key: &[u8; 16]) -> Vec<u8> {
        let mut bytes = self.plain();
        bytes[0] = 1;
        crypt(&mut bytes, key);
        bytes
    }

    /// What the ground gets out of a message.
    ///
    /// # Errors
    /// Says why it is none.
    pub fn read(bytes: &[u8], key: &[u8; 16]) -> Result<Alarm, String> {
        let mut bytes = bytes.to_vec();
        if bytes.len() > HEAD && bytes[0] == 1 {
            crypt(&mut bytes, key);
        }
        let mut rest = &bytes[..];
        let [_] = take(&mut rest)?;
        let frame = u32::from_le_bytes(take(&mut rest)?);
        let [count] = take(&mut rest)?;
        let mut told = Vec::new();
        for _ in 0..count {
            let [kind] = take(&mut rest)?;
            let mut number = || take(&mut rest).map(i32::from_le_bytes);
            let position = Position { latitude: number()?, longitude: number()? };
            let drift = Drift { x: number()?, y: number()? };
            told.push((if kind == 1 { Kind::Boat } else { Kind::Flotsam }, position, drift));
        }
        let mut pictures = Picture::read_all(rest)?;
        if pictures.len() != told.len() + 1 {
            return Err(format!("{} pictures of {count} objects", pictures.len()));
        }
        let picture = pictures.pop().ok_or("no picture")?;
        let sightings = told.into_iter().zip(pictures);
        let sighting =
            |((kind, position, drift), picture)| Sighting { kind, position, drift, picture };
        Ok(Alarm { frame, sightings: sightings.map(sighting).collect(), picture })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], String> {
    let (first, rest) = bytes.split_first_chunk().ok_or("cut off")?;
    *bytes = rest;
    Ok(*first)
}

/// There and back are the same.
fn crypt(bytes: &mut [u8], key: &[u8; 16]) {
    let (head, body) = bytes.split_at_mut(HEAD);
    let mut start = [0; 16];
    // The lower half counts the blocks.
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
    fn what_is_sent_is_read_and_encrypted_only_with_the_key() {
        let alarm = alarm();
        assert_eq!(alarm.boats(), 1);
        assert_eq!(Alarm::read(&alarm.plain(), &KEY).as_ref(), Ok(&alarm));
        let secret = alarm.encrypted(&KEY);
        assert_eq!(Alarm::read(&secret, &KEY).as_ref(), Ok(&alarm));
        assert_ne!(Alarm::read(&secret, &[0; 16]).as_ref(), Ok(&alarm));
        // Nothing of it is to be seen: no run of black pixels.
        assert!(secret.windows(8).all(|bytes| bytes != [0; 8]));
        assert!(Alarm::read(&secret[..40], &KEY).is_err() && Alarm::read(&[], &KEY).is_err());
    }

    #[test]
    fn two_frames_with_the_same_content_look_different() {
        let (first, second) = (alarm(), Alarm { frame: 8, ..alarm() });
        let same = first.encrypted(&KEY)[HEAD..]
            .iter()
            .zip(&second.encrypted(&KEY)[HEAD..])
            .filter(|(a, b)| a == b)
            .count();
        assert!(same < 40, "{same} of 800 bytes");
    }

    #[test]
    fn it_is_the_cipher_of_nist() {
        // SP 800-38A, F.5.1: its counter starts in the middle, which a start of ours never does;
        // the first block says it.
        let key = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
        let start = 0xf0f1_f2f3_f4f5_f6f7_f8f9_fafb_fcfd_feff_u128.to_be_bytes();
        let mut block = 0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a_u128.to_be_bytes();
        Ctr64BE::<Aes128>::new(&key.into(), &start.into()).apply_keystream(&mut block);
        assert_eq!(block, 0x874d_6191_b620_e326_1bef_6864_990d_b6ce_u128.to_be_bytes());
    }
}
