//! The same for categories and groups.

use super::*;

/// Two stations of different level, one of few rows, and rows of none; then a target.
fn stations(rows: i32) -> Vec<Cells> {
    let row = |i: i32| {
        let station = match i % 10 {
            0..5 => json!("north"),
            5..8 => json!("south"),
            8 => Value::Null,
            _ if i < 30 => json!("rare"),
            _ => json!("south"),
        };
        let level = if i % 10 < 5 { 1000.0 } else { 0.0 };
        vec![
            json!(level + f64::from(i * 7919 % 101)),
            station,
            json!(i * 31 % 57),
        ]
    };
    (0..rows).map(row).collect()
}

const STATIONS: [(&str, ColumnType); 3] = [("a", Float64), ("s", Utf8), ("y", Float64)];

#[tokio::test]
async fn trap_05_a_value_that_was_not_in_train_has_no_share_and_a_bucket() {
    let kinds = ["x", "y", "x", "y", "new", "x", "newer", "y"];
    let shares =
        "step = [{ type = \"categories\", columns = [\"a\"], encoding = \"frequency\" }]\n";
    let found = texts(&kinds, &format!("{HALVES}{shares}")).await.unwrap();
    assert_eq!(found.a(), [0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 0.0, 0.5]);
    let hashed =
        "step = [{ type = \"categories\", columns = [\"a\"], encoding = \"hash\", buckets = 5 }]\n";
    let found = texts(&kinds, &format!("{HALVES}{hashed}")).await.unwrap();
    for row in &found.rows {
        assert_eq!(
            (row.x[0], row.x[1], row.x[..7].iter().sum::<f32>()),
            (0.0, 0.0, 1.0)
        );
    }
}

#[tokio::test]
async fn trap_05_where_unknown_values_are_rejected_their_rows_are_set_aside_by_name() {
    let kinds = ["x", "y", "x", "y", "new", "x", "newer", "y"];
    let step = |unknown: &str| {
        format!(
            "{HALVES}max_reject_fraction = 1.0\nstep = [{{ type = \"categories\", columns = [\"a\"]{unknown} }}]\n"
        )
    };
    let found = texts(&kinds, &step(", unknown = \"reject\""))
        .await
        .unwrap();
    assert_eq!(found.report.rejected_by_reason["unknown_category"], 2);
    let sample = found.report.reject_sample.unwrap();
    assert!(
        sample.contains("column `a`: category `new` does not occur in the training split"),
        "{sample}"
    );
    let kept: Vec<u64> = found.rows.iter().map(|row| row.origin.row()).collect();
    assert_eq!(kept, [0, 1, 2, 3, 5, 7]);
    assert!(found.rows.iter().all(|row| row.x[0] == 0.0));
    let accepted = texts(&kinds, &step(", unknown = \"accept\""))
        .await
        .unwrap();
    let default = texts(&kinds, &step("")).await.unwrap();
    assert_eq!((accepted.report.rejected, accepted.rows.len()), (0, 8));
    assert_eq!(accepted.artefact, default.artefact);
    assert_ne!(default.artefact.hash, found.artefact.hash);
}

#[tokio::test]
async fn trap_05_where_unknown_values_are_rejected_every_training_value_is_known() {
    let kinds = ["x", "y", "x", "z", "x", "y", "x", "y"];
    let step = |most: u32| {
        format!(
            "{HALVES}step = [{{ type = \"categories\", columns = [\"a\"], unknown = \"reject\", max_values = {most} }}]\n"
        )
    };
    let message = match texts(&kinds, &step(2)).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("rows of `z` would be rejected"),
    };
    assert!(
        message.contains("column `a` has more than 2 values in the training split"),
        "{message}"
    );
    assert_eq!(texts(&kinds, &step(3)).await.unwrap().rows.len(), 8);
}

