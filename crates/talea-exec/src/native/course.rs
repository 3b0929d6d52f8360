//! What became of a root whose schedule Linux produced.

use super::plan::Promise;
use super::queue::Come;
use crate::load::Arrival;
use crate::stretch::{Stretch, Stretches};
use crate::tally::Tally;
use crate::truth::{self, Ran, Stood, Unobeyed};
use std::collections::BTreeMap;
use talea_core::machine::{Job, TaskId};
use talea_core::mutate;
use talea_core::{Span, Time, Work};

/// One job, as its worker has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Which of its task, refused ones not counted.
    pub number: u64,
    /// When it came.
    pub seen: Time,
    /// From when its arrival counts.
    pub nominal: Time,
    /// From when it could run.
    pub release: Time,
    /// Absolute.
    pub deadline: Time,
    /// When its worker had the CPU for it.
    pub begin: Option<Time>,
    /// When it had done it.
    pub end: Option<Time>,
    /// What that took of the CPU.
    pub used: Work,
}

impl Life {
    pub(crate) fn of(come: &Come) -> Life {
        Life {
            number: come.number,
            seen: come.arrival.seen,
            nominal: come.arrival.nominal,
            release: come.release,
            deadline: come.deadline,
            ..Life::default()
        }
    }

    /// From when it could run.
    pub fn ready(&self) -> Time {
        self.seen.max(self.release)
    }

    fn until(&self) -> Time {
        self.end.unwrap_or(Time::NEVER)
    }
}

/// Of one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// What its threads promise.
    pub promise: Promise,
    /// By task, in the order in which they came.
    pub lives: Vec<Vec<Life>>,
    /// By task: arrivals for which there was no room.
    pub refused: Vec<Vec<Arrival>>,
}

/// A job on the CPU without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whose.
    pub task: TaskId,
    /// Which.
    pub job: u64,
    /// From when.
    pub from: Time,
    /// To when.
    pub to: Time,
}

/// By job.
fn summed(pieces: Vec<Piece>) -> BTreeMap<(TaskId, u64), u64> {
    let mut had = BTreeMap::new();
    for piece in pieces {
        *had.entry((piece.task, piece.job)).or_insert(0) += piece.to.since(piece.from).as_ns();
    }
    had
}

impl Course {
    /// Whether who ran when is what the scheduler machine would have said, up to instants that lie
    /// near each other: not in turns, not by reservations, and on a shared level only if no job
    /// waited behind its predecessor, because such a job goes to the tail of its level late.
    pub fn keeps_order(&self) -> bool {
        let Promise::Levels(levels) = &self.promise else { return false };
        let is_shared = |level| levels.iter().filter(|&other| *other == level).nth(1).is_some();
        let has_waited = |lives: &Vec<Life>| {
            lives.windows(2).any(|two| two[0].until() > two[1].ready() && two[1].begin.is_some())
        };
        !levels.iter().zip(&self.lives).any(|(level, lives)| is_shared(*level) && has_waited(lives))
    }

    /// For how long jobs that have ended had the CPU and their workers' clocks stood still; nothing
    /// is known of turns, and of reservations without the kernel's word.
    pub(crate) fn stretched(&self, ran: Option<&[Ran]>) -> Span {
        let ended: Vec<(TaskId, &Life)> =
            self.all().filter(|(_, life)| life.end.is_some()).collect();
        let Some(had) = self.had(ran) else { return Span::ZERO };
        let had = ended.iter().filter_map(|(task, life)| had.get(&(*task, life.number)));
        let used = ended.iter().map(|(_, life)| life.used.as_ns());
        Span::from_ns(had.sum::<u64>().saturating_sub(used.sum()))
    }

    /// For how many nanoseconds each job that has ended had the CPU, as far as it is known. Where
    /// the more urgent interrupt, whoever began last has it. A reservation that is used up waits,
    /// while the CPU is idle or another one has it: that is only told by the kernel.
    fn had(&self, ran: Option<&[Ran]>) -> Option<BTreeMap<(TaskId, u64), u64>> {
        let end = self.all().filter_map(|(_, life)| life.end).max().unwrap_or(Time::ZERO);
        Some(summed(match &self.promise {
            Promise::Levels(_) => self.stacked(end),
            Promise::Deadlines(_) => {
                mutate!("exec-native-excuse", self.as_ran(ran?, end), self.stacked(end))
            }
            Promise::Turns => return None,
        }))
    }

