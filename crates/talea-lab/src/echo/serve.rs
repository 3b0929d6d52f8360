//! Echo server.

use super::MESSAGE;
use anyhow::Context;
use rustix::net::sockopt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use talea_core::mutate;
use talea_core::{Span, Work};
use talea_os::clock;
use talea_study::exit::Exit;
use talea_study::options;

/// Options of `talea-lab echo`.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Port to listen on, on this computer only; 0: any free port.
    #[arg(long)]
    port: u16,
    /// CPU time that it takes for a request: what its answer leaves of that it spins away.
    #[arg(long, value_name = "DURATION", default_value = "650us", value_parser = options::duration)]
    service: Span,
    /// Requests that may wait; more are dropped by the kernel. Without it, the kernel's default:
    /// some 250.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    queue: Option<u16>,
}

/// Time without a request after which the server ends, because no client needs it any more.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves requests until it is killed or [`IDLE_TIMEOUT`] has elapsed.
pub(crate) fn serve(args: &ServeArgs) -> anyhow::Result<Exit> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, args.port)).context("cannot listen")?;
    if let Some(queue) = args.queue {
        limit_queue(&socket, usize::from(queue)).context("cannot bound the queue")?;
    }
    socket.set_read_timeout(Some(IDLE_TIMEOUT))?;
    let mut request = [0; 2 * MESSAGE];
    loop {
        let (length, from) = match socket.recv_from(&mut request) {
            Ok(received) => received,
            // A stop and continuation of the program interrupts a wait with a time-out.
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

/// Limits the queue of the kernel to `requests` requests, so that the kernel drops further ones.
/// The buffer space of a request depends on the kernel, so the function finds the size by
/// bisection.
fn limit_queue(socket: &UdpSocket, requests: usize) -> anyhow::Result<()> {
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sender.connect(socket.local_addr()?)?;
    socket.set_nonblocking(true)?;
    // The upper limit is more than any request needs; both are in units of [`GRANULARITY`].
    let (mut few, mut enough) = (0, requests * 64);
    while enough - few > 1 {
        let middle = usize::midpoint(few, enough);
        if kept(socket, &sender, middle * GRANULARITY, requests)?
            >= mutate!("lab-l3c-queue", requests, 1)
        {
            enough = middle;
        } else {
            few = middle;
        }
    }
    sockopt::set_socket_recv_buffer_size(socket, enough * GRANULARITY)?;
    Ok(socket.set_nonblocking(false)?)
}

/// Unit of the buffer size in bytes, which the kernel doubles. A request needs several units.
const GRANULARITY: usize = 64;

/// Returns the number of requests that the kernel queues with a receive buffer of `bytes` bytes.
/// Sends `2 * wanted` requests and then drains the queue.
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
            limit_queue(&socket, requests).expect("a bound");
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            sender.connect(socket.local_addr().expect("its place")).expect("connected");
            socket.set_nonblocking(true).expect("a flag");
            for round in 0..3 {
                (0..3 * requests).for_each(|_| drop(sender.send(&[1; MESSAGE])));
                let mut request = [0; MESSAGE];
                let kept =
                    (0..3 * requests).take_while(|_| socket.recv(&mut request).is_ok()).count();
                // The kernel may return buffer space a little later than a request is read.
                assert!(
                    kept <= requests && kept * 4 >= requests * 3,
                    "{kept} of {requests}, round {round}"
                );
            }
        }
    }
}
