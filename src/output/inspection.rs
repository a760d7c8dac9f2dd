//! Reports of `shards verify` and `shards inspect`.

use std::fmt::{self, Write as _};

use feedline_preprocess::describe_step;
use feedline_schemas::{
    manifest::{Layout, Manifest, TargetKind, TokenType},
    report::{PruneReport, VerifyReport},
    transform::TransformArtefact,
    units::ByteSize,
};
use serde::Serialize;

use super::{
    build::{
        write_conflicts, write_filtered, write_images, write_joins, write_unexpected, write_windows,
    },
    dataset,
    text::{Text, counted, line, number, write_rejects, write_warnings},
};

impl Text for VerifyReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{}",
            if self.problems.is_empty() {
                "verified"
            } else {
                "damaged"
            }
        )?;
        line(
            out,
            "checked",
            format!(
                "{}, {}, {}",
                counted(self.shards, "shard"),
                counted(self.blocks, "block"),
                counted(self.rows, "row")
            ),
        )?;
        line(out, "leaked keys", self.leaked_keys.to_string())?;
        for problem in &self.problems {
            line(out, "problem", problem)?;
        }
        line(out, "fingerprint", &self.fingerprint)?;
        line(out, "dataset", &self.url)
    }
}

impl Text for PruneReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let (title, files) = match self.dry_run {
            true => ("prune (nothing is removed)", "would remove"),
            false => ("pruned", "removed"),
        };
        writeln!(out, "{title}")?;
        let size = ByteSize::new(self.bytes);
        line(
            out,
            files,
            format!("{}, {size}", counted(self.files, "file")),
        )?;
        if self.young > 0 {
            let text = format!(
                "{} younger than `--grace-s` that no kept manifest names",
                counted(self.young, "file")
            );
            line(out, "left", text)?;
        }
        if let Some(first) = self.foreign.first() {
            let files = counted(self.foreign.len() as u64, "file");
            let text = format!("{files} with other names, such as `{first}`; left as they are");
            line(out, "not of a build", text)?;
        }
        line(
            out,
            "kept",
            format!("all files of {}", self.kept.join(", ")),
        )?;
        line(out, "dataset", &self.url)
    }
}

/// Output of `shards inspect`.
#[derive(Debug, Serialize)]
pub(crate) struct Inspection {
    pub(crate) url: String,
    pub(crate) manifest: Manifest,
    pub(crate) transform: TransformArtefact,
}

impl Text for Inspection {
    fn write(&self, out: &mut String) -> fmt::Result {
        let manifest = &self.manifest;
        writeln!(out, "dataset {}", manifest.dataset)?;
        write_contents(manifest, out)?;
        write_origins(manifest, out)?;
        write_counts(manifest, out)?;
        write_splits(manifest, out)?;
        for step in &self.transform.steps {
            for (name, text) in describe_step(step, number) {
                line(out, name, text)?;
            }
        }
        dataset::write_numbers(&self.transform, out)?;
        dataset::write_classes(&self.transform, &manifest.counts.classes, out)?;
        dataset::write_dropped(&manifest.dropped_columns, out)?;
        write_warnings(&manifest.warnings, out)?;
        line(out, "fingerprint", manifest.fingerprint.to_string())?;
        line(out, "dataset", &self.url)
    }
}

/// Writes what a sample has: features, passthrough columns and tokens.
fn write_contents(manifest: &Manifest, out: &mut String) -> fmt::Result {
    line(out, "layout", layout_text(&manifest.layout))?;
    let kept = &manifest.kept;
    if !kept.is_empty() {
        let names: Vec<&str> = kept.iter().map(|column| column.name.as_str()).collect();
        line(out, "kept", names.join(", "))?;
    }
    if let Some(tokens) = &manifest.tokens {
        let end = match tokens.end_of_text {
            Some(id) => format!("id {id} behind each document"),
            None => "nothing behind documents".to_owned(),
        };
        line(out, "tokenizer", format!("{}, {end}", tokens.tokenizer))?;
    }
    Ok(())
}

/// Writes the edited dataset and the sources that the rows are from.
fn write_origins(manifest: &Manifest, out: &mut String) -> fmt::Result {
    if let Some(edit) = &manifest.edit {
        let text = format!("from {} by {}", edit.source, edit.prior.run);
        line(out, "edited", text)?;
    }
    for source in &manifest.sources {
        let licence = source.licence.as_deref().unwrap_or("not stated");
        let text = format!(
            "{} at log position {}, licence {licence}",
            source.name, source.sequence
        );
        line(out, "source", text)?;
    }
    Ok(())
}

