//! Warnings about decisions against some of the values, and about values with another plausible
//! meaning.

use std::collections::BTreeSet;

use feedline_schemas::{
    config::{SourceConfig, TypeContract},
    report::{Finding, NAMED_COLUMNS, WarnedColumn, Warning},
};

use super::{
    held_advice::{csv_settings, date_settings, odd_settings},
    missing_words::{self, MISSING_WORDS},
    number_settings::{NumberNotation, has_csv_table},
    rounded_digits::{self, DIGITS_ROUNDED},
    source_separators::{DecidingCells, SourceSeparators},
    version_numbers::VERSION_IS_NUMBER,
};

pub(super) const MISSING_SPELLINGS: &str = "missing_spellings";
pub(super) const ODD_VALUES: &str = "odd_values";
pub(crate) const MIXED_TYPES: &str = "mixed_types";
pub(super) const LEADING_ZEROS: &str = "leading_zeros";
pub(super) const LOOKS_LIKE_DECIMAL_COMMA: &str = "looks_like_decimal_comma";
pub(super) const LOOKS_LIKE_DECIMAL_POINT: &str = "looks_like_decimal_point";
pub(super) const MIXED_DECIMAL_SEPARATORS: &str = "mixed_decimal_separators";
pub(super) const LOOKS_LIKE_THOUSANDS: &str = "looks_like_thousands";
pub(super) const LOOKS_LIKE_POINT_THOUSANDS: &str = "looks_like_point_thousands";
pub(super) const LOOKS_LIKE_APOSTROPHES: &str = "looks_like_apostrophe_thousands";
pub(super) const LOOKS_LIKE_CODED_AMOUNTS: &str = "looks_like_coded_amounts";
pub(super) const LOOKS_LIKE_LISTS: &str = "looks_like_lists";
pub(super) const LOOKS_LIKE_SPACES: &str = "looks_like_spaced_thousands";
pub(super) const LOOKS_LIKE_PERCENT: &str = "looks_like_percent";
pub(super) const LOOKS_LIKE_CURRENCY: &str = "looks_like_currency";
pub(crate) const LOOKS_LIKE_DATES: &str = "looks_like_dates";
pub(super) const TEXT_TIMES: &str = "text_times";
pub(super) const LOCAL_TIMES: &str = "local_times";
pub(super) const AMBIGUOUS_DATES: &str = "ambiguous_dates";
/// Code of the warning about columns that have landed with another type than a sample has. A run
/// raises none: it counts the rejects.
const OTHER_TYPES_LANDED: &str = "other_types_landed";
/// Code of the warning about settings of CSV for records of another format.
pub(crate) const CSV_NOT_USED: &str = "csv_not_used";

/// Codes of warnings about types of columns. A column keeps its type, so they hold until a reset.
pub(crate) const TYPE_WARNINGS: [&str; 23] = [
    MISSING_SPELLINGS,
    ODD_VALUES,
    MIXED_TYPES,
    LEADING_ZEROS,
    MISSING_WORDS,
    LOOKS_LIKE_DECIMAL_COMMA,
    LOOKS_LIKE_DECIMAL_POINT,
    MIXED_DECIMAL_SEPARATORS,
    LOOKS_LIKE_THOUSANDS,
    LOOKS_LIKE_POINT_THOUSANDS,
    LOOKS_LIKE_APOSTROPHES,
    LOOKS_LIKE_CODED_AMOUNTS,
    LOOKS_LIKE_LISTS,
    LOOKS_LIKE_SPACES,
    LOOKS_LIKE_PERCENT,
    LOOKS_LIKE_CURRENCY,
    LOOKS_LIKE_DATES,
    TEXT_TIMES,
    LOCAL_TIMES,
    DIGITS_ROUNDED,
    AMBIGUOUS_DATES,
    VERSION_IS_NUMBER,
    CSV_NOT_USED,
];

/// Returns true for a warning about types of columns.
#[must_use]
pub fn is_about_types(warning: &Warning) -> bool {
    TYPE_WARNINGS.contains(&warning.code.as_str())
}