#[tokio::test]
async fn trap_14_groups_and_targets_give_the_same_bytes_for_any_partitions() {
    let steps = "target = \"y\"\nstep = [{ type = \"winsorize\", by = \"s\", lower = 0.1, upper = 0.9 }, \
                 { type = \"standardize\", by = \"s\" }, { type = \"min_max\" }, \
                 { type = \"categories\", encoding = \"target\", folds = 4 }]\n";
    let mut all: Vec<(Built, Vec<f32>)> = Vec::new();
    for partitions in [1, 8] {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &STATIONS);
        for batch in stations(400).chunks(70) {
            zone.batch(batch).await;
        }
        let found = finished(&root, steps, partitions).await.unwrap();
        let x = found.rows.iter().flat_map(|row| row.x.clone()).collect();
        all.push((found, x));
    }
    assert_eq!(all[0].0.artefact.hash, all[1].0.artefact.hash);
    assert_eq!(all[0].1, all[1].1);
}

#[tokio::test]
async fn trap_15_caps_of_a_group_that_meet_leave_other_groups_alone() {
    let rows: Vec<Cells> = (0..400)
        .map(|i| {
            let (flat, odd) = (i % 2 == 0, i == 6);
            let value = if flat {
                f64::from(u8::from(odd))
            } else {
                f64::from(i)
            };
            vec![
                json!(value),
                json!(if flat { "flat" } else { "wide" }),
                json!(i),
            ]
        })
        .collect();
    let steps = "step = [{ type = \"winsorize\", columns = [\"a\"], by = \"s\" }, \
                 { type = \"standardize\", columns = [\"a\"], by = \"s\" }]\n";
    let found = built(&STATIONS, &rows, &format!("{ALL}{steps}"))
        .await
        .unwrap();
    let groups = found.caps().groups.as_ref().unwrap();
    let flat = groups.caps["flat"];
    assert_eq!((flat.low, flat.high, flat.clipped_high), (0.0, 0.0, 1));
    assert!(groups.caps["wide"].high > 190.0);
    let scales = &found.scaled().groups.as_ref().unwrap().moments;
    assert_eq!((scales["flat"].scale, scales["flat"].constant), (1.0, true));
    let a = found.a();
    assert!(a.iter().step_by(2).all(|x| *x == 0.0));
    let wide: f32 = a.iter().skip(1).step_by(2).sum();
    assert!(wide.abs() < 1e-4, "{wide}");
}

#[tokio::test]
async fn trap_19_scales_of_groups_are_fitted_on_what_their_caps_left() {
    let steps = "features = [\"a\", \"s\"]\nstep = [{ type = \"winsorize\", by = \"s\", lower = 0.2, upper = 0.8 }, \
                 { type = \"standardize\", by = \"s\" }]\n";
    let found = built(&STATIONS, &stations(400), &format!("{ALL}{steps}"))
        .await
        .unwrap();
    let caps = found.caps().groups.as_ref().unwrap();
    let scales = found.scaled().groups.as_ref().unwrap();
    assert_eq!(caps.caps.keys().collect::<Vec<_>>(), ["north", "south"]);
    for (group, moments) in &scales.moments {
        let caps = caps.caps[group];
        assert!(moments.deviation < (caps.high - caps.low) / 2.0, "{group}");
        assert!((caps.low..caps.high).contains(&moments.mean), "{group}");
    }
    // Each group is centred on its own, so both levels are gone.
    for first in [0, 5] {
        let own: Vec<f32> = found.a().chunks(10).map(|rows| rows[first]).collect();
        assert!(own.iter().all(|x| x.abs() < 3.0), "{own:?}");
        assert!(own.iter().any(|x| *x < 0.0) && own.iter().any(|x| *x > 0.0));
    }
}

#[tokio::test]
async fn trap_27_one_text_in_several_code_points_is_one_bucket() {
    let kinds = ["caf\u{e9}", "cafe\u{301}", "\u{212b}", "\u{c5}"];
    let hashed = "step = [{ type = \"categories\", columns = [\"a\"], encoding = \"hash\", buckets = 5000 }]\n";
    let found = texts(&kinds, &format!("{ALL}{hashed}")).await.unwrap();
    let bucket = |row: usize| found.rows[row].x.iter().position(|x| *x == 1.0).unwrap();
    assert_eq!((bucket(0), bucket(2)), (bucket(1), bucket(3)));
    assert_ne!(bucket(0), bucket(2));
}

