#![expect(clippy::float_cmp, reason = "what is promised is exact")]

use super::*;

fn boundaries(of: &[f64]) -> BinBoundaries {
    BinBoundaries::new(of.into())
}

#[test]
fn a_value_equal_to_a_boundary_is_in_the_bin_above_it_and_values_outside_in_the_nearest() {
    let three = boundaries(&[0.0, 1.0, 2.5, 4.0]);
    for (cell, bin) in [
        (f64::NEG_INFINITY, 0.0),
        (-3.0, 0.0),
        (0.0, 0.0),
        (1.0_f64.next_down(), 0.0),
        (1.0, 1.0),
        (2.5_f64.next_down(), 1.0),
        (2.5, 2.0),
        (4.0, 2.0),
        (1e300, 2.0),
        (f64::INFINITY, 2.0),
    ] {
        assert_eq!(three.bin_of(cell), bin, "{cell}");
    }
    assert!(three.bin_of(f64::NAN).is_nan());
    for few in [&[][..], &[7.0], &[7.0, 9.0]] {
        let few = boundaries(few);
        assert_eq!([6.0, 7.0, 9.0].map(|cell| few.bin_of(cell)), [0.0; 3]);
    }
}

#[test]
fn a_bin_undone_is_the_middle_of_the_nearest_bin() {
    let three = boundaries(&[0.0, 1.0, 2.5, 4.0]);
    for (bin, middle) in [
        (-1.0, 0.5),
        (0.0, 0.5),
        (0.49, 0.5),
        (0.5, 1.75),
        (1.0, 1.75),
        (2.0, 3.25),
        (9.0, 3.25),
        (f64::INFINITY, 3.25),
    ] {
        assert_eq!(three.middle_of(bin), middle, "{bin}");
    }
    assert!(three.middle_of(f64::NAN).is_nan());
    assert_eq!(boundaries(&[7.0]).middle_of(0.0), 7.0);
    let widest = boundaries(&[-f64::MAX, f64::MAX]);
    assert_eq!(widest.middle_of(0.0), 0.0);
    let large = boundaries(&[f64::MAX / 2.0, f64::MAX]);
    assert_eq!(large.middle_of(0.0), f64::MAX * 0.75);
}

#[test]
fn bins_of_the_same_width_reach_from_the_smallest_to_the_largest_value() {
    assert_eq!(even(0.0, 1.0, 4), [0.0, 0.25, 0.5, 0.75, 1.0]);
    assert_eq!(even(-f64::MAX, f64::MAX, 2), [-f64::MAX, 0.0, f64::MAX]);
    assert_eq!(merged(even(5.0, 5.0, 3)), [5.0]);
}

#[test]
fn equal_boundaries_are_merged_and_negative_zero_is_zero() {
    let found = merged(vec![-0.0, 0.0, 0.0, 3.0, 3.0, 9.0]);
    assert_eq!(found, [0.0, 3.0, 9.0]);
    assert!(found[0].is_sign_positive());
}

#[test]
fn an_operation_survives_the_way_through_a_plan_and_other_bytes_are_refused() {
    let ops = [
        CellOp::Fill(1.0),
        CellOp::Bin(boundaries(&[0.0, 1.0, 2.5, 4.0])),
        CellOp::Bin(boundaries(&[])),
        CellOp::Log1p,
    ];
    let bytes = CellOp::to_bytes(&ops);
    assert_eq!(CellOp::from_bytes(&bytes).as_deref(), Some(&ops[..]));
    let one = CellOp::to_bytes(&ops[1..2]);
    for end in 1..one.len() {
        assert_eq!(CellOp::from_bytes(&one[..end]), None, "{end}");
    }
}
