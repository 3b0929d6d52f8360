//! The client against a daemon that can be told to misbehave.

mod grants;
mod mock;
mod reconnect;
mod silence;
