//! Piecewise linear sums of work in a growing window. Each term is constant or grows at the rate of
//! the window.
//!
//! A response time is the least number w of units that a job waits with ⌊Σ(w)/m⌋ ≤ w, where Σ is
//! non-decreasing. The plain iteration w ← ⌊Σ(w)/m⌋ can advance by one unit per step if m terms
//! grow together. So each term has a linear piece. Until the first piece ends, Σ is at least a
//! line. No w before the intersection of the line with the condition, or before the end of the
//! piece, can satisfy the condition. The iteration skips only these w, so its result is the least.

use talea_core::mutate;

/// Term at some window, with its next piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinearPiece {
    /// Value at the window.
    pub(crate) value: u64,
    /// 1 if the term grows with the window, 0 if it is constant.
    pub(crate) rising: u64,
    /// Minimum length of the piece. At its end the term is not below the line of the piece.
    pub(crate) length: u64,
}

impl LinearPiece {
    /// Returns the minimum of the term and the constant `cap`.
    #[inline]
    pub(crate) fn below(self, cap: u64) -> LinearPiece {
        if self.value >= cap {
            LinearPiece { value: cap, rising: 0, length: u64::MAX }
        } else {
            let length =
                if self.rising == 0 { self.length } else { self.length.min(cap - self.value) };
            LinearPiece { length, ..self }
        }
    }

    /// Returns the minimum of the term and a limit, which is `roof` at the window and grows with
    /// the window.
    #[inline]
    pub(crate) fn capped(self, roof: u64) -> LinearPiece {
        // Both grow at most at the same rate, so the term stays below.
        if self.value <= roof {
            return self;
        }
        LinearPiece { value: roof, rising: 1, length: self.value - roof }
    }
}

/// Sum of terms, with the first end of their linear pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PiecewiseSum {
    pub(crate) sum: u64,
    rising: u64,
    length: u64,
}

impl PiecewiseSum {
    pub(crate) const NONE: PiecewiseSum = PiecewiseSum { sum: 0, rising: 0, length: u64::MAX };

    /// Adds a term.
    #[inline]
    pub(crate) fn add(&mut self, piece: LinearPiece) {
        self.sum += piece.value;
        self.follow(piece);
    }

    /// Adds the next piece of a term whose value is already in the sum.
    #[inline]
    pub(crate) fn follow(&mut self, piece: LinearPiece) {
        self.rising += piece.rising;
        self.length = self.length.min(piece.length);
    }

    /// Returns the next w that can satisfy ⌊Σ/m⌋ ≤ w; `None` if `waits` satisfies the condition.
    #[inline]
    pub(crate) fn next(&self, waits: u64, cpus: u64) -> Option<u64> {
        let room = cpus * waits + (cpus - 1);
        let missing = self.sum.checked_sub(room).filter(|&missing| missing > 0)?;
        // On this piece the sum grows by `rising` a unit and the room by `cpus`.
        let meets =
            if self.rising < cpus { missing.div_ceil(cpus - self.rising) } else { u64::MAX };
        Some((self.sum / cpus).max(
            waits
                + mutate!(
                    "multi-pieces",
                    meets.min(self.length),
                    if meets == u64::MAX { self.length } else { meets }
                ),
        ))
    }
}
