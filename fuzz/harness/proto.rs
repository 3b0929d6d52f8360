//! Properties of `talea-proto` that must hold for any bytes. Panics where one does not.

/// Decodes the bytes as a request, as a reply and as a record of the state file: no panic, and what
/// is decoded has one encoding.
pub(crate) fn wire(bytes: &[u8]) {
    talea_proto::wire::fuzz_wire(bytes);
}
