//! A set of CPUs, in the kernel's numbering.

use core::fmt;

/// Number of CPUs that a set can name.
pub const MAX_CPUS: usize = 1024;
const WORDS: usize = MAX_CPUS / 64;

/// A set of CPU numbers below [`MAX_CPUS`].
///
/// The text form is the kernel's list grammar: `0-3,5`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuSet([u64; WORDS]);

/// Error in a CPU list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuListError {
    /// The list names no CPU.
    Empty,
    /// The text that begins at this byte offset is not a CPU number.
    Syntax(usize),
    /// A range is reversed, such as `3-1`.
    Backwards(u32, u32),
    /// A number is not below [`MAX_CPUS`].
    TooLarge(u32),
}

impl CpuSet {
    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet([0; WORDS]);

    /// Returns the set that contains exactly `cpu`.
    ///
    /// # Panics
    /// If `cpu` is not below [`MAX_CPUS`].
    pub fn single(cpu: u32) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        set.insert(cpu);
        set
    }

    /// Returns the CPUs `0..count`.
    ///
    /// # Panics
    /// If `count` exceeds [`MAX_CPUS`].
    pub fn first(count: u32) -> CpuSet {
        (0..count).collect()
    }

    /// Builds a set from the words of a bit mask, lowest CPU first.
    pub const fn from_words(words: [u64; WORDS]) -> CpuSet {
        CpuSet(words)
    }

    /// Returns the words of the bit mask, lowest CPU first.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Adds `cpu`.
    ///
    /// # Panics
    /// If `cpu` is not below [`MAX_CPUS`].
    pub fn insert(&mut self, cpu: u32) {
        assert!((cpu as usize) < MAX_CPUS, "CPU {cpu} is beyond the largest set");
        self.0[cpu as usize / 64] |= 1 << (cpu % 64);
    }

    /// Whether `cpu` is a member.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get(cpu as usize / 64).is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Returns the number of members.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(core::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Returns the members of either set.
    #[must_use]
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        CpuSet(core::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Returns the members that `other` lacks.
    #[must_use]
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        CpuSet(core::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Whether every member is also a member of `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.difference(other).is_empty()
    }

    /// Iterates over the members, lowest first. O(members + words).
    pub fn iter(&self) -> Iter<'_> {
        // Most computers have at most one word of CPUs. Scanning the other words costs more than
        // iterating.
        let beyond = self.0[1..].iter().fold(0, |all, word| all | word);
        let words = if beyond == 0 { &self.0[..1] } else { &self.0[..] };
        Iter { words, index: 0, rest: words[0] }
    }

    /// Parses the kernel's list grammar, such as `0-3,5`.
    pub fn parse(text: &str) -> Result<CpuSet, CpuListError> {
        let text = text.trim_end();
        if text.trim().is_empty() {
            return Err(CpuListError::Empty);
        }
        let mut set = CpuSet::EMPTY;
        let mut offset = 0;
        for part in text.split(',') {
            let number = |digits: &str, at: usize| -> Result<u32, CpuListError> {
                let digits = digits.trim();
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(CpuListError::Syntax(at));
                }
                let cpu: u32 = digits.parse().unwrap_or(u32::MAX);
                if (cpu as usize) < MAX_CPUS { Ok(cpu) } else { Err(CpuListError::TooLarge(cpu)) }
            };
            let (low, high) = match part.split_once('-') {
                None => (number(part, offset)?, number(part, offset)?),
                Some((low, high)) => (number(low, offset)?, number(high, offset + low.len() + 1)?),
            };
            if low > high {
                return Err(CpuListError::Backwards(low, high));
            }
            for cpu in low..=high {
                set.insert(cpu);
            }
            offset += part.len() + 1;
        }
        Ok(set)
    }
}

/// Iterator over the members of a [`CpuSet`], lowest first.
///
/// The iterator is written by hand: admission iterates over a plugin's CPUs on every request, and
/// iterator adapters cost a third of its time.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    words: &'a [u64],
    index: usize,
    /// Remaining bits of the word at `index`.
    rest: u64,
}

impl Iterator for Iter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.rest == 0 {
            self.index += 1;
            self.rest = *self.words.get(self.index)?;
        }
        let bit = self.rest.trailing_zeros();
        self.rest &= self.rest - 1;
        Some(self.index as u32 * 64 + bit)
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = u32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Default for CpuSet {
    fn default() -> CpuSet {
        CpuSet::EMPTY
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.iter().peekable();
        let mut first = true;
        while let Some(low) = members.next() {
            let mut high = low;
            while members.next_if_eq(&(high + 1)).is_some() {
                high += 1;
            }
            if !first {
                f.write_str(",")?;
            }
            first = false;
            match high - low {
                0 => write!(f, "{low}")?,
                _ => write!(f, "{low}-{high}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CpuListError::Empty => f.write_str("the CPU list is empty; write it like \"0-3,5\""),
            CpuListError::Syntax(at) => {
                write!(f, "not a CPU number at character {}; write the list like \"0-3,5\"", at + 1)
            }
            CpuListError::Backwards(low, high) => {
                write!(f, "the range {low}-{high} runs backwards; did you mean {high}-{low}?")
            }
            CpuListError::TooLarge(cpu) => {
                write!(f, "CPU {cpu} is beyond the largest supported number, {}", MAX_CPUS - 1)
            }
        }
    }
}

impl core::error::Error for CpuListError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;

    #[test]
    fn a_list_is_formatted_as_it_was_parsed() {
        for text in ["0", "0-3", "1,3", "0-1,63-65,1023", "5-7,9"] {
            let set = CpuSet::parse(text).expect(text);
            assert_eq!(format!("{set}"), text);
        }
        assert_eq!(CpuSet::parse("3,1-2\n").map(|set| format!("{set}")), Ok("1-3".into()));
    }

    #[test]
    fn an_invalid_list_is_refused_with_its_position() {
        for (text, error) in [
            ("", CpuListError::Empty),
            (" \n", CpuListError::Empty),
            ("1,,2", CpuListError::Syntax(2)),
            ("x", CpuListError::Syntax(0)),
            ("0-", CpuListError::Syntax(2)),
            ("3-1", CpuListError::Backwards(3, 1)),
            ("1024", CpuListError::TooLarge(1024)),
            ("99999999999", CpuListError::TooLarge(u32::MAX)),
        ] {
            assert_eq!(CpuSet::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn iteration_returns_all_members_lowest_first() {
        let members = [0, 1, 62, 63, 64, 127, 128, 1023];
        let set: CpuSet = members.into_iter().rev().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), members);
        assert_eq!(set.len(), 8);
        assert!(CpuSet::EMPTY.iter().next().is_none());
        assert!((0..1024).all(|cpu| set.contains(cpu) == members.contains(&cpu)));
        assert!(!set.contains(5000));
    }

    #[test]
    fn union_intersection_difference_and_subset() {
        let (a, b) = (CpuSet::first(4), CpuSet::parse("2-5").expect("a list"));
        assert_eq!(
            format!("{} {} {}", a.union(&b), a.intersection(&b), a.difference(&b)),
            "0-5 2-3 0-1"
        );
        assert!(CpuSet::single(3).is_subset(&a) && !b.is_subset(&a) && CpuSet::EMPTY.is_subset(&a));
    }
}