/// Writes the rows that were read, and those that are in no split.
fn write_counts(manifest: &Manifest, out: &mut String) -> fmt::Result {
    let counts = &manifest.counts;
    let text = format!(
        "{} read, {} dropped",
        counts.rows_in,
        counted(counts.duplicates, "duplicate")
    );
    line(out, "rows", text)?;
    write_rejects(&counts.rejected, None, out)?;
    dataset::write_rejected_targets(&counts.rejected_targets, out)?;
    write_filtered(
        &counts.filtered,
        None,
        counts.near_dup.as_ref(),
        counts.redacted.as_ref(),
        out,
    )?;
    write_unexpected(&counts.unexpected, out)?;
    write_conflicts(counts.conflicts, counts.groups, out)?;
    write_joins(&counts.joins, out)?;
    write_images(counts.near_images.as_ref(), counts.boxes.as_ref(), out)?;
    write_windows(counts.sequence.as_ref(), &manifest.naive, out)
}

/// Writes the size of each split, and the rows that were appended.
fn write_splits(manifest: &Manifest, out: &mut String) -> fmt::Result {
    for split in &manifest.splits {
        let blocks: usize = split.shards.iter().map(|s| s.blocks.len()).sum();
        let bytes = split.shards.iter().map(|s| s.bytes).sum();
        let text = format!(
            "{}, {}, {}, {}",
            counted(split.rows, "row"),
            counted(split.shards.len() as u64, "shard"),
            counted(blocks as u64, "block"),
            ByteSize::new(bytes)
        );
        line(out, split.split.as_str(), text)?;
    }
    for addition in &manifest.additions {
        let [train, validation, test] = addition.rows;
        let positions = addition.behind.iter();
        let positions: Vec<String> = positions
            .map(|source| format!("{} {}", source.name, source.sequence))
            .collect();
        let text = format!(
            "{train} train, {validation} validation, {test} test, behind log position {}",
            positions.join(", ")
        );
        line(out, "added", text)?;
    }
    Ok(())
}

fn layout_text(layout: &Layout) -> String {
    match layout {
        Layout::Dense { features, target } => {
            let features = counted((*features).into(), "feature");
            format!("{features} (f32), {}", target_text(*target))
        }
        Layout::Images { target } => format!("encoded images, {}", target_text(*target)),
        Layout::Tokens { id, vocabulary } => {
            let bits = id_bits(*id);
            format!("documents as {bits}-bit ids of {vocabulary} tokens")
        }
        Layout::Multi {
            features,
            images,
            tokens,
            target,
        } => {
            let mut parts = Vec::new();
            if *features > 0 {
                parts.push(counted((*features).into(), "feature") + " (f32)");
            }
            if *images {
                parts.push("an encoded image".to_owned());
            }
            if let Some(tokens) = tokens {
                let (bits, length) = (id_bits(tokens.id), tokens.length);
                let vocabulary = tokens.vocabulary;
                parts.push(format!(
                    "up to {length} {bits}-bit ids of {vocabulary} tokens"
                ));
            }
            format!("{}, {}", parts.join(", "), target_text(*target))
        }
    }
}

fn id_bits(id: TokenType) -> u32 {
    match id {
        TokenType::U16 => 16,
        TokenType::U32 => 32,
    }
}

fn target_text(target: TargetKind) -> String {
    match target {
        TargetKind::None => "no target".to_owned(),
        TargetKind::Regression => "a number to predict".to_owned(),
        TargetKind::Regressions { targets } => format!("{targets} numbers to predict"),
        TargetKind::Classification { classes } => format!("{classes} classes to predict"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prune_counts_files_that_are_not_of_a_build() {
        let foreign = ["shards/train/mine.arrow", "tables/mine.arrow"];
        let report = PruneReport {
            foreign: foreign.map(str::to_owned).into(),
            ..PruneReport::default()
        };
        let mut text = String::new();
        report.write(&mut text).unwrap();
        let expected = "2 files with other names, such as `shards/train/mine.arrow`; left";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn an_inspection_lists_unexpected_values() {
        let none = "0".repeat(32);
        let manifest = serde_json::json!({
            "format": "feedline.manifest",
            "version": 1,
            "fingerprint": none,
            "dataset": "prices",
            "input_hash": none,
            "layout": { "kind": "dense", "features": 1, "target": { "kind": "none" } },
            "transform": { "path": "transform.json", "hash": none, "dataset": "prices" },
            "shuffle_seed": null,
            "sources": [],
            "counts": {
                "rows_in": 9,
                "duplicates": 0,
                "rejected": {},
                "train": 7,
                "validation": 1,
                "test": 1,
                "unexpected": { "price.max": 4, "size.required": 2 },
            },
            "splits": [],
            "rejects": [],
        });
        let transform = serde_json::json!({
            "format": "feedline.transform",
            "version": 1,
            "hash": none,
            "fitted_rows": 7,
            "null_values": [],
            "missing_values": [],
            "inputs": [],
            "steps": [],
            "features": [],
            "target": null,
        });
        let inspection = Inspection {
            url: "memory:///".to_owned(),
            manifest: serde_json::from_value(manifest).unwrap(),
            transform: serde_json::from_value(transform).unwrap(),
        };
        let mut text = String::new();
        inspection.write(&mut text).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        let unexpected = lines.iter().filter(|line| line.starts_with("unexpected"));
        assert_eq!(
            unexpected.collect::<Vec<_>>(),
            ["unexpected 4 price.max", "unexpected 2 size.required"]
        );
    }
}
