//! Report of a build and of the expectations it infers.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use feedline_schemas::{
    manifest::{
        BoxCounts, ConflictCounts, GroupCounts, JoinCounts, NaiveForecast, NearDupCounts,
        NearImageCounts, RedactedCounts, SequenceCounts, Split,
    },
    report::{AddedReport, DatasetReport, ExpectReport},
    units::ByteSize,
};

use super::{
    dataset,
    severity::EARLIER,
    text::{
        Text, counted, grouped, grouped_as, line, number, write_reasons, write_rejects,
        write_warnings_of,
    },
};

pub(super) fn write_filtered(
    reasons: &BTreeMap<String, u64>,
    sample: Option<&str>,
    near_dup: Option<&NearDupCounts>,
    redacted: Option<&RedactedCounts>,
    out: &mut String,
) -> fmt::Result {
    write_reasons("  left out", reasons, sample, out)?;
    if let Some(found) = redacted {
        let text = format!(
            "{}, {}, {}",
            counted(found.emails, "e-mail address"),
            counted(found.phones, "telephone number"),
            counted(found.cards, "card")
        );
        line(out, "redacted", text)?;
    }
    match near_dup {
        None => Ok(()),
        Some(found) => line(
            out,
            "near copies",
            format!(
                "{} among {}, the largest of {}; bands of {} x {}",
                counted(found.clusters, "cluster"),
                counted(found.documents, "document"),
                found.largest,
                found.bands,
                found.rows
            ),
        ),
    }
}

/// Writes the counts of accepted rows that violate an expectation, by column and expectation.
pub(super) fn write_unexpected(by_path: &BTreeMap<String, u64>, out: &mut String) -> fmt::Result {
    write_reasons("  unexpected", by_path, None, out)
}

pub(super) fn write_conflicts(
    conflicts: Option<ConflictCounts>,
    groups: Option<GroupCounts>,
    out: &mut String,
) -> fmt::Result {
    if let Some(ConflictCounts { contents, rows }) = conflicts {
        let text = format!(
            "{} with several targets, in {}",
            counted(contents, "content"),
            counted(rows, "row")
        );
        line(out, "conflicts", text)?;
    }
    if let Some(found) = groups {
        let text = format!(
            "{} train, {} validation, {} test, the largest of {}",
            found.train,
            found.validation,
            found.test,
            counted(found.largest, "row")
        );
        line(out, "groups", text)?;
    }
    Ok(())
}

pub(super) fn write_joins(joins: &[JoinCounts], out: &mut String) -> fmt::Result {
    for join in joins {
        let JoinCounts {
            source,
            matched,
            unmatched,
            unused,
        } = join;
        let text = format!(
            "`{source}`: {} matched, {unmatched} did not; {unused} of its rows unused",
            counted(*matched, "row")
        );
        line(out, "joined", text)?;
    }
    Ok(())
}

pub(super) fn write_windows(
    windows: Option<&SequenceCounts>,
    naive: &[NaiveForecast],
    out: &mut String,
) -> fmt::Result {
    let Some(found) = windows else { return Ok(()) };
    let text = format!(
        "{} of {} each; of the other rows {} lack a whole window and {} the stride leaves out",
        found.windows,
        counted(found.length.into(), "row"),
        found.incomplete,
        found.skipped
    );
    line(out, "windows", text)?;
    for forecast in naive {
        let text = format!(
            "{}, {} before: {}",
            forecast.method.as_str(),
            counted(forecast.lag.into(), "row"),
            naive_errors(forecast, naive)
        );
        line(out, "naive", text)?;
    }
    Ok(())
}

/// Errors of a naive forecast on each split, with its windows where another one of `all` is known for more.
fn naive_errors(forecast: &NaiveForecast, all: &[NaiveForecast]) -> String {
    let errors = Split::ALL.into_iter().filter_map(|split| {
        let known = all.iter().filter_map(|one| one.splits.get(&split));
        let most = known.map(|metrics| metrics.windows).max()?;
        Some(match forecast.splits.get(&split) {
            None => format!("{split} known for none of {}", counted(most, "window")),
            Some(metrics) if metrics.windows < most => format!(
                "{split} rmse {:.6} (known for {} of {})",
                metrics.rmse,
                metrics.windows,
                counted(most, "window")
            ),
            Some(metrics) => format!("{split} rmse {:.6}", metrics.rmse),
        })
    });
    errors.collect::<Vec<_>>().join(", ")
}

