//! Passthrough columns with the types of the input, in an output that has types.

use feedline_preprocess::{Column, PassthroughType};
use feedline_schemas::{
    count::counted,
    report::{PredictReport, WarnedColumn, Warning},
};

/// Name of a passthrough column, where another column of the file has its own name.
pub(super) fn renamed(name: &str) -> String {
    format!("kept={name}")
}

/// Names of the passthrough columns `kept` in a file, then those of its `own` columns.
pub(super) fn names_with_own(kept: &[String], own: Vec<String>) -> Vec<String> {
    let kept = kept.iter().map(|name| match own.contains(name) {
        true => renamed(name),
        false => name.clone(),
    });
    let mut names: Vec<String> = kept.collect();
    names.extend(own);
    names
}

/// A cell that the type of its column cannot hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    column: usize,
    row: usize,
    text: String,
}

/// Makes columns of the cells `kept`: the first ones of these types, the others of text. Returns the
/// cells too that do not fit.
pub(super) fn typed_columns(
    kept: Vec<Vec<Option<String>>>,
    types: &[PassthroughType],
) -> (Vec<Column>, Vec<Misfit>) {
    let mut misfits = Vec::new();
    let mut columns = Vec::with_capacity(kept.len());
    for (place, cells) in kept.into_iter().enumerate() {
        let own = types.get(place).copied().unwrap_or_default();
        let (column, found) = own.column(cells);
        columns.push(column);
        misfits.extend(found.into_iter().map(|(row, text)| Misfit {
            column: place,
            row,
            text,
        }));
    }
    (columns, misfits)
}

/// Adds cells that are null in their columns to the details of their rows, and counts them by the
/// `names` of the columns.
pub(super) fn note_misfits(
    misfits: Vec<Misfit>,
    names: &[String],
    details: &mut [Option<String>],
    report: &mut PredictReport,
) {
    for Misfit { column, row, text } in misfits {
        let name = &names[column];
        let note = format!("passthrough column `{name}`: `{text}` is not of its type");
        details[row] = Some(match details[row].take() {
            Some(before) => format!("{before}; {note}"),
            None => note,
        });
        *report.untyped_cells.entry(name.clone()).or_default() += 1;
    }
}

/// Warns of cells that are null in their columns.
pub(super) fn warn_of_misfits(report: &mut PredictReport) {
    for (column, cells) in report.untyped_cells.clone() {
        super::warn(misfit_warning(&column, cells), report);
    }
}

fn misfit_warning(column: &str, cells: u64) -> Warning {
    let (are, they_are, their) = match cells {
        1 => ("is", "it is", "its"),
        _ => ("are", "they are", "their"),
    };
    let message = format!(
        "{} of the passthrough column `{column}` {are} not of the type that the contract declares; {they_are} null in the \
         Parquet file, and `detail` has {their} text; correct the rows, or write CSV or NDJSON, where the column is text",
        counted(cells, "cell")
    );
    Warning::new("passthrough_not_typed", message)
        .with_key("source.contract.column")
        .with_columns(vec![WarnedColumn::new(column)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_called_as_one_of_the_predictions_has_another_name() {
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let kept: Vec<String> = strings(&["id", "row", "error", "truth"]);
        let own: Vec<String> = strings(&["row", "prediction", "error", "detail"]);
        let expected: Vec<String> = strings(&[
            "id",
            "kept=row",
            "kept=error",
            "truth",
            "row",
            "prediction",
            "error",
            "detail",
        ]);
        assert_eq!(names_with_own(&kept, own), expected);
    }

    #[test]
    fn a_column_without_a_type_is_text() {
        let cells = || vec![Some("1".to_owned()), None];
        let (columns, misfits) =
            typed_columns(vec![cells(), cells()], &[PassthroughType::default()]);
        assert_eq!(columns, [Column::Text(cells()), Column::Text(cells())]);
        assert!(misfits.is_empty());
    }

    #[test]
    fn a_cell_that_does_not_fit_is_in_the_details_and_in_a_warning() {
        let misfit = |row: usize, text: &str| Misfit {
            column: 1,
            row,
            text: text.to_owned(),
        };
        let names = ["a", "id"].map(str::to_owned);
        let mut details = vec![None, None, Some("row 2: it is bad".to_owned())];
        let mut report = PredictReport::default();
        note_misfits(vec![misfit(1, "A7")], &names, &mut details, &mut report);
        note_misfits(vec![misfit(2, "B")], &names, &mut details, &mut report);
        assert_eq!(
            details,
            [
                None,
                Some("passthrough column `id`: `A7` is not of its type".to_owned()),
                Some(
                    "row 2: it is bad; passthrough column `id`: `B` is not of its type".to_owned()
                ),
            ]
        );
        warn_of_misfits(&mut report);
        let [warning] = &report.warnings[..] else {
            panic!("{report:?}")
        };
        assert_eq!(warning.code, "passthrough_not_typed");
        let begin = "2 cells of the passthrough column `id` are not of the type";
        assert!(warning.message.starts_with(begin), "{}", warning.message);
        assert!(warning.is_about("id"), "{warning:?}");
        let one = misfit_warning("id", 1).message;
        assert!(
            one.contains("1 cell of the passthrough column `id` is not"),
            "{one}"
        );
    }
}
