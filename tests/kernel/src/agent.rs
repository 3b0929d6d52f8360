//! Clients as separate processes of any user, well or badly behaved.

use crate::bench::{eventually, program};
use crate::daemon::Daemon;
use crate::kernel;
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use talea_proto::message::{Status, Token};
use talea_proto::wire::decode_reply;
use talea_proto::{
    Granted, MESSAGE_MAX, Refusal, Reply, Request, SpecId, SpecInfo, Task, ThreadRef, VERSION,
};

/// A process that executes the commands of the test. Dropping it kills the process.
pub struct Agent {
    child: RefCell<Child>,
    line: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
    uid: u32,
}

impl Agent {
    /// Starts a process of user and group `uid`, without other groups.
    pub fn user(uid: u32) -> Agent {
        Agent::start(Command::new(program("talea-test-agent")), uid)
    }

    /// Starts a process of the superuser.
    pub fn root() -> Agent {
        Agent::user(0)
    }

    /// Starts a process with `command`.
    pub fn start(mut command: Command, uid: u32) -> Agent {
        if uid != 0 {
            command.uid(uid).gid(uid);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("an agent");
        let line = (
            child.stdin.take().expect("piped"),
            BufReader::new(child.stdout.take().expect("piped")),
        );
        Agent { child: RefCell::new(child), line: RefCell::new(line), uid }
    }

    /// Returns the user id of the process.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the process id in the agent's own PID namespace.
    pub fn pid(&self) -> i32 {
        self.number("pid")
    }

    /// Returns the process id in the PID namespace of the test.
    pub fn os_pid(&self) -> i32 {
        self.child.borrow().id() as i32
    }

    /// Sends a command and waits for the answer.
    #[track_caller]
    pub fn order(&self, order: &str) -> String {
        self.begin(order);
        self.finish()
    }

    /// Sends a command without waiting for the answer.
    #[track_caller]
    pub fn begin(&self, order: &str) {
        writeln!(self.line.borrow_mut().0, "{order}").expect("a living agent");
    }

    /// Waits for the answer to a command.
    #[track_caller]
    pub fn finish(&self) -> String {
        let mut said = String::new();
        self.line.borrow_mut().1.read_line(&mut said).expect("a living agent");
        assert!(!said.is_empty(), "the agent has ended");
        said.trim_end().to_owned()
    }

    #[track_caller]
    fn number(&self, order: &str) -> i32 {
        let said = self.order(order);
        said.parse().unwrap_or_else(|_| panic!("{order}: {said}"))
    }

    /// Starts a thread in the agent and returns its TID.
    #[track_caller]
    pub fn thread(&self) -> i32 {
        self.number("thread")
    }

    /// Ends a thread of the agent and waits for its end.
    #[track_caller]
    pub fn end_thread(&self, tid: i32) {
        assert_eq!(self.order(&format!("end {tid}")), "ended");
    }

    /// Lets a thread of the agent consume CPU time.
    #[track_caller]
    pub fn work(&self, tid: i32, milliseconds: u32) {
        self.number(&format!("work {tid} {milliseconds}"));
    }

    /// Starts a program from a thread of the agent and returns its process id.
    #[track_caller]
    pub fn program_from(&self, tid: i32) -> i32 {
        self.number(&format!("program-from {tid}"))
    }

    /// Starts a thread from a thread of the agent and returns its TID.
    #[track_caller]
    pub fn child_of(&self, tid: i32) -> i32 {
        self.number(&format!("child-of {tid}"))
    }

    /// Lets a thread of the agent execute a program in place of its process. The program continues
    /// to execute commands.
    #[track_caller]
    pub fn exec_from(&self, tid: i32, program: &Path) {
        self.begin(&format!("exec-from {tid} {}", program.display()));
        eventually("the thread has taken its process's place", || !kernel::exists(tid));
        assert_eq!(self.order("pid"), self.os_pid().to_string());
    }

    /// Kills the process by SIGKILL and waits for its end.
    pub fn kill(&self) {
        let mut child = self.child.borrow_mut();
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// Connects to `daemon` and sends `Hello`.
    #[track_caller]
    pub fn connect(&self, daemon: &Daemon) -> Client<'_> {
        let client = self.connect_silently(daemon);
        let said = client.ask(&Request::Hello { min: VERSION, max: VERSION });
        assert!(matches!(said, Reply::Welcome { .. }), "{said:?}");
        client
    }

    /// Connects without sending `Hello`.
    #[track_caller]
    pub fn connect_silently(&self, daemon: &Daemon) -> Client<'_> {
        let index = self.number(&format!("connect {}", daemon.socket().display()));
        self.client_at(index)
    }

