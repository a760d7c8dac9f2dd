//! Fuzz targets of feedline, one program for each file in `fuzz_targets/`.
//!
//! The functions that they call are in the module `fuzzing` of each crate, whose tests replay
//! `corpus/`.

#![warn(missing_docs)]

/// Reports panics without an abort. Some decoders panic on damaged files, and their callers turn
/// that into an error; a panic that is not caught still ends the program.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}
