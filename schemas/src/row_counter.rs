//! Columns of integers that number the rows of each group, such as `seq` or `Sample Number`, and the index of pandas.

use std::collections::BTreeMap;

/// Fewest rows that are compared.
const ROWS: u64 = 20;

/// Fewest times that the numbers restart.
const RESTARTS: u64 = 2;

/// Fewest rows of a group on average: a flag that is rarely 1 fits the pattern too.
const GROUP_ROWS: u64 = 3;

/// Most numbers that do not follow the one before: a sample of a long file has eight parts.
const JUMPS: u64 = 7;

/// Rows for each such number.
const ROWS_PER_JUMP: u64 = 100;

/// The part of its length that a period of a calendar may be longer than another, as months are.
const CYCLE: u64 = 8;

/// Fewest groups of a cycle for each one that is shorter, as that at the end of an entity or a file is.
const GROUPS_PER_SHORT: u64 = 4;

/// Most different lengths of groups that are counted; groups of so many lengths are no cycle.
const LENGTHS: usize = 64;

/// Rows for each number of an index that is less than the one before: files may have few rows, and other integers fall often.
const ROWS_PER_FALL: u64 = 10;

/// Returns true for the name that pandas gives an index in Parquet, such as `__index_level_0__`.
///
/// ```
/// use feedline_schemas::row_counter::is_pandas_index;
///
/// assert!(is_pandas_index("__index_level_0__"));
/// assert!(!is_pandas_index("index"));
/// ```
#[must_use]
pub fn is_pandas_index(name: &str) -> bool {
    let level = name.strip_prefix("__index_level_");
    let level = level.and_then(|rest| rest.strip_suffix("__"));
    level.is_some_and(|level| !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true for the names that an index of pandas has in CSV and JSON: none, `index`, and `Unnamed: 0` if it was read again.
///
/// ```
/// use feedline_schemas::row_counter::names_index;
///
/// assert!(names_index("index") && names_index("Unnamed: 0") && names_index("Unnamed: 0.1"));
/// assert!(!names_index("price index"));
/// ```
#[must_use]
pub fn names_index(name: &str) -> bool {
    let lower = name.trim().to_lowercase();
    let again = lower.strip_prefix("unnamed: 0");
    matches!(lower.as_str(), "" | "index")
        || again.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Integers of a column in the order of its rows, compared with a row number that restarts with each group.
///
/// The first number is 0 or 1, and each later one is the number before plus 1, or the first number again. Groups of nearly
/// equal lengths are a cycle, such as hours of a day or days of a month, and no row number, even if a few groups are shorter.
///
/// ```
/// use feedline_schemas::row_counter::RestartingCounter;
///
/// let is_row_number = |lengths: [i64; 4]| {
///     let mut counter = RestartingCounter::default();
///     let numbers = lengths.into_iter().flat_map(|rows| 1..=rows);
///     numbers.for_each(|number| counter.add(Some(number)));
///     counter.is_row_number(lengths.iter().sum::<i64>().unsigned_abs())
/// };
/// assert!(is_row_number([9, 14, 6, 11]));
/// assert!(!is_row_number([12, 12, 12, 7]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartingCounter {
    first: i64,
    last: Option<i64>,
    rows: u64,
    restarts: u64,
    jumps: u64,
    /// Rows of the current group so far; none if its first row was not seen.
    group: Option<u64>,
    /// Number of the groups before it by their rows, of the first lengths.
    lengths: BTreeMap<u64, u64>,
    /// True if a value does not fit.
    is_other: bool,
}

impl RestartingCounter {
    /// Compares the cell of the next row; `None` if it has no integer.
    pub fn add(&mut self, cell: Option<i64>) {
        if self.is_other {
            return;
        }
        let Some(number) = cell else {
            self.is_other = true;
            return;
        };
        self.rows += 1;
        let Some(last) = self.last.replace(number) else {
            self.first = number;
            self.group = Some(1);
            self.is_other = !(0..=1).contains(&number);
            return;
        };
        if last.checked_add(1) == Some(number) {
            self.group = self.group.map(|rows| rows + 1);
        } else if number == self.first {
            self.end_group();
            self.restarts += 1;
            self.group = Some(1);
        } else {
            self.group = None;
            self.jumps += 1;
            self.is_other = self.jumps > JUMPS;
        }
    }

    fn end_group(&mut self) {
        if let Some(rows) = self.group
            && (self.lengths.len() < LENGTHS || self.lengths.contains_key(&rows))
        {
            *self.lengths.entry(rows).or_default() += 1;
        }
    }

    /// Returns true if the column has an integer in each of `rows` rows, and they number the rows of each group.
    #[must_use]
    pub fn is_row_number(&self, rows: u64) -> bool {
        let Some((longest, _)) = self.lengths.last_key_value() else {
            return false;
        };
        let has_groups = self.restarts >= RESTARTS && self.rows >= GROUP_ROWS * (self.restarts + 1);
        let has_few_jumps = self.jumps * ROWS_PER_JUMP <= self.rows;
        let is_in_all = !self.is_other && self.rows == rows && rows >= ROWS;
        is_in_all && has_groups && has_few_jumps && !self.is_cycle(*longest)
    }

    /// Returns true if nearly all groups are as long as the longest one, which is at least `longest`.
    fn is_cycle(&self, longest: u64) -> bool {
        // The last group may have more rows than were compared.
        let longest = longest.max(self.group.unwrap_or_default());
        let is_short = |rows: u64| longest - rows > rows / CYCLE;
        let groups: u64 = self.lengths.values().sum();
        let short = self.lengths.iter().filter(|(rows, _)| is_short(**rows));
        let short: u64 = short.map(|(_, groups)| *groups).sum();
        self.lengths.len() < LENGTHS && short * GROUPS_PER_SHORT <= groups
    }
}

/// Integers of a column in the order of its rows, compared with an index that begins again in each file, as that of pandas does.
///
/// ```
/// use feedline_schemas::row_counter::IndexCounter;
///
/// let is_restarting = |files: i64| {
///     let mut counter = IndexCounter::default();
///     let numbers = (0..files).flat_map(|_| 0..60);
///     numbers.for_each(|number| counter.add(Some(number)));
///     counter.is_restarting(files.unsigned_abs() * 60)
/// };
/// assert!(is_restarting(2));
/// assert!(!is_restarting(1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexCounter {
    last: Option<i64>,
    /// Numbers that are the one before plus 1.
    steps: u64,
    /// Numbers that are greater than the one before.
    rises: u64,
    /// Numbers that are equal to the one before.
    repeats: u64,
    /// Numbers that are less than the one before.
    restarts: u64,
}

impl IndexCounter {
    /// Compares the cell of the next row; `None` if it has no integer.
    pub fn add(&mut self, cell: Option<i64>) {
        if let (Some(last), Some(number)) = (self.last, cell) {
            self.steps += u64::from(last.checked_add(1) == Some(number));
            self.rises += u64::from(number > last);
            self.repeats += u64::from(number == last);
            self.restarts += u64::from(number < last);
        }
        self.last = cell;
    }

    /// Returns true if the column counts up by one in most of `rows` rows, and begins again at least once. A sample of
    /// parts of long files has other rows between them.
    #[must_use]
    pub const fn is_restarting(&self, rows: u64) -> bool {
        rows >= ROWS && self.restarts > 0 && self.steps * 4 >= rows * 3
    }

    /// Returns true if the column rises from row to row in `rows` rows, with or without gaps, and seldom begins again, as the
    /// index of filtered rows in several files does.
    #[must_use]
    pub const fn is_rising(&self, rows: u64) -> bool {
        let is_strict = self.repeats == 0 && self.restarts * ROWS_PER_FALL <= rows;
        rows >= ROWS && is_strict && self.rises * 4 >= rows * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_begins_again_in_files_of_one_length_and_in_parts_of_them() {
        let is_restarting = |numbers: &[i64]| {
            let mut counter = IndexCounter::default();
            numbers.iter().for_each(|number| counter.add(Some(*number)));
            counter.is_restarting(numbers.len() as u64)
        };
        assert!(is_restarting(&groups(0, &[30, 30])));
        assert!(is_restarting(&groups(0, &[40, 3, 25, 8])));
        // Parts of two files, from 0, from 500 and from 900.
        let parts = [groups(0, &[20]), groups(500, &[20]), groups(900, &[20])];
        assert!(is_restarting(&[&parts[..], &parts].concat().concat()));
        assert!(!is_restarting(&groups(0, &[60])));
        assert!(!is_restarting(&groups(0, &[2; 30])));
        let others: Vec<i64> = (0..60).map(|row| row * 37 % 60).collect();
        assert!(!is_restarting(&others));
    }

    #[test]
    fn an_index_of_filtered_rows_rises_with_gaps_in_each_file() {
        let is_rising = |numbers: &[i64]| {
            let mut counter = IndexCounter::default();
            numbers.iter().for_each(|number| counter.add(Some(*number)));
            counter.is_rising(numbers.len() as u64)
        };
        let filtered = |rows: i64| (0..rows).filter(|row| row * 31 % 97 > 30);
        let files: Vec<i64> = [80, 60, 90].into_iter().flat_map(filtered).collect();
        assert!(is_rising(&files));
        assert!(is_rising(&groups(0, &[60])));
        assert!(is_rising(&groups(0, &[30, 30])));
        // Too few rows, equal neighbours, numbers that fall often, and cells without one.
        assert!(!is_rising(&groups(0, &[19])));
        let twice: Vec<i64> = (0..60).map(|row| row / 2).collect();
        assert!(!is_rising(&twice));
        assert!(!is_rising(&groups(0, &[5; 12])));
        let others: Vec<i64> = (0..60).map(|row| row * 37 % 60).collect();
        assert!(!is_rising(&others));
        let mut sparse = IndexCounter::default();
        for row in 0..60 {
            sparse.add((row % 2 == 0).then_some(row));
        }
        assert!(!sparse.is_rising(60));
    }

    fn is_row_number(numbers: impl IntoIterator<Item = i64>) -> bool {
        let mut counter = RestartingCounter::default();
        let mut rows = 0;
        for number in numbers {
            counter.add(Some(number));
            rows += 1;
        }
        counter.is_row_number(rows)
    }

    /// Groups of these lengths that are numbered from `first` on.
    fn groups(first: i64, lengths: &[i64]) -> Vec<i64> {
        let groups = lengths.iter().flat_map(|rows| first..first + rows);
        groups.collect()
    }

    #[test]
    fn numbers_that_restart_with_groups_of_several_lengths_are_row_numbers() {
        assert!(is_row_number(groups(1, &[7, 12, 9])));
        assert!(is_row_number(groups(0, &[40, 3, 25, 8])));
        // A last group that is longer than the others.
        assert!(is_row_number(groups(1, &[6, 6, 6, 9])));
    }

    #[test]
    fn cycles_of_a_calendar_are_no_row_numbers() {
        assert!(!is_row_number(groups(0, &[24, 24, 24, 5])));
        assert!(!is_row_number(groups(0, &[7; 20])));
        assert!(!is_row_number(groups(1, &[12; 5])));
        // Days of the months, and weeks of the years.
        assert!(!is_row_number(groups(1, &[31, 28, 31, 30, 31, 4])));
        assert!(!is_row_number(groups(1, &[52, 53, 52, 10])));
        // Hours of two sensors that follow one another, and months of three shops.
        let sensor = [&[24; 20][..], &[20][..]].concat();
        assert!(!is_row_number(groups(0, &sensor.repeat(2))));
        assert!(!is_row_number(groups(1, &[12, 12, 12, 6, 12, 12, 12, 6])));
        assert!(is_row_number(groups(1, &[12, 12, 6, 9, 12, 7])));
    }

    #[test]
    fn other_integers_are_no_row_numbers() {
        // One number for all rows, one restart, and another first number.
        assert!(!is_row_number(0..100));
        assert!(!is_row_number(groups(1, &[40, 30])));
        assert!(!is_row_number(groups(1990, &[20, 15, 30, 9])));
        // A flag that is rarely 1.
        assert!(!is_row_number((0..200).map(|row| i64::from(row % 9 == 4))));
        // Numbers that skip one in each group.
        let skipping = (1..=30).filter(|number| number % 10 != 5);
        assert!(!is_row_number(
            groups(1, &[7, 12, 9]).into_iter().chain(skipping)
        ));
        assert!(!is_row_number(groups(1, &[2, 4, 3])));
    }

    #[test]
    fn a_missing_cell_ends_the_comparison() {
        let mut counter = RestartingCounter::default();
        for number in groups(1, &[7, 12, 9]) {
            counter.add(Some(number));
        }
        assert!(counter.is_row_number(28));
        // Rows without the column.
        assert!(!counter.is_row_number(29));
        counter.add(None);
        assert!(!counter.is_row_number(29));
    }

    #[test]
    fn a_sample_of_some_parts_of_a_long_file_is_enough() {
        let numbers = groups(1, &[90, 140, 60, 110, 75, 130, 100, 120]);
        let parts = numbers[..300].iter().chain(&numbers[400..]).copied();
        assert!(is_row_number(parts));
        // As many jumps as this are other values.
        let jumps = groups(1, &[7, 12, 9]).into_iter().map(|number| number * 2);
        assert!(!is_row_number(jumps));
    }
}
