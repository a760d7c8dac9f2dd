//! Inputs that silently corrupt tables elsewhere, each with the expected outcome here. Numbers are
//! those of the project's list of such inputs.
#![expect(clippy::float_cmp, reason = "what is promised is exact")]

mod categories;
mod copies;
mod datasets;

use feedline_schemas::{
    record::ColumnType::{self, Decimal, Float64, Int64, Utf8},
    report::DatasetReport,
    transform::{
        FittedImpute, FittedStandardize, FittedStep, FittedTarget, FittedWinsorize, NumberSigns,
        TransformArtefact,
    },
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error, read_manifest, read_transform,
    testing::{Cells, LandingZone, Written, build_with, written},
};

/// All rows are for training, so that what is written is what was fitted.
const ALL: &str = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n";
/// The first half is for training, the rest in halves for validation and test.
const HALVES: &str = "split = { by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }\n";

struct Built {
    artefact: TransformArtefact,
    /// As they landed.
    rows: Vec<Written>,
    report: DatasetReport,
}

async fn built(
    columns: &[(&str, ColumnType)],
    rows: &[Cells],
    dataset: &str,
) -> Result<Built, Error> {
    let root = Store::memory();
    LandingZone::new(&root, "a", columns).batch(rows).await;
    finished(&root, dataset, 2).await
}

async fn finished(root: &Store, dataset: &str, partitions: usize) -> Result<Built, Error> {
    let dataset = format!("sources = [\"a\"]\n{dataset}");
    let report = build_with(root, &dataset, partitions).await?;
    let folder = root.child("dataset");
    let manifest = read_manifest(&folder).await?;
    let mut rows = written(&folder).await;
    rows.sort_by_key(|row| row.origin);
    Ok(Built {
        artefact: read_transform(&folder, &manifest).await?,
        rows,
        report,
    })
}

/// Rows of one column of numbers and of their place, which makes them distinct.
async fn numbers(cells: Vec<Value>, dataset: &str) -> Result<Built, Error> {
    let rows: Vec<Cells> = cells
        .into_iter()
        .enumerate()
        .map(|(i, cell)| vec![cell, json!(i)])
        .collect();
    built(&[("a", Float64), ("i", Int64)], &rows, dataset).await
}

/// The same as text.
async fn texts(cells: &[&str], dataset: &str) -> Result<Built, Error> {
    let rows: Vec<Cells> = cells
        .iter()
        .enumerate()
        .map(|(i, cell)| vec![json!(cell), json!(i)])
        .collect();
    built(&[("a", Utf8), ("i", Int64)], &rows, dataset).await
}

impl Built {
    /// The numbers of the first feature.
    fn a(&self) -> Vec<f32> {
        self.rows.iter().map(|row| row.x[0]).collect()
    }

    fn imputed(&self) -> &FittedImpute {
        let found = self.artefact.steps.iter().find_map(|step| match step {
            FittedStep::Impute { columns } => columns.first(),
            _ => None,
        });
        found.unwrap()
    }

    fn caps(&self) -> &FittedWinsorize {
        let found = self.artefact.steps.iter().find_map(|step| match step {
            FittedStep::Winsorize { columns } => columns.first(),
            _ => None,
        });
        found.unwrap()
    }

    fn scaled(&self) -> &FittedStandardize {
        let found = self.artefact.steps.iter().find_map(|step| match step {
            FittedStep::Standardize { columns } => columns.first(),
            _ => None,
        });
        found.unwrap()
    }
}

#[tokio::test]
async fn trap_01_a_column_without_a_training_value_is_left_out_by_name_unless_it_is_asked_for() {
    let cells = |i: i32| if i < 8 { Value::Null } else { json!(i) };
    let cells: Vec<Value> = (0..16).map(cells).collect();
    let found = numbers(cells.clone(), HALVES).await.unwrap();
    assert!(found.artefact.inputs.iter().all(|input| input.name != "a"));
    let mut warnings = found.report.warnings.iter();
    let warning = warnings.find(|warning| warning.code == "columns_dropped");
    assert!(warning.unwrap().message.contains("`a`"), "{warning:?}");
    let asked_for = format!("{HALVES}features = [\"a\", \"i\"]\n");
    let message = match numbers(cells.clone(), &asked_for).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("nothing can be fitted"),
    };
    assert!(
        message.contains("cannot fit `impute` to column `a`"),
        "{message}"
    );
    assert!(message.contains("strategy = \"constant\""), "{message}");
    let constant = "step = [{ type = \"impute\", columns = [\"a\"], strategy = \"constant\", value = -1.0 }]\n";
    let found = numbers(cells, &format!("{HALVES}{constant}"))
        .await
        .unwrap();
    assert_eq!(
        found.a()[..9],
        [-1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 8.0]
    );
}

