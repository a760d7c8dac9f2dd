//! Names and versions of the formats.
//!
//! A version is raised with each field that an older build does not know. A document may say by `min_reader` which version's
//! builds may read it all the same, without what was added since; see [`crate::decode`]. `schemas/samples/` has a document of
//! each version.

/// Name and versions of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatTag {
    /// Format name, such as `feedline.commit`.
    pub format: &'static str,
    /// Version that this build writes, and the newest that it reads; the first is 1.
    pub version: u32,
    /// Oldest version that this build reads. Only development versions of feedline wrote older ones.
    pub oldest: u32,
    /// Way to get a new document, as the end of a sentence: `build the dataset again with ...`.
    pub remedy: &'static str,
}

/// Way to get new documents of a dataset.
const BUILD: &str = "build the dataset again with `feedline shards build PIPELINE.toml --refit`";
/// Way to get new documents of a run.
const TRAIN: &str = "train again with `feedline train PIPELINE.toml`";

/// Entry of a source's commit log. Version 2 has `min_reader` and the fields that were added to version 1 one by one;
/// version 3 has `compacted`, `rewound_to`, `expired`, `marks`, `page_records`, `interrupted`, `failed`, `failed_pages`,
/// `findings` of warnings and further counts of `presence`.
pub const COMMIT: FormatTag = FormatTag {
    format: "feedline.commit",
    version: 3,
    oldest: 1,
    remedy: "repair the log with `feedline ingest repair PIPELINE.toml`",
};
/// Oldest version whose builds may read an entry that this build writes and resume from it, unless it has fields of
/// version 3 ([`crate::commit::CommitEntry::oldest_reader`]). A field that they may ignore
/// raises [`COMMIT`] alone; one that decides what is read next, or what counts as landed, or that names files, raises this too.
pub const COMMIT_MIN_READER: u32 = 2;
/// Head of a snapshot of a commit log. Entries of version 1 lack `merged_into` where rejects were retried after a merge.
pub const LOG_SNAPSHOT: FormatTag = FormatTag {
    format: "feedline.log-snapshot",
    version: 2,
    oldest: 2,
    remedy: "remove it: the log itself has everything",
};
/// Lease of a scheduled source.
pub const LEASE: FormatTag = FormatTag {
    format: "feedline.lease",
    version: 1,
    oldest: 1,
    remedy: "remove it while no program runs the source",
};
/// Failed runs of a source.
pub const FAILURES: FormatTag = FormatTag {
    format: "feedline.failures",
    version: 1,
    oldest: 1,
    remedy: "remove it: only reports need it",
};
/// Warnings of the last run of a source.
pub const RUN_WARNINGS: FormatTag = FormatTag {
    format: "feedline.run-warnings",
    version: 1,
    oldest: 1,
    remedy: "remove it: only reports need it",
};
/// Fitted transform artefact. Version 2 has `images` for the `pictures` of version 1.
pub const TRANSFORM: FormatTag = FormatTag {
    format: "feedline.transform",
    version: 2,
    oldest: 2,
    remedy: BUILD,
};
/// Profile of a dataset.
pub const PROFILE: FormatTag = FormatTag {
    format: "feedline.profile",
    version: 1,
    oldest: 1,
    remedy: BUILD,
};
/// Shard manifest. Version 3 has `images` and `near_images` for the `pictures` and `near_pictures` of version 2. Its warnings may
/// have `findings` and `rows`, which those of earlier development versions lack: they then name no columns.
pub const MANIFEST: FormatTag = FormatTag {
    format: "feedline.manifest",
    version: 3,
    oldest: 3,
    remedy: BUILD,
};
/// Loader position. Version 3 has `split` and `shuffle`, where they are not `train` and true.
pub const LOADER_STATE: FormatTag = FormatTag {
    format: "feedline.loader-state",
    version: 3,
    oldest: 1,
    remedy: "start again without it",
};
/// Checkpoint header. Version 3 has the keys of `[train]` and the layout under their new names.
pub const CHECKPOINT: FormatTag = FormatTag {
    format: "feedline.checkpoint",
    version: 3,
    oldest: 3,
    remedy: TRAIN,
};

/// Record of a run. Version 2 has the keys of `[train]` and the layout under their new names, and `images` for `pictures`.
pub const RUN: FormatTag = FormatTag {
    format: "feedline.run",
    version: 2,
    oldest: 2,
    remedy: TRAIN,
};
/// Record of an export.
pub const EXPORT: FormatTag = FormatTag {
    format: "feedline.export",
    version: 1,
    oldest: 1,
    remedy: "export into another folder with `feedline export PIPELINE.toml --to FOLDER`",
};

/// Implements [`crate::Versioned`] for a struct with fields `format: String` and `version: u32`.
macro_rules! versioned {
    ($type:ty, $tag:expr) => {
        impl crate::Versioned for $type {
            const TAG: &'static crate::format::FormatTag = &$tag;
        }
    };
}
pub(crate) use versioned;