/// Handling of odd values, for a message.
pub(super) const fn odd_fate(types: TypeContract) -> &'static str {
    match types {
        TypeContract::NullValue => "land as null",
        TypeContract::Freeze => "stop the run",
        TypeContract::QuarantineRow | TypeContract::Widen => "have their rows rejected",
    }
}

/// Columns of the warnings, by subject.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnFindings {
    /// Separators of the numbers of all columns.
    pub(super) separators: SourceSeparators,
    /// Cells that show them.
    pub(super) deciding: DecidingCells,
    /// True if the numbers of another column decide that the comma of any of `decimal_commas` is a decimal one.
    pub(super) are_commas_decided: bool,
    pub(super) spellings: Vec<WarnedColumn>,
    pub(super) odd: Vec<WarnedColumn>,
    pub(super) mixed: Vec<WarnedColumn>,
    /// Columns of numbers, but for a few digits after a leading zero.
    pub(super) leading_zeros: Vec<WarnedColumn>,
    /// Text columns with spellings of a missing value.
    pub(super) missing_words: Vec<WarnedColumn>,
    pub(super) decimal_commas: Vec<WarnedColumn>,
    /// Columns with a decimal point that is none with the decimal separator of `csv`.
    pub(super) decimal_points: Vec<WarnedColumn>,
    /// Columns with a decimal comma in some cells and a decimal point in others.
    pub(super) mixed_decimals: Vec<WarnedColumn>,
    /// Columns of numbers whose points may separate thousands.
    pub(super) point_groups: Vec<WarnedColumn>,
    /// True if any of `decimal_commas` has groups of thousands.
    pub(super) has_grouped_commas: bool,
    pub(super) thousands: Vec<WarnedColumn>,
    /// Columns of numbers with an apostrophe between thousands, and that of the first of them.
    pub(super) apostrophes: Vec<WarnedColumn>,
    pub(super) apostrophe: Option<char>,
    /// Columns of amounts with the code of a currency, in parentheses, or with another mark that no key of `csv` reads.
    pub(super) coded_amounts: Vec<WarnedColumn>,
    /// True if any of them has a decimal comma, and if any has none.
    pub(super) has_comma_amounts: bool,
    pub(super) has_point_amounts: bool,
    /// Columns of numbers with commas that separate groups in two ways, as in lists.
    pub(super) lists: Vec<WarnedColumn>,
    pub(super) spaces: Vec<WarnedColumn>,
    pub(super) space_notation: NumberNotation,
    pub(super) percents: Vec<WarnedColumn>,
    /// Columns of percentages with other separators than `csv`.
    pub(super) other_percents: Vec<WarnedColumn>,
    pub(super) amounts: Vec<WarnedColumn>,
    pub(super) amount_notation: NumberNotation,
    pub(super) dates: Vec<WarnedColumn>,
    /// A format of the first of `dates` that any fits.
    pub(super) format: Option<String>,
    /// Columns of times in strings of several forms, and the formats that read them.
    pub(super) text_times: Vec<WarnedColumn>,
    pub(super) time_formats: BTreeSet<&'static str>,
    /// True if any of them has strings that are no times.
    pub(super) has_odd_times: bool,
    /// True if any of them has more of those than a column of timestamps may have.
    pub(super) has_many_odd_times: bool,
    pub(super) local_times: Vec<WarnedColumn>,
    pub(super) rounded: Vec<WarnedColumn>,
    /// True if any of `rounded` has a number that does not fit a decimal.
    pub(super) is_rounded_beyond_decimal: bool,
    pub(super) ambiguous: Vec<WarnedColumn>,
    /// Columns whose values do not fit the type that has landed.
    pub(super) other_landed: Vec<WarnedColumn>,
    /// True if a column with odd values has CSV cells.
    pub(super) has_cells: bool,
}

impl ColumnFindings {
    /// Returns the warnings of all subjects that have columns.
    pub(super) fn warnings(&self, config: &SourceConfig) -> Vec<Warning> {
        let has_csv = has_csv_table(config);
        let notations = match has_csv {
            true => self.warn_of_notations(config),
            false => self.warn_without_csv(),
        };
        self.warn_of_odd_values(config, has_csv)
            .into_iter()
            .chain(notations)
            .chain([self.warn_of_other_points(config)])
            .chain([self.warn_of_mixed_decimals(config)])
            .chain([self.warn_of_point_groups(), self.warn_of_lists()])
            .chain(self.warn_of_marked_numbers(config))
            .chain([self.warn_of_dates(config), self.warn_of_text_times(config)])
            .chain(self.warn_of_readings())
            .chain([self.warn_of_landed_types(config.contract.types)])
            .flatten()
            .collect()
    }

