//! Warnings about decimal separators that no setting of `csv` decides, or that may be read wrong.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::SourceConfig,
    csv_cell::CellFormat,
    report::{Finding, Warning},
};
use serde_json::Value;

use super::{
    amount_marks::SIGN_SQL,
    column_counts::ColumnCounts,
    decide::Rules,
    held_advice::csv_settings,
    inferred::SeparatorSamples,
    marked_numbers::APOSTROPHES,
    source_separators::SourceSeparators,
    type_warnings::{
        ColumnFindings, LOOKS_LIKE_APOSTROPHES, LOOKS_LIKE_CODED_AMOUNTS, LOOKS_LIKE_DECIMAL_POINT,
        LOOKS_LIKE_LISTS, LOOKS_LIKE_POINT_THOUSANDS, MIXED_DECIMAL_SEPARATORS, finding,
        warn_of_columns,
    },
};

/// Fewest numbers with three decimals each that are asked about where nothing else shows a separator. Of
/// fewer numbers all have three by chance.
const MIN_ASKED: u64 = 10;

impl ColumnCounts {
    /// Returns true for a column of numbers with a separator in a source whose files have different ones.
    pub(super) fn is_of_split_source(&self, rules: Rules<'_>) -> bool {
        let is_split = rules.has_csv && rules.separators.is_split;
        is_split && self.decimal_signs.has_any() && self.has_number_cells()
    }

    /// Collects a column with both decimal separators, with a cell of each.
    pub(super) fn note_mixed_decimals(&self, findings: &mut ColumnFindings) {
        let [comma, point, point_groups, comma_groups] = &self.decimal_signs.samples;
        let comma = comma.as_ref().or(comma_groups.as_ref());
        let point = point.as_ref().or(point_groups.as_ref());
        findings
            .mixed_decimals
            .push(self.named_with([comma, point]));
    }

    /// Collects a column of numbers that have a point before three digits, where the point is a decimal one
    /// by default alone.
    pub(super) fn note_point_groups(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        let SourceSeparators {
            has_commas,
            has_points,
            is_split,
            is_point_known,
            ..
        } = rules.separators;
        let signs = &self.decimal_signs;
        let is_decided = has_points || is_split || is_point_known || signs.has_certain();
        let is_asked = signs.point_groups >= MIN_ASKED || (has_commas && signs.point_groups > 0);
        if rules.has_csv && is_asked && !is_decided {
            let [_, _, groups, _] = &signs.samples;
            findings
                .point_groups
                .push(self.named_with([groups.as_ref(), None]));
        }
    }

    /// Collects a column of numbers with Indian groups in some cells and other groups in others, such as `76,98,419`
    /// and `405,638`. Amounts have one of both, and lists of numbers have both by chance.
    pub(super) fn note_lists(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        let [indian, other] = &self.decimal_signs.system_samples;
        if rules.has_csv && indian.is_some() && other.is_some() {
            let shown = [indian.as_ref(), other.as_ref()];
            findings.lists.push(self.named_with(shown));
        }
    }

    /// Cells that show the decimal separator, or leave it open. They are read in `format`.
    pub(super) fn separator_samples(&self, format: CellFormat) -> SeparatorSamples {
        let signs = &self.decimal_signs;
        if !self.has_number_cells() {
            return SeparatorSamples::default();
        }
        let [comma, _, point_groups, comma_groups] = &signs.samples;
        let [_, several] = &signs.several_groups;
        let open = point_groups.as_ref().or(comma_groups.as_ref());
        let open = open.filter(|_| !signs.has_certain());
        SeparatorSamples {
            comma: comma.as_ref().or(several.as_ref()).cloned(),
            open: open.and_then(|cell| Some((cell.clone(), format.number(cell)?.into_owned()))),
        }
    }
}

