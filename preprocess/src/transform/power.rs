//! Power transforms of one number, their inverses and their slopes: logarithms and powers are those of a library of our
//! own build, so that they are the same bits on every machine.
//!
//! Yeo-Johnson (Biometrika 87(4), 2000, equation 2.1), for any number:
//! `((1+x)^λ - 1) / λ` for `x ≥ 0`, `-((1-x)^(2-λ) - 1) / (2-λ)` for `x < 0`, with logarithms where the power is 0.
//! Box-Cox (J. R. Stat. Soc. B 26(2), 1964, section 2), for numbers above 0: `(x^λ - 1) / λ`, or `ln x`.
//! Both are written as [`raised`] of a logarithm, `(e^(λl) - 1) / λ`, which loses no digits where λ or the logarithm is small.
//!
//! Infinities stay infinite also where a limit is finite: nothing here hides one.

use feedline_schemas::config::PowerMethod;
use libm::{exp, expm1, log, log1p};

/// `(e^(λl) - 1) / λ`; `l` for λ = 0.
fn raised(l: f64, lambda: f64) -> f64 {
    match lambda == 0.0 {
        true => l,
        false => expm1(lambda * l) / lambda,
    }
}

/// The `l` that [`raised`] makes `y` of; infinite where none does.
fn lowered(y: f64, lambda: f64) -> f64 {
    match lambda == 0.0 {
        true => y,
        false => log1p((lambda * y).max(-1.0)) / lambda,
    }
}

/// Growth of [`raised`] with λ: `(l·e^(λl) - raised) / λ`, which is `l²·(e^t·(t - 1) + 1) / t²`
/// with `t = λl`.
fn growth(l: f64, lambda: f64) -> f64 {
    /// Below it the formula loses more digits than the series leaves out.
    const SMALL: f64 = 0.5;
    let t = lambda * l;
    let factor = if t.abs() < SMALL {
        series(t)
    } else {
        (exp(t) * (t - 1.0) + 1.0) / (t * t)
    };
    l * l * factor
}

/// `Σ t^k · (k+1) / (k+2)!`, to where terms no longer count for `|t| < 1/2`.
fn series(t: f64) -> f64 {
    let (mut power, mut factorial, mut sum) = (1.0, 2.0, 0.0);
    for k in 0..16_u8 {
        let k = f64::from(k);
        sum += power * (k + 1.0) / factorial;
        power *= t;
        factorial *= k + 3.0;
    }
    sum
}

/// The transform. A number that it is not defined for is minus infinity: below all others.
pub(crate) fn power(x: f64, method: PowerMethod, lambda: f64) -> f64 {
    if !x.is_finite() {
        return x;
    }
    match method {
        PowerMethod::YeoJohnson if x < 0.0 => -raised(log1p(-x), 2.0 - lambda),
        PowerMethod::YeoJohnson => raised(log1p(x), lambda),
        PowerMethod::BoxCox if x < 0.0 => f64::NEG_INFINITY,
        PowerMethod::BoxCox => raised(log(x), lambda),
    }
}

/// Inverse of [`power`]; infinite beyond its range.
pub(crate) fn unpower(y: f64, method: PowerMethod, lambda: f64) -> f64 {
    match method {
        PowerMethod::YeoJohnson if y < 0.0 => -expm1(lowered(-y, 2.0 - lambda)),
        PowerMethod::YeoJohnson => expm1(lowered(y, lambda)),
        PowerMethod::BoxCox => exp(lowered(y, lambda)),
    }
}

/// Growth of [`power`] of a finite number with λ.
pub(crate) fn slope(x: f64, method: PowerMethod, lambda: f64) -> f64 {
    match method {
        // The power falls as λ grows, and the sign turns: once for the number, once for the power.
        PowerMethod::YeoJohnson if x < 0.0 => growth(log1p(-x), 2.0 - lambda),
        PowerMethod::YeoJohnson => growth(log1p(x), lambda),
        PowerMethod::BoxCox => growth(log(x), lambda),
    }
}

/// Term of a number in the logarithm of the transform's Jacobian for each unit of λ:
/// `sign(x)·ln(1+|x|)`, or `ln x`.
pub(crate) fn weight(x: f64, method: PowerMethod) -> f64 {
    match method {
        PowerMethod::YeoJohnson if x < 0.0 => -log1p(-x),
        PowerMethod::YeoJohnson => log1p(x),
        PowerMethod::BoxCox => log(x),
    }
}

/// `ln(1 + x)`; minus infinity from -1 down.
pub(crate) fn logarithm(x: f64) -> f64 {
    if x <= -1.0 {
        f64::NEG_INFINITY
    } else {
        log1p(x)
    }
}