#[tokio::test]
async fn trap_02_a_constant_column_becomes_zero_and_is_flagged() {
    let found = numbers(vec![json!(5.5); 12], ALL).await.unwrap();
    assert_eq!((found.scaled().scale, found.scaled().constant), (1.0, true));
    assert_eq!(found.a(), [0.0; 12]);
}

#[tokio::test]
async fn trap_03_a_nearly_constant_column_is_not_blown_up() {
    let cells = (0..40).map(|i| json!(1e8 + 1e-8 * f64::from(i % 2)));
    let step = "step = [{ type = \"standardize\" }]\n";
    let found = numbers(cells.collect(), &format!("{ALL}{step}"))
        .await
        .unwrap();
    assert!(found.scaled().constant && found.scaled().deviation > 0.0);
    assert!(found.a().iter().all(|x| x.abs() < 1e-6), "{:?}", found.a());
}

#[tokio::test]
async fn trap_04_a_range_without_width_becomes_zero() {
    let step = "step = [{ type = \"min_max\" }]\n";
    let found = numbers(vec![json!(3.0); 5], &format!("{ALL}{step}"))
        .await
        .unwrap();
    assert_eq!(found.a(), [0.0; 5]);
}

#[tokio::test]
async fn trap_05_a_category_that_was_not_in_train_has_an_element_of_its_own() {
    let kinds = ["x", "y", "x", "y", "new", "x", "newer", "y"];
    let found = texts(&kinds, &format!("{HALVES}categorical = [\"a\"]\n"))
        .await
        .unwrap();
    let names: Vec<&str> = found
        .artefact
        .features
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    assert_eq!(names[..4], ["a=__unknown__", "a=__null__", "a=x", "a=y"]);
    let unknown: Vec<usize> = (0..8).filter(|row| found.rows[*row].x[0] == 1.0).collect();
    assert_eq!(unknown, [4, 6]);
    assert!(
        found
            .rows
            .iter()
            .all(|row| row.x[..4].iter().sum::<f32>() == 1.0)
    );
}

#[tokio::test]
async fn trap_06_null_nan_empty_and_words_for_nothing_are_four_things() {
    let dataset = format!("{ALL}categorical = [\"a\"]\nnull_values = [\"N/A\"]\n");
    let rows = [
        json!(null),
        json!("NaN"),
        json!(""),
        json!("N/A"),
        json!("n/a"),
    ];
    let rows: Vec<Cells> = rows
        .into_iter()
        .enumerate()
        .map(|(i, a)| vec![a, json!(i)])
        .collect();
    let found = built(&[("a", Utf8), ("i", Int64)], &rows, &dataset)
        .await
        .unwrap();
    let FittedStep::Categories { columns } = found.artefact.steps.last().unwrap() else {
        panic!("{:?}", found.artefact.steps)
    };
    assert_eq!(columns[0].values, ["NaN", "n/a"]);
    let null: Vec<usize> = (0..5).filter(|row| found.rows[*row].x[1] == 1.0).collect();
    assert_eq!(null, [0, 2, 3]);
}

#[tokio::test]
async fn trap_07_infinities_are_capped_and_counted_and_fit_nothing() {
    let cells = ["1", "2", "3", "inf", "-inf", "Infinity"];
    let step = "step = [{ type = \"winsorize\", columns = [\"a\"] }, { type = \"standardize\", columns = [\"a\"] }]\n";
    let found = texts(&cells, &format!("{ALL}{step}")).await.unwrap();
    let caps = found.caps();
    assert_eq!((caps.low, caps.high), (1.02, 2.98));
    assert_eq!((caps.clipped_low, caps.clipped_high), (2, 3));
    assert!(found.a().iter().all(|x| x.is_finite()));
    assert_eq!(found.report.rejected, 0);
}

