//! The dataset report, `report-<fingerprint>.html`: one file without external resources.
//!
//! It is a pure function of the build and of the previous dataset, which the training split is
//! compared with. It is written before its manifest is published; a dataset whose report is missing
//! is rebuilt.

mod columns;

use std::collections::BTreeSet;

use feedline_report::{TableRow, bars, document, escape, foldable, link, percent, table};
pub(crate) use feedline_schemas::manifest::report_path as path_of;
use feedline_schemas::{
    count::counted,
    ids::{Hash128, Origin, TableName},
    manifest::Manifest,
    profile::DatasetProfile,
    report::Warning,
    transform::TransformArtefact,
};

use crate::{
    operators::dedup::duplicate_samples::DuplicateContents,
    statistics::profile::{
        drift::{ColumnDrift, Shift, of_splits},
        outside::{FarOutside, far},
    },
};

/// Rows of a table that are visible at once; a click shows the rest.
const AT_ONCE: usize = 20;

/// Files of rejects that are linked.
const REJECTS: usize = 5;

/// The list of runs, seen from the dataset folder: a build writes it beside the folder of runs.
const RUNS_PATH: &str = "../train/index.html";

/// Content of the report.
pub(crate) struct DatasetPage<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) artefact: &'a TransformArtefact,
    pub(crate) profile: &'a DatasetProfile,
    /// Sources by the index in an origin.
    pub(crate) sources: &'a [TableName],
    /// Contents that appear in several rows; absent where duplicates are kept.
    pub(crate) copies: Option<DuplicateContents>,
    /// Reasons for rejected and filtered rows, their numbers, and the first row of each.
    pub(crate) rejects: Vec<(String, u64, String)>,
    /// Previous dataset.
    pub(crate) before: Option<Before>,
}

/// Previous dataset.
pub(crate) struct Before {
    pub(crate) fingerprint: Hash128,
    /// Its training split beside the new one.
    pub(crate) drift: Vec<ColumnDrift>,
    /// Columns that only one of the two has.
    pub(crate) gone: Vec<String>,
    pub(crate) new: Vec<String>,
}

