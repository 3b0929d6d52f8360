//! From an order of keys to kernel priorities: one plugin's band on one CPU.
//!
//! A key says how urgent a task is: the smaller the more urgent (`rm`: min(T, D) in nanoseconds;
//! `fp` and `rr`: 100 less the requested priority). Tasks of equal key are a *group*; neighbouring
//! groups that share a kernel priority are a *run*. There are at most 99 runs, kept in a vector;
//! groups are in a map, attached threads in a set, so that an operation costs O(log n + threads on
//! levels that really move) for n tasks.
//!
//! Invariants (`check`, in tests):
//! - runs = min(groups, R) for the R levels of the band: distinct keys keep distinct priorities as
//!   long as there are enough (ReTiF JSA 2021, Eq. 6), and no level is left unused while others are
//!   shared;
//! - more urgent runs have higher priorities, whatever has come and gone.
//!
//! Where levels go: a new run goes into the gap between its neighbours, as its key lies between
//! theirs (the middle, at the ends), so that most arrivals move nobody. Without a gap, runs are
//! shifted into half of the nearest gap, on the side where fewer attached threads move. Without any
//! gap left, a new key joins the run that is just more urgent, as its least urgent member (the
//! first run, when there is none): nobody moves, and those who were there first keep the order
//! among each other. A level that falls free while others are shared goes to the nearest shared
//! run, which gives it one group.
//!
//! The sum over many runs, which `rm` asks for with every request, is not added up anew:
//! [`crate::segments`].
//!
//! Absent on purpose: spreading all runs out again. It would move many threads now to save few
//! moves later.

mod groups;
#[cfg(test)]
mod tests;

use crate::bound::Sum;
use crate::segments::Segments;
use groups::{Group, Groups};
use std::collections::BTreeSet;
use talea_core::mutate;
use talea_core::setup::Band;

/// One task in the eyes of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Urgency: smaller is more urgent.
    pub(crate) key: u64,
    /// Declared work in nanoseconds; 0 when unknown or of no interest.
    pub(crate) work: u128,
    /// Whether nothing can be proved for whoever runs at its level or below.
    pub(crate) unproved: bool,
}

/// Neighbouring groups on one kernel priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The most urgent key.
    pub(crate) first: u64,
    /// All declared work, in nanoseconds.
    pub(crate) work: u128,
    /// The run as one class: `work` within `first` nanoseconds.
    pub(crate) class: Sum,
    /// How many keys share the level.
    groups: u32,
    /// How many members void what could be proved.
    pub(crate) unproved: u32,
    attached: u32,
    level: u8,
}

impl Run {
    fn of(key: u64, group: &Group) -> Run {
        let Group { work, unproved, attached, .. } = *group;
        Run {
            first: key,
            work,
            class: Sum::class(work, key),
            groups: 1,
            unproved,
            attached,
            level: 0,
        }
    }

    /// Whether keys share the level.
    pub(crate) fn is_shared(&self) -> bool {
        self.groups > 1
    }

    /// Whether it stays shared and begins where it begins, whether or not a group of this key comes
    /// or goes: then nobody who looks ahead has to find out. The groups are many and lie where
    /// nobody has looked for a while.
    fn stays_shared(&self, key: u64) -> bool {
        self.groups > mutate!("plugin-rm-lookahead", 2, 1) && self.first < key
    }

    fn put(&mut self, member: &Member) {
        self.work += member.work;
        self.unproved += u32::from(member.unproved);
        self.sum_up();
    }

    fn take(&mut self, member: &Member) {
        self.work -= member.work;
        self.unproved -= u32::from(member.unproved);
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.class = Sum::class(self.work, self.first);
    }
}

/// The order of one plugin's tasks on one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    band: Band,
    groups: Groups,
    /// Most urgent first.
    runs: Vec<Run>,
    /// The runs' classes, for whoever counts work; true while all levels are in use. Before that
    /// the row is short, and every other arrival makes it longer: a walk costs less than keeping
    /// sums of it.
    sums: Option<Box<Segments>>,
    /// How many members void what could be proved.
    unproved: u32,
    /// Attached threads: key and slot.
    attached: BTreeSet<(u64, u32)>,
}

