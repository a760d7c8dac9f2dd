//! Parameters that differ from request to request.

/// A parameter of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Param<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: String,
    /// True if it is a number where a body distinguishes numbers from text.
    pub(crate) is_number: bool,
}

impl<'a> Param<'a> {
    pub(crate) fn text(name: &'a str, value: impl Into<String>) -> Self {
        Self {
            name,
            value: value.into(),
            is_number: false,
        }
    }

    pub(crate) fn number(name: &'a str, value: impl ToString) -> Self {
        Self {
            name,
            value: value.to_string(),
            is_number: true,
        }
    }
}
