//! Names that the header of a CSV file, or the first records of NDJSON, may have.
//!
//! A header without any landed column of its source is mostly that of a message in place of the file,
//! or the first row of a table without a header. Its rows would land in columns of their own, and
//! supersede the landed rows of a changed file. Where nothing has landed, such files are joined, with a
//! warning. The keys of NDJSON are compared once rows have landed. Only a file that replaces landed rows
//! is refused by them: a new one may have records of another kind, and lands with that warning.

use std::collections::HashSet;

use feedline_readers::{notices::Notices, value::shorten};
use feedline_schemas::{
    commit::{FileMark, Position},
    config::{ColumnsContract, ContractConfig},
    record::{join_path, split_path},
};

use super::{first_names::FirstNames, open_file::OpenFile};
use crate::{
    contract::folded,
    csv_header::NO_COMMON_COLUMN,
    error::Error,
    file_list::FileList,
    log_entries::{ComparedColumns, Resumed},
    sample::FileHeader,
};

/// Columns of a source by their names without case and separators.
#[derive(Debug, Default)]
pub(super) struct KnownColumns {
    names: HashSet<String>,
    /// The first keys of the paths of landed columns and child tables, in the same form.
    first_keys: HashSet<String>,
    /// URLs of the files that the landed position lists as read, without empty ones.
    read: HashSet<String>,
    /// The file of this run that the first names are of; `None` if they have landed before.
    first: Option<String>,
    /// True if any header passes.
    passes_all: bool,
}

impl KnownColumns {
    /// Returns the columns that have landed. None are known if no row counts.
    pub(super) fn landed(resumed: &Resumed) -> Self {
        if resumed.compared == ComparedColumns::None {
            return Self {
                passes_all: true,
                ..Self::default()
            };
        }
        let last = resumed.last.as_ref();
        let Some(last) = last.filter(|last| last.state.totals.rows > 0) else {
            return Self::default();
        };
        let columns = last.schema.columns.iter();
        let columns = columns.map(|column| column.name.as_str());
        let all = columns.chain(last.state.planned.keys().map(String::as_str));
        let lists = last
            .children
            .values()
            .filter_map(|table| table.lists.first());
        let paths = all.clone().chain(lists.map(String::as_str));
        Self {
            names: all.map(folded).collect(),
            first_keys: paths.map(|path| folded(&first_key(path))).collect(),
            read: read_files(&last.state.position)
                .iter()
                .filter(|mark| mark.bytes > 0)
                .map(|mark| mark.url.clone())
                .collect(),
            ..Self::default()
        }
    }

    /// Returns true if the keys of NDJSON are compared with landed columns.
    pub(super) fn compares_keys(&self) -> bool {
        !self.passes_all && self.has_landed()
    }

    /// Checks the names in a file, unless it neither lands a record nor supersedes any. Where nothing
    /// has landed, a header without a column of the files before it goes to `notices`, and so do the
    /// keys of a new file of NDJSON without a landed column.
    ///
    /// # Errors
    /// Like those of [`Self::check_header`], [`Self::check_keys`] and [`check_skipped_rows`].
    pub(super) fn check_file(
        &mut self,
        file: &OpenFile,
        contract: &ContractConfig,
        notices: &Notices,
    ) -> Result<(), Error> {
        self.check_names(file, file.supersedes(), contract, notices)
    }

