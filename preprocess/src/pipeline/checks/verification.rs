//! Checks of a build: its sources as they landed, the rows that were rejected, and the shards that were written.

use std::collections::BTreeMap;

use datafusion::prelude::SessionContext;
use feedline_schemas::{
    config::{DedupMode, OnViolation},
    manifest::SplitShards,
};

use crate::{
    Error,
    operators::{
        expectations::{self, Violation},
        split::Rule,
    },
    pass_progress::PassProgress,
    pipeline::{count_sums::sums, prepare::Build},
    schema::reject_reason,
    shards::{audit::audit, shard_layout::ShardLayout},
    source::landing_zone::Landed,
    staging::{Staged, rejects::Rejects},
};

/// Checks the number of rows `found` against the `rows` that landed: equal, or fewer where some may
/// be dropped.
fn counted(rows: u64, found: u64, all_stay: bool) -> Result<(), Error> {
    let is_right = found == rows || (found < rows && !all_stay);
    if is_right {
        Ok(())
    } else {
        Err(Error::Miscounted { rows, found })
    }
}

impl Build<'_> {
    pub(in crate::pipeline) async fn verify_sources(&self) -> Result<(), Error> {
        let meter = PassProgress::new(
            &self.context.progress,
            "shards: verify landed files",
            self.input.rows,
        );
        for source in self.input.all_sources() {
            source.verify_files(|rows| meter.add(rows)).await?;
        }
        Ok(())
    }

    /// Checks that files read in place have not changed since they were hashed.
    pub(in crate::pipeline) async fn check_unchanged(&self) -> Result<(), Error> {
        for files in self.input.sources.iter().filter_map(|s| s.in_place.clone()) {
            let check = tokio::task::spawn_blocking(move || files.check_unchanged()).await;
            check??;
        }
        Ok(())
    }

    /// Checks the row count of other machines' results: no row twice and, where all landed rows
    /// stay, none missing. Sends no request to those machines.
    pub(in crate::pipeline) fn check_count(&self, found: u64) -> Result<(), Error> {
        let (config, rows) = (&self.spec.config, self.input.rows);
        let is_all = |table: &Landed| table.newest().0.is_empty();
        let all_stay = config.dedup == DedupMode::None
            && config.conflicts.is_none()
            && self.spec.series.is_none()
            && self.tables().iter().all(is_all);
        if self.context.engine.is_local() {
            return Ok(());
        }
        counted(rows, found, all_stay)
    }

    /// Reports a target without a single number as a mistake in the configuration, not in every
    /// row.
    pub(in crate::pipeline) fn check_target(
        &self,
        staged: &Staged,
        rejects: &Rejects,
    ) -> Result<(), Error> {
        let Some(sample) = rejects
            .first_of(reject_reason::TARGET_NOT_NUMERIC)
            .filter(|_| staged.total() == 0)
        else {
            return Ok(());
        };
        let instead = match self.spec.other_targets.is_empty() {
            true => {
                "name a column of numbers, or set `dataset.task = \"classification\"` to predict it as a class"
            }
            false => "several targets are columns of numbers, name others",
        };
        Err(Error::config(
            "dataset.target",
            format!(
                "column `{}` is not numeric, its first value is `{}`; {instead}",
                sample.column, sample.value
            ),
        ))
    }

    fn advice_on_rejects(&self, by_reason: &BTreeMap<String, u64>) -> String {
        let has_no_time = by_reason.contains_key(reject_reason::NO_SPLIT);
        let advice = match &self.spec.rule {
            Rule::Time(time) if has_no_time => time.advice(),
            _ => None,
        };
        let advice = advice.or_else(|| advice_on_missing_texts(by_reason));
        let has = |reason: &str| by_reason.contains_key(reason);
        advice.unwrap_or_else(|| {
            let advice = if has(reject_reason::MISSING_KEY) {
                "correct the source, make each row without a key a group of its own with `dataset.split.missing_key = \
                 \"own\"`, or raise the limit"
            } else if has(reject_reason::TIME_UNREADABLE) {
                self.advice_on_times()
            } else if has(reject_reason::INTEGER_TOO_LARGE) {
                "64-bit floats do not hold all integers beyond 2^53: list a column of codes in `dataset.categorical`, or one \
                 that is no feature in `dataset.drop`, correct the source, or raise the limit"
            } else {
                "correct the source or raise the limit"
            };
            advice.to_owned()
        })
    }

    /// Advice on times that cannot be read: numbers have a unit, and strings a format.
    fn advice_on_times(&self) -> &'static str {
        let series = self.spec.config.series.as_ref();
        match series.and_then(|series| series.unit) {
            Some(_) => {
                "`dataset.series.unit` is the unit since 1970 of all numbers of the time (`s`, `ms`, `us` or `ns`): give the one \
                 that they have, convert those in another unit, such as with `dataset.sql`, correct the source, or raise the limit"
            }
            None => {
                "say how times are written with `dataset.series.format` and `zone` (without them they are ISO 8601 in UTC), \
                 correct the source, or raise the limit"
            }
        }
    }

    pub(in crate::pipeline) async fn check_rejects(
        &self,
        session: &SessionContext,
        rejects: &Rejects,
        rows: u64,
    ) -> Result<(), Error> {
        let limit = self.spec.max_reject_fraction;
        let by_reason = sums(&self.previous.counts.rejected, &rejects.rejected());
        let rejected: u64 = by_reason.values().sum();
        let rows = self.previous.counts.rows + rows;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
        let share = rejected as f64 / rows.max(1) as f64;
        if share <= limit {
            return Ok(());
        }
        // A build that stops for them does so at any share, so the limit would be raised for nothing.
        self.check_expected(session, &[], rejects).await?;
        let files = rejects
            .publish(session, &self.store, &self.input.names)
            .await?;
        Err(Error::TooManyRejects {
            advice: self.advice_on_rejects(&by_reason),
            rejected,
            rows,
            limit,
            by_reason,
            sample: rejects.sample(&self.input.names).unwrap_or_default(),
            file: files
                .first()
                .map_or_else(String::new, |path| self.store.url_of(path)),
        })
    }

    /// Rows that were rejected for each of several targets.
    pub(in crate::pipeline) fn rejected_targets(&self, rejects: &Rejects) -> BTreeMap<String, u64> {
        match self.spec.other_targets.is_empty() {
            true => BTreeMap::new(),
            false => rejects.by_target().clone(),
        }
    }

    /// Rows that violate expectations and are kept with a warning, by column and expectation.
    pub(in crate::pipeline) async fn unexpected(
        &self,
        session: &SessionContext,
        staged: &Staged,
        rejects: &Rejects,
    ) -> Result<BTreeMap<String, u64>, Error> {
        let Some(expect) = &self.spec.expect else {
            return Ok(BTreeMap::new());
        };
        let found = expectations::violations(staged, expect).await?;
        if expect.on_violation == OnViolation::Warn {
            for Violation { path, rows, sample } in &found {
                tracing::warn!(path, rows, sample, file = %expect.url, "data are not as expected");
            }
            return Ok(found.into_iter().map(|v| (v.path, v.rows)).collect());
        }
        self.check_expected(session, &found, rejects).await?;
        Ok(BTreeMap::new())
    }

    /// Fails on a violated column in `found`, or a rejected row, where expectations stop the build.
    pub(in crate::pipeline) async fn check_expected(
        &self,
        session: &SessionContext,
        found: &[Violation],
        rejects: &Rejects,
    ) -> Result<(), Error> {
        let Some(expect) = &self.spec.expect else {
            return Ok(());
        };
        let reasons = rejects.firsts(&self.input.names).into_iter();
        let rows = reasons.filter(|(reason, ..)| reject_reason::is_expected(reason));
        let rows: Vec<_> = rows.collect();
        if found.is_empty() && (rows.is_empty() || expect.on_violation.is_reject()) {
            return Ok(());
        }
        let columns = found
            .iter()
            .map(|Violation { path, sample, .. }| format!("`{path}`: {sample}"));
        let all = rows.iter().map(|row| row.1).sum::<u64>();
        let files = rejects
            .publish(session, &self.store, &self.input.names)
            .await?;
        let rows = rows
            .iter()
            .map(|(reason, rows, first)| format!("{reason}: {rows}, first: {first}"));
        let file = files.first().map(|path| self.store.url_of(path));
        Err(Error::Unexpected {
            rows: all,
            what: columns.chain(rows).collect(),
            expectations: expect.url.clone(),
            file,
        })
    }

    /// Reads back what was written, before anything names it.
    pub(in crate::pipeline) async fn audit(
        &self,
        splits: &[SplitShards],
        layout: &ShardLayout,
    ) -> Result<(), Error> {
        let total = splits.iter().map(|s| s.rows).sum();
        let meter = PassProgress::new(&self.context.progress, "shards: audit", total);
        let findings = audit(
            &self.store,
            splits,
            |split| layout.schema(split),
            |rows| meter.add(rows),
        )
        .await?;
        if let Some(problem) = findings.problems.first() {
            return Err(Error::input(
                format!("the shards just written to `{}`", self.store.url()),
                problem.clone(),
                "the store does not return what was stored: check it, then build again",
            ));
        }
        match findings.leaked {
            0 => Ok(()),
            parts if self.cuts_documents() => Err(equal_parts(parts, &findings.leaks)),
            keys => Err(Error::Leak {
                keys,
                samples: findings.leaks,
            }),
        }
    }
}