impl ColumnFindings {
    /// Columns of numbers with either decimal separator.
    pub(super) fn warn_of_mixed_decimals(&self, config: &SourceConfig) -> Option<Warning> {
        if self.separators.is_split {
            return warn_of_columns(
                MIXED_DECIMAL_SEPARATORS,
                "dataset.sources",
                &self.mixed_decimals,
                finding(
                    "numbers with a decimal comma in some rows and a decimal point in others: some files have the one, and others the \
                     other, so no setting of `csv` reads all files, and where a number such as `1.234` is read, it is wrong in some \
                     of them",
                    "give the files of each separator a `[[source]]` of their own, with `csv.decimal_separator = \",\"` and \
                 `csv.thousands_separator = \".\"` for those with a decimal comma, with `csv.thousands_separator = \",\"` for \
                 those with a decimal point and commas between thousands, and list both sources in `dataset.sources`",
                ),
            );
        }
        let comma = match config.csv.decimal_separator {
            Some(',') => "without `csv.decimal_separator` for those with a point",
            _ => "with `csv.decimal_separator = \",\"` for those with a comma",
        };
        warn_of_columns(
            MIXED_DECIMAL_SEPARATORS,
            "dataset.sql",
            &self.mixed_decimals,
            finding(
                "numbers with a decimal comma in some rows and a decimal point in others land as text, and `csv.decimal_separator` \
                 reads one of both",
                format!(
                    "declare `contract.column.<name>.type = \"text\"`, and make numbers by a query in `dataset.sql`: \
                 where no cell has groups of thousands, `select * except (\"COLUMN\"), try_cast(replace(\"COLUMN\", ',', '.') as \
                 double) as \"COLUMN\" from \"{}\"` reads both; or where each file has one of both, give the files of each separator \
                 a `[[source]]` of their own, {comma}, and list both sources in `dataset.sources`",
                    config.name
                ),
            ),
        )
    }

    /// Text columns of numbers with a decimal point, where `csv` has another decimal separator.
    pub(super) fn warn_of_other_points(&self, config: &SourceConfig) -> Option<Warning> {
        let decimal = config.csv.decimal_separator.unwrap_or('.');
        warn_of_columns(
            LOOKS_LIKE_DECIMAL_POINT,
            "dataset.sql",
            &self.decimal_points,
            finding(
                format!(
                    "numbers with a decimal point land as text, since `csv.decimal_separator = \"{decimal}\"` holds for all columns"
                ),
                format!(
                    "declare \
                 `contract.column.<name>.type = \"text\"`, and unless they are codes or versions, make numbers by a query in \
                 `dataset.sql`: `select * except (\"COLUMN\"), try_cast(replace(\"COLUMN\", ',', '') as double) as \"COLUMN\" \
                 from \"{}\"`",
                    config.name
                ),
            ),
        )
    }

    /// Key of the warning about numbers in a notation with a decimal comma, its advice, and the settings in it.
    pub(super) fn advise_decimal_commas(
        &self,
        config: &SourceConfig,
    ) -> (&'static str, String, BTreeMap<String, Value>) {
        let is_set = config.csv.decimal_separator == Some(',');
        let query = "`try_cast(replace(replace(\"COLUMN\", '.', ''), ',', '.') as double)`";
        let set = "set `csv.decimal_separator = \",\"`";
        let [comma, points] = ["decimal_separator = \",\"", "thousands_separator = \".\""];
        match (is_set, self.has_comma_groups()) {
            (true, true) => (
                "csv.thousands_separator",
                "set `csv.thousands_separator = \".\"` to read them as numbers".to_owned(),
                csv_settings(&[points]),
            ),
            (true, false) => (
                "dataset.sql",
                format!(
                    "others have a decimal point, which `csv.thousands_separator = \".\"` would take for one of thousands; a \
                     query in `dataset.sql` reads them, such as {query}"
                ),
                BTreeMap::new(),
            ),
            (false, true) => (
                "csv.decimal_separator",
                format!("{set} and `csv.thousands_separator = \".\"` to read them as numbers"),
                csv_settings(&[comma, points]),
            ),
            (false, false) if self.separators.has_points => {
                let point = self.deciding.point.as_ref();
                let shown = point.map_or_else(String::new, |cell| format!(", such as {cell}"));
                let them = match self.has_grouped_commas {
                    true => "those without points between thousands",
                    false => "them",
                };
                let advice = format!(
                    "{set} to read {them} as numbers; it holds for all columns, and others have a decimal point{shown}, and land \
                     as text with it; a query in `dataset.sql` reads all of these without the key, such as {query}"
                );
                ("csv.decimal_separator", advice, csv_settings(&[comma]))
            }
            (false, false) => (
                "csv.decimal_separator",
                format!("{set} to read them as numbers"),
                csv_settings(&[comma]),
            ),
        }
    }

