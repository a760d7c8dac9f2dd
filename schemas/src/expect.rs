//! Expectations of the columns of a dataset, a TOML file that people write and edit.
//!
//! ```toml
//! [[column]]
//! name = "price"
//! kind = "numeric"
//! min = 0.0
//! max = 500.0
//! max_missing_fraction = 0.05
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::transform::InputKind;

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// Columns; of those that are not named nothing is expected.
    #[serde(default)]
    pub column: Vec<ExpectedColumn>,
}

/// Expectations of a feature or the target, before the first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedColumn {
    /// Column.
    pub name: String,
    /// `numeric` or `categorical`: how it is read.
    pub kind: InputKind,
    /// Requires the cell in every row. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// `numeric`: least number. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// `numeric`: greatest number. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Largest share of rows that lack the cell, 0 to 1, over all splits. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_missing_fraction: Option<f64>,
    /// Requires that no two rows have the same value. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unique: bool,
    /// `categorical`: the values there are. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

impl Expectations {
    /// Reads a file.
    ///
    /// ```
    /// use feedline_schemas::expect::Expectations;
    ///
    /// let text = "[[column]]\nname = 'price'\nkind = 'numeric'\nmin = 0.0\nmax = 500.0\n";
    /// let expected = Expectations::parse(text)?;
    /// assert_eq!(expected.column[0].max, Some(500.0));
    /// assert_eq!(Expectations::parse(&expected.to_toml())?, expected);
    /// let error = Expectations::parse(&text.replace("500.0", "-1.0")).unwrap_err();
    /// assert_eq!(error, "column `price`: `min` = 0 is above `max` = -1");
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// Description of the error, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for (i, column) in found.column.iter().enumerate() {
            column
                .check()
                .map_err(|reason| format!("column `{}`: {reason}", column.name))?;
            if found.column[..i]
                .iter()
                .any(|other| other.name == column.name)
            {
                return Err(format!("column `{}` is listed twice", column.name));
            }
        }
        Ok(found)
    }

    /// The file.
    ///
    /// # Panics
    /// Never: texts and numbers are TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("texts and numbers are TOML")
    }
}

impl ExpectedColumn {
    fn check(&self) -> Result<(), String> {
        let is_number = self.kind == InputKind::Numeric;
        if !is_number && (self.min.is_some() || self.max.is_some()) {
            return Err("`min` and `max` are for numbers, use `values`".into());
        }
        if is_number && self.values.is_some() {
            return Err("`values` is for categories, use `min` and `max`".into());
        }
        if [self.min, self.max]
            .iter()
            .flatten()
            .any(|bound| bound.is_nan())
        {
            return Err("`min` and `max` are numbers, not NaN".into());
        }
        if let (Some(min), Some(max)) = (self.min, self.max)
            && min > max
        {
            return Err(format!("`min` = {min} is above `max` = {max}"));
        }
        if self
            .max_missing_fraction
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            return Err("`max_missing_fraction` is a share, from 0 to 1".into());
        }
        if self.values.as_ref().is_some_and(Vec::is_empty) {
            return Err(
                "`values` is empty, so no value would do; remove the key to allow any".into(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found = Expectations::parse(text).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn a_file_comes_back_and_wrong_ones_are_told_why() {
        let column = ExpectedColumn {
            name: "a \"b\"".into(),
            kind: InputKind::Categorical,
            required: true,
            min: None,
            max: None,
            max_missing_fraction: Some(0.25),
            unique: true,
            values: Some(vec!["x".into(), "é\n".into()]),
        };
        let all = Expectations {
            column: vec![column],
        };
        assert_eq!(Expectations::parse(&all.to_toml()), Ok(all));
        assert_eq!(Expectations::parse(""), Ok(Expectations::default()));
        let number = "[[column]]\nname = \"a\"\nkind = \"numeric\"\n";
        let text = "[[column]]\nname = \"a\"\nkind = \"categorical\"\n";
        check(&format!("{number}mim = 1.0\n"), "unknown field `mim`");
        check(
            &format!("{number}min = 2.0\nmax = 1.0\n"),
            "`min` = 2 is above `max` = 1",
        );
        check(&format!("{number}min = nan\n"), "not NaN");
        check(
            &format!("{number}values = [\"x\"]\n"),
            "`values` is for categories",
        );
        check(&format!("{text}max = 1.0\n"), "are for numbers");
        check(&format!("{text}values = []\n"), "no value would do");
        check(
            &format!("{text}max_missing_fraction = 2.0\n"),
            "from 0 to 1",
        );
        check(&format!("{text}{number}"), "listed twice");
    }
}
