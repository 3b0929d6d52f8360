//! Source of an epoll event, packed into 64 bits.

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A connection is readable or has ended.
    Session(u64),
    /// A thread has ended.
    Thread(u64),
    /// A process has ended.
    Process(u64),
    /// A listener has a connection to accept.
    Listener(u64),
    /// A signal has arrived.
    Signals,
    /// A plugin's host has answered or ended.
    Host(u64),
    /// A plugin has written to its standard error.
    HostStderr(u64),
    /// The nested set of this user has a ready connection.
    NestedSet(u32),
    /// A process with an attached thread has changed.
    ProcEvents,
    /// The poll timer of edge triggering has expired.
    PollTimer,
    /// An enforcer has demoted a thread.
    Demoted,
    /// A device event of the kernel: a CPU may have gone off-line or come back.
    CpuEvents,
    /// The process of a plugin's host has started.
    HostStarts,
    /// The configuration was read again.
    Reloaded,
}

/// Width of the kind, in the lowest bits; numbers count up from zero and never reach the top bits.
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
            Token::NestedSet(uid) => (7, uid.into()),
            Token::PollTimer => (8, 0),
            Token::Demoted => (9, 0),
            Token::ProcEvents => (10, 0),
            Token::CpuEvents => (11, 0),
            Token::HostStarts => (12, 0),
            Token::Reloaded => (13, 0),
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
            7 => Token::NestedSet(number as u32),
            8 => Token::PollTimer,
            9 => Token::Demoted,
            10 => Token::ProcEvents,
            11 => Token::CpuEvents,
            12 => Token::HostStarts,
            13 => Token::Reloaded,
            kind => unreachable!("a token of kind {kind} was never packed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacking_a_packed_token_returns_it() {
        for number in [0, 1, 77, u64::MAX >> KIND_BITS] {
            for token in [
                Token::Session(number),
                Token::Thread(number),
                Token::Process(number),
                Token::Listener(number),
                Token::Signals,
                Token::Host(number),
                Token::HostStderr(number),
                Token::NestedSet(number as u32),
                Token::PollTimer,
                Token::Demoted,
                Token::ProcEvents,
                Token::CpuEvents,
                Token::HostStarts,
                Token::Reloaded,
            ] {
                assert_eq!(Token::unpack(token.pack()), token);
            }
        }
    }
}
