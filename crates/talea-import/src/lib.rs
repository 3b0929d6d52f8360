//! Imports: files of other programs to Talea's files.
//!
//! Model: each import is a function from texts to a text. Talea's own reader reads the result once.
//! An import reports the diagnostics of the reader at the position in the imported file that they
//! come from. So an imported file is a file that loads. A part that Talea's files cannot express is
//! an error with its position, never left out silently. A comment at the top of the result
//! describes a part that is expressed differently.

//!
//! The daemon does not link this crate, nor its parsers of YAML, XML and JSON.
#![forbid(unsafe_code)]

mod a653;
mod json;
mod lines;
mod names;
mod poet;
mod retif;
mod rtapp;
mod sf3p;
mod system_file;

pub use a653::a653;
pub use poet::poet;
pub use retif::retif;
pub use rtapp::rtapp;
pub use sf3p::sf3p;
pub use system_file::File;
