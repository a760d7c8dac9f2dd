//! From a foreign picture file to pixels: format by its first bytes, limits before decoding, strict decoding, cropping,
//! resizing with antialiasing, turning upright.
//!
//! ```text
//! bytes -> Header (format, sides, orientation; limits) -> Region -> Decoder: decode what it needs, resize, turn upright
//!       -> u8 RGB [height, width, 3]
//! ```
//!
//! Nothing is half done: a picture that is cut short or damaged within the region is an error and never a grey
//! rectangle. What the header promises is checked against the limits before memory is taken. The crate does no I/O and
//! starts no threads; each thread brings its own [`Decoder`], which keeps its memory.

mod codecs;
mod error;
mod format;
mod header;
mod jpeg;
mod limits;
mod orientation;
mod raw;
mod region;
mod resize;
pub mod rounding;
mod scratch;
#[cfg(test)]
mod testing;

pub use error::PictureError;
pub use format::Format;
pub use header::Header;
pub use limits::PictureLimits;
pub use orientation::Orientation;
pub use region::{Region, Target, UprightBox};
pub use scratch::Decoder;
