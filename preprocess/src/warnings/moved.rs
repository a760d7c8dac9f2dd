//! Warning of rows that a rebuild puts into another split.

use feedline_schemas::{count::counted, manifest::Split, report::Warning};

use super::message::warning;

/// Lists the rows that moved, by their split before and their split now.
pub(crate) fn list_moves(moved: &[[u64; 3]; 3]) -> String {
    let mut moves = Vec::new();
    for (before, rows) in Split::ALL.iter().zip(moved) {
        let rows = Split::ALL.iter().zip(rows).filter(|(_, rows)| **rows > 0);
        moves.extend(rows.map(|(now, rows)| format!("{rows} from {before} to {now}")));
    }
    moves.join(", ")
}

/// End of a message about rows that may be in another split.
const ADVICE: &str = "a model that was trained before may have been fitted on rows that are validation or test rows now: compare \
                      it with others once it is trained again";

/// Warns of rows that were in another split of the dataset that a rebuild replaces, and of `replaced` ones, which it lacks and
/// whose newer versions may be in another. `key` is the setting that moves them, by this `cause`.
pub(crate) fn rows_changed_split(
    moved: &[[u64; 3]; 3],
    replaced: u64,
    (key, cause): (&str, &str),
) -> Option<Warning> {
    let total: u64 = moved.iter().flatten().sum();
    let mut parts = Vec::new();
    if total > 0 {
        parts.push(format!(
            "{} of the earlier dataset changed the split ({}): {cause}",
            counted(total, "row"),
            list_moves(moved)
        ));
    }
    if replaced > 0 {
        let are = if replaced == 1 { "is" } else { "are" };
        parts.push(format!(
            "{} of the earlier dataset {are} no longer found, since newer versions have landed, or rows were withdrawn, rejected \
             or dropped: a newer version can be in another split, since the content of a row decides it; set `dataset.split.key` to \
             columns that identify a row, which splits all rows once more and then keeps all versions in one split",
            counted(replaced, "row")
        ));
    }
    (!parts.is_empty()).then(|| {
        let message = format!("{}; {ADVICE}", parts.join("; "));
        warning("rows_changed_split", key, message)
    })
}

/// Warns that the splits of the dataset that a rebuild replaces could not be read: `what` of it cannot be used, for this
/// `reason`.
pub(crate) fn splits_not_compared(what: &str, reason: &str) -> Warning {
    let message = format!(
        "rows may be in another split than in the earlier dataset, which could not be compared, since {what} cannot be used: \
         {reason}; {ADVICE}"
    );
    warning("splits_not_compared", "dataset.split", message)
}

/// Warns of so many `rows` of the dataset that a rebuild replaces, whose splits could not be compared, since the rebuilt one has
/// neither their landing positions nor their contents. `is_joined` is true where joined columns have changed.
pub(crate) fn rows_not_compared(rows: u64, is_joined: bool) -> Warning {
    let changed = match is_joined {
        true => "columns of joined sources",
        false => "settings of the dataset, or the version of feedline,",
    };
    let message = format!(
        "{} of the earlier dataset could not be compared and may be in another split: no row has the landing position or the \
         content, since sources have withdrawn rows, as of a file that was replaced, and {changed} have changed; set \
         `dataset.split.key` to columns that identify a row, which splits all rows once more and then keeps them in their \
         splits; {ADVICE}",
        counted(rows, "row")
    );
    warning("splits_not_compared", "dataset.split.key", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_moved_are_counted_by_their_splits() {
        let moved = [[0, 2, 3], [0, 0, 0], [1, 0, 0]];
        let listed = "2 from train to validation, 3 from train to test, 1 from test to train";
        assert_eq!(list_moves(&moved), listed);
        let about = ("dataset.near_dup", "new rows share a split with them");
        let found = rows_changed_split(&moved, 0, about).unwrap();
        assert_eq!(found.key.as_deref(), Some("dataset.near_dup"));
        let expected = format!("6 rows of the earlier dataset changed the split ({listed}): new");
        assert!(found.message.starts_with(&expected), "{}", found.message);
        let replaced = rows_changed_split(&[[0; 3]; 3], 1, about).unwrap().message;
        for part in [
            "1 row of the earlier dataset is no longer found",
            "set `dataset.split.key` to",
        ] {
            assert!(replaced.contains(part), "{part}: {replaced}");
        }
        assert_eq!(rows_changed_split(&[[0; 3]; 3], 0, about), None);
    }

    #[test]
    fn shards_that_cannot_be_used_are_named_with_the_reason() {
        let found = splits_not_compared("`a.arrow`", "it is missing");
        assert_eq!(found.key.as_deref(), Some("dataset.split"));
        let part = "since `a.arrow` cannot be used: it is missing; a model";
        assert!(found.message.contains(part), "{}", found.message);
    }

    #[test]
    fn rows_without_a_landing_position_are_counted_with_the_key_that_keeps_them() {
        let found = rows_not_compared(1, true);
        assert_eq!(found.code, "splits_not_compared");
        assert_eq!(found.key.as_deref(), Some("dataset.split.key"));
        for part in [
            "1 row of the earlier dataset could not be compared",
            "and columns of joined sources have changed; set `dataset.split.key` to",
        ] {
            assert!(found.message.contains(part), "{part}: {}", found.message);
        }
    }
}
