use proptest::prelude::*;

use super::{
    super::{
        short::tests::{any_cell, assert_same, expected},
        windows::apart,
    },
    *,
};

const THREE: [Wanted; 3] = [
    Wanted::Percentile(0.01),
    Wanted::Median,
    Wanted::Percentile(0.99),
];

/// Result of a search over rows of three cells, the first and the last from `columns`, in two
/// parts.
fn found(search: NarrowSearch, columns: &[Vec<f32>; 2], cut: usize) -> Vec<Option<Answer>> {
    let rows = rows_of(columns);
    let parts = rows.split_at(3 * cut.min(columns[0].len()));
    let (mut pass, mut other) = (search.pass(), search.pass());
    pass.add(parts.0, 3);
    other.add(parts.1, 3);
    pass.merge(&other);
    search.into_quantiles(pass)
}

fn rows_of(columns: &[Vec<f32>; 2]) -> Vec<f32> {
    let rows = columns[0].iter().zip(&columns[1]);
    rows.flat_map(|(a, b)| [*a, 7.0, *b]).collect()
}

/// A search by rows of three.
fn search(sampled: &[f32], wanted: &[Wanted], rows: usize) -> NarrowSearch {
    let mut sample = Sample::new([0, 2]);
    sample.add(sampled, 3);
    NarrowSearch::new(vec![wanted.to_vec(); 2], sample, as_count(rows))
}

/// Asserts that what is found is right; returns in which columns something is.
fn check(found: Vec<Option<Answer>>, columns: &[Vec<f32>; 2], wanted: &[Wanted]) -> Vec<bool> {
    let both = found.into_iter().zip(columns);
    let is_found = both.map(|(found, column)| {
        let values: Vec<f64> = column.iter().map(|x| f64::from(*x)).collect();
        let is_found = found.is_some();
        found
            .into_iter()
            .for_each(|found| assert_same(found, expected(&values, wanted)));
        is_found
    });
    is_found.collect()
}

/// Looks at columns after every fourth row of them was sampled.
fn check_sampled(columns: &[Vec<f32>; 2], wanted: &[Wanted]) -> Vec<bool> {
    let rows = rows_of(columns);
    let sampled: Vec<f32> = rows
        .chunks_exact(12)
        .flat_map(|rows| &rows[..3])
        .copied()
        .collect();
    let search = search(&sampled, wanted, columns[0].len());
    check(
        found(search, columns, columns[0].len() / 3),
        columns,
        wanted,
    )
}

/// So many different values in no order, around 388 608.
fn spread(count: u32) -> Vec<f32> {
    let cells = (0..count).map(|i| i.wrapping_mul(0x9e37_79b9) >> 8);
    cells.map(|i| i as f32 - 8e6).collect()
}

#[test]
fn a_fair_sample_leads_to_the_quantiles() {
    let mut with_others = spread(40_000);
    for (at, cell) in with_others.iter_mut().enumerate() {
        match at % 40 {
            3 => *cell = f32::NAN,
            13 => *cell = f32::INFINITY,
            14 => *cell = f32::NEG_INFINITY,
            _ => {}
        }
    }
    let columns = [spread(40_000), with_others];
    assert_eq!(check_sampled(&columns, &THREE), [true, true]);
    let ends = [Wanted::Percentile(0.0), Wanted::Percentile(1.0)];
    assert_eq!(check_sampled(&columns, &ends), [true, true]);
    assert_eq!(check_sampled(&columns, &[]), [true, true]);
}

#[test]
fn the_ends_are_found_though_they_were_not_sampled() {
    let mut columns = [spread(40_000), spread(40_000)];
    columns[0][5] = -1e9;
    columns[1][6] = 1e9;
    let ends = [Wanted::Percentile(0.0), Wanted::Percentile(1.0)];
    assert_eq!(check_sampled(&columns, &ends), [true, true]);
}

#[test]
fn values_of_many_cells_are_counted_and_not_gathered() {
    // Three of four are one of the zeros; the others are a few whole numbers.
    let zeros = spread(40_000).into_iter().enumerate();
    let zeros = zeros.map(|(at, cell)| match at % 8 {
        0..3 => 0.0,
        3..6 => -0.0,
        _ => cell,
    });
    let whole = spread(40_000).into_iter().map(|cell| (cell / 1e6).round());
    let columns = [zeros.collect(), whole.collect()];
    let rows = rows_of(&columns);
    let wanted = [Wanted::Median, Wanted::Percentile(0.7)];
    let search = search(&rows, &wanted, 40_000);
    let mut pass = search.pass();
    pass.add(&rows, 3);
    let gathered = pass.columns.iter().map(|column| column.gathered.clone());
    assert_eq!(gathered.collect::<Vec<_>>(), [Some(vec![]), Some(vec![])]);
    assert_eq!(
        check(search.into_quantiles(pass), &columns, &wanted),
        [true, true]
    );
}

#[test]
fn a_sample_of_other_rows_leads_nowhere() {
    let mut sorted = spread(40_000);
    sorted.sort_by(f32::total_cmp);
    let columns = [sorted, spread(40_000)];
    let rows = rows_of(&columns);
    let search = search(&rows[..3 * 10_000], &THREE, 40_000);
    assert_eq!(
        check(found(search, &columns, 7), &columns, &THREE),
        [false, true]
    );
}