    /// Whether a job used more than its reservation has for one: something else did that, at its
    /// expense.
    fn is_overdrawn(&self, task: TaskId, life: &Life) -> bool {
        match &self.promise {
            Promise::Deadlines(budgets) => life.used > budgets[task.0 as usize],
            Promise::Levels(_) | Promise::Turns => false,
        }
    }

    fn all(&self) -> impl Iterator<Item = (TaskId, &Life)> {
        (0..)
            .map(TaskId)
            .zip(&self.lives)
            .flat_map(|(task, lives)| lives.iter().map(move |life| (task, life)))
    }

    /// Jobs as they had the CPU: by the kernel's word, or else whoever has begun last and not ended
    /// has it, which is how it is where the more urgent interrupt.
    pub fn pieces(&self, ran: Option<&[Ran]>, end: Time) -> Vec<Piece> {
        let mut pieces = ran.map_or_else(|| self.stacked(end), |ran| self.as_ran(ran, end));
        pieces.sort_unstable_by_key(|piece| (piece.from, piece.to));
        pieces
    }

    fn as_ran(&self, ran: &[Ran], end: Time) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (task, lives) in (0..).map(TaskId).zip(&self.lives) {
            let stays: Vec<&Ran> = ran.iter().filter(|stay| stay.task == task).collect();
            for life in lives {
                let Some(begin) = life.begin else { continue };
                let until = life.until().min(end);
                // One that never ended may have begun behind the end, on a CPU that its worker
                // kept.
                if mutate!("exec-native-behind", begin >= until, begin > Time::NEVER) {
                    continue;
                }
                let first = stays.partition_point(|stay| stay.to <= begin);
                for stay in stays[first..].iter().take_while(|stay| stay.from < until) {
                    let (from, to) = (stay.from.max(begin), stay.to.min(until));
                    pieces.push(Piece { task, job: life.number, from, to });
                }
            }
        }
        pieces
    }

    fn stacked(&self, end: Time) -> Vec<Piece> {
        // At one instant who ends comes before who begins.
        let mut instants: Vec<(Time, bool, TaskId, u64)> = Vec::new();
        for (task, life) in self.all() {
            let Some(begin) = life.begin else { continue };
            instants.push((begin, true, task, life.number));
            instants.extend(life.end.map(|end| (end, false, task, life.number)));
        }
        instants.sort_unstable();
        let (mut pieces, mut under_way) = (Vec::new(), Vec::<(TaskId, u64)>::new());
        let mut since = Time::ZERO;
        for (now, begins, task, job) in
            instants.into_iter().chain([(end, false, TaskId(u32::MAX), 0)])
        {
            if let Some(&(task, job)) = under_way.last().filter(|_| since < now) {
                pieces.push(Piece { task, job, from: since, to: now });
            }
            since = now;
            if begins {
                under_way.push((task, job));
            } else {
                under_way.retain(|&who| who != (task, job));
            }
        }
        pieces
    }

    /// By task.
    pub(crate) fn tallies(&self) -> Vec<Tally> {
        let of = |lives: &Vec<Life>| {
            let mut tally = Tally::default();
            for life in lives {
                let Life { number, release, deadline, .. } = *life;
                if let Some(end) = life.end {
                    tally.count(Job { number, release, deadline }, end);
                }
            }
            tally
        };
        self.lives.iter().map(of).collect()
    }

    /// When jobs had the CPU for longer than their worker's clock went on, and, under levels, when
    /// there were jobs and nobody had begun any.
    ///
    /// Under reservations neither a late begin nor a clock that stands still is an excuse by
    /// itself, because that is what a reservation does that is wrong or too small. There a job lost
    /// what it had of the CPU by the kernel's word beyond its clock; or, if it used more than its
    /// budget, all the time that went by.
    pub(crate) fn stretches(&self, ran: Option<&[Ran]>, end: Time) -> Vec<Stretch> {
        let mut stretches = Stretches::new();
        if self.promise == Promise::Turns {
            return Vec::new();
        }
        let pieces = self.stacked(end);
        let (had, passed) = (self.had(ran).unwrap_or_default(), summed(pieces.clone()));
        let mut all: Vec<Stretch> = Vec::new();
        for (task, life) in self.all() {
            let Some((from, to)) = life.begin.zip(life.end) else { continue };
            let had = if self.is_overdrawn(task, life) { &passed } else { &had };
            let had = had.get(&(task, life.number)).copied().unwrap_or(0);
            let by = Span::from_ns(had.saturating_sub(life.used.as_ns()));
            all.push(Stretch { cpu: 0, from, to, by });
        }
        // A worker that has been woken late, with nobody else at work.
        let mut ready: Vec<Time> = mutate!(
            "exec-native-late",
            match &self.promise {
                Promise::Levels(_) => self.all().map(|(_, life)| life.ready()).collect(),
                Promise::Turns | Promise::Deadlines(_) => Vec::new(),
            },
            match &self.promise {
                Promise::Levels(_) | Promise::Deadlines(_) =>
                    self.all().map(|(_, life)| life.ready()).collect(),
                Promise::Turns => Vec::new(),
            }
        );
        ready.sort_unstable();
        let gaps = pieces.windows(2).map(|two| (two[0].to, two[1].from));
        let first = pieces.first().map(|first| (Time::ZERO, first.from));
        for (idle, busy) in first.into_iter().chain(gaps).filter(|(idle, busy)| idle < busy) {
            let at = ready.partition_point(|&at| at < idle);
            if let Some(&from) = ready.get(at).filter(|&&from| from < busy) {
                all.push(Stretch { cpu: 0, from, to: busy, by: busy.since(from) });
            }
        }
        all.sort_by_key(|stretch| stretch.to);
        for stretch in all {
            stretches.put(stretch);
        }
        stretches.all().to_vec()
    }

    /// Everything that workers did on the CPU without a job of their own, or while a higher level
    /// had one, until `end`.
    pub fn out_of_order(&self, ran: &[Ran], end: Time) -> Vec<Ran> {
        let level = |task: TaskId| match &self.promise {
            Promise::Levels(levels) => levels[task.0 as usize],
            Promise::Turns | Promise::Deadlines(_) => 0,
        };
        // At each change: who is the highest from then on.
        let mut changes: Vec<(Time, u8, i64)> = Vec::new();
        for (task, life) in self.all() {
            changes.push((life.ready(), level(task), 1));
            changes.extend(life.end.map(|end| (end, level(task), -1)));
        }
        changes.sort_unstable_by_key(|&(at, ..)| at);
        let (mut pending, mut tops) = (vec![0_i64; 256], Vec::<(Time, u8)>::new());
        for (at, level, by) in changes {
            pending[usize::from(level)] += by;
            let top = pending.iter().rposition(|&count| count > 0).unwrap_or(0) as u8;
            match tops.last_mut() {
                Some(last) if last.0 == at => last.1 = top,
                Some(last) if last.1 == top => {}
                _ => tops.push((at, top)),
            }
        }
        let mut all = Vec::new();
        for stay in ran {
            let to = stay.to.min(end);
            let mut from = stay.from;
            let lives = &self.lives[stay.task.0 as usize];
            let mut at = lives.partition_point(|life| life.until() <= from);
            // Of each of its jobs, what no higher level forbids.
            while let Some(life) = lives.get(at).filter(|life| life.ready() < to) {
                at += 1;
                let (begin, until) = (life.ready().max(from), life.until().min(to));
                let mut now = begin;
                let mut top = tops.partition_point(|&(at, _)| at <= now).saturating_sub(1);
                while now < until {
                    let next = tops.get(top + 1).map_or(until, |&(at, _)| at.min(until));
                    if tops.get(top).is_none_or(|&(_, top)| top <= level(stay.task)) {
                        if from < now {
                            all.push(Ran { from, to: now, ..*stay });
                        }
                        from = next;
                    }
                    (now, top) = (next, top + 1);
                }
            }
            if from < to {
                all.push(Ran { from, to, ..*stay });
            }
        }
        all
    }

    /// When there were jobs, until `end`: in these times the CPU belongs to workers.
    fn busy(&self, end: Time) -> Vec<(Time, Time)> {
        let mut jobs: Vec<(Time, Time)> =
            self.all().map(|(_, life)| (life.ready().min(end), life.until().min(end))).collect();
        jobs.sort_unstable();
        let mut all: Vec<(Time, Time)> = Vec::new();
        for (from, to) in jobs {
            match all.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => all.push((from, to)),
            }
        }
        all
    }

    /// When there were jobs and the CPU was idle, or one of ours that is no worker had it, where
    /// levels say that somebody is to run. Of reservations nothing is said: one that is used up
    /// waits.
    pub fn unobeyed(
        &self,
        (ran, stood): (&[Ran], &[Stood]),
        end: Time,
        excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>,
    ) -> Vec<Unobeyed> {
        if matches!(self.promise, Promise::Deadlines(_)) {
            return Vec::new();
        }
        let busy = self.busy(end).into_iter().map(|(from, to)| (None, from, to));
        truth::against(0, busy, (ran, stood), excused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    /// In microseconds: ready, begin, end, used.
    fn life(number: u64, ready: u64, begin: u64, end: u64, used: u64) -> Life {
        Life {
            number,
            release: at(ready),
            deadline: at(ready + 1_000),
            begin: Some(at(begin)),
            end: Some(at(end)),
            used: Work::from_ns(used * 1_000),
            ..Life::default()
        }
    }

    /// A low task whose job is interrupted by one of a high one.
    fn course() -> Course {
        Course {
            promise: Promise::Levels(vec![93, 92]),
            lives: vec![
                vec![life(0, 2_000, 2_010, 3_000, 980), life(1, 9_000, 9_500, 10_000, 500)],
                vec![life(0, 1_000, 1_010, 6_000, 3_600)],
            ],
            refused: vec![Vec::new(), Vec::new()],
        }
    }

    #[test]
    fn whoever_began_last_has_the_cpu_until_it_ends() {
        let pieces = course().pieces(None, at(20_000));
        let told: Vec<_> =
            pieces.iter().map(|piece| (piece.task.0, piece.job, piece.from, piece.to)).collect();
        let expected = [
            (1, 0, 1_010, 2_010),
            (0, 0, 2_010, 3_000),
            (1, 0, 3_000, 6_000),
            (0, 1, 9_500, 10_000),
        ];
        assert_eq!(told, expected.map(|(task, job, from, to)| (task, job, at(from), at(to))));
    }

    #[test]
    fn order_is_kept_where_levels_differ_or_nobody_waits_behind_itself() {
        let mut course = course();
        assert!(course.keeps_order());
        course.promise = Promise::Levels(vec![93, 93]);
        assert!(course.keeps_order());
        course.lives[0][1].release = at(2_900);
        assert!(!course.keeps_order());
        course.promise = Promise::Levels(vec![93, 92]);
        assert!(course.keeps_order());
        course.promise = Promise::Turns;
        assert!(!course.keeps_order());
        assert_eq!(course.stretched(None), Span::ZERO);
        // On the CPU for 990 + 500 + 4,000 µs.
        course.promise = Promise::Levels(vec![93, 92]);
        assert_eq!(course.stretched(None), Span::from_ns(410_000));
    }

    #[test]
    fn s7_a_reservation_that_is_used_up_or_wakes_late_does_not_excuse_itself() {
        let us = |us: u64| Work::from_ns(us * 1_000);
        let ran = |task, from, to| Ran { cpu: 0, task: TaskId(task), from: at(from), to: at(to) };
        // The first job of the high one waits from 2,200 to 2,800 for its next budget, and the low
        // one has the CPU; the second one is let begin 500 µs late, with the CPU idle. The low one
        // is on the CPU for 200 µs that its clock does not know.
        let word = [
            ran(1, 1_000, 2_010),
            ran(0, 2_010, 2_200),
            ran(1, 2_200, 2_800),
            ran(0, 2_800, 3_005),
            ran(1, 3_005, 6_005),
        ];
        let word = [&word[..], &[ran(0, 9_500, 10_005)]].concat();
        let mut course =
            Course { promise: Promise::Deadlines(vec![us(1_000), us(5_000)]), ..course() };
        course.lives[0][0].used = us(390);
        course.lives[1][0].used = us(4_390);
        let told = |course: &Course, ran: Option<&[Ran]>| -> Vec<_> {
            let all = course.stretches(ran, at(20_000)).into_iter();
            all.map(|stretch| (stretch.from, stretch.by.as_ns() / 1_000)).collect()
        };
        assert_eq!(told(&course, Some(&word)), [(at(1_010), 205)]);
        assert_eq!(course.stretched(Some(&word)), Span::from_ns(205_000));
        assert_eq!((told(&course, None), course.stretched(None)), (Vec::new(), Span::ZERO));
        // Who has used more than its budget was robbed, and waits for that: all of the time is
        // excused.
        course.promise = Promise::Deadlines(vec![us(380), us(5_000)]);
        assert_eq!(told(&course, Some(&word)), [(at(2_010), 600), (at(1_010), 205)]);
        // As under levels it would be.
        course.promise = Promise::Levels(vec![93, 92]);
        assert_eq!(told(&course, None).len(), 2);
    }

    #[test]
    fn the_kernels_word_goes_before_what_follows_from_begins_and_ends() {
        let ran = |task, from, to| Ran { cpu: 0, task: TaskId(task), from: at(from), to: at(to) };
        let ran = [
            ran(1, 1_000, 2_005),
            ran(0, 2_005, 3_010),
            ran(1, 3_010, 4_000),
            ran(1, 4_500, 6_020),
        ];
        let told: Vec<_> = course()
            .pieces(Some(&ran), at(20_000))
            .iter()
            .map(|piece| (piece.from, piece.to))
            .collect();
        let expected = [(1_010, 2_005), (2_010, 3_000), (3_010, 4_000), (4_500, 6_000)];
        assert_eq!(told, expected.map(|(from, to)| (at(from), at(to))));
    }

    #[test]
    fn a_job_that_begins_without_a_pause_behind_the_last_end_and_never_ends_has_had_nothing() {
        let ran = |task, from, to| Ran { cpu: 0, task: TaskId(task), from: at(from), to: at(to) };
        let mut course =
            Course { promise: Promise::Deadlines(vec![Work::from_ns(980_000); 2]), ..course() };
        let begun = Life { end: None, ..life(2, 10_000, 10_100, 0, 0) };
        course.lives[0].push(begun);
        let ran = [ran(1, 1_000, 2_005), ran(0, 2_005, 3_010), ran(0, 9_500, 10_600)];
        let had = course.had(Some(&ran)).expect("the kernel's word");
        assert_eq!(had.get(&(TaskId(0), 1)), Some(&500_000));
        assert_eq!(had.get(&(TaskId(0), 2)), None);
        // Up to a later end it has what it had by then.
        assert_eq!(
            course.pieces(Some(&ran), at(20_000)).last().map(|piece| piece.to),
            Some(at(10_600))
        );
    }

    #[test]
    fn what_a_clock_missed_and_what_came_late_are_stretches() {
        let told: Vec<_> = course()
            .stretches(None, at(20_000))
            .iter()
            .map(|stretch| (stretch.from, stretch.to, stretch.by.as_ns() / 1_000))
            .collect();
        // Of the low job's four milliseconds on the CPU four tenths are missing; the second of the
        // high one began late.
        assert_eq!(told, [(at(1_010), at(6_000), 400), (at(9_000), at(9_500), 500)]);
    }

    #[test]
    fn nobody_runs_without_a_job_or_below_one_that_waits() {
        let check = |task, from, to, expected: &[(u64, u64)]| {
            let ran = Ran { cpu: 0, task: TaskId(task), from: at(from), to: at(to) };
            let told: Vec<_> = course()
                .out_of_order(&[ran], at(20_000))
                .iter()
                .map(|out| (out.from, out.to))
                .collect();
            let expected: Vec<_> = expected.iter().map(|&(from, to)| (at(from), at(to))).collect();
            assert_eq!(told, expected, "{ran:?}");
        };
        check(1, 1_000, 2_000, &[]);
        check(1, 1_000, 2_500, &[(2_000, 2_500)]);
        check(1, 1_500, 3_500, &[(2_000, 3_000)]);
        check(1, 500, 1_500, &[(500, 1_000)]);
        check(1, 5_000, 6_500, &[(6_000, 6_500)]);
        check(0, 1_900, 3_100, &[(1_900, 2_000), (3_000, 3_100)]);
        check(0, 2_500, 9_500, &[(3_000, 9_000)]);
        check(1, 19_000, 30_000, &[(19_000, 20_000)]);
        // Without levels only whoever has no job is out of order.
        let turns = Course { promise: Promise::Turns, ..course() };
        let low = Ran { cpu: 0, task: TaskId(1), from: at(1_500), to: at(6_100) };
        assert_eq!(turns.out_of_order(&[low], at(20_000)).len(), 1);
    }

    #[test]
    fn the_cpu_is_busy_from_the_first_job_that_is_ready_to_the_last_that_ends() {
        assert_eq!(course().busy(at(20_000)), [(at(1_000), at(6_000)), (at(9_000), at(10_000))]);
        assert_eq!(course().busy(at(5_000)).first(), Some(&(at(1_000), at(5_000))));
    }
}