/// Advice where most rejected rows have no text.
fn advice_on_missing_texts(by_reason: &BTreeMap<String, u64>) -> Option<String> {
    let without = *by_reason.get(reject_reason::NO_TEXT)?;
    let all: u64 = by_reason.values().sum();
    (without > all / 2).then(|| {
        format!(
            "{without} of the {all} have a missing, empty or blank text (`no_text`): leave such rows out in the source or with a \
             condition in `dataset.sql`, or raise the limit"
        )
    })
}

/// Error for documents whose division gives `parts` equal parts in several splits.
fn equal_parts(parts: u64, samples: &[String]) -> Error {
    let (parts, have) = match parts {
        1 => ("1 part".to_owned(), "has"),
        _ => (format!("{parts} parts"), "have"),
    };
    let reason = format!(
        "it is `range`, which divides each document, and {parts} of documents {have} the same text in more than one split \
         ({}); nothing was published; short documents, and documents that begin or end alike, cannot be divided: set \
         `dataset.split.by = \"key\"`, which keeps documents together, or land them as one long document",
        samples.join(", ")
    );
    Error::config("dataset.split.by", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_other_machines_are_counted() {
        for (rows, found, all_stay, is_right) in [
            (5, 5, true, true),
            (5, 5, false, true),
            (5, 4, false, true),
            (5, 0, false, true),
            (5, 4, true, false),
            (5, 6, true, false),
            (5, 6, false, false),
            (0, 1, false, false),
        ] {
            let message = format!(
                "the cluster returned {found} rows of the {rows} that landed, before duplicates were dropped; nothing was published; this \
                 is a defect of feedline or the cluster: build again, or with `--engine local`"
            );
            let counted = counted(rows, found, all_stay).map_err(|error| error.to_string());
            let expected = if is_right { Ok(()) } else { Err(message) };
            assert_eq!(counted, expected);
        }
    }
}
