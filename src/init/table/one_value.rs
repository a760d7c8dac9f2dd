//! Columns that have one value or are missing: the missing cells may be what a model needs.

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_schemas::{
    count::first_counted, csv_cell::CellFormat, record::ColumnType, report::NAMED_COLUMNS,
};

use super::{ColumnRoles, MIN_ROWS};

/// Fewest numbers of a column for a step: fewer ones may all be in rows that do not train, and a step needs one to fit.
const MIN_NUMBERS: u64 = 30;

/// Returns true for a column that has one value in some rows and is missing in the others.
pub(super) fn is_value_or_missing(column: &ColumnPreview) -> bool {
    let (rows, distinct) = values(column);
    distinct == 1 && column.missing > 0 && rows + column.missing >= MIN_ROWS
}

/// Number of rows with a value that is compared, and of its distinct values, without spellings of a missing one.
fn values(column: &ColumnPreview) -> (u64, u64) {
    let Some(counts) = &column.value_counts else {
        return (column.compared, column.distinct);
    };
    let read = counts.iter().filter(|(text, _)| !is_spelling(column, text));
    read.fold((0_u64, 0_u64), |(rows, distinct), (_, count)| {
        (rows + count, distinct + 1)
    })
}

/// Returns true for a text that is read as a missing value: columns of texts keep it.
fn is_spelling(column: &ColumnPreview, text: &str) -> bool {
    column.column_type != Some(ColumnType::Utf8) && CellFormat::default().is_missing(text)
}

impl ColumnRoles {
    /// Keeps such columns as features: numbers with an indicator of missing cells, unless they are few, and texts as categories,
    /// where a missing cell is one.
    pub(super) fn keep_one_valued(&mut self, preview: &SourcePreview) {
        let features = preview.columns.iter();
        let kept = features.filter(|column| is_value_or_missing(column) && self.is_feature(column));
        let is_text = |column: &&ColumnPreview| column.column_type == Some(ColumnType::Utf8);
        let (texts, mut numbers): (Vec<_>, Vec<_>) = kept.partition(is_text);
        numbers.retain(|column| values(column).0 >= MIN_NUMBERS);
        let rows = preview.rows;
        let named = |columns: &[&ColumnPreview]| {
            let named = columns.iter().map(|column| {
                let missing = column.missing.min(rows);
                let mut samples = column.samples.iter();
                match samples.find(|text| !is_spelling(column, text)) {
                    Some(value) => {
                        format!(
                            "`{}` (`{value}`, missing in {missing} of {rows})",
                            column.name
                        )
                    }
                    None => format!("`{}` (missing in {missing} of {rows})", column.name),
                }
            });
            first_counted(&named.collect::<Vec<_>>(), NAMED_COLUMNS, "column")
        };
        let advice = "list a column in `dataset.drop` if its missing cells mean nothing";
        if !numbers.is_empty() {
            self.decisions.push(format!(
                "one value or a missing cell in the rows looked at, and a feature: {}; an `impute` step with `indicator = true` in \
                 `dataset.step` marks the missing cells; {advice}",
                named(&numbers)
            ));
        }
        if !texts.is_empty() {
            self.decisions.push(format!(
                "one text or a missing cell in the rows looked at, and a category, which a missing cell is too: {}; {advice}",
                named(&texts)
            ));
        }
        self.one_valued = numbers.iter().map(|column| column.name.clone()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: ColumnType, distinct: u64, missing: u64) -> ColumnPreview {
        ColumnPreview {
            name: name.into(),
            compared: 300 - missing,
            distinct,
            missing,
            samples: vec!["1".to_owned()],
            column_type: Some(kind),
            ..ColumnPreview::default()
        }
    }

    fn roles(columns: Vec<ColumnPreview>, target: Option<&str>) -> ColumnRoles {
        let preview = SourcePreview {
            columns,
            rows: 300,
            is_all: true,
            ..SourcePreview::default()
        };
        ColumnRoles::decide(&preview, target).unwrap()
    }

    #[test]
    fn a_column_of_one_value_or_none_is_a_feature_and_no_chosen_target() {
        let columns = || {
            vec![
                column("a", ColumnType::Float64, 290, 0),
                column("same", ColumnType::Int64, 1, 0),
                column("y", ColumnType::Float64, 295, 0),
                column("flag", ColumnType::Utf8, 1, 150),
                column("vip", ColumnType::Int64, 1, 120),
                column("class", ColumnType::Int64, 1, 120),
            ]
        };
        for target in [None, Some("y")] {
            let found = roles(columns(), target);
            assert_eq!(found.target.as_deref(), Some("y"));
            let dropped: Vec<&str> = found.dropped.iter().map(|d| d.column.as_str()).collect();
            assert_eq!(dropped, ["same"]);
            assert_eq!(found.one_valued, ["vip", "class"]);
            let decisions = found.decisions.join("\n");
            let numbers = "a feature: `vip` (`1`, missing in 120 of 300), `class` (`1`, missing in 120 of 300); an `impute` step";
            assert!(decisions.contains(numbers), "{decisions}");
            let texts = "a missing cell is too: `flag` (`1`, missing in 150 of 300); ";
            assert!(decisions.contains(texts), "{decisions}");
        }
    }

    #[test]
    fn a_spelling_of_a_missing_value_is_no_second_number() {
        let spelled = |name: &str, kind, numbers: u64| {
            let spellings = 300 - numbers;
            ColumnPreview {
                compared: 300,
                samples: vec!["N/A".to_owned(), "5".to_owned()],
                value_counts: Some([("5".into(), numbers), ("N/A".into(), spellings)].into()),
                ..column(name, kind, 2, spellings)
            }
        };
        let columns = vec![
            column("a", ColumnType::Float64, 290, 0),
            spelled("vip", ColumnType::Int64, 120),
            spelled("few", ColumnType::Int64, 29),
            // A text keeps it as a value.
            spelled("flag", ColumnType::Utf8, 120),
            column("y", ColumnType::Float64, 295, 0),
        ];
        let found = roles(columns, Some("y"));
        assert_eq!(found.one_valued, ["vip"]);
        let decisions = found.decisions.join("\n");
        let numbers = "a feature: `vip` (`5`, missing in 180 of 300); an `impute` step";
        assert!(decisions.contains(numbers), "{decisions}");
        assert!(!decisions.contains("`flag`"), "{decisions}");
    }

    #[test]
    fn a_column_of_a_few_numbers_gets_no_step() {
        let columns = [("rare", 299), ("few", 271), ("vip", 270)]
            .map(|(name, missing)| column(name, ColumnType::Float64, 1, missing));
        let both = [
            column("a", ColumnType::Float64, 290, 0),
            column("y", ColumnType::Float64, 295, 0),
        ];
        let found = roles(columns.into_iter().chain(both).collect(), Some("y"));
        assert_eq!(found.one_valued, ["vip"]);
        assert!(found.dropped.is_empty(), "{:?}", found.dropped);
        let decisions = found.decisions.join("\n");
        assert!(
            decisions.contains("a feature: `vip` (`1`, missing in 270 of 300); an `impute` step"),
            "{decisions}"
        );
        assert!(!decisions.contains("`rare`"), "{decisions}");
    }

    #[test]
    fn a_named_target_of_one_value_gets_no_step() {
        let columns = vec![
            column("a", ColumnType::Float64, 290, 0),
            column("vip", ColumnType::Int64, 1, 120),
        ];
        assert!(roles(columns, Some("vip")).one_valued.is_empty());
    }
}
