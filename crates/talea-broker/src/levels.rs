//! Assignment of kernel priorities to keys: one plugin's band on one CPU.
//!
//! A smaller key is more urgent (`rm`: min(T, D) in nanoseconds; `fp` and `rr`: 100 minus the
//! requested priority). Tasks of equal key form a *group*; adjacent groups that share a kernel
//! priority form a *run*. There are at most 99 runs, kept in a vector. Groups are in a map and
//! attached threads in a set, so an operation costs O(log n + threads on changed levels) for n
//! tasks.
//!
//! Invariants (`check`, in tests):
//!
//! 1. The number of runs is min(groups, R) for the R levels of the band: distinct keys keep
//!    distinct priorities as long as there are enough levels (ReTiF JSA 2021, Eq. 6), and no level
//!    is unused while another is shared.
//! 2. More urgent runs have higher priorities, after any sequence of operations.
//!
//! *Assignment.* A new run gets a level in the gap between its neighbours, in proportion to the
//! keys (in the middle at the ends), so most insertions move no other run. Without a gap, runs are
//! shifted into half of the nearest gap, on the side with fewer attached threads to move. Without
//! any gap, a new key joins the next more urgent run as its least urgent member (or the first run):
//! no run moves, and existing keys keep their order. A level that becomes free while others are
//! shared goes to the nearest shared run, which moves one of its groups there.
//!
//! The sum over many runs, which `rm` needs for every request, is kept in a
//! [`crate::segment_tree`].
//!
//! Absent on purpose: redistribution of all runs. It would move many threads now to save few moves
//! later.

mod groups;
#[cfg(test)]
mod tests;

use crate::rm_bounds::RmSum;
use crate::segment_tree::SegmentTree;
use groups::{Group, Groups};
use std::collections::BTreeSet;
use talea_core::mutate;
use talea_core::setup::Band;

/// A task as a member of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Urgency: smaller is more urgent.
    pub(crate) key: u64,
    /// Declared work in nanoseconds; 0 if unknown or irrelevant.
    pub(crate) work: u128,
    /// Whether no guarantee is provable for tasks at or below this task's level.
    pub(crate) unproved: bool,
}

/// Adjacent groups on one kernel priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelRun {
    /// Most urgent key.
    pub(crate) first: u64,
    /// Sum of the declared work, in nanoseconds.
    pub(crate) work: u128,
    /// The run as one class: `work` within `first` nanoseconds.
    pub(crate) class: RmSum,
    /// Number of keys on the level.
    groups: u32,
    /// Number of unproved members.
    pub(crate) unproved: u32,
    attached: u32,
    level: u8,
}

impl LevelRun {
    fn of(key: u64, group: &Group) -> LevelRun {
        let Group { work, unproved, attached, .. } = *group;
        LevelRun {
            first: key,
            work,
            class: RmSum::class(work, key),
            groups: 1,
            unproved,
            attached,
            level: 0,
        }
    }

    /// Whether several keys share the level.
    pub(crate) fn is_shared(&self) -> bool {
        self.groups > 1
    }

    /// Whether the run stays shared and keeps its first key when a group of this key is inserted or
    /// removed. Then a look-ahead needs no access to the groups, which are many and likely not
    /// cached.
    fn stays_shared(&self, key: u64) -> bool {
        self.groups > mutate!("plugin-rm-lookahead", 2, 1) && self.first < key
    }

    fn add(&mut self, member: &Member) {
        self.work += member.work;
        self.unproved += u32::from(member.unproved);
        self.sum_up();
    }

    fn subtract(&mut self, member: &Member) {
        self.work -= member.work;
        self.unproved -= u32::from(member.unproved);
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.class = RmSum::class(self.work, self.first);
    }
}

/// Priority order of one plugin's tasks on one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    band: Band,
    groups: Groups,
    /// Runs, most urgent first.
    runs: Vec<LevelRun>,
    /// Sums over the classes of the runs, for plugins that need them; valid while all levels are in
    /// use. Before that the list is short and grows often, so a walk is cheaper than maintaining
    /// sums.
    sums: Option<Box<SegmentTree>>,
    /// Number of unproved members.
    unproved: u32,
    /// Attached threads: key and slot.
    attached: BTreeSet<(u64, u32)>,
}