/// The runs as they would be after a change: see [`Levels::after`]. How many groups share a level
/// is not told, only whether some do.
#[derive(Debug)]
pub(crate) struct After<'a> {
    before: &'a [Run],
    sums: Option<&'a Segments>,
    /// The index of the run that a member leaves, and what is left of it, if anything.
    less: Option<(usize, Option<Run>)>,
    /// Instead of `before`, where a level falls free and somebody else gets it.
    scratch: Option<Vec<Run>>,
    place: usize,
    new: Option<Run>,
    replaces: bool,
}

impl After<'_> {
    /// The run that holds the newcomer.
    pub(crate) fn newcomer(&self) -> Option<&Run> {
        self.new.as_ref()
    }

    /// Most urgent first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        let head = (0..self.place).filter_map(|at| self.at(at));
        let tail = (self.place + usize::from(self.replaces)..self.old().len())
            .filter_map(|at| self.at(at));
        head.chain(&self.new).chain(tail)
    }

    /// The sum over all runs but the first and the newcomer's, where it can be had without a walk.
    pub(crate) fn sum_of_others(&self) -> Option<Sum> {
        let sums = self.sums.filter(|_| self.scratch.is_none())?;
        let end = self.before.len();
        let replaced = self.replaces.then_some(self.place);
        let comes_first = self.new.is_some() && (0..self.place).all(|at| self.at(at).is_none());
        let first = if comes_first { None } else { (0..end).find(|&at| self.at(at).is_some()) };
        let less = self.less.as_ref();
        let mut apart = [replaced, first, less.map(|(at, _)| *at)];
        apart.sort_unstable();
        let (mut sum, mut from) = (Sum::EMPTY, 0);
        for at in apart.into_iter().flatten() {
            if from <= at {
                sum = sum.and(sums.over(from..at));
                from = at + 1;
            }
        }
        sum = sum.and(sums.over(from..end));
        match less {
            Some((at, Some(left))) if replaced != Some(*at) && first != Some(*at) => {
                Some(sum.and(left.class))
            }
            _ => Some(sum),
        }
    }

    /// The runs without the newcomer.
    fn old(&self) -> &[Run] {
        self.scratch.as_deref().unwrap_or(self.before)
    }

    /// One of the old runs; `None` for one that has gone.
    fn at(&self, index: usize) -> Option<&Run> {
        match &self.less {
            Some((changed, less)) if *changed == index => less.as_ref(),
            _ => self.old().get(index),
        }
    }

    /// How many of the old runs there are.
    fn count(&self) -> usize {
        self.old().len() - usize::from(matches!(self.less, Some((_, None))))
    }

    /// Index of the run that holds `key`, or would, without the member that leaves: the run that it
    /// was the first of begins later now.
    fn run_of(&self, key: u64) -> usize {
        let at = run_of(self.old(), key);
        match &self.less {
            Some((changed, Some(less))) if *changed == at && key < less.first => {
                at.saturating_sub(1)
            }
            _ => at,
        }
    }

    /// That run.
    fn run_to_join(&self) -> Run {
        *self.at(self.place).expect("a run that has gone holds no key")
    }
}

/// Who is told of the spans of keys whose level has changed.
trait Movers {
    fn moved(&mut self, keys: std::ops::Range<u64>);
}

/// Nobody: for looking ahead.
struct Unseen;

impl Movers for Unseen {
    fn moved(&mut self, _: std::ops::Range<u64>) {}
}

/// The attached threads among them, in the order in which they must be moved.
struct Attached<'a>(&'a BTreeSet<(u64, u32)>, &'a mut Vec<u32>);

