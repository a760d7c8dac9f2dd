//! Fuzz targets: each reads the bytes of one foreign format, and checks what must hold for any bytes.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

pub use crate::{
    html::fuzzing::{html, robots, sitemap},
    pagination::fuzzing::link_header,
};

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! {
        html link_header robots sitemap
    }
}
