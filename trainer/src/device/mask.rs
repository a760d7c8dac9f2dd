//! Dropout masks that a device draws itself.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use self::kernel::draw;
#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
pub(crate) use self::no_device::draw;

/// Values of a mask: 0 where a random number of 64 bits is below the threshold, else `kept`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaskValues {
    pub(crate) threshold: u64,
    pub(crate) kept: f32,
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
mod no_device {
    use std::ops::Range;

    use burn::tensor::{Device, Tensor};

    use super::MaskValues;
    use crate::random::Stream;

    /// `None`: the processor is the only device of this build, and needs no kernel.
    pub(crate) const fn draw(
        _stream: Stream,
        _elements: Range<u64>,
        _values: MaskValues,
        _device: &Device,
    ) -> Option<Tensor<1>> {
        None
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[expect(
    clippy::cast_possible_truncation,
    reason = "halves of a number are wanted, and a tensor has fewer than 2^32 elements"
)]
mod kernel {
    use std::ops::Range;

    use burn::{
        backend::Cube,
        tensor::{Device, Tensor as DeviceTensor},
    };
    use cubecl::{calculate_cube_count_elemwise, prelude::*};

    use super::MaskValues;
    use crate::{device::is_processor, random::Stream};

    /// The mask of these elements, by the random numbers of a stream at their places; `None` on the processor, which needs no
    /// kernel. The same bits as those of [`Stream::bits`].
    pub(crate) fn draw(
        stream: Stream,
        elements: Range<u64>,
        values: MaskValues,
        device: &Device,
    ) -> Option<DeviceTensor<1>> {
        if is_processor(device) || elements.is_empty() {
            return None;
        }
        let count = usize::try_from(elements.end - elements.start).ok()?;
        let mask = DeviceTensor::<1>::empty([count], &device.clone().inner());
        let mask = mask.try_into_primitive::<Cube>().ok()?;
        let dim = CubeDim::new(&mask.client, count);
        let [start, threshold] = [stream.start(elements.start), values.threshold].map(words);
        fill_mask::launch(
            &mask.client,
            calculate_cube_count_elemwise(&mask.client, count, dim),
            dim,
            mask.clone().into_tensor_arg(),
            start[0],
            start[1],
            threshold[0],
            threshold[1],
            values.kept,
        );
        let mask = DeviceTensor::from_primitive::<Cube>(mask);
        let tracks = device.is_autodiff();
        Some(if tracks { mask.autodiff() } else { mask })
    }

    /// Low and high half.
    const fn words(number: u64) -> [u32; 2] {
        [number as u32, (number >> 32) as u32]
    }

    /// SplitMix64 from `start` on, in numbers of two words each, as not every device has wider ones.
    #[cube(launch)]
    fn fill_mask(
        mask: &mut Tensor<f32>,
        start_low: u32,
        start_high: u32,
        threshold_low: u32,
        threshold_high: u32,
        kept: f32,
    ) {
        if ABSOLUTE_POS >= mask.len() {
            terminate!();
        }
        let place = ABSOLUTE_POS as u32;
        // The place times 0x9E37_79B9_7F4A_7C15.
        let mut low = low_word(place, 0x7F4A_7C15_u32);
        let mut high = high_word(place, 0x7F4A_7C15_u32) + low_word(place, 0x9E37_79B9_u32);
        low += start_low;
        high += start_high;
        if low < start_low {
            high += 1;
        }
        let mut a = low ^ ((low >> 30) | (high << 2));
        let mut b = high ^ (high >> 30);
        // Times 0xBF58_476D_1CE4_E5B9.
        low = low_word(a, 0x1CE4_E5B9_u32);
        high = high_word(a, 0x1CE4_E5B9_u32)
            + low_word(a, 0xBF58_476D_u32)
            + low_word(b, 0x1CE4_E5B9_u32);
        a = low ^ ((low >> 27) | (high << 5));
        b = high ^ (high >> 27);
        // Times 0x94D0_49BB_1331_11EB.
        low = low_word(a, 0x1331_11EB_u32);
        high = high_word(a, 0x1331_11EB_u32)
            + low_word(a, 0x94D0_49BB_u32)
            + low_word(b, 0x1331_11EB_u32);
        a = low ^ ((low >> 31) | (high << 1));
        b = high ^ (high >> 31);
        let is_below = b < threshold_high || (b == threshold_high && a < threshold_low);
        mask[ABSOLUTE_POS] = select(is_below, 0.0, kept);
    }

    /// Low word of a product.
    #[cube]
    fn low_word(a: u32, b: u32) -> u32 {
        a * b
    }

    /// High word of a product, from products of halves of words.
    #[cube]
    fn high_word(a: u32, b: u32) -> u32 {
        let a_low = a & 0xFFFF;
        let a_high = a >> 16;
        let b_low = b & 0xFFFF;
        let b_high = b >> 16;
        let cross = a_low * b_high;
        let other = a_high * b_low;
        let middle = ((a_low * b_low) >> 16) + (cross & 0xFFFF) + (other & 0xFFFF);
        a_high * b_high + (cross >> 16) + (other >> 16) + (middle >> 16)
    }
}