impl DatasetPage<'_> {
    pub(crate) fn render(&self) -> String {
        let name = self.manifest.dataset.as_str();
        let body = [
            self.head(),
            self.links(),
            columns::overview(self.profile),
            self.warnings(),
            self.stages(),
            self.rejected(),
            self.unexpected(),
            self.duplicates(),
            self.drift(),
            columns::missing(self.profile),
            columns::all(self.profile, self.artefact),
            self.provenance(),
            DEFINITIONS.to_owned(),
        ];
        document(&format!("Dataset {name}"), &body.concat())
    }

    fn head(&self) -> String {
        let Manifest {
            dataset,
            fingerprint,
            counts,
            ..
        } = self.manifest;
        let kept = counts.train + counts.validation + counts.test;
        let features = counted(self.artefact.features.len() as u64, "feature");
        let read = counts.rows_in;
        let held = match counts.sequence {
            Some(windows) => format!(
                "{} of {}, made of {} read, {} in the shards, as {features} a row.",
                counted(kept, "window"),
                counted(windows.length.into(), "row"),
                counted(read, "row"),
                if kept == 1 { "is" } else { "are" }
            ),
            None => format!(
                "{kept} of {} read {} in the shards, as {features}.",
                counted(read, "row"),
                if kept == 1 { "is" } else { "are" }
            ),
        };
        let shifted = self
            .all_drift()
            .filter(|d| d.drift.shift() == Shift::Strong);
        let names: BTreeSet<String> = shifted.map(|d| d.column).collect();
        let word = match (names.len(), names.first()) {
            (1, Some(name)) => format!("Column {name} shifts strongly; see Drift."),
            (0, _) => "No column shifts strongly.".to_owned(),
            (more, _) => format!("{more} columns shift strongly; see Drift."),
        };
        format!(
            "<h1>Dataset {}</h1>\n<p class=\"quiet\">Fingerprint <code>{fingerprint}</code></p>\n\
             <p class=\"word\">{held} {}</p>\n",
            escape(dataset.as_str()),
            escape(&word)
        )
    }

    /// Links to files of the dataset folder, and to the runs beside it.
    fn links(&self) -> String {
        let Manifest {
            transform,
            profile,
            rejects,
            ..
        } = self.manifest;
        let mut links = vec![
            link(RUNS_PATH, "Runs (after the first training)"),
            link(&transform.path, "Transform"),
        ];
        links.extend(profile.iter().map(|profile| link(&profile.path, "Profile")));
        let rejects = rejects.iter().take(REJECTS).enumerate();
        links.extend(rejects.map(|(i, path)| link(path, &format!("Rejects {}", i + 1))));
        format!("<p class=\"links\">{}</p>\n", links.join(" "))
    }

    /// Renders the warnings of default decisions and the columns that are no features.
    fn warnings(&self) -> String {
        let Manifest {
            warnings,
            dropped_columns,
            ..
        } = self.manifest;
        let mut out = String::new();
        if !warnings.is_empty() {
            let row = |warning: &Warning| {
                let key = warning.key.clone().unwrap_or_default();
                vec![warning.code.clone(), warning.message.clone(), key]
            };
            let rows: Vec<_> = warnings.iter().map(row).collect();
            let caption = "What the build decided by itself and what may not be meant, with the key that changes it.";
            out += "<h2>Warnings</h2>\n";
            out += &table(caption, &["warning", "what", "key"], 0..0, &rows);
        }
        if !dropped_columns.is_empty() {
            let row = |(name, reason): (&String, &String)| vec![name.clone(), reason.clone()];
            let rows: Vec<_> = dropped_columns.iter().map(row).collect();
            let caption = "Columns that landed and are no features although the configuration does not say so.";
            out += "<h2>Columns that are no features</h2>\n";
            out += &table(caption, &["column", "it"], 0..0, &rows);
        }
        out
    }

    /// Rows that are left behind each stage, and the splits.
    fn stages(&self) -> String {
        let counts = &self.manifest.counts;
        let filtered: u64 = counts.filtered.values().sum();
        let rejected: u64 = counts.rejected.values().sum();
        let splits = [
            ("train", counts.train),
            ("validation", counts.validation),
            ("test", counts.test),
        ];
        let kept: u64 = splits.iter().map(|split| split.1).sum();
        let read = counts.rows_in;
        let distinct = read.saturating_sub(counts.duplicates);
        let less = |rows: u64| {
            if rows == 0 {
                String::new()
            } else {
                format!("(-{rows})")
            }
        };
        let held = match counts.sequence {
            Some(_) => "windows in the shards",
            None => "in the shards",
        };
        let stage = |name: &str, rows: u64, note: String| (name.to_owned(), rows, note);
        let stages = [
            stage("read", read, String::new()),
            stage("duplicates dropped", distinct, less(counts.duplicates)),
            stage(
                "left out by choice",
                distinct.saturating_sub(filtered),
                less(filtered),
            ),
            stage("rejected", self.good_rows(), less(rejected)),
            stage(held, kept, String::new()),
        ];
        let share = |(name, rows): &(&str, u64)| {
            (
                (*name).to_owned(),
                *rows,
                format!("({})", percent(*rows, kept)),
            )
        };
        let splits: Vec<_> = splits.iter().map(share).collect();
        format!(
            "<h2>Rows through each stage</h2>\n<div class=\"charts\">\n{}{}</div>\n",
            bars("Rows left behind each stage", &stages),
            bars("Rows of each split", &splits)
        )
    }

    /// Rows that are left behind the last of these stages.
    fn good_rows(&self) -> u64 {
        let counts = &self.manifest.counts;
        let left_out = counts.filtered.values().chain(counts.rejected.values());
        let gone = counts.duplicates + left_out.sum::<u64>();
        counts.rows_in.saturating_sub(gone)
    }

    fn rejected(&self) -> String {
        let mut out = "<h2>Rejected and filtered rows</h2>\n".to_owned();
        if self.rejects.is_empty() {
            return out + "<p>None.</p>\n";
        }
        let row = |(reason, rows, first): &(String, u64, String)| {
            vec![reason.clone(), rows.to_string(), first.clone()]
        };
        let rows: Vec<_> = self.rejects.iter().map(row).collect();
        out += &table(
            "By reason, with the first row in landing order; the files of rejects list all of them.",
            &["reason", "rows", "first"],
            1..2,
            &rows,
        );
        out
    }

    /// Rows that are not as expected and are in the shards all the same.
    fn unexpected(&self) -> String {
        let counts = &self.manifest.counts;
        if counts.unexpected.is_empty() {
            return String::new();
        }
        let row = |(path, rows): (&String, &u64)| {
            // A column may have points in its name, an expectation has none.
            let (column, key) = path.rsplit_once('.').unwrap_or((path, ""));
            let share = percent(*rows, self.good_rows());
            vec![column.to_owned(), key.to_owned(), rows.to_string(), share]
        };
        let rows: Vec<_> = counts.unexpected.iter().map(row).collect();
        let caption = "Rows that violate an expectation and were kept, with their fraction of the rows that were not \
                       rejected or filtered. A row counts for each expectation that it violates.";
        let head = ["column", "expectation", "rows", "share"];
        "<h2>Rows kept that are not as expected</h2>\n".to_owned()
            + &table(caption, &head, 2..4, &rows)
    }

    fn duplicates(&self) -> String {
        let mut out = "<h2>Duplicates</h2>\n".to_owned();
        let Some(copies) = &self.copies else {
            return out
                + "<p>They were not looked for: <code>dataset.dedup</code> is <code>none</code>.</p>\n";
        };
        out += &format!(
            "<p>Dropped as copies of another row: {}. Appeared in several rows: {}.</p>\n",
            counted(self.manifest.counts.duplicates, "row"),
            counted(copies.contents, "content")
        );
        if copies.samples.is_empty() {
            return out;
        }
        let row = |sample: &crate::operators::dedup::duplicate_samples::Sample| {
            vec![
                sample.hash.clone(),
                sample.rows.to_string(),
                self.place(sample.first),
                self.place(sample.last),
            ]
        };
        let rows: Vec<_> = copies.samples.iter().map(row).collect();
        out += &table(
            "Contents that stood in the most rows, and where the first and the last of them landed (source, batch, row).",
            &["content", "rows", "first", "last"],
            1..2,
            &rows,
        );
        out
    }

    fn place(&self, origin: Origin) -> String {
        let source = usize::try_from(origin.source()).ok();
        let source = source.and_then(|i| self.sources.get(i));
        let source = source.map_or_else(|| "?".to_owned(), TableName::to_string);
        format!("{source}, {}, {}", origin.sequence().get(), origin.row())
    }

    fn all_drift(&self) -> impl Iterator<Item = ColumnDrift> {
        let before = self.before.iter().flat_map(|before| before.drift.clone());
        of_splits(self.profile).into_iter().chain(before)
    }

    fn drift(&self) -> String {
        let mut out =
            "<h2>Drift</h2>\n<p>How far the training split is from the other splits".to_owned();
        out += &match &self.before {
            Some(before) => format!(
                ", and from the training split of the previous dataset (<code>{}</code>).</p>\n",
                before.fingerprint
            ),
            None => ".</p>\n".to_owned(),
        };
        if let Some(Before { gone, new, .. }) = &self.before {
            for (word, names) in [("Missing", gone), ("New", new)] {
                if !names.is_empty() {
                    out += &format!("<p>{word} columns: {}.</p>\n", escape(&names.join(", ")));
                }
            }
        }
        for FarOutside {
            column,
            split,
            share,
            train,
        } in far(self.profile)
        {
            let (share, train) = (share * 100.0, train * 100.0);
            out += &format!(
                "<p>Far more of column {} is outside in {split} than in train: {share:.2} %, not {train:.2} %.</p>\n",
                escape(&column)
            );
        }
        let mut all: Vec<ColumnDrift> = self.all_drift().collect();
        if all.is_empty() {
            return out + "<p>There is nothing to compare.</p>\n";
        }
        all.sort_by(|a, b| {
            (b.drift.shift(), b.drift.psi)
                .partial_cmp(&(a.drift.shift(), a.drift.psi))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let row = |found: &ColumnDrift| {
            TableRow::of_text(&[
                found.column.clone(),
                found.with.clone(),
                found.drift.shift().as_str().to_owned(),
                format!("{:.4}", found.drift.js),
                format!("{:.4}", found.drift.psi),
                format!("{:.4}", found.drift.chance),
            ])
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        let head = ["column", "beside", "shift", "JS", "PSI", "by chance"];
        out + &foldable("The strongest first.", &head, 3..6, &rows, AT_ONCE)
    }

    fn provenance(&self) -> String {
        let row = |source: &feedline_schemas::manifest::SourceReference| {
            vec![
                source.name.to_string(),
                source
                    .licence
                    .clone()
                    .unwrap_or_else(|| "not stated".to_owned()),
                source.sequence.get().to_string(),
                source.entry_hash.to_string(),
            ]
        };
        let rows: Vec<_> = self.manifest.sources.iter().map(row).collect();
        format!(
            "<h2>Provenance</h2>\n{}<p class=\"quiet\">Transform <code>{}</code>, fitted on {}. Input hash <code>{}</code>.</p>\n",
            table(
                "What was read, up to which entry of its commit log, and its licence as the configuration states it.",
                &["source", "licence", "log entry", "hash of the entry"],
                2..3,
                &rows
            ),
            self.manifest.transform.hash,
            counted(self.artefact.fitted_rows, "row"),
            self.manifest.input_hash
        )
    }
}

const DEFINITIONS: &str = "<h2>What the figures are</h2>\n\
<p>Cells are counted as they enter the first step: typed, copies dropped, bad rows left out. Histograms and bins follow the \
training split; the other splits are counted in its bins.</p>\n\
<p>JS is the Jensen-Shannon divergence of the shares of cells in each bin, to base 2: 0 is equal, 1 has nothing in common. PSI \
is the population stability index, the sum of (p - q) ln(p / q), with half a cell added to each bin. Bins are those between the \
20-quantiles of the training split, or its 30 most frequent values and all others, and one for missing cells. \
&ldquo;By chance&rdquo; is what the PSI of two samples of one distribution, as large as these, exceeds once in a thousand times: what is \
not above it, or below 0.1, is called none; some up to 0.25; strong above.</p>\n\
<p>Outside are numbers beyond the caps of a column; where it has none, or they are those of groups or of changed numbers, \
beyond the numbers of the training split. Far more is above twice the share of the training split, by more than 1 % of the \
cells and by more than chance makes once in a thousand times.</p>\n";

#[cfg(test)]
mod tests;
