//! Resizing with an antialiased filter, and turning upright.
//!
//! Filters are Pillow's, in fixed point: of `BILINEAR` a triangle as wide as two output pixels when shrinking, two input
//! pixels when enlarging. Results are within one level of Pillow's, whose passes are in the other order.

use fast_image_resize::{
    ImageView, ResizeAlg, ResizeError, ResizeOptions, Resizer,
    images::{TypedCroppedImage, TypedImage, TypedImageRef},
    pixels::U8x3,
};

use crate::{
    ImageError, Orientation, Region, pixel_buffer::Decoded, rounding::whole, scratch::Scratch,
};

/// Resizes the region's part of what was decoded to `out`, turned upright.
pub(crate) fn resize(
    decoded: &Decoded,
    region: &Region,
    turn: Orientation,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Result<(), ImageError> {
    let Scratch {
        pixels,
        turned,
        resizer,
        ..
    } = scratch;
    let upright = turn == Orientation::default();
    let (width, height) = if turn.transpose {
        (region.target.height, region.target.width)
    } else {
        (region.target.width, region.target.height)
    };
    if upright {
        return run(resizer, pixels, decoded, region, (width, height), out);
    }
    turned.resize(out.len(), 0);
    run(resizer, pixels, decoded, region, (width, height), turned)?;
    turn.apply(turned, width as usize, out);
    Ok(())
}

fn run(
    resizer: &mut Resizer,
    pixels: &[u8],
    decoded: &Decoded,
    region: &Region,
    (width, height): (u32, u32),
    out: &mut [u8],
) -> Result<(), ImageError> {
    let bug = |e: &dyn std::fmt::Display| ImageError::corrupt(format!("it cannot be resized: {e}"));
    let source = TypedImageRef::<U8x3>::from_buffer(
        decoded.width,
        decoded.height,
        &pixels[..decoded.bytes()],
    )
    .map_err(|e| bug(&e))?;
    let mut target = TypedImage::from_buffer(width, height, out).map_err(|e| bug(&e))?;
    let filter = ResizeAlg::Convolution(region.target.filter.r#type());
    let options = ResizeOptions::new().resize_alg(filter);
    let scale = f64::from(decoded.eighths) / 8.0;
    let (left, top) = (
        region.left * scale - f64::from(decoded.left),
        region.top * scale - f64::from(decoded.top),
    );
    let (box_width, box_height) = (region.width * scale, region.height * scale);
    let result: Result<(), ResizeError> = if region.sees_beside || decoded.eighths != 8 {
        // A box computed in floating point may leave the image by a rounding error.
        let left = left.clamp(0.0, f64::from(source.width()) - 1e-6);
        let top = top.clamp(0.0, f64::from(source.height()) - 1e-6);
        let options = options.crop(
            left,
            top,
            box_width.min(f64::from(source.width()) - left),
            box_height.min(f64::from(source.height()) - top),
        );
        resizer.resize_typed(&source, &mut target, &options)
    } else {
        let [left, top, box_width, box_height] = [left, top, box_width, box_height].map(whole);
        let part = TypedCroppedImage::from_ref(&source, left, top, box_width, box_height)
            .map_err(|e| bug(&e))?;
        resizer.resize_typed(&part, &mut target, &options)
    };
    result.map_err(|e| bug(&e))
}
