//! Functions of one number that a compiler can compute for many at once, without branches or calls; and sums.

/// `exp(x)`, to 1e-7 of its value, for `x` between -87 and 88; as at those bounds beyond them, and NaN for NaN.
///
/// `exp(x) = 2^n exp(r)` with `n` the nearest whole number to `x / ln 2` and the polynomial of the Cephes library's
/// `expf` for `exp(r)`.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Added to a small number, this leaves it rounded to a whole number in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_6e-1;
    let p = p * r + 5e-1;
    let of_r = p * (r * r) + r + 1.0;
    of_r * f32::from_bits(rounded.to_bits().wrapping_add(127) << 23)
}

/// The error function, to 5e-7: the rational function that the Eigen library has for f32, `x P(x^2) / Q(x^2)`, 1 from
/// `x = 4` on.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    let p = -2.726_142_3e-10;
    let p = p * square + 2.770_681_5e-8;
    let p = p * square - 2.101_024e-6;
    let p = p * square - 5.692_506_4e-5;
    let p = p * square - 7.349_906_4e-4;
    let p = p * square - 2.954_6e-3;
    let p = p * square - 1.609_603_3e-2;
    let q = -1.456_607_15e-5;
    let q = q * square - 2.133_740_5e-4;
    let q = q * square - 1.682_827e-3;
    let q = q * square - 7.373_329_3e-3;
    let q = q * square - 1.426_473_9e-2;
    x * p / q
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent, to 5e-7 of its value, also after Eigen; as at 7.9 beyond it.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let x = x.clamp(-7.9, 7.9);
    let square = x * x;
    let p = -2.760_768_4e-16;
    let p = p * square + 2.000_188e-13;
    let p = p * square - 8.604_672e-11;
    let p = p * square + 5.122_297_3e-8;
    let p = p * square + 1.485_722_35e-5;
    let p = p * square + 6.372_619_5e-4;
    let p = p * square + 4.893_524_6e-3;
    let q = 1.198_258_4e-6;
    let q = q * square + 1.185_347_1e-4;
    let q = q * square + 2.268_434_7e-3;
    let q = q * square + 4.893_525e-3;
    x * p / q
}

/// In sixteen sums side by side, so that the order does not depend on the machine.
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<16>();
    let mut sums = [0.0; 16];
    for numbers in whole {
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
    }
    sums.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// The sum of the products of numbers at the same place, added as in [`sum`].
#[inline(always)]
pub(super) fn sum_of_products(x: &[f32], y: &[f32]) -> f32 {
    let ((whole_x, rest_x), (whole_y, rest_y)) = (x.as_chunks::<16>(), y.as_chunks::<16>());
    let mut sums = [0.0; 16];
    for (x, y) in whole_x.iter().zip(whole_y) {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum += x * y;
        }
    }
    let rest = rest_x.iter().zip(rest_y).map(|(x, y)| x * y);
    sums.iter().sum::<f32>() + rest.sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest difference of `found` and `expected` over a range, relative to the values or not.
    fn largest(
        range: [f32; 2],
        relative: bool,
        found: fn(f32) -> f32,
        expected: fn(f64) -> f64,
    ) -> f64 {
        let mut largest = 0.0_f64;
        let mut x = range[0];
        while x < range[1] {
            let expected = expected(f64::from(x));
            let scale = if relative { expected.abs() } else { 1.0 };
            largest = largest.max((f64::from(found(x)) - expected).abs() / scale);
            x += 1e-4;
        }
        largest
    }

    /// The error function in f64, by the Taylor series of its integral (Abramowitz and Stegun, 7.1.6).
    fn reference(x: f64) -> f64 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= 2.0 * x * x / (2.0 * f64::from(n) + 1.0);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
    }

    #[test]
    fn values_are_as_near_as_said() {
        assert!(largest([-86.9, 87.9], true, exp, f64::exp) < 1e-7);
        assert!(largest([-4.5, 4.5], false, erf, reference) < 5e-7);
        assert!(largest([1e-4, 9.0], true, tanh, f64::tanh) < 5e-7);
        assert!(largest([-9.0, 1.0], false, tanh, f64::tanh) < 5e-7);
        assert!(largest([-20.0, 20.0], false, sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 2e-7);
    }

    #[test]
    fn sums_are_those_of_all_numbers() {
        for len in [0_u8, 1, 15, 16, 17, 40] {
            let x: Vec<f32> = (0..len).map(|i| f32::from(i) + 1.0).collect();
            let n = f32::from(len);
            assert!((sum(&x) - n * (n + 1.0) / 2.0).abs() < 1e-3);
            let squares = n * (n + 1.0) * (2.0 * n + 1.0) / 6.0;
            assert!((sum_of_products(&x, &x) - squares).abs() < 1e-2);
        }
    }

    #[test]
    fn far_numbers_and_nan_stay_what_they_are() {
        assert!(exp(-1e9) < 1e-37 && exp(1e9) > 1e38);
        assert!((erf(1e9) - 1.0).abs() < 5e-7 && (erf(-1e9) + 1.0).abs() < 5e-7);
        assert!(exp(f32::NAN).is_nan() && erf(f32::NAN).is_nan());
        assert!(sigmoid(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }
}
