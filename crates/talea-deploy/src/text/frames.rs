//! Packets of a message: a message may be longer than a packet of a socket.
//!
//! The first byte of a packet says whether it is the last one of its message.

/// Maximum length of a packet in bytes.
pub const MAX_PACKET: usize = 32 << 10;
/// Maximum length of a message in bytes.
pub const MAX_MESSAGE: usize = 16 << 20;

const MORE: u8 = 0;
const LAST: u8 = 1;

/// Returns the packets of a message.
pub fn packets(message: &str) -> impl Iterator<Item = Vec<u8>> {
    let mut chunks = message.as_bytes().chunks(MAX_PACKET - 1).peekable();
    std::iter::from_fn(move || {
        let chunk = chunks.next()?;
        let mark = if chunks.peek().is_some() { MORE } else { LAST };
        Some([&[mark], chunk].concat())
    })
}

/// Message whose packets arrive one after the other.
#[derive(Clone, Debug, Default)]
pub struct Assembly(Vec<u8>);

/// Reason why a packet is refused: the message is too long, has no mark, or is no UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPacket;

impl Assembly {
    /// Adds a packet. Returns the message if this is its last packet.
    ///
    /// # Errors
    /// If the packet is none of [`packets`].
    pub fn push(&mut self, packet: &[u8]) -> Result<Option<String>, BadPacket> {
        let (&mark, rest) = packet.split_first().ok_or(BadPacket)?;
        if mark > LAST || rest.len() > MAX_MESSAGE - self.0.len() {
            return Err(BadPacket);
        }
        self.0.extend_from_slice(rest);
        if mark == MORE {
            return Ok(None);
        }
        String::from_utf8(std::mem::take(&mut self.0)).map(Some).map_err(|_| BadPacket)
    }
}