/// Hypothetical runs after a change: see [`Levels::after`]. Only whether a level is shared is
/// known, not the number of groups.
#[derive(Debug)]
pub(crate) struct LevelsAfter<'a> {
    before: &'a [LevelRun],
    sums: Option<&'a SegmentTree>,
    /// Index of the run that loses a member, and the rest of the run, if any.
    less: Option<(usize, Option<LevelRun>)>,
    /// Replaces `before` if a level becomes free and another run gets it.
    scratch: Option<Vec<LevelRun>>,
    place: usize,
    new: Option<LevelRun>,
    replaces: bool,
}

impl LevelsAfter<'_> {
    /// Returns the run with the new member.
    pub(crate) fn new_run(&self) -> Option<&LevelRun> {
        self.new.as_ref()
    }

    /// Iterates over the runs, most urgent first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &LevelRun> {
        let head = (0..self.place).filter_map(|at| self.at(at));
        let tail = (self.place + usize::from(self.replaces)..self.old().len())
            .filter_map(|at| self.at(at));
        head.chain(&self.new).chain(tail)
    }

    /// Returns the sum over all runs except the first and the one with the new member, if available
    /// without a walk.
    pub(crate) fn sum_of_others(&self) -> Option<RmSum> {
        let sums = self.sums.filter(|_| self.scratch.is_none())?;
        let end = self.before.len();
        let replaced = self.replaces.then_some(self.place);
        let comes_first = self.new.is_some() && (0..self.place).all(|at| self.at(at).is_none());
        let first = if comes_first { None } else { (0..end).find(|&at| self.at(at).is_some()) };
        let less = self.less.as_ref();
        let mut apart = [replaced, first, less.map(|(at, _)| *at)];
        apart.sort_unstable();
        let (mut sum, mut from) = (RmSum::EMPTY, 0);
        for at in apart.into_iter().flatten() {
            if from <= at {
                sum = sum.combined(sums.over(from..at));
                from = at + 1;
            }
        }
        sum = sum.combined(sums.over(from..end));
        match less {
            Some((at, Some(left))) if replaced != Some(*at) && first != Some(*at) => {
                Some(sum.combined(left.class))
            }
            _ => Some(sum),
        }
    }

    /// Returns the runs without the new member; the change of the leaving member in `less` is not
    /// applied.
    fn old(&self) -> &[LevelRun] {
        self.scratch.as_deref().unwrap_or(self.before)
    }

    /// Returns one of the old runs; `None` if it was removed.
    fn at(&self, index: usize) -> Option<&LevelRun> {
        match &self.less {
            Some((changed, less)) if *changed == index => less.as_ref(),
            _ => self.old().get(index),
        }
    }

    /// Returns the number of runs without the leaving and the new member.
    fn count(&self) -> usize {
        self.old().len() - usize::from(matches!(self.less, Some((_, None))))
    }

    /// Returns the index of the run for `key` without the leaving member. If that member was the
    /// first of a run, the run now begins later.
    fn run_of(&self, key: u64) -> usize {
        let at = run_of(self.old(), key);
        match &self.less {
            Some((changed, Some(less))) if *changed == at && key < less.first => {
                at.saturating_sub(1)
            }
            _ => at,
        }
    }

    /// Returns the run that the new member joins.
    fn run_to_join(&self) -> LevelRun {
        *self.at(self.place).expect("a removed run has no key")
    }
}

/// Receiver of the ranges of keys with a changed level.
trait MoveSink {
    fn moved(&mut self, keys: std::ops::Range<u64>);
}

/// Receiver that ignores changes, for a look-ahead.
struct IgnoreMoves;

impl MoveSink for IgnoreMoves {
    fn moved(&mut self, _: std::ops::Range<u64>) {}
}

/// Receiver that collects the attached threads, in the order in which they must be changed.
struct AttachedMoves<'a>(&'a BTreeSet<(u64, u32)>, &'a mut Vec<u32>);

