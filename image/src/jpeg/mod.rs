//! JPEG: the segments before the first scan, and decoding the rows that a crop needs.

mod decode;
mod decoder_input;
mod segments;
#[cfg(feature = "turbojpeg")]
mod turbo;

pub(crate) use decode::decode;
pub(crate) use segments::JpegHeader;
#[cfg(feature = "turbojpeg")]
pub(crate) use turbo::Turbo;
