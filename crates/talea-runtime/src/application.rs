//! What an application declares. It can't be changed while it runs: it is in the hands of the run
//! then.

use crate::channel::{self, End, Input, Kept, Output};
use crate::config::{Config, Mapping};
use crate::doing::{self, Doing};
use crate::rights::Booking;
use crate::running::{Error, Hand, NotStarted, Running};
use crate::server::{Server, ServerId};
use crate::table::Table;
use crate::task::{Task, Version};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use talea_core::Work;
use talea_core::machine::{self, AcceleratorId, Affinity, NodeId, Tree, TreeError};
use talea_core::mutate;
use talea_exec::{Flow, Job};

/// A task of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u32);

impl TaskId {
    /// The task with this [`number`](TaskId::number), for whoever keeps numbers only. There need
    /// not be one.
    pub fn from_number(number: u32) -> TaskId {
        TaskId(number)
    }

    /// Counts the tasks in the order of their declaration, from 0.
    pub fn number(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn of_number(number: usize) -> TaskId {
        TaskId(number as u32)
    }

    pub(crate) fn of_machine(self) -> machine::TaskId {
        machine::TaskId(self.0)
    }
}

/// A version of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionId {
    task: TaskId,
    pub(crate) number: usize,
}

/// An accelerator of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accelerator(AcceleratorId);

/// What the jobs of a version do.
pub(crate) type Function = Box<dyn FnMut(&Job) + Send>;

/// A task with all that was said of it.
pub(crate) struct Declared {
    pub(crate) task: Task,
    pub(crate) versions: Vec<Version>,
    /// By version. Nobody but the task's worker ever locks them while it runs.
    pub(crate) functions: Arc<Mutex<Vec<Function>>>,
}

/// An edge of a graph.
struct Edge {
    from: TaskId,
    to: TaskId,
    size: u32,
    tokens: u32,
}

/// Tasks, versions, accelerators and channels (YASMIN Table 1).
pub struct Application {
    /// Among all of the process.
    id: u64,
    pub(crate) config: Config,
    pub(crate) tasks: Vec<Declared>,
    servers: Vec<Server>,
    accelerators: Vec<String>,
    edges: Vec<Edge>,
    /// What it follows instead of its configuration.
    pub(crate) table: Option<Table>,
    /// By edge.
    pub(crate) channels: Vec<Kept>,
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.tasks.iter().map(|declared| declared.task.spec.name.as_str()).collect();
        f.debug_struct("Application")
            .field("config", &self.config)
            .field("tasks", &names)
            .finish_non_exhaustive()
    }
}

impl Application {
    /// One that does nothing so far.
    pub fn new(config: Config) -> Application {
        let (tasks, servers, accelerators, edges, table, channels) = Default::default();
        let id = doing::another_application();
        Application { id, config, tasks, servers, accelerators, edges, table, channels }
    }

    /// The rules by which it runs.
    pub fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Declares a task.
    pub fn task(&mut self, task: Task) -> TaskId {
        let functions = Arc::new(Mutex::new(Vec::new()));
        self.tasks.push(Declared { task, versions: Vec::new(), functions });
        TaskId(self.tasks.len() as u32 - 1)
    }

    /// Declares a server, for tasks that are [served by](Task::served_by) it.
    pub fn server(&mut self, server: Server) -> ServerId {
        self.servers.push(server);
        ServerId(self.servers.len() as u32 - 1)
    }

