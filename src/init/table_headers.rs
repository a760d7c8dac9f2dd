//! Tables of other columns among the CSV files of a folder.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::Path,
};

use feedline_readers::csv_dialect;
use feedline_schemas::count::first_of;

/// Most files whose header is read, and most bytes of a header.
const MOST_FILES: usize = 64;
const MOST_BYTES: u64 = 64 << 10;
/// Most files and columns that a message names.
const NAMED_FILES: usize = 8;
const NAMED_COLUMNS: usize = 5;

/// Header of a CSV file.
#[derive(Debug)]
struct FileHeader {
    name: String,
    bytes: u64,
    columns: BTreeSet<String>,
}

/// Describes the files whose columns are mostly other ones than those of most files, or of the largest
/// file; `None` if there are none, or a file has no header.
pub(super) fn describe_other_tables<'a>(
    folder: &Path,
    files: impl Iterator<Item = &'a Path>,
) -> Option<String> {
    let headers: Option<Vec<FileHeader>> = files
        .take(MOST_FILES)
        .map(|file| read_header(folder, file))
        .collect();
    let headers = headers?;
    let alike = |header: &FileHeader| {
        let others = headers.iter();
        others.filter(|other| !is_other(header, other)).count()
    };
    // The first of equal ones.
    let main = headers
        .iter()
        .min_by_key(|header| Reverse((alike(header), header.bytes)))?;
    let others = headers.iter().filter(|header| is_other(main, header));
    let others: Vec<String> = others.map(describe).collect();
    if others.is_empty() {
        return None;
    }
    Some(format!(
        "`source.url` reads tables of other columns than those of `{}` as rows of one table, with nulls in the columns of the \
         others: {}; name the file of one table, and read each other one by another `[[source]]`, which `[[dataset.join]]` \
         joins by a key",
        main.name,
        first_of(&others, NAMED_FILES)
    ))
}

/// Returns true if the files share less than half of the columns of the one with fewer.
fn is_other(one: &FileHeader, two: &FileHeader) -> bool {
    let shared = one.columns.intersection(&two.columns).count();
    shared * 2 < one.columns.len().min(two.columns.len())
}

fn describe(header: &FileHeader) -> String {
    let columns = header.columns.iter().take(NAMED_COLUMNS);
    let columns: Vec<String> = columns
        .map(|column| format!("`{}`", column.escape_debug()))
        .collect();
    let more = match header.columns.len() > NAMED_COLUMNS {
        true => ", ...",
        false => "",
    };
    format!("`{}` ({}{more})", header.name, columns.join(", "))
}

/// Columns in the first line of a file, or in the one behind a line such as `sep=;`; none for a line that is no header.
fn read_header(folder: &Path, file: &Path) -> Option<FileHeader> {
    let bytes = fs::metadata(file).ok()?.len();
    let mut line = String::new();
    let mut reader = BufReader::new(File::open(file).ok()?.take(MOST_BYTES));
    reader.read_line(&mut line).ok()?;
    let first = line.trim_start_matches('\u{feff}');
    let named = csv_dialect::named_delimiter(first.as_bytes());
    if named.is_some() {
        line.clear();
        reader.read_line(&mut line).ok()?;
    }
    let line = line.trim_start_matches('\u{feff}').trim_end();
    let count = |sign: &char| line.matches(*sign).count();
    let delimiter = match named {
        Some(named) => char::from(named),
        None => [',', ';', '\t', '|'].into_iter().max_by_key(count)?,
    };
    let columns = line
        .split(delimiter)
        .map(|column| column.trim().trim_matches('"'));
    let columns: BTreeSet<String> = columns.map(str::to_owned).collect();
    let is_header =
        columns.len() > 1 && columns.iter().all(|column| column.parse::<f64>().is_err());
    let name = file.strip_prefix(folder).unwrap_or(file);
    is_header.then(|| FileHeader {
        name: name.display().to_string(),
        bytes,
        columns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_another_table_is_named_with_its_columns() {
        let folder = tempfile::tempdir().unwrap();
        let describe = |files: &[(&str, &str)]| {
            let write = |(name, text): &(&str, &str)| {
                let path = folder.path().join(name);
                fs::write(&path, text).unwrap();
                path
            };
            let paths: Vec<_> = files.iter().map(write).collect();
            describe_other_tables(folder.path(), paths.iter().map(|path| path.as_path()))
        };
        let houses = (
            "houses.csv",
            "id,hood,area,price\n1,H00,126.8,462110\n2,H01,98.25,371200\n",
        );
        let hoods = ("hoods.csv", "hood;median_income;dist_km\nH00;50513;1.48\n");
        let renovations = ("renov.csv", "house_id,what,cost\n1,bath,21504\n");
        let message = describe(&[hoods, houses, renovations]).unwrap();
        let named = "than those of `houses.csv` as rows of one table, with nulls in the columns of the others: `hoods.csv` \
                     (`dist_km`, `hood`, `median_income`), `renov.csv` (`cost`, `house_id`, `what`);";
        assert!(message.contains(named), "{message}");
        // A column more, and files without a header.
        let more = (
            "more.csv",
            "id,hood,area,price,garden\n1,H00,126.8,462110,y\n",
        );
        assert_eq!(describe(&[houses, more]), None);
        let named = ("named.csv", "sep=;\r\nid;hood;area;price\r\n");
        assert_eq!(describe(&[houses, named]), None);
        assert_eq!(describe(&[houses, ("plain.csv", "1,H00,bath\n")]), None);
    }
}
