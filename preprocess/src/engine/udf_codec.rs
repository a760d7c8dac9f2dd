//! Serialization of functions for other machines: a name, and the parameters as JSON.
//!
//! A function that is not among these keeps its query local. Functions that read the memory of a
//! build must stay: the findings of the search for near-duplicates, and the keys of existing rows.

use std::sync::Arc;

use datafusion::{
    common::{exec_datafusion_err, exec_err, not_impl_err},
    error::Result,
    logical_expr::ScalarUDF,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    engine::scalar_function::{Adaptor, RowFunction},
    operators::{
        canonical_text, coerce, content_column,
        dedup::{conflicts, content_hash},
        document, expectations,
        join::{asof, key, row_bytes},
        missing_filter, row_check,
        split::{self, frozen, integers, missing, named, range, time},
        time_series::{RepeatedTimeCheck, instant, untimed},
    },
    source::version_order::{VersionForm, VersionOrder},
    statistics::aggregates::CELL,
};

/// Calls `$with::<F>($arguments)` for each function that travels, until one gives something.
macro_rules! first_of_functions {
    ($with:ident($($argument:expr),*)) => {
        first_of_functions!(@ $with($($argument),*);
            asof::Side, conflicts::Conflicting, content_hash::ContentHash, document::Prepared, document::Quality, document::Redactions, expectations::Rows,
            frozen::OfFrozen, instant::Instant, untimed::Untimed, integers::Exact, key::Key, key::Missed,
            missing::HasKey, missing::KeyGroup,
            named::ByName, named::NoSplit, content_column::Part, content_column::Image, content_column::Text, canonical_text::CanonicalText,
            range::ByPlace, range::Embargo, row_bytes::RowBytes, missing_filter::MissingFilter, split::ShuffleKey, split::Splitter,
            time::AfterBorder, time::ByTime, time::Timeless,
            coerce::Category, row_check::Judge, coerce::Numeric, RepeatedTimeCheck, VersionForm, VersionOrder,
        )
    };
    (@ $with:ident $arguments:tt; $($function:ty,)+) => {
        None$(.or_else(|| $with::<$function> $arguments))+
    };
}

/// Writes what `function` computes with to `buf`; nothing for those that every machine has.
///
/// # Errors
/// For a function of ours that cannot travel, or a value that would be another one when it arrives.
pub(crate) fn packed(function: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
    let found: Option<Result<Vec<u8>>> = first_of_functions!(value_of(function));
    match found {
        Some(value) => buf.extend_from_slice(&value?),
        None if function.name().starts_with("feedline_") && function.name() != CELL => {
            return not_impl_err!(
                "the function `{}` needs what the build knows",
                function.name()
            );
        }
        None => {}
    }
    Ok(())
}

/// The function that was [`packed`] so.
///
/// # Errors
/// For one that this version does not have, or has with other values.
pub(crate) fn arrived(name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
    let found: Option<Result<Arc<ScalarUDF>>> = first_of_functions!(made(name, buf));
    found.unwrap_or_else(|| {
        exec_err!("there is no function `{name}`; run the same version everywhere")
    })
}

fn value_of<F: RowFunction + Serialize + DeserializeOwned>(
    function: &ScalarUDF,
) -> Option<Result<Vec<u8>>> {
    let value = &function.inner().downcast_ref::<Adaptor<F>>()?.function;
    let written = serde_json::to_vec(value);
    // JSON has no infinities.
    let same = |json: &Vec<u8>| serde_json::from_slice::<F>(json).is_ok_and(|read| read == *value);
    Some(match written {
        Ok(json) if same(&json) => Ok(json),
        _ => not_impl_err!("the function `{}` holds what cannot be written", F::NAME),
    })
}

