//! The order against a plain one: every small window, then long random lives.

use super::*;
use crate::dice::Dice;
use talea_core::Priority;

fn band(low: u8, levels: u8) -> Band {
    Band { low: Priority(low), high: Priority(low + levels - 1) }
}

fn member(key: u64) -> Member {
    // Work and proof differ from key to key so that mixed-up sums show.
    Member { key, work: u128::from(key) * 7, unproved: key.is_multiple_of(5) }
}

/// What the classes of two lists of runs are compared by.
fn shape<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<(u64, u128, Sum, bool, u32)> {
    runs.map(|run| (run.first, run.work, run.class, run.is_shared(), run.unproved)).collect()
}

/// The sum that is not walked for equals the walk, but for rounding.
fn agrees(after: &After<'_>) {
    let Some(sum) = after.sum_of_others() else { return };
    let newcomer = after.newcomer().map(|run| run.first);
    let others = after.runs().skip(1).filter(|run| Some(run.first) != newcomer);
    let walk = others.fold(Sum::EMPTY, |sum, run| sum.and(run.class));
    assert_eq!(sum.classes, walk.classes);
    assert!(sum.is_within(&walk, 3 * walk.classes.max(1)), "{sum:?} for {walk:?}");
}

/// Levels with their plain twin: the list of members, and what attached threads have been given.
#[derive(Clone)]
struct Twin {
    levels: Levels,
    /// Key, slot, and the priority that an attached thread has.
    members: Vec<(u64, u32, Option<u8>)>,
    acts: u32,
}

impl Twin {
    fn new(band: Band) -> Twin {
        Twin { levels: Levels::with_sums(band), members: vec![], acts: 0 }
    }

    /// Changes the levels by `act` and follows its moves one by one, as the kernel would see them.
    fn act(&mut self, act: impl FnOnce(&mut Levels, &mut Vec<u32>)) -> usize {
        let mut moved = vec![];
        let tied = self.tied();
        act(&mut self.levels, &mut moved);
        self.acts += 1;
        if self.members.len() < 12 || self.acts.is_multiple_of(5) {
            self.levels.check();
        }
        for &slot in &moved {
            let (key, _, given) =
                self.members.iter_mut().find(|(_, s, _)| *s == slot).expect("moved a stranger");
            let given = given.as_mut().expect("moved a thread that is not attached");
            assert_ne!(*given, self.levels.level(*key), "slot {slot} was moved to where it was");
            *given = self.levels.level(*key);
            self.never_turned_round();
            for (a, b) in self.tied() {
                let shared = self.levels.level(a) == self.levels.level(b) || tied.contains(&(a, b));
                assert!(shared, "{a} and {b} met on the way");
            }
        }
        for &(key, slot, given) in &self.members {
            assert!(
                given.is_none_or(|given| given == self.levels.level(key)),
                "slot {slot} was forgotten"
            );
        }
        moved.len()
    }

    /// Pairs of keys whose attached threads have the same priority; not looked for in crowds, where
    /// it takes long.
    fn tied(&self) -> Vec<(u64, u64)> {
        if self.members.len() > 12 {
            return vec![];
        }
        let given = || self.members.iter().filter_map(|&(key, _, given)| Some((key, given?)));
        let pairs = given().flat_map(|a| given().map(move |b| (a, b)));
        pairs
            .filter(|&((a, at), (b, bt))| a < b && at == bt)
            .map(|((a, _), (b, _))| (a, b))
            .collect()
    }

    fn never_turned_round(&self) {
        let mut given: Vec<(u64, u8)> =
            self.members.iter().filter_map(|&(key, _, g)| Some((key, g?))).collect();
        given.sort_unstable_by_key(|&(key, level)| (key, std::cmp::Reverse(level)));
        assert!(
            given.windows(2).all(|pair| pair[0].1 >= pair[1].1),
            "order turned round: {given:?}"
        );
    }

    fn insert(&mut self, key: u64, slot: u32, attach: bool) -> usize {
        let after = self.levels.after(None, Some(&member(key)));
        agrees(&after);
        let expected = shape(after.runs());
        let moved = self.act(|levels, moved| levels.insert(&member(key), moved));
        assert_eq!(shape(self.levels.runs().iter()), expected);
        let given = attach.then(|| self.levels.level(key));
        if attach {
            self.levels.attach(key, slot, true);
        }
        self.members.push((key, slot, given));
        moved
    }