impl Movers for Attached<'_> {
    fn moved(&mut self, keys: std::ops::Range<u64>) {
        self.1.extend(self.0.range((keys.start, 0)..(keys.end, 0)).map(|&(_, slot)| slot));
    }
}

impl Levels {
    /// Nobody there yet.
    pub(crate) fn new(band: Band) -> Levels {
        let (groups, attached) = (Groups::default(), BTreeSet::new());
        Levels { band, groups, runs: Vec::new(), sums: None, unproved: 0, attached }
    }

    /// The same for members whose work counts.
    pub(crate) fn with_sums(band: Band) -> Levels {
        Levels { sums: Some(Box::default()), ..Levels::new(band) }
    }

    /// Whether nobody voids what could be proved.
    pub(crate) fn all_proved(&self) -> bool {
        self.unproved == 0
    }

    /// How many levels the band has: R in ReTiF Eq. 6.
    pub(crate) fn size(&self) -> usize {
        self.band.levels()
    }

    /// How many distinct keys there are: |Π| in ReTiF Eq. 6.
    pub(crate) fn distinct(&self) -> usize {
        self.groups.len()
    }

    /// Whether a task of this key would have to share a level with other keys, once a member of
    /// `leaving` is gone.
    pub(crate) fn must_share(&self, key: u64, leaving: Option<&Member>) -> bool {
        let vanishes = leaving.is_some_and(|leaving| leaving.key != key && self.is_last(leaving));
        let distinct =
            self.groups.len() - usize::from(vanishes) + usize::from(self.groups.get(key).is_none());
        distinct > self.size()
    }

    /// Whether nobody is there.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs, most urgent first.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Index of the run that holds `key`, or would.
    pub(crate) fn run_of(&self, key: u64) -> usize {
        run_of(&self.runs, key)
    }

    /// The kernel priority of a member's key.
    pub(crate) fn level(&self, key: u64) -> u8 {
        self.runs[self.run_of(key)].level
    }

