//! Checks of the splits of a build against the configuration.

use std::collections::BTreeMap;

use datafusion::prelude::SessionContext;
use feedline_schemas::{
    config::{DedupMode, SplitBy, SplitConfig},
    count::counted,
    manifest::{DatasetCounts, GroupCounts, Split},
    report::Warning,
};

use crate::{
    Error,
    operators::split::{self, Rule, SplitSizes, time_order},
    pipeline::{count_sums::sums, prepare::Build},
    schema::reject_reason,
    staging::{Staged, rejects::Rejects},
    warnings,
};

impl Build<'_> {
    /// Fails if a split is empty against the configuration. `fell` counts the rows of each split
    /// before the last rejections.
    pub(in crate::pipeline) fn check_splits(
        &self,
        rows: [u64; 3],
        fell: Option<[u64; 3]>,
        rejects: &Rejects,
    ) -> Result<(), Error> {
        self.check_named(rows, fell, rejects)?;
        let config = &self.spec.config.split;
        let shares = [config.train, config.validation, config.test];
        let [train, validation, test] = rows;
        if config.by.is_named() || !config.until().is_empty() {
            return Ok(());
        }
        let splits = Split::ALL.into_iter().zip(shares).zip(rows);
        let mut empty = splits.filter(|((_, share), found)| *share > 0.0 && *found == 0);
        let Some(((split, share), _)) = empty.next() else {
            return Ok(());
        };
        Err(Error::EmptySplit {
            split,
            share,
            rows: train + validation + test,
            train,
            validation,
            test,
            left_out: left_out(rejects),
            advice: self.advice_on_empty(rows == [0; 3], rejects),
        })
    }

    /// Advice on an empty split; `is_none` says that all splits are empty.
    fn advice_on_empty(&self, is_none: bool, rejects: &Rejects) -> String {
        let config = &self.spec.config.split;
        let is_text = self.spec.config.kind.is_text();
        let filtered = rejects.filtered();
        let by_rule = split::advice_on(&filtered);
        match config.key.as_slice() {
            _ if is_none && filtered.contains_key(reject_reason::CONFLICTING_TARGET) => {
                "keep one row of those that differ in the target alone with `dataset.conflicts = \"first\"` or \
                 `\"majority\"`"
                    .to_owned()
            }
            _ if is_none && !left_out(rejects).is_empty() => {
                "correct the source, or the keys that leave them out".to_owned()
            }
            _ if by_rule.is_some() => by_rule.unwrap_or_default().to_owned(),
            [] if is_text && config.by.is_key() => {
                "land more documents, or divide each into one part per split with `dataset.split.by = \"range\"`"
                    .to_owned()
            }
            [] => "land more rows, or give this split a larger share or none".to_owned(),
            key => format!(
                "`{}` has too few distinct values to fill every split: split by a finer key, land more, or give \
                 this split a share of 0",
                key.join("`, `")
            ),
        }
    }

    /// Returns true if `split` must have rows where no fraction is configured.
    fn expects_rows(&self, split: Split) -> bool {
        match &self.spec.rule {
            Rule::Time(time) => time.expects(split).unwrap_or(false),
            Rule::Named(_) => split == Split::Train,
            Rule::Hash | Rule::Range => split == Split::Test,
        }
    }

    /// Checks splits without a configured fraction: training needs rows, and so does a split with a
    /// given boundary or source.
    fn check_named(
        &self,
        rows: [u64; 3],
        fell: Option<[u64; 3]>,
        rejects: &Rejects,
    ) -> Result<(), Error> {
        let config = &self.spec.config.split;
        let [train, validation, test] = rows;
        let Some((key, what)) = named_by(config) else {
            return Ok(());
        };
        let by_rule = split::advice_on(&rejects.filtered());
        let what = by_rule.map_or(what, |_| "none between its boundaries is left");
        let advice = by_rule.map_or_else(String::new, |advice| format!("; {advice}"));
        for (split, found) in Split::ALL.into_iter().zip(rows) {
            if found == 0 && self.expects_rows(split) {
                let rows = train + validation + test;
                let reason = format!(
                    "the {split} split has no row: {what}, of {} that fell as {train} train, {validation} validation, {test} \
                     test{}{advice}",
                    counted(rows, "row"),
                    left_out(rejects)
                );
                return Err(Error::config(format!("dataset.split.{key}"), reason));
            }
            if found == 0 && matches!(self.spec.rule, Rule::Named(_)) {
                let fell = fell.map(|fell| fell[usize::from(split::code(split))]);
                if let Some(why) = why_empty(split, fell, rejects) {
                    tracing::warn!("{why}");
                }
            }
        }
        Ok(())
    }

    /// With a split key, rows of one key must share a split; content is audited in the shards. Returns how many groups there
    /// are, where a tolerance asks for them, and warnings of rows without a key, of many rows that the split left out, and of a
    /// split that misses its share.
    pub(in crate::pipeline) async fn check_groups(
        &self,
        session: &SessionContext,
        staged: &Staged,
        rejects: &Rejects,
    ) -> Result<(Option<GroupCounts>, Vec<Warning>), Error> {
        let config = &self.spec.config.split;
        let mut counts = None;
        if !config.key.is_empty() {
            let found = staged.groups().await?;
            if found.leaked > 0 {
                return Err(self.torn(session, &found).await);
            }
            let [train, validation, test] = found.splits;
            counts = Some(GroupCounts {
                train,
                validation,
                test,
                largest: found.largest,
            });
        }
        // Each divided document has a part in every split, so the rows say nothing about fractions.
        let mut found: Vec<Warning> = self.missing_keys(staged).await?.into_iter().collect();
        if !self.cuts_documents() {
            let filtered = rejects.filtered();
            let distinct = self.kept(staged) + rejects.all();
            found.extend(warnings::rows_left_out(&filtered, distinct, &config.key));
            let rows = Split::ALL.map(|split| staged.rows(split));
            found.extend(self.missed_share(rows, counts, &filtered)?);
        }
        Ok((counts.filter(|_| config.tolerance.is_some()), found))
    }

    /// Warns of a split of a series by range that trains on rows later than those of validation and test.
    pub(in crate::pipeline) async fn range_not_by_time(
        &self,
        staged: &Staged,
    ) -> Result<Option<Warning>, Error> {
        let is_range = matches!(self.spec.rule, Rule::Range);
        let Some(series) = self.spec.series.as_ref().filter(|_| is_range) else {
            return Ok(None);
        };
        let later = Box::pin(time_order::count_later_rows(staged)).await?;
        let [train, validation, test] =
            [Split::Train, Split::Validation, Split::Test].map(|split| staged.rows(split));
        let rows = [train, validation + test];
        Ok(warnings::range_not_by_time(&series.time, &later, rows))
    }

    /// Warns of a split of the dataset of `counts`, rows appended to it included, that misses its
    /// share.
    pub(in crate::pipeline) fn missed_share_of_all(
        &self,
        counts: &DatasetCounts,
    ) -> Result<Option<Warning>, Error> {
        let rows = [counts.train, counts.validation, counts.test];
        // No append counts the groups of all rows.
        self.missed_share(rows, None, &counts.filtered)
    }

    /// Warns of a split that misses its share of `rows`, in the order of [`Split::ALL`]. `filtered`
    /// counts the rows that the configuration left out, by reason.
    fn missed_share(
        &self,
        rows: [u64; 3],
        groups: Option<GroupCounts>,
        filtered: &BTreeMap<String, u64>,
    ) -> Result<Option<Warning>, Error> {
        let left_out = |reason: &str| filtered.get(reason).copied().unwrap_or(0);
        let sizes = SplitSizes {
            rows,
            groups,
            keeps_copies: self.spec.config.dedup == DedupMode::None,
            straddling: left_out(reject_reason::GROUP_STRADDLES),
            embargoed: left_out(reject_reason::EMBARGO),
        };
        split::check_shares(&self.spec.config.split, sizes)
    }

    /// Warns of rows that have no key, unless the configuration says what they are.
    pub(in crate::pipeline) async fn missing_keys(
        &self,
        staged: &Staged,
    ) -> Result<Option<Warning>, Error> {
        let split = &self.spec.config.split;
        if split.key.is_empty() || split.missing_key.is_some() || self.cuts_documents() {
            return Ok(None);
        }
        let rows = Box::pin(staged.without_key()).await?;
        Ok(warnings::missing_keys(rows, staged.total(), &split.key))
    }
}

