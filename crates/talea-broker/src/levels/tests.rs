//! Levels against a reference model: every small band, then long random histories.

use super::*;
use talea_core::Priority;
use talea_core::rng::Rng;

fn band(low: u8, levels: u8) -> Band {
    Band { low: Priority(low), high: Priority(low + levels - 1) }
}

fn member(key: u64) -> Member {
    // Work and proof differ per key, so that mixed-up sums are detected.
    Member { key, work: u128::from(key) * 7, unproved: key.is_multiple_of(5) }
}

/// Returns the data by which two lists of runs are compared.
fn shape<'a>(runs: impl Iterator<Item = &'a LevelRun>) -> Vec<(u64, u128, RmSum, bool, u32)> {
    runs.map(|run| (run.first, run.work, run.class, run.is_shared(), run.unproved)).collect()
}

/// Checks that the stored sum equals the walked one, up to rounding.
fn agrees(after: &LevelsAfter<'_>) {
    let Some(sum) = after.sum_of_others() else { return };
    let new_run = after.new_run().map(|run| run.first);
    let others = after.runs().skip(1).filter(|run| Some(run.first) != new_run);
    let walk = others.fold(RmSum::EMPTY, |sum, run| sum.combined(run.class));
    assert_eq!(sum.classes, walk.classes);
    assert!(sum.is_within(&walk, 3 * walk.classes.max(1)), "{sum:?} for {walk:?}");
}

/// Levels with their reference model: the list of members, and the priorities of attached threads.
#[derive(Clone)]
struct Reference {
    levels: Levels,
    /// Key, slot, and the priority of an attached thread.
    members: Vec<(u64, u32, Option<u8>)>,
    acts: u32,
}

impl Reference {
    fn new(band: Band) -> Reference {
        Reference { levels: Levels::with_sums(band), members: vec![], acts: 0 }
    }

    /// Changes the levels by `act` and applies the reported moves one by one, like the kernel.
    fn act(&mut self, act: impl FnOnce(&mut Levels, &mut Vec<u32>)) -> usize {
        let mut moved = vec![];
        let tied = self.tied();
        act(&mut self.levels, &mut moved);
        self.acts += 1;
        if self.members.len() < 12 || self.acts.is_multiple_of(5) {
            self.levels.check();
        }
        for &slot in &moved {
            let (key, _, applied) = self
                .members
                .iter_mut()
                .find(|(_, s, _)| *s == slot)
                .expect("an unknown slot was moved");
            let applied = applied.as_mut().expect("a thread that is not attached was moved");
            assert_ne!(*applied, self.levels.level(*key), "slot {slot} was moved to its own level");
            *applied = self.levels.level(*key);
            self.check_order();
            for (a, b) in self.tied() {
                let shared = self.levels.level(a) == self.levels.level(b) || tied.contains(&(a, b));
                assert!(shared, "{a} and {b} shared a level meanwhile");
            }
        }
        for &(key, slot, applied) in &self.members {
            assert!(
                applied.is_none_or(|applied| applied == self.levels.level(key)),
                "slot {slot} was not moved"
            );
        }
        moved.len()
    }

    /// Returns the pairs of keys with attached threads of equal priority. The result is empty for
    /// more than 12 members, for which the comparison takes too long.
    fn tied(&self) -> Vec<(u64, u64)> {
        if self.members.len() > 12 {
            return vec![];
        }
        let applied = || self.members.iter().filter_map(|&(key, _, applied)| Some((key, applied?)));
        let pairs = applied().flat_map(|a| applied().map(move |b| (a, b)));
        pairs
            .filter(|&((a, at), (b, bt))| a < b && at == bt)
            .map(|((a, _), (b, _))| (a, b))
            .collect()
    }

    fn check_order(&self) {
        let mut applied: Vec<(u64, u8)> =
            self.members.iter().filter_map(|&(key, _, g)| Some((key, g?))).collect();
        applied.sort_unstable_by_key(|&(key, level)| (key, std::cmp::Reverse(level)));
        assert!(
            applied.windows(2).all(|pair| pair[0].1 >= pair[1].1),
            "order turned round: {applied:?}"
        );
    }