    /// Values that are missing, or of another type than their column.
    fn warn_of_odd_values(&self, config: &SourceConfig, has_csv: bool) -> [Option<Warning>; 5] {
        let spellings_key = match has_csv {
            true => "csv.null_spellings",
            false => "contract.column.<name>.type",
        };
        [
            warn_of_columns(
                MISSING_SPELLINGS,
                spellings_key,
                &self.spellings,
                finding(
                    "usual spellings of a missing value are read as missing, since the other cells of their column are no text",
                    "",
                ),
            ),
            warn_of_columns(
                ODD_VALUES,
                "infer.max_odd_fraction",
                &self.odd,
                self.explain_odd_values(config.contract.types, has_csv),
            ),
            warn_of_columns(
                MIXED_TYPES,
                "contract.column.<name>.type",
                &self.mixed,
                finding(
                    "columns of several types land as text, and nothing is lost",
                    "declare a type to reject what does not fit it",
                ),
            ),
            warn_of_columns(
                LEADING_ZEROS,
                "contract.column.<name>.type",
                &self.leading_zeros,
                finding(
                    "the column lands as text, so that no digit of a code is lost",
                    "if it is one of numbers, declare it `int` or `float`, and values that begin with a 0 do not fit it",
                ),
            ),
            warn_of_columns(
                MISSING_WORDS,
                "csv.null_values",
                &self.missing_words,
                finding(missing_words::FINDING, missing_words::ADVICE),
            )
            .filter(|_| has_csv),
        ]
    }

    fn explain_odd_values(&self, types: TypeContract, has_csv: bool) -> Finding {
        let fate = odd_fate(types);
        let nulls = match self.has_cells && has_csv {
            true => "list those that mean nothing in `csv.null_values`, ",
            false => "",
        };
        let or_null = match types {
            TypeContract::NullValue => "",
            _ => "set `contract.types = \"null_value\"`, ",
        };
        Finding {
            under: odd_settings(types),
            ..finding(
                format!("values that are no numbers or no dates {fate}"),
                format!(
                    "{nulls}{or_null}declare the column text, or lower `infer.max_odd_fraction`"
                ),
            )
        }
    }

    fn explain_amounts(&self, config: &SourceConfig) -> Finding {
        let land_as_text = "amounts with a currency sign land as text";
        let currencies = self.amount_notation.currencies();
        if let [_, _, ..] = currencies[..] {
            let signs: Vec<String> = currencies.iter().map(|sign| format!("`{sign}`")).collect();
            let advice = format!(
                "`csv.currency` reads one currency, and these are in {}",
                signs.join(", ")
            );
            return finding(land_as_text, advice);
        }
        let settings = self.amount_notation.settings(&config.csv);
        if settings.is_empty() {
            let reason = "`csv` or another column has another currency or other separators";
            return finding(format!("{land_as_text}: {reason}"), "");
        }
        let advice = format!("set {} to read them as numbers", shown_settings(&settings));
        Finding {
            settings: csv_settings(&settings),
            ..finding(land_as_text, advice)
        }
    }

    fn explain_spaces(&self, config: &SourceConfig) -> Finding {
        let land_as_text = "numbers with spaces between thousands land as text";
        let settings = self.space_notation.settings(&config.csv);
        if settings.is_empty() {
            return finding(format!("{land_as_text}: `csv` has other separators"), "");
        }
        let advice = format!(
            "set {} to read them as numbers, unless they are telephone numbers or codes",
            shown_settings(&settings)
        );
        Finding {
            settings: csv_settings(&settings),
            ..finding(land_as_text, advice)
        }
    }