fn made<F: RowFunction + DeserializeOwned>(
    name: &str,
    buf: &[u8],
) -> Option<Result<Arc<ScalarUDF>>> {
    if name != F::NAME {
        return None;
    }
    let value = serde_json::from_slice::<F>(buf).map_err(|e| {
        exec_datafusion_err!(
            "the function `{name}` cannot be read: {e}; run the same version everywhere"
        )
    });
    Some(value.map(F::udf))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use feedline_schemas::config::QualityConfig;
    use serde_json::Value;

    use super::*;
    use crate::operators::{coerce::Missing, row_check::Judged};

    fn there_and_back<F: RowFunction>(function: F) -> Result<(ScalarUDF, Arc<ScalarUDF>)> {
        let sent = function.udf();
        let mut buf = Vec::new();
        packed(&sent, &mut buf)?;
        let found = arrived(sent.name(), &buf)?;
        Ok(((*sent).clone(), found))
    }

    #[test]
    fn a_function_arrives_with_what_it_holds() {
        let missing = || Missing::new(&["N/A".to_owned()], &[-999.0, f64::INFINITY]);
        let judge = row_check::Judge {
            columns: vec![
                ("a".to_owned(), Judged::Number),
                ("b".to_owned(), Judged::Dropped),
            ],
            missing: missing(),
            signs: None,
            classes: vec!["no".to_owned(), "yes".to_owned()],
        };
        let (sent, found) = there_and_back(judge).unwrap();
        assert_eq!(sent, *found);
        let (sent, found) = there_and_back(coerce::Numeric(missing(), None)).unwrap();
        assert_eq!(sent, *found);
        let (_, other) = there_and_back(coerce::Numeric(Missing::new(&[], &[]), None)).unwrap();
        assert_ne!(sent, *other);
        let (sent, found) = there_and_back(missing_filter::MissingFilter::new(0.3)).unwrap();
        assert_eq!(sent, *found);
    }

    #[test]
    fn a_value_that_would_arrive_as_another_stays() {
        let quality = |max_symbols| document::Quality {
            column: "text".to_owned(),
            limits: QualityConfig {
                max_symbols,
                ..QualityConfig::default()
            },
        };
        assert!(there_and_back(quality(0.1)).is_ok());
        let error = there_and_back(quality(f64::INFINITY)).unwrap_err();
        assert!(error.to_string().contains("feedline_quality"), "{error}");
    }

    #[test]
    fn an_unknown_function_is_named() {
        let error = arrived("feedline_tomorrow", b"{}").unwrap_err().to_string();
        assert!(error.contains("`feedline_tomorrow`"), "{error}");
        let error = arrived("feedline_split", b"[]").unwrap_err().to_string();
        assert!(error.contains("`feedline_split`"), "{error}");
    }

    /// A value of each function that travels, as it travels.
    const VALUES: [(&str, &str); 36] = [
        ("feedline_behind_time", r#"{"starts":[1,2],"embargo":3}"#),
        (
            "feedline_category",
            r#"{"texts":["N/A"],"numbers":[4611686018427387904]}"#,
        ),
        ("feedline_conflicting", r#"{"column":"y"}"#),
        (
            "feedline_content_hash",
            r#"{"names":["a","b"],"cells":"Text"}"#,
        ),
        ("feedline_embargo", r#"{"ends":[10,20],"embargo":3}"#),
        (
            "feedline_exact",
            r#"{"sign":"%","key":"dataset.split.expression"}"#,
        ),
        (
            "feedline_expected",
            r#"[{"column":"a","required":true,"min":1,"max":null,"values":["x"]}]"#,
        ),
        (
            "feedline_has_key",
            r#"{"texts":["N/A"],"numbers":[4611686018427387904]}"#,
        ),
        (
            "feedline_instant",
            r#"{"format":"%d.%m.%Y","unit":"ms","zone":"Europe/Berlin","is_later":true}"#,
        ),
        ("feedline_join_key", r#""stem""#),
        ("feedline_join_missed", "null"),
        ("feedline_join_side", r#"{"is_theirs":true}"#),
        (
            "feedline_judge",
            r#"{"columns":[["a","Number"],["b","Dropped"]],"missing":{"texts":["-"],"numbers":[]},"signs":{"decimal":",","thousands":"."},"classes":["no"]}"#,
        ),
        ("feedline_key_group", r#"{"texts":[],"numbers":[]}"#),
        ("feedline_no_split", r#"{"at":"kind"}"#),
        (
            "feedline_numeric",
            r#"[{"texts":["N/A"],"numbers":[0]},{"decimal":","}]"#,
        ),
        ("feedline_of_frozen", r#"{"what":"key"}"#),
        ("feedline_order", r#"{"prefix":[1,2]}"#),
        ("feedline_part", r#"{"split":"test","ends":[1,2]}"#),
        ("feedline_image", "null"),
        ("feedline_plain", "null"),
        ("feedline_prepared_text", r#"["nfkc",["email","card"]]"#),
        (
            "feedline_quality",
            r#"{"column":"text","limits":{"max_symbols":0.25}}"#,
        ),
        ("feedline_redactions", r#"["none",["phone"]]"#),
        (
            "feedline_repeated_time",
            r#"{"readers":[{"format":null,"unit":null,"zone":"Europe/Rome","is_later":false},{"format":null,"unit":null,"zone":"Europe/Rome","is_later":true}]}"#,
        ),
        ("feedline_row_bytes", "null"),
        ("feedline_sparse", r#"{"share":4599075939470750515}"#),
        (
            "feedline_split",
            r#"{"prefix":[7],"train_end":1,"validation_end":2}"#,
        ),
        ("feedline_split_by_name", "null"),
        ("feedline_split_by_place", r#"{"ends":[10,20],"embargo":3}"#),
        ("feedline_split_by_time", r#"{"starts":[1,2],"embargo":3}"#),
        ("feedline_text", "null"),
        ("feedline_timeless", r#"{"at":"t"}"#),
        (
            "feedline_untimed",
            r#"{"column":"t","instant":{"format":null,"unit":null,"zone":"Europe/Rome","is_later":false}}"#,
        ),
        ("feedline_version_form", "null"),
        ("feedline_version_order", "null"),
    ];

    /// Functions that read the memory of a build.
    const STAY: [&str; 4] = [
        "feedline_cluster_group",
        "feedline_cluster_split",
        "feedline_is_new",
        "feedline_near_duplicate",
    ];

    /// Our types that plans may contain besides them, by the engine's trait: functions that every
    /// machine has by name (`functions`), operators with bytes of their own (`codec`) or made of a
    /// received query, tables that are shared, and streams of this process's data and sums of
    /// `dataset.sql`, which keep a query here.
    const OTHERS: [(&str, &[&str]); 10] = [
        ("AggregateUDFImpl", &["Aggregate", "Sum"]),
        ("DataSource", &[]),
        ("ExecutionPlan", &["Remote", "Spool"]),
        ("FileSource", &[]),
        (
            "PartitionStream",
            &["InTurn", "Share", "Share", "Sorted", "Sorted"],
        ),
        ("PhysicalExpr", &[]),
        ("ScalarUDFImpl", &["Adaptor<F>", "Cell"]),
        ("TableProvider", &["ParquetFiles"]),
        ("UserDefinedLogicalNodeCore", &[]),
        ("WindowUDFImpl", &[]),
    ];

    /// Returns true if `whole` has all that `part` has; absent keys have their defaults.
    fn has(whole: &Value, part: &Value) -> bool {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => part
                .iter()
                .all(|(key, part)| whole.get(key).is_some_and(|whole| has(whole, part))),
            _ => whole == part,
        }
    }

    #[test]
    fn each_function_arrives_as_it_was_sent() {
        for (name, json) in VALUES {
            let sent = arrived(name, json.as_bytes()).unwrap();
            let mut buf = Vec::new();
            packed(&sent, &mut buf).unwrap();
            let [whole, part] = [&buf[..], json.as_bytes()]
                .map(|json| serde_json::from_slice::<Value>(json).unwrap());
            assert!(has(&whole, &part), "{name}: {whole}");
            let found = arrived(name, &buf).unwrap();
            assert_eq!(sent, found, "{name}");
            assert_eq!(found.name(), name);
        }
    }

    #[test]
    fn a_function_of_what_a_build_knows_stays() {
        let function = crate::shards::shard_index::IsNew(Arc::from([1, 2])).udf();
        let error = packed(&function, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("`feedline_is_new`"), "{error}");
        assert!(arrived("feedline_is_new", b"[1]").is_err());
    }

    /// Lines of the files of `folder` and below.
    fn lines(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                lines(&path, found);
            } else {
                let text = fs::read_to_string(path).unwrap();
                found.extend(text.lines().map(str::to_owned));
            }
        }
    }

    #[test]
    fn all_that_is_ours_in_plans_travels_or_is_known_to_stay() {
        let mut found = Vec::new();
        lines(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut found,
        );
        let of_trait = |name: &str| -> Vec<(usize, String)> {
            let head = format!("{name} for ");
            let heads = found.iter().enumerate().filter_map(|(at, line)| {
                let (before, found_type) = line.split_once(&head)?;
                let is_head =
                    before == "impl " || (before.starts_with("impl<") && before.ends_with("> "));
                let found_type = found_type.split(" {").next().unwrap_or(found_type);
                is_head.then(|| (at, found_type.to_owned()))
            });
            heads.collect()
        };

        let mut names = Vec::new();
        for (at, found_type) in of_trait("RowFunction") {
            let mut behind = found[at..].iter();
            let name = behind.find_map(|line| line.split_once("const NAME: &'static str = \""));
            let (_, name) = name.unwrap_or_else(|| panic!("`{found_type}` has no name"));
            names.push(name.split('"').next().unwrap().to_owned());
        }
        names.sort();
        let known = VALUES.map(|(name, _)| name).into_iter().chain(STAY);
        let known: BTreeSet<String> = known.map(str::to_owned).collect();
        assert_eq!(
            names,
            known.into_iter().collect::<Vec<_>>(),
            "each function has a name of its own, and a value above, or reads the memory of a build"
        );

        for (name, known) in OTHERS {
            let mut types: Vec<String> = of_trait(name).into_iter().map(|(_, t)| t).collect();
            types.sort();
            assert_eq!(
                types, known,
                "`{name}`: say here how it travels, or why it stays"
            );
        }
    }
}
