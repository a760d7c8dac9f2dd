//! Notations of versions that are texts, for warnings: finer than the forms that order them.

/// Length of a ULID in characters.
const ULID: usize = 26;

/// Length of a UUID in characters.
const UUID: usize = 36;

/// Notation of a text, in the order of the forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextNotation {
    /// No character but spaces.
    Empty,
    /// A decimal number.
    Number,
    /// A decimal number with one digit behind its point, such as `1.9`.
    OneDecimal,
    /// A decimal number whose two or more digits behind its point end in 0, such as `1.10`.
    PaddedDecimal,
    /// A date, or a date with a time.
    Time,
    /// A year and a month, such as `2024-01`.
    Month,
    /// A ULID in capital letters, which begins with its time.
    Ulid,
    /// A UUID of version 7 in small letters, which begins with its time.
    TimedUuid,
    /// Any other text.
    Other,
}

impl TextNotation {
    /// All notations, in their order.
    pub(crate) const ALL: [Self; 9] = [
        Self::Empty,
        Self::Number,
        Self::OneDecimal,
        Self::PaddedDecimal,
        Self::Time,
        Self::Month,
        Self::Ulid,
        Self::TimedUuid,
        Self::Other,
    ];

    /// Its character in a column.
    pub(crate) const fn digit(self) -> &'static str {
        match self {
            Self::Empty => "0",
            Self::Number => "1",
            Self::OneDecimal => "2",
            Self::PaddedDecimal => "3",
            Self::Time => "4",
            Self::Month => "5",
            Self::Ulid => "6",
            Self::TimedUuid => "7",
            Self::Other => "8",
        }
    }

    /// Notation of a decimal number without spaces around it.
    pub(crate) fn of_number(text: &str) -> Self {
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match text.split_once('.') {
            Some((whole, part)) if !whole.is_empty() && is_digits(whole) && is_digits(part) => {
                match part.len() {
                    1 => Self::OneDecimal,
                    2.. if part.ends_with('0') => Self::PaddedDecimal,
                    _ => Self::Number,
                }
            }
            _ => Self::Number,
        }
    }

    /// Notation of a text that is neither a number nor a time, with the spaces around it: texts with
    /// any have another order.
    pub(crate) fn of_other(text: &str) -> Self {
        if is_month(text) {
            Self::Month
        } else if is_ulid(text) {
            Self::Ulid
        } else if is_timed_uuid(text) {
            Self::TimedUuid
        } else {
            Self::Other
        }
    }

    /// Returns true for notations whose texts, also among one another, are ordered by their bytes.
    pub(crate) const fn is_by_bytes(self) -> bool {
        matches!(
            self,
            Self::Month | Self::Ulid | Self::TimedUuid | Self::Other
        )
    }

    /// Returns true for decimal numbers.
    pub(crate) const fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::OneDecimal | Self::PaddedDecimal)
    }
}

fn is_month(text: &str) -> bool {
    let Some((year, month)) = text.split_once('-') else {
        return false;
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let month = match month.len() == 2 && is_digits(month) {
        true => month.parse::<u8>().unwrap_or_default(),
        false => 0,
    };
    year.len() == 4 && is_digits(year) && (1..=12).contains(&month)
}

/// Returns true for a ULID in capital letters: 128 bits in the alphabet of Crockford.
fn is_ulid(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() && !b"ILOU".contains(&byte);
    text.len() == ULID
        && matches!(text.as_bytes().first(), Some(b'0'..=b'7'))
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || is_letter(byte))
}

/// Returns true for a UUID of version 7 (RFC 9562, section 5.7) in small letters.
fn is_timed_uuid(text: &str) -> bool {
    let is_allowed = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        14 => byte == b'7',
        19 => matches!(byte, b'8' | b'9' | b'a' | b'b'),
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == UUID && text.bytes().enumerate().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_with_the_order_of_times_are_recognised() {
        for (notation, texts) in [
            (TextNotation::Month, &["2024-01", "1999-12"][..]),
            (TextNotation::Ulid, &["01ARZ3NDEKTSV4RRFFQ69G5FAV"]),
            (
                TextNotation::TimedUuid,
                &["017f22e2-79b0-7cc3-98c4-dc0c0c07398f"],
            ),
            (
                TextNotation::Other,
                &[
                    "2024-13",
                    "2024-00",
                    "2024-1",
                    "24-01",
                    "2024-01 ",
                    "01-2024",
                    "01ARZ3NDEKTSV4RRFFQ69G5FAU",
                    "81ARZ3NDEKTSV4RRFFQ69G5FAV",
                    "01arz3ndektsv4rrffq69g5fav",
                    "01ARZ3NDEKTSV4RRFFQ69G5FA",
                    "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
                    "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
                    "017f22e279b07cc398c4dc0c0c07398f",
                    "v9",
                ],
            ),
        ] {
            for text in texts {
                assert_eq!(TextNotation::of_other(text), notation, "{text}");
            }
        }
    }

    #[test]
    fn numbers_of_one_decimal_and_with_zeros_behind_others_are_their_own() {
        for (notation, texts) in [
            (TextNotation::OneDecimal, &["1.9", "10.0"][..]),
            (TextNotation::PaddedDecimal, &["1.10", "2.100", "3.00"]),
            (
                TextNotation::Number,
                &["7", "1.25", "-1.9", "1.5e10", ".5", "5.", "1e20"],
            ),
        ] {
            for text in texts {
                assert_eq!(TextNotation::of_number(text), notation, "{text}");
            }
        }
    }
}
