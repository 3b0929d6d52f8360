//! What must hold for any bytes given to `talea-proto`. Panics where it does not.

/// As a request, as a reply and as a record of the state file: no panic, and what is understood has
/// one encoding.
pub(crate) fn wire(bytes: &[u8]) {
    talea_proto::wire::fuzz_wire(bytes);
}
