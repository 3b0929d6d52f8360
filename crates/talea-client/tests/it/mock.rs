//! Mock daemon with one thread and one CPU. It keeps a ledger but configures no thread, and can be
//! made silent, slow, or dead.
#![allow(dead_code, reason = "also used by the tests of the C library, each part by some test")]

use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use talea_core::{Charge, CpuSet, Span, Work};
use talea_os::seqpacket::{self, Access, Listener};
use talea_os::{Thread, Tid};
use talea_proto::message::{
    CpuInfo, Mechanism, Name, Notes, Overruns, PluginInfo, SessionInfo, SpecInfo, Status, Token,
};
use talea_proto::refusal::{PluginText, PluginVerdict, RejectionReason};
use talea_proto::wire::decode_request;
use talea_proto::{
    Code, Field, Granted, MESSAGE_MAX, Owner, PluginAnswer, Refusal, Rejection, Reply, Request,
    SpecId, Task, ThreadRef, VERSION,
};

/// Treatment of the next request that is not a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The daemon executes the request but never sends the answer.
    Mute,
    /// The daemon executes the request, and sends the answer just before the answer to the next
    /// request.
    Late,
    /// The daemon closes the connection instead of answering.
    HangUp,
    /// The daemon is killed before it executes the request. The next daemon adopts the grants of
    /// this connection.
    DieBefore,
    /// The daemon executes the request, and is killed before it answers.
    DieAfter,
    /// The daemon sends invalid bytes instead of the answer.
    Nonsense,
}

/// Spec in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct LedgerEntry {
    pub(crate) granted: Granted,
    pub(crate) task: Task,
    pub(crate) tid: Option<u32>,
    session: Option<u64>,
}

/// State of the daemon, accessible to tests.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) instance: u64,
    pub(crate) specs: BTreeMap<u64, LedgerEntry>,
    pub(crate) script: VecDeque<Next>,
    pub(crate) log: Vec<Request>,
    pub(crate) connections: u64,
    /// Seeds of all connections, each with the number of requests in `log` before it.
    pub(crate) seeds: Vec<(Token, usize)>,
    /// Whether the daemon reads nothing.
    pub(crate) frozen: bool,
    /// Whether the access rules refuse every create.
    pub(crate) deny: bool,
    /// Whether the daemon lives in another PID namespace than the client.
    pub(crate) elsewhere: bool,
    next: u64,
    /// Token of the next grant, and the number of grants since.
    first_token: Option<Token>,
    in_group: usize,
}

/// Running daemon; stops when dropped.
pub(crate) struct Mock {
    directory: PathBuf,
    world: Arc<(Mutex<World>, Condvar)>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Mock {
    pub(crate) fn start() -> Mock {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("talea-mock-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let world =
            Arc::new((Mutex::new(World { instance: 100, ..World::default() }), Condvar::new()));
        let mut mock = Mock { directory, world, stop: None, thread: None };
        mock.up();
        mock
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("talea.sock")
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.0.lock().expect("the daemon's thread has panicked")
    }

    /// Waits until the daemon has reached a state.
    pub(crate) fn until(&self, there: impl Fn(&World) -> bool) -> MutexGuard<'_, World> {
        let timeout = std::time::Duration::from_secs(20);
        let (world, result) = self
            .world
            .1
            .wait_timeout_while(self.world(), timeout, |world| !there(world))
            .expect("alive");
        assert!(!result.timed_out(), "the daemon never reached the expected state: {world:?}");
        world
    }

    /// Sets the treatment of the next requests.
    pub(crate) fn script(&self, script: impl IntoIterator<Item = Next>) {
        self.world().script = script.into_iter().collect();
    }

    /// Stops the daemon as SIGKILL does: connections break, and the ledger stays in the state file.
    pub(crate) fn down(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the daemon's thread has panicked");
        }
    }

    /// Makes the daemon read nothing more until it is dropped, like a stopped process.
    pub(crate) fn freeze(&mut self) {
        self.world().frozen = true;
    }