    fn remove(&mut self, index: usize) -> usize {
        let (key, slot, given) = self.members.swap_remove(index);
        if given.is_some() {
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
        let (key, slot, given) = self.members.swap_remove(index);
        if given.is_some() {
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
fn r17_every_small_window_keeps_the_order_of_distinct_keys() {
    fn explore(twin: &Twin, depth: u32, seen: &mut u32) {
        *seen += 1;
        if depth == 0 {
            return;
        }
        for key in 1..=5 {
            let mut next = twin.clone();
            match next.members.iter().position(|&(k, ..)| k == key) {
                Some(index) => next.remove(index),
                None => next.insert(key, key as u32, true),
            };
            explore(&next, depth - 1, seen);
        }
    }
    for levels in 1..=4 {
        let mut seen = 0;
        explore(&Twin::new(band(50, levels)), 6, &mut seen);
        assert_eq!(seen, (5u32.pow(7) - 1) / 4);
    }
}

#[test]
fn r15_long_random_lives_keep_the_order_and_move_only_who_must_move() {
    let mut dice = Dice::new(15);
    let (mut steps, mut moves) = (0usize, 0usize);
    for _ in 0..290 {
        let band = match dice.roll(4) {
            0 => band(1, 99),
            1 => band(50, 50),
            _ => band(1 + dice.roll(80) as u8, 1 + dice.roll(12) as u8),
        };
        let keys = 1 + dice.roll(150);
        let full = 20 + dice.roll(150);
        let mut twin = Twin::new(band);
        let mut slot = 0;
        for _ in 0..350 {
            steps += 1;
            let many = twin.members.len() as u64;
            if dice.roll(full) >= many {
                slot += 1;
                moves += twin.insert(1 + dice.roll(keys), slot, dice.chance(70));
            } else if dice.chance(70) {
                moves += twin.remove(dice.roll(many) as usize);
            } else {
                twin.rekey(dice.roll(many) as usize, 1 + dice.roll(keys));
            }
        }
        // Every pair of distinct keys: at least as urgent, and strictly so while there are enough
        // levels.
        let distinct = twin.levels.distinct();
        for &(a, ..) in &twin.members {
            for &(b, ..) in twin.members.iter().filter(|&&(b, ..)| a < b) {
                let (above, below) = (twin.levels.level(a), twin.levels.level(b));
                assert!(
                    above > below || (above == below && distinct > band.levels()),
                    "{a} at {above}, {b} at {below}"
                );
            }
        }
        while !twin.members.is_empty() {
            twin.remove(0);
        }
        assert!(
            twin.levels.is_empty()
                && twin.levels.groups.len() == 0
                && twin.levels.attached.is_empty()
        );
    }
    assert!(
        steps > 100_000 && moves * 2 < steps * 3,
        "{moves} moves in {steps} steps: gaps should make moves rare"
    );
}

#[test]
fn r15_a_growing_order_in_a_wide_band_hardly_moves_anybody() {
    // Fifty random distinct periods into 99 levels, all attached.
    let mut dice = Dice::new(99);
    let (mut moved, mut worst) = (0, 0);
    for _ in 0..40 {
        let mut twin = Twin::new(band(1, 99));
        for slot in 0..50 {
            let by = twin.insert(1_000_000 + dice.roll(10_000_000), slot, true);
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
fn r17_a_full_window_shares_by_the_documented_rule_and_shares_no_longer_than_it_must() {
    let mut twin = Twin::new(band(10, 3));
    for (slot, key) in [(1, 20), (2, 40), (3, 60)] {
        twin.insert(key, slot, true);
    }
    let level = |twin: &Twin, key| twin.levels.level(key);
    let three = [level(&twin, 20), level(&twin, 40), level(&twin, 60)];
    assert_eq!(three, [12, 11, 10], "three keys, three levels");
    // A new key joins the run that is just more urgent; a most urgent one joins the first. Nobody
    // moves.
    assert!(twin.levels.must_share(50, None) && !twin.levels.must_share(40, None));
    assert_eq!(twin.insert(50, 4, true) + twin.insert(10, 5, true), 0);
    assert_eq!([10, 20, 40, 50, 60].map(|key| level(&twin, key)), [12, 12, 11, 11, 10]);
    // The last one leaves: its level goes to the nearest shared run, which gives its least urgent
    // group.
    let last = twin.members.iter().position(|&(key, ..)| key == 60).unwrap();
    assert_eq!(twin.remove(last), 1);
    assert_eq!([10, 20, 40, 50].map(|key| level(&twin, key)), [12, 12, 11, 10]);
    let of_40 = twin.members.iter().position(|&(key, ..)| key == 40).unwrap();
    twin.remove(of_40);
    assert_eq!([10, 20, 50].map(|key| level(&twin, key)), [12, 11, 10]);
}

#[test]
fn retif_w4_w5_running_threads_keep_the_order_of_their_keys() {
    // The original left kernel priorities 1, 1, 2, 4 for periods 10, 100, 50, 5 ms, and 1, 1, 2 for
    // requested priorities 50, 10, 30: stored values moved, threads did not.
    for keys in [&[10u64, 100, 50, 5][..], &[100 - 50, 100 - 10, 100 - 30]] {
        let mut twin = Twin::new(band(1, keys.len() as u8));
        for (slot, &key) in keys.iter().enumerate() {
            twin.insert(key, slot as u32, true);
        }
        let mut given: Vec<(u64, u8)> =
            twin.members.iter().map(|&(key, _, given)| (key, given.unwrap())).collect();
        given.sort_unstable();
        let levels: Vec<u8> = given.iter().map(|&(_, level)| level).collect();
        assert_eq!(levels, (1..=keys.len() as u8).rev().collect::<Vec<_>>(), "{keys:?}");
    }
}

#[test]
fn retif_w6_comings_and_goings_do_not_use_levels_up() {
    let mut twin = Twin::new(band(1, 3));
    for round in 0..150 {
        twin.insert(1_000 + round % 2, 0, false);
        twin.remove(0);
    }
    for (slot, key) in [(1, 30), (2, 20), (3, 10)] {
        twin.insert(key, slot, true);
    }
    assert_eq!([10, 20, 30].map(|key| twin.levels.level(key)), [3, 2, 1]);
}
