//! Numbers replaced by the number of their bin.
#![expect(clippy::float_cmp, reason = "what is promised is exact")]

use feedline_schemas::steps::FittedBin;

use super::*;

fn bins_of(artefact: &TransformArtefact) -> &[FittedBin] {
    let found = artefact.steps.iter().find_map(|step| match step {
        FittedStep::Bin { columns } => Some(columns.as_slice()),
        _ => None,
    });
    found.unwrap()
}

fn bin(columns: &[&str], bins: u32, strategy: &str) -> StepConfig {
    step_with(
        "bin",
        columns,
        json!({ "bins": bins, "strategy": strategy }),
    )
}

/// Numbers without order, some of them equal.
fn scattered(rows: u32) -> Vec<f64> {
    let number = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 7.0;
    (0..rows).map(number).map(f64::sqrt).collect()
}

/// The boundaries by sorting: numpy's default quantiles.
fn sorted_boundaries(cells: &[f64], bins: u32) -> Vec<f64> {
    let mut sorted = cells.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = f64::from(u32::try_from(sorted.len()).unwrap() - 1);
    let boundary = |i: u32| {
        let index = last * (f64::from(i) / f64::from(bins));
        let below = (0..).take_while(|at| f64::from(*at) <= index).last();
        let below = usize::try_from(below.unwrap()).unwrap();
        let low = sorted[below];
        let high = sorted[(below + 1).min(sorted.len() - 1)];
        match index.fract() {
            way if way >= 0.5 => high - (high - low) * (1.0 - way),
            way => low + (high - low) * way,
        }
    };
    (0..=bins).map(boundary).collect()
}

#[tokio::test]
async fn quantile_bins_have_about_the_same_number_of_rows_for_any_partitions_and_order() {
    for bins in [2, 7, 19, 20, 100] {
        let cells = scattered(1_003);
        let mut found = Vec::new();
        for (partitions, is_reversed) in [(1, false), (2, true), (8, false)] {
            let mut cells = cells.clone();
            if is_reversed {
                cells.reverse();
            }
            let table = [("a", floats(cells.into_iter().map(Some)))];
            let steps = vec![bin(&["a"], bins, "quantile")];
            let artefact = fit(&split(&table, partitions), &spec(&table, steps)).await;
            found.push(artefact.unwrap());
        }
        assert!(found.iter().all(|artefact| artefact.hash == found[0].hash));
        let fitted = &bins_of(&found[0])[0];
        assert_eq!(fitted.boundaries, sorted_boundaries(&cells, bins));
        let table = [("a", floats(cells.into_iter().map(Some)))];
        let mut counts = vec![0; bins as usize];
        for x in applied(&found[0], &table).x {
            let bin = (0..bins as usize).find(|bin| x == f32::from(u8::try_from(*bin).unwrap()));
            counts[bin.unwrap()] += 1;
        }
        let even = 1_003 / bins;
        assert!(
            counts.iter().all(|count| (even..=even + 1).contains(count)),
            "{bins} {counts:?}"
        );
    }
}

#[tokio::test]
async fn missing_numbers_stay_missing_for_a_later_step_and_infinities_are_in_the_outer_bins() {
    let table = [("a", floats((1..=8).map(f64::from).map(Some)))];
    let later = [(
        "a",
        floats([
            Some(f64::NEG_INFINITY),
            Some(-5.0),
            None,
            Some(f64::NAN),
            Some(99.0),
            Some(f64::INFINITY),
        ]),
    )];
    let bins = bin(&["a"], 4, "quantile");
    let alone = fitted(&table, vec![bins.clone()]).await;
    let found = applied(&alone, &later);
    assert_eq!(found.x, [0.0, 0.0, 0.0, 0.0, 3.0, 3.0]);
    let bad: Vec<(usize, &str)> = found.bad.iter().map(|bad| (bad.0, bad.1)).collect();
    assert_eq!(bad, [(2, "missing_value"), (3, "missing_value")]);
    let keys = json!({ "strategy": "constant", "value": 4.0 });
    let fill = step_with("impute", &["a"], keys);
    let filled = fitted(&table, vec![bins, fill]).await;
    let found = applied(&filled, &later);
    assert_eq!((&found.x[2..4], found.bad.len()), (&[4.0, 4.0][..], 0));
}

#[tokio::test]
async fn infinite_and_missing_training_cells_move_no_boundary() {
    let cells = [Some(3.0), None, Some(1.0), Some(f64::INFINITY), Some(2.0)];
    let table = [("a", floats(cells))];
    for strategy in ["quantile", "uniform"] {
        let artefact = fitted(&table, vec![bin(&["a"], 2, strategy)]).await;
        assert_eq!(bins_of(&artefact)[0].boundaries, [1.0, 2.0, 3.0]);
    }
    let table = [("a", floats([None, Some(f64::INFINITY)]))];
    for strategy in ["quantile", "uniform"] {
        let failure = failure(&table, vec![bin(&["a"], 2, strategy)]).await;
        assert!(
            failure.contains(
                "cannot fit `bin` to column `a`: none of its 2 training rows has a finite value"
            ),
            "{failure}"
        );
    }
}

