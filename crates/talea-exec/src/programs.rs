//! Programs of a run: found, started, listened to, ended.
//!
//! What a program does in the course of a run is [`crate::mechanism`]'s (the file on freezing);
//! here is what surrounds that. Threads of it: a *launcher* for each program, which starts it and
//! waits for its end; an *ear* for each, level with the dispatchers, which sleeps until an idle
//! program wakes; a *sentinel* on each CPU with programs; and one *warden* for all.
//!
//! A program was started by its run and is ended with it, with everything that it has created,
//! wherever that may have gone in the tree of processes: all of it is in its group, which only one
//! with rights over the hierarchy leaves. That happens however the run ends ([`talea_os::groups`]);
//! where it ends in order, the last dispatcher that leaves does it, whom no program keeps from the
//! CPU.
//!
//! Where the kernel does not tell in time when a program wakes, its ear looks at its clock instead:
//! perf events are refused, or stop coming, or the kernel is a fully preemptible one, which
//! delivers them from a thread at FIFO 1 that a busy CPU never lets run.

use crate::mechanism::freeze::Cage;
use crate::run::{Failure, Options};
use crate::stage::{Ranks, Stage};
use crate::warden::{self, Post};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use talea_core::machine::TaskId;
use talea_core::{CpuSet, Span, Time, Work};
use talea_os::bell::Bell;
use talea_os::groups::{self, Family, Group};
use talea_os::launch::Program;
use talea_os::sched::{self, Attr, Policy};
use talea_os::wakes::{self, Heard, Wakes};
use talea_os::{Tid, clock};

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// With the run.
    Killed,
    /// Before: it, not necessarily its children.
    Ended(ExitStatus),
    /// It could not be executed.
    Failed(String),
}

/// What became of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramReport {
    /// How it ended.
    pub fate: Fate,
    /// What one of its threads was seen to have instead of what the run gave it, in words: then it
    /// is not what the machine orders.
    pub strayed: Option<String>,
    /// Whether its wake-ups were seen by looking at its clock each millisecond, because the kernel
    /// did not tell them.
    pub polled: bool,
}

/// How long a child may take until it stands in its group.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much longer than the run a program may have the CPU before the kernel kills it.
const GRACE: Duration = Duration::from_secs(5);
/// A run that is longer is one without end: there is no such limit.
const ENDLESS: Duration = Duration::from_hours(24);
/// So many looks apart, whether there is anybody left.
const LOOKS: u32 = 128;
/// Between two looks at the clock of a program whose wake-ups nobody tells.
const LOOK: Span = Span::from_ns(1_000_000);

/// All programs of a run, for whoever ends it.
pub(crate) struct Programs {
    family: OnceLock<Arc<Family>>,
    /// Ears listen until this is gone.
    listening: Mutex<Option<PipeWriter>>,
    /// The warden stands until this is gone.
    standing: Mutex<Option<Sender<()>>>,
    over: AtomicBool,
    /// Dispatchers that have not left yet.
    ordered_by: AtomicUsize,
}

impl Programs {
    pub(crate) fn new() -> Programs {
        let (listening, standing) = (Mutex::new(None), Mutex::new(None));
        let (over, ordered_by) = (AtomicBool::new(false), AtomicUsize::new(0));
        Programs { family: OnceLock::new(), listening, standing, over, ordered_by }
    }

    /// One more dispatcher comes.
    pub(crate) fn comes(&self) {
        self.ordered_by.fetch_add(1, Ordering::AcqRel);
    }

