//! Text columns that steps read as numbers: counts of cells that are none.
//!
//! Such a cell is missing for the build, so a category in a numeric step would be lost silently. A
//! typed row has lost this, so the landed cells of these columns are read again, in one pass.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use datafusion::prelude::SessionContext;
use feedline_schemas::{
    config::StepConfig,
    record::{ColumnType, RecordSchema},
    report::{WarnedColumn, Warning},
    transform::{InputKind, NumberSigns},
};

use super::landed_numbers::{CellCounts, count_cells};
use crate::{
    Error,
    operators::{coerce::Missing, number_format},
    schema::{dataset_spec::DatasetSpec, landed_columns::shown, reject_reason::SHOWN},
    source::landing_zone::Landed,
    warnings::TEXTS_NOT_NUMBERS,
};

/// The cells of a column that have a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cells {
    all: u64,
    /// Texts that are no numbers.
    odd: u64,
    /// The least of them.
    sample: Option<String>,
}

impl Cells {
    fn add(&mut self, other: &str) {
        self.odd += 1;
        if self.sample.as_deref().is_none_or(|least| other < least) {
            self.sample = Some(other.to_owned());
        }
    }
}

/// Cells with a value of the columns that landed as text.
struct TextCounts<'a> {
    missing: Missing,
    found: BTreeMap<&'a str, Cells>,
}

