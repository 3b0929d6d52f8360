//! Sums of work in a growing window: piecewise linear, each term flat or growing as fast as the
//! window.
//!
//! A response time is the least number of units that a job waits, w, with ⌊Σ(w)/m⌋ ≤ w, where Σ
//! never falls. Plain iteration w ← ⌊Σ(w)/m⌋ can crawl by one unit a step where m terms grow
//! together. So each term says how it goes on: until the first of them ends its piece, Σ is at
//! least a line, and no w before the one where the line meets the condition, or before the end of
//! the piece, can satisfy it. What is skipped satisfies nothing; what is found is the least.

use talea_core::mutate;

/// A term at some window, and how it goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) value: u64,
    /// 1 if it grows with the window, 0 if it stays.
    pub(crate) rising: u64,
    /// For how long at least; at its end it is not below the line.
    pub(crate) length: u64,
}

impl Piece {
    /// The lesser of it and a constant.
    #[inline]
    pub(crate) fn below(self, cap: u64) -> Piece {
        if self.value >= cap {
            Piece { value: cap, rising: 0, length: u64::MAX }
        } else {
            let length =
                if self.rising == 0 { self.length } else { self.length.min(cap - self.value) };
            Piece { length, ..self }
        }
    }

    /// The lesser of it and a roof that grows with the window.
    #[inline]
    pub(crate) fn capped(self, roof: u64) -> Piece {
        // Not above: both grow at most alike, so it stays below.
        if self.value <= roof {
            return self;
        }
        Piece { value: roof, rising: 1, length: self.value - roof }
    }
}

/// A sum of terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub(crate) sum: u64,
    rising: u64,
    length: u64,
}

impl Pieces {
    pub(crate) const NONE: Pieces = Pieces { sum: 0, rising: 0, length: u64::MAX };

    /// One term more.
    #[inline]
    pub(crate) fn add(&mut self, piece: Piece) {
        self.sum += piece.value;
        self.follow(piece);
    }

    /// How a term goes on whose value is in the sum already.
    #[inline]
    pub(crate) fn follow(&mut self, piece: Piece) {
        self.rising += piece.rising;
        self.length = self.length.min(piece.length);
    }

    /// The next w that can satisfy ⌊Σ/m⌋ ≤ w; none if `waits` does.
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