#[test]
fn more_than_there_is_room_for_is_not_gathered() {
    let columns = [vec![1.5; 40_000], spread(40_000)];
    let rows = rows_of(&columns);
    let crowded = spread(40_000).into_iter();
    let crowded = crowded.map(|cell| (cell - 388_608.0) / 1e9 + 1.5);
    let sampled = rows_of(&[crowded.collect(), spread(40_000)]);
    let search = search(&sampled, &[Wanted::Median], 40_000);
    let room = search.bytes();
    let mut pass = search.pass();
    pass.add(&rows, 3);
    let held = pass
        .columns
        .iter()
        .filter_map(|column| column.gathered.as_ref());
    assert!(held.map(|keys| keys.capacity() * 4).sum::<usize>() <= room);
    assert!(pass.columns[0].gathered.is_none());
    // Either part has room for its own, and both have none for all.
    let mut parts = [search.pass(), search.pass()];
    let few = search.columns[0].1.cuts.limit * 3 / 4 * 3;
    parts[0].add(&rows[..few], 3);
    parts[1].add(&rows[..few], 3);
    assert!(parts.iter().all(|part| part.columns[0].gathered.is_some()));
    let [mut all, other] = parts;
    all.merge(&other);
    assert!(all.columns[0].gathered.is_none());
    let wanted = [Wanted::Median];
    assert_eq!(
        check(search.into_quantiles(pass), &columns, &wanted),
        [false, true]
    );
}

#[test]
fn columns_without_numbers_have_no_quantiles() {
    let cells = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let nothing: Vec<f32> = cells.into_iter().cycle().take(1000).collect();
    let columns = [nothing, vec![2.5; 1000]];
    assert_eq!(check_sampled(&columns, &THREE), [true, true]);
    let search = search(&[], &THREE, 1000);
    assert_eq!(
        check(found(search, &columns, 0), &columns, &THREE),
        [true, false]
    );
}

#[test]
fn many_quantiles_are_left_to_counting() {
    let wanted: Vec<Wanted> = (1..20)
        .map(|i| Wanted::Percentile(f64::from(i) / 20.0))
        .collect();
    let columns = [spread(40_000), vec![0.5; 40_000]];
    let rows = rows_of(&columns);
    let search = search(&rows, &wanted, 40_000);
    assert!(search.bytes() < 40_000);
    assert_eq!(
        check(found(search, &columns, 9), &columns, &wanted),
        [false, true]
    );
}

proptest! {
    #[test]
    fn whatever_windows_say_no_answer_is_wrong(
        rows in prop::collection::vec((any_cell(), any_cell()), 1..300),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..40), 0..4),
        shares in prop::collection::vec(0f64..=1.0, 0..4),
        every in 1_usize..5,
        cut in 0_usize..300,
    ) {
        let columns = [rows.iter().map(|r| r.0).collect(), rows.iter().map(|r| r.1).collect()];
        let wanted: Vec<Wanted> =
            shares.into_iter().map(Wanted::Percentile).chain([Wanted::Median]).collect();
        let column = |(place, cells): (usize, &Vec<f32>)| {
            let finite = cells.iter().step_by(every).filter(|cell| cell.is_finite());
            let mut keys: Vec<u32> = finite.map(|cell| key(*cell)).collect();
            keys.sort_unstable();
            let starts = ranges.iter().filter(|_| !keys.is_empty());
            let ranges = starts.map(|(start, count)| {
                let start = start.index(keys.len());
                (start, keys.len().min(start + count))
            });
            let windows = apart(&keys, ranges.collect());
            let sampled = as_count(rows.len().div_ceil(every));
            let cuts = Cuts::of(&keys, &windows, sampled, as_count(rows.len())).0;
            (wanted.clone(), Column::new((place, cuts)))
        };
        let narrow = NarrowSearch {
            columns: [0, 2].into_iter().zip(&columns).map(column).collect(),
        };
        check(found(narrow, &columns, cut), &columns, &wanted);
    }

    #[test]
    fn one_window_of_all_finds_what_the_search_of_64_bits_finds(
        rows in prop::collection::vec((any_cell(), any_cell()), 1..300),
        shares in prop::collection::vec(0f64..=1.0, 0..4),
        cut in 0_usize..300,
    ) {
        let columns = [rows.iter().map(|r| r.0).collect(), rows.iter().map(|r| r.1).collect()];
        let wanted: Vec<Wanted> =
            shares.into_iter().map(Wanted::Percentile).chain([Wanted::Median]).collect();
        let column = |(place, cells): (usize, &Vec<f32>)| {
            let finite = cells.iter().filter(|cell| cell.is_finite());
            let mut keys: Vec<u32> = finite.map(|cell| key(*cell)).collect();
            keys.sort_unstable();
            let windows: Vec<_> = (!keys.is_empty()).then_some((0, keys.len())).into_iter().collect();
            let count = as_count(rows.len());
            let cuts = Cuts::of(&keys, &windows, count, count).0;
            (wanted.clone(), Column::new((place, cuts)))
        };
        let narrow = NarrowSearch {
            columns: [0, 2].into_iter().zip(&columns).map(column).collect(),
        };
        prop_assert_eq!(check(found(narrow, &columns, cut), &columns, &wanted), [true, true]);
    }
}
