use super::*;

const GAP: f64 = f64::NAN;

/// The same by the definition, cell by cell: all distances, sorted.
fn reference(
    known: &[Vec<f64>],
    means: &[f64],
    k: usize,
    weights: NeighbourWeights,
    rows: &mut [Vec<f64>],
) {
    let given = rows.to_vec();
    let count = |i: usize| f64::from(u32::try_from(i).unwrap());
    for row in 0..rows[0].len() {
        for column in 0..rows.len() {
            if !given[column][row].is_nan() {
                continue;
            }
            let mut near: Vec<(f64, usize)> = Vec::new();
            for donor in 0..known[0].len() {
                let pairs = given.iter().zip(known).map(|(a, b)| (a[row], b[donor]));
                let pairs = pairs.filter(|(a, b)| a.is_finite() && b.is_finite());
                let pairs: Vec<(f64, f64)> = pairs.collect();
                if pairs.is_empty() || !known[column][donor].is_finite() {
                    continue;
                }
                let sum: f64 = pairs.iter().map(|(a, b)| (a - b).powi(2)).sum();
                let all = count(rows.len()) / count(pairs.len());
                near.push(((all * sum).sqrt(), donor));
            }
            near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            near.truncate(k);
            let zero = near.iter().any(|(distance, _)| *distance == 0.0);
            let weight = |distance: f64| match weights {
                NeighbourWeights::Uniform => 1.0,
                NeighbourWeights::Distance if zero => f64::from(u8::from(distance == 0.0)),
                NeighbourWeights::Distance => 1.0 / distance,
            };
            let total: f64 = near.iter().map(|(distance, _)| weight(*distance)).sum();
            let sum: f64 = near
                .iter()
                .map(|(distance, donor)| known[column][*donor] * weight(*distance))
                .sum();
            rows[column][row] = if near.is_empty() {
                means[column]
            } else {
                sum / total
            };
        }
    }
}

/// Columns of numbers on a coarse grid, so that many distances are equal, with gaps.
fn table(rows: u32, columns: u32, gaps: u32) -> Vec<Vec<f64>> {
    let cell = |row: u32, column: u32| {
        let mixed = (row * 1_000_003 + column * 7919 + 17).wrapping_mul(2_654_435_761) >> 8;
        match mixed % 100 {
            part if part < gaps => GAP,
            _ => f64::from(mixed / 100 % 11) - 5.0,
        }
    };
    let column = |column: u32| (0..rows).map(|row| cell(row, column)).collect();
    (0..columns).map(column).collect()
}

fn means(table: &[Vec<f64>]) -> Vec<f64> {
    let mean = |cells: &Vec<f64>| {
        let there: Vec<f64> = cells.iter().copied().filter(|x| x.is_finite()).collect();
        there.iter().sum::<f64>() / f64::from(u32::try_from(there.len()).unwrap())
    };
    table.iter().map(mean).collect()
}

fn check(known: &[Vec<f64>], rows: &[Vec<f64>], k: usize, weights: NeighbourWeights) {
    let means = means(known);
    let (mut found, mut expected) = (rows.to_vec(), rows.to_vec());
    Neighbours::new(known.to_vec(), means.clone(), k, weights).fill(&mut found);
    reference(known, &means, k, weights, &mut expected);
    for (column, (found, expected)) in found.iter().zip(&expected).enumerate() {
        for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
            let same = found.to_bits() == expected.to_bits();
            let same = same || (found - expected).abs() <= 1e-12 * expected.abs();
            assert!(same, "row {row}, column {column}: {found} {expected}");
        }
    }
}

#[test]
fn cells_are_those_of_all_distances_sorted() {
    for weights in [NeighbourWeights::Uniform, NeighbourWeights::Distance] {
        for (rows, columns, gaps, k) in [
            (97, 5, 20, 3),
            (64, 9, 50, 5),
            (33, 3, 10, 1),
            (200, 70, 10, 4),
            (5, 4, 40, 9),
        ] {
            let known = table(rows, columns, gaps);
            check(&known, &known, k, weights);
            check(&known, &table(rows + 13, columns, 2 * gaps), k, weights);
        }
    }
}

#[test]
fn trap_41_a_row_gets_the_same_bits_alone_and_among_many() {
    let known = table(150, 7, 15);
    let scaled: Vec<Vec<f64>> = known
        .iter()
        .map(|cells| cells.iter().map(|x| x * 0.1 + 0.3).collect())
        .collect();
    let neighbours = Neighbours::new(
        scaled.clone(),
        means(&scaled),
        5,
        NeighbourWeights::Distance,
    );
    let mut all = scaled.clone();
    neighbours.fill(&mut all);
    for row in 0..150 {
        let mut one: Vec<Vec<f64>> = scaled.iter().map(|cells| vec![cells[row]]).collect();
        neighbours.fill(&mut one);
        for (one, all) in one.iter().zip(&all) {
            assert_eq!(one[0].to_bits(), all[row].to_bits(), "row {row}");
        }
    }
}

#[test]
fn a_row_that_shares_no_column_with_a_donor_gets_means() {
    let known = vec![vec![1.0, 3.0, GAP], vec![GAP, GAP, 8.0]];
    let neighbours = Neighbours::new(known, vec![2.0, 8.0], 5, NeighbourWeights::Uniform);
    let mut rows = vec![vec![GAP, 1.0], vec![GAP, GAP]];
    neighbours.fill(&mut rows);
    // The second has the first column, which no row has that has the second.
    assert_eq!(rows, [[2.0, 1.0], [8.0, 8.0]]);
}

#[test]
fn infinities_tell_no_distance_and_stay() {
    let known = vec![vec![0.0, 1.0, f64::INFINITY], vec![10.0, 20.0, 30.0]];
    let neighbours = Neighbours::new(known, vec![0.5, 20.0], 1, NeighbourWeights::Uniform);
    let mut rows = vec![
        vec![f64::INFINITY, GAP, 1.0, GAP],
        vec![GAP, f64::NEG_INFINITY, GAP, 30.0],
    ];
    neighbours.fill(&mut rows);
    assert_eq!(rows[0], [f64::INFINITY, 0.5, 1.0, 1.0]);
    assert_eq!(rows[1], [20.0, f64::NEG_INFINITY, 20.0, 30.0]);
}

#[test]
fn no_rows_and_no_gaps_change_nothing() {
    let neighbours = Neighbours::new(
        vec![vec![1.0], vec![2.0]],
        vec![1.0, 2.0],
        5,
        NeighbourWeights::Uniform,
    );
    let mut none = vec![Vec::new(), Vec::new()];
    neighbours.fill(&mut none);
    assert_eq!(none, [Vec::<f64>::new(), Vec::new()]);
    let mut full = vec![vec![5.0, 6.0], vec![7.0, 8.0]];
    neighbours.fill(&mut full);
    assert_eq!(full, [[5.0, 6.0], [7.0, 8.0]]);
}
