//! Cells as they would have landed: numbers with the source's decimal and thousands separators,
//! spellings of missing values, timestamps.

use feedline_readers::calendar_time::{cut_to_micros, parse_nanos};
use feedline_schemas::{config::CsvConfig, csv_cell::CellFormat, number, record::ColumnType};

use super::{held::LandedAs, raw_cell::Raw, reading::RowsReading};
use crate::operators::{canonical_text, time_series::Instant};

/// Name of RFC 3339 among the timestamp formats.
const RFC3339: &str = "rfc3339";

/// Format of the cells of a column.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    format: CellFormat,
    /// Formats of a timestamp column, tried in order.
    dates: Option<Vec<Instant>>,
    /// True if cells of CSV are also read as ISO 8601, and other texts as RFC 3339 with an offset, as they
    /// are where none of the formats has year, day and month in this order.
    reads_iso: bool,
    /// True if the column holds all digits of a number of JSON.
    keeps_digits: bool,
    /// True if cells of CSV are numbers in the declared format although the column's type is unknown.
    formats_unknown: bool,
    /// True if the type of the column is inferred, so that other cells are values, too.
    is_inferred: bool,
    /// Known categories of the column. Such a cell is that category in any format of numbers.
    known: Vec<String>,
}

/// Result of reading a cell for its column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Read {
    /// The cell unchanged.
    AsItIs,
    /// This value instead.
    By(Raw<'static>),
    /// A number, in this spelling.
    Number(String),
    /// A value that the column cannot hold.
    Conflict,
}

impl Written {
    /// Makes the format in which the column of the fitted transform landed.
    pub(super) fn of(column: Option<ColumnType>, reading: &RowsReading) -> Self {
        let formats = reading
            .contracts
            .iter()
            .flat_map(|contract| &contract.dates);
        let instant = |format: &String| match format.as_str() {
            RFC3339 => Instant::iso(),
            _ => Instant::by(format),
        };
        let reads_iso = !formats.clone().any(|format| format.contains("%Y-%d"));
        let mut dates: Vec<Instant> = formats.map(instant).collect();
        if dates.is_empty() {
            dates.push(Instant::iso());
        }
        Self {
            format: CellFormat::new(&reading.csv),
            dates: (column == Some(ColumnType::Timestamp)).then_some(dates),
            reads_iso,
            keeps_digits: matches!(column, Some(ColumnType::Decimal | ColumnType::Utf8)),
            formats_unknown: matches!(column, Some(ColumnType::Null) | None)
                && has_number_format(&reading.csv),
            is_inferred: false,
            known: Vec::new(),
        }
    }

    /// Sets if the type of the column is inferred from its known values.
    pub(super) fn inferred(self, is_inferred: bool) -> Self {
        Self {
            is_inferred,
            ..self
        }
    }

    /// Sets the known categories of the column.
    pub(super) fn knowing(self, known: Vec<String>) -> Self {
        Self { known, ..self }
    }

    /// Returns true for a column of timestamps.
    pub(super) const fn is_time(&self) -> bool {
        self.dates.is_some()
    }