    fn insert(&mut self, key: u64, slot: u32, attach: bool) -> usize {
        let after = self.levels.after(None, Some(&member(key)));
        agrees(&after);
        let expected = shape(after.runs());
        let moved = self.act(|levels, moved| levels.insert(&member(key), moved));
        assert_eq!(shape(self.levels.runs().iter()), expected);
        let applied = attach.then(|| self.levels.level(key));
        if attach {
            self.levels.attach(key, slot, true);
        }
        self.members.push((key, slot, applied));
        moved
    }

    fn remove(&mut self, index: usize) -> usize {
        let (key, slot, applied) = self.members.swap_remove(index);
        if applied.is_some() {
            self.levels.attach(key, slot, false);
        }
        let after = self.levels.after(Some(&member(key)), None);
        agrees(&after);
        let expected = shape(after.runs());
        let moved = self.act(|levels, moved| levels.remove(&member(key), moved));
        assert_eq!(shape(self.levels.runs().iter()), expected);
        moved
    }

    fn rekey(&mut self, index: usize, to: u64) {
        let (key, slot, applied) = self.members.swap_remove(index);
        if applied.is_some() {
            self.levels.attach(key, slot, false);
        }
        let after = self.levels.after(Some(&member(key)), Some(&member(to)));
        agrees(&after);
        let expected = shape(after.runs());
        if key == to {
            self.levels.exchange(&member(key), &member(to));
        } else {
            self.act(|levels, moved| levels.remove(&member(key), moved));
            self.act(|levels, moved| levels.insert(&member(to), moved));
        }
        assert_eq!(shape(self.levels.runs().iter()), expected);
        self.members.push((to, slot, None));
    }
}

#[test]
fn r17_every_small_band_keeps_the_order_of_distinct_keys() {
    fn explore(reference: &Reference, depth: u32, seen: &mut u32) {
        *seen += 1;
        if depth == 0 {
            return;
        }
        for key in 1..=5 {
            let mut next = reference.clone();
            match next.members.iter().position(|&(k, ..)| k == key) {
                Some(index) => next.remove(index),
                None => next.insert(key, key as u32, true),
            };
            explore(&next, depth - 1, seen);
        }
    }
    for levels in 1..=4 {
        let mut seen = 0;
        explore(&Reference::new(band(50, levels)), 6, &mut seen);
        assert_eq!(seen, (5u32.pow(7) - 1) / 4);
    }
}

#[test]
fn r15_random_histories_keep_the_order_and_move_only_changed_threads() {
    let mut rng = Rng::new(15);
    let (mut steps, mut moves) = (0usize, 0usize);
    for _ in 0..290 {
        let band = match rng.below(4) {
            0 => band(1, 99),
            1 => band(50, 50),
            _ => band(1 + rng.below(80) as u8, 1 + rng.below(12) as u8),
        };
        let keys = 1 + rng.below(150);
        let full = 20 + rng.below(150);
        let mut reference = Reference::new(band);
        let mut slot = 0;
        for _ in 0..350 {
            steps += 1;
            let many = reference.members.len() as u64;
            if rng.below(full) >= many {
                slot += 1;
                moves += reference.insert(1 + rng.below(keys), slot, rng.chance(70));
            } else if rng.chance(70) {
                moves += reference.remove(rng.below(many) as usize);
            } else {
                reference.rekey(rng.below(many) as usize, 1 + rng.below(keys));
            }
        }
        // Every pair of distinct keys: ordered, and strictly so while there are enough levels.
        let distinct = reference.levels.distinct();
        for &(a, ..) in &reference.members {
            for &(b, ..) in reference.members.iter().filter(|&&(b, ..)| a < b) {
                let (above, below) = (reference.levels.level(a), reference.levels.level(b));
                assert!(
                    above > below || (above == below && distinct > band.levels()),
                    "{a} at {above}, {b} at {below}"
                );
            }
        }
        while !reference.members.is_empty() {
            reference.remove(0);
        }
        assert!(
            reference.levels.is_empty()
                && reference.levels.groups.len() == 0
                && reference.levels.attached.is_empty()
        );
    }
    assert!(
        steps > 100_000 && moves * 2 < steps * 3,
        "{moves} moves in {steps} steps; gaps should make moves rare"
    );
}