#[tokio::test]
async fn trap_08_zeros_of_both_signs_are_one_number() {
    let rows: Vec<Cells> = [0.0, -0.0, 1.0, 0.0].map(|a| vec![json!(a)]).to_vec();
    let found = built(&[("a", Float64)], &rows, &format!("{ALL}step = []\n"))
        .await
        .unwrap();
    assert_eq!(found.report.duplicates, 2);
    assert_eq!(
        found.a().iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
        [0, 1f32.to_bits()]
    );
}

#[tokio::test]
async fn trap_10_integers_that_no_float_holds_are_set_aside() {
    let largest = 1_i64 << 53;
    let rows: Vec<Cells> = [largest, largest + 1, -largest, 3]
        .map(|a| vec![json!(a)])
        .to_vec();
    let dataset = format!("{ALL}max_reject_fraction = 1.0\nstep = []\n");
    let found = built(&[("a", Int64)], &rows, &dataset).await.unwrap();
    assert_eq!(found.report.rejected_by_reason["integer_too_large"], 1);
    assert_eq!(found.rows.len(), 3);
}

#[tokio::test]
async fn trap_11_numbers_beyond_32_bits_are_set_aside_and_never_infinite() {
    let dataset = format!("{ALL}max_reject_fraction = 1.0\nstep = []\n");
    let found = numbers(vec![json!(1e39), json!(3e38), json!(-1e39)], &dataset)
        .await
        .unwrap();
    assert_eq!(found.report.rejected_by_reason["too_large"], 2);
    assert_eq!(found.a(), [3e38]);
}

#[tokio::test]
async fn trap_12_sums_of_large_integers_do_not_wrap() {
    let rows: Vec<Cells> = (0..3000)
        .map(|i| vec![json!((1_i64 << 53) - i), json!(i)])
        .collect();
    let dataset = format!("{ALL}step = [{{ type = \"standardize\", columns = [\"a\"] }}]\n");
    let found = built(&[("a", Int64), ("i", Int64)], &rows, &dataset)
        .await
        .unwrap();
    // 2^53 - 1499.5 is between two floats; the even one is taken.
    assert_eq!(found.scaled().mean, 9_007_199_254_739_492.0);
}

#[tokio::test]
async fn trap_13_a_small_spread_around_a_large_mean_is_exact() {
    let (low, high) = (1e9 - 1e-3, 1e9 + 1e-3);
    let cells = (0..1000).map(|i| json!(if i % 2 == 0 { low } else { high }));
    let dataset = format!("{ALL}step = [{{ type = \"standardize\", columns = [\"a\"] }}]\n");
    let found = numbers(cells.collect(), &dataset).await.unwrap();
    assert_eq!(found.scaled().deviation, (high - low) / 2.0);
}

#[tokio::test]
async fn trap_14_partitions_and_the_order_of_rows_do_not_change_the_artefact() {
    let rows: Vec<Cells> = (0..500)
        .map(|i| vec![json!(f64::from(i * i % 97).sqrt()), json!(i)])
        .collect();
    let mut hashes = Vec::new();
    for (partitions, reversed) in [(1, false), (8, false), (3, true)] {
        let mut rows = rows.clone();
        if reversed {
            rows.reverse();
        }
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("a", Float64), ("i", Int64)]);
        for batch in rows.chunks(90) {
            zone.batch(batch).await;
        }
        let steps = "step = [{ type = \"impute\", strategy = \"knn\" }, { type = \"power\" }, { type = \"robust\" }]\n";
        let found = finished(&root, &format!("{ALL}{steps}"), partitions)
            .await
            .unwrap();
        hashes.push(found.artefact.hash);
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[tokio::test]
async fn trap_15_caps_that_meet_make_a_constant_and_no_division_by_zero() {
    let cells = (0..300).map(|i| json!(if i == 7 { 9.0 } else { 0.0 }));
    let found = numbers(cells.collect(), ALL).await.unwrap();
    assert_eq!((found.caps().low, found.caps().high), (0.0, 0.0));
    assert_eq!(found.caps().clipped_high, 1);
    assert_eq!(found.a(), [0.0; 300]);
}