/// Key of a split that is given by names or boundaries, and why one of its splits may be empty.
fn named_by(config: &SplitConfig) -> Option<(&'static str, &'static str)> {
    match &config.by {
        _ if config.frozen().is_some() => {
            Some(("frozen", "this source leaves none that can be used"))
        }
        SplitBy::Expression(_) => Some(("expression", "it names none")),
        SplitBy::Column(_) => Some(("column", "it names none")),
        SplitBy::Time { until, .. } if !until.is_empty() => {
            Some(("until", "none is between its boundaries"))
        }
        _ => None,
    }
}

/// Message for an empty split that rows name, with `fell` rows before the last rejections; `None`
/// if it was logged then.
pub(in crate::pipeline) fn why_empty(
    split: Split,
    fell: Option<u64>,
    rejects: &Rejects,
) -> Option<String> {
    let left_out = left_out(rejects);
    match fell {
        Some(0) => None,
        Some(1) => Some(format!(
            "the {split} split is empty: its one row was rejected{left_out}"
        )),
        Some(fell) => Some(format!(
            "the {split} split is empty: all {fell} rows of it were rejected{left_out}"
        )),
        None if left_out.is_empty() => {
            Some(format!("the {split} split is empty: nothing names it"))
        }
        None => Some(format!(
            "the {split} split is empty: nothing names it, or all rows that do were rejected{left_out}"
        )),
    }
}

/// Number of rows in no split, with the reasons; empty if every row has a split.
fn left_out(rejects: &Rejects) -> String {
    let by_reason = sums(&rejects.rejected(), &rejects.filtered());
    let by_reason = by_reason
        .iter()
        .map(|(reason, rows)| format!("{rows} as `{reason}`"));
    match by_reason.collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        by_reason => format!(
            ", and {} were left out ({})",
            rejects.all(),
            by_reason.join(", ")
        ),
    }
}
