//! Decoding by libjpeg-turbo: only the crop's rows and columns, at a reduced scale where that suffices.
//!
//! The crate `turbojpeg` has no safe call for a cropping region, hence this wrapper over its raw bindings.
#![expect(
    unsafe_code,
    reason = "libjpeg-turbo is a C library and its crate does not wrap cropping"
)]

use std::ffi::{CStr, c_int};

use turbojpeg::raw;

use super::{
    decoder_input::{patched, rows},
    segments::{EOI, JpegHeader},
};
use crate::{
    ImageError, Region,
    pixel_buffer::{Decoded, room},
};

const MOST_SCANS: c_int = 64;

/// A libjpeg-turbo decompressor of one thread.
#[derive(Debug)]
pub(crate) struct Turbo(raw::tjhandle);

// SAFETY: a handle has no ties to the thread that made it, and `&mut self` keeps two threads from using it at once.
unsafe impl Send for Turbo {}

impl Drop for Turbo {
    fn drop(&mut self) {
        // SAFETY: the handle comes from `tj3Init`, is not null, and is not used afterwards.
        unsafe { raw::tj3Destroy(self.0) }
    }
}

impl Turbo {
    pub(super) fn new() -> Result<Self, ImageError> {
        // SAFETY: the call takes a constant and gives null or a handle that `drop` ends.
        let handle = unsafe { raw::tj3Init(raw::TJINIT_TJINIT_DECOMPRESS as c_int) };
        if handle.is_null() {
            return Err(ImageError::corrupt("libjpeg-turbo has no memory to start"));
        }
        let turbo = Self(handle);
        turbo.set(raw::TJPARAM_TJPARAM_SCANLIMIT, MOST_SCANS)?;
        // Colour profiles are not used, and a damaged one is no reason to refuse the pixels.
        turbo.set(raw::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        Ok(turbo)
    }

    fn set(&self, key: raw::TJPARAM, value: c_int) -> Result<(), ImageError> {
        // SAFETY: the handle is live; the call stores a number.
        self.check(unsafe { raw::tj3Set(self.0, key as c_int, value) })
    }

    fn get(&self, key: raw::TJPARAM) -> c_int {
        // SAFETY: the handle is live; the call reads a number.
        unsafe { raw::tj3Get(self.0, key as c_int) }
    }

    fn check(&self, result: c_int) -> Result<(), ImageError> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the handle is live; its message is a string with an end, which is copied before the next call.
        let text = unsafe { CStr::from_ptr(raw::tj3GetErrorStr(self.0)) };
        let text = text.to_string_lossy();
        // The first warning is the one that is kept. This one comes after the last row: of the rows below the crop. Where
        // data end in mid-scan there are no bytes before the marker, and the warning is another.
        if text.ends_with("extraneous bytes before marker 0xd9") {
            return Ok(());
        }
        Err(if text.contains("remature end") {
            ImageError::truncated("its data end before its last row")
        } else {
            ImageError::corrupt(text)
        })
    }

    /// Decodes what `region` needs into `pixels`.
    pub(super) fn decode(
        &mut self,
        encoded: &[u8],
        jpeg: &JpegHeader,
        region: &Region,
        (copy, pixels): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<Decoded, ImageError> {
        let eighths = region.eighths();
        let rows = rows(jpeg, region.bottom());
        let bytes = patched(encoded, jpeg, rows, (true, &EOI), copy);
        // SAFETY: `bytes` is readable for its length during the call, and the library keeps no pointer to it.
        self.check(unsafe {
            raw::tj3DecompressHeader(self.0, bytes.as_ptr(), bytes.len() as raw::size_t)
        })?;
        let sides = [
            self.get(raw::TJPARAM_TJPARAM_JPEGWIDTH),
            self.get(raw::TJPARAM_TJPARAM_JPEGHEIGHT),
        ];
        if sides != [c_int::from(jpeg.width), c_int::from(rows)] {
            return Err(ImageError::corrupt("its headers give different sizes"));
        }
        let denominator = 8 / eighths.cast_signed();
        let factor = raw::tjscalingfactor {
            num: 1,
            denom: denominator,
        };
        // SAFETY: the handle is live; the call stores two numbers.
        self.check(unsafe { raw::tj3SetScalingFactor(self.0, factor) })?;
        let part = self.region(jpeg, rows, region, eighths)?;
        let pixels = room(pixels, part.bytes());
        // SAFETY: `bytes` is readable for its length. The library writes `part.height` rows of `part.width` pixels of
        // three bytes, as set above for a header that it has read from the same bytes; `pixels` is as long as that.
        self.check(unsafe {
            raw::tj3Decompress8(
                self.0,
                bytes.as_ptr(),
                bytes.len() as raw::size_t,
                pixels.as_mut_ptr(),
                0,
                raw::TJPF_TJPF_RGB,
            )
        })?;
        Ok(part)
    }

    /// Passes the part to decode to the library: the box and one unit around it, which the
    /// upsampled colour at the box's edge needs. If it cannot crop, the whole image.
    fn region(
        &self,
        jpeg: &JpegHeader,
        rows: u16,
        wanted: &Region,
        eighths: u32,
    ) -> Result<Decoded, ImageError> {
        let scaled = |side: u32| (side * eighths).div_ceil(8);
        let (width, height) = (scaled(jpeg.width.into()), scaled(rows.into()));
        let (columns, lines) = (
            (jpeg.unit_columns * eighths / 8).max(1),
            (jpeg.unit_rows * eighths / 8).max(1),
        );
        let [left, right] = wanted.columns(eighths);
        let [top, bottom] = wanted.lines(eighths);
        let left = (left / columns).saturating_sub(1) * columns;
        let top = (top / lines).saturating_sub(1) * lines;
        let right = (right + columns).next_multiple_of(columns).min(width);
        let bottom = bottom.min(height);
        let region = raw::tjregion {
            x: left.cast_signed(),
            y: top.cast_signed(),
            w: (right - left).cast_signed(),
            h: (bottom - top).cast_signed(),
        };
        // SAFETY: the handle is live; the call checks and stores four numbers.
        if unsafe { raw::tj3SetCroppingRegion(self.0, region) } == 0 {
            return Ok(Decoded {
                left,
                top,
                width: right - left,
                height: bottom - top,
                eighths,
            });
        }
        let none = raw::tjregion {
            x: 0,
            y: 0,
            w: 0,
            h: 0,
        };
        // SAFETY: as above.
        self.check(unsafe { raw::tj3SetCroppingRegion(self.0, none) })?;
        Ok(Decoded {
            left: 0,
            top: 0,
            width,
            height,
            eighths,
        })
    }
}
