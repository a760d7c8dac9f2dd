//! Fuzz targets of the files of a training.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

pub use crate::checkpoint::fuzzing::checkpoint;

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    super::replay::replays! { checkpoint }
}
