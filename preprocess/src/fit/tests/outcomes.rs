//! Categories that become what the target is like.

use arrow::array::FixedSizeBinaryArray;
use feedline_schemas::transform::FittedOutcomes;
use proptest::prelude::*;

use super::*;
use crate::{operators::split::Folds, schema::system_columns, staging::Matrix};

fn of_target(folds: u32, smoothing: f64) -> StepConfig {
    let keys = json!({ "encoding": "target", "folds": folds, "smoothing": smoothing });
    step_with("categories", &["c"], keys)
}

fn hash_of(row: usize) -> [u8; 16] {
    (row as u128 * 0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Rows of a category and a target, with content hashes that follow from their place.
fn rows(categories: &[Option<&str>], y: ArrayRef) -> Vec<(&'static str, ArrayRef)> {
    let hashes = (0..categories.len()).map(hash_of);
    let hashes = FixedSizeBinaryArray::try_from_iter(hashes).unwrap();
    vec![
        ("c", texts(categories)),
        ("y", y),
        (system_columns::HASH, Arc::new(hashes)),
    ]
}

async fn fitted_to(
    table: &Table<'_>,
    step: StepConfig,
    task: Task,
    scale: bool,
    partitions: usize,
) -> Result<TransformArtefact, Error> {
    let spec = FitSpec {
        target: Some(TargetSpec {
            column: "y".into(),
            task,
            scale,
            classes: vec![],
        }),
        ..spec(&table[..1], vec![step])
    };
    fit(&split(table, partitions), &spec).await
}

async fn numbers(table: &Table<'_>, step: StepConfig) -> TransformArtefact {
    fitted_to(table, step, Task::Regression, false, 2)
        .await
        .unwrap()
}

fn outcomes(artefact: &TransformArtefact) -> &FittedOutcomes {
    match &artefact.steps[..] {
        [FittedStep::Categories { columns }] => columns[0].outcomes.as_ref().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Elements of the training rows.
fn train(artefact: &TransformArtefact, table: &Table<'_>) -> Vec<f32> {
    let transform = Transform::new(artefact.clone()).unwrap();
    transform
        .apply_train(&batch(table), &Matrix::default())
        .unwrap()
        .x
}

const KINDS: [Option<&str>; 5] = [Some("a"), Some("b"), None, Some("c"), Some("a")];

fn kinds(rows: usize) -> Vec<Option<&'static str>> {
    (0..rows).map(|row| KINDS[row * row % 7 % 5]).collect()
}

/// Plain reference: what row `row` gets from all rows that `is_used`.
fn reference(
    categories: &[Option<&str>],
    y: &[f64],
    category: Option<&str>,
    smoothing: f64,
    is_used: impl Fn(usize) -> bool,
) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "few rows")]
    let mean = |rows: &[f64]| rows.iter().sum::<f64>() / rows.len() as f64;
    let used: Vec<usize> = (0..y.len()).filter(|row| is_used(*row)).collect();
    let all: Vec<f64> = used.iter().map(|row| y[*row]).collect();
    let own = used.iter().filter(|row| categories[**row] == category);
    let own: Vec<f64> = own.map(|row| y[*row]).collect();
    #[expect(clippy::cast_precision_loss, reason = "few rows")]
    let weight = own.len() as f64 + smoothing;
    (own.iter().sum::<f64>() + smoothing * mean(&all)) / weight
}