    /// Starts the daemon again as another instance.
    pub(crate) fn up(&mut self) {
        let access = Access { mode: 0o666, uid: None, gid: None };
        let listener = Listener::bind(&self.path(), access, 16).expect("a socket");
        let (stop, stopped) = seqpacket::pair(true).expect("a pair");
        let mut state = self.world();
        state.instance += 1;
        state.specs.values_mut().for_each(|entry| entry.session = None);
        drop(state);
        let world = Arc::clone(&self.world);
        self.stop = Some(stop);
        self.thread = Some(std::thread::spawn(move || serve(&listener, &stopped, &world)));
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        drop(std::fs::remove_dir_all(Path::new(&self.directory)));
    }
}

struct Peer {
    number: u64,
    socket: OwnedFd,
    held_back: Option<Vec<u8>>,
    seed: Option<Token>,
}

fn serve(listener: &Listener, stopped: &OwnedFd, world: &(Mutex<World>, Condvar)) {
    let mut peers: Vec<Peer> = Vec::new();
    loop {
        let mut fds: Vec<PollFd> = vec![
            PollFd::new(stopped, PollFlags::IN),
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        ];
        let frozen = world.0.lock().expect("no test has panicked inside").frozen;
        fds.extend(
            peers.iter().filter(|_| !frozen).map(|peer| PollFd::new(&peer.socket, PollFlags::IN)),
        );
        poll(&mut fds, None).expect("poll");
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        let mut state = world.0.lock().expect("no test has panicked inside");
        if ready[1] {
            while let Some(socket) = listener.accept().expect("accept") {
                state.connections += 1;
                peers.push(Peer { number: state.connections, socket, held_back: None, seed: None });
            }
        }
        let mut index = 0;
        peers.retain_mut(|peer| {
            index += 1;
            let ready = ready.get(index + 1).copied().unwrap_or(false);
            if !ready || serve_message(peer, &mut state) {
                return true;
            }
            state.specs.retain(|_, entry| entry.session != Some(peer.number));
            false
        });
        world.1.notify_all();
    }
}

/// Serves one message. Returns `false` if the connection is over.
fn serve_message(peer: &mut Peer, world: &mut World) -> bool {
    let mut bytes = [0; MESSAGE_MAX];
    let received = match seqpacket::recv(&peer.socket, &mut bytes) {
        Ok(received) if received.len > 0 => received,
        _ => return false,
    };
    let (seq, request) = decode_request(&bytes[..received.len]).expect("a valid request");
    if let Request::Seed(seed) = request {
        peer.seed = Some(seed);
        world.seeds.push((seed, world.log.len()));
    }
    let is_preparation = matches!(request, Request::Hello { .. } | Request::Seed(_));
    let next = if is_preparation { None } else { world.script.pop_front() };
    if !matches!(request, Request::Seed(_)) {
        world.log.push(request.clone());
    }
    if next == Some(Next::HangUp) {
        return false;
    }
    if next == Some(Next::DieBefore) {
        world.specs.values_mut().for_each(|entry| entry.session = None);
        return false;
    }
    world.first_token = peer.seed.map(|seed| Token::derived(seed, seq));
    world.in_group = 0;
    let reply = world.answer(peer.number, request, received.fd);
    if next == Some(Next::DieAfter) {
        world.specs.values_mut().for_each(|entry| entry.session = None);
        return false;
    }
    let len = reply.encode(seq, &mut bytes);
    if next == Some(Next::Late) {
        peer.held_back = Some(bytes[..len].to_vec());
        return true;
    }
    if let Some(late) = peer.held_back.take() {
        drop(seqpacket::send(&peer.socket, &late, None));
    }
    match next {
        Some(Next::Mute) => {}
        Some(Next::Nonsense) => drop(seqpacket::send(&peer.socket, &[0xff; 40], None)),
        _ => drop(seqpacket::send(&peer.socket, &bytes[..len], None)),
    }
    true
}

