//! Random bits for tokens, without a system call for each.

use std::io;

/// Pool of random bits from the kernel; each bit is used once.
#[derive(Debug)]
pub(crate) struct Entropy {
    pool: [u8; POOL],
    used: usize,
}

/// Size of the pool in bytes: 256 tokens for one system call of a few microseconds.
const POOL: usize = 4096;

impl Entropy {
    /// Creates a full pool.
    pub(crate) fn new() -> io::Result<Entropy> {
        let mut entropy = Entropy { pool: [0; POOL], used: POOL };
        entropy.refill()?;
        Ok(entropy)
    }

    /// Returns 128 unused bits.
    pub(crate) fn take(&mut self) -> u128 {
        const SIZE: usize = size_of::<u128>();
        if self.used + SIZE > POOL {
            // `new` has waited until the kernel's pool is ready; after that the call does not fail.
            self.refill().expect("getrandom failed after the kernel's pool was ready");
        }
        let mut bytes = [0; SIZE];
        let taken = &mut self.pool[self.used..self.used + SIZE];
        bytes.copy_from_slice(taken);
        // A token must not remain in the daemon's memory after it was returned.
        taken.fill(0);
        self.used += SIZE;
        u128::from_ne_bytes(bytes)
    }

    fn refill(&mut self) -> io::Result<()> {
        let mut filled = 0;
        while filled < POOL {
            filled += rustix::rand::getrandom(
                &mut self.pool[filled..],
                rustix::rand::GetRandomFlags::empty(),
            )?;
        }
        self.used = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bits_are_given_out_twice() {
        let mut entropy = Entropy::new().expect("random numbers");
        let taken: std::collections::BTreeSet<u128> = (0..1_000).map(|_| entropy.take()).collect();
        assert_eq!(taken.len(), 1_000);
    }
}