impl<'a> CellCounts<'a> for TextCounts<'a> {
    fn has_cells(&self, source: &Landed, schema: &RecordSchema, name: &str) -> bool {
        let mut all = source.generations.iter().flat_map(|g| &g.schema.columns);
        let is_text = |r#type| matches!(r#type, ColumnType::Utf8 | ColumnType::Timestamp);
        all.any(|c| c.name == *name && is_text(c.r#type))
            && schema.columns.iter().any(|c| c.name == *name)
    }

    fn add(&mut self, feature: &'a str, cells: &ArrayRef, signs: Option<NumberSigns>) {
        let of_column = self.found.entry(feature).or_default();
        let Some(texts) = cells.as_string_opt::<i32>() else {
            of_column.all += (cells.len() - cells.null_count()) as u64;
            return;
        };
        let missing = &self.missing;
        for text in texts.iter().flatten().filter(|text| !missing.text(text)) {
            of_column.all += 1;
            if number_format::number(text, signs).is_none() {
                of_column.add(text);
            }
        }
    }
}

/// Checks that text cells in the numeric columns of `spec` are numbers, in `sources` and in the
/// sources joined to them. Warns of cells that are none.
///
/// # Errors
/// [`Error::Config`] where most cells of a column are none, unless rows are `added` to an existing
/// dataset; failures of the engine.
pub(crate) async fn check_texts(
    session: &SessionContext,
    sources: &[Landed],
    spec: &DatasetSpec,
    added: bool,
) -> Result<Vec<Warning>, Error> {
    let mut counts = TextCounts {
        missing: Missing::new(&spec.config.null_values, &spec.config.missing_values),
        found: BTreeMap::new(),
    };
    count_cells(session, sources, spec, &mut counts).await?;
    let mut warnings = Vec::new();
    for (column, cells) in counts.found {
        warnings.extend(judge(column, &cells, spec, added)?);
    }
    Ok(warnings)
}

fn judge(
    column: &str,
    cells: &Cells,
    spec: &DatasetSpec,
    added: bool,
) -> Result<Option<Warning>, Error> {
    let Cells { all, odd, sample } = cells;
    let Some(sample) = sample else {
        return Ok(None);
    };
    let sample: String = sample.chars().take(SHOWN).collect();
    let sample = shown(&sample);
    if added || odd * 2 <= *all {
        let message = format!(
            "column `{}` holds text and is read as numbers: {odd} of its {all} cells with a value are none, such as `{sample}`, \
             and became missing; leave it out of the `columns` of numeric steps to read it as a category, or list in \
             `dataset.null_values` what stands for no value",
            shown(column)
        );
        let warning = Warning::new(TEXTS_NOT_NUMBERS, message).with_key("dataset.null_values");
        return Ok(Some(warning.with_columns(vec![WarnedColumn::new(column)])));
    }
    Err(Error::config(
        key_of(column, spec),
        format!(
            "column `{}` holds text, and {odd} of the {all} cells with a value are no numbers, such as `{sample}`; leave it \
             out of the `columns` of numeric steps to read it as a category, or say what stands for no value \
             (`dataset.null_values`) or how its numbers are written (`dataset.decimal_separator`)",
            shown(column)
        ),
    ))
}

/// The key that names `column` as a number, as far as it is known. A step that was written without columns has all numeric ones
/// here, so one that has fewer was written with them.
fn key_of(column: &str, spec: &DatasetSpec) -> String {
    let inputs = spec.inputs.iter().map(|input| input.column.kind);
    let numeric = inputs.filter(|kind| *kind == InputKind::Numeric).count();
    let steps = spec.steps.iter().enumerate();
    let has_it: Vec<(usize, &StepConfig)> = steps
        .filter(|(_, step)| step.columns.iter().any(|name| name == column))
        .collect();
    let mut by_name = has_it.iter().filter(|(_, s)| s.columns.len() < numeric);
    match (by_name.next(), &has_it[..]) {
        (Some((i, _)), _) | (None, [(i, _)]) => format!("dataset.step.{i}.columns"),
        (None, _) => "dataset.step".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::record::ColumnType::{Float64, Int64, Utf8};
    use feedline_storage::Store;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Cells as Row, LandingZone, build_with};

    const DATASET: &str = "sources = [\"a\"]\ntarget = \"y\"\ndedup = \"none\"\n\
        split = { train = 1.0, validation = 0.0, test = 0.0 }\n\
        step = [{ type = \"impute\", columns = [\"size\"] }]\n";

    async fn landed(sizes: &[Value], rows: usize) -> Store {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("size", Utf8), ("y", Float64)]);
        let row = |i: usize| vec![sizes[i % sizes.len()].clone(), json!(0.5)];
        zone.batch(&(0..rows).map(row).collect::<Vec<Row>>()).await;
        root
    }

    async fn check_refused(root: &Store, dataset: &str, expected: &str) {
        for partitions in [1, 3] {
            let error = build_with(root, dataset, partitions).await.unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn a_text_column_of_which_most_cells_are_no_numbers_is_no_number() {
        let root = landed(
            &[json!("S"), json!("M"), json!("L"), json!("12"), json!("")],
            200,
        )
        .await;
        let expected = "`dataset.step.0.columns`: column `size` holds text, and 120 of the 160 cells with a value are no \
                        numbers, such as `L`; leave it out";
        check_refused(&root, DATASET, expected).await;
        let declared = format!("{DATASET}null_values = [\"S\", \"M\", \"L\"]\n");
        build_with(&root, &declared, 2).await.unwrap();
        let (as_category, _) = DATASET.split_once("step =").unwrap();
        build_with(&root, as_category, 2).await.unwrap();
    }

    #[tokio::test]
    async fn the_step_that_lists_a_text_column_is_named_and_none_that_was_written_without_columns()
    {
        let root = Store::memory();
        let columns = [("size", Utf8), ("a", Float64), ("y", Float64)];
        let mut zone = LandingZone::new(&root, "a", &columns);
        let row = |i: u32| vec![json!("XL"), json!(i), json!(0.5)];
        zone.batch(&(0..40).map(row).collect::<Vec<Row>>()).await;
        let (head, _) = DATASET.split_once("step =").unwrap();
        for (steps, key) in [
            (
                "{ type = \"impute\" }, { type = \"standardize\", columns = [\"size\"] }",
                "dataset.step.1.columns",
            ),
            (
                "{ type = \"impute\", columns = [\"size\"] }, { type = \"standardize\" }",
                "dataset.step.0.columns",
            ),
            // Which of them lists all numeric columns is not known.
            (
                "{ type = \"impute\" }, { type = \"standardize\", columns = [\"size\", \"a\"] }",
                "dataset.step",
            ),
        ] {
            let dataset = format!("{head}step = [{steps}]\n");
            check_refused(
                &root,
                &dataset,
                &format!("`{key}`: column `size` holds text"),
            )
            .await;
        }
    }

    #[tokio::test]
    async fn a_text_column_of_which_few_cells_are_no_numbers_is_read_with_a_warning() {
        let half = landed(&[json!("S"), json!("12")], 40).await;
        build_with(&half, DATASET, 2).await.unwrap();
        // Numbers of a schema version before count, too.
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("size", Int64), ("y", Float64)]);
        let rows = |size: Value, rows: usize| vec![vec![size, json!(0.5)]; rows];
        zone.batch(&rows(json!(7), 30)).await;
        zone.evolve(&[("size", Utf8), ("y", Float64)]);
        zone.batch(&rows(json!("XL"), 20)).await;
        let report = build_with(&root, DATASET, 2).await.unwrap();
        let mut warnings = report.warnings.iter();
        let found = warnings.find(|warning| warning.code == "texts_not_numbers");
        assert!(
            found.is_some_and(|found| found.message.contains("20 of its 50 cells")),
            "{report:?}"
        );
        zone.batch(&rows(json!("XL"), 20)).await;
        check_refused(
            &root,
            &format!("{DATASET}max_reject_fraction = 0.9\n"),
            "40 of the 70 cells",
        )
        .await;
    }

    #[tokio::test]
    async fn rows_that_are_added_are_not_held_against_the_dataset() {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("size", Utf8), ("y", Float64)]);
        let rows = |size: &str, rows: usize| vec![vec![json!(size), json!(0.5)]; rows];
        zone.batch(&rows("12", 30)).await;
        build_with(&root, DATASET, 2).await.unwrap();
        zone.batch(&rows("XL", 10)).await;
        let report = build_with(&root, DATASET, 2).await.unwrap();
        assert!(report.added.is_some());
    }

    #[tokio::test]
    async fn the_cells_of_a_joined_column_are_looked_at_too() {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("id", Int64), ("y", Float64)]);
        let rows: Vec<Row> = (0..40).map(|i| vec![json!(i), json!(0.5)]).collect();
        zone.batch(&rows).await;
        let mut zone = LandingZone::new(&root, "b", &[("id", Int64), ("size", Utf8)]);
        let rows: Vec<Row> = (0..40).map(|i| vec![json!(i), json!("XL")]).collect();
        zone.batch(&rows).await;
        let dataset = format!(
            "{DATASET}drop = [\"id\"]\njoin = [{{ source = \"b\", left = \"id\", right = \"id\" }}]\n"
        );
        check_refused(&root, &dataset, "40 of the 40 cells").await;
    }
}