#[tokio::test]
async fn trap_16_percentiles_of_a_heavy_tail_are_exact() {
    let value = |i: u32| (1.0 - (f64::from(i) + 0.5) / 20_000.0).powf(-1.0 / 1.1);
    let cells = (0..20_000).map(|i| json!(value(i * 7919 % 20_000)));
    let dataset =
        format!("{ALL}step = [{{ type = \"winsorize\", columns = [\"a\"], upper = 0.999 }}]\n");
    let found = numbers(cells.collect(), &dataset).await.unwrap();
    let index = 19_999.0 * 0.999;
    let (low, high) = (value(19_979), value(19_980));
    let expected = low + (high - low) * (index - 19_979.0);
    assert!(
        (found.caps().high - expected).abs() <= 1e-12 * expected,
        "{:?}",
        found.caps()
    );
}

#[tokio::test]
async fn trap_17_a_missing_cell_is_no_cap_and_stays_missing() {
    let mut cells: Vec<Value> = [1.0, 2.0, 3.0, 100.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        .map(|x| json!(x))
        .to_vec();
    cells.insert(3, Value::Null);
    let step = "step = [{ type = \"winsorize\", columns = [\"a\"], lower = 0.1, upper = 0.9 }]\n";
    let found = numbers(cells, &format!("{ALL}max_reject_fraction = 1.0\n{step}"))
        .await
        .unwrap();
    assert_eq!(found.report.rejected_by_reason["missing_value"], 1);
    assert_eq!(
        (found.caps().low, found.caps().high),
        (1.8, 27.200_000_000_000_017)
    );
}

#[tokio::test]
async fn trap_18_caps_of_few_rows_lie_between_them() {
    let cells = (1..=10).map(|i| json!(i));
    let found = numbers(cells.collect(), ALL).await.unwrap();
    assert_eq!((found.caps().low, found.caps().high), (1.09, 9.91));
}

#[tokio::test]
async fn trap_19_each_step_is_fitted_on_what_the_one_before_left() {
    let cells = (0..100).map(|i| json!(if i == 99 { 1e6 } else { f64::from(i % 3) }));
    let capped = "{ type = \"winsorize\", columns = [\"a\"], upper = 0.98 }";
    let scaled = "{ type = \"standardize\", columns = [\"a\"] }";
    let cells: Vec<Value> = cells.collect();
    let steps = format!("{ALL}step = [{capped}, {scaled}]\n");
    assert!(numbers(cells.clone(), &steps).await.unwrap().scaled().mean < 2.0);
    let steps = format!("{ALL}step = [{scaled}, {capped}]\n");
    assert!(numbers(cells, &steps).await.unwrap().scaled().mean > 1e4);
}

#[tokio::test]
async fn trap_20_the_median_of_an_even_count_of_integers_does_not_overflow() {
    let top = (1_i64 << 53) - 1;
    let rows: Vec<Cells> = [json!(top), json!(top - 2), Value::Null]
        .map(|a| vec![a])
        .to_vec();
    let found = built(&[("a", Int64)], &rows, ALL).await.unwrap();
    assert_eq!(found.imputed().value, 9_007_199_254_740_990.0);
}

#[tokio::test]
async fn trap_21_copies_that_are_kept_never_stand_in_two_splits() {
    let rows: Vec<Cells> = (0..400).map(|i| vec![json!(f64::from(i % 40))]).collect();
    let dataset = "dedup = \"none\"\nsplit = { train = 0.5, validation = 0.25, test = 0.25 }\n";
    let mut found = built(&[("a", Float64)], &rows, dataset).await.unwrap();
    assert_eq!((found.rows.len(), found.report.duplicates), (400, 0));
    found.rows.sort_by_key(|row| row.key);
    for copies in found.rows.chunk_by(|a, b| a.key == b.key) {
        assert!(copies.iter().all(|row| row.split == copies[0].split));
    }
}

#[tokio::test]
async fn trap_34_too_few_rows_are_told_with_counts() {
    let message = match numbers(vec![json!(1.0)], "").await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("one row cannot fill three splits"),
    };
    assert!(message.contains("split"), "{message}");
    let one = numbers(vec![json!(4.0)], ALL).await.unwrap();
    assert_eq!((one.scaled().scale, one.a()), (1.0, vec![0.0]));
}