#[tokio::test]
async fn merged_boundaries_and_constant_columns_are_reported() {
    let rows = 0..200u32;
    let mostly = rows.clone().map(|i| f64::from(i.saturating_sub(144)));
    let rare = rows.clone().map(|i| f64::from(u8::from(i == 9)));
    let table = [
        ("mostly", floats(mostly.map(Some))),
        ("rare", floats(rare.map(Some))),
        ("same", floats(rows.clone().map(|_| Some(7.0)))),
        ("other", floats(rows.map(f64::from).map(Some))),
    ];
    let all = ["mostly", "rare", "same", "other"];
    let artefact = fitted(&table, vec![bin(&all, 10, "quantile")]).await;
    let [mostly, rare, same, other] = bins_of(&artefact) else {
        panic!("four columns")
    };
    assert_eq!(mostly.boundaries.len(), 4, "{mostly:?}");
    assert_eq!(rare.boundaries, [0.0, 1.0]);
    assert_eq!(same.boundaries, [7.0]);
    assert_eq!((other.boundaries.len(), other.bins), (11, 10));
    let found = crate::warnings::of_transform(&artefact, &[], |_| false);
    let [constant, merged] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(constant.code, "constant_columns");
    assert!(constant.message.contains("learn from it: `same`;"));
    assert_eq!(merged.code, "bins_merged");
    assert_eq!(merged.key.as_deref(), Some("dataset.step"));
    assert!(
        merged
            .message
            .contains(": `mostly` (3 of 10 bins), `rare` (1 of 10 bins);"),
        "{merged:?}"
    );
}

#[tokio::test]
async fn a_bin_undone_behind_a_scale_is_the_middle_of_the_bin() {
    let table = [("a", floats((0..=8).map(f64::from).map(Some)))];
    let steps = vec![bin(&["a"], 4, "uniform"), step("standardize", &["a"])];
    let artefact = fitted(&table, steps).await;
    let x = applied(&artefact, &table).x;
    let transform = Transform::new(artefact).unwrap();
    let [(name, cells)] = &transform.invert(&x)[..] else {
        panic!("one column")
    };
    assert_eq!(*name, "a");
    assert_eq!(cells[..], [1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 7.0, 7.0, 7.0]);
}

#[tokio::test]
async fn rows_to_predict_beyond_the_training_range_by_its_width_are_far_outside() {
    let table = [("a", floats((1..=8).map(f64::from).map(Some)))];
    let beyond = |cell: f64| batch(&[("a", floats([Some(4.0), Some(cell), None]))]);
    let of_standardize = step("standardize", &["a"]);
    let of_power = step("power", &["a"]);
    // The range is 7 wide, the mean 4.5 and the deviation 2.29.
    for (steps, near, far) in [
        (vec![bin(&["a"], 4, "quantile")], [0.5, 15.0], [-6.5, 15.5]),
        (vec![step("min_max", &["a"])], [-5.5, 8.5], [-6.5, 15.5]),
        (vec![of_standardize.clone()], [-18.0, 27.0], [-19.0, 28.0]),
        (
            vec![of_standardize.clone(), step("min_max", &["a"])],
            [-5.5, 8.5],
            [-6.5, 15.5],
        ),
        (
            vec![of_power.clone(), of_standardize.clone()],
            [0.5, 9.0],
            [-500.0, 1e6],
        ),
    ] {
        let artefact = fitted(&table, steps).await;
        let transform = Transform::new(artefact).unwrap();
        for (cell, expected) in near
            .map(|cell| (cell, None))
            .into_iter()
            .chain(far.map(|cell| (cell, Some(vec![1]))))
        {
            let [far, capped] = transform.rows_outside(&beyond(cell)).unwrap();
            assert_eq!(far.get("a"), expected.as_ref(), "{cell} {transform:?}");
            assert!(capped.is_empty());
        }
    }
    // A power alone says nothing of the range. The bounds of percentiles are a thousand times their spread away.
    for (step, cells) in [
        (of_power, [(1e6, None), (1e9, None)]),
        (
            step("robust", &["a"]),
            [(3000.0, None), (4000.0, Some(vec![1]))],
        ),
    ] {
        let transform = Transform::new(fitted(&table, vec![step]).await).unwrap();
        for (cell, expected) in cells {
            let [far, _] = transform.rows_outside(&beyond(cell)).unwrap();
            assert_eq!(far.get("a"), expected.as_ref(), "{cell}");
        }
    }
}

#[tokio::test]
async fn a_fit_that_makes_the_same_bins_is_the_same_transform() {
    let table = [("a", floats([0.0, 0.0, 0.0, 0.0, 9.0].map(Some)))];
    let fit = async |bins| fitted(&table, vec![bin(&["a"], bins, "quantile")]).await;
    let (two, three) = (fit(2).await, fit(3).await);
    assert_eq!(bins_of(&two)[0].boundaries, bins_of(&three)[0].boundaries);
    assert_ne!(two, three);
    assert_eq!(two.applied(), three.applied());
}

#[tokio::test]
async fn each_boundary_is_written_in_the_description() {
    let table = [("a", floats([0.0, 1.0, 2.0].map(Some)))];
    let artefact = fitted(&table, vec![bin(&["a"], 2, "quantile")]).await;
    let found = crate::describe_step(&artefact.steps[0], |number| number.to_string());
    let lines = [
        ("bin", "a: 2 of 2 bins by quantiles".to_owned()),
        ("", "  boundaries 0, 1, 2".to_owned()),
    ];
    assert_eq!(found, lines);
}
