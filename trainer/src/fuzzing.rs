//! Fuzz targets of the files of a training.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

pub use crate::checkpoint::fuzzing::checkpoint;

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! { checkpoint }
}
