//! Warnings of duplicates: dropped ones, copies with other labels, and equal rows in several splits.

use feedline_schemas::{
    count::counted,
    manifest::{ConflictCounts, Split},
    report::Warning,
};

use super::message::{COLUMNS, first_of, percent, share, toml_string, warned_columns, warning};
use crate::schema::landed_columns::listed;

/// Fraction of the rows above which dropped duplicates are worth a warning.
const DUPLICATES: f64 = 0.01;

/// Code of a warning of dropped duplicates.
const DUPLICATES_DROPPED: &str = "duplicates_dropped";

/// Returns whether the dropped duplicates are many enough for a warning.
pub(crate) fn are_many(duplicates: u64, rows: u64) -> bool {
    share(duplicates, rows) > DUPLICATES
}

/// Parts that rows dropped as duplicates have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EqualParts<'a> {
    /// All columns but those that the configuration ignores, and but the target if `dataset.conflicts` chooses one.
    Columns {
        ignored: &'a [String],
        has_conflicts: bool,
    },
    /// The document, whatever other columns hold.
    Document,
    /// The bytes of the image.
    ImageBytes,
    /// The pixels of the image.
    ImagePixels,
}

impl EqualParts<'_> {
    /// Columns that are not compared, as a message names them, with the key that changes them and how; none if all columns are
    /// compared.
    fn exceptions(self) -> Option<(String, &'static str, &'static str)> {
        const IGNORE: &str = "dataset.dedup_ignore";
        let Self::Columns {
            ignored,
            has_conflicts,
        } = self
        else {
            return None;
        };
        let names: Vec<&str> = ignored.iter().map(String::as_str).collect();
        let listed = listed(&names, "`");
        match (ignored, has_conflicts) {
            ([], false) => None,
            ([], true) => Some((
                "the target (`dataset.conflicts`)".to_owned(),
                "dataset.conflicts",
                "remove `dataset.conflicts` if rows with another target are meant",
            )),
            (_, false) => Some((
                format!("{listed} (`{IGNORE}`)"),
                IGNORE,
                "list fewer columns in `dataset.dedup_ignore`",
            )),
            (_, true) => Some((
                format!("{listed} (`{IGNORE}`) and the target (`dataset.conflicts`)"),
                IGNORE,
                "list fewer columns in `dataset.dedup_ignore`, or remove `dataset.conflicts`",
            )),
        }
    }

    /// Reason for dropping a row, the noun with its article, and another remedy.
    const fn describe(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Columns { .. } => ("they equal another row in every column", "a row", ""),
            Self::Document => (
                "their document equals that of another row, whatever their other columns hold",
                "a document",
                "",
            ),
            Self::ImageBytes => (
                "their image file equals that of another row byte by byte, whatever their names and other columns are",
                "an image",
                "",
            ),
            Self::ImagePixels => (
                "their image has the same pixels as that of another row, whatever their formats, names and other columns are",
                "an image",
                ", or drop only files of equal bytes with `dataset.image.duplicates = \"bytes\"`",
            ),
        }
    }
}

/// Warns of `dropped` duplicates among `rows`. `sample` describes a row that has some.
pub(crate) fn duplicates_dropped(
    (dropped, rows): (u64, u64),
    equal: EqualParts<'_>,
    sample: Option<&str>,
) -> Option<Warning> {
    if !are_many(dropped, rows) {
        return None;
    }
    let sample = sample.map_or_else(String::new, |sample| format!(", such as {sample}"));
    let (reason, one, remedy) = equal.describe();
    let noun = one.rsplit(' ').next().unwrap_or(one);
    let start = format!(
        "{dropped} of {rows} rows ({}) were dropped since {reason}",
        percent(dropped, rows)
    );
    let Some((columns, key, change)) = equal.exceptions() else {
        let message = format!(
            "{start}{sample}; where equal {noun}s are different observations, keep them with `dataset.dedup = \"none\"`: all \
             copies of {one} are then in one split{remedy}"
        );
        return Some(warning(DUPLICATES_DROPPED, "dataset.dedup", message));
    };
    let message = format!(
        "{start} but {columns}{sample}; where such rows are different observations, {change}"
    );
    Some(warning(DUPLICATES_DROPPED, key, message))
}

/// Code of a warning about copies of images, and near-duplicates, with other targets.
const LABELS_DIFFER: &str = "labels_differ";

/// Warns of images whose copies have other values of `target`. `sample` names one.
pub(crate) fn labels_differ(counts: ConflictCounts, target: &str, sample: &str) -> Option<Warning> {
    let ConflictCounts { contents, rows } = counts;
    (contents > 0).then(|| {
        let appear = if contents == 1 { "appears" } else { "appear" };
        let message = format!(
            "{} {appear} in {} with different values of `{target}`{sample}; of each image the row that landed first is kept, and \
             the values of the others are lost: correct the labels, or keep all rows with `dataset.dedup = \"none\"`",
            counted(contents, "image"),
            counted(rows, "row")
        );
        warning(LABELS_DIFFER, "dataset.dedup", message)
    })
}

/// Warns of clusters of near-duplicates with several values of `target`. `sample` names one.
pub(crate) fn near_labels_differ(
    counts: ConflictCounts,
    target: &str,
    sample: &str,
) -> Option<Warning> {
    let ConflictCounts { contents, rows } = counts;
    (contents > 0).then(|| {
        let have = if contents == 1 { "has" } else { "have" };
        let message = format!(
            "{} of near-duplicates, in {}, {have} different values of `{target}`{sample}; of each cluster the row that landed first \
             is kept, and the values of the others are lost: correct the values if one is wrong, or keep all rows with \
             `dataset.near_dup.keep = \"all\"`, which puts each cluster in one split",
            counted(contents, "cluster"),
            counted(rows, "row")
        );
        warning(LABELS_DIFFER, "dataset.near_dup.keep", message)
    })
}