#[tokio::test]
async fn trap_38_columns_are_bound_by_name_whatever_their_order_and_type() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("a", Int64), ("b", Float64)]);
    zone.batch(&[vec![json!(1), json!(10.5)], vec![json!(2), json!(20.5)]])
        .await;
    zone.evolve(&[("b", Utf8), ("new", Float64), ("a", Float64)]);
    zone.batch(&[vec![json!("30.5"), json!(7.0), json!(3.0)]])
        .await;
    let steps =
        "features = [\"a\", \"b\"]\nstep = [{ type = \"impute\", columns = [\"a\", \"b\"] }]\n";
    let found = finished(&root, &format!("{ALL}{steps}"), 2).await.unwrap();
    let rows: Vec<&[f32]> = found.rows.iter().map(|row| &row.x[..]).collect();
    assert_eq!(rows, [[1.0, 10.5], [2.0, 20.5], [3.0, 30.5]]);
}

#[tokio::test]
async fn trap_39_texts_that_are_no_numbers_are_missing_and_counted() {
    let cells = ["1,234", " 3 ", "1e5", "", "twelve", "-7"];
    let steps = "step = [{ type = \"impute\", columns = [\"a\"], indicator = true }]\n";
    let found = texts(&cells, &format!("{ALL}{steps}")).await.unwrap();
    assert_eq!((found.imputed().missing, found.imputed().value), (3, 3.0));
    assert_eq!(found.a(), [3.0, 3.0, 1e5, 3.0, 3.0, -7.0]);
}

#[tokio::test]
async fn trap_39_declared_signs_make_numbers_of_texts_and_what_is_none_is_counted() {
    let cells = ["1.234,5", "-2,25", "1.234", "1.5", "1,2,3", " +7 "];
    let steps = "step = [{ type = \"impute\", columns = [\"a\"] }]\n";
    let signs = "decimal_separator = \",\"\nthousands_separator = \".\"\n";
    let found = texts(&cells, &format!("{ALL}{signs}{steps}"))
        .await
        .unwrap();
    assert_eq!((found.imputed().missing, found.imputed().value), (2, 620.5));
    assert_eq!(found.a(), [1234.5, -2.25, 1234.0, 620.5, 620.5, 7.0]);
    let expected = NumberSigns {
        decimal: ',',
        thousands: Some('.'),
    };
    assert_eq!(found.artefact.signs, Some(expected));
    let found = texts(&cells, &format!("{ALL}{steps}")).await.unwrap();
    assert_eq!((found.imputed().missing, found.imputed().value), (3, 1.5));
    let artefact = serde_json::to_string(&found.artefact).unwrap();
    assert!(!artefact.contains("signs"), "{artefact}");
}

