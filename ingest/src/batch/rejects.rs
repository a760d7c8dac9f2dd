//! Rejected records, and the columns of their file besides the system ones.

use crate::{
    contract::{Rejection, TOO_MANY_COLUMNS},
    error::Error,
    record_places::RecordPlaces,
};
use feedline_readers::{
    record::Record,
    value::{Value, one_line, shorten},
};
use feedline_schemas::{config::ContractConfig, ids::Hash128};

/// Column with the reason code.
pub(crate) const REASON: &str = "reason";
/// Column with the path of the value; empty if the reason concerns the record.
pub(crate) const PATH: &str = "path";
/// Column with the details of the reason.
pub(crate) const DETAIL: &str = "detail";
/// Column with the record.
pub(crate) const RAW: &str = "raw";

/// Key of the encoding of CSV.
pub(crate) const ENCODING: &str = "csv.encoding";

/// A rejected record.
#[derive(Clone, Debug)]
pub(crate) struct Reject {
    pub(crate) row: u32,
    pub(crate) reason: &'static str,
    pub(super) path: String,
    pub(super) detail: String,
    pub(super) raw: String,
    /// True if the details have its place in the file.
    has_place: bool,
}

impl Reject {
    pub(super) fn of(row: u32, rejection: Rejection, raw: String) -> Self {
        Self {
            row,
            reason: rejection.reason,
            path: rejection.path,
            detail: rejection.detail,
            raw,
            has_place: false,
        }
    }

    pub(super) fn new(row: u32, record: Record) -> Self {
        match record {
            Record::Bad {
                raw,
                reason,
                detail,
            } => Self {
                row,
                reason,
                path: String::new(),
                detail,
                raw,
                has_place: true,
            },
            Record::Json(_) | Record::Value(_) => {
                let value = record.into_value().unwrap_or(Value::Null);
                let detail = format!("record {row} of the batch is {}", value.kind());
                Self {
                    row,
                    reason: "not_an_object",
                    path: String::new(),
                    detail,
                    raw: value.written(),
                    has_place: false,
                }
            }
        }
    }

    /// Describes it for messages.
    pub(crate) fn sample(&self) -> String {
        describe(self.reason, &self.detail, &self.raw)
    }

    /// Hash of its reason and record.
    pub(super) fn hash(&self) -> u128 {
        reject_hash(self.reason, &self.raw)
    }
}

/// Hash of a record that was rejected for `reason`, which distinguishes it from other rejects.
pub(crate) fn reject_hash(reason: &str, raw: &str) -> u128 {
    Hash128::of(format!("{reason}\u{1f}{raw}").as_bytes()).get()
}

/// Describes a rejected record for messages: the reason, and the record unless its first columns say
/// nothing about it.
pub(crate) fn describe(reason: &str, detail: &str, raw: &str) -> String {
    let detail = format!("`{reason}`: {}", one_line(&shorten(detail, 300)));
    match reason {
        TOO_MANY_COLUMNS => detail,
        _ => format!("{detail}: {}", one_line(&shorten(raw, 200))),
    }
}

/// Configuration keys that decide which records are rejected for `reason`; none where no key does.
pub(crate) fn keys_of(reason: &str) -> &'static [&'static str] {
    match reason {
        "type_conflict" => &["contract.types", "contract.column.<name>.type"],
        "missing_value" => &["contract.nulls", "contract.required"],
        "unknown_column" => &["contract.columns"],
        TOO_MANY_COLUMNS => &["contract.max_columns"],
        "invalid_utf8" => &[ENCODING],
        // Pages of a crawl.
        "unreachable" => &["crawl.deny"],
        "robots_unreachable" => &["crawl.deny", "crawl.robots"],
        _ => &[],
    }
}

/// Key of the contract for the column at `path`: that of its own rules, if these have it.
pub(super) fn own_key(contract: &ContractConfig, key: &str, path: &str) -> String {
    let own = contract.column.get(path);
    let has_own = own.is_some_and(|own| match key {
        "types" => own.types.is_some(),
        "nulls" => own.nulls.is_some(),
        _ => false,
    });
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match has_own {
        true if path.chars().all(is_bare) => format!("column.{path}.{key}"),
        true => format!("column.{path:?}.{key}"),
        false => key.to_owned(),
    }
}

