//! Reading and writing a versioned JSON document.

use serde::{Serialize, de::DeserializeOwned};

use crate::format::FormatTag;

/// A document that says which format and version it is.
pub trait Versioned: Serialize + DeserializeOwned {
    /// The tag this build writes, and the newest it reads.
    const TAG: FormatTag;
}

/// What puts back a document of a dataset: a build without `--refit` refuses a manifest that it cannot read, or that is missing.
const BUILD_ANEW: &str = "build that anew with `feedline shards build PIPELINE.toml --refit`";

/// Why a stored document was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The bytes are not the document they should be.
    #[error(
        "cannot read `{what}`: {reason} at `{path}`; the file is damaged or was not written by feedline, restore it or, where it is one of a dataset's, {BUILD_ANEW}"
    )]
    Malformed {
        /// The document's file name or URL.
        what: String,
        /// Path inside the document.
        path: String,
        /// What is wrong there.
        reason: String,
    },
    /// The document is of another format or of a version this build does not know.
    #[error(
        "cannot use `{what}`: it says format `{found_format}` version `{found_version}`, this build reads `{format}` up to version `{version}`; use the feedline release that wrote it or, where it is one of a dataset's, {BUILD_ANEW}"
    )]
    Unsupported {
        /// The document's file name or URL.
        what: String,
        /// Format found.
        found_format: String,
        /// Version found.
        found_version: u64,
        /// Format expected.
        format: &'static str,
        /// Newest version this build reads.
        version: u32,
    },
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
/// # Errors
/// [`ContractError`] when the bytes are not JSON, name another format or version, or lack a field.
pub fn decode<T: Versioned>(what: &str, bytes: &[u8]) -> Result<T, ContractError> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
        version: u64,
    }
    let malformed = |path: String, reason: String| ContractError::Malformed {
        what: what.to_owned(),
        path,
        reason,
    };
    let head: Head =
        serde_json::from_slice(bytes).map_err(|e| malformed("(head)".into(), e.to_string()))?;
    if head.format != T::TAG.format || head.version == 0 || head.version > u64::from(T::TAG.version)
    {
        return Err(ContractError::Unsupported {
            what: what.to_owned(),
            found_format: head.format,
            found_version: head.version,
            format: T::TAG.format,
            version: T::TAG.version,
        });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
        let path = e.path().to_string();
        malformed(path, e.into_inner().to_string())
    })
}