impl MoveSink for AttachedMoves<'_> {
    fn moved(&mut self, keys: std::ops::Range<u64>) {
        let moved = self.0.range((keys.start, 0)..(keys.end, 0)).map(|&(_, slot)| slot);
        mutate!("plugin-rm-reapply", self.1.extend(moved));
    }
}

impl Levels {
    /// Creates an empty order.
    pub(crate) fn new(band: Band) -> Levels {
        let (groups, attached) = (Groups::default(), BTreeSet::new());
        Levels { band, groups, runs: Vec::new(), sums: None, unproved: 0, attached }
    }

    /// Creates an empty order with sums over the runs.
    pub(crate) fn with_sums(band: Band) -> Levels {
        Levels { sums: Some(Box::default()), ..Levels::new(band) }
    }

    /// Whether all members are proved.
    pub(crate) fn all_proved(&self) -> bool {
        self.unproved == 0
    }

    /// Returns the number of levels of the band: R in ReTiF Eq. 6.
    pub(crate) fn size(&self) -> usize {
        self.band.levels()
    }

    /// Returns the number of distinct keys: |Π| in ReTiF Eq. 6.
    pub(crate) fn distinct(&self) -> usize {
        self.groups.len()
    }

    /// Whether several keys must share a level after `leaving` is removed and a task of this key is
    /// inserted.
    pub(crate) fn must_share(&self, key: u64, leaving: Option<&Member>) -> bool {
        let vanishes = leaving.is_some_and(|leaving| leaving.key != key && self.is_last(leaving));
        let distinct =
            self.groups.len() - usize::from(vanishes) + usize::from(self.groups.get(key).is_none());
        distinct > self.size()
    }

    /// Whether there is no member.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the runs, most urgent first.
    pub(crate) fn runs(&self) -> &[LevelRun] {
        &self.runs
    }

    /// Returns the index of the run for `key`.
    pub(crate) fn run_of(&self, key: u64) -> usize {
        run_of(&self.runs, key)
    }

    /// Returns the kernel priority of a member's key.
    pub(crate) fn level(&self, key: u64) -> u8 {
        self.runs[self.run_of(key)].level
    }

    /// Inserts a member; `moved` gets the attached slots with a changed level.
    pub(crate) fn insert(&mut self, member: &Member, moved: &mut Vec<u32>) {
        let group = self.groups.update(member.key, |group| {
            group.tasks += 1;
            group.work += member.work;
            group.unproved += u32::from(member.unproved);
        });
        self.unproved += u32::from(member.unproved);
        let before = self.runs.len();
        let at = if group.tasks > 1 {
            let at = run_of(&self.runs, member.key);
            self.runs[at].add(member);
            at
        } else {
            let run = LevelRun::of(member.key, &group);
            insert_group(&mut self.runs, self.band, run, &mut AttachedMoves(&self.attached, moved))
        };
        self.sum_up(at, self.runs.len() != before);
    }

    /// Updates the sums for one run, or for all of them.
    fn sum_up(&mut self, at: usize, all: bool) {
        let full = self.runs.len() == self.size();
        let Some(sums) = self.sums.as_deref_mut().filter(|_| full) else { return };
        if all {
            sums.set_all(self.runs.iter().map(|run| run.class));
        } else {
            sums.set(at, self.runs[at].class);
        }
    }

    /// Removes a member without an attached thread; `moved` gets the attached slots with a changed
    /// level.
    pub(crate) fn remove(&mut self, member: &Member, moved: &mut Vec<u32>) {
        self.unproved -= u32::from(member.unproved);
        if self.is_last(member) {
            let at = run_of(&self.runs, member.key);
            let shared = self.runs[at].groups > 1;
            let movers = &mut AttachedMoves(&self.attached, moved);
            remove_group(&mut self.runs, &self.groups, self.band, member, movers);
            self.groups.remove(member.key);
            return self.sum_up(at, !shared);
        }
        self.groups.update(member.key, |group| {
            group.tasks -= 1;
            group.work -= member.work;
            group.unproved -= u32::from(member.unproved);
        });
        let run = run_of(&self.runs, member.key);
        self.runs[run].subtract(member);
        self.sum_up(run, false);
    }

