//! Labels of the samples of a WebDataset.

use std::collections::BTreeSet;

/// A label as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Label {
    Integer(i64),
    Fraction(f64),
}

impl Label {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "targets are kept as f32"
    )]
    pub(super) fn as_number(self) -> f32 {
        match self {
            Self::Integer(number) => number as f32,
            Self::Fraction(number) => number as f32,
        }
    }

    /// Returns true if it is an integer that float32 cannot hold.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the float is a rounded integer of 64 bits"
    )]
    pub(super) fn is_rounded(self) -> bool {
        match self {
            Self::Integer(number) => i128::from(number) != self.as_number() as i128,
            Self::Fraction(_) => false,
        }
    }
}

pub(super) fn label_in_text(text: &[u8]) -> Result<Option<Label>, String> {
    let text = std::str::from_utf8(text).unwrap_or_default().trim();
    let integer = text.parse().map(Label::Integer);
    integer
        .or_else(|_| text.parse().map(Label::Fraction))
        .map(Some)
        .map_err(|_| "its label is not a number".into())
}

pub(super) fn label_in_json(text: &[u8], key: &str) -> Result<Option<Label>, String> {
    let document: serde_json::Value =
        serde_json::from_slice(text).map_err(|e| format!("its json cannot be read: {e}"))?;
    match document.get(key) {
        None => Ok(None),
        Some(serde_json::Value::Number(number)) => Ok(number
            .as_i64()
            .map(Label::Integer)
            .or_else(|| number.as_f64().map(Label::Fraction))),
        Some(_) => Err(format!("`{key}` in its json is not a number")),
    }
}

/// Counts of the labels of an archive.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    pub(super) samples: u64,
    pub(super) labelled: u64,
    /// Of those, labels that are in a `json` member, though none is asked for.
    pub(super) in_json: u64,
    /// Keys that these have there.
    pub(super) json_keys: BTreeSet<&'static str>,
    pub(super) is_fraction: bool,
    pub(super) most: i64,
}

impl Labels {
    /// Counts a sample with this label, or else with one in its `json` member, behind its key.
    pub(super) fn take(&mut self, label: Option<Label>, json: Option<(&'static str, Label)>) {
        self.samples += 1;
        let label = label.or_else(|| {
            let (key, label) = json?;
            self.in_json += 1;
            self.json_keys.insert(key);
            Some(label)
        });
        self.labelled += u64::from(label.is_some());
        match label {
            Some(Label::Integer(class)) => self.most = self.most.max(class),
            Some(Label::Fraction(_)) => self.is_fraction = true,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbers() {
        let text = |text: &str| label_in_text(text.as_bytes());
        assert_eq!(text(" 17\n"), Ok(Some(Label::Integer(17))));
        assert_eq!(text("-0.5"), Ok(Some(Label::Fraction(-0.5))));
        assert!(text("cat").is_err());
        let json = |key| label_in_json(br#"{"a": 3, "b": 0.25, "c": "x"}"#, key);
        assert_eq!(json("a"), Ok(Some(Label::Integer(3))));
        assert_eq!(json("b"), Ok(Some(Label::Fraction(0.25))));
        assert_eq!(json("d"), Ok(None));
        assert!(json("c").is_err());
        assert!(label_in_json(b"{", "a").is_err());
        let exact = Label::Integer(1 << 24);
        assert!(!exact.is_rounded() && !Label::Fraction(0.1).is_rounded());
        assert!(Label::Integer((1 << 24) + 1).is_rounded());
        assert!(Label::Integer(i64::MAX).is_rounded());
    }
}
