//! Filters of resizing.

use fast_image_resize::FilterType;
use serde::{Deserialize, Serialize};

/// An antialiased filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter {
    /// A triangle: Pillow's `BILINEAR`.
    #[default]
    Bilinear,
    /// Catmull-Rom (a = -0.5): Pillow's `BICUBIC`.
    Bicubic,
    /// Three lobes: Pillow's `LANCZOS`.
    Lanczos,
}

impl Filter {
    /// Half its width in output pixels when shrinking, in input pixels when enlarging.
    pub(crate) const fn lobes(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The filter by the name of the library.
    pub(crate) const fn r#type(self) -> FilterType {
        match self {
            Self::Bilinear => FilterType::Bilinear,
            Self::Bicubic => FilterType::CatmullRom,
            Self::Lanczos => FilterType::Lanczos3,
        }
    }
}