    /// Replaces a member by one of the same key: no level changes.
    pub(crate) fn exchange(&mut self, old: &Member, new: &Member) {
        assert_eq!(old.key, new.key, "an exchange keeps the key");
        let group = self.groups.update(old.key, |group| {
            group.work = group.work - old.work + new.work;
            group.unproved = group.unproved - u32::from(old.unproved) + u32::from(new.unproved);
        });
        assert!(group.tasks > 0, "the member does not exist");
        self.unproved = self.unproved - u32::from(old.unproved) + u32::from(new.unproved);
        let run = run_of(&self.runs, old.key);
        self.runs[run].subtract(old);
        self.runs[run].add(new);
        self.sum_up(run, false);
    }

    /// Records whether the thread of a member is attached.
    pub(crate) fn attach(&mut self, key: u64, slot: u32, attached: bool) {
        let changed = if attached {
            self.attached.insert((key, slot))
        } else {
            self.attached.remove(&(key, slot))
        };
        assert!(changed, "a thread is attached or detached twice");
        let count = |count: &mut u32| *count = if attached { *count + 1 } else { *count - 1 };
        let group = self.groups.update(key, |group| count(&mut group.attached));
        assert!(group.tasks > 0, "the member does not exist");
        let run = run_of(&self.runs, key);
        count(&mut self.runs[run].attached);
    }

    /// Returns the hypothetical runs without `leaving` and with `coming`: the result of
    /// [`Levels::remove`] and then [`Levels::insert`] (or [`Levels::exchange`] for equal keys),
    /// except for the levels.
    pub(crate) fn after(
        &self,
        leaving: Option<&Member>,
        coming: Option<&Member>,
    ) -> LevelsAfter<'_> {
        let full = self.runs.len() == self.size();
        let (before, sums) = (&self.runs, self.sums.as_deref().filter(|_| full));
        let mut after = LevelsAfter {
            before,
            sums,
            less: None,
            scratch: None,
            place: 0,
            new: None,
            replaces: false,
        };
        if let Some(leaving) = leaving {
            let at = run_of(&self.runs, leaving.key);
            let mut run = self.runs[at];
            if run.stays_shared(leaving.key)
                || coming.is_some_and(|coming| coming.key == leaving.key)
                || !self.is_last(leaving)
            {
                run.subtract(leaving);
                after.less = Some((at, Some(run)));
            } else if run.is_shared() {
                after.less = Some((at, Some(without_group(run, &self.groups, leaving))));
            } else if self.runs.len() == self.groups.len() {
                // No level is shared, so the free level is not reassigned.
                after.less = Some((at, None));
            } else {
                let mut scratch = self.runs.clone();
                remove_group(&mut scratch, &self.groups, self.band, leaving, &mut IgnoreMoves);
                after.scratch = Some(scratch);
            }
        }
        let Some(coming) = coming else { return after };
        if after.count() == self.size() {
            after.place = after.run_of(coming.key);
            let mut run = after.run_to_join();
            if run.stays_shared(coming.key) {
                run.add(coming);
                (after.new, after.replaces) = (Some(run), true);
                return after;
            }
        }
        // Equal keys of the leaving and the new member were handled above: an existing group also
        // exists afterwards.
        if self.groups.get(coming.key).is_some() {
            after.place = after.run_of(coming.key);
            let mut run = after.run_to_join();
            run.add(coming);
            (after.new, after.replaces) = (Some(run), true);
            return after;
        }
        let group = Group {
            tasks: 1,
            work: coming.work,
            unproved: u32::from(coming.unproved),
            attached: 0,
        };
        let run = LevelRun::of(coming.key, &group);
        if after.count() < self.size() {
            // With a free level no run is shared, so no run begins later because of the leaving
            // member.
            after.place = after.old().partition_point(|other| other.first < run.first);
            after.new = Some(run);
        } else {
            after.place = after.run_of(coming.key);
            (after.new, after.replaces) = (Some(with_group(after.run_to_join(), &run)), true);
        }
        after
    }

    fn is_last(&self, member: &Member) -> bool {
        self.groups.get(member.key).expect("the member was never inserted").tasks == 1
    }

    /// Checks the invariants; O(n).
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.groups.check();
        assert_eq!(self.runs.len(), self.groups.len().min(self.size()), "levels used");
        assert_eq!(
            self.unproved,
            self.groups.range(0..u64::MAX).map(|(_, group)| group.unproved).sum::<u32>()
        );
        if let Some(sums) = self.sums.as_ref().filter(|_| self.runs.len() == self.size()) {
            sums.check(&self.runs.iter().map(|run| run.class).collect::<Vec<_>>());
        }
        let levels: Vec<u8> = self.runs.iter().map(|run| run.level).collect();
        assert!(levels.windows(2).all(|pair| pair[0] > pair[1]), "levels out of order: {levels:?}");
        assert!(levels.iter().all(|&level| self.band.low.0 <= level && level <= self.band.high.0));
        assert!(self.runs.windows(2).all(|pair| pair[0].first < pair[1].first));
        for (i, run) in self.runs.iter().enumerate() {
            let end = self.runs.get(i + 1).map_or(u64::MAX, |next| next.first);
            let groups = || self.groups.range(run.first..end).map(|(_, group)| group);
            assert!(self.groups.get(run.first).is_some());
            assert_eq!(run.groups as usize, groups().count());
            assert_eq!(run.work, groups().map(|group| group.work).sum::<u128>());
            assert_eq!(run.class, RmSum::class(run.work, run.first));
            assert_eq!(run.unproved, groups().map(|group| group.unproved).sum::<u32>());
            assert_eq!(run.attached, groups().map(|group| group.attached).sum::<u32>());
            assert_eq!(
                run.attached as usize,
                self.attached.range((run.first, 0)..(end, 0)).count()
            );
        }
    }
}

