//! Reading and writing a versioned JSON document.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::{Classified, ErrorKind, format::FormatTag};

/// A document that says which format and version it is.
pub trait Versioned: Serialize + DeserializeOwned {
    /// The tag this build writes, and the versions it reads.
    const TAG: &'static FormatTag;
}

/// Reason that a stored document was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The bytes are not the document they should be.
    #[error(
        "cannot read `{what}`: {reason} at `{path}`; the file is damaged or was not written by feedline; restore it from a \
         copy, or {}",
        .tag.remedy
    )]
    Malformed {
        /// The document's file name or URL.
        what: String,
        /// Path inside the document.
        path: String,
        /// Description of the error there.
        reason: String,
        /// Format of the document.
        tag: &'static FormatTag,
    },
    /// The document is complete JSON of a version this build reads, with a field or value that this build does not know: a
    /// newer release wrote it. There is no sign of corruption.
    #[error(
        "cannot use `{what}`: {reason} at `{path}`, so a newer feedline wrote it; use that release; the file shows no damage, so do not repair or remove it"
    )]
    Newer {
        /// The document's file name or URL.
        what: String,
        /// Path inside the document.
        path: String,
        /// Unknown field or value.
        reason: String,
    },
    /// The document is of a version that only development versions wrote, before the first release.
    #[error(
        "cannot use `{what}`: it was written by a development version of feedline, as format `{}` version \
         {found_version}, and this build reads version {}; {}",
        .tag.format, .tag.oldest, .tag.remedy
    )]
    Outdated {
        /// The document's file name or URL.
        what: String,
        /// Its format.
        tag: &'static FormatTag,
        /// Version found.
        found_version: u64,
    },
    /// The document is of another format or of a version this build does not know.
    #[error(
        "cannot use `{what}`: it says format `{found_format}` version `{found_version}`, this build reads `{}` up to version `{}`; use the feedline release that wrote it, or {}",
        .tag.format, .tag.version, .tag.remedy
    )]
    Unsupported {
        /// The document's file name or URL.
        what: String,
        /// Format found.
        found_format: String,
        /// Version found.
        found_version: u64,
        /// Format expected.
        tag: &'static FormatTag,
    },
}

impl Classified for ContractError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Data
    }
}

/// Serializes `document` as pretty JSON with a final newline; the same document always gives the same bytes.
///
/// # Panics
/// Never for the contract types: their keys are strings. A float that is not finite is written as `null`.
#[must_use]
pub fn encode<T: Versioned>(document: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(document).expect("contract types have string keys");
    bytes.push(b'\n');
    bytes
}

/// Parses a document called `what`, checking format and version before anything else.
///
/// A document of a newer version that says `min_reader` at most this build's version is read too, without the fields that this
/// build does not know: its writer has promised that they may be ignored.
///
/// ```
/// use feedline_schemas::{ContractError, decode, encode, failures::FailedRuns};
/// use feedline_schemas::{format::FAILURES, ids::Name};
///
/// let runs = FailedRuns {
///     format: FAILURES.format.to_owned(),
///     version: FAILURES.version,
///     source: Name::new("trades")?,
///     failures: 2,
///     since_unix_s: 1_767_225_600,
///     last_unix_s: 1_767_229_200,
///     error: "status 503".to_owned(),
/// };
/// assert_eq!(decode::<FailedRuns>("failures.json", &encode(&runs))?, runs);
/// let newer = FailedRuns { version: 9, ..runs };
/// let refused = decode::<FailedRuns>("failures.json", &encode(&newer));
/// assert!(matches!(refused, Err(ContractError::Unsupported { found_version: 9, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ContractError`] when the bytes are not JSON, name another format or version, lack a field, or have one that is not known.
pub fn decode<T: Versioned>(what: &str, bytes: &[u8]) -> Result<T, ContractError> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
        version: u64,
        min_reader: Option<u64>,
    }
    let malformed = |path: String, reason: String| ContractError::Malformed {
        what: what.to_owned(),
        path,
        reason,
        tag: T::TAG,
    };
    let head: Head =
        serde_json::from_slice(bytes).map_err(|e| malformed("(head)".into(), e.to_string()))?;
    let own = u64::from(T::TAG.version);
    let is_newer = head.version > own;
    let is_promised = head.min_reader.is_some_and(|oldest| oldest <= own);
    if head.format != T::TAG.format || head.version == 0 || (is_newer && !is_promised) {
        return Err(ContractError::Unsupported {
            what: what.to_owned(),
            found_format: head.format,
            found_version: head.version,
            tag: T::TAG,
        });
    }
    if head.version < u64::from(T::TAG.oldest) {
        return Err(ContractError::Outdated {
            what: what.to_owned(),
            tag: T::TAG,
            found_version: head.version,
        });
    }
    let refused = |path: String, reason: String| {
        if is_unknown(&reason) {
            let what = what.to_owned();
            ContractError::Newer { what, path, reason }
        } else {
            malformed(path, reason)
        }
    };
    if is_newer {
        let value = serde_json::from_slice(bytes)
            .map_err(|e| malformed("(document)".into(), e.to_string()))?;
        return decode_known(value).map_err(|(path, reason)| refused(path, reason));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
        let path = e.path().to_string();
        refused(path, e.into_inner().to_string())
    })
}

/// True for a parser's message about an unknown field or value.
fn is_unknown(reason: &str) -> bool {
    reason.starts_with("unknown field `") || reason.starts_with("unknown variant `")
}

