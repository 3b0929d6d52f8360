//! Tests of the client against a mock daemon that misbehaves on request.

mod grants;
mod mock;
mod reconnect;
mod silence;