impl World {
    fn answer(&mut self, session: u64, request: Request, fd: Option<OwnedFd>) -> Reply {
        match request {
            Request::Hello { .. } => Reply::Welcome { version: VERSION, instance: self.instance },
            Request::Create(task) => {
                self.create(session, &task).map_or_else(Reply::Refused, Reply::Granted)
            }
            Request::CreateGroup(tasks) => {
                let before = self.specs.clone();
                let group: Result<Vec<_>, _> =
                    tasks.iter().map(|task| self.create(session, task)).collect();
                group.map_or_else(
                    |refusal| {
                        self.specs = before;
                        Reply::Refused(refusal)
                    },
                    Reply::GrantedGroup,
                )
            }
            Request::Change { spec, task } => self.change(session, spec, &task),
            Request::Release(spec) => match self.specs.get(&spec.0) {
                Some(entry)
                    if entry.session == Some(session) || entry.task.owner != Owner::Session =>
                {
                    self.specs.remove(&spec.0);
                    Reply::Done
                }
                Some(_) => refuse(Code::NotOwner, Field::Request),
                None => no_such(spec),
            },
            Request::Attach { thread: ThreadRef::OwnTid(_), .. } if self.elsewhere => {
                refuse(Code::TidNotAccepted, Field::Thread)
            }
            Request::Attach { spec, thread } => {
                let named = match thread.tid() {
                    Some(tid) => Tid::new(tid as i32).and_then(|tid| Thread::open(tid).ok()),
                    None => fd.and_then(|fd| Thread::from_fd(fd).ok()),
                };
                let tid = named.map(|thread| thread.tid().as_raw() as u32);
                match (self.specs.get_mut(&spec.0), tid) {
                    (Some(entry), Some(tid)) => {
                        entry.tid = Some(tid);
                        Reply::Done
                    }
                    (None, _) => no_such(spec),
                    (_, None) => refuse(Code::NoSuchThread, Field::Thread),
                }
            }
            Request::Detach(spec) => match self.specs.get_mut(&spec.0) {
                Some(entry) => match entry.tid.take() {
                    Some(_) => Reply::Done,
                    None => refuse(Code::NotAttached, Field::Thread),
                },
                None => no_such(spec),
            },
            Request::Query(spec) => self.specs.get(&spec.0).map_or_else(|| no_such(spec), info),
            Request::Seed(_) | Request::ActFor { .. } | Request::Nice { .. } => Reply::Done,
            Request::Claim { spec: SpecId(0), token } => {
                let known = self.specs.values_mut().find(|entry| entry.granted.token == token);
                known.map_or_else(
                    || no_such(SpecId(0)),
                    |entry| {
                        entry.session = Some(session);
                        Reply::Granted(entry.granted)
                    },
                )
            }
            Request::Claim { spec, token } => match self.specs.get_mut(&spec.0) {
                Some(entry) if entry.granted.token == token => {
                    entry.session = Some(session);
                    Reply::Granted(entry.granted)
                }
                Some(_) => refuse(Code::BadToken, Field::Request),
                None => no_such(spec),
            },
            Request::Explain(task) => {
                let room = self.test(&task);
                Reply::Explained {
                    chosen: room.is_ok().then_some(0),
                    answers: match room {
                        Ok(_) => vec![],
                        Err(refusal) => refusal.answers,
                    },
                    refusal: None,
                }
            }
            Request::Counters => Reply::Counters(Box::default()),
            Request::Status => Reply::Status(Box::new(Status {
                instance: self.instance,
                pid: std::process::id(),
                plugins: 1,
                specs: self.specs.len() as u32,
                ..Status::default()
            })),
            Request::Plugin(0) => Reply::Plugin(Box::new(PluginInfo {
                index: 0,
                name: name("rm"),
                kind: name("rm"),
                cpus: CpuSet::single(0),
                band: (50, 99),
                specs: self.specs.len() as u32,
                out_of_service: false,
            })),
            Request::PluginCpu { plugin: 0, index: 0 } => Reply::PluginCpu(CpuInfo {
                cpu: 0,
                free: Charge::ONE.saturating_sub(self.used()),
                used: self.used(),
                specs: self.specs.len() as u32,
            }),
            Request::NextSpec(from) => {
                self.specs.range(from.0..).next().map_or(Reply::End, |(_, entry)| info(entry))
            }
            Request::NextSession(from) if from <= session => Reply::Session(SessionInfo {
                session,
                pid: std::process::id(),
                uid: 0,
                specs: self.specs.len() as u32,
            }),
            Request::Plugin(_) | Request::PluginCpu { .. } | Request::NextSession(_) => Reply::End,
            Request::Stop { .. } => refuse(Code::NotRoot, Field::Request),
        }
    }

    fn used(&self) -> Charge {
        self.specs
            .values()
            .fold(Charge::ZERO, |sum, entry| sum.saturating_add(entry.granted.charge))
    }

