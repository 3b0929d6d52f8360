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
//! | `relay` | the bound on messages that wait for the object server |
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
mod relay;
mod service;

use anyhow::Context;
use interface::{BUS_NAME, OBJECT_PATH, RealtimeKit};
use options::Options;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use zbus::Address;
use zbus::address::Transport;
use zbus::address::transport::UnixSocket;
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

/// Time limit of a question to the bus about a caller.
const CREDENTIALS_TIME_OUT: Duration = Duration::from_millis(500);

/// Returns the system bus behind the relay; without it where the bus has no socket with a path.
fn system_bus() -> anyhow::Result<Builder<'static>> {
    let address = Address::system().context("the address of the system bus is wrong")?;
    let Transport::Unix(socket) = address.transport() else { return Ok(Builder::system()) };
    let UnixSocket::File(path) = socket.path() else { return Ok(Builder::system()) };
    let bus = UnixStream::connect(path)
        .with_context(|| format!("the system bus at {} cannot be reached", path.display()))?;
    Ok(Builder::unix_stream(relay::start(bus)?))
}

/// Serves the name until the connection to the bus ends.
async fn serve(options: Options) -> anyhow::Result<()> {
    let connection = system_bus()?
        .method_timeout(CREDENTIALS_TIME_OUT)
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