    /// Text columns whose values look like numbers of another notation.
    fn warn_of_notations(&self, config: &SourceConfig) -> [Option<Warning>; 5] {
        let (separator, advice, settings) = self.advise_decimal_commas(config);
        let advice = advice + &self.explain_deciding_comma();
        let decimal_commas = Finding {
            settings,
            ..finding(
                "numbers in a notation with a decimal comma land as text",
                advice,
            )
        };
        let land_as_text = "numbers with commas between their digits land as text";
        let (thousands, with_commas) = match self.separators.has_commas {
            true => (
                "dataset.sql",
                finding(
                    land_as_text,
                    "other numbers have a decimal comma, so no key of `csv` reads these; a query in `dataset.sql` does, such as \
                     `try_cast(replace(\"COLUMN\", ',', '') as double)`",
                ),
            ),
            false => (
                "csv.thousands_separator",
                Finding {
                    settings: csv_settings(&["thousands_separator = \",\""]),
                    ..finding(
                        land_as_text,
                        "set `csv.thousands_separator = \",\"` where they separate thousands, or `csv.decimal_separator = \",\"`",
                    )
                },
            ),
        };
        [
            warn_of_columns(
                LOOKS_LIKE_DECIMAL_COMMA,
                separator,
                &self.decimal_commas,
                decimal_commas,
            ),
            warn_of_columns(
                LOOKS_LIKE_THOUSANDS,
                thousands,
                &self.thousands,
                with_commas,
            ),
            warn_of_columns(
                LOOKS_LIKE_SPACES,
                "csv.thousands_separator",
                &self.spaces,
                self.explain_spaces(config),
            ),
            self.warn_of_percents(config),
            warn_of_columns(
                LOOKS_LIKE_CURRENCY,
                "csv.currency",
                &self.amounts,
                self.explain_amounts(config),
            ),
        ]
    }

    /// Text columns of numbers with a percent sign, which `csv.percent` reads if they have the separators of `csv`.
    fn warn_of_percents(&self, config: &SourceConfig) -> Option<Warning> {
        let csv = &config.csv;
        if !csv.percent && !self.percents.is_empty() {
            let advice = format!(
                "set `csv.percent = true` to read `17%` as 17{}",
                self.list_other_percents()
            );
            let finding = Finding {
                settings: csv_settings(&["percent = true"]),
                ..finding("numbers with a percent sign land as text", advice)
            };
            return warn_of_columns(LOOKS_LIKE_PERCENT, "csv.percent", &self.percents, finding);
        }
        let decimal = csv.decimal_separator.unwrap_or('.');
        let thousands = csv.thousands_separator;
        let thousands = thousands.map_or_else(|| "none".to_owned(), |sign| format!("`{sign}`"));
        let so_far = match csv.percent {
            true => " although `csv.percent` is set",
            false => ", and `csv.percent` alone would not read them",
        };
        let land_as_text = format!(
            "numbers with a percent sign land as text{so_far}, since they are no numbers with the separators of `csv`: `{decimal}` for \
             decimals, {thousands} for thousands"
        );
        let advice = "change these if all numbers of the source are written so, or make numbers of the \
             texts by a query in `dataset.sql`";
        // Other columns may have the separators that are set.
        let key = match csv.decimal_separator.is_some() && !csv.percent {
            true => "dataset.sql",
            false => "csv.decimal_separator",
        };
        let columns = [&self.percents[..], &self.other_percents].concat();
        warn_of_columns(
            LOOKS_LIKE_PERCENT,
            key,
            &columns,
            finding(land_as_text, advice),
        )
    }

