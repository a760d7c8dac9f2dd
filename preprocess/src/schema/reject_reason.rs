//! Reasons for rejecting a row: the table of their codes, and the reason of one row.

use serde::{Deserialize, Serialize};

/// Characters of a value shown in a reject.
pub(crate) const SHOWN: usize = 120;

/// The target has no value.
pub(crate) const TARGET_MISSING: &str = "target_missing";
/// The target of a regression is no number.
pub(crate) const TARGET_NOT_NUMERIC: &str = "target_not_numeric";
/// The target of a regression is infinite.
pub(crate) const TARGET_NOT_FINITE: &str = "target_not_finite";
/// `dataset.classes` does not list the label.
pub(crate) const UNLISTED_CLASS: &str = "unlisted_class";
/// An integer has no exact float.
pub(crate) const INTEGER_TOO_LARGE: &str = "integer_too_large";
/// The image is missing, or its file is none.
pub(crate) const NOT_AN_IMAGE: &str = "not_an_image";
/// The document is missing, empty or blank.
pub(crate) const NO_TEXT: &str = "no_text";
/// The document has more characters than a row may have.
pub(crate) const DOCUMENT_TOO_LONG: &str = "document_too_long";
/// The boxes of the image cannot be read.
pub(crate) const BAD_BOXES: &str = "bad_boxes";
/// The embedding of the image cannot be read, or has another length than most.
pub(crate) const BAD_EMBEDDING: &str = "bad_embedding";
/// A joined source has no row for it.
pub(crate) const UNMATCHED: &str = "unmatched";
/// A joined source has no row for it, and such rows are left out by choice.
pub(crate) const UNMATCHED_DROPPED: &str = "unmatched_dropped";
/// Its time in a series is missing or cannot be read.
pub(crate) const TIME_UNREADABLE: &str = "time_unreadable";
/// It has no value in any column of the entity.
pub(crate) const MISSING_ENTITY: &str = "missing_entity";
/// Another row of its entity at its time takes precedence.
pub(crate) const SAME_TIME: &str = "same_time";
/// It has no key of the split, where such rows are rejected.
pub(crate) const MISSING_KEY: &str = "missing_key";
/// It has no split.
pub(crate) const NO_SPLIT: &str = "no_split";
/// The frozen source holds it too.
pub(crate) const OF_FROZEN: &str = "of_frozen";
/// Its group has its last row in a later split.
pub(crate) const GROUP_STRADDLES: &str = "group_straddles";
/// Its place or time is among the first after the boundary of its split.
pub(crate) const EMBARGO: &str = "embargo";
/// It lacks too many features.
pub(crate) const TOO_MANY_MISSING: &str = "too_many_missing";
/// Rows of its content do not agree on the target.
pub(crate) const CONFLICTING_TARGET: &str = "conflicting_target";
/// It is nearly a row that is kept.
pub(crate) const NEAR_DUPLICATE: &str = "near_duplicate";
/// It is nearly a frozen document.
pub(crate) const NEAR_DUPLICATE_OF_FROZEN: &str = "near_duplicate_of_frozen";

/// Prefixes of the codes of two parts, of a rule and the key of its configuration. A code is stored with each rejected row and
/// counted in manifests, so it is one string there; [`quality`] and [`expected`] make it, and [`is_choice`] and [`is_expected`]
/// read it.
const QUALITY: &str = "quality_";
const EXPECTED: &str = "expected_";

/// Code of a document that fails the filter `limit` of `dataset.text.quality`.
pub(crate) fn quality(limit: &str) -> String {
    format!("{QUALITY}{limit}")
}

/// Code of a row that violates the expectation `key` of its column.
pub(crate) fn expected(key: &str) -> String {
    format!("{EXPECTED}{key}")
}

/// Returns true for the code of a row that violates an expectation.
pub(crate) fn is_expected(code: &str) -> bool {
    code.starts_with(EXPECTED)
}

/// Faults of what a row has beside its image.
pub(crate) const BESIDE_IMAGE: [&str; 2] = [BAD_BOXES, BAD_EMBEDDING];

/// Reasons that name a target.
pub(crate) const TARGETS: [&str; 3] = [TARGET_MISSING, TARGET_NOT_NUMERIC, TARGET_NOT_FINITE];

/// Reason for rejecting a row, as stored in the `_reject` column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reason {
    /// Reason's name.
    pub(crate) reason: String,
    /// Column at fault; empty when it is the row.
    pub(crate) column: String,
    /// The value, or what was found.
    pub(crate) value: String,
}

impl Reason {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a struct of texts is JSON")
    }

    pub(crate) fn from_json(json: &str) -> Self {
        serde_json::from_str(json).expect("reasons are written by `to_json`")
    }
}

/// Returns true if a reason is a choice of the configuration, not a fault of the row.
pub(crate) fn is_choice(reason: &str) -> bool {
    [
        CONFLICTING_TARGET,
        NEAR_DUPLICATE,
        NEAR_DUPLICATE_OF_FROZEN,
        UNMATCHED_DROPPED,
        TOO_MANY_MISSING,
        SAME_TIME,
        GROUP_STRADDLES,
        OF_FROZEN,
        EMBARGO,
    ]
    .contains(&reason)
        || reason.starts_with(QUALITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_two_parts_are_read_as_they_are_made() {
        let (filtered, violated) = (quality("min_words"), expected("required"));
        assert_eq!(
            [&filtered[..], &violated],
            ["quality_min_words", "expected_required"]
        );
        assert!(is_choice(&filtered) && !is_expected(&filtered));
        assert!(is_expected(&violated) && !is_choice(&violated));
        assert!(!is_choice(NO_TEXT) && !is_expected(NO_TEXT));
    }
}
