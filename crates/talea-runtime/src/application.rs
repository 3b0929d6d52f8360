//! Declaration of an application. A run owns the application, so no caller can change it during the
//! run.

use crate::channel::{self, ChannelState, End, Input, Output};
use crate::config::{Config, Mapping};
use crate::current_task::{self, CurrentTask};
use crate::error::Error;
use crate::rights::TaskDemand;
use crate::server::{Server, ServerId};
use crate::table::Table;
use crate::task::{Task, TaskId, Version, VersionId};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use talea_core::Work;
use talea_core::engine::{AcceleratorId, Affinity, NodeId, NodeSpec, Tree, TreeError};
use talea_core::mutate;
use talea_exec::{Flow, Job};

/// Accelerator of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accelerator(AcceleratorId);

/// Function that a version runs for each job.
pub(crate) type Function = Box<dyn FnMut(&Job) + Send>;

/// A task with its versions and functions.
pub(crate) struct Declared {
    pub(crate) task: Task,
    pub(crate) versions: Vec<Version>,
    /// `functions[v]`: function of version `v`. During a run only the task's worker locks the
    /// functions.
    pub(crate) functions: Arc<Mutex<Vec<Function>>>,
}

/// Edge of a graph.
struct Edge {
    from: TaskId,
    to: TaskId,
    size: u32,
    tokens: u32,
}

/// An application: tasks, versions, accelerators and channels (YASMIN Table 1).
pub struct Application {
    /// Number of the application within the process.
    id: u64,
    pub(crate) config: Config,
    pub(crate) tasks: Vec<Declared>,
    servers: Vec<Server>,
    accelerators: Vec<String>,
    edges: Vec<Edge>,
    /// Table that replaces the configured policy.
    pub(crate) table: Option<Table>,
    /// `channels[e]`: channel of edge `e`.
    pub(crate) channels: Vec<ChannelState>,
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
    /// Creates an application without tasks.
    pub fn new(config: Config) -> Application {
        let (tasks, servers, accelerators, edges, table, channels) = Default::default();
        let id = current_task::next_application_id();
        Application { id, config, tasks, servers, accelerators, edges, table, channels }
    }

    /// Returns the configuration, so that the caller can change it.
    pub fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Declares a task.
    pub fn task(&mut self, task: Task) -> TaskId {
        let functions = Arc::new(Mutex::new(Vec::new()));
        self.tasks.push(Declared { task, versions: Vec::new(), functions });
        TaskId::from_index(self.tasks.len() - 1)
    }

    /// Declares a server. Tasks are [served by](Task::served_by) the server if their declarations
    /// say so.
    pub fn server(&mut self, server: Server) -> ServerId {
        self.servers.push(server);
        ServerId(self.servers.len() as u32 - 1)
    }

    /// Replaces a server for the next start. The tasks of the server stay.
    ///
    /// # Panics
    /// If the server does not exist.
    pub fn replace_server(&mut self, server: ServerId, new: Server) {
        mutate!(
            "runtime-server-anew",
            self.servers[server.0 as usize] = new,
            self.servers[server.0 as usize].name = new.name
        );
    }

    /// Replaces a task for the next start: its releases and its urgency. The versions and channels
    /// of the task stay. To disable a task, replace it by one that is [activated](Task::activated).
    ///
    /// # Panics
    /// If the task does not exist.
    pub fn replace_task(&mut self, task: TaskId, new: Task) {
        mutate!("runtime-redeclared", self.tasks[task.number()].task = new, drop(new));
    }

    /// Adds a version to a task, in the order of preference, with its function. A panic of the
    /// function ends the job. The runtime calls the function again for the next job.
    ///
    /// # Panics
    /// If the task does not exist.
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

    /// Makes a version use an accelerator. Jobs of the version hold the accelerator from start to
    /// end, together with all other accelerators of the version.
    ///
    /// # Panics
    /// If the version does not exist.
    pub fn uses(&mut self, version: VersionId, accelerator: Accelerator) {
        self.tasks[version.task.number()].versions[version.number]
            .spec
            .accelerators
            .push(accelerator.0);
    }