    /// Returns a connection that the agent has already made, by its index.
    pub fn client_at(&self, index: i32) -> Client<'_> {
        Client { agent: self, index, seq: Cell::new(0) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// One connection of an agent.
pub struct Client<'a> {
    /// Agent that holds the connection.
    pub agent: &'a Agent,
    index: i32,
    seq: Cell<u32>,
}

impl Client<'_> {
    /// Returns the index of the connection in the agent.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Sends a request and returns the reply.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Reply {
        let seq = self.send(request);
        let (answered, reply) =
            self.receive().unwrap_or_else(|| panic!("the daemon hung up on {request:?}"));
        assert_eq!(answered, seq, "the answer to another request");
        reply
    }

    /// Sends a request without waiting for the reply, and returns the number of the request.
    #[track_caller]
    pub fn send(&self, request: &Request) -> u32 {
        let said = self.agent.order(&format!("send {} {}", self.index, self.encode(request)));
        assert_eq!(said, "sent");
        self.seq.get()
    }

    /// Returns the hexadecimal text of a request with the next number.
    pub fn encode(&self, request: &Request) -> String {
        self.seq.set(self.seq.get() + 1);
        let mut bytes = [0; MESSAGE_MAX];
        let length = request.encode(self.seq.get(), &mut bytes);
        hex(&bytes[..length])
    }

    /// Sends bytes that need not be a message; returns the agent's answer.
    #[track_caller]
    pub fn send_bytes(&self, bytes: &[u8]) -> String {
        self.agent.order(&format!("send {} {}", self.index, hex(bytes)))
    }

    /// Receives the next reply, with the number of its request; `None` if the daemon has closed the
    /// connection.
    #[track_caller]
    pub fn receive(&self) -> Option<(u32, Reply)> {
        let said = self.agent.order(&format!("receive {}", self.index));
        // 104 is ECONNRESET: closed with unread data.
        if said == "end" || said == "errno 104" {
            return None;
        }
        let bytes: Option<Vec<u8>> = (0..said.len() / 2)
            .map(|at| u8::from_str_radix(said.get(2 * at..2 * at + 2)?, 16).ok())
            .collect();
        let bytes =
            bytes.filter(|_| !said.contains(' ')).unwrap_or_else(|| panic!("no message: {said}"));
        Some(decode_reply(&bytes).unwrap_or_else(|garbled| panic!("{garbled:?}")))
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.agent.order(&format!("close {}", self.index));
    }

    /// Requests a grant, which the daemon must accept.
    #[track_caller]
    pub fn create(&self, task: Task) -> Granted {
        match self.ask(&Request::Create(task)) {
            Reply::Granted(granted) => granted,
            other => panic!("{task:?}: {other:?}"),
        }
    }

    /// Sends a request that the daemon must refuse, and returns the refusal.
    #[track_caller]
    pub fn refused(&self, request: &Request) -> Refusal {
        match self.ask(request) {
            Reply::Refused(refusal) => *refusal,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// Sends a request that the daemon must answer with [`Reply::Done`].
    #[track_caller]
    pub fn done(&self, request: &Request) {
        let said = self.ask(request);
        assert_eq!(said, Reply::Done, "{request:?}");
    }

    /// Attaches a thread to a spec by pidfd, which must succeed.
    #[track_caller]
    pub fn attach(&self, spec: SpecId, tid: i32) {
        let said = self.try_attach(spec, tid);
        assert_eq!(said, Reply::Done, "attaching {tid} to {spec:?}");
    }

    /// Attaches a thread to a spec by pidfd; returns the daemon's reply.
    #[track_caller]
    pub fn try_attach(&self, spec: SpecId, tid: i32) -> Reply {
        let message = self.encode(&Request::Attach { spec, thread: ThreadRef::Pidfd });
        let said = self.agent.order(&format!("send-thread {} {tid} {message}", self.index));
        assert_eq!(said, "sent");
        self.receive().expect("an answer").1
    }

    /// Attaches a thread to a spec by TID; returns the daemon's reply.
    #[track_caller]
    pub fn try_attach_by_number(&self, spec: SpecId, tid: i32) -> Reply {
        self.ask(&Request::Attach { spec, thread: ThreadRef::Tid(tid as u32) })
    }

    /// Attaches a thread to a spec by a TID that the client declares as a thread of its own;
    /// returns the daemon's reply.
    #[track_caller]
    pub fn try_attach_own(&self, spec: SpecId, tid: i32) -> Reply {
        self.ask(&Request::Attach { spec, thread: ThreadRef::OwnTid(tid as u32) })
    }

    /// Claims a spec; returns the daemon's reply.
    #[track_caller]
    pub fn claim(&self, spec: SpecId, token: Token) -> Reply {
        self.ask(&Request::Claim { spec, token })
    }

    /// Returns the state of a spec in the daemon.
    #[track_caller]
    pub fn query(&self, spec: SpecId) -> SpecInfo {
        match self.ask(&Request::Query(spec)) {
            Reply::Spec(info) => *info,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the counters of the daemon.
    #[track_caller]
    pub fn status(&self) -> Status {
        match self.ask(&Request::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the hexadecimal text of `bytes`, as the agent reads it.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