/// Returns the index of the run for `key`; a key before all runs belongs to the first.
fn run_of(runs: &[LevelRun], key: u64) -> usize {
    runs.partition_point(|run| run.first <= key).saturating_sub(1)
}

/// Returns `run` with one more group, which is not yet in the map.
fn with_group(mut run: LevelRun, group: &LevelRun) -> LevelRun {
    run.first = run.first.min(group.first);
    run.groups += 1;
    run.work += group.work;
    run.unproved += group.unproved;
    run.attached += group.attached;
    run.sum_up();
    run
}

/// Returns a shared run without the group whose only member is `leaving`; `groups` still has it.
fn without_group(mut run: LevelRun, groups: &Groups, leaving: &Member) -> LevelRun {
    if run.first == leaving.key {
        run.first = groups.next_after(leaving.key).expect("a shared run has another group");
    }
    run.groups -= 1;
    run.subtract(leaving);
    run
}

/// Inserts a new group on a level of its own, or into a run if no level is free; returns the index
/// of the run.
fn insert_group(
    runs: &mut Vec<LevelRun>,
    band: Band,
    group: LevelRun,
    movers: &mut impl MoveSink,
) -> usize {
    if runs.len() < band.levels() {
        let at = mutate!(
            "plugin-rm-order",
            runs.partition_point(|run| run.first < group.first),
            runs.len()
        );
        insert_run(runs, band, at, group, movers);
        at
    } else {
        let at = run_of(runs, group.first);
        runs[at] = with_group(runs[at], &group);
        at
    }
}

/// Returns `part` / `whole` of `room`, rounded down.
fn proportional(room: u8, part: u64, whole: u64) -> u8 {
    (u128::from(room) * u128::from(part) / u128::from(whole)) as u8
}

