//! Clipping by the global norm of the gradient (Pascanu, Mikolov, Bengio 2013, algorithm 1).

use rayon::prelude::*;

/// Elements summed as one piece; fixed, so that the sum's order does not depend on the number of threads.
const PIECE: usize = 1 << 14;

/// The Euclidean norm of numbers whose squares add up to these sums, in f64. NaN or infinite when a number is.
pub(crate) fn norm(squares: &[f64]) -> f64 {
    squares.iter().sum::<f64>().sqrt()
}

/// The sum of squares, in f64, the same on any number of threads.
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    squares(values).iter().sum()
}

/// The sums of squares of pieces of a fixed size, in f64.
pub(crate) fn squares(values: &[f32]) -> Vec<f64> {
    let of_piece = |piece: &[f32]| piece.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    values.par_chunks(PIECE).map(of_piece).collect()
}

/// Factor of the gradient that makes its norm at most `limit`; 1 when it is already, or `limit` is
/// 0.
pub(crate) fn scale(norm: f64, limit: f64) -> f64 {
    if limit > 0.0 && norm > limit {
        limit / norm
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global_norm(values: &[f32]) -> f64 {
        norm(&squares(values))
    }

    #[test]
    fn norm_of_a_right_triangle_is_its_hypotenuse() {
        let mut gradient = vec![0.0; 3 * PIECE];
        gradient[0] = 3.0;
        gradient[2 * PIECE + 1] = -4.0;
        assert_eq!(global_norm(&gradient).to_bits(), 5.0_f64.to_bits());
    }

    #[test]
    fn norm_of_large_elements_does_not_overflow() {
        assert!(global_norm(&[f32::MAX; 4]).is_finite());
    }

    #[test]
    fn one_bad_element_makes_the_norm_bad() {
        let mut gradient = vec![1.0; 2 * PIECE];
        gradient[PIECE + 3] = f32::NAN;
        assert!(global_norm(&gradient).is_nan());
        gradient[PIECE + 3] = f32::NEG_INFINITY;
        assert!(global_norm(&gradient).is_infinite());
    }

    #[test]
    fn only_a_norm_over_the_limit_is_scaled_down() {
        for (norm, limit, expected) in [
            (5.0, 1.0, 0.2),
            (0.5, 1.0, 1.0),
            (1.0, 1.0, 1.0),
            (5.0, 0.0, 1.0),
        ] {
            assert!(
                (scale(norm, limit) - expected).abs() < 1e-15,
                "{norm} {limit}"
            );
        }
    }

    #[test]
    fn norm_is_the_same_on_any_number_of_threads() {
        let gradient: Vec<f32> = (0..60_000_u16)
            .map(|i| (f32::from(i) * 0.37).sin())
            .collect();
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| global_norm(&gradient)).to_bits()
        };
        assert!(
            [1, 2, 3, 7]
                .map(on)
                .iter()
                .all(|&bits| bits == global_norm(&gradient).to_bits())
        );
    }
}