/// The document in `value` without the fields that are not known; else where and why it cannot be read.
fn decode_known<T: DeserializeOwned>(mut value: Value) -> Result<T, (String, String)> {
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(document) => return Ok(document),
            Err(error) => error,
        };
        let (path, reason) = (error.path().clone(), error.into_inner().to_string());
        let field = reason
            .strip_prefix("unknown field `")
            .and_then(|rest| rest.split('`').next());
        // Each turn takes a field away, so that this ends.
        if !field.is_some_and(|field| remove_field(&mut value, &path, field)) {
            return Err((path.to_string(), reason));
        }
    }
}

/// Removes `field` from the object that `path` leads to, or from the one around it; false where it is missing.
fn remove_field(value: &mut Value, path: &Path, field: &str) -> bool {
    let mut at = value;
    for segment in path {
        let inner = match segment {
            Segment::Map { key } if key == field => break,
            Segment::Map { key } => at.get_mut(key),
            Segment::Seq { index } => at.get_mut(index),
            Segment::Enum { .. } | Segment::Unknown => break,
        };
        let Some(inner) = inner else { return false };
        at = inner;
    }
    at.as_object_mut()
        .is_some_and(|object| object.remove(field).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commit::CommitEntry, format::COMMIT, lease::LeaseEntry, manifest::Manifest};

    const COMMIT_1: &str = include_str!("../samples/commit-1.json");
    const COMMIT_2: &str = include_str!("../samples/commit-2.json");
    const COMMIT_3: &str = include_str!("../samples/commit-3.json");
    const COMMIT_4: &str = include_str!("../samples/commit-4-readable-by-3.json");
    const LEASE_1: &str = include_str!("../samples/lease-1.json");

    #[test]
    fn sample_entries_of_all_versions_are_read_and_written_as_they_were() {
        let all = [
            (COMMIT_1, 1, None),
            (COMMIT_2, 2, Some(2)),
            (COMMIT_3, 3, Some(3)),
        ];
        for (text, version, oldest) in all {
            let entry: CommitEntry = decode("sample", text.as_bytes()).unwrap();
            assert_eq!((entry.version, entry.min_reader), (version, oldest));
            assert_eq!(entry.state.totals.rows, 900, "version {version}");
            assert_eq!(String::from_utf8(encode(&entry)).unwrap(), text);
        }
        let lease: LeaseEntry = decode("sample", LEASE_1.as_bytes()).unwrap();
        assert_eq!(lease.sequence, 7);
    }

    #[test]
    fn a_newer_entry_that_may_be_read_is_read_without_what_is_not_known() {
        let entry: CommitEntry = decode("sample", COMMIT_4.as_bytes()).unwrap();
        let before: CommitEntry = decode("sample", COMMIT_2.as_bytes()).unwrap();
        assert_eq!((entry.version, entry.state), (4, before.state));
        assert_eq!(entry.files, before.files);
        let must = COMMIT_4.replace("\"min_reader\": 3", "\"min_reader\": 4");
        assert_ne!(must, COMMIT_4);
        let error = decode::<CommitEntry>("sample", must.as_bytes()).unwrap_err();
        assert!(
            matches!(error, ContractError::Unsupported { .. }),
            "{error}"
        );
        // A value that is not known cannot be left aside.
        let value = COMMIT_4.replace("\"int64\"", "\"int128\"");
        assert_ne!(value, COMMIT_4);
        let error = decode::<CommitEntry>("sample", value.as_bytes()).unwrap_err();
        assert!(matches!(error, ContractError::Newer { .. }), "{error}");
    }

    #[test]
    fn a_field_that_is_not_known_is_told_apart_from_damage() {
        let version = COMMIT.version;
        assert_eq!(version, 3, "add a sample of the new version");
        let more = COMMIT_3.replace("\"epoch\": ", "\"mood\": 1,\n  \"epoch\": ");
        assert_ne!(more, COMMIT_3);
        let error = decode::<CommitEntry>("x.json", more.as_bytes()).unwrap_err();
        assert!(matches!(error, ContractError::Newer { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("`mood`") && text.contains("newer feedline") && text.contains("x.json"),
            "{text}"
        );
        let lease = LEASE_1.replace("\"held\"", "\"mood\": 1,\n  \"held\"");
        let error = decode::<LeaseEntry>("x.json", lease.as_bytes()).unwrap_err();
        assert!(matches!(error, ContractError::Newer { .. }), "{error}");
        let later = lease.replace("\"version\": 1,", "\"version\": 9, \"min_reader\": 1,");
        assert_eq!(
            decode::<LeaseEntry>("x.json", later.as_bytes())
                .unwrap()
                .sequence,
            7
        );
        for damaged in [
            &COMMIT_2[..COMMIT_2.len() / 2],
            &COMMIT_2.replace("\"epoch\": ", "\"epoch\": -"),
        ] {
            let error = decode::<CommitEntry>("x.json", damaged.as_bytes()).unwrap_err();
            assert!(matches!(error, ContractError::Malformed { .. }), "{error}");
        }
        let manifest = br#"{"format": "feedline.manifest", "version": 4, "min_reader": 4}"#;
        let error = decode::<Manifest>("m.json", manifest).unwrap_err();
        assert!(
            matches!(error, ContractError::Unsupported { .. }),
            "{error}"
        );
    }
}
