//! Names and versions of the formats.

/// Name and version of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatTag {
    /// Format name, such as `feedline.commit`.
    pub format: &'static str,
    /// Version; the first is 1.
    pub version: u32,
}

/// Entry of a source's commit log.
pub const COMMIT: FormatTag = FormatTag {
    format: "feedline.commit",
    version: 1,
};
/// Lease of a scheduled source.
pub const LEASE: FormatTag = FormatTag {
    format: "feedline.lease",
    version: 1,
};
/// Fitted transform artefact.
pub const TRANSFORM: FormatTag = FormatTag {
    format: "feedline.transform",
    version: 1,
};
/// Profile of a dataset.
pub const PROFILE: FormatTag = FormatTag {
    format: "feedline.profile",
    version: 1,
};
/// Shard manifest.
pub const MANIFEST: FormatTag = FormatTag {
    format: "feedline.manifest",
    version: 1,
};
/// Loader position.
pub const LOADER_STATE: FormatTag = FormatTag {
    format: "feedline.loader-state",
    version: 2,
};
/// Checkpoint header.
pub const CHECKPOINT: FormatTag = FormatTag {
    format: "feedline.checkpoint",
    version: 2,
};

/// Record of a run.
pub const RUN: FormatTag = FormatTag {
    format: "feedline.run",
    version: 1,
};

/// Implements [`crate::Versioned`] for a struct with fields `format: String` and `version: u32`.
macro_rules! versioned {
    ($type:ty, $tag:expr) => {
        impl crate::Versioned for $type {
            const TAG: crate::format::FormatTag = $tag;
        }
    };
}
pub(crate) use versioned;
