//! The command line as its users meet it: the real binary in a scratch folder.
//!
//! Model: most tests talk to a daemon that the test itself plays ([`fake`]), so every answer,
//! refusal and failure is had at will, without rights and without luck. Texts are compared with
//! files under `snapshots/`, which `TALEA_BLESS=1` writes anew. What needs a real kernel and rights
//! is in [`live`].

mod analyze;
mod answers;
mod browser;
mod chapters;
mod check;
mod compare;
mod execute;
mod exits;
mod fake;
mod generate;
mod generated;
mod harness;
mod import;
mod l3c;
mod lab;
mod lab_live;
mod live;
mod manual;
mod native;
mod new;
mod perfetto;
mod random;
mod rows;
mod run;
mod shares;
mod simulate;
mod stops;
mod sweep;
mod synthesize;
mod systems;
mod witness;