    /// Adds an edge: each completion of `from` activates a job of `to`, without data between them.
    pub fn edge(&mut self, from: TaskId, to: TaskId) {
        let (_, _, channel) = self.endpoints::<()>(from, to, 0);
        self.add_edge(Edge { from, to, size: 0, tokens: 1 }, channel);
    }

    /// Adds a channel with room for `size` data. Each datum activates a job of `to`, once all other
    /// inputs of `to` have their data.
    pub fn channel<T: Send + 'static>(
        &mut self,
        from: TaskId,
        to: TaskId,
        size: u32,
    ) -> (Output<T>, Input<T>) {
        self.channel_of(from, to, size, 1)
    }

    /// Variant of [`channel`](Application::channel) in which `tokens` data activate a job.
    pub fn channel_of<T: Send + 'static>(
        &mut self,
        from: TaskId,
        to: TaskId,
        size: u32,
        tokens: u32,
    ) -> (Output<T>, Input<T>) {
        let (output, input, channel) = self.endpoints(from, to, size);
        self.add_edge(Edge { from, to, size, tokens }, channel);
        (output, input)
    }

    fn endpoints<T: Send + 'static>(
        &self,
        from: TaskId,
        to: TaskId,
        size: u32,
    ) -> (Output<T>, Input<T>, ChannelState) {
        let flow = Flow::new(from.to_engine(), to.to_engine(), size, 0);
        let end = |task: TaskId| End {
            owner: self.current_task(task),
            task: self.name_of(task).to_owned(),
        };
        channel::channel(flow, size, (end(from), end(to)))
    }

    /// Sets the table that replaces the configured mapping, order and preemption from the next
    /// start on. `None` removes the table.
    pub fn set_table(&mut self, table: Option<Table>) {
        self.table = table;
    }

    /// Returns the [`CurrentTask`] of a task.
    pub(crate) fn current_task(&self, task: TaskId) -> CurrentTask {
        CurrentTask::new(self.id, task.to_engine())
    }

    /// Returns the name of a task, or a description if a declaration names a task that does not
    /// exist.
    fn name_of(&self, task: TaskId) -> &str {
        self.tasks
            .get(task.number())
            .map_or("a task that does not exist", |known| &known.task.spec.name)
    }

    fn add_edge(&mut self, edge: Edge, channel: ChannelState) {
        self.edges.push(edge);
        self.channels.push(channel);
    }

    /// Builds the tree of the engine.
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
                let mut spec = server.to_spec(clients.policy.clone(), affinity);
                spec.preemptive = self.config.preemptive;
                tree.scheduler(Tree::ROOT, spec)
            })
            .collect();
        let nodes: Vec<NodeId> = (self.tasks.iter())
            .map(|declared| {
                let mut spec = declared.task.spec.clone();
                spec.versions = declared.versions.iter().map(Version::to_spec).collect();
                let costs: Option<Vec<Work>> = declared
                    .versions
                    .iter()
                    .map(|version| Some(version.cost.as_ref()?.max()))
                    .collect();
                spec.cost = costs.and_then(|costs| costs.into_iter().max());
                // A served task is where its server is.
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
            spec.name = format!("{}-{}", self.name_of(edge.from), self.name_of(edge.to));
        }
        if let Some(table) = &self.table {
            let policy = table.policy(&tree);
            if let Some(NodeSpec::Scheduler(root)) =
                tree.get_mut(Tree::ROOT).map(|root| &mut root.spec)
            {
                (root.policy, root.preemptive) = (policy, true);
            }
        }
        tree
    }

    fn affinity(&self, core: u32, cores: Affinity) -> Affinity {
        match self.config.mapping {
            // A table places the tasks.
            _ if self.table.is_some() => Affinity::ANY,
            Mapping::Global => Affinity::ANY,
            Mapping::Clustered => mutate!("runtime-cluster", cores, Affinity(cores.0 | u64::MAX)),
            Mapping::Partitioned => Affinity(1_u64.checked_shl(core).unwrap_or(0)),
        }
    }

    /// Returns the demand of each task on the application's CPUs `cpus`, for a rights provider.
    pub(crate) fn demands(&self, cpus: &[u32]) -> Vec<TaskDemand> {
        let demand_of_task = |(number, declared): (usize, &Declared)| {
            let task = &declared.task;
            let reach =
                match (&self.table, task.server.map(|server| &self.servers[server.0 as usize])) {
                    (Some(table), _) => table.cores(TaskId::from_index(number)),
                    (None, Some(server)) => self.affinity(server.core, server.cores),
                    (None, None) => self.affinity(task.core, task.cores),
                };
            let is_in = |at: usize| at < 64 && reach.0 & (1 << at) != 0;
            let reached = cpus.iter().enumerate().filter(|&(at, _)| is_in(at)).map(|(_, &cpu)| cpu);
            let costs: Option<Vec<Work>> =
                declared.versions.iter().map(Version::max_work).collect();
            let cost = costs.and_then(|costs| costs.into_iter().max());
            // A task without a rule may come as often as it is activated, and a job that cannot be
            // done is no demand.
            let demand = cost.zip(task.separation()).filter(|(cost, every)| {
                !cost.is_zero() && cost.as_ns() <= every.as_ns().min(task.spec.deadline.as_ns())
            });
            let long = Duration::from_nanos;
            TaskDemand {
                cpus: reached.collect(),
                demand: demand.map(|(cost, every)| (long(cost.as_ns()), long(every.as_ns()))),
            }
        };
        self.tasks.iter().enumerate().map(demand_of_task).collect()
    }

    /// Builds the tree and checks the declaration.
    pub(crate) fn checked_tree(&self, cpus: u32) -> Result<Tree, Error> {
        mutate!("runtime-unknown-names", self.check_ids()?);

        let tree = self.tree(cpus);
        tree.check().map_err(|error| Application::tree_error(&tree, &error))?;
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

    /// Checks that the ids in edges, tasks, versions and the table exist. An id of another
    /// application may not exist in this one.
    fn check_ids(&self) -> Result<(), Error> {
        let none = |declared_in: String, what: &str, number: u32, declared: usize| {
            Err(Error::Declared(format!(
                "{declared_in}: there is no {what} {number}, {declared} are declared"
            )))
        };
        for edge in &self.edges {
            let unknown =
                [edge.from, edge.to].into_iter().find(|end| end.number() >= self.tasks.len());
            if let Some(TaskId(number)) = unknown {
                let declared_in = format!(
                    "the edge from {} to {}",
                    self.name_of(edge.from),
                    self.name_of(edge.to)
                );
                return none(declared_in, "task", number, self.tasks.len());
            }
        }
        for Declared { task, versions, .. } in &self.tasks {
            let declared_in = format!("task {}", task.spec.name);
            if let Some(ServerId(number)) =
                task.server.filter(|server| server.0 as usize >= self.servers.len())
            {
                return none(declared_in, "server", number, self.servers.len());
            }
            let mut needed = versions.iter().flat_map(|version| &version.spec.accelerators);
            let accelerators = self.accelerators.len();
            if let Some(AcceleratorId(number)) =
                needed.find(|needed| needed.0 as usize >= accelerators)
            {
                return none(declared_in, "accelerator", *number, accelerators);
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

    /// Converts an error of the tree to a description with the names of the application.
    fn tree_error(tree: &Tree, error: &TreeError) -> Error {
        let name = match tree.get(error.node).map(|node| &node.spec) {
            Some(NodeSpec::Task(spec)) => format!("task {}", spec.name),
            Some(NodeSpec::Scheduler(spec)) if error.node != Tree::ROOT => {
                format!("server {}", spec.name)
            }
            _ => "the application".to_owned(),
        };
        Error::Declared(format!("{name}: {}", error.kind))
    }
}
