//! From a foreign image file to pixels: format by its first bytes, limits before decoding, strict decoding, cropping,
//! resizing with antialiasing, turning upright.
//!
//! ```text
//! bytes -> Header (format, sides, orientation; limits) -> Region -> Decoder: decode what it needs, resize, turn upright
//!       -> u8 RGB [height, width, 3]
//! Preparer: the same with a Sizing, then an Encoding: the file that a shard holds, sums for the moments of its channels,
//!           and hashes that duplicates are found by
//! ```
//!
//! Nothing is half done: an image that is truncated or damaged within the region is an error and
//! never a grey rectangle. The sizes in the header are checked against the limits before memory is
//! allocated. The crate starts no threads and no processes, and only reads and writes its
//! arguments; each thread brings its own [`Decoder`], which keeps its memory. [`serve`] and
//! [`Remote`] are the two ends of decoding in another process.
//!
//! A PNG file, decoded at half its size:
//!
//! ```
//! use feedline_image::{
//!     Decoder, Encoding, Filter, Format, Header, ImageLimits, Target, UprightBox,
//! };
//!
//! let grey = vec![128; 8 * 6 * 3];
//! let file = Encoding::Png.encode(&grey, 8, 6)?;
//! let header = Header::read(&file, Format::ALL, &ImageLimits::DEFAULT)?;
//! assert_eq!((header.format(), header.upright_sides()), (Format::Png, (8, 6)));
//! let filter = Filter::Bilinear;
//! let target = Target { width: 4, height: 3, filter, scaled_decoding: false };
//! let region = UprightBox::whole([8, 6]).stored(&header, target);
//! let mut pixels = vec![0; target.bytes()];
//! Decoder::default().decode(&file, &header, &region, &mut pixels)?;
//! assert_eq!(pixels, [128; 4 * 3 * 3]);
//! # Ok::<(), feedline_image::ImageError>(())
//! ```

mod bmp;
mod codecs;
mod decoder;
mod encode;
mod error;
mod filter;
mod format;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gif;
mod hash;
mod header;
mod header_reader;
mod jpeg;
mod limits;
mod mapping;
mod near;
mod orientation;
mod pixel_buffer;
mod png;
mod prepare;
mod process;
mod raw;
mod region;
mod resize;
pub mod rounding;
mod scratch;
mod sizing;
#[cfg(test)]
mod testing;
mod tiff;
mod webp;

pub use decoder::Decoder;
pub use encode::Encoding;
pub use error::ImageError;
pub use filter::Filter;
pub use format::Format;
pub use hash::{ImageHashes, Looks};
pub use header::Header;
pub use limits::{Bound, ImageLimits};
pub use mapping::Mapping;
pub use near::{Groups, MOST_BITS, perceptual};
pub use orientation::Orientation;
pub use prepare::{ChannelSums, Preparation, Prepared, Preparer};
pub use process::{Remote, serve};
pub use region::{Region, Target, UprightBox};
pub use sizing::Sizing;
