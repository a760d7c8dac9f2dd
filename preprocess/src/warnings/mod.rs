//! Warnings of default decisions of a build that change data or a result, with the key that changes
//! each.
//!
//! They depend on fitted statistics and counts, so on the rows alone: any number of partitions
//! gives the same.

mod appended;
mod categories;
mod cells;
pub(crate) mod classes;
mod duplicates;
mod features;
mod gaps;
mod images;
mod joins;
mod keys;
mod leaks;
mod left_out;
mod message;
mod mixed_types;
mod moved;
pub(crate) mod precision;
mod sizes;
mod spelling;
mod time_order;
mod versions;
pub(crate) mod zone;

pub(crate) use self::{
    appended::{many_rejects, new_rows_differ, with_appended},
    categories::{CATEGORIES_CUT, CutCategories, unknown_categories},
    cells::{
        FAR_FROM_TRAINING_ROWS, TARGET_REPEATS_EXTREME, TEXTS_NOT_NUMBERS, far_outside,
        feature_repeats_extreme, infinite_capped, mostly_capped, nan_missing,
    },
    classes::{moved_classes, unknown_classes, unlisted_classes},
    duplicates::{
        EqualParts, are_many, duplicates_dropped, equal_as_read, equal_documents, equal_rows,
        labels_differ, left_at_landing, near_labels_differ,
    },
    features::{columns_dropped, look_like_identifiers, of_transform, without_train_values},
    gaps::{entities_without_windows, long_steps, uneven_days, uneven_steps},
    images::transparent_images,
    joins::{UnmatchedRows, unmatched_rows},
    keys::{KEY_IS_FEATURE, key_is_feature, keys_alike, keys_incomplete, missing_keys},
    leaks::{made_of_other_rows, query_repeats_target, sql_repeats_rows, target_leakage},
    left_out::rows_left_out,
    message::{list_columns, toml_string},
    mixed_types::{MixedColumn, SourceColumnType, mixed_types},
    moved::{list_moves, rows_changed_split, rows_not_compared, splits_not_compared},
    sizes::{SplitKey, class_sizes, few_split_rows},
    spelling::{folded, list_alike},
    time_order::{LaterTrainingRows, range_not_by_time},
    versions::{VersionTexts, advises_text, doubtful_versions},
    zone::{RepeatedHour, repeated_hour},
};
pub use self::{
    features::{COLUMNS_DROPPED, looks_like_index, looks_like_row_number},
    gaps::warn_of_windowless_entities,
    zone::warn_of_instants,
};

#[cfg(test)]
mod tests;