#[tokio::test]
async fn training_rows_get_the_mean_of_the_other_folds_and_all_others_that_of_all() {
    let categories = kinds(120);
    let y: Vec<f64> = (0..120).map(|row| f64::from(row * 37 % 101)).collect();
    let table = rows(&categories, floats(y.iter().copied().map(Some)));
    let artefact = numbers(&table, of_target(4, 2.5)).await;
    let folds = Folds::new(4);
    let x = train(&artefact, &table);
    #[expect(clippy::cast_possible_truncation, reason = "as features are")]
    let near = |found: f32, expected: f64| (found - expected as f32).abs() < 1e-4;
    for row in 0..120 {
        let own = folds.of(&hash_of(row));
        let other = |row: usize| folds.of(&hash_of(row)) != own;
        let expected = reference(&categories, &y, categories[row], 2.5, other);
        assert!(near(x[row], expected), "{row}: {} {expected}", x[row]);
    }
    let later = applied(&artefact, &table).x;
    for row in 0..120 {
        let expected = reference(&categories, &y, categories[row], 2.5, |_| true);
        assert!(
            near(later[row], expected),
            "{row}: {} {expected}",
            later[row]
        );
    }
    let unknown = applied(&artefact, &[("c", texts(&[Some("new")]))]).x;
    #[expect(clippy::cast_precision_loss, reason = "few rows")]
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    assert!(near(unknown[0], mean));
}