    /// A dispatcher leaves; the last one ends all programs. It can: it stands above them. The
    /// ordinary thread that waits for the dispatchers may have no CPU for long while a program that
    /// has strayed has one for itself.
    pub(crate) fn leaves(&self, ranks: Ranks) {
        if self.ordered_by.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end();
            self.hurry(ranks);
        }
    }

    /// Those who were killed need the CPU to end: who has stepped back from its priority has it
    /// before all that is ordinary again.
    fn hurry(&self, ranks: Ranks) {
        let Some(family) = self.family.get() else { return };
        for tid in family.threads() {
            // It may be gone.
            let _: io::Result<()> = sched::set(tid, &Attr::grant(Policy::Rr(ranks.program())));
        }
    }

    /// Ends all of them and whatever they have created. A second time does no harm.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        if let Some(family) = self.family.get() {
            // Where the kernel does not end them, nobody can; the keeper tries again.
            let _: io::Result<()> = family.kill();
        }
        drop(self.listening.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.standing.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Starts those of `wanted`, by root and task; all of them stand still.
    pub(crate) fn gather<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wanted: &[Vec<Option<Vec<String>>>],
        stages: &'scope [Arc<Stage>],
        ranks: Ranks,
        options: &Options,
    ) -> Result<Troupe<'scope>, Failure> {
        if options.priorities {
            // What programs of another run do, which was killed with its keeper, they do at
            // real-time priorities. What can't be ended does not keep this run from beginning.
            let _: io::Result<_> = groups::sweep();
        }
        let mut troupe = Troupe { roots: Vec::new(), sentinels: Vec::new() };
        let count = wanted.iter().flatten().flatten().count();
        if count == 0 {
            troupe.roots.resize_with(wanted.len(), Vec::new);
            return Ok(troupe);
        }
        let find = |words: &Vec<String>| {
            Program::find(words).map_err(|error| Failure::Plan(format!("{}: {error}", words[0])))
        };
        let found: Vec<Vec<Option<Program>>> = wanted
            .iter()
            .map(|root| root.iter().map(|words| words.as_ref().map(find).transpose()).collect())
            .collect::<Result<_, _>>()?;
        let no_groups = |error| {
            Failure::Plan(format!(
                "programs need groups of their own in cgroup v2, which root makes: {error}"
            ))
        };
        let family = Arc::new(Family::found(count, Some(ranks.keeper())).map_err(no_groups)?);
        let family = self.family.get_or_init(|| family);
        let (stop, listening) = io::pipe()?;
        let stop = Arc::new(stop);
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(listening);
        let (mut next, mut posts) = (0, Vec::new());
        for (stage, programs) in stages.iter().zip(found) {
            let mut members = Vec::new();
            let has_some = programs.iter().any(Option::is_some);
            for (task, program) in (0..).map(TaskId).zip(programs) {
                let Some(program) = program else {
                    members.push(None);
                    continue;
                };
                let at = (Arc::clone(family), next);
                next += 1;
                let member =
                    self.start(scope, program, at, (stage, task), (ranks, options, &stop))?;
                let strayed = Arc::clone(&member.strayed);
                posts.push(Post {
                    at: next - 1,
                    cpu: stage.cpus[0].number,
                    priority: ranks.program(),
                    strayed,
                });
                members.push(Some(member));
            }
            if has_some {
                troupe.sentinels.push(stand_sentinel(scope, stage, ranks)?);
            }
            troupe.roots.push(members);
        }
        let (standing, over) = channel();
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = Some(standing);
        warden::stand(scope, Arc::clone(family), posts, over)?;
        Ok(troupe)
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        program: Program,
        (family, at): (Arc<Family>, usize),
        (stage, task): (&'scope Arc<Stage>, TaskId),
        (ranks, options, stop): (Ranks, &Options, &Arc<PipeReader>),
    ) -> Result<Member<'scope>, Failure> {
        let cpu = stage.cpus[0].number;
        family.group(at).freeze()?;
        let most = Duration::from_nanos(options.duration.as_ns());
        let most = (most < ENDLESS).then(|| most + GRACE);
        let launcher =
            Builder::new().name(format!("exec-launch{}", task.0)).spawn_scoped(scope, {
                let family = Arc::clone(&family);
                move || match program
                    .start(family.group(at), cpu, ranks.program(), most)
                    .and_then(|mut child| child.wait())
                {
                    _ if self.over.load(Ordering::Acquire) => Fate::Killed,
                    Ok(status) => Fate::Ended(status),
                    Err(error) => Fate::Failed(error.to_string()),
                }
            })?;
        let end = Instant::now() + PATIENCE;
        let first = loop {
            let group = family.group(at);
            if let Some(&first) =
                group.members()?.first().filter(|_| group.is_frozen().unwrap_or(false))
            {
                break first;
            }
            if launcher.is_finished() {
                let fate = launcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                return Err(Failure::Os(io::Error::other(format!(
                    "a program can't be started: {fate:?}"
                ))));
            }
            if Instant::now() > end {
                return Err(Failure::Os(io::Error::other(
                    "a program does not come to stand in its group",
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let wakes =
            if options.listen && wakes::come_in_time() { Wakes::of(first, cpu).ok() } else { None };
        let ear = Ear {
            wakes,
            deaf: AtomicBool::new(false),
            asked: Bell::new(),
            before: AtomicU64::new(0),
        };
        let ear = Arc::new(ear);
        let (say, said) = channel();
        let listener = Builder::new().name(format!("exec-ear{}", task.0)).spawn_scoped(scope, {
            let (ear, family, stop) = (Arc::clone(&ear), Arc::clone(&family), Arc::clone(stop));
            move || {
                let entered = sched::set_affinity(Tid::current(), &CpuSet::single(cpu))
                    .and_then(|()| ranks.dispatcher(Tid::current()));
                let is_in = entered.is_ok();
                // Whoever waits for it has not gone.
                let _ = say.send(entered);
                if is_in {
                    ear.listen(family.group(at), stage, task, (&stop, &self.over));
                }
            }
        })?;
        said.recv().map_err(|_| Failure::Os(io::Error::other("an ear has fallen")))??;
        let actor = Some(Actor { family, at, ear: Arc::clone(&ear) });
        Ok(Member { launcher, listener, ear, strayed: Arc::default(), actor })
    }
}

/// Sleeps below the programs of a CPU, and says when it does not have to.
fn stand_sentinel<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &'scope Arc<Stage>,
    ranks: Ranks,
) -> Result<ScopedJoinHandle<'scope, ()>, Failure> {
    let (say, said) = channel();
    let cpu = &stage.cpus[0];
    let watch = move || {
        let entered = sched::set_affinity(Tid::current(), &CpuSet::single(cpu.number))
            .and_then(|()| ranks.raised(Tid::current(), 0));
        let is_in = entered.is_ok();
        let _ = say.send(entered);
        let mut heard = 0;
        while is_in && !stage.over.load(Ordering::Acquire) {
            cpu.sentinel.bell.wait(heard, Time::NEVER);
            heard = cpu.sentinel.bell.heard();
            cpu.sentinel.quiet.store(heard, Ordering::Release);
            cpu.mailbox.bell.ring();
        }
    };
    let name = format!("exec-sentinel{}", cpu.number);
    let sentinel = Builder::new().name(name).spawn_scoped(scope, watch)?;
    said.recv().map_err(|_| Failure::Os(io::Error::other("a sentinel has fallen")))??;
    Ok(sentinel)
}

/// One program with those who look after it.
struct Member<'scope> {
    launcher: ScopedJoinHandle<'scope, Fate>,
    listener: ScopedJoinHandle<'scope, ()>,
    ear: Arc<Ear>,
    strayed: Arc<OnceLock<String>>,
    /// Until it is given to its mechanism.
    actor: Option<Actor>,
}

