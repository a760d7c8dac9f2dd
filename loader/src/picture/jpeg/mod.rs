//! JPEG: the segments before the first scan, and decoding the rows that a crop needs.

mod decode;
mod segments;
#[cfg(feature = "turbojpeg")]
mod turbo;

pub(super) use decode::decode;
pub(super) use segments::JpegHeader;
#[cfg(feature = "turbojpeg")]
pub(super) use turbo::Turbo;
