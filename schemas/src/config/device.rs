//! `train.device`.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Device that computes the model: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"`, `"wgpu"` or `"wgpu:1"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceChoice {
    /// An NVIDIA GPU if the program was built with `cuda`, the machine has one and it computes in
    /// `train.precision`, otherwise the CPU; the log reports the choice.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU: the one with this number, from 0, or without a number the one of the local rank.
    Cuda(Option<u32>),
    /// A GPU through Vulkan, Metal or DirectX 12, by number as with CUDA. Discrete ones come first, then integrated and
    /// virtual ones, then the processor where its driver offers it.
    Wgpu(Option<u32>),
}

impl DeviceChoice {
    /// Returns true for the default.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => write!(f, "auto"),
            Self::Cpu => write!(f, "cpu"),
            Self::Cuda(None) => write!(f, "cuda"),
            Self::Cuda(Some(number)) => write!(f, "cuda:{number}"),
            Self::Wgpu(None) => write!(f, "wgpu"),
            Self::Wgpu(Some(number)) => write!(f, "wgpu:{number}"),
        }
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> Self {
        choice.to_string()
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = match text.split_once(':') {
            None => match text {
                "auto" => Some(Self::Auto),
                "cpu" => Some(Self::Cpu),
                "cuda" => Some(Self::Cuda(None)),
                "wgpu" => Some(Self::Wgpu(None)),
                _ => None,
            },
            Some((kind, digits)) => {
                let number = digits.parse().ok();
                match kind {
                    "cuda" => number.map(|number| Self::Cuda(Some(number))),
                    "wgpu" => number.map(|number| Self::Wgpu(Some(number))),
                    _ => None,
                }
            }
        };
        known.ok_or_else(|| {
            format!(
                "`{text}` is not a device; use `auto`, `cpu`, `cuda` or `wgpu`, with a number such as `cuda:1` for the second GPU"
            )
        })
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl JsonSchema for DeviceChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DeviceChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Device that computes the model: `auto`, `cpu`, `cuda`, `wgpu`, or a GPU by its number, such as `cuda:1`.",
            "pattern": "^(auto|cpu|(cuda|wgpu)(:[0-9]+)?)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for text in ["auto", "cpu", "cuda", "cuda:0", "cuda:13", "wgpu", "wgpu:2"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        for text in [
            "", "gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", "cpu:0", "wgpu:",
        ] {
            let refusal = text.parse::<DeviceChoice>().unwrap_err();
            assert!(refusal.contains(&format!("`{text}`")), "{refusal}");
        }
    }
}
