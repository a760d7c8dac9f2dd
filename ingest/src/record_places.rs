//! Places of the records of a batch or of a sample: their file, and their line, row or element.
//!
//! Most records follow each other by one line. So a place is kept for the first record of a part of
//! a file only, and it holds for the others if the part ends in the line that this gives.

use feedline_readers::{file_format::Kind, rows::RecordPlace};
use feedline_schemas::commit::FilePart;

/// Returns true for a format whose readers have a place after the last record too.
pub(crate) fn has_end_place(kind: Kind) -> bool {
    matches!(kind, Kind::Ndjson | Kind::Json)
}

/// Consecutive records of a file.
#[derive(Clone, Debug)]
struct PlacedPart {
    /// Number of the first record, from 0, and of the record after the last one.
    records: (u64, u64),
    first: RecordPlace,
}

/// Files and places of records, by their number.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordPlaces {
    /// Number of the record after the last one of each file, and its name if the source may have
    /// several.
    files: Vec<(u64, Option<String>)>,
    parts: Vec<PlacedPart>,
}

impl RecordPlaces {
    /// Sets the files of a source at `url`: `parts`, in the order of their records. A file at `url`
    /// itself is the only one and needs no name.
    pub(crate) fn set_files(&mut self, url: &str, parts: &[FilePart]) {
        self.files.clear();
        for part in parts {
            self.push_file(url, part);
        }
    }

    /// Adds the records of a file after those of the others.
    pub(crate) fn push_file(&mut self, url: &str, part: &FilePart) {
        let begin = self.files.last().map_or(0, |(end, _)| *end);
        let name = (part.url != url).then(|| below(url, &part.url));
        self.files.push((begin + part.records, name));
    }

    /// Sets the place of the record `begin`, which `count - 1` others follow by one line each.
    pub(crate) fn push_part(&mut self, begin: u64, count: u64, first: RecordPlace) {
        let records = (begin, begin + count);
        self.parts.push(PlacedPart { records, first });
    }

    /// Name of the file of a record, if it needs one.
    pub(crate) fn file(&self, record: u64) -> Option<&str> {
        let at = self.files.partition_point(|(end, _)| *end <= record);
        self.files.get(at)?.1.as_deref()
    }

    /// Returns true if the first `records` records are those of one or more complete files.
    pub(crate) fn ends_file(&self, records: u64) -> bool {
        let at = self.files.partition_point(|(end, _)| *end < records);
        records > 0 && self.files.get(at).is_some_and(|(end, _)| *end == records)
    }

    /// Place of a record in its file, such as `line 7`.
    pub(crate) fn place(&self, record: u64) -> Option<String> {
        let at = self.parts.partition_point(|part| part.records.1 <= record);
        let part = self.parts.get(at)?;
        let steps = record.checked_sub(part.records.0)?;
        Some(part.first.after(steps).to_string())
    }

    /// Place of a record and its file, such as `line 7 of `b.csv``.
    pub(crate) fn describe(&self, record: u64) -> Option<String> {
        match (self.place(record), self.file(record)) {
            (Some(place), Some(file)) => Some(format!("{place} of `{file}`")),
            (None, Some(file)) => Some(format!("`{file}`")),
            (place, None) => place,
        }
    }
}

/// The part of the URL of a file that is not in the URL of its source, from the last folder on that
/// both have.
fn below(source: &str, file: &str) -> String {
    let bytes = source.bytes().zip(file.bytes());
    let common = bytes.take_while(|(a, b)| a == b).count();
    let shared = file.get(..common).unwrap_or_default();
    let folder = shared.rfind('/').map_or(0, |slash| slash + 1);
    file[folder..].to_owned()
}

#[cfg(test)]
mod tests {
    use feedline_readers::rows::PlaceUnit;

    use super::*;

    fn part(url: &str, records: u64) -> FilePart {
        FilePart {
            url: url.into(),
            records,
        }
    }

    #[test]
    fn a_file_ends_behind_its_last_record() {
        let mut places = RecordPlaces::default();
        let parts = [
            part("in/a.csv", 3),
            part("in/b.csv", 0),
            part("in/c.csv", 2),
        ];
        places.set_files("in/*", &parts);
        let ends = (0..7).filter(|records| places.ends_file(*records));
        assert_eq!(ends.collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn a_record_has_the_name_of_its_file_where_the_source_may_have_several() {
        let check = |url: &str, parts: &[FilePart], expected: [Option<&str>; 4]| {
            let mut places = RecordPlaces::default();
            places.set_files(url, parts);
            assert_eq!([0, 2, 3, 5].map(|record| places.file(record)), expected);
        };
        let two = [part("/data/in/jan.csv", 3), part("/data/in/feb.csv", 3)];
        let (jan, feb) = (Some("jan.csv"), Some("feb.csv"));
        check("/data/in/*.csv", &two, [jan, jan, feb, feb]);
        check("/data/in/", &two, [jan, jan, feb, feb]);
        let below = Some("in/jan.csv");
        check("/data/in", &two[..1], [below, below, None, None]);
        check(
            "/data/in/jan.csv",
            &[part("/data/in/jan.csv", 9)],
            [None; 4],
        );
        check("https://h/list", &[], [None; 4]);
    }

    #[test]
    fn records_of_a_part_follow_its_first_one_by_one_line() {
        let line = |number: u64| RecordPlace::new(PlaceUnit::Line, number);
        assert!(line(2).leads_to(Some(line(5)), 3));
        assert!(!line(2).leads_to(Some(line(6)), 3));
        let row = RecordPlace::new(PlaceUnit::Row, 5);
        assert!(!line(2).leads_to(Some(row), 3));
        assert!(!line(2).leads_to(None, 3));
        let mut places = RecordPlaces::default();
        places.set_files("in/*", &[part("in/a.csv", 3), part("in/b.csv", 2)]);
        places.push_part(0, 3, line(2));
        assert_eq!(places.describe(2).as_deref(), Some("line 4 of `a.csv`"));
        assert_eq!(places.describe(3).as_deref(), Some("`b.csv`"));
        places.push_part(4, 1, line(9));
        assert_eq!(places.describe(3).as_deref(), Some("`b.csv`"));
        assert_eq!(places.describe(4).as_deref(), Some("line 9 of `b.csv`"));
        assert_eq!(places.describe(5), None);
    }
}
