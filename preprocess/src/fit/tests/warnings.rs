//! A step that leaves nothing of a column warns of it, and of no other column.

use std::sync::{LazyLock, Mutex};

use feedline_schemas::{config::PowerMethod, transform::FittedPower};
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::*;

/// Fits `steps` to columns of one row each, and gives what was warned of on the way.
async fn warned(
    columns: &[(&str, Vec<f64>)],
    steps: Vec<StepConfig>,
) -> (TransformArtefact, Vec<String>) {
    // A second receiver that stays. Without one, a call site that is first reached by a thread
    // without a receiver is cached as disabled, and later warnings of this thread there are lost.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Warnings::default()));
    LazyLock::force(&SECOND);
    let cells = |cells: &Vec<f64>| floats(cells.iter().map(|x| Some(*x)));
    let table: Vec<(&str, ArrayRef)> = columns.iter().map(|(n, c)| (*n, cells(c))).collect();
    let warnings = Warnings::default();
    let guard = tracing::subscriber::set_default(warnings.clone());
    let artefact = fitted(&table, steps).await;
    drop(guard);
    let found = warnings.0.lock().unwrap().clone();
    (artefact, found)
}

fn powers(artefact: &TransformArtefact) -> &[FittedPower] {
    match &artefact.steps[..] {
        [FittedStep::Power { columns }, ..] => columns,
        other => panic!("{other:?}"),
    }
}

/// Years, most of them early, and numbers far from 0, some a little larger than the others.
fn far_from_zero() -> [(&'static str, Vec<f64>); 2] {
    let year = |i: u32| 1990.0 + f64::from(i % 34).powi(2) / 34.0;
    let far = |i: u32| 1e5 + (f64::from(i % 41) / 10.0 - 2.0).exp();
    [
        ("year", (0..1500).map(year).collect()),
        ("far", (0..1500).map(far).collect()),
    ]
}

#[tokio::test]
async fn a_power_keeps_numbers_far_from_zero_apart_and_says_that_it_is_not_the_best() {
    for method in [PowerMethod::YeoJohnson, PowerMethod::BoxCox] {
        for (name, cells) in far_from_zero() {
            let power = step_with("power", &[name], json!({ "method": method }));
            let scale = step("standardize", &[name]);
            let columns = [(name, cells)];
            let (artefact, found) = warned(&columns, vec![power, scale]).await;
            let [(_, cells)] = columns;
            let table = [(name, floats(cells.iter().map(|x| Some(*x))))];
            let x: Vec<f64> = applied(&artefact, &table)
                .x
                .into_iter()
                .map(f64::from)
                .collect();
            let rows = f64::from(1500);
            let mean = x.iter().sum::<f64>() / rows;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / rows;
            assert!(mean.abs() < 1e-4, "{name} {mean:e}");
            assert!((variance - 1.0).abs() < 1e-4, "{name} {variance}");
            // Different numbers stay different, in their order.
            let mut both: Vec<(f64, f64)> = cells.into_iter().zip(x).collect();
            both.sort_by(|a, b| a.0.total_cmp(&b.0));
            both.dedup();
            assert!(both.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{name}");
            let lambda = powers(&artefact)[0].lambda;
            let told = format!("column={name} lambda={lambda:?} ");
            assert!(
                matches!(&found[..], [one] if one.ends_with(&told) && one.contains("`standardize` step before")),
                "{found:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_column_that_shards_hold_one_number_of_is_told_of_unless_it_is_scaled_behind_the_power() {
    let near = (0..40).map(|i| 1e6 + f64::from(i % 7) * 1e-4).collect();
    let plain = (0..40).map(|i| f64::from(i % 7)).collect();
    let columns = [("near", near), ("plain", plain)];
    let power = || step("power", &["near", "plain"]);
    let is_told = |found: &[String]| {
        let is_it = |w: &&String| w.contains("column=near ") && w.contains("32 bits of shards");
        found.iter().filter(is_it).count()
    };
    let (_, found) = warned(&columns, vec![power()]).await;
    assert_eq!(is_told(&found), 1, "{found:?}");
    for scale in ["standardize", "robust", "min_max"] {
        let (_, found) = warned(&columns, vec![power(), step(scale, &["near"])]).await;
        assert_eq!(is_told(&found), 0, "{found:?}");
        assert!(found.iter().all(|w| !w.contains("plain")), "{found:?}");
    }
}

#[tokio::test]
async fn a_column_that_is_only_centred_is_warned_of_once() {
    let same = vec![7.0; 400];
    let rare: Vec<f64> = (0..400).map(|i| f64::from(u8::from(i == 9))).collect();
    let other: Vec<f64> = (0..400).map(f64::from).collect();
    let columns = [("same", same), ("rare", rare), ("other", other)];
    let all = ["same", "rare", "other"];
    let standardize = || step("standardize", &all);
    let found = |artefact: &TransformArtefact| -> Vec<(String, String)> {
        let found = crate::warnings::of_transform(artefact, &[], |_| false);
        found.into_iter().map(|w| (w.code, w.message)).collect()
    };
    let (artefact, logged) = warned(&columns, vec![standardize()]).await;
    let warnings = found(&artefact);
    assert!(logged.is_empty(), "{logged:?}");
    assert!(
        matches!(&warnings[..], [(code, text)] if code == "constant_columns" && text.contains("cannot learn from it: `same`;")),
        "{warnings:?}"
    );
    let steps = vec![step("winsorize", &all), standardize()];
    let (artefact, _) = warned(&columns, steps).await;
    let warnings = found(&artefact);
    let [(constant, same), (capped, rare)] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!([constant, capped], ["constant_columns", "constant_by_caps"]);
    assert!(same.contains("cannot learn from it: `same`;"), "{same}");
    assert!(rare.contains("`rare` (1 row);"), "{rare}");
}

/// Takes what is warned of, field by field.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}