/// Those of a run, by root and task.
pub(crate) struct Troupe<'scope> {
    roots: Vec<Vec<Option<Member<'scope>>>>,
    sentinels: Vec<ScopedJoinHandle<'scope, ()>>,
}

impl Troupe<'_> {
    /// Those of a root, by task, for its mechanism; nothing, where there are none.
    pub(crate) fn actors(&mut self, root: usize) -> Option<Vec<Option<Actor>>> {
        let members = &mut self.roots[root];
        let take = |member: &mut Option<Member<'_>>| {
            member.as_mut().and_then(|member| member.actor.take())
        };
        members.iter().any(Option::is_some).then(|| members.iter_mut().map(take).collect())
    }

    /// Waits for all of them, who were ended; what became of them.
    pub(crate) fn leave(self) -> Vec<Vec<Option<ProgramReport>>> {
        fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
        let report = |member: Member<'_>| {
            join(member.listener);
            let strayed = member.strayed.get().cloned();
            ProgramReport { fate: join(member.launcher), strayed, polled: member.ear.is_polled() }
        };
        let reports = self
            .roots
            .into_iter()
            .map(|root| root.into_iter().map(|one| one.map(report)).collect());
        let reports = reports.collect();
        self.sentinels.into_iter().for_each(join);
        reports
    }
}

