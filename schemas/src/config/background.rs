//! `dataset.image.background`.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Colour that transparent pixels are blended onto: `"white"`, `"black"` or `"#rrggbb"`; `"none"` drops their alpha.
///
/// ```
/// use feedline_schemas::config::ImageBackground;
///
/// let grey: ImageBackground = "#808080".parse()?;
/// assert_eq!(grey.colour(), Some([128; 3]));
/// assert_eq!("none".parse(), Ok(ImageBackground::NONE));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ImageBackground(Option<[u8; 3]>);

impl ImageBackground {
    /// White.
    pub const WHITE: Self = Self(Some([255; 3]));
    /// Black.
    pub const BLACK: Self = Self(Some([0; 3]));
    /// No colour: alpha is dropped, and pixels have the colours that their file stores under it.
    pub const NONE: Self = Self(None);

    /// Red, green and blue; `None` where alpha is dropped.
    #[must_use]
    pub const fn colour(self) -> Option<[u8; 3]> {
        self.0
    }
}

impl fmt::Display for ImageBackground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WHITE => write!(f, "white"),
            Self::BLACK => write!(f, "black"),
            Self(None) => write!(f, "none"),
            Self(Some([red, green, blue])) => write!(f, "#{red:02x}{green:02x}{blue:02x}"),
        }
    }
}

impl From<ImageBackground> for String {
    fn from(background: ImageBackground) -> Self {
        background.to_string()
    }
}

impl FromStr for ImageBackground {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = match text {
            "white" => Some(Self::WHITE),
            "black" => Some(Self::BLACK),
            "none" => Some(Self::NONE),
            _ => text.strip_prefix('#').and_then(parse_hex),
        };
        known.ok_or_else(|| {
            format!(
                "`{text}` is not a background; use `white`, `black`, a colour such as `#f0f0f0`, or `none` to drop alpha"
            )
        })
    }
}

/// Parses six hexadecimal digits.
fn parse_hex(digits: &str) -> Option<ImageBackground> {
    let is_colour = digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_colour)?;
    let [_, red, green, blue] = number.to_be_bytes();
    Some(ImageBackground(Some([red, green, blue])))
}

impl TryFrom<String> for ImageBackground {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl JsonSchema for ImageBackground {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ImageBackground".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Colour that transparent pixels are blended onto: `white`, `black`, or red, green and blue as `#rrggbb`. `none` drops alpha.",
            "pattern": "^(white|black|none|#[0-9a-fA-F]{6})$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backgrounds_are_read_as_they_are_written() {
        for (text, colour) in [
            ("white", Some([255; 3])),
            ("black", Some([0; 3])),
            ("#01a0ff", Some([1, 160, 255])),
            ("none", None),
        ] {
            let background: ImageBackground = text.parse().unwrap();
            assert_eq!(
                (background.colour(), background.to_string()),
                (colour, text.into())
            );
        }
        let other: ImageBackground = "#FFffFF".parse().unwrap();
        assert_eq!(other, ImageBackground::WHITE);
        for text in [
            "", "White", "#fff", "ffffff", "#+12345", "#gggggg", "#0000000",
        ] {
            let refusal = text.parse::<ImageBackground>().unwrap_err();
            assert!(refusal.contains(&format!("`{text}`")), "{refusal}");
        }
    }
}
