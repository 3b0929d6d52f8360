//! The echo server.

use super::MESSAGE;
use crate::args::task;
use crate::exit::Exit;
use anyhow::Context;
use rustix::net::sockopt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use talea_core::mutate;
use talea_core::{Span, Work};
use talea_os::clock;

/// Options of `talea lab echo`.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Port to listen on, on this computer only; 0: any free port.
    #[arg(long)]
    port: u16,
    /// CPU time that it takes for a request: what its answer leaves of that it spins away.
    #[arg(long, value_name = "DURATION", default_value = "650us", value_parser = task::duration)]
    service: Span,
    /// Requests that may wait; more are dropped by the kernel. Without it, the kernel's default:
    /// some 250.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    queue: Option<u16>,
}

/// Time without a request after which the server ends: its starter has forgotten it.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// Serves until it is ended or forgotten.
pub(crate) fn serve(args: &ServeArgs) -> anyhow::Result<Exit> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, args.port)).context("cannot listen")?;
    if let Some(queue) = args.queue {
        bound(&socket, usize::from(queue)).context("cannot bound the queue")?;
    }
    socket.set_read_timeout(Some(FORGOTTEN))?;
    let mut request = [0; 2 * MESSAGE];
    loop {
        let (length, from) = match socket.recv_from(&mut request) {
            Ok(received) => received,
            // A stopped and continued program has its waits with a time-out interrupted.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Exit::Ok),
            Err(error) => return Err(error).context("cannot receive"),
        };
        let end = clock::thread_cpu_time().checked_add(Work::from_ns(args.service.as_ns()));
        let answer = super::answer(&request[..length]);
        while end.is_some_and(|end| clock::thread_cpu_time() < end) {}
        // The client may have ended.
        let _ = socket.send_to(&answer, from);
    }
}

/// Makes the kernel keep so many requests, and drop what comes beyond. What one takes of its buffer
/// is the kernel's own affair: it is tried.
fn bound(socket: &UdpSocket, requests: usize) -> anyhow::Result<()> {
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sender.connect(socket.local_addr()?)?;
    socket.set_nonblocking(true)?;
    // More than any request takes; and the grain to which it is found.
    let (mut few, mut enough) = (0, requests * 64);
    while enough - few > 1 {
        let middle = usize::midpoint(few, enough);
        if kept(socket, &sender, middle * GRAIN, requests)? >= mutate!("lab-l3c-queue", requests, 1)
        {
            enough = middle;
        } else {
            few = middle;
        }
    }
    sockopt::set_socket_recv_buffer_size(socket, enough * GRAIN)?;
    Ok(socket.set_nonblocking(false)?)
}

/// Bytes; the kernel doubles them. A request takes several of these.
const GRAIN: usize = 64;

/// Returns how many requests the kernel queues when twice `wanted` were sent and none was read.
fn kept(
    socket: &UdpSocket,
    sender: &UdpSocket,
    bytes: usize,
    wanted: usize,
) -> anyhow::Result<usize> {
    sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    for _ in 0..2 * wanted {
        sender.send(&[0; MESSAGE])?;
    }
    let mut request = [0; MESSAGE];
    let mut kept = 0;
    while socket.recv(&mut request).is_ok() {
        kept += 1;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l18_the_kernel_queues_as_many_requests_as_configured_and_drops_the_rest() {
        for requests in [4, 16, 64] {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            bound(&socket, requests).expect("a bound");
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            sender.connect(socket.local_addr().expect("its place")).expect("connected");
            socket.set_nonblocking(true).expect("a flag");
            for round in 0..3 {
                (0..3 * requests).for_each(|_| drop(sender.send(&[1; MESSAGE])));
                let mut request = [0; MESSAGE];
                let kept =
                    (0..3 * requests).take_while(|_| socket.recv(&mut request).is_ok()).count();
                // The kernel may give back room a little later than it is left.
                assert!(
                    kept <= requests && kept * 4 >= requests * 3,
                    "{kept} of {requests}, round {round}"
                );
            }
        }
    }
}
