//! Check that the first row of a CSV file holds names, and no data.

use std::{ops::RangeInclusive, str};

use super::{Dialect, builder};
use crate::{notices::Notices, value::shorten};

/// Numbers that columns of years have as names.
const YEARS: RangeInclusive<f64> = 1500.0..=2200.0;

/// Kind of the text of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TextKind {
    Empty,
    Number(f64),
    /// A date, a time or both.
    Time,
    /// A URL or an email address.
    Address,
    Word,
}

impl TextKind {
    fn of(cell: &[u8]) -> Self {
        let text = str::from_utf8(cell).unwrap_or("?").trim();
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        match number {
            _ if text.is_empty() => Self::Empty,
            Some(number) => Self::Number(number),
            None if is_time(text) => Self::Time,
            None if is_address(text) => Self::Address,
            None => Self::Word,
        }
    }

    /// Returns true for a text that names of columns rarely have.
    const fn is_data(self) -> bool {
        matches!(self, Self::Number(_) | Self::Time | Self::Address)
    }

    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Notes that the header of the file `name` looks like a row. `sample` begins with it.
pub(super) fn note(sample: &[u8], dialect: &Dialect, name: &str, notices: &Notices) {
    if !dialect.has_header || !dialect.columns.is_empty() {
        return;
    }
    let mut reader = builder(dialect).from_reader(sample);
    let mut rows = reader.byte_records().map_while(Result::ok);
    let Some(header) = rows.next() else { return };
    let kinds = |row: &csv::ByteRecord| row.iter().map(TextKind::of).collect::<Vec<_>>();
    let second = rows.next().map(|row| kinds(&row));
    if looks_like_data(&kinds(&header), second.as_deref()) {
        let cells: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
        let message = format!(
            "the first line of `{name}` looks like a row and not like names: `{}`",
            shorten(&cells.join("`, `"), 200)
        );
        notices.push("header_looks_like_data", "csv.header", message);
    }
}

/// Returns true if a header looks like a row of data: two or more cells, or all cells, are numbers
/// that do not count up, or its cells have the kinds of the `second` row.
fn looks_like_data(header: &[TextKind], second: Option<&[TextKind]>) -> bool {
    let numbers = numbers(header);
    let is_whole = |number: &f64| number.fract() == 0.0;
    let counts_up =
        numbers.iter().all(is_whole) && numbers.windows(2).all(|pair| pair[0] < pair[1]);
    let are_most = numbers.len() >= 2 || !numbers.is_empty() && numbers.len() == header.len();
    if are_most && !counts_up {
        return true;
    }
    let are_names = counts_up && are_names(header, second);
    let counts = |kind: TextKind| match kind {
        TextKind::Number(_) => !are_names,
        other => other.is_data(),
    };
    let Some(second) = second else {
        let count = header.iter().filter(|kind| counts(**kind)).count();
        let is_other = |kind: &TextKind| matches!(kind, TextKind::Time | TextKind::Address);
        let others = header.iter().filter(|kind| is_other(kind)).count();
        return count > 0 && count == header.len() || others == 1;
    };
    let columns = || header.iter().copied().zip(second.iter().copied());
    let differs = |(first, second): (TextKind, TextKind)| {
        let has_text = first != TextKind::Empty && second != TextKind::Empty;
        has_text && !first.is_like(second) && (first.is_data() || second.is_data())
    };
    columns().any(|(first, second)| counts(first) && first.is_like(second))
        && !columns().any(differs)
}

fn numbers(row: &[TextKind]) -> Vec<f64> {
    let number = |kind: &TextKind| match kind {
        TextKind::Number(number) => Some(*number),
        _ => None,
    };
    row.iter().filter_map(number).collect()
}

/// Returns true if the numbers of a header, which count up, may be names: years above a row without
/// years, numbers of columns, or numbers with equal steps beside texts.
fn are_names(header: &[TextKind], second: Option<&[TextKind]>) -> bool {
    let are_years = |row: &[TextKind]| {
        let numbers = numbers(row);
        !numbers.is_empty() && numbers.iter().all(|number| YEARS.contains(number))
    };
    let numbers = numbers(header);
    let mut numbered = numbers.iter().zip((0_u32..).map(f64::from));
    let are_numbers_of_columns =
        numbered.all(|(number, expected)| number.total_cmp(&expected).is_eq());
    let has_equal_steps = numbers
        .windows(3)
        .all(|next| ((next[1] - next[0]) - (next[2] - next[1])).abs() < 1e-9);
    let is_other = |kind: &TextKind| !matches!(kind, TextKind::Empty | TextKind::Number(_));
    let has_others = header.iter().any(is_other);
    let is_index_nameless = !has_others && numbers.len() < header.len();
    let are_many = numbers.len() >= 3;
    are_years(header) && !second.is_some_and(are_years)
        || are_numbers_of_columns && (are_many || is_index_nameless)
        || has_equal_steps && are_many && has_others
}

/// Returns true for dates such as `2024-01-02`, `1/22/20` or `02.01.2024`, times such as `12:30`,
/// and both with a zone.
fn is_time(text: &str) -> bool {
    match text.split_once(['T', ' ']) {
        Some((date, time)) => is_date(date) && is_clock(time),
        None => is_date(text) || is_clock(text),
    }
}

fn is_date(text: &str) -> bool {
    ['-', '/', '.'].into_iter().any(|sign| {
        let parts: Vec<&str> = text.split(sign).collect();
        let are_digits = |part: &&str| is_digits(part) && matches!(part.len(), 1 | 2 | 4);
        let has_year = parts[0].len() == 4 || parts[parts.len() - 1].len() == 4;
        // A version such as `1.2.3` is no date.
        parts.len() == 3 && parts.iter().all(are_digits) && (has_year || sign == '/')
    })
}

/// Returns true for a time of a day, with a fraction, `AM` or `PM`, or a zone.
fn is_clock(text: &str) -> bool {
    let is_of_time = |c: char| c.is_ascii_digit() || ":.+-ZAPMapm ".contains(c);
    let mut parts = text.split(':');
    let is_hour = |part: &str| is_digits(part) && part.len() <= 2;
    let has_minutes = |part: &str| part.get(..2).is_some_and(is_digits);
    parts.next().is_some_and(is_hour)
        && parts.next().is_some_and(has_minutes)
        && text.chars().all(is_of_time)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_address(text: &str) -> bool {
    if text.contains(char::is_whitespace) {
        return false;
    }
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
        let is_name = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphabetic());
        is_name && !rest.is_empty()
    });
    let is_email = |(name, host): (&str, &str)| {
        !name.is_empty() && host.contains('.') && !host.contains('@') && !host.ends_with('.')
    };
    is_url || text.split_once('@').is_some_and(is_email)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(text: &str) -> bool {
        let row = |line: &str| -> Vec<TextKind> {
            let cells = line.split(',');
            cells.map(|cell| TextKind::of(cell.as_bytes())).collect()
        };
        let (header, second) = match text.split_once('\n') {
            Some((header, second)) => (row(header), Some(row(second))),
            None => (row(text), None),
        };
        looks_like_data(&header, second.as_deref())
    }

    #[test]
    fn a_header_with_the_kinds_of_the_second_row_looks_like_data() {
        for data in [
            "5.1,3.5,1.4,0.2,setosa",
            "39, State-gov, 77516, Bachelors, 13",
            "1,1",
            "2,1,0",
            "1,2,3",
            "1,2,3\n4,5,6",
            "0,1\n3,4",
            "0,cat\n1,dog",
            "x,1,5,6\ny,2,7,9",
            "5.1,x\n4.9,y",
            "2024-01-02,5",
            "2024-01-02,5\n2024-01-03,6",
            "2024-01-02T00:00:00Z,item1,1.5\n2024-01-02T01:00:00Z,item2,2.5",
            "1/22/20,x\n1/23/20,y",
            "12:30,x\n12:45:01.5,y",
            "2020,Bern\n2021,Genf",
            "u1@x.org,Name1\nu2@x.org,Name2",
            "https://h/a,x\nhttps://h/b,y",
        ] {
            assert!(looks(data), "{data}");
        }
    }

    #[test]
    fn names_that_are_years_numbers_or_dates_are_a_header() {
        for names in [
            "",
            "a,b",
            "id,2",
            "id,2\n5,7",
            "q1,q2\nx1,x2",
            "q1,q2\n1,2",
            "0,1,2,3",
            "0,1,2\nx,y,z",
            "0,1,2\n0.1,0.2,0.3",
            ",0\n0,5.5",
            ",0,1\n0,5.5,1",
            "label,1,2,3\ncat,7,8,9",
            "label,1,2\n4,7,8",
            "station,6,12,18\nBern,5,6,7",
            "name,25,50,75\nx,1.5,2.5,3.5",
            "country,2000,2001,2002\nCH,1812,1830,1840",
            "2019,2020,2021\n5,6,7",
            "country,2000,2001,2002",
            "country,2000,2001\nCH,5,6.5",
            "country,2024-01-01,2024-01-02",
            "country,2024-01-01,2024-01-02\nCH,5,6",
            "station,10:00,11:00\nBern,5,6",
            "v1.2.3,1.2.3\n4,5",
            "day,user@host\n2024-01-01,x",
        ] {
            assert!(!looks(names), "{names}");
        }
    }
}