    /// Query that makes numbers of amounts with marks that no key of `csv` reads.
    fn advise_coded_amounts(&self, config: &SourceConfig) -> String {
        let comma = "replace(regexp_replace(\"COLUMN\", '[^0-9,]', '', 'g'), ',', '.')";
        let point = "regexp_replace(\"COLUMN\", '[^0-9.]', '', 'g')";
        let (sign, digits, other) = match (self.has_comma_amounts, self.has_point_amounts) {
            (true, false) => ("comma", comma, String::new()),
            (false, _) => ("point", point, String::new()),
            (true, true) => (
                "point",
                point,
                format!("; for a decimal comma, write `{comma}` in place of `{point}`"),
            ),
        };
        format!(
            "declare `contract.column.<name>.type = \"text\"`, and make numbers by a query in `dataset.sql`, where all have a \
             decimal {sign} and one currency: `select * except (\"COLUMN\"), try_cast({SIGN_SQL}{digits}) as double) as \"COLUMN\" \
             from \"{}\"`, which reads parentheses, a minus sign and debit (`DR`, `S`) as negative{other}",
            config.name
        )
    }

    /// Text columns of numbers with marks that no default of `csv` reads.
    pub(super) fn warn_of_marked_numbers(&self, config: &SourceConfig) -> [Option<Warning>; 2] {
        let sign = self.apostrophe.unwrap_or(APOSTROPHES[0]);
        [
            warn_of_columns(
                LOOKS_LIKE_APOSTROPHES,
                "csv.thousands_separator",
                &self.apostrophes,
                Finding {
                    settings: csv_settings(&[format!("thousands_separator = \"{sign}\"")]),
                    ..finding(
                        "numbers with an apostrophe between thousands land as text",
                        format!(
                            "set `csv.thousands_separator = \"{sign}\"` to read them as numbers"
                        ),
                    )
                },
            ),
            warn_of_columns(
                LOOKS_LIKE_CODED_AMOUNTS,
                "dataset.sql",
                &self.coded_amounts,
                finding(
                    "amounts in parentheses, or with a code or another mark of accounting, land as text, and no key of `csv` reads them",
                    self.advise_coded_amounts(config),
                ),
            ),
        ]
    }

    /// Returns true if `csv.thousands_separator = "."` reads numbers with a decimal comma that land as text.
    pub(super) fn has_comma_groups(&self) -> bool {
        let SourceSeparators {
            has_points,
            has_point_groups,
            ..
        } = self.separators;
        let is_grouped = self.has_grouped_commas || has_point_groups;
        !self.decimal_commas.is_empty() && is_grouped && !has_points
    }

    /// The cell that decides about ambiguous commas, for a message about a decimal comma; empty if each
    /// column shows its own.
    pub(super) fn explain_deciding_comma(&self) -> String {
        let cell = self.deciding.comma.as_deref();
        let cell = cell.filter(|_| self.are_commas_decided);
        cell.map_or_else(String::new, |cell| {
            format!(
                "; {cell} shows the comma: if that column has codes or sizes, declare it `text`, and it decides nothing"
            )
        })
    }

    /// Columns of numbers whose commas separate groups in two ways.
    pub(super) fn warn_of_lists(&self) -> Option<Warning> {
        warn_of_columns(
            LOOKS_LIKE_LISTS,
            "contract.column.<name>.type",
            &self.lists,
            finding(
                "commas before two digits in some cells and before three in others may be those of lists, and \
                 `csv.thousands_separator` reads each cell as one number",
                "declare `contract.column.<name>.type = \"text\"` if they are lists, or `\"int\"` or `\"float\"` if they are numbers",
            ),
        )
    }

