//! Functions on their way to other machines: a name, and as JSON the value that it computes with.
//!
//! A function that is not among these stays here, and with it the query that it is in. What reads the memory of a build has to:
//! what the search for near-duplicates found, and the keys of rows that are built already.

use std::sync::Arc;

use datafusion::{
    common::{exec_datafusion_err, exec_err, not_impl_err},
    error::Result,
    logical_expr::ScalarUDF,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    conflicts, content, document, expect,
    functions::CELL,
    join::{asof, key},
    payload, plain, range,
    scalar::{Adaptor, RowFunction},
    series::instant,
    sparse, split,
    split::{frozen, integers, named, time},
    typing,
};

/// Calls `$with::<F>($arguments)` for each function that travels, until one gives something.
macro_rules! first_of_functions {
    ($with:ident($($argument:expr),*)) => {
        first_of_functions!(@ $with($($argument),*);
            asof::Side, conflicts::Conflicting, content::ContentHash, document::Prepared, document::Quality, document::Redactions, expect::Rows,
            frozen::OfFrozen, instant::Instant, instant::Untimed, integers::Exact, key::Key, key::Missed,
            named::ByName, named::NoSplit, payload::Part, payload::Picture, payload::Text, plain::Plain,
            range::ByPlace, range::Embargo, sparse::Sparse, split::ShuffleKey, split::Splitter,
            time::Behind, time::ByTime, time::Instants, time::Timeless,
            typing::Category, typing::Judge, typing::Numeric,
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
    let read = || {
        let value = serde_json::from_slice::<F>(buf);
        let value = value.map_err(|e| {
            exec_datafusion_err!(
                "the function `{name}` cannot be read: {e}; run the same version everywhere"
            )
        })?;
        Ok(value.udf())
    };
    (name == F::NAME).then(read)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use feedline_schemas::config::QualityConfig;

    use super::*;
    use crate::typing::{Judged, Missing};

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
        let judge = typing::Judge {
            columns: vec![
                ("a".to_owned(), Judged::Number),
                ("b".to_owned(), Judged::Dropped),
            ],
            missing: missing(),
        };
        let (sent, found) = there_and_back(judge).unwrap();
        assert_eq!(sent, *found);
        let (sent, found) = there_and_back(typing::Numeric(missing())).unwrap();
        assert_eq!(sent, *found);
        let (_, other) = there_and_back(typing::Numeric(Missing::new(&[], &[]))).unwrap();
        assert_ne!(sent, *other);
        let (sent, found) = there_and_back(sparse::Sparse::new(0.3)).unwrap();
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

    /// Files of `folder` and below.
    fn sources(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn every_function_travels_or_is_known_to_stay() {
        const STAY: [&str; 3] = ["IsNew", "LeftOut", "SplitOf"];
        let mut files = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut files,
        );
        let (mut all, mut names) = (BTreeSet::new(), BTreeSet::new());
        // Put together, so that it does not find itself.
        let head = ["impl RowFunction", " for "].concat();
        for file in &files {
            for function in file.split(&head).skip(1) {
                let (r#type, rest) = function.split_once(' ').unwrap();
                assert!(
                    all.insert(r#type.to_owned()),
                    "two functions are called {type}"
                );
                let (_, name) = rest.split_once("= \"").unwrap();
                let name = name.split('"').next().unwrap();
                assert!(
                    names.insert(name.to_owned()),
                    "two functions are called {name}"
                );
            }
        }
        let own = include_str!("travel.rs");
        let missing: Vec<_> = all
            .iter()
            .filter(|name| !own.contains(&format!("::{name},")) && !STAY.contains(&name.as_str()))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(all.len() > 25, "{}", all.len());
    }
}
