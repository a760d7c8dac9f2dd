//! Predictions of a series, which are computed by entity and written in the order of their rows.
//!
//! Features need the rows of an entity one after the other, so predictions are collected first.
//! Memory holds the predictions of all rows of the output, with their passthrough columns; where only
//! the transform is applied, it holds all features.

use std::io::Write;

use feedline_preprocess::{Column, RowsOut};

/// Rows that are written at a time.
const WRITTEN_ROWS: usize = 4096;

/// Place of a row in the output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowOrder {
    /// By its number in the file.
    Number(u64),
    /// By the cells of its entity; rows of one entity keep their order.
    Entity(Vec<EntityCell>),
}

/// A cell of an entity: numbers by their values come before texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EntityCell {
    Missing,
    /// Bits of the number that compare as it does.
    Number(i64),
    Text(String),
}

impl EntityCell {
    pub(super) fn of(cell: Option<&str>) -> Self {
        let Some(text) = cell else {
            return Self::Missing;
        };
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => {
                let bits = number.to_bits().cast_signed();
                // As `f64::total_cmp` compares.
                let flipped = ((bits >> 63).cast_unsigned() >> 1).cast_signed();
                Self::Number(bits ^ flipped)
            }
            _ => Self::Text(text.to_owned()),
        }
    }
}

/// Predictions in the order in which they were computed.
#[derive(Debug, Default)]
pub(super) struct OrderedRows {
    columns: Vec<Column>,
    orders: Vec<RowOrder>,
}

impl OrderedRows {
    /// Adds rows: a cell of each column, and the place of each row.
    pub(super) fn push(&mut self, columns: Vec<Column>, orders: Vec<RowOrder>) {
        self.orders.extend(orders);
        if self.columns.is_empty() {
            self.columns = columns;
            return;
        }
        for (all, more) in self.columns.iter_mut().zip(columns) {
            append(all, more);
        }
    }

    /// Writes all rows in their order. Rows of entities get their number from it, in column
    /// `numbers`.
    pub(super) fn write<W: Write + Send>(
        mut self,
        numbers: usize,
        out: &mut RowsOut<W>,
    ) -> std::io::Result<()> {
        let mut order: Vec<usize> = (0..self.orders.len()).collect();
        order.sort_by(|a, b| self.orders[*a].cmp(&self.orders[*b]));
        let mut first = 0;
        for rows in order.chunks(WRITTEN_ROWS) {
            let mut columns: Vec<Column> =
                self.columns.iter_mut().map(|all| take(all, rows)).collect();
            let is_counted = matches!(self.orders[rows[0]], RowOrder::Entity(_));
            if is_counted {
                columns[numbers] = Column::Counts((first..).take(rows.len()).collect());
            }
            first += rows.len() as u64;
            out.write(columns)?;
        }
        Ok(())
    }
}

/// Appends the cells of `more`, a column of the same type.
fn append(all: &mut Column, more: Column) {
    match (all, more) {
        (Column::Counts(all), Column::Counts(more)) => all.extend(more),
        (Column::Whole(all), Column::Whole(more)) => all.extend(more),
        (Column::Integers(all), Column::Integers(more)) => all.extend(more),
        (Column::Bools(all), Column::Bools(more)) => all.extend(more),
        (Column::Short(all), Column::Short(more)) => all.extend(more),
        (Column::Long(all), Column::Long(more)) => all.extend(more),
        (Column::Text(all), Column::Text(more)) => all.extend(more),
        _ => unreachable!("a column of the output keeps its type"),
    }
}

/// Takes the cells of `rows`, each of them once.
fn take(column: &mut Column, rows: &[usize]) -> Column {
    match column {
        Column::Counts(cells) => Column::Counts(copied(cells, rows)),
        Column::Whole(cells) => Column::Whole(copied(cells, rows)),
        Column::Integers(cells) => Column::Integers(copied(cells, rows)),
        Column::Bools(cells) => Column::Bools(copied(cells, rows)),
        Column::Short(cells) => Column::Short(copied(cells, rows)),
        Column::Long(cells) => Column::Long(copied(cells, rows)),
        Column::Text(cells) => Column::Text(rows.iter().map(|row| cells[*row].take()).collect()),
    }
}

fn copied<T: Copy>(cells: &[T], rows: &[usize]) -> Vec<T> {
    rows.iter().map(|row| cells[*row]).collect()
}

#[cfg(test)]
mod tests {
    use feedline_preprocess::RowFormat;

    use super::*;

    #[test]
    fn numbers_of_entities_come_by_their_values_before_texts() {
        let mut cells = ["b", "10", "9", "-1", "-2.5", "a", "1a"].map(Some);
        cells.sort_by_key(|cell| EntityCell::of(*cell));
        let expected = ["-2.5", "-1", "9", "10", "1a", "a", "b"].map(Some);
        assert_eq!(cells, expected);
        assert!(EntityCell::of(None) < EntityCell::of(Some("-9")));
    }

    /// Columns of a text and a number.
    fn columns(texts: &[String], numbers: &[u64]) -> Vec<Column> {
        let texts = texts.iter().map(|text| Some(text.clone()));
        vec![
            Column::Text(texts.collect()),
            Column::Counts(numbers.to_vec()),
        ]
    }

    /// The lines that are written.
    fn written(rows: OrderedRows) -> Vec<String> {
        let names = ["name", "row"].map(str::to_owned);
        let mut file = Vec::new();
        let mut out = RowsOut::new(&mut file, RowFormat::Csv, &names).unwrap();
        rows.write(1, &mut out).unwrap();
        out.finish().unwrap();
        let text = String::from_utf8(file).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn rows_of_a_file_are_taken_in_its_order_with_all_their_cells() {
        let rows = WRITTEN_ROWS as u64 + 1000;
        let mut ordered = OrderedRows::default();
        for rest in [1, 0] {
            let numbers: Vec<u64> = (0..rows).rev().filter(|row| *row % 2 == rest).collect();
            let texts: Vec<String> = numbers.iter().map(|row| format!("n{row}")).collect();
            let orders = numbers.iter().copied().map(RowOrder::Number).collect();
            ordered.push(columns(&texts, &numbers), orders);
        }
        let lines = written(ordered);
        assert_eq!(lines[0], "name,row");
        let expected: Vec<String> = (0..rows).map(|row| format!("n{row},{row}")).collect();
        assert_eq!(lines[1..], expected);
    }

    #[test]
    fn rows_of_entities_are_numbered_in_their_order_over_all_that_is_written() {
        let rows = WRITTEN_ROWS as u64;
        let mut ordered = OrderedRows::default();
        for entity in ["b", "a"] {
            let texts: Vec<String> = (0..rows).map(|row| format!("{entity}{row}")).collect();
            let cells = || RowOrder::Entity(vec![EntityCell::of(Some(entity))]);
            let orders = (0..rows).map(|_| cells()).collect();
            ordered.push(columns(&texts, &vec![0; texts.len()]), orders);
        }
        let lines = written(ordered);
        let expected = (0..rows).map(|row| format!("a{row},{row}"));
        let others = (0..rows).map(|row| format!("b{row},{}", rows + row));
        let expected: Vec<String> = expected.chain(others).collect();
        assert_eq!(lines[1..], expected);
    }
}
