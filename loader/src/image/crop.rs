//! Choice of the part of an image that is used.

use feedline_image::{UprightBox, rounding::whole};

use super::{Crop, ImageConfig, SampleRandom};

/// Operation of [`SampleRandom`] that draws the box.
const OPERATION: u32 = 0;

/// Chooses the box for an image of these upright sides.
pub(super) fn choose(
    config: &ImageConfig,
    (width, height): (u32, u32),
    random: &mut SampleRandom,
) -> UprightBox {
    match config.crop {
        Crop::RandomResized { scale, ratio } => {
            random.begin(OPERATION);
            random_box([width, height], scale, ratio, random)
        }
        Crop::Center { shorter_side } => {
            let kept = [config.width, config.height];
            UprightBox::centre([width, height], kept, shorter_side)
        }
        Crop::Whole => UprightBox::whole([width, height]),
    }
}

/// torchvision 0.29.2, `RandomResizedCrop.get_params`: the same distribution, drawn from another generator.
fn random_box(
    [width, height]: [u32; 2],
    scale: [f32; 2],
    ratio: [f32; 2],
    random: &mut SampleRandom,
) -> UprightBox {
    let (full_width, full_height) = (f64::from(width), f64::from(height));
    let logarithms = ratio.map(f32::ln);
    for _ in 0..10 {
        let area = full_width * full_height * random.within(scale);
        let aspect = random.within(logarithms).exp();
        let (box_width, box_height) = (
            whole((area * aspect).sqrt().round_ties_even()),
            whole((area / aspect).sqrt().round_ties_even()),
        );
        if (1..=width).contains(&box_width) && (1..=height).contains(&box_height) {
            let top = random.below(height - box_height + 1);
            let left = random.below(width - box_width + 1);
            return UprightBox::whole_pixels([left, top, box_width, box_height]);
        }
    }
    let aspect = full_width / full_height;
    let [least, most] = ratio.map(f64::from);
    let (mut box_width, mut box_height) = (width, height);
    if aspect < least {
        box_height = whole((full_width / least).round_ties_even()).clamp(1, height);
    } else if aspect > most {
        box_width = whole((full_height * most).round_ties_even()).clamp(1, width);
    }
    let (left, top) = ((width - box_width) / 2, (height - box_height) / 2);
    UprightBox::whole_pixels([left, top, box_width, box_height])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_box_is_as_likely() {
        let (mut lefts, mut tops) = ([0_u32; 3], [0_u32; 2]);
        for key in 0..3000 {
            let mut random = SampleRandom::new(4, 0, key);
            let third = [1.0 / 3.0; 2];
            let found = random_box([4, 3], third, [1.0; 2], &mut random);
            assert_eq!((whole(found.width), whole(found.height)), (2, 2));
            lefts[whole(found.left) as usize] += 1;
            tops[whole(found.top) as usize] += 1;
        }
        // Four standard deviations of a binomial count.
        assert!(lefts.iter().all(|n| n.abs_diff(1000) < 104), "{lefts:?}");
        assert!(tops.iter().all(|n| n.abs_diff(1500) < 110), "{tops:?}");
    }
}
