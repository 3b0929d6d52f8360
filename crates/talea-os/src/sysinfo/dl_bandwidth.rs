//! The kernel's accounting of deadline bandwidth, from `sched/debug` in debugfs.
//!
//! The values are for inspection only: to check that the kernel has released a released grant, too.
//! The format of the file is no stable interface, so missing values are `None`.

use super::sys_root::SysRoot;
use std::fs::File;
use std::io::{BufRead, BufReader};

const DEBUG: &str = "/sys/kernel/debug/sched/debug";

/// Deadline bandwidth of the root domain of a CPU, in units of 2^-20 CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlBandwidth {
    /// CPU of the section.
    pub cpu: u32,
    /// Limit per CPU; -1 stands for no limit.
    pub limit: i64,
    /// Total bandwidth admitted in the domain, fair servers included. Kernels with accounting
    /// errors go below zero.
    pub total: i64,
}

/// Reads the accounting of every CPU. Returns `None` where debugfs is not mounted or not readable.
/// CPUs of one root domain repeat the same numbers.
pub fn dl_bandwidth() -> Option<Vec<DlBandwidth>> {
    parse(&SysRoot::live().text(DEBUG).ok()?)
}

/// Returns the limit per CPU of the first root domain, in units of 2^-20 CPUs; -1 stands for no
/// limit. The function reads the file as far as the section of the first CPU.
pub(super) fn limit_per_cpu(root: &SysRoot) -> Option<i64> {
    let file = File::open(root.path(DEBUG)).ok()?;
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    lines.find_map(|line| value(&line, ".dl_bw->bw"))
}

/// Returns the number that follows `name` on a line.
fn value(line: &str, name: &str) -> Option<i64> {
    let rest = line.trim_start().strip_prefix(name)?.trim_start();
    rest.strip_prefix(':')?.trim().parse().ok()
}

/// Parses the file. The section of CPU N starts with `dl_rq[N]:`.
fn parse(text: &str) -> Option<Vec<DlBandwidth>> {
    let mut bandwidth = Vec::new();
    let (mut cpu, mut limit) = (None, None);
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("dl_rq[").and_then(|rest| rest.split_once(']')) {
            cpu = number.0.parse().ok();
            limit = None;
        } else if let Some(bits) = value(line, ".dl_bw->bw") {
            limit = Some(bits);
        } else if let Some(total) = value(line, ".dl_bw->total_bw") {
            bandwidth.push(DlBandwidth { cpu: cpu.take()?, limit: limit.take()?, total });
        }
    }
    (!bandwidth.is_empty()).then_some(bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bandwidth_is_parsed_per_cpu() {
        let text = "cpu#0, 2300.000 MHz\n\ndl_rq[0]:\n  .dl_nr_running                 : 0\n  \
                    .dl_bw->bw                     : 996147\n  .dl_bw->total_bw               : 104856\n\n\
                    dl_rq[1]:\n  .dl_bw->bw                     : -1\n  .dl_bw->total_bw               : -7\n";
        let bandwidth = parse(text).expect("bandwidth");
        assert_eq!(bandwidth[0], DlBandwidth { cpu: 0, limit: 996_147, total: 104_856 });
        assert_eq!(bandwidth[1], DlBandwidth { cpu: 1, limit: -1, total: -7 });
        assert_eq!(parse("nothing of the kind"), None);
    }
}
