//! `talea-rtkit`: the D-Bus name `org.freedesktop.RealtimeKit1`, answered by Talea's daemon.
//!
//! Model: a call of a program on the system bus becomes requests of this process to the daemon, in
//! the name of the calling process. The daemon decides by the rules of the user of that process.
//! This process needs no capability.
//!
//! | module | contents |
//! | --- | --- |
//! | `options` | the command line |
//! | `interface` | methods, properties and errors on the bus |
//! | `caller` | the process at the other end of a connection to the bus |
//! | `service` | the requests to the daemon |
//! | `published` | the values that programs read over D-Bus, for `talea doctor` |
//!
//! Invariants.
//!
//! 1. Properties need neither the daemon nor a right.
//! 2. The reply to a call follows within two seconds, whatever the daemon does: every request to
//!    the daemon has a time limit, and the number of calls in progress is bounded.
//! 3. No call has state in this process: a restart of it changes no grant.
#![forbid(unsafe_code)]

mod caller;
mod interface;
mod options;
mod published;
mod service;

use anyhow::Context;
use interface::{BUS_NAME, OBJECT_PATH, RealtimeKit};
use options::Options;
use zbus::connection::Builder;

fn main() -> anyhow::Result<()> {
    match options::parse(std::env::args_os().skip(1))? {
        options::Command::Serve(options) => zbus::block_on(serve(*options)),
        options::Command::PrintPublished => {
            print!("{}", zbus::block_on(published::published()));
            Ok(())
        }
        options::Command::Print(text) => {
            print!("{text}");
            Ok(())
        }
    }
}

/// Serves the name until the connection to the bus ends.
async fn serve(options: Options) -> anyhow::Result<()> {
    let connection = Builder::system()
        .serve_at(OBJECT_PATH, RealtimeKit::new(options))
        .name(BUS_NAME)
        .build()
        .await
        .with_context(|| {
            format!(
                "{BUS_NAME} cannot be served on the system bus; stop rtkit-daemon, and check the \
                 policy of the bus for this user"
            )
        })?;
    eprintln!("talea-rtkit: serving {BUS_NAME}");
    connection.closed().await;
    anyhow::bail!("the connection to the bus has ended")
}