    /// A new member; `moved` gets the attached slots whose level changes.
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
            self.runs[at].put(member);
            at
        } else {
            let run = Run::of(member.key, &group);
            insert_group(&mut self.runs, self.band, run, &mut Attached(&self.attached, moved))
        };
        self.sum_up(at, self.runs.len() != before);
    }

    /// This run has changed, or all of them have.
    fn sum_up(&mut self, at: usize, all: bool) {
        let full = self.runs.len() == self.size();
        let Some(sums) = self.sums.as_deref_mut().filter(|_| full) else { return };
        if all {
            sums.set_all(self.runs.iter().map(|run| run.class));
        } else {
            sums.set(at, self.runs[at].class);
        }
    }

    /// A member, whose thread is detached by now, leaves; `moved` gets the attached slots whose
    /// level changes.
    pub(crate) fn remove(&mut self, member: &Member, moved: &mut Vec<u32>) {
        self.unproved -= u32::from(member.unproved);
        if self.is_last(member) {
            let at = run_of(&self.runs, member.key);
            let shared = self.runs[at].groups > 1;
            let movers = &mut Attached(&self.attached, moved);
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
        self.runs[run].take(member);
        self.sum_up(run, false);
    }

    /// A member is replaced by one of the same key: no level changes.
    pub(crate) fn exchange(&mut self, old: &Member, new: &Member) {
        assert_eq!(old.key, new.key, "an exchange keeps the key");
        let group = self.groups.update(old.key, |group| {
            group.work = group.work - old.work + new.work;
            group.unproved = group.unproved - u32::from(old.unproved) + u32::from(new.unproved);
        });
        assert!(group.tasks > 0, "no such member");
        self.unproved = self.unproved - u32::from(old.unproved) + u32::from(new.unproved);
        let run = run_of(&self.runs, old.key);
        self.runs[run].take(old);
        self.runs[run].put(new);
        self.sum_up(run, false);
    }

    /// The thread of a member is attached, or no longer.
    pub(crate) fn attach(&mut self, key: u64, slot: u32, attached: bool) {
        let changed = if attached {
            self.attached.insert((key, slot))
        } else {
            self.attached.remove(&(key, slot))
        };
        assert!(changed, "attached or detached twice");
        let count = |count: &mut u32| *count = if attached { *count + 1 } else { *count - 1 };
        let group = self.groups.update(key, |group| count(&mut group.attached));
        assert!(group.tasks > 0, "no such member");
        let run = run_of(&self.runs, key);
        count(&mut self.runs[run].attached);
    }

    /// The runs as they would be without `leaving` and with `coming`: what [`Levels::remove`] then
    /// [`Levels::insert`] (or [`Levels::exchange`], for equal keys) would make of them, but for the
    /// levels.
    pub(crate) fn after(&self, leaving: Option<&Member>, coming: Option<&Member>) -> After<'_> {
        let full = self.runs.len() == self.size();
        let (before, sums) = (&self.runs, self.sums.as_deref().filter(|_| full));
        let mut after =
            After { before, sums, less: None, scratch: None, place: 0, new: None, replaces: false };
        if let Some(leaving) = leaving {
            let at = run_of(&self.runs, leaving.key);
            let mut run = self.runs[at];
            if run.stays_shared(leaving.key)
                || coming.is_some_and(|coming| coming.key == leaving.key)
                || !self.is_last(leaving)
            {
                run.take(leaving);
                after.less = Some((at, Some(run)));
            } else if run.is_shared() {
                after.less = Some((at, Some(parted(run, &self.groups, leaving))));
            } else if self.runs.len() == self.groups.len() {
                // Nobody shares a level, so nobody is given this one.
                after.less = Some((at, None));
            } else {
                let mut scratch = self.runs.clone();
                remove_group(&mut scratch, &self.groups, self.band, leaving, &mut Unseen);
                after.scratch = Some(scratch);
            }
        }
        let Some(coming) = coming else { return after };
        if after.count() == self.size() {
            after.place = after.run_of(coming.key);
            let mut run = after.run_to_join();
            if run.stays_shared(coming.key) {
                run.put(coming);
                (after.new, after.replaces) = (Some(run), true);
                return after;
            }
        }
        // Who comes with the key of who leaves has stayed above: so a group that is there is still
        // there afterwards.
        if self.groups.get(coming.key).is_some() {
            after.place = after.run_of(coming.key);
            let mut run = after.run_to_join();
            run.put(coming);
            (after.new, after.replaces) = (Some(run), true);
            return after;
        }
        let group = Group {
            tasks: 1,
            work: coming.work,
            unproved: u32::from(coming.unproved),
            attached: 0,
        };
        let run = Run::of(coming.key, &group);
        if after.count() < self.size() {
            // With a level to spare no run is shared, so none begins later for the one that leaves.
            after.place = after.old().partition_point(|other| other.first < run.first);
            after.new = Some(run);
        } else {
            after.place = after.run_of(coming.key);
            (after.new, after.replaces) = (Some(joined(after.run_to_join(), &run)), true);
        }
        after
    }

    fn is_last(&self, member: &Member) -> bool {
        self.groups.get(member.key).expect("a member that was never inserted").tasks == 1
    }

    /// The invariants; O(n).
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
            assert_eq!(run.class, Sum::class(run.work, run.first));
            assert_eq!(run.unproved, groups().map(|group| group.unproved).sum::<u32>());
            assert_eq!(run.attached, groups().map(|group| group.attached).sum::<u32>());
            assert_eq!(
                run.attached as usize,
                self.attached.range((run.first, 0)..(end, 0)).count()
            );
        }
    }
}

/// Index of the run that holds `key`; a key before all runs belongs to the first.
fn run_of(runs: &[Run], key: u64) -> usize {
    runs.partition_point(|run| run.first <= key).saturating_sub(1)
}

/// `run` with one more group, which is not yet there.
fn joined(mut run: Run, group: &Run) -> Run {
    run.first = run.first.min(group.first);
    run.groups += 1;
    run.work += group.work;
    run.unproved += group.unproved;
    run.attached += group.attached;
    run.sum_up();
    run
}