#[tokio::test]
async fn without_smoothing_a_value_of_one_row_is_the_mean_to_that_row() {
    let categories = [
        Some("a"),
        Some("b"),
        Some("b"),
        Some("b"),
        Some("b"),
        Some("b"),
    ];
    let y = floats([900.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(Some));
    let table = rows(&categories, y);
    let artefact = numbers(&table, of_target(3, 0.0)).await;
    assert!(train(&artefact, &table)[0] < 6.0);
    assert!((applied(&artefact, &table).x[0] - 900.0).abs() < 1e-3);
}

#[tokio::test]
async fn numbers_are_in_the_units_the_target_is_stored_in() {
    let categories = kinds(80);
    let y = (0..80).map(|row| Some(1e6 + 1e3 * f64::from(row % 13)));
    let table = rows(&categories, floats(y));
    let artefact = fitted_to(&table, of_target(5, 1.0), Task::Regression, true, 1);
    let artefact = artefact.await.unwrap();
    for x in [train(&artefact, &table), applied(&artefact, &table).x] {
        assert!(x.iter().all(|x| x.abs() < 3.0), "{x:?}");
        assert!(x.iter().any(|x| x.abs() > 0.01), "{x:?}");
    }
    // An unknown value is the mean, which is 0 there.
    assert_eq!(outcomes(&artefact).elements[0].all[0].to_bits(), 0);
}

#[tokio::test]
async fn of_two_classes_one_share_is_told_and_of_more_each() {
    let categories = kinds(60);
    for (classes, names) in [
        (vec!["no", "yes"], vec!["c~yes"]),
        (vec!["u", "w", "v"], vec!["c~u", "c~v", "c~w"]),
    ] {
        let y: Vec<Option<&str>> = (0..60)
            .map(|row| Some(classes[row * 5 % 11 % classes.len()]))
            .collect();
        let table = rows(&categories, texts(&y));
        let artefact = fitted_to(&table, of_target(5, 3.0), Task::Classification, false, 2);
        let artefact = artefact.await.unwrap();
        let found: Vec<&str> = artefact.features.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(found, names);
        let shares = applied(&artefact, &table).x;
        for (i, name) in names.iter().enumerate() {
            let is = |class: &Option<&str>| f64::from(u8::from(class.unwrap() == &name[2..]));
            let y: Vec<f64> = y.iter().map(is).collect();
            for row in 0..60 {
                let expected = reference(&categories, &y, categories[row], 3.0, |_| true);
                let found = f64::from(shares[row * names.len() + i]);
                assert!((found - expected).abs() < 1e-6, "{name} {found} {expected}");
            }
        }
    }
}

#[tokio::test]
async fn partitions_and_order_do_not_change_a_bit() {
    let categories = kinds(400);
    let y: Vec<Option<f64>> = messy(400, 99);
    let table = rows(&categories, floats(y));
    let turned: Vec<(&str, ArrayRef)> = table
        .iter()
        .map(|(name, column)| {
            let order = (0..400_u32).rev().collect::<arrow::array::UInt32Array>();
            (*name, arrow::compute::take(column, &order, None).unwrap())
        })
        .collect();
    let mut hashes = Vec::new();
    for (table, partitions) in [(&table, 1), (&table, 8), (&turned, 3)] {
        let fitted = fitted_to(
            table,
            of_target(7, 10.0),
            Task::Regression,
            true,
            partitions,
        );
        hashes.push(fitted.await.unwrap().hash);
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[tokio::test]
async fn what_cannot_be_encoded_is_refused() {
    let one = rows(&[Some("a")], floats([Some(1.0)]));
    let error = fitted_to(&one, of_target(5, 1.0), Task::Regression, false, 1);
    assert_eq!(
        error.await.unwrap_err().to_string(),
        "`dataset.step`: cannot encode column `c` by the target: all training rows are in one of 5 folds, so none of them \
         has others to learn from; land more rows, or use another encoding"
    );
    let classes: Vec<String> = (0..101).map(|i| format!("k{i}")).collect();
    let classes: Vec<Option<&str>> = classes.iter().map(|class| Some(class.as_str())).collect();
    let many = rows(&kinds(101), texts(&classes));
    let error = fitted_to(&many, of_target(5, 1.0), Task::Classification, false, 1);
    let message = error.await.unwrap_err().to_string();
    assert!(message.contains("more than 100 classes"), "{message}");
    let plain = spec(&[("c", texts(&[Some("a")]))], vec![of_target(5, 1.0)]);
    let table = rows(&[Some("a")], floats([Some(1.0)]));
    let message = fit(&split(&table, 1), &plain)
        .await
        .unwrap_err()
        .to_string();
    assert!(message.contains("needs a `dataset.target`"), "{message}");
}

#[tokio::test]
async fn training_rows_without_a_content_hash_and_damaged_numbers_are_refused() {
    let categories = kinds(40);
    let table = rows(&categories, floats((0..40).map(|row| Some(f64::from(row)))));
    let artefact = numbers(&table, of_target(3, 1.0)).await;
    let transform = Transform::new(artefact.clone()).unwrap();
    let error = transform
        .apply_train(&batch(&table[..2]), &Matrix::default())
        .unwrap_err();
    assert!(
        error.to_string().contains("they lack column `_hash`"),
        "{error}"
    );
    let damage: [fn(&mut FittedOutcomes); 4] = [
        |o| o.folds = 4,
        |o| o.elements.clear(),
        |o| o.elements[0].all.push(1.0),
        |o| o.elements[0].others[1][0] = 1e300,
    ];
    for damage in damage {
        let mut artefact = artefact.clone();
        let FittedStep::Categories { columns } = &mut artefact.steps[0] else {
            panic!("{:?}", artefact.steps)
        };
        damage(columns[0].outcomes.as_mut().unwrap());
        artefact.hash = artefact.compute_hash();
        let message = Transform::new(artefact).unwrap_err().to_string();
        assert!(
            message.contains("the categories of `c` lack a number"),
            "{message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn trap_43_no_row_is_told_its_own_target(
        changed in 0_usize..60,
        to in -1e6..1e6_f64,
        folds in 2_u32..8,
        scale: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let categories = kinds(60);
        let before: Vec<Option<f64>> = (0..60).map(|row| Some(f64::from(row % 17))).collect();
        let mut after = before.clone();
        after[changed] = Some(to);
        let [before, after] = [before, after].map(|y| {
            let table = rows(&categories, floats(y));
            let artefact = fitted_to(&table, of_target(folds, 2.0), Task::Regression, scale, 1);
            let artefact = runtime.block_on(artefact).unwrap();
            train(&artefact, &table)
        });
        let of = Folds::new(folds);
        let fold = of.of(&hash_of(changed));
        for row in 0..60 {
            if of.of(&hash_of(row)) == fold {
                prop_assert_eq!(before[row].to_bits(), after[row].to_bits());
            }
        }
        prop_assert_ne!(before, after);
    }
}
