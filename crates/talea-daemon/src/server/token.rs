//! What an epoll event is about, packed into its 64 bits.

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A connection has something to read or has ended.
    Session(u64),
    /// A thread has ended.
    Thread(u64),
    /// A process has ended.
    Process(u64),
    /// Somebody wants to connect, at this listener.
    Listener(u64),
    /// A signal has arrived.
    Signals,
    /// A plugin's host has answered, or ended.
    Host(u64),
    /// A plugin has written to its standard error.
    HostStderr(u64),
    /// One of the many connections of this user has something to say.
    Crowd(u32),
    /// Somebody who is watched for arrivals is looked after.
    Beat,
}

/// The kind lies in the lowest bits; numbers that count up from zero never reach the top.
const KIND_BITS: u32 = 4;

impl Token {
    pub(super) fn pack(self) -> u64 {
        let (kind, number) = match self {
            Token::Session(number) => (0, number),
            Token::Thread(number) => (1, number),
            Token::Process(number) => (2, number),
            Token::Listener(number) => (3, number),
            Token::Signals => (4, 0),
            Token::Host(number) => (5, number),
            Token::HostStderr(number) => (6, number),
            Token::Crowd(uid) => (7, uid.into()),
            Token::Beat => (8, 0),
        };
        assert!(number >> (64 - KIND_BITS) == 0, "a number too large for a token");
        number << KIND_BITS | kind
    }

    pub(super) fn unpack(bits: u64) -> Token {
        let number = bits >> KIND_BITS;
        match bits & ((1 << KIND_BITS) - 1) {
            0 => Token::Session(number),
            1 => Token::Thread(number),
            2 => Token::Process(number),
            3 => Token::Listener(number),
            4 => Token::Signals,
            5 => Token::Host(number),
            6 => Token::HostStderr(number),
            7 => Token::Crowd(number as u32),
            8 => Token::Beat,
            kind => unreachable!("a token of kind {kind} was never packed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        for number in [0, 1, 77, u64::MAX >> KIND_BITS] {
            for token in [
                Token::Session(number),
                Token::Thread(number),
                Token::Process(number),
                Token::Listener(number),
                Token::Signals,
                Token::Host(number),
                Token::HostStderr(number),
                Token::Crowd(number as u32),
                Token::Beat,
            ] {
                assert_eq!(Token::unpack(token.pack()), token);
            }
        }
    }
}