#[tokio::test]
async fn trap_39_a_target_is_read_by_its_signs_and_what_is_none_is_set_aside() {
    let rows: Vec<Cells> = ["1,5", "2,5", "2.5"]
        .into_iter()
        .zip(0..)
        .map(|(y, a)| vec![json!(a), json!(y)])
        .collect();
    let dataset =
        format!("{ALL}target = \"y\"\ndecimal_separator = \",\"\nmax_reject_fraction = 1.0\n");
    let found = built(&[("a", Float64), ("y", Utf8)], &rows, &dataset)
        .await
        .unwrap();
    assert_eq!(found.report.rejected_by_reason["target_not_numeric"], 1);
    match found.artefact.target {
        Some(FittedTarget::Regression { mean, .. }) => assert_eq!(mean, 2.0),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn trap_39_what_landed_as_a_number_is_taken_as_it_is_whatever_the_signs() {
    let columns = [("a", Float64), ("b", Decimal), ("c", Utf8)];
    // Decimals land as units of 10^-18.
    let rows: Vec<Cells> = (1..4)
        .map(|i| {
            vec![
                json!(f64::from(i) + 0.125),
                json!(format!("{i}250000000000000000")),
                json!(format!("{i},5")),
            ]
        })
        .collect();
    let steps = "step = [{ type = \"impute\", columns = [\"a\", \"b\", \"c\"] }]\n";
    let dataset = format!("{ALL}decimal_separator = \",\"\nthousands_separator = \".\"\n{steps}");
    let found = built(&columns, &rows, &dataset).await.unwrap();
    let x: Vec<&[f32]> = found.rows.iter().map(|row| &row.x[..]).collect();
    assert_eq!(
        x,
        [[1.125, 1.25, 1.5], [2.125, 2.25, 2.5], [3.125, 3.25, 3.5]]
    );
}

#[tokio::test]
async fn trap_42_what_lies_outside_of_the_training_range_is_clipped_only_by_a_step_that_clips() {
    let cells: Vec<Value> = (0..8)
        .map(|i| json!(if i < 4 { i } else { 100 * i }))
        .collect();
    let free = "step = [{ type = \"min_max\", columns = [\"a\"] }]\n";
    let found = numbers(cells.clone(), &format!("{HALVES}{free}"))
        .await
        .unwrap();
    assert!(found.a()[7] > 200.0);
    let clipped = "step = [{ type = \"min_max\", columns = [\"a\"], clip = true }]\n";
    let found = numbers(cells, &format!("{HALVES}{clipped}")).await.unwrap();
    assert_eq!(found.a()[4..], [1.0; 4]);
}

#[tokio::test]
async fn trap_44_neither_target_nor_key_is_ever_filled() {
    let columns = [("a", Float64), ("y", Float64), ("k", Int64)];
    let rows: Vec<Cells> = (0..40)
        .map(|i| vec![json!(i), json!(i), json!(i)])
        .collect();
    for (keys, name, reason) in [
        ("target = \"y\"", "y", "`y` is not a feature"),
        (
            "target = \"y\"\ndrop = [\"k\"]",
            "k",
            "`k` is also listed in `dataset.step.0.columns`",
        ),
    ] {
        let dataset = format!("{keys}\nstep = [{{ type = \"impute\", columns = [\"{name}\"] }}]\n");
        let message = match built(&columns, &rows, &dataset).await {
            Err(error) => error.to_string(),
            Ok(_) => panic!("`{name}` was filled"),
        };
        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn trap_45_a_row_without_any_feature_gets_means_and_its_flags() {
    let columns = [("a", Float64), ("b", Float64)];
    let rows = [
        [json!(1.0), json!(10.0)],
        [json!(3.0), json!(30.0)],
        [Value::Null, Value::Null],
    ];
    let rows: Vec<Cells> = rows.map(|row| row.to_vec()).to_vec();
    let step = "step = [{ type = \"impute\", strategy = \"knn\", indicator = true }]\n";
    let found = built(&columns, &rows, &format!("{ALL}{step}"))
        .await
        .unwrap();
    assert_eq!(found.rows[2].x, [2.0, 1.0, 20.0, 1.0]);
}

#[tokio::test]
async fn trap_46_a_row_is_no_neighbour_of_its_own_gap() {
    // Its nearest reference row is itself, which has no value there; the next two are taken.
    let columns = [("a", Float64), ("b", Float64)];
    let rows = [
        vec![json!(0.0), Value::Null],
        vec![json!(1.0), json!(10.0)],
        vec![json!(2.0), json!(20.0)],
        vec![json!(50.0), json!(500.0)],
    ];
    let step = "step = [{ type = \"impute\", strategy = \"knn\", neighbours = 2 }]\n";
    let found = built(&columns, &rows, &format!("{ALL}{step}"))
        .await
        .unwrap();
    assert_eq!(found.rows[0].x, [0.0, 15.0]);
}

#[tokio::test]
async fn rows_that_lack_too_many_features_are_left_out_before_anything_is_fitted() {
    let columns = [
        ("a", Float64),
        ("b", Float64),
        ("c", Float64),
        ("y", Float64),
    ];
    let row = |i: i32| {
        let cell = |there: bool| if there { json!(i) } else { Value::Null };
        vec![cell(i % 4 != 1), cell(i % 4 < 2), cell(i % 4 < 3), json!(i)]
    };
    let rows: Vec<Cells> = (0..40).map(row).collect();
    let dataset = format!("{ALL}target = \"y\"\nmax_missing_fraction = 0.5\n");
    let found = built(&columns, &rows, &dataset).await.unwrap();
    // Of each four rows the last lacks two of three.
    assert_eq!(found.report.filtered["too_many_missing"], 10);
    assert_eq!((found.report.rejected, found.rows.len()), (0, 30));
    assert_eq!(found.artefact.fitted_rows, 30);
    assert_eq!(found.imputed().missing, 10);
}