    /// Returns the noun for the column's type, if that differs from the type it is read as.
    pub(super) fn noun(&self) -> Option<&'static str> {
        match &self.dates {
            Some(_) => Some("timestamp"),
            None => self.formats_unknown.then_some("number"),
        }
    }

    /// The cell as the text of a passthrough column; `None` without a value. A timestamp is that which
    /// would have landed, in any format of the file; a cell that is none stays as it is. A number of
    /// JSON has the digits that its column holds.
    pub(super) fn carried(&self, raw: &Raw<'_>) -> Option<String> {
        if let (true, Raw::Written(_, text)) = (self.keeps_digits, raw) {
            return Some((*text).to_owned());
        }
        if self.dates.is_none() {
            return raw.carried();
        }
        match self.read(LandedAs::Text, raw) {
            Read::By(landed) => landed.carried(),
            _ => raw.carried(),
        }
    }

    /// Converts the cell as landing would for a column of this type.
    pub(super) fn read(&self, landed: LandedAs, raw: &Raw<'_>) -> Read {
        if let Raw::Time(text) = raw {
            // It lands as a timestamp, whatever formats texts have.
            let instant = self.dates.as_ref().map(|_| Instant::iso().of_text(text));
            return match instant {
                Some(Some(micros)) => Read::By(timestamp(micros)),
                Some(None) => self.no_timestamp(),
                None => Read::By(Raw::Text((*text).to_owned().into())),
            };
        }
        if let Some(dates) = &self.dates {
            let text = match raw {
                Raw::Cell(text) if self.format.is_missing(text.trim()) => {
                    return Read::By(Raw::Null);
                }
                Raw::Cell(text) => text.trim(),
                Raw::Text(text) => text,
                Raw::Null => return Read::AsItIs,
                _ => return self.no_timestamp(),
            };
            let is_iso = self.reads_iso && matches!(raw, Raw::Cell(_));
            let iso = is_iso.then(Instant::iso);
            let mut instants = dates.iter().chain(&iso);
            let found = instants.find_map(|instant| instant.of_text(text));
            let with_offset = || self.reads_iso.then(|| offset_micros(text)).flatten();
            return match found.or_else(with_offset) {
                Some(micros) => Read::By(timestamp(micros)),
                None => self.no_timestamp(),
            };
        }
        match raw {
            Raw::Cell(text) => self.read_cell(landed, text),
            _ => Read::AsItIs,
        }
    }

    /// Result for a value that is no timestamp.
    fn no_timestamp(&self) -> Read {
        match self.is_inferred {
            true => Read::AsItIs,
            false => Read::Conflict,
        }
    }

    /// Converts the CSV cell of a column that holds no timestamps.
    fn read_cell(&self, landed: LandedAs, text: &str) -> Read {
        let is_number = match landed {
            LandedAs::Integer { .. } | LandedAs::Float | LandedAs::Decimal => true,
            LandedAs::Scalar | LandedAs::LikelyNumber => self.formats_unknown,
            LandedAs::Bool | LandedAs::Text | LandedAs::Written | LandedAs::LikelyBool => false,
        };
        if !is_number && landed != LandedAs::Bool {
            return Read::AsItIs;
        }
        if self.format.is_missing(text.trim()) {
            return Read::By(Raw::Null);
        }
        let is_known = || self.known.iter().any(|known| known == text.trim());
        if landed == LandedAs::LikelyNumber && is_known() {
            return Read::AsItIs;
        }
        match self.format.number(text) {
            _ if !is_number => Read::AsItIs,
            Some(number) if *number == *text => Read::AsItIs,
            Some(number) => Read::Number(number.into_owned()),
            // A category may be such a text.
            None if landed == LandedAs::LikelyNumber => Read::AsItIs,
            None if number::is_number(text.trim()) => Read::Conflict,
            // Without a type, text is read as a number once more.
            None if landed == LandedAs::Scalar && is_fraction(text.trim()) => Read::Conflict,
            None => Read::AsItIs,
        }
    }
}

/// Returns true if numbers of CSV are written otherwise than programs write them.
fn has_number_format(csv: &CsvConfig) -> bool {
    let has_separators = csv.decimal_separator.is_some() || csv.thousands_separator.is_some();
    has_separators || csv.percent || csv.currency.is_some()
}

/// Returns true for a number with a point, such as `+1.5`.
fn is_fraction(text: &str) -> bool {
    text.contains('.') && text.parse::<f64>().is_ok()
}

/// Microseconds since 1970 of a time of RFC 3339, which has an offset.
fn offset_micros(text: &str) -> Option<i64> {
    // The parser reads second 60 as second 59, and an annotation after the offset is another standard.
    let is_read = !text.contains(":60") && !text.ends_with(']');
    let nanos = is_read.then(|| parse_nanos(text)).flatten()?;
    cut_to_micros(nanos)
}