/// Inserts `run` at index `at` and assigns a level: within a gap, or by shifting other runs.
fn insert_run(
    runs: &mut Vec<LevelRun>,
    band: Band,
    at: usize,
    run: LevelRun,
    movers: &mut impl MoveSink,
) {
    runs.insert(at, run);
    let end = runs.len();
    let below = runs.get(at + 1).map_or(band.low.0, |next| next.level + 1);
    let above = if at == 0 { band.high.0 } else { runs[at - 1].level - 1 };
    if below <= above {
        let room = above - below;
        let step = match (
            at.checked_sub(1).map(|i| runs[i].first),
            runs.get(at + 1).map(|next| next.first),
        ) {
            (Some(a), Some(b)) => proportional(room, runs[at].first - a, b - a),
            _ => room / 2,
        };
        runs[at].level = above - step;
        return;
    }
    // Nearest gap upwards: runs[up..at] rise. Nearest gap downwards: runs[at + 1..down] fall. Both
    // by half of the gap, so that the next insertion here finds a gap.
    let ceiling =
        |runs: &[LevelRun], i: usize| if i == 0 { band.high.0 } else { runs[i - 1].level - 1 };
    let floor =
        |runs: &[LevelRun], i: usize| runs.get(i + 1).map_or(band.low.0, |next| next.level + 1);
    let up = (0..at).rev().find(|&i| runs[i].level < ceiling(runs, i));
    let down = (at + 1..end).find(|&i| runs[i].level > floor(runs, i)).map(|i| i + 1);
    let cost =
        |shifted: &[LevelRun]| (shifted.iter().map(|run| run.attached).sum::<u32>(), shifted.len());
    let upwards = match (up, down) {
        (Some(up), Some(down)) => cost(&runs[up..at]) <= cost(&runs[at + 1..down]),
        (up, down) => {
            assert!(up.is_some() || down.is_some(), "fewer runs than levels, but no gap");
            up.is_some()
        }
    };
    let keys = |runs: &[LevelRun], i: usize| {
        runs[i].first..runs.get(i + 1).map_or(u64::MAX, |next| next.first)
    };
    // The first run to move is the farthest one, so no order is inverted meanwhile.
    if upwards {
        let up = up.expect("chosen");
        let by = (ceiling(runs, up) - runs[up].level).div_ceil(2);
        runs[at].level = runs[at - 1].level + (by - 1) / 2;
        for i in up..at {
            runs[i].level += by;
            movers.moved(keys(runs, i));
        }
    } else {
        let down = down.expect("chosen");
        let by = (runs[down - 1].level - floor(runs, down - 1)).div_ceil(2);
        runs[at].level = runs[at + 1].level - (by - 1) / 2;
        for i in (at + 1..down).rev() {
            runs[i].level -= by;
            movers.moved(keys(runs, i));
        }
    }
}

/// Removes the only member of a group; `groups` still has it. A free level goes to the nearest
/// shared run.
fn remove_group(
    runs: &mut Vec<LevelRun>,
    groups: &Groups,
    band: Band,
    leaving: &Member,
    movers: &mut impl MoveSink,
) {
    let at = run_of(runs, leaving.key);
    if runs[at].groups > 1 {
        runs[at] = without_group(runs[at], groups, leaving);
        return;
    }
    runs.remove(at);
    let above = (0..at).rev().find(|&i| runs[i].groups > 1);
    let below = (at..runs.len()).find(|&i| runs[i].groups > 1);
    let (shared, last) = match (above, below) {
        (None, None) => return,
        (Some(above), Some(below)) if at - 1 - above > below - at => (below, false),
        (Some(above), _) => (above, true),
        (None, Some(below)) => (below, false),
    };
    // The group adjacent to the free level gets it: the last one of a run above, the first one of a
    // run below.
    let first = runs[shared].first;
    let end = runs.get(shared + 1).map_or(u64::MAX, |next| next.first);
    let mut members = groups.range(first..end).filter(|&(key, _)| key != leaving.key);
    let (key, group) =
        if last { members.next_back() } else { members.next() }.expect("a shared run has groups");
    let single = LevelRun::of(key, &group);
    let rest = &mut runs[shared];
    rest.groups -= 1;
    rest.work -= single.work;
    rest.unproved -= single.unproved;
    rest.attached -= single.attached;
    if !last {
        rest.first = members.next().expect("a shared run has another group").0;
    }
    rest.sum_up();
    let place = shared + usize::from(last);
    insert_run(runs, band, place, single, movers);
    movers.moved(single.first..runs.get(place + 1).map_or(u64::MAX, |next| next.first));
}
