//! Client side of `talead stop`.

use std::path::Path;
use std::time::Duration;
use talea_os::seqpacket;
use talea_proto::wire::decode_reply;
use talea_proto::{MESSAGE_MAX, Reply, Request, VERSION};

/// Time-out of a request: restoring thousands of threads takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests the daemon at `socket` to stop; with `release` it first releases every grant.
///
/// # Errors
/// The reason of the failure, as a sentence.
pub fn stop(socket: &Path, release: bool) -> Result<(), String> {
    let daemon = seqpacket::connect(socket, PATIENCE)
        .map_err(|error| format!("no daemon answers at {}: {error}", socket.display()))?;
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut ask = |seq: u32, request: Request| -> Result<Reply, String> {
        let length = request.encode(seq, &mut buffer[..]);
        seqpacket::send_waiting(&daemon, &buffer[..length], None)
            .map_err(|error| error.to_string())?;
        let received =
            seqpacket::recv_waiting(&daemon, &mut buffer).map_err(|error| error.to_string())?;
        match decode_reply(&buffer[..received.len]) {
            Ok((_, reply)) => Ok(reply),
            Err(_) if received.len == 0 => Err("the daemon closed the connection".to_owned()),
            Err(_) => Err(
                "the daemon's reply could not be decoded; update the older of daemon and client"
                    .to_owned(),
            ),
        }
    };
    match ask(1, Request::Hello { min: VERSION, max: VERSION })? {
        Reply::Welcome { .. } => {}
        Reply::Refused(refusal) => {
            return Err(format!("the daemon refused: {}", crate::text::one_line(&refusal)));
        }
        _ => {
            return Err(
                "the daemon's reply could not be decoded; update the older of daemon and client"
                    .to_owned(),
            );
        }
    }
    match ask(2, Request::Stop { release })? {
        Reply::Done => Ok(()),
        Reply::Refused(refusal) => {
            Err(format!("the daemon refused: {}", crate::text::one_line(&refusal)))
        }
        _ => Err("the daemon's reply could not be decoded; update the older of daemon and client"
            .to_owned()),
    }
}