/// Hears when a program wakes.
#[derive(Debug)]
struct Ear {
    wakes: Option<Wakes>,
    /// The kernel does not tell any more.
    deaf: AtomicBool,
    /// Of a clock that is looked at: rings when there is something to look for.
    asked: Bell,
    /// What it showed then.
    before: AtomicU64,
}

impl Ear {
    fn arm(&self, group: &Group) -> io::Result<()> {
        if let Some(wakes) = self.wakes.as_ref().filter(|_| !self.is_polled()) {
            let armed = wakes.arm();
            // Afterwards: an ear that goes deaf after this looks itself.
            if !self.is_polled() {
                return armed;
            }
        }
        self.before.store(group.used()?.as_ns(), Ordering::Release);
        self.asked.ring();
        Ok(())
    }

    /// Whether the clock is looked at.
    fn is_polled(&self) -> bool {
        self.wakes.is_none() || self.deaf.load(Ordering::SeqCst)
    }

    /// Tells the dispatcher, until the run is over or nobody is left.
    fn listen(
        &self,
        group: &Group,
        stage: &Stage,
        task: TaskId,
        (stop, over): (&PipeReader, &AtomicBool),
    ) {
        // Who comes in is a child of somebody who is there.
        let is_empty = |group: &Group| group.is_populated().is_ok_and(|is| !is);
        let awake = || {
            stage.slots[task.0 as usize].woke.store(true, Ordering::Release);
            stage.cpus[0].mailbox.bell.ring();
        };
        if let Some(wakes) = &self.wakes {
            loop {
                match wakes.wait(stop.as_fd()) {
                    Ok(Heard::Awake) => awake(),
                    Ok(Heard::Stop) => return,
                    Ok(Heard::Ended) | Err(_) => break,
                }
            }
            // Whoever has just ended is in its group for a moment more.
            clock::sleep_until(clock::now() + LOOK);
            if over.load(Ordering::Acquire) || is_empty(group) {
                return;
            }
            self.deaf.store(true, Ordering::SeqCst);
            // It may have woken unheard since it was armed.
            awake();
        }
        let (mut heard, mut looks) = (0, 0_u32);
        while !stage.over.load(Ordering::Acquire) {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) && is_empty(group) {
                return;
            }
            // Also to see that the run is over.
            let asked = self.asked.heard();
            if asked != heard {
                match group.used() {
                    Ok(used) if used.as_ns() == self.before.load(Ordering::Acquire) => {}
                    Ok(_) => {
                        heard = asked;
                        awake();
                    }
                    Err(_) => return,
                }
            }
            clock::sleep_until(clock::now() + LOOK);
        }
    }
}

/// A program as its mechanism has it.
#[derive(Debug)]
pub(crate) struct Actor {
    family: Arc<Family>,
    at: usize,
    ear: Arc<Ear>,
}

impl Cage for Actor {
    fn freeze(&mut self) -> io::Result<()> {
        self.family.group(self.at).freeze()
    }

    fn thaw(&mut self) -> io::Result<()> {
        self.family.group(self.at).thaw()
    }

    fn used(&mut self) -> io::Result<Work> {
        self.family.group(self.at).used()
    }

    fn arm(&mut self) -> io::Result<()> {
        self.ear.arm(self.family.group(self.at))
    }
}