#[test]
fn r15_a_growing_order_in_a_wide_band_moves_few_threads() {
    // Fifty random distinct periods on 99 levels, all attached.
    let mut rng = Rng::new(99);
    let (mut moved, mut worst) = (0, 0);
    for _ in 0..40 {
        let mut reference = Reference::new(band(1, 99));
        for slot in 0..50 {
            let by = reference.insert(1_000_000 + rng.below(10_000_000), slot, true);
            moved += by;
            worst = worst.max(by);
        }
    }
    println!(
        "{:.2} threads moved per arrival, at worst {worst}",
        f64::from(moved as u32) / 2_000.0
    );
    assert!(moved <= 2 * 2_000, "{moved}");
}

#[test]
fn r17_a_full_band_shares_levels_by_the_documented_rule_only_while_necessary() {
    let mut reference = Reference::new(band(10, 3));
    for (slot, key) in [(1, 20), (2, 40), (3, 60)] {
        reference.insert(key, slot, true);
    }
    let level = |reference: &Reference, key| reference.levels.level(key);
    let three = [level(&reference, 20), level(&reference, 40), level(&reference, 60)];
    assert_eq!(three, [12, 11, 10], "three keys, three levels");
    // A new key joins the next more urgent run; the most urgent one joins the first. No thread
    // moves.
    assert!(reference.levels.must_share(50, None) && !reference.levels.must_share(40, None));
    assert_eq!(reference.insert(50, 4, true) + reference.insert(10, 5, true), 0);
    assert_eq!([10, 20, 40, 50, 60].map(|key| level(&reference, key)), [12, 12, 11, 11, 10]);
    // The last key is removed: its level goes to the nearest shared run, which gives its least
    // urgent group.
    let last = reference.members.iter().position(|&(key, ..)| key == 60).unwrap();
    assert_eq!(reference.remove(last), 1);
    assert_eq!([10, 20, 40, 50].map(|key| level(&reference, key)), [12, 12, 11, 10]);
    let of_40 = reference.members.iter().position(|&(key, ..)| key == 40).unwrap();
    reference.remove(of_40);
    assert_eq!([10, 20, 50].map(|key| level(&reference, key)), [12, 11, 10]);
}

#[test]
fn retif_w4_w5_running_threads_keep_the_order_of_their_keys() {
    // ReTiF left kernel priorities 1, 1, 2, 4 for periods 10, 100, 50, 5 ms, and 1, 1, 2 for
    // requested priorities 50, 10, 30: stored values moved, threads did not.
    for keys in [&[10u64, 100, 50, 5][..], &[100 - 50, 100 - 10, 100 - 30]] {
        let mut reference = Reference::new(band(1, keys.len() as u8));
        for (slot, &key) in keys.iter().enumerate() {
            reference.insert(key, slot as u32, true);
        }
        let mut applied: Vec<(u64, u8)> =
            reference.members.iter().map(|&(key, _, applied)| (key, applied.unwrap())).collect();
        applied.sort_unstable();
        let levels: Vec<u8> = applied.iter().map(|&(_, level)| level).collect();
        assert_eq!(levels, (1..=keys.len() as u8).rev().collect::<Vec<_>>(), "{keys:?}");
    }
}

#[test]
fn retif_w6_insertions_and_removals_do_not_use_levels_up() {
    let mut reference = Reference::new(band(1, 3));
    for round in 0..150 {
        reference.insert(1_000 + round % 2, 0, false);
        reference.remove(0);
    }
    for (slot, key) in [(1, 30), (2, 20), (3, 10)] {
        reference.insert(key, slot, true);
    }
    assert_eq!([10, 20, 30].map(|key| reference.levels.level(key)), [3, 2, 1]);
}