    /// Part of a message about columns of percentages with other separators than `csv`.
    fn list_other_percents(&self) -> String {
        let columns = self.other_percents.iter().take(NAMED_COLUMNS);
        let names: Vec<String> = columns.map(|column| format!("`{}`", column.name)).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!(
                ", but not those of {}, which have other separators than `csv`",
                names.join(", ")
            ),
        }
    }

    /// Text columns whose values look like dates of another notation.
    fn warn_of_dates(&self, config: &SourceConfig) -> Option<Warning> {
        let format = self.format.as_ref().map_or_else(String::new, |format| {
            format!(", such as `contract.dates = [\"{format}\"]`")
        });
        let advice = format!("to have dates name the format that they are written in{format}");
        let (formats, declared) = (self.format.as_slice(), &config.contract.dates);
        let found = Finding {
            settings: date_settings(formats),
            under: date_settings(declared),
            ..finding(
                "dates that are not written as in ISO 8601 land as text",
                advice,
            )
        };
        warn_of_columns(LOOKS_LIKE_DATES, "contract.dates", &self.dates, found)
    }

    /// Text columns of times whose characters have another order than the times.
    fn warn_of_text_times(&self, config: &SourceConfig) -> Option<Warning> {
        let new = self.time_formats.iter().copied();
        let formats = config.contract.dates.iter().map(String::as_str).chain(new);
        let formats: Vec<&str> = formats.collect();
        let advice = format!(
            "set `contract.dates = {formats:?}` to land timestamps{}, or declare the column `text` to keep them unchanged",
            self.explain_odd_times(config.contract.types)
        );
        let found = Finding {
            settings: date_settings(&formats),
            ..finding(
                "times of several forms land as text; keys that name a time read them, but SQL and readers of exports compare their \
                 characters, which have another order",
                advice,
            )
        };
        warn_of_columns(TEXT_TIMES, "contract.dates", &self.text_times, found)
    }

    /// Handling of the strings that are no times once `contract.dates` is set.
    fn explain_odd_times(&self, types: TypeContract) -> String {
        let fate = odd_fate(types);
        let or_null = match types {
            TypeContract::NullValue => "",
            _ => " unless `contract.types = \"null_value\"` makes them null",
        };
        match (self.has_odd_times, self.has_many_odd_times) {
            (false, _) => String::new(),
            (true, false) => format!(", where strings that are no times {fate}{or_null}"),
            (true, true) => format!(
                ", and declare `timestamp` each column with more strings that are no times than `infer.max_odd_fraction` \
                 allows; such strings then {fate}{or_null}"
            ),
        }
    }

    /// Columns that have landed with a type that values of the sample do not fit.
    fn warn_of_landed_types(&self, types: TypeContract) -> Option<Warning> {
        let fate = odd_fate(types);
        warn_of_columns(
            OTHER_TYPES_LANDED,
            "contract.column.<name>.type",
            &self.other_landed,
            finding(
                format!("a landed column keeps its type, and values that do not fit it {fate}"),
                "declare a wider type, such as `text`, set `contract.types`, or run `feedline ingest reset PIPELINE.toml SOURCE`, \
                 which re-reads everything and infers new types; if the landed type is right, declare it",
            ),
        )
    }

    /// Numbers and dates that are read in one of several possible ways.
    fn warn_of_readings(&self) -> [Option<Warning>; 3] {
        [
            warn_of_columns(
                LOCAL_TIMES,
                "contract.column.<name>.type",
                &self.local_times,
                finding(
                    "timestamps without an offset are read as UTC",
                    "declare the column `text` to keep them unchanged",
                ),
            ),
            warn_of_columns(
                DIGITS_ROUNDED,
                "contract.column.<name>.type",
                &self.rounded,
                finding(
                    rounded_digits::ROUNDED,
                    rounded_digits::advice(self.is_rounded_beyond_decimal),
                ),
            ),
            warn_of_columns(
                AMBIGUOUS_DATES,
                "contract.dates",
                &self.ambiguous,
                finding(
                    "two formats of `contract.dates` read these differently, and the first one that fits a cell is used, so a column may mix them",
                    "configure one format",
                ),
            ),
        ]
    }
}

/// Lines of `csv` in words.
fn shown_settings(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("`csv.{line}`")).collect();
    lines.join(" and ")
}

/// A finding with its advice, which may be empty.
pub(super) fn finding(finding: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding {
        finding: finding.into(),
        advice: advice.into(),
        ..Finding::default()
    }
}

/// Returns the warning about the columns of a finding, if there are any.
pub(super) fn warn_of_columns(
    code: &str,
    key: &str,
    columns: &[WarnedColumn],
    finding: Finding,
) -> Option<Warning> {
    let finding = Finding {
        columns: columns.to_vec(),
        ..finding
    };
    (!columns.is_empty()).then(|| Warning::of_findings(code, key, vec![finding]))
}