/// Error of a run that a rejection stops.
pub(super) fn frozen(source: &str, key: &str, rejection: Rejection, record: &str) -> Error {
    Error::Frozen {
        source: source.to_owned(),
        key: key.to_owned(),
        detail: rejection.detail,
        record: record.to_owned(),
    }
}

/// Puts the name of the file and the place of each reject before its details.
pub(super) fn name_places(rejects: &mut [Reject], places: &RecordPlaces) {
    for reject in rejects {
        let record = u64::from(reject.row);
        if !reject.has_place
            && let Some(place) = places.place(record)
        {
            reject.detail = format!("{place}: {}", reject.detail);
        }
        let Some(name) = places.file(record).map(|name| format!("`{name}`")) else {
            continue;
        };
        if !reject.detail.contains(&name) {
            reject.detail = format!("{name}: {}", reject.detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::rows::{PlaceUnit, RecordPlace};
    use feedline_schemas::{
        commit::FilePart,
        config::{ColumnContract, TypeContract},
    };

    use super::*;

    fn reject(row: u32, detail: &str, has_place: bool) -> Reject {
        Reject {
            row,
            reason: "type_conflict",
            path: String::new(),
            detail: detail.into(),
            raw: String::new(),
            has_place,
        }
    }

    fn part(url: &str) -> FilePart {
        FilePart {
            url: url.into(),
            records: 3,
        }
    }

    #[test]
    fn a_reject_names_its_file_and_its_place() {
        let mut places = RecordPlaces::default();
        places.set_files("in/*", &[part("in/a.csv"), part("in/b.csv")]);
        places.push_part(3, 3, RecordPlace::new(PlaceUnit::Line, 2));
        let mut rejects = [
            reject(1, "column `n`", false),
            reject(4, "column `n`", false),
            reject(5, "line 7: 2 fields", true),
        ];
        name_places(&mut rejects, &places);
        let expected = [
            "`a.csv`: column `n`",
            "`b.csv`: line 3: column `n`",
            "`b.csv`: line 7: 2 fields",
        ];
        assert_eq!(rejects.map(|reject| reject.detail), expected);
    }

    #[test]
    fn a_sample_has_the_record_unless_its_first_columns_say_nothing() {
        let record = r#"{"c0":1}"#;
        let wide = describe(TOO_MANY_COLUMNS, "3001 columns", record);
        assert_eq!(wide, "`too_many_columns`: 3001 columns");
        let conflict = describe("type_conflict", "column `c0`", record);
        assert_eq!(conflict, r#"`type_conflict`: column `c0`: {"c0":1}"#);
    }

    #[test]
    fn a_reason_has_the_keys_that_change_it() {
        assert_eq!(
            keys_of("type_conflict"),
            ["contract.types", "contract.column.<name>.type"]
        );
        assert_eq!(keys_of(TOO_MANY_COLUMNS), ["contract.max_columns"]);
        assert!(keys_of("not_an_object").is_empty());
    }

    #[test]
    fn a_column_with_a_rule_of_its_own_has_the_key_of_it() {
        let rule = ColumnContract {
            types: Some(TypeContract::Freeze),
            ..ColumnContract::default()
        };
        let mut contract = ContractConfig::default();
        contract.column.insert("v".into(), rule.clone());
        contract.column.insert("a.b".into(), rule);
        let key = |key: &str, path: &str| own_key(&contract, key, path);
        assert_eq!(key("types", "v"), "column.v.types");
        assert_eq!(key("types", "a.b"), "column.\"a.b\".types");
        assert_eq!(key("types", "w"), "types");
        assert_eq!(key("nulls", "v"), "nulls");
    }

    #[test]
    fn details_that_have_the_name_stay() {
        let mut places = RecordPlaces::default();
        places.set_files("in", &[part("in/a.zip")]);
        let mut rejects = [reject(0, "member `x.csv` of `in/a.zip`: line 3", true)];
        name_places(&mut rejects, &places);
        assert_eq!(rejects[0].detail, "member `x.csv` of `in/a.zip`: line 3");
    }
}
