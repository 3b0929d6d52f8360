//! The kernel's own books of deadline bandwidth, from `sched/debug` in debugfs.
//!
//! Only for looking: to see whether a grant that we gave back is also given back there. The form of
//! the file is no interface; what can't be found is `None`.

use super::source::Source;

/// Admission of the root domain that a CPU belongs to, in units of 2^-20 CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlBook {
    /// The CPU.
    pub cpu: u32,
    /// Most that each CPU may give, -1 without a bound.
    pub limit: i64,
    /// What the domain has given in all, fair servers included. Kernels that lose count go below
    /// zero.
    pub total: i64,
}

/// The books of every CPU; `None` where debugfs is not mounted or may not be read. CPUs of one root
/// domain repeat the same numbers.
pub fn dl_books() -> Option<Vec<DlBook>> {
    parse(&Source::live().text("/sys/kernel/debug/sched/debug").ok()?)
}

/// A section per CPU starts with `dl_rq[N]:`.
fn parse(text: &str) -> Option<Vec<DlBook>> {
    let value = |line: &str, name: &str| {
        line.trim_start()
            .strip_prefix(name)?
            .trim_start()
            .strip_prefix(':')?
            .trim()
            .parse::<i64>()
            .ok()
    };
    let mut books = Vec::new();
    let (mut cpu, mut limit) = (None, None);
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("dl_rq[").and_then(|rest| rest.split_once(']')) {
            cpu = number.0.parse().ok();
            limit = None;
        } else if let Some(bits) = value(line, ".dl_bw->bw") {
            limit = Some(bits);
        } else if let Some(total) = value(line, ".dl_bw->total_bw") {
            books.push(DlBook { cpu: cpu.take()?, limit: limit.take()?, total });
        }
    }
    (!books.is_empty()).then_some(books)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_are_read_per_cpu() {
        let text = "cpu#0, 2300.000 MHz\n\ndl_rq[0]:\n  .dl_nr_running                 : 0\n  \
                    .dl_bw->bw                     : 996147\n  .dl_bw->total_bw               : 104856\n\n\
                    dl_rq[1]:\n  .dl_bw->bw                     : -1\n  .dl_bw->total_bw               : -7\n";
        let books = parse(text).expect("books");
        assert_eq!(books[0], DlBook { cpu: 0, limit: 996_147, total: 104_856 });
        assert_eq!(books[1], DlBook { cpu: 1, limit: -1, total: -7 });
        assert_eq!(parse("nothing of the kind"), None);
    }
}
