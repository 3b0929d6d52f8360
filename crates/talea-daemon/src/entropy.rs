//! Random bits for tokens, without a system call for each.

use std::io;

/// A pool of bits from the kernel; each is given out once.
#[derive(Debug)]
pub(crate) struct Entropy {
    pool: [u8; POOL],
    used: usize,
}

/// Enough for 256 tokens: one call of a few microseconds for all of them.
const POOL: usize = 4096;

impl Entropy {
    /// A full pool.
    pub(crate) fn new() -> io::Result<Entropy> {
        let mut entropy = Entropy { pool: [0; POOL], used: POOL };
        entropy.refill()?;
        Ok(entropy)
    }

    /// Bits that nobody has seen.
    pub(crate) fn take(&mut self) -> u128 {
        const SIZE: usize = size_of::<u128>();
        if self.used + SIZE > POOL {
            // After the kernel's pool is ready, which `new` has seen, the call does not fail.
            self.refill().expect("the kernel's random numbers");
        }
        let mut bytes = [0; SIZE];
        let taken = &mut self.pool[self.used..self.used + SIZE];
        bytes.copy_from_slice(taken);
        // A token must not be found in our memory before it is given out twice, or after.
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
