//! Names and versions of the formats.
//!
//! A version is raised with each field that an older build does not know. A document may say by `min_reader` which version's
//! builds may read it all the same, without what was added since; see [`crate::decode`].

/// Name and version of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatTag {
    /// Format name, such as `feedline.commit`.
    pub format: &'static str,
    /// Version; the first is 1.
    pub version: u32,
}

/// Entry of a source's commit log. Version 2 has `min_reader` and the fields that were added to version 1 one by one.
pub const COMMIT: FormatTag = FormatTag {
    format: "feedline.commit",
    version: 2,
};
/// Oldest version whose builds may read an entry that this build writes and resume from it. A field that they may ignore
/// raises [`COMMIT`] alone; one that decides what is read next, or what counts as landed, or that names files, raises this too.
pub const COMMIT_MIN_READER: u32 = 2;
/// Lease of a scheduled source.
pub const LEASE: FormatTag = FormatTag {
    format: "feedline.lease",
    version: 1,
};
/// Failed runs of a source.
pub const FAILURES: FormatTag = FormatTag {
    format: "feedline.failures",
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
/// Shard manifest. From version 2 on its fingerprint is of content and configuration alone.
pub const MANIFEST: FormatTag = FormatTag {
    format: "feedline.manifest",
    version: 2,
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