    /// Declares a server anew, for the next start; its tasks stay.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn redeclare_server(&mut self, server: ServerId, anew: Server) {
        mutate!(
            "runtime-server-anew",
            self.servers[server.0 as usize] = anew,
            self.servers[server.0 as usize].name = anew.name
        );
    }

    /// Declares a task anew, for the next start: when its jobs come, and how urgent they are. Its
    /// versions and channels stay. One that is to rest becomes one that is
    /// [activated](Task::activated).
    ///
    /// # Panics
    /// If there is no such task.
    pub fn redeclare(&mut self, task: TaskId, anew: Task) {
        self.tasks[task.number()].task = anew;
    }

    /// Adds a version to a task, in the order of preference, and what its jobs do. A job that
    /// panics ends there; the next one is called as if nothing had happened.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn version(
        &mut self,
        task: TaskId,
        version: impl Into<Version>,
        function: impl FnMut(&Job) + Send + 'static,
    ) -> VersionId {
        let declared = &mut self.tasks[task.number()];
        declared.versions.push(version.into());
        let functions = Arc::get_mut(&mut declared.functions).expect("nothing runs");
        functions.get_mut().expect("panics are caught within it").push(Box::new(function));
        VersionId { task, number: declared.versions.len() - 1 }
    }

    /// Declares an accelerator.
    pub fn accelerator(&mut self, name: &str) -> Accelerator {
        self.accelerators.push(name.to_owned());
        Accelerator(AcceleratorId(self.accelerators.len() as u32 - 1))
    }

    /// A version needs an accelerator: held from the begin of a job to its end, with all others
    /// that it needs or not at all.
    ///
    /// # Panics
    /// If there is no such version.
    pub fn uses(&mut self, version: VersionId, accelerator: Accelerator) {
        self.tasks[version.task.number()].versions[version.number]
            .spec
            .accelerators
            .push(accelerator.0);
    }

    /// A job of `to` comes when one of `from` has ended, without data between them.
    pub fn edge(&mut self, from: TaskId, to: TaskId) {
        let (_, _, kept) = self.ends::<()>(from, to, 0);
        self.join(Edge { from, to, size: 0, tokens: 1 }, kept);
    }

    /// A channel with room for `size` data; a job of `to` comes when there is one (and all else
    /// that it needs) that no other job has come for.
    pub fn channel<T: Send + 'static>(
        &mut self,
        from: TaskId,
        to: TaskId,
        size: u32,
    ) -> (Output<T>, Input<T>) {
        self.channel_of(from, to, size, 1)
    }

    /// The same, where a job comes for so many.
    pub fn channel_of<T: Send + 'static>(
        &mut self,
        from: TaskId,
        to: TaskId,
        size: u32,
        tokens: u32,
    ) -> (Output<T>, Input<T>) {
        let (output, input, kept) = self.ends(from, to, size);
        self.join(Edge { from, to, size, tokens }, kept);
        (output, input)
    }

    fn ends<T: Send + 'static>(
        &self,
        from: TaskId,
        to: TaskId,
        size: u32,
    ) -> (Output<T>, Input<T>, Kept) {
        let flow = Flow::new(from.of_machine(), to.of_machine(), size, 0);
        let end = |task: TaskId| End { doing: self.doing(task), task: self.name(task).to_owned() };
        channel::channel(flow, size, (end(from), end(to)))
    }

    /// A task among all of the process.
    pub(crate) fn doing(&self, task: TaskId) -> Doing {
        Doing::new(self.id, task.of_machine())
    }

    /// Of a task; what has been declared need not be one.
    fn name(&self, task: TaskId) -> &str {
        self.tasks
            .get(task.number())
            .map_or("a task that there is not", |known| &known.task.spec.name)
    }

    fn join(&mut self, edge: Edge, kept: Kept) {
        self.edges.push(edge);
        self.channels.push(kept);
    }

    /// What the scheduler machine is made of.
    pub(crate) fn tree(&self, cpus: u32) -> Tree {
        let (root, migration) = self.config.root();
        let mut tree = Tree::new(cpus, root);
        (tree.migration, tree.selection) = (migration, self.config.selection);
        tree.inheritance = self.config.inheritance;
        tree.accelerators.clone_from(&self.accelerators);
        let affinity = |core: u32, cores: Affinity| self.affinity(core, cores);
        let (clients, _) = self.config.root();
        let servers: Vec<NodeId> = (self.servers.iter())
            .map(|server| {
                let affinity = affinity(server.core, server.cores);
                let mut spec = server.of_machine(clients.policy.clone(), affinity);
                spec.preemptive = self.config.preemptive;
                tree.scheduler(Tree::ROOT, spec)
            })
            .collect();
        let nodes: Vec<NodeId> = (self.tasks.iter())
            .map(|declared| {
                let mut spec = declared.task.spec.clone();
                spec.versions = declared.versions.iter().map(Version::of_machine).collect();
                let costs: Option<Vec<Work>> = declared
                    .versions
                    .iter()
                    .map(|version| Some(version.cost.as_ref()?.most()))
                    .collect();
                spec.cost = costs.and_then(|costs| costs.into_iter().max());
                // One that a server serves is where the server is.
                let server = declared.task.server.map(|server| servers[server.0 as usize]);
                if server.is_none() {
                    spec.affinity = affinity(declared.task.core, declared.task.cores);
                }
                tree.task(
                    mutate!(
                        "runtime-server-budget",
                        server.unwrap_or(Tree::ROOT),
                        server.map_or(Tree::ROOT, |_| Tree::ROOT)
                    ),
                    spec,
                )
            })
            .collect();
        for edge in &self.edges {
            let (from, to) = (nodes[edge.from.number()], nodes[edge.to.number()]);
            let channel = tree.channel(from, to, edge.size);
            let spec = &mut tree.channels[channel.0 as usize];
            spec.tokens = edge.tokens;
            spec.name = format!("{}-{}", self.name(edge.from), self.name(edge.to));
        }
        if let Some(table) = &self.table {
            let policy = table.policy(&tree);
            if let Some(machine::Body::Scheduler(root)) =
                tree.get_mut(Tree::ROOT).map(|root| &mut root.body)
            {
                (root.policy, root.preemptive) = (policy, true);
            }
        }
        tree
    }

    fn affinity(&self, core: u32, cores: Affinity) -> Affinity {
        match self.config.mapping {
            // A table says where everybody is.
            _ if self.table.is_some() => Affinity::ANY,
            Mapping::Global => Affinity::ANY,
            Mapping::Clustered => mutate!("runtime-cluster", cores, Affinity(cores.0 | u64::MAX)),
            Mapping::Partitioned => Affinity(1_u64.checked_shl(core).unwrap_or(0)),
        }
    }

    /// What whoever grants CPUs is to know, by task; `cpus` are the application's.
    pub(crate) fn bookings(&self, cpus: &[u32]) -> Vec<Booking> {
        let booking = |(number, declared): (usize, &Declared)| {
            let task = &declared.task;
            let reach =
                match (&self.table, task.server.map(|server| &self.servers[server.0 as usize])) {
                    (Some(table), _) => table.cores(TaskId::of_number(number)),
                    (None, Some(server)) => self.affinity(server.core, server.cores),
                    (None, None) => self.affinity(task.core, task.cores),
                };
            let is_in = |at: usize| at < 64 && reach.0 & (1 << at) != 0;
            let reached = cpus.iter().enumerate().filter(|&(at, _)| is_in(at)).map(|(_, &cpu)| cpu);
            let costs: Option<Vec<Work>> = declared
                .versions
                .iter()
                .map(|version| Some(version.cost.as_ref()?.most()))
                .collect();
            let cost = costs.and_then(|costs| costs.into_iter().max());
            // A task without a rule may come as often as somebody likes, and a job that could not
            // be done is no demand.
            let demand = cost.zip(task.separation()).filter(|(cost, every)| {
                !cost.is_zero() && cost.as_ns() <= every.as_ns().min(task.spec.deadline.as_ns())
            });
            let long = Duration::from_nanos;
            Booking {
                cpus: reached.collect(),
                demand: demand.map(|(cost, every)| (long(cost.as_ns()), long(every.as_ns()))),
            }
        };
        self.tasks.iter().enumerate().map(booking).collect()
    }

    /// The same, if what is declared makes sense.
    pub(crate) fn sound_tree(&self, cpus: u32) -> Result<Tree, Error> {
        mutate!(
            "runtime-unknown-names",
            {
                self.knows_its_names()?;
            },
            {}
        );

        let tree = self.tree(cpus);
        tree.check().map_err(|error| Application::wrong(&tree, &error))?;
        let wrong = |of: &Declared, why: &str| {
            Err(Error::Declared(format!("task {}: {why}", of.task.spec.name)))
        };
        for (at, declared) in self.tasks.iter().enumerate() {
            if declared.versions.is_empty() {
                return wrong(declared, "it has no version, so its jobs would do nothing");
            }
            if declared.task.is_periodic() && self.edges.iter().any(|edge| edge.to.number() == at) {
                return wrong(
                    declared,
                    "it is periodic, and a graph activates it: declare it with `Task::node`",
                );
            }
        }
        Ok(tree)
    }

    /// Whether there is what edges, tasks, versions and the table name by number: a number of
    /// another application's may be none here.
    fn knows_its_names(&self) -> Result<(), Error> {
        let none = |whose: String, what: &str, number: u32, declared: usize| {
            Err(Error::Declared(format!(
                "{whose}: there is no {what} {number}, {declared} are declared"
            )))
        };
        for edge in &self.edges {
            let unknown =
                [edge.from, edge.to].into_iter().find(|end| end.number() >= self.tasks.len());
            if let Some(TaskId(number)) = unknown {
                let whose =
                    format!("the edge from {} to {}", self.name(edge.from), self.name(edge.to));
                return none(whose, "task", number, self.tasks.len());
            }
        }
        for Declared { task, versions, .. } in &self.tasks {
            let whose = format!("task {}", task.spec.name);
            if let Some(ServerId(number)) =
                task.server.filter(|server| server.0 as usize >= self.servers.len())
            {
                return none(whose, "server", number, self.servers.len());
            }
            let mut needed = versions.iter().flat_map(|version| &version.spec.accelerators);
            let accelerators = self.accelerators.len();
            if let Some(AcceleratorId(number)) =
                needed.find(|needed| needed.0 as usize >= accelerators)
            {
                return none(whose, "accelerator", *number, accelerators);
            }
        }
        let mut owners = self.table.iter().flat_map(Table::owners);
        if let Some(TaskId(number)) = owners.find(|owner| {
            mutate!(
                "runtime-table-owners",
                owner.number() >= self.tasks.len(),
                owner.number() > 64 + self.tasks.len()
            )
        }) {
            return none("the table".to_owned(), "task", number, self.tasks.len());
        }
        Ok(())
    }

    /// Whose fault it is, in the words of the application.
    fn wrong(tree: &Tree, error: &TreeError) -> Error {
        let name = match tree.get(error.node).map(|node| &node.body) {
            Some(machine::Body::Task(spec)) => format!("task {}", spec.name),
            Some(machine::Body::Scheduler(spec)) if error.node != Tree::ROOT => {
                format!("server {}", spec.name)
            }
            _ => "the application".to_owned(),
        };
        Error::Declared(format!("{name}: {}", error.why))
    }

    /// Runs it: its time zero is a moment later.
    ///
    /// # Errors
    /// If what is declared makes no sense (a task without a version, a graph with a circle), if the
    /// machine has not these CPUs, and for want of rights if the configuration insists on them.
    pub fn start(self) -> Result<Running, Error> {
        Running::start(self, drop).map_err(|not_started| not_started.error)
    }

    /// The same for whoever needs it back if it does not start. `tell` gets the
    /// [`Hand`](crate::Hand) before the first job can come, so that jobs may use it from the first
    /// on.
    ///
    /// # Errors
    /// As [`start`](Application::start), with the application.
    pub fn start_telling(self, tell: impl FnOnce(Hand)) -> Result<Running, Box<NotStarted>> {
        Running::start(self, tell)
    }
}
