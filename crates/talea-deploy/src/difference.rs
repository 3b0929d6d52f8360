//! Difference between two generations, by the names of their tasks.

use crate::generation::Generation;

/// Tasks by what a change of the generation does to them, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Tasks that only the new generation has.
    pub new: Vec<String>,
    /// Tasks whose program starts again, because its command differs.
    pub restarted: Vec<String>,
    /// Tasks whose program runs on with other attributes, another health or another table.
    pub adjusted: Vec<String>,
    /// Tasks that are equal in both: nothing is done.
    pub unchanged: Vec<String>,
    /// Tasks that only the old generation has.
    pub removed: Vec<String>,
}

impl Difference {
    /// Returns what changes from `old`, the generation in force, to `new`.
    pub fn between(old: Option<&Generation>, new: &Generation) -> Difference {
        let mut difference = Difference::default();
        for task in new.tasks() {
            let list = match old.and_then(|old| old.task(&task.name)) {
                None => &mut difference.new,
                Some(old) if old == task => &mut difference.unchanged,
                Some(old) if old.command.is_same_program(&task.command) => &mut difference.adjusted,
                Some(_) => &mut difference.restarted,
            };
            list.push(task.name.clone());
        }
        let old = old.map_or(&[][..], Generation::tasks);
        let removed = old.iter().filter(|task| new.task(&task.name).is_none());
        difference.removed = removed.map(|task| task.name.clone()).collect();
        difference
    }
}
