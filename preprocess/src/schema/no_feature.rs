//! Reasons that a column is no feature by default.

use std::fmt;

use feedline_schemas::record::ColumnType;

/// Reason that a column is no feature although the configuration does not say so.
///
/// Manifests and reports store its text, for people; a program finds these columns in the warnings. The order is that of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NoFeatureReason {
    /// Strings, with one of its own in (nearly) each training row.
    OwnTexts,
    /// Times, with one of its own in (nearly) each training row.
    OwnTimes,
    /// Bytes.
    Bytes,
    /// Lists.
    Lists,
    /// Lists or objects.
    ListsOrObjects,
    /// Strings with too many values for a category.
    ManyTexts,
    /// Times with too many values for a category.
    ManyTimes,
    /// No value in any row.
    NoValue,
    /// No value in any training row, so there is nothing to fit.
    NoTrainValue,
    /// This key names it for another use.
    NamedIn(&'static str),
}

impl NoFeatureReason {
    /// Returns the reason that a landed column of this type cannot be a feature, if any.
    pub(crate) fn of_type(r#type: ColumnType) -> Option<Self> {
        match r#type {
            ColumnType::Null => Some(Self::NoValue),
            ColumnType::Binary => Some(Self::Bytes),
            ColumnType::Json => Some(Self::ListsOrObjects),
            list if list.is_list() => Some(Self::Lists),
            _ => None,
        }
    }
}

/// The predicate of a sentence about the column.
impl fmt::Display for NoFeatureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnTexts => "holds a text of its own in (nearly) each training row",
            Self::OwnTimes => "holds a time of its own in (nearly) each training row",
            Self::Bytes => "holds bytes",
            Self::Lists => "holds lists",
            Self::ListsOrObjects => "holds lists or objects",
            Self::ManyTexts => "holds more than 1,000 different texts",
            Self::ManyTimes => "holds more than 1,000 different times",
            Self::NoValue => "holds no value in any row",
            Self::NoTrainValue => "holds no value in any training row",
            Self::NamedIn(key) => {
                return write!(
                    f,
                    "is named in `{key}`, and `dataset.features` does not list it"
                );
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_order_of_their_texts() {
        let reasons = [
            NoFeatureReason::OwnTexts,
            NoFeatureReason::OwnTimes,
            NoFeatureReason::Bytes,
            NoFeatureReason::Lists,
            NoFeatureReason::ListsOrObjects,
            NoFeatureReason::ManyTexts,
            NoFeatureReason::ManyTimes,
            NoFeatureReason::NoValue,
            NoFeatureReason::NoTrainValue,
            NoFeatureReason::NamedIn("dataset.passthrough"),
            NoFeatureReason::NamedIn("dataset.split.key"),
        ];
        assert!(reasons.is_sorted());
        let texts = reasons.map(|reason| reason.to_string());
        assert!(texts.is_sorted(), "{texts:?}");
    }
}