/// A timestamp as its column has it.
fn timestamp(micros: i64) -> Raw<'static> {
    let mut text = Vec::new();
    canonical_text::write_instant(micros, &mut text);
    Raw::Text(String::from_utf8_lossy(&text).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &Written, landed: LandedAs, cell: &str, expected: &Read) {
        assert_eq!(written.read(landed, &Raw::Cell(cell)), *expected, "{cell}");
    }

    #[test]
    fn cells_of_new_rows_are_read_as_they_would_have_landed() {
        let text = |text: &str| Read::By(Raw::Text(text.to_owned().into()));
        let usual = Written::default();
        check(&usual, LandedAs::Float, " NA ", &Read::By(Raw::Null));
        check(&usual, LandedAs::Bool, "?", &Read::By(Raw::Null));
        check(&usual, LandedAs::Text, "NA", &Read::AsItIs);
        check(&usual, LandedAs::Float, "1.5", &Read::AsItIs);
        check(&usual, LandedAs::Float, ".5", &Read::Number("0.5".into()));
        check(&usual, LandedAs::Float, "cheap", &Read::AsItIs);
        let continental = Written {
            format: CellFormat::new(&CsvConfig {
                decimal_separator: Some(','),
                ..CsvConfig::default()
            }),
            ..Written::default()
        };
        check(
            &continental,
            LandedAs::Float,
            "1000,14",
            &Read::Number("1000.14".into()),
        );
        check(&continental, LandedAs::Float, "1.5", &Read::Conflict);
        let dates = Written {
            dates: Some(vec![Instant::iso()]),
            ..Written::default()
        };
        check(
            &dates,
            LandedAs::Text,
            "2024-01-31",
            &text("2024-01-31T00:00:00Z"),
        );
        let last = text("9999-12-31T00:00:00Z");
        check(&dates, LandedAs::Text, "9999-12-31", &last);
        check(&dates, LandedAs::Text, "-", &Read::By(Raw::Null));
        check(&dates, LandedAs::Text, "soon", &Read::Conflict);
        let inferred = dates.inferred(true);
        check(&inferred, LandedAs::Text, "9999-12-31", &last);
        check(&inferred, LandedAs::Text, "soon", &Read::AsItIs);
    }

    #[test]
    fn cells_of_an_unknown_type_are_numbers_in_the_declared_format_or_none() {
        let csv = CsvConfig {
            decimal_separator: Some(','),
            thousands_separator: Some('.'),
            percent: true,
            ..CsvConfig::default()
        };
        let declared = Written {
            format: CellFormat::new(&csv),
            formats_unknown: has_number_format(&csv),
            ..Written::default()
        };
        let number = |text: &str| Read::Number(text.to_owned());
        for (cell, expected) in [
            ("1.432", number("1432")),
            ("1.304,44", number("1304.44")),
            ("17%", number("17")),
            ("12", Read::AsItIs),
            ("true", Read::AsItIs),
            (" NA ", Read::By(Raw::Null)),
            ("1.5", Read::Conflict),
            ("+1.5", Read::Conflict),
        ] {
            check(&declared, LandedAs::Scalar, cell, &expected);
        }
        check(&declared, LandedAs::LikelyNumber, "1.432", &number("1432"));
        check(&declared, LandedAs::LikelyNumber, "1.5", &Read::AsItIs);
        let codes = declared.clone().knowing(vec!["1.125".to_owned()]);
        check(&codes, LandedAs::LikelyNumber, " 1.125", &Read::AsItIs);
        check(&codes, LandedAs::LikelyNumber, "1.432", &number("1432"));
        check(&declared, LandedAs::Text, "1.432", &Read::AsItIs);
        // Without a format, cells are read as ever.
        assert!(!has_number_format(&CsvConfig::default()));
        let usual = Written::default();
        for cell in ["1.5", "+1.5", "1.432", "NA"] {
            check(&usual, LandedAs::Scalar, cell, &Read::AsItIs);
        }
    }

    #[test]
    fn cells_are_dates_of_iso_beside_declared_formats() {
        let column = |formats: &[&str]| {
            let reading = RowsReading {
                format: Default::default(),
                csv: Default::default(),
                records: String::new(),
                archive: Default::default(),
                landed: Default::default(),
                contracts: vec![feedline_schemas::config::ContractConfig {
                    dates: formats.iter().map(|format| (*format).to_owned()).collect(),
                    ..Default::default()
                }],
                names_as_written: false,
                keep: Vec::new(),
                max_missing_fraction: None,
                batch_rows: 1,
                pause: None,
                joins: None,
            };
            Written::of(Some(ColumnType::Timestamp), &reading)
        };
        let day = Read::By(Raw::Text("2024-12-31T00:00:00Z".to_owned().into()));
        let german = column(&["%d.%m.%Y"]);
        check(&german, LandedAs::Text, "31.12.2024", &day);
        check(&german, LandedAs::Text, "2024-12-31", &day);
        // A text of JSON is read by the declared formats, and with an offset.
        let text = |column: &Written, text: &str| {
            column.read(LandedAs::Text, &Raw::Text(text.to_owned().into()))
        };
        assert_eq!(text(&german, "2024-12-31"), Read::Conflict);
        assert_eq!(text(&german, "2024-12-31T00:00:00"), Read::Conflict);
        assert_eq!(text(&german, "2024-12-31T00:00:00Z"), day);
        assert_eq!(text(&german, "2024-12-31T01:00:00+01:00"), day);
        assert_eq!(text(&german, "2024-12-31T00:00:60Z"), Read::Conflict);
        let year_day_month = column(&["%Y-%d-%m"]);
        let time = text(&year_day_month, "2024-12-11T00:00:00Z");
        assert_eq!(time, Read::Conflict);
        // A time of Parquet has no format.
        let time = german.read(LandedAs::Text, &Raw::Time("2024-12-31T00:00:00"));
        assert_eq!(time, day);
        let as_text = Read::By(Raw::Text("2024-12-31".to_owned().into()));
        let other = Written::default().read(LandedAs::Text, &Raw::Time("2024-12-31"));
        assert_eq!(other, as_text);
        // Year, day, month: a cell must not be read in two ways.
        let other = column(&["%Y-%d-%m"]);
        check(&other, LandedAs::Text, "2024-31-12", &day);
        check(&other, LandedAs::Text, "2024-12-31", &Read::Conflict);
    }
}