pub(super) fn write_images(
    near: Option<&NearImageCounts>,
    boxes: Option<&BoxCounts>,
    out: &mut String,
) -> fmt::Result {
    if let Some(found) = near {
        let text = format!(
            "{} among {}, the largest of {}; bands of {} x {}",
            counted(found.clusters, "cluster"),
            counted(found.images, "image"),
            found.largest,
            found.bands,
            found.bits
        );
        line(out, "near images", text)?;
    }
    if let Some(boxes) = boxes {
        let text = format!(
            "{} in the images, {} outside of them",
            boxes.kept, boxes.lost
        );
        line(out, "boxes", text)?;
    }
    Ok(())
}

impl Text for DatasetReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let what = match (&self.added, &self.anew) {
            _ if self.up_to_date => " (nothing new: kept as it was)".to_owned(),
            (Some(_), _) => " (what has landed since was added)".to_owned(),
            (None, Some(why)) => format!(" (rebuilt and refitted: {why})"),
            (None, None) => String::new(),
        };
        writeln!(out, "dataset{what}")?;
        line(
            out,
            "rows",
            format!(
                "{} read, {} dropped, {} rejected",
                grouped(self.rows_in),
                grouped_as(self.duplicates, "duplicate"),
                grouped(self.rejected)
            ),
        )?;
        write_rejects(&self.rejected_by_reason, self.reject_sample.as_deref(), out)?;
        dataset::write_rejected_targets(&self.rejected_targets, out)?;
        write_filtered(
            &self.filtered,
            self.reject_sample.as_deref(),
            self.near_dup.as_ref(),
            self.redacted.as_ref(),
            out,
        )?;
        write_unexpected(&self.unexpected, out)?;
        write_conflicts(self.conflicts, self.groups, out)?;
        write_joins(&self.joins, out)?;
        dataset::write_unwarned(&self.dropped_columns, &self.warnings, out)?;
        write_images(self.near_images.as_ref(), self.boxes.as_ref(), out)?;
        write_windows(self.sequence.as_ref(), &self.naive, out)?;
        let of = match self.up_to_date {
            true => EARLIER,
            false => "",
        };
        write_warnings_of(of, &self.warnings, out)?;
        line(
            out,
            "split",
            format!(
                "{} train, {} validation, {} test",
                grouped(self.train),
                grouped(self.validation),
                grouped(self.test)
            ),
        )?;
        if let Some(tokens) = &self.tokens {
            line(
                out,
                "tokens",
                format!(
                    "{} train, {} validation, {} test, {} of them unknown",
                    grouped(tokens.train),
                    grouped(tokens.validation),
                    grouped(tokens.test),
                    grouped(tokens.unknown)
                ),
            )?;
        }
        if let Some(cut) = self.cut.filter(|cut| cut.rows > 0) {
            let (tokens, texts) = (counted(cut.tokens, "token"), counted(cut.rows, "text"));
            let text = format!("{tokens}, off the ends of {texts}");
            line(out, "cut off", text)?;
        }
        line(
            out,
            "shards",
            format!("{} in {}", self.shards, ByteSize::new(self.bytes)),
        )?;
        if let Some(added) = &self.added {
            write_added(added, out)?;
        }
        line(out, "fingerprint", &self.fingerprint)?;
        if let Some(report) = &self.report {
            line(out, "report", report)?;
        }
        line(out, "dataset", &self.url)
    }
}

fn write_added(added: &AddedReport, out: &mut String) -> fmt::Result {
    line(
        out,
        "added",
        format!(
            "{} read, {} dropped, {} rejected; {} train, {} validation, {} test in {}, {} kept",
            added.rows_in,
            counted(added.duplicates, "duplicate"),
            added.rejected,
            added.train,
            added.validation,
            added.test,
            counted(added.shards, "shard"),
            counted(added.kept_shards, "shard")
        ),
    )?;
    if added.equal_rows_not_compared {
        let text = "rows that equal an earlier one of another split in all that a model sees, such as under another id, were not \
                    looked for; `feedline shards build --refit` does, over all rows (`equal_rows`)";
        line(out, "  unchecked", text)?;
    }
    for shift in &added.shifts {
        let text = format!(
            "{}: mean {} where it was {} in the shards, after all steps, {} deviations of the earlier rows away; `--refit` \
             fits it again",
            shift.feature,
            number(shift.after),
            number(shift.before),
            shift.deviations_text()
        );
        line(out, "  shifted", text)?;
    }
    Ok(())
}