    /// Like [`Self::check_file`], of a file that `supersedes` landed records or not.
    ///
    /// # Errors
    /// Like those of [`Self::check_file`].
    pub(super) fn check_names(
        &mut self,
        file: &OpenFile,
        supersedes: bool,
        contract: &ContractConfig,
        notices: &Notices,
    ) -> Result<(), Error> {
        check_skipped_rows(notices)?;
        let url = &file.mark().url;
        match file.names() {
            _ if file.is_over() && !supersedes => Ok(()),
            FirstNames::Header(header) => self.check_header(header, url, contract, notices),
            // Lines that are no records are rejected, and may not supersede any.
            FirstNames::Keys(keys) if !keys.is_empty() || supersedes => {
                let replaces = supersedes || self.read.contains(url);
                self.check_keys(keys, (url.as_str(), replaces), contract, notices)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the first records of the file of NDJSON at `url` have a landed or declared column,
    /// unless `contract.columns` decides about new ones. If the file does not replace landed rows,
    /// records without one go to `notices`.
    ///
    /// # Errors
    /// [`Error::File`] for a file without one that `replaces` landed rows.
    fn check_keys(
        &self,
        keys: &[String],
        (url, replaces): (&str, bool),
        contract: &ContractConfig,
        notices: &Notices,
    ) -> Result<(), Error> {
        if !self.compares_keys() || !matches!(contract.columns, ColumnsContract::Evolve) {
            return Ok(());
        }
        let declared = contract.column.keys().chain(&contract.required);
        let declared: HashSet<String> = declared.map(|path| first_key(path)).collect();
        let is_known =
            |key: &String| self.first_keys.contains(&folded(key)) || declared.contains(key);
        match keys.iter().any(is_known) {
            true => Ok(()),
            false if replaces => Err(Error::File {
                url: url.to_owned(),
                reason: describe_keys(keys),
            }),
            false => {
                note_keys(keys, url, notices);
                Ok(())
            }
        }
    }

    /// Notes the tables of an archive that have no column of the tables before them, unless
    /// `contract.columns` decides about new ones.
    pub(super) fn note_members(&mut self, file: &mut OpenFile, list: &FileList) {
        let (contract, notices) = (&list.config.contract, &list.notices);
        for (member, header) in file.take_members() {
            if self.passes_all || header.is_empty() {
                continue;
            }
            let names = column_names(&header);
            let url = format!("{}!/{member}", file.mark().url);
            match (self.lacks(&names, contract), self.has_landed()) {
                (true, false) => self.note(&names, &url, notices),
                (true, true) if matches!(contract.columns, ColumnsContract::Evolve) => {
                    note_keys(&header, &url, notices);
                }
                _ => {}
            }
            self.add(&names, &url);
        }
    }

    /// Compares the headers of a sample with each other, where nothing has landed.
    pub(super) fn note_sample(
        &self,
        headers: &[FileHeader],
        contract: &ContractConfig,
        notices: &Notices,
    ) {
        if self.passes_all || self.has_landed() {
            return;
        }
        let mut sampled = Self::default();
        for (url, header) in headers {
            let names = column_names(header);
            if sampled.lacks(&names, contract) {
                sampled.note(&names, url, notices);
            }
            sampled.add(&names, url);
        }
    }

    /// Checks that the header of the file at `url` has a known or declared column, and adds its names.
    /// Any header passes while no column has landed or if `contract.columns` decides about new ones,
    /// and so does an empty one.
    ///
    /// # Errors
    /// [`Error::File`] for a header without one.
    fn check_header(
        &mut self,
        header: &[String],
        url: &str,
        contract: &ContractConfig,
        notices: &Notices,
    ) -> Result<(), Error> {
        if self.passes_all || header.is_empty() {
            return Ok(());
        }
        let names = column_names(header);
        if self.lacks(&names, contract) {
            match (self.has_landed(), contract.columns) {
                (false, _) => self.note(&names, url, notices),
                (true, ColumnsContract::Evolve) => {
                    return Err(Error::File {
                        url: url.to_owned(),
                        reason: describe_refusal(header),
                    });
                }
                (true, _) => {}
            }
        }
        self.add(&names, url);
        Ok(())
    }

    /// Returns true if the known columns have landed.
    fn has_landed(&self) -> bool {
        self.first.is_none() && !self.names.is_empty()
    }

    /// Returns true if columns are known, and none of `names` is one of them or declared.
    fn lacks(&self, names: &[String], contract: &ContractConfig) -> bool {
        let is_known = |name: &String| {
            self.names.contains(&folded(name))
                || contract.column.contains_key(name)
                || contract.required.contains(name)
        };
        !self.names.is_empty() && !names.iter().any(is_known)
    }

    /// Adds the columns of the file at `url`.
    fn add(&mut self, names: &[String], url: &str) {
        if self.names.is_empty() {
            self.first = Some(url.to_owned());
        }
        self.names.extend(names.iter().map(|name| folded(name)));
    }

    /// Notes that the file at `url` has no column of those before it.
    fn note(&self, columns: &[String], url: &str, notices: &Notices) {
        let names = columns.join("`, `");
        let first = self.first.as_deref().unwrap_or_default();
        let message = format!(
            "the header of `{url}` has no column of the files before it, such as `{first}`: `{}`; its rows land beside theirs, with nulls in the columns of the other; read another table as a source of its own, correct a file that is a message or has no header, or declare a column if this is right (`contract.column.<name>.type`)",
            shorten(&names, 200)
        );
        notices.push_about(NO_COMMON_COLUMN, "contract.column", message, columns);
    }
}

/// Checks that `csv.skip_rows` is right for the files that were opened, as far as their first lines show it.
///
/// # Errors
/// [`Error::Config`] with a file of each kind.
pub(super) fn check_skipped_rows(notices: &Notices) -> Result<(), Error> {
    match notices.skipped_rows().refusal() {
        Some(reason) => Err(Error::config("csv.skip_rows", reason)),
        None => Ok(()),
    }
}

/// Names of the columns of a header, as the contract writes them.
fn column_names(header: &[String]) -> Vec<String> {
    let names = header.iter();
    names.map(|name| join_path([name.as_str()])).collect()
}

/// Files that a position lists as read.
fn read_files(position: &Position) -> &[FileMark] {
    match position {
        Position::File { done, .. } => done,
        Position::Done { files, .. } => files,
        Position::Start | Position::Page { .. } => &[],
    }
}

/// Notes that the new file of NDJSON at `url` has none of the landed columns.
fn note_keys(keys: &[String], url: &str, notices: &Notices) {
    let columns = column_names(keys);
    let keys = columns.join("`, `");
    let message = format!(
        "the first records of `{url}` have no column of this source: `{}`; its rows land beside the landed ones, with nulls in the columns of the other; read another kind of records as a source of its own, correct a file that is a message, or declare a column if this is right (`contract.column.<name>.type`)",
        shorten(&keys, 200)
    );
    notices.push_about(NO_COMMON_COLUMN, "contract.column", message, &columns);
}

/// First key of the path of a column.
fn first_key(path: &str) -> String {
    split_path(path).into_iter().next().unwrap_or_default()
}

/// The reason why a file of NDJSON with these keys is refused.
fn describe_keys(keys: &[String]) -> String {
    let keys = match keys {
        [] => "no column".to_owned(),
        keys => format!(
            "no column of this source, `{}`",
            shorten(&keys.join("`, `"), 200)
        ),
    };
    format!(
        "its first records have {keys}: it may be a message, so nothing of it lands, files after it in the order of names wait, and landed rows stay; correct the file and rerun; if it is right, declare one of its columns (`contract.column.<name>.type`), or run `feedline ingest reset PIPELINE.toml SOURCE`, which re-reads everything"
    )
}

/// The reason why a file with this header is refused.
fn describe_refusal(header: &[String]) -> String {
    let header = header.join("`, `");
    format!(
        "its header has no column of this source, `{}`: it may be a message or a table without a header, so nothing of it lands, files after it in the order of names wait, and landed rows stay; correct the file or `csv` and rerun; if it is right, declare one of its columns (`contract.column.<name>.type`), or run `feedline ingest reset PIPELINE.toml SOURCE`, which re-reads everything",
        shorten(&header, 200)
    )
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{commit::CommitEntry, config::load, decode, report::Warning};

    use super::*;

    const SAMPLE: &str = include_str!("../../../schemas/samples/commit-2.json");

    fn contract(more: &str) -> ContractConfig {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"in\"\n{more}"
        );
        let mut config = load("p", &text, &[]).unwrap().config;
        config.source.remove(0).contract
    }

    fn of_names(names: &[&str]) -> KnownColumns {
        KnownColumns {
            names: names.iter().map(|name| folded(name)).collect(),
            ..KnownColumns::default()
        }
    }

    fn passes(known: &mut KnownColumns, header: &[&str], contract: &ContractConfig) -> bool {
        let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
        let notices = Notices::default();
        let checked = known.check_header(&header, "in/a.csv", contract, &notices);
        assert_eq!(notices.all(), []);
        checked.is_ok()
    }

    #[test]
    fn a_header_needs_one_column_of_those_before_or_of_the_contract() {
        let none = contract("");
        let mut known = of_names(&["id", "pm2\\.5", "User Name"]);
        for (header, expected) in [
            (&[""; 0][..], true),
            (&["3", "Bern"], false),
            (&["please retry"], false),
            (&["PM2.5"], true),
            (&["user_name", "late"], true),
            (&["late"], true),
            (&[], true),
        ] {
            assert_eq!(passes(&mut known, header, &none), expected, "{header:?}");
        }
        let header = &["a.b", "c"];
        assert!(!passes(&mut known, header, &none));
        let required = contract("contract.required = [\"c\"]\n");
        assert!(passes(&mut known, header, &required));
        let declared = contract("contract.column.'a\\.b'.type = \"text\"\n");
        assert!(passes(&mut of_names(&["id"]), header, &declared));
        // These decide about new columns themselves.
        for columns in ["quarantine_row", "null_value", "freeze"] {
            let other = contract(&format!("contract.columns = \"{columns}\"\n"));
            assert!(passes(&mut of_names(&["id"]), header, &other), "{columns}");
        }
    }

    #[test]
    fn records_need_one_key_of_a_landed_or_declared_path() {
        let mut known = of_names(&["user.id", "a\\.b"]);
        let paths = ["user.id", "a\\.b", "line_items"];
        known.first_keys = paths.map(|path| folded(&first_key(path))).into();
        let check = |known: &KnownColumns, keys: &[&str], more: &str| {
            let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            let is_passed = |replaces: bool| {
                let (notices, file) = (Notices::default(), ("in/a.ndjson", replaces));
                let checked = known.check_keys(&keys, file, &contract(more), &notices);
                (checked.is_ok(), notices.all())
            };
            let (replacing, none) = is_passed(true);
            assert_eq!(none, []);
            // A new file lands, with a warning in place of the error.
            let (new, noted) = is_passed(false);
            let codes: Vec<&str> = noted.iter().map(|w| w.code.as_str()).collect();
            assert!(new, "{keys:?}");
            let is_noted = codes == [NO_COMMON_COLUMN];
            let columns = noted.iter().flat_map(Warning::columns);
            let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
            let expected = match is_noted {
                true => column_names(&keys),
                false => Vec::new(),
            };
            assert_eq!(columns, expected);
            assert_eq!(is_noted, !replacing, "{keys:?} {noted:?}");
            replacing
        };
        for (keys, expected) in [
            (&["User", "x"][..], true),
            (&["a.b"], true),
            (&["lineItems"], true),
            (&["a"], false),
            (&["id", "error"], false),
            (&[], false),
        ] {
            assert_eq!(check(&known, keys, ""), expected, "{keys:?}");
        }
        let nested = "contract.column.'error.code'.type = \"text\"\n";
        assert!(check(&known, &["error"], nested));
        let other = "contract.columns = \"quarantine_row\"\n";
        assert!(check(&known, &["error"], other));
        assert!(check(&KnownColumns::default(), &["error"], ""));
    }

    #[test]
    fn landed_columns_are_known_unless_no_row_counts_or_none_are_compared() {
        let mut last: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        let name = folded(&last.schema.columns[0].name);
        let contract = contract("");
        for (rows, compared, expected) in [
            (2, ComparedColumns::Landed, true),
            (0, ComparedColumns::Landed, false),
            (2, ComparedColumns::None, false),
        ] {
            last.state.totals.rows = rows;
            let resumed = Resumed {
                last: Some(last.clone()),
                compared,
                ..Resumed::default()
            };
            let mut known = KnownColumns::landed(&resumed);
            assert_eq!(known.names.contains(&name), expected, "{rows} {compared:?}");
            let is_passed = passes(&mut known, &["of another table"], &contract);
            assert_eq!(is_passed, !expected, "{rows} {compared:?}");
        }
    }

    #[test]
    fn where_nothing_has_landed_a_file_of_other_columns_is_a_notice_until_one_is_declared() {
        let headers = [("a.csv", "id"), ("b.csv", "x.y"), ("c.csv", "x.y")];
        let headers = headers.map(|(url, name)| (url.to_owned(), vec![name.to_owned()]));
        let check = |more: &str| {
            let contract = contract(more);
            let (notices, of_sample) = (Notices::default(), Notices::default());
            let mut known = KnownColumns::default();
            known.note_sample(&headers, &contract, &of_sample);
            for (url, header) in &headers {
                let checked = known.check_header(header, url, &contract, &notices);
                checked.unwrap();
            }
            assert_eq!(notices.all(), of_sample.all());
            notices.all()
        };
        let found = check("");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].code, "no_common_column");
        let start = "the header of `b.csv` has no column of the files before it, such as `a.csv`: `x\\.y`; ";
        assert!(found[0].message.starts_with(start), "{found:?}");
        assert!(!found[0].message.contains("another file"), "{found:?}");
        assert!(found[0].is_about("x\\.y") && !found[0].is_about("id"));
        let declared = "contract.column.'x\\.y'.type = \"text\"\n";
        assert_eq!(check(declared), []);
        let known = of_names(&["id"]);
        let notices = Notices::default();
        known.note_sample(&headers, &contract(""), &notices);
        assert_eq!(notices.all(), []);
    }
}