    /// Runs the admission test of one CPU, which may be filled entirely. A missing runtime costs
    /// nothing.
    fn test(&self, task: &Task) -> Result<(Option<Work>, Charge), Box<Refusal>> {
        let refusal = |code, field| Box::new(blank(code, field));
        if self.deny {
            return Err(refusal(Code::NotAllowed, Field::Request));
        }
        if task.plugin.is_some_and(|wanted| wanted != name("rm")) {
            return Err(refusal(Code::UnknownPlugin, Field::Plugin));
        }
        let refused = |no: Rejection| {
            let answer = PluginAnswer {
                plugin: 0,
                name: name("rm"),
                verdict: PluginVerdict::No(no),
                text: PluginText::NONE,
            };
            Box::new(Refusal { answers: vec![answer], ..blank(Code::NoPlugin, Field::Request) })
        };
        let missing = Rejection {
            reason: RejectionReason::Missing,
            field: Field::Period,
            cpu: None,
            asked: 0,
            limit: 0,
            fits: 0,
            witness: None,
        };
        let span = task.params.density_span().filter(|_| task.params.period.is_some());
        let span = span.ok_or_else(|| refused(missing))?;
        let Some(runtime) = task.params.runtime else { return Ok((None, Charge::ZERO)) };
        let free = Charge::ONE.saturating_sub(self.used());
        let (asked, fits) = (Charge::new(runtime, span), free.of(span));
        if asked > free {
            return Err(refused(Rejection {
                reason: RejectionReason::NoRoom,
                field: Field::Runtime,
                cpu: Some(0),
                asked: runtime.as_ns(),
                limit: fits.as_ns(),
                fits: fits.as_ns(),
                witness: None,
            }));
        }
        let accepted =
            task.params.desired.map_or(runtime, |desired| desired.min(fits).max(runtime));
        Ok((Some(accepted), Charge::new(accepted, span)))
    }

    fn create(&mut self, session: u64, task: &Task) -> Result<Granted, Box<Refusal>> {
        let (runtime, charge) = self.test(task)?;
        self.next += 1;
        let random = Token([self.next as u8; 16]);
        let token = self.first_token.map_or(random, |first| first.of_group(self.in_group));
        self.in_group += 1;
        let granted = Granted {
            spec: SpecId(self.next),
            token,
            plugin: 0,
            cpu: Some(0),
            runtime,
            charge,
            priority: 50,
            mechanism: Mechanism::Fifo,
            granularity: Span::ZERO,
            notes: Notes::default(),
        };
        self.specs.insert(
            self.next,
            LedgerEntry { granted, task: *task, tid: None, session: Some(session) },
        );
        Ok(granted)
    }

    fn change(&mut self, session: u64, spec: SpecId, task: &Task) -> Reply {
        let Some(old) = self.specs.remove(&spec.0) else { return no_such(spec) };
        match self.test(task) {
            Ok((runtime, charge)) => {
                let granted = Granted { runtime, charge, ..old.granted };
                self.specs.insert(
                    spec.0,
                    LedgerEntry { granted, task: *task, session: Some(session), ..old },
                );
                Reply::Granted(granted)
            }
            Err(refusal) => {
                self.specs.insert(spec.0, old);
                Reply::Refused(refusal)
            }
        }
    }
}

fn info(entry: &LedgerEntry) -> Reply {
    Reply::Spec(Box::new(SpecInfo {
        overruns: Overruns::default(),
        granted: entry.granted,
        task: entry.task,
        plugin_name: name("rm"),
        uid: 0,
        pid: std::process::id(),
        // `/proc` lists threads by number as it does processes.
        tid: entry.tid.filter(|tid| Path::new(&format!("/proc/{tid}")).exists()),
        attr: None,
        detached: None,
    }))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("short")
}

fn blank(code: Code, field: Field) -> Refusal {
    Refusal { code, field, asked: 0, limit: 0, errno: 0, index: 0, rule: None, answers: Vec::new() }
}

fn refuse(code: Code, field: Field) -> Reply {
    Reply::Refused(Box::new(blank(code, field)))
}

fn no_such(spec: SpecId) -> Reply {
    Reply::Refused(Box::new(Refusal { asked: spec.0, ..blank(Code::NoSuchSpec, Field::Request) }))
}