    /// Columns of numbers whose points may separate thousands.
    pub(super) fn warn_of_point_groups(&self) -> Option<Warning> {
        let comma = self.deciding.comma.as_ref();
        let shown = comma.map_or_else(String::new, |cell| format!(", such as {cell}"));
        let reason = match self.separators.has_commas {
            true => format!(", and the comma is the decimal separator of other numbers{shown}"),
            false => {
                ", and each number of the column with a point has three digits behind it".to_owned()
            }
        };
        warn_of_columns(
            LOOKS_LIKE_POINT_THOUSANDS,
            "csv.thousands_separator",
            &self.point_groups,
            Finding {
                settings: csv_settings(&[
                    "decimal_separator = \",\"",
                    "thousands_separator = \".\"",
                ]),
                ..finding(
                    format!(
                        "a point before three digits may separate thousands{reason}: is `1.234` 1.234 there, as it is read, or 1234?"
                    ),
                    "Set `csv.decimal_separator = \",\"` and `csv.thousands_separator = \".\"` if it is 1234; if it is 1.234, set \
                     `csv.decimal_separator = \".\"`, or declare the column `float`",
                )
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::{
        commit::FilePart,
        config::{ColumnContract, DeclaredType, PaginationKind},
        record::ColumnType,
        report::Warning,
    };

    use crate::infer::{Inferred, Survey, hold_under};

    /// The columns of files with these rows, whose cells are separated by spaces.
    fn infer(files: &[&[&str]], decimal: Option<char>) -> Inferred {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.csv.decimal_separator = decimal;
        config.csv.thousands_separator = decimal.filter(|c| *c == ',').map(|_| '.');
        let mut survey = Survey::new(&config);
        for (number, rows) in files.iter().enumerate() {
            for row in *rows {
                let cells = row.split(' ').enumerate();
                let entries =
                    cells.map(|(at, cell)| (format!("c{at}"), Value::Cell(cell.to_owned())));
                survey.add(&Record::Value(Value::Object(entries.collect())));
            }
            let part = FilePart {
                url: format!("in/{number}.csv"),
                records: rows.len() as u64,
            };
            survey.places_mut().push_file("in", &part);
        }
        survey.infer(&config)
    }

    fn check(found: &Inferred, code: &str, columns: &str) -> Warning {
        let [warning] = &found.warnings[..] else {
            panic!("{:?}", found.warnings)
        };
        assert_eq!(warning.code, code);
        let begin = format!("{columns}: ");
        assert!(warning.message.starts_with(&begin), "{warning:?}");
        warning.clone()
    }

    /// The columns of these rows, with the comma between thousands.
    fn infer_grouped(rows: &[&str], declared: Option<DeclaredType>) -> Inferred {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.csv.thousands_separator = Some(',');
        let column = ColumnContract {
            r#type: declared,
            ..ColumnContract::default()
        };
        config.contract.column.insert("c0".to_owned(), column);
        let mut survey = Survey::new(&config);
        for row in rows {
            let entries = vec![("c0".to_owned(), Value::Cell((*row).to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        survey.infer(&config)
    }

    #[test]
    fn indian_groups_beside_others_are_reported_as_lists_until_the_type_is_declared() {
        for rows in [
            &["76,98,419", "405,638"][..],
            &["-76,98,419", "1,234,567", "12", "5,638"],
            &["1,23,45,678", "12,345,678"],
        ] {
            let found = infer_grouped(rows, None);
            assert_eq!(found.types["c0"], ColumnType::Int64, "{rows:?}");
            let columns = format!("`c0` (`{}`, `{}`)", rows[0], rows[1]);
            let warning = check(&found, "looks_like_lists", &columns);
            assert!(warning.message.contains("type = \"text\"`"), "{warning:?}");
            for declared in [DeclaredType::Text, DeclaredType::Int] {
                assert_eq!(infer_grouped(rows, Some(declared)).warnings, []);
            }
        }
        // Numbers of one system, and numbers that both write alike.
        for rows in [
            &["76,98,419", "5,638", "12,345", "999"][..],
            &["405,638", "1,234,567", "5,638", "999"],
            &["5,638", "12,345"],
        ] {
            assert_eq!(infer_grouped(rows, None).warnings, [], "{rows:?}");
        }
    }

    #[test]
    fn columns_with_a_decimal_point_are_reported_where_the_comma_is_declared() {
        let rows = ["25,25 0.5 3", "64,51 1,234.5 4", "2,81 52.93 5"];
        let found = infer(&[&rows[..]], None);
        let advice = &found.warnings[0];
        assert_eq!(advice.code, "looks_like_decimal_comma");
        let others = "others have a decimal point, such as `0.5` in `c1`, and land as text with it";
        assert!(advice.message.contains(others), "{advice:?}");
        let found = infer(&[&rows[..]], Some(','));
        let types = ["c0", "c1", "c2"].map(|column| found.types[column]);
        let (float, int) = (ColumnType::Float64, ColumnType::Int64);
        assert_eq!(types, [float, ColumnType::Utf8, int]);
        let warning = check(&found, "looks_like_decimal_point", "`c1` (`0.5`)");
        let query = "try_cast(replace(\"COLUMN\", ',', '') as double)";
        assert!(warning.message.contains(query), "{warning:?}");
        assert_eq!(warning.key.as_deref(), Some("dataset.sql"));
        // A declared type decides it, and so is the warning of an earlier run.
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        assert!(hold_under(&config, warning.clone()).is_some());
        let column = ColumnContract {
            r#type: Some(DeclaredType::Text),
            ..ColumnContract::default()
        };
        config.contract.column.insert("c1".to_owned(), column);
        assert!(hold_under(&config, warning).is_none());
        // Texts beside numbers are no column of numbers.
        assert_eq!(
            infer(&[&["5,5 a", "6,5 b.c", "7,5 1.5"]], Some(',')).warnings,
            []
        );
    }

    #[test]
    fn the_cell_that_decides_about_a_comma_of_either_meaning_is_named() {
        let found = infer(&[&["88,54 2,645", "31,38 4,640"]], None);
        let columns = "`c0` (`31,38`, `88,54`), `c1` (`2,645`, `4,640`)";
        let warning = check(&found, "looks_like_decimal_comma", columns);
        let decided = "; `31,38` in `c0` shows the comma: if that column has codes or sizes, declare it `text`";
        assert!(warning.message.contains(decided), "{warning:?}");
        // Columns that show their own commas need none.
        let found = infer(&[&["88,54 2,64", "31,38 4,6"]], None);
        let warning = &found.warnings[0];
        assert!(!warning.message.contains("shows the comma"), "{warning:?}");
        // So it is with ambiguous points.
        let found = infer(&[&["88,54 2.645", "31,38 4.640"]], None);
        let warnings: Vec<&Warning> = found.warnings.iter().collect();
        let points = warnings.iter().find(|warning| warning.code == POINTS);
        let message = &points.unwrap().message;
        let decided = "decimal separator of other numbers, such as `31,38` in `c0`: is `1.234`";
        assert!(message.contains(decided), "{message}");
    }

    const MIXED: &str = "mixed_decimal_separators";
    const POINTS: &str = "looks_like_point_thousands";

    #[test]
    fn files_with_different_separators_get_no_setting_and_all_their_numbers_are_named() {
        let german = ["7.833,54 720,525 38.746 5", "588,49 54,688 59.411 7"];
        let us = ["6937.15 35.021 50494 6", "964.69 726.053 6336 8"];
        let us_groups = ["6,937.15 35.021 50,494 6", "964.69 726.053 6,336 8"];
        for other in [us, us_groups] {
            for files in [[&german[..], &other[..]], [&other[..], &german[..]]] {
                for decimal in [None, Some(',')] {
                    let found = infer(&files, decimal);
                    let columns = "`c0` (`588,49`, `6";
                    let [warning] = &found.warnings[..] else {
                        panic!("{:?}", found.warnings)
                    };
                    assert_eq!(warning.code, MIXED);
                    assert!(warning.message.starts_with(columns), "{warning:?}");
                    for part in ["`c1` (`54,688`, `35.021`)", "`c2` (", "`dataset.sources`"] {
                        assert!(warning.message.contains(part), "{part}: {warning:?}");
                    }
                    assert!(!warning.message.contains("`c3`"), "{warning:?}");
                    let mut columns = found.columns.iter();
                    assert!(columns.all(|column| column.number_settings.is_empty()));
                }
            }
        }
        // In one file, they leave other columns their settings.
        let both = [&german[..], &us[..]].concat();
        let found = infer(&[&both[..]], None);
        assert!(found.warnings.len() > 1, "{:?}", found.warnings);
    }

    #[test]
    fn numbers_with_a_comma_and_with_a_point_before_three_digits_have_no_common_setting() {
        let (commas, points) = (["720,525", "54,688"], ["35.021", "726.053"]);
        for files in [
            &[&commas[..], &points[..]][..],
            &[&[commas, points].concat()[..]],
        ] {
            let found = infer(files, None);
            let warning = check(&found, MIXED, "`c0` (`54,688`, `35.021`)");
            let is_split = warning.key.as_deref() == Some("dataset.sources");
            assert_eq!(is_split, files.len() > 1, "{warning:?}");
            assert_eq!(found.columns[0].number_settings, [""; 0]);
        }
        // A certain number decides.
        let found = infer(&[&["720,525"], &["35.021"], &["58.05"]], None);
        check(&found, "looks_like_thousands", "`c0` (`720,525`)");
    }

    #[test]
    fn several_groups_behind_points_decide_that_the_comma_is_the_decimal_separator() {
        let rows = ["18.194 18.194.000", "66.574 679"];
        let found = infer(&[&rows[..]], None);
        let codes: Vec<&str> = found.warnings.iter().map(|w| w.code.as_str()).collect();
        assert_eq!(codes, ["looks_like_decimal_comma", POINTS]);
        let advice = &found.warnings[0].message;
        let keys = "set `csv.decimal_separator = \",\"` and `csv.thousands_separator = \".\"`";
        assert!(advice.contains(keys), "{advice}");
        assert!(found.warnings[1].message.starts_with("`c0` (`18.194`): "));
        let followed = infer(&[&rows[..]], Some(','));
        assert_eq!(followed.warnings, []);
        assert_eq!(followed.types["c0"], ColumnType::Int64);
        let [c0, c1] = &followed.columns[..] else {
            panic!("{:?}", followed.columns)
        };
        let open = ("18.194".to_owned(), "18194".to_owned());
        assert_eq!(c0.separators.open.as_ref(), Some(&open));
        assert_eq!(c1.separators.comma.as_deref(), Some("18.194.000"));
        assert_eq!(c1.separators.open, None);
    }

    #[test]
    fn points_are_asked_about_where_each_is_before_three_digits() {
        let rows: Vec<String> = (10..30).map(|n| format!("{n}.194 {n}")).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let found = infer(&[&rows[..]], None);
        let warning = check(&found, POINTS, "`c0` (`10.194`)");
        assert!(
            warning
                .message
                .contains("is `1.234` 1.234 there, as it is read, or 1234? Set `csv.decimal")
        );
        assert_eq!(infer(&[&rows[..]], Some('.')).warnings, []);
        // Beside certain decimal commas a few are enough.
        for comma in ["779,99€", "85,0%"] {
            let row = format!("18.194 {comma}");
            let found = infer(&[&[row.as_str()]], None);
            let mut warnings = found.warnings.iter();
            let warning = warnings.find(|warning| warning.code == POINTS);
            let message = &warning.unwrap().message;
            assert!(
                message.contains("comma is the decimal separator"),
                "{message}"
            );
        }
        // A number with another number of decimals, in any column, shows the separator.
        for more in ["0.194 5", "12.5 5", "12.194 0.5"] {
            let mut rows = rows.clone();
            rows.push(more);
            assert_eq!(infer(&[&rows[..]], None).warnings, [], "{more}");
        }
        assert_eq!(infer(&[&rows[..9]], None).warnings, []);
    }
}