impl Text for ExpectReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        line(out, "columns", self.columns.to_string())?;
        line(out, "expectations", &self.file)
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        manifest::{NaiveMethod, NaiveMetrics},
        report::{FeatureShift, Warning},
    };

    use super::*;

    #[test]
    fn a_naive_forecast_that_is_known_for_fewer_windows_has_their_number() {
        let forecast = |method, lag, splits: &[(Split, u64)]| NaiveForecast {
            method,
            lag,
            splits: splits
                .iter()
                .map(|(split, windows)| {
                    let metrics = NaiveMetrics {
                        windows: *windows,
                        rmse: 2.0,
                        mae: 1.0,
                        r2: None,
                    };
                    (*split, metrics)
                })
                .collect(),
        };
        let all = [
            (Split::Train, 400),
            (Split::Validation, 124),
            (Split::Test, 132),
        ];
        let naive = [
            forecast(NaiveMethod::LastValue, 30, &all),
            forecast(
                NaiveMethod::Seasonal,
                168,
                &[(Split::Train, 400), (Split::Test, 37)],
            ),
        ];
        let mut out = String::new();
        write_windows(Some(&SequenceCounts::default()), &naive, &mut out).unwrap();
        for part in [
            "last_value, 30 rows before: train rmse 2.000000, validation rmse 2.000000, test rmse 2.000000\n",
            "seasonal, 168 rows before: train rmse 2.000000, validation known for none of 124 windows, test rmse 2.000000 (known \
             for 37 of 132 windows)\n",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }

    #[test]
    fn an_append_says_that_equal_rows_were_not_looked_for() {
        let text = |equal_rows_not_compared| {
            let added = AddedReport {
                equal_rows_not_compared,
                ..AddedReport::default()
            };
            let mut out = String::new();
            write_added(&added, &mut out).unwrap();
            out
        };
        assert!(text(true).contains("were not looked for; `feedline shards build --refit` does"));
        assert!(!text(false).contains("unchecked"));
    }

    #[test]
    fn shifted_means_have_their_units() {
        let shift = |feature: &str, deviations: f64| FeatureShift {
            feature: feature.to_owned(),
            before: 0.5,
            after: 72.5,
            deviations,
        };
        let added = AddedReport {
            shifts: vec![shift("area", 72.0), shift("rooms", -1000.0)],
            ..AddedReport::default()
        };
        let mut out = String::new();
        write_added(&added, &mut out).unwrap();
        for part in [
            "area: mean 72.50000 where it was 0.50000 in the shards, after all steps, ",
            ", 72.00 deviations of the earlier rows away; ",
            "rooms: mean 72.50000 where it was 0.50000 in the shards, after all steps, over 1,000 deviations of",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }

    #[test]
    fn warnings_of_a_dataset_that_was_kept_are_those_of_the_earlier_build() {
        let text = |up_to_date| {
            let report = DatasetReport {
                up_to_date,
                warnings: vec![
                    Warning::new("mixed_types", "`m` is mixed").with_key("dataset.drop"),
                ],
                ..DatasetReport::default()
            };
            let mut out = String::new();
            report.write(&mut out).unwrap();
            let mut lines = out.lines().filter(|line| line.starts_with("    warning"));
            lines.next().unwrap_or_default().to_owned()
        };
        let warning = "mixed types: `m` is mixed; see `dataset.drop`";
        assert_eq!(text(false), format!("    warning        {warning}"));
        let earlier = format!("    warning        of the earlier build: {warning}");
        assert_eq!(text(true), earlier);
    }

    #[test]
    fn an_example_follows_its_own_reason() {
        let counts = |reasons: &[&str]| {
            let reasons = reasons.iter().map(|reason| ((*reason).to_owned(), 2));
            reasons.collect::<BTreeMap<String, u64>>()
        };
        let (rejected, filtered) = (counts(&["a", "b"]), counts(&["c"]));
        let text = |sample: &str| {
            let mut out = String::new();
            write_rejects(&rejected, Some(sample), &mut out).unwrap();
            write_filtered(&filtered, Some(sample), None, None, &mut out).unwrap();
            let lines = out.lines().map(|line| line.split_whitespace().last());
            lines.flatten().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text("`a`: x"), "a x b c");
        let line = "{\"row\":1,\"reason\":\"c\"}";
        assert_eq!(text(line), format!("a b c {line}"));
        assert_eq!(text("`other`: x"), "a b c");
    }
}
