//! `talea release`: releases grants.

use crate::args::ReleaseArgs;
use crate::broker_client::{BrokerClient, Options, exit_of};
use talea_os::{Tid, proc};
use talea_proto::{SpecId, SpecInfo};
use talea_study::exit::Exit;
use talea_study::output::{note, print};

pub(crate) fn run(options: &Options, args: &ReleaseArgs) -> anyhow::Result<Exit> {
    let mut link = BrokerClient::open(options)?;
    let specs = match args.pid {
        None => args.specs.iter().map(|&spec| SpecId(spec)).collect(),
        Some(pid) => {
            let of = |info: &SpecInfo| belongs(info, pid);
            let specs: Vec<SpecId> = link
                .specs()?
                .iter()
                .filter(|info| of(info))
                .map(|info| info.granted.spec)
                .collect();
            if specs.is_empty() {
                anyhow::bail!("no thread of {pid} is under a grant; talea list shows what is");
            }
            specs
        }
    };
    // A failure does not prevent the release of the others.
    let mut exit = Exit::Ok;
    for spec in specs {
        match link.release(spec) {
            Ok(()) if options.verbose => print(&format!("spec {} is released\n", spec.0))?,
            Ok(()) => {}
            Err(error) => {
                note(&format!("spec {}: {error:#}", spec.0));
                exit = exit_of(&error);
            }
        }
    }
    Ok(exit)
}

/// Whether the spec's thread has number `pid`, or belongs to the process `pid`.
fn belongs(info: &SpecInfo, pid: i32) -> bool {
    let Some(tid) = info.tid.and_then(|tid| Tid::new(i32::try_from(tid).ok()?)) else {
        return false;
    };
    tid.as_raw() == pid || proc::status(tid).is_ok_and(|status| status.tgid.as_raw() == pid)
}