/// Warns of sources that dropped duplicate records before landing, each with the count.
pub(crate) fn left_at_landing(sources: &[(String, u64)]) -> Option<Warning> {
    let sources: Vec<String> = sources
        .iter()
        .map(|(source, records)| format!("`{source}` ({})", counted(*records, "record")))
        .collect();
    (!sources.is_empty()).then(|| {
        let message = format!(
            "`dataset.dedup = \"none\"` keeps copies that landed, and sources left out records that were equal to others: {}; \
             set their `batch.dedup_window = 0` and ingest into another root to have them",
            first_of(&sources, COLUMNS)
        );
        warning("copies_left_at_landing", "batch.dedup_window", message)
    })
}

/// Code of a warning about rows of several splits that are equal to a model.
pub(super) const EQUAL_ROWS: &str = "equal_rows";

/// Warns of rows of other splits that equal a training row in all features, before any step, and in the target. `equal` has those of each split and the
/// rows looked at, of validation and test; `columns` are those in which such rows may differ.
pub(crate) fn equal_rows(
    equal: [(u64, u64); 2],
    (columns, ignored): (&[String], &[String]),
    (is_sample, keeps_copies): (bool, bool),
) -> Option<Warning> {
    let splits = equal_by_split(equal).filter(|_| !columns.is_empty())?;
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let all = ignored.iter().chain(columns);
    let listed_columns: Vec<String> = all.map(|name| toml_string(name)).collect();
    let of_sample = of_sample(is_sample);
    let also = if keeps_copies {
        " and `dataset.dedup = \"exact\"`"
    } else {
        ""
    };
    let message = format!(
        "{splits} equal a training row in every feature, as they landed, and in the target{of_sample}, and differ \
         from it in columns that no model sees: {}; where these are copies under another name, figures of validation and test are too \
         good: leave those columns out of what makes rows different with `dataset.dedup_ignore = [{}]`{also}, or name in \
         `dataset.split.key` what copies share; where they are different observations, nothing is wrong",
        listed(&names, "`"),
        listed_columns.join(", ")
    );
    Some(warning(EQUAL_ROWS, "dataset.dedup_ignore", message).with_columns(warned_columns(names)))
}

/// Warns of rows of other splits that equal a training row in all features, as these are read, and in the target, and are no
/// duplicates, since they differ in how cells are written. `equal` as of [`equal_rows`].
pub(crate) fn equal_as_read(equal: [(u64, u64); 2], is_sample: bool) -> Option<Warning> {
    let splits = equal_by_split(equal)?;
    let of_sample = of_sample(is_sample);
    let message = format!(
        "{splits} equal a training row in every feature, as it is read, and in the target{of_sample}, and differ from it only in how \
         their cells are written, such as in the word for a missing value or the digits of a number: duplicates are compared as \
         they landed, so these are none, and where they are copies, figures of validation and test are too good; land such cells \
         alike, missing ones with `csv.null_values` of the source, or name in `dataset.split.key` what copies share; where they \
         are different observations, nothing is wrong"
    );
    Some(warning(EQUAL_ROWS, "dataset.split.key", message))
}

/// Code of a warning about documents of several splits that differ in line ends and outer blanks alone.
const EQUAL_DOCUMENTS: &str = "equal_documents";

/// Warns of documents of other splits that equal a training document but for line ends and outer blanks. `equal` as of
/// [`equal_rows`].
pub(crate) fn equal_documents(equal: [(u64, u64); 2], is_sample: bool) -> Option<Warning> {
    if equal.iter().all(|(equal, _)| *equal == 0) {
        return None;
    }
    let splits = list_splits(equal, "document");
    let of_sample = of_sample(is_sample);
    let message = format!(
        "{splits} equal a training document but for line ends (CRLF or LF) and blanks at the beginning and \
         end{of_sample}: duplicates are compared byte by byte, so these are none, and figures of validation \
         and test are too good; write all texts with the same line ends and without such blanks, or set \
         `dataset.near_dup = {{}}`, which keeps the first of these and of other nearly equal documents, or all \
         of them in one split with `keep = \"all\"`"
    );
    Some(warning(EQUAL_DOCUMENTS, "dataset.near_dup", message))
}

/// Equal rows of each split that has rows, or nothing if these are few.
fn equal_by_split(equal: [(u64, u64); 2]) -> Option<String> {
    let is_much = |(equal, rows): &(u64, u64)| *equal > 1 && are_many(*equal, *rows);
    equal.iter().any(is_much).then(|| list_splits(equal, "row"))
}

/// Counts of equal rows, which are a `noun` each, of the splits that have any rows.
fn list_splits(equal: [(u64, u64); 2], noun: &str) -> String {
    let splits = [Split::Validation, Split::Test].into_iter().zip(equal);
    let splits = splits.filter(|(_, (_, rows))| *rows > 0);
    let splits: Vec<String> = splits
        .map(|(split, (equal, rows))| {
            let all = counted(rows, &format!("{split} {noun}"));
            format!("{equal} of {all} ({})", percent(equal, rows))
        })
        .collect();
    splits.join(" and ")
}

const fn of_sample(is_sample: bool) -> &'static str {
    if is_sample {
        ", in a sample of the rows,"
    } else {
        ""
    }
}