/// A shared run without the group of which `leaving` is the only member; `groups` still has it.
fn parted(mut run: Run, groups: &Groups, leaving: &Member) -> Run {
    if run.first == leaving.key {
        run.first = groups.next_after(leaving.key).expect("a shared run has another group");
    }
    run.groups -= 1;
    run.take(leaving);
    run
}

/// A group that is not yet there gets a level of its own, or joins a run when no level is free; the
/// index of the run that holds it.
fn insert_group(runs: &mut Vec<Run>, band: Band, group: Run, movers: &mut impl Movers) -> usize {
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
        runs[at] = joined(runs[at], &group);
        at
    }
}

/// `part` / `whole` of `room`, rounded down.
fn share(room: u8, part: u64, whole: u64) -> u8 {
    (u128::from(room) * u128::from(part) / u128::from(whole)) as u8
}

/// Puts `run` at index `at` and gives it a level there: within a gap, or by shifting others.
fn insert_run(runs: &mut Vec<Run>, band: Band, at: usize, run: Run, movers: &mut impl Movers) {
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
            (Some(a), Some(b)) => share(room, runs[at].first - a, b - a),
            _ => room / 2,
        };
        runs[at].level = above - step;
        return;
    }
    // Nearest gap upwards: runs[up..at] go up. Nearest gap downwards: runs[at + 1..down] go down.
    // Both by half the gap, so that the next one to come here finds room.
    let ceiling = |runs: &[Run], i: usize| if i == 0 { band.high.0 } else { runs[i - 1].level - 1 };
    let floor = |runs: &[Run], i: usize| runs.get(i + 1).map_or(band.low.0, |next| next.level + 1);
    let up = (0..at).rev().find(|&i| runs[i].level < ceiling(runs, i));
    let down = (at + 1..end).find(|&i| runs[i].level > floor(runs, i)).map(|i| i + 1);
    let cost =
        |shifted: &[Run]| (shifted.iter().map(|run| run.attached).sum::<u32>(), shifted.len());
    let upwards = match (up, down) {
        (Some(up), Some(down)) => cost(&runs[up..at]) <= cost(&runs[at + 1..down]),
        (up, down) => {
            assert!(up.is_some() || down.is_some(), "fewer runs than levels, but no gap");
            up.is_some()
        }
    };
    let keys =
        |runs: &[Run], i: usize| runs[i].first..runs.get(i + 1).map_or(u64::MAX, |next| next.first);
    // Whoever moves first moves away from the others, so that no order turns round on the way.
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

/// The only member of a group leaves; `groups` still has it. A level that falls free goes to the
/// nearest shared run.
fn remove_group(
    runs: &mut Vec<Run>,
    groups: &Groups,
    band: Band,
    leaving: &Member,
    movers: &mut impl Movers,
) {
    let at = run_of(runs, leaving.key);
    if runs[at].groups > 1 {
        runs[at] = parted(runs[at], groups, leaving);
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
    // The group nearest to the free level gets it: the run's last one above, its first one below.
    let first = runs[shared].first;
    let end = runs.get(shared + 1).map_or(u64::MAX, |next| next.first);
    let mut members = groups.range(first..end).filter(|&(key, _)| key != leaving.key);
    let (key, group) =
        if last { members.next_back() } else { members.next() }.expect("a shared run has groups");
    let alone = Run::of(key, &group);
    let rest = &mut runs[shared];
    rest.groups -= 1;
    rest.work -= alone.work;
    rest.unproved -= alone.unproved;
    rest.attached -= alone.attached;
    if !last {
        rest.first = members.next().expect("a shared run has another group").0;
    }
    rest.sum_up();
    let place = shared + usize::from(last);
    insert_run(runs, band, place, alone, movers);
    movers.moved(alone.first..runs.get(place + 1).map_or(u64::MAX, |next| next.first));
}