/// Inverse of [`logarithm`].
pub(crate) fn unlogarithm(y: f64) -> f64 {
    expm1(y)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: [PowerMethod; 2] = [PowerMethod::YeoJohnson, PowerMethod::BoxCox];

    fn close(a: f64, b: f64, limit: f64) {
        assert!((a - b).abs() <= limit * b.abs().max(1e-3), "{a:e} {b:e}");
    }

    fn same(a: f64, b: f64) {
        assert_eq!(a.to_bits(), b.to_bits(), "{a:e} {b:e}");
    }

    #[test]
    fn the_powers_are_those_of_the_papers() {
        use PowerMethod::{BoxCox, YeoJohnson};
        close(power(3.0, YeoJohnson, 2.0), 7.5, 1e-15);
        close(power(3.0, YeoJohnson, 0.0), 4f64.ln(), 1e-15);
        close(power(-3.0, YeoJohnson, 1.0), -3.0, 1e-15);
        close(power(-3.0, YeoJohnson, 2.0), -4f64.ln(), 1e-15);
        close(power(-3.0, YeoJohnson, 0.0), -7.5, 1e-15);
        close(power(3.0, BoxCox, 2.0), 4.0, 1e-15);
        close(power(3.0, BoxCox, 0.0), 3f64.ln(), 1e-15);
        close(power(3.0, BoxCox, -1.0), 2.0 / 3.0, 1e-15);
    }

    #[test]
    fn a_power_near_none_loses_no_digits() {
        for lambda in [1e-300, 1e-17, -1e-12] {
            close(
                power(9.0, PowerMethod::YeoJohnson, lambda),
                10f64.ln(),
                1e-11,
            );
            close(power(9.0, PowerMethod::BoxCox, lambda), 9f64.ln(), 1e-11);
        }
    }

    #[test]
    fn infinities_stay_and_what_is_not_defined_is_below_everything() {
        for method in BOTH {
            for lambda in [-2.0, 0.0, 3.0] {
                same(power(f64::INFINITY, method, lambda), f64::INFINITY);
                same(power(f64::NEG_INFINITY, method, lambda), f64::NEG_INFINITY);
                assert!(power(f64::NAN, method, lambda).is_nan());
            }
        }
        same(power(-1.0, PowerMethod::BoxCox, 0.5), f64::NEG_INFINITY);
        same(logarithm(-1.0), f64::NEG_INFINITY);
        same(logarithm(-7.0), f64::NEG_INFINITY);
        assert!(logarithm(f64::NAN).is_nan());
    }

    #[test]
    fn beyond_the_range_of_the_power_lies_infinity() {
        same(unpower(3.0, PowerMethod::YeoJohnson, -0.5), f64::INFINITY);
        same(
            unpower(-3.0, PowerMethod::YeoJohnson, 2.5),
            f64::NEG_INFINITY,
        );
        same(unpower(3.0, PowerMethod::BoxCox, -0.5), f64::INFINITY);
    }

    #[test]
    fn series_and_formula_meet() {
        for t in [0.5f64, -0.5] {
            close(series(t), (t.exp() * (t - 1.0) + 1.0) / (t * t), 1e-14);
        }
    }

    proptest! {
        #[test]
        fn the_inverse_gives_the_number_back(x in -50.0..50.0f64, lambda in -2.0..4.0f64) {
            let back = unpower(power(x, PowerMethod::YeoJohnson, lambda), PowerMethod::YeoJohnson, lambda);
            // Where the power flattens the numbers, their distances are lost before the way back.
            if (0.5..=1.5).contains(&lambda) {
                prop_assert!((back - x).abs() <= 1e-11 * x.abs().max(1.0), "{} {}", back, x);
            }
            let positive = x.abs() + 0.01;
            let back = unpower(power(positive, PowerMethod::BoxCox, lambda), PowerMethod::BoxCox, lambda);
            if lambda.abs() <= 1.0 {
                prop_assert!((back - positive).abs() <= 1e-11 * positive.max(1.0), "{} {}", back, positive);
            }
        }

        #[test]
        fn the_slope_is_that_of_a_difference(x in -20.0..20.0f64, lambda in -2.0..4.0f64) {
            const STEP: f64 = 1e-5;
            for (x, method) in [(x, PowerMethod::YeoJohnson), (x.abs() + 0.1, PowerMethod::BoxCox)] {
                let difference = (power(x, method, lambda + STEP) - power(x, method, lambda - STEP)) / (2.0 * STEP);
                let found = slope(x, method, lambda);
                prop_assert!((found - difference).abs() <= 1e-4 * found.abs().max(1e-3), "{} {}", found, difference);
            }
        }
    }
}