#[tokio::test]
async fn trap_43_a_category_of_few_rows_does_not_hand_the_target_over() {
    // The target is noise, so whatever a training row learns of it through its category is its own.
    let noise = |i: u32| {
        let hash = xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()) >> 32;
        f64::from(u32::try_from(hash).unwrap()) / f64::from(u32::MAX)
    };
    let rows: Vec<Cells> = (0..600)
        .map(|i: u32| {
            vec![
                json!(f64::from(i)),
                json!(format!("k{}", i % 200)),
                json!(noise(i)),
            ]
        })
        .collect();
    let steps = "target = \"y\"\ndrop = [\"a\"]\n\
                 step = [{ type = \"categories\", columns = [\"s\"], encoding = \"target\", smoothing = 0.0 }]\n";
    let found = built(&STATIONS, &rows, &format!("{ALL}{steps}"))
        .await
        .unwrap();
    let pairs: Vec<(f64, f64)> = (0..)
        .zip(found.a())
        .map(|(i, x)| (x.into(), noise(i)))
        .collect();
    let fitted = correlation(&pairs);
    let FittedStep::Categories { columns } = &found.artefact.steps[0] else {
        panic!("{:?}", found.artefact.steps)
    };
    let all = &columns[0].outcomes.as_ref().unwrap().elements[0].all;
    let place = |i: u32| {
        columns[0]
            .values
            .iter()
            .position(|v| *v == format!("k{}", i % 200))
    };
    let naive: Vec<(f64, f64)> = (0..600)
        .map(|i| (all[place(i).unwrap() + 2], noise(i)))
        .collect();
    assert!(fitted < 0.15, "{fitted}");
    assert!(correlation(&naive) > 0.4, "{}", correlation(&naive));
}

fn correlation(pairs: &[(f64, f64)]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "few rows")]
    let n = pairs.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let xy = mean(&|p| (p.0 - x) * (p.1 - y));
    xy / (mean(&|p| (p.0 - x).powi(2)) * mean(&|p| (p.1 - y).powi(2))).sqrt()
}

#[tokio::test]
async fn trap_54_values_of_one_count_stand_in_the_order_of_their_bytes_and_nulls_in_none() {
    let kinds = ["b", "B", "", "\u{e4}", "a", "Z", ""];
    let ordinal = "step = [{ type = \"categories\", columns = [\"a\"], encoding = \"ordinal\", min_count = 1 }]\n";
    let found = texts(&kinds, &format!("{ALL}{ordinal}")).await.unwrap();
    assert_eq!(found.a(), [5.0, 2.0, 1.0, 6.0, 4.0, 3.0, 1.0]);
}

#[tokio::test]
async fn integers_that_landed_as_decimals_are_rejected_as_others_are_and_can_be_categories() {
    // Decimals land as units of 10^-18.
    let units = |whole: u64, part: &str| json!(format!("{whole}{part:0<18}"));
    let largest = 1_u64 << 53;
    let rows: Vec<Cells> = (1..=20)
        .map(|i| vec![units(largest + i, ""), units(largest + i, "5")])
        .collect();
    let columns = [("code", Decimal), ("a", Decimal)];
    let refused = match built(&columns, &rows, ALL).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("20 codes are no numbers"),
    };
    for part in [
        "integer_too_large: 20",
        "`dataset.categorical`",
        "`dataset.drop`",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    // A fraction is a measure, which is rounded.
    for keys in ["drop = [\"code\"]\n", "categorical = [\"code\"]\n"] {
        let found = built(&columns, &rows, &format!("{ALL}{keys}")).await;
        assert_eq!(found.unwrap().report.rejected, 0, "{keys}");
    }
}
