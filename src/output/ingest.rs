//! Reports of ingest.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use feedline_ingest::Suggestion;
use feedline_schemas::{
    amendment::{AmendReport, CompactionReport, SettingChange, SettingsChanged},
    commit::Noted,
    count::first_of,
    lease::LastRun,
    report::{
        Damage, IngestReport, LandingVerifyReport, RepairReport, RepairedSource, ResumeReport,
        SlicesReport, SourceReport, Standing, VerifiedSource,
    },
};

use super::{
    cursors::{show_value_cursors, span},
    delta::write_tables,
    source_warnings::write_source_warnings,
    text::{
        Text, counted, counted_as, grouped, grouped_as, line, shortened, signed, when,
        write_rejects, write_rejects_with_keys,
    },
};

impl Text for IngestReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let stopped = if self.stopped {
            ", stopped as asked: the next run resumes from there"
        } else {
            ""
        };
        writeln!(out, "ingest{stopped}")?;
        for source in &self.sources {
            write_source(source, out)?;
        }
        line(
            out,
            "requests",
            format!(
                "{} ({} retried)",
                grouped(self.requests),
                grouped(self.retries)
            ),
        )?;
        line(out, "landing zone", &self.url)
    }
}

impl Text for ResumeReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "resume")?;
        for source in &self.sources {
            let text = match source.lifted_until_unix_s {
                Some(until) => format!(
                    "its deferral until {} is ended: run `feedline ingest`",
                    when(signed(until))
                ),
                None => "not deferred: nothing is changed".to_owned(),
            };
            line(out, &source.name, text)?;
        }
        Ok(())
    }
}

impl Text for RepairReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "repair{}",
            if self.dry_run {
                " (nothing is changed)"
            } else {
                ""
            }
        )?;
        for source in &self.sources {
            let RepairedSource {
                kept, rows, pages, ..
            } = source;
            let good = format!(
                "{} with {} of {} are good",
                counted(*kept, "entry"),
                counted(*rows, "row"),
                pages_or_files(*pages)
            );
            let (restored, unnamed) = (&source.restored, source.unnamed);
            if let Some(first) = restored.first() {
                let done = if self.dry_run {
                    "would be restored"
                } else {
                    "were restored"
                };
                let text = format!(
                    "{} that were lost or damaged {done} from copies, such as `{first}`",
                    counted(restored.len() as u64, "file")
                );
                line(out, &source.name, text)?;
            }
            if unnamed > 0 {
                let text = format!(
                    "{} that no entry names, below {}",
                    counted(unnamed, "file"),
                    if source.url.is_empty() {
                        "`orphans/`"
                    } else {
                        &source.url
                    }
                );
                line(out, "  moved", text)?;
            }
            let Some(damage) = &source.damage else {
                line(out, &source.name, format!("the log is intact: {good}"))?;
                continue;
            };
            let set_aside = counted(source.set_aside, "entry");
            let again = format!(
                "{} of {}, which the next run requests again: rows that the source no longer has are lost",
                counted(source.rows_set_aside, "row"),
                pages_or_files(source.pages_set_aside)
            );
            line(out, &source.name, format!("damaged: {damage}"))?;
            line(out, "  kept", good)?;
            if self.dry_run {
                line(
                    out,
                    "  would go",
                    format!("{set_aside} after them; rerun without `--dry-run`"),
                )?;
                line(out, "  with them", again)?;
            } else {
                line(
                    out,
                    "  moved away",
                    format!("{set_aside}, in {}", source.url),
                )?;
                line(out, "  with them", again)?;
                line(
                    out,
                    "  next",
                    "run `feedline ingest`: it re-reads their records",
                )?;
            }
        }
        Ok(())
    }
}

/// Most damaged files in the text output; `--json` has all.
const SHOWN_DAMAGE: usize = 10;

impl Text for LandingVerifyReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "verify")?;
        for source in &self.sources {
            let VerifiedSource {
                entries,
                files,
                bytes,
                rows,
                ..
            } = source;
            let state = if source.damage.is_empty() {
                "intact"
            } else {
                "damaged"
            };
            let good = format!(
                "{state}: {} with {} and {} of {bytes} bytes are good",
                counted(*entries, "entry"),
                counted(*rows, "row"),
                counted(*files, "file")
            );
            line(out, &source.name, good)?;
            write_damage(&source.damage, out)?;
            if let Some(first) = source.unnamed.first() {
                let count = counted(source.unnamed.len() as u64, "file");
                let text = format!(
                    "{count} that no entry names, such as `{first}`: of a run in progress or a killed one; the next run moves them to `orphans/`"
                );
                line(out, "  unnamed", text)?;
            }
            if source.orphans > 0 {
                let count = counted(source.orphans, "file");
                line(
                    out,
                    "  orphans",
                    format!("{count} that nothing needs, in {}/orphans", source.url),
                )?;
            }
        }
        Ok(())
    }
}

fn write_damage(damage: &[Damage], out: &mut String) -> fmt::Result {
    for Damage {
        path,
        entry,
        reason,
    } in damage.iter().take(SHOWN_DAMAGE)
    {
        line(
            out,
            "  damaged",
            format!("`{path}` (entry {entry}): {reason}"),
        )?;
    }
    match damage.len().saturating_sub(SHOWN_DAMAGE) {
        0 => {}
        more => line(out, "", format!("and {more} more"))?,
    }
    if damage.is_empty() {
        return Ok(());
    }
    // The next run writes these, and a repair does not read them.
    let is_of_values = |damage: &Damage| {
        let mut folders = ["values/", "cursors/"].into_iter();
        folders.any(|folder| damage.path.starts_with(folder))
    };
    let next = match damage.iter().all(is_of_values) {
        true => "run `feedline ingest`, or restore them from a copy",
        false => "restore them from a copy, or see `feedline ingest repair --dry-run`",
    };
    line(out, "  next", next)
}

impl Text for AmendReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let untouched = if self.dry_run {
            " (nothing is changed)"
        } else {
            ""
        };
        writeln!(out, "{} of {}{untouched}", self.command, self.source)?;
        if let Some(sequence) = self.sequence {
            line(out, "log entry", sequence.to_string())?;
        }
        if self.command == "retry-rejects" {
            let Self {
                rejected,
                landed,
                duplicates,
                still_rejected,
                ..
            } = self;
            let text = format!(
                "{}: {landed} land, {duplicates} have landed before, {still_rejected} are still rejected",
                counted(*rejected, "rejected record")
            );
            line(out, "read again", text)?;
        } else if let Some(compacted) = &self.compacted {
            write_compaction(compacted, out)?;
        } else if !self.batches.is_empty() {
            let text = format!(
                "{} in {} of the log, {} bytes",
                counted(self.rows, "row"),
                counted(self.batches.len() as u64, "batch"),
                self.bytes
            );
            line(out, "no longer count", text)?;
        }
        write_rejects(&self.rejected_by_reason, None, out)?;
        for range in self.ranges.iter().take(SHOWN_RANGES) {
            line(out, "read again", range)?;
        }
        if let more @ 1.. = self.ranges.len().saturating_sub(SHOWN_RANGES) {
            line(out, "", format!("and {more} more; `--json` has all"))?;
        }
        if let Some(kept) = &self.kept {
            line(out, "kept in", kept)?;
        }
        for note in &self.notes {
            line(out, "note", note)?;
        }
        if let Some(ingest) = &self.ingest {
            return ingest.write(out);
        }
        line(out, "next run", &self.next)
    }
}

fn write_compaction(compacted: &CompactionReport, out: &mut String) -> fmt::Result {
    let CompactionReport {
        files_before,
        files_after,
        rows,
        bytes_before,
        bytes_after,
        entries: _,
        expired_files,
        expired_bytes,
        superseded_files,
        superseded_bytes,
    } = compacted;
    let text = match files_before {
        0 => "no files: all are large enough, or alone with their columns".to_owned(),
        _ if *bytes_after == 0 => format!(
            "{} into {files_after}, {}, {bytes_before} bytes before",
            counted(*files_before, "file"),
            counted(*rows, "row")
        ),
        _ => format!(
            "{} into {files_after}, {}, {bytes_before} bytes into {bytes_after}",
            counted(*files_before, "file"),
            counted(*rows, "row")
        ),
    };
    line(out, "merged", text)?;
    let superseded = |files: u64| counted(files, "superseded file");
    let text = format!("{}, {expired_bytes} bytes", superseded(*expired_files));
    line(out, "deleted", text)?;
    let text = format!(
        "{}, {superseded_bytes} bytes",
        superseded(*superseded_files)
    );
    line(out, "kept", text)
}

fn write_settings(changed: &SettingsChanged, out: &mut String) -> fmt::Result {
    let SettingsChanged { sequence, changes } = changed;
    for change in changes {
        let SettingChange {
            key,
            before,
            after,
            effect,
        } = change;
        let shown = |value: &Option<String>| match value {
            None => "not set".to_owned(),
            Some(value) => format!("`{}`", shortened(value)),
        };
        let text = format!(
            "`{key}` was {}, and is {} from entry {sequence} on: {effect}",
            shown(before),
            shown(after)
        );
        line(out, "  changed", text)?;
    }
    Ok(())
}

pub(super) fn write_suggestions(suggestions: &[Suggestion], out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "pagination suggested by first responses; none of it is used"
    )?;
    if suggestions.is_empty() {
        let none = "none, since every `rest` source has a pagination";
        return line(out, "requests", none);
    }
    suggestions
        .iter()
        .try_for_each(|suggestion| write_suggestion(suggestion, out))
}

fn write_suggestion(suggestion: &Suggestion, out: &mut String) -> fmt::Result {
    let Suggestion {
        source,
        pagination,
        records,
        reason,
        error,
        is_denied: _,
    } = suggestion;
    if let Some(error) = error {
        return line(out, source, error);
    }
    let lines = [records, pagination].into_iter().flatten();
    let mut lines: Vec<&str> = lines.map(String::as_str).collect();
    if pagination.is_none() {
        lines.push("no pagination is suggested");
    }
    line(out, source, lines.remove(0))?;
    for further in lines {
        line(out, "", further)?;
    }
    match reason {
        Some(reason) => line(out, "  why", reason),
        None => Ok(()),
    }
}

fn pages_or_files(count: u64) -> String {
    counted_as(count, "page or file", "pages or files")
}

pub(super) fn write_source(source: &SourceReport, out: &mut String) -> fmt::Result {
    let new = match source.new_rows {
        Some(0) if !source.recheck_keys.is_empty() => {
            let keys = source.recheck_keys.join("` or `");
            format!("read before, and only `{keys}` requests it again, ")
        }
        Some(0) if source.rows > 0 => "nothing new, ".to_owned(),
        Some(new) if new < source.rows => grouped_as(new, "new row") + ", ",
        _ => String::new(),
    };
    line(
        out,
        &source.name,
        format!(
            "{}: {new}{} landed, {} dropped, {} rejected{}; {}, {}, schema version {}",
            source.status,
            grouped_as(source.rows, "row"),
            grouped_as(source.duplicates, "duplicate"),
            grouped(source.rejected),
            new_rejects(source),
            counted(source.batches, "batch"),
            pages_or_files(source.pages),
            source.schema_version
        ),
    )?;
    write_damage(&source.damage, out)?;
    if let Some(error) = &source.error {
        line(out, "  error", error)?;
    }
    for (table, rows) in &source.children {
        line(out, &format!("  {table}"), counted(*rows, "row"))?;
    }
    if let Some(standing) = &source.standing {
        write_standing(standing, out)?;
    }
    if !source.delta.is_empty() {
        write_tables(&source.delta, out)?;
    }
    if let Some(slices) = &source.slices {
        write_slices(slices, out)?;
    }
    write_source_warnings(source, out)?;
    if let Some(changed) = &source.settings_changed {
        write_settings(changed, out)?;
    }
    if let Some(compacted) = &source.compacted {
        write_compaction(compacted, out)?;
    }
    for (reason, count) in &source.skipped {
        line(out, "  skipped", format!("{count} {reason}"))?;
    }
    for (kind, paths) in &source.decisions {
        write_decisions(kind, paths, out)?;
    }
    write_rejects_with_keys(
        &source.rejected_by_reason,
        &source.reject_keys,
        source.reject_sample.as_deref(),
        out,
    )
}

/// Rejects of this run, or of the newest one, where the open ones are not all of that run.
fn new_rejects(source: &SourceReport) -> String {
    let newest = || source.standing.as_ref()?.last_rejected;
    let (new, run) = match source.new_rejected {
        Some(new) => (Some(new), "this run"),
        None => (newest(), "the newest run with a batch"),
    };
    match new {
        Some(0) if source.rejected > 0 => format!(" (none by {run})"),
        Some(new) if new != source.rejected => format!(" ({} by {run})", grouped(new)),
        _ => String::new(),
    }
}

/// Most ranges that are shown; `--json` has all.
const SHOWN_RANGES: usize = 5;

fn write_slices(slices: &SlicesReport, out: &mut String) -> fmt::Result {
    let SlicesReport {
        done,
        open,
        values_done,
        values_open,
        ranges,
        in_work,
    } = slices;
    let mut text = format!("{done} done, {open} open");
    if values_done + values_open != 1 {
        write!(
            text,
            "; {} done, {values_open} open",
            counted(*values_done, "value")
        )?;
    }
    line(out, "  slices", text)?;
    if !ranges.is_empty() {
        line(out, "  done", first_of(ranges, SHOWN_RANGES))?;
    }
    match in_work {
        Some(slice) => line(out, "  in work", slice),
        None => Ok(()),
    }
}

/// Most columns of a kind of decision that are shown; `--json` has more.
const SHOWN_DECISIONS: usize = 5;

fn write_decisions(kind: &str, paths: &BTreeMap<String, Noted>, out: &mut String) -> fmt::Result {
    let name = format!("  {}", kind.replace('_', " "));
    for (path, noted) in paths.iter().take(SHOWN_DECISIONS) {
        let Noted { count, sample } = noted;
        let text = format!("{count} in `{path}`, such as {}", shortened(sample));
        line(out, &name, text)?;
    }
    match paths.len().saturating_sub(SHOWN_DECISIONS) {
        0 => Ok(()),
        more => line(
            out,
            &name,
            "and in ".to_owned() + &counted(more as u64, "more column"),
        ),
    }
}

/// Writes the lag of a source.
fn write_standing(standing: &Standing, out: &mut String) -> fmt::Result {
    let Standing {
        committed_unix_s,
        lag_s,
        cursor,
        cursor_lag_s,
        value_cursors,
        ..
    } = standing;
    if let (Some(at), Some(lag)) = (committed_unix_s, lag_s) {
        let text = format!("{}, {} ago", when(signed(*at)), span(*lag));
        line(out, "  last commit", text)?;
    }
    if let Some(cursor) = cursor {
        let behind = cursor_lag_s.map(|lag| format!(", {} behind now", span(lag)));
        line(
            out,
            "  cursor",
            shortened(cursor) + &behind.unwrap_or_default(),
        )?;
    }
    if let Some(cursors) = value_cursors {
        line(out, "  cursors", show_value_cursors(cursors))?;
    }
    if standing.schema_versions > 0 {
        let versions = counted(standing.schema_versions.into(), "version");
        let text = format!("{versions}, {}", counted(standing.columns, "column"));
        line(out, "  schema", text)?;
    }
    if let Some(LastRun {
        ended_unix_s,
        outcome,
        reason,
        failures,
        ..
    }) = &standing.last_run
    {
        let why = reason
            .as_ref()
            .map(|reason| format!(": {}", shortened(reason)));
        let in_a_row = match failures {
            0 | 1 => String::new(),
            failures => format!(", {failures} times in a row"),
        };
        let text = format!(
            "{} at {}{in_a_row}{}",
            outcome.name(),
            when(*ended_unix_s),
            why.unwrap_or_default()
        );
        line(out, "  served last", text)?;
    }
    if let Some(failed) = &standing.failures {
        let runs = counted(failed.failures, "run");
        let since = when(signed(failed.since_unix_s));
        let error = shortened(&failed.error);
        line(
            out,
            "  failing",
            format!("{runs} in a row since {since}: {error}"),
        )?;
    }
    if let Some(holder) = &standing.held_by {
        line(out, "  running", format!("held by `{holder}`"))?;
    }
    line(out, "  next run", &standing.next)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        lease::RunOutcome,
        report::{ValueCursor, ValueCursorsReport},
    };

    use super::*;

    #[test]
    fn a_compaction_that_wrote_nothing_has_no_size_of_the_merged_files() {
        let text = |bytes_after: u64| {
            let compacted = CompactionReport {
                files_before: 3,
                files_after: 1,
                rows: 9,
                bytes_before: 5055,
                bytes_after,
                ..CompactionReport::default()
            };
            let mut out = String::new();
            write_compaction(&compacted, &mut out).unwrap();
            out.lines().next().unwrap().trim_end().to_owned()
        };
        let dry = text(0);
        let expected = "3 files into 1, 9 rows, 5055 bytes before";
        assert!(dry.ends_with(expected), "{dry}");
        let merged = text(2100);
        assert!(merged.ends_with("9 rows, 5055 bytes into 2100"), "{merged}");
    }

    #[test]
    fn a_run_is_the_next_step_where_only_lists_of_values_and_their_cursors_are_damaged() {
        let shown = |paths: &[&str]| {
            let damage = paths.iter().map(|path| Damage {
                path: (*path).to_owned(),
                entry: 0,
                reason: "it is missing".to_owned(),
            });
            let damage: Vec<Damage> = damage.collect();
            let mut out = String::new();
            write_damage(&damage, &mut out).unwrap();
            out
        };
        let lists = shown(&["values/1.txt", "cursors/2.txt"]);
        let is_healed_by_run = lists.contains("run `feedline ingest`, or restore them");
        assert!(is_healed_by_run && !lists.contains("repair"), "{lists}");
        let others = shown(&["values/1.txt", "data/1.parquet"]);
        assert!(others.contains("ingest repair --dry-run`"), "{others}");
    }

    #[test]
    fn a_source_is_told_with_its_lag_and_what_comes_next() {
        let source = SourceReport {
            name: "rates".into(),
            status: "deferred".into(),
            rows: 7,
            schema_version: 2,
            standing: Some(Standing {
                committed_unix_s: Some(1_780_000_000),
                lag_s: Some(7_200),
                last_rejected: None,
                cursor: Some("2026-05-27".into()),
                cursor_lag_s: Some(86_400),
                value_cursors: Some(ValueCursorsReport {
                    values: 3,
                    smallest: ValueCursor {
                        value: "EUR".into(),
                        cursor: "2026-01-05".into(),
                        lag_s: Some(86_400 * 40),
                    },
                    greatest: ValueCursor {
                        value: "USD".into(),
                        cursor: "7".into(),
                        lag_s: None,
                    },
                }),
                not_before_unix_s: Some(1_780_010_000),
                last_run: Some(LastRun {
                    due_unix_s: 1_779_999_000,
                    began_unix_s: 1_779_999_001,
                    ended_unix_s: 1_780_000_001,
                    outcome: RunOutcome::Deferred,
                    reason: Some("status 429".into()),
                    failures: 0,
                    until_unix_s: Some(1_780_010_000),
                }),
                failures: None,
                run_warnings: None,
                held_by: None,
                schema_versions: 2,
                columns: 5,
                next: "sends no request before then".into(),
            }),
            ..SourceReport::default()
        };
        let mut out = String::new();
        write_source(&source, &mut out).unwrap();
        for part in [
            "deferred: 7 rows landed",
            "2026-05-28T20:26:40Z, 2 h 0 min ago",
            "2026-05-27, 1 d 0 h behind now",
            "3 values, from 2026-01-05 (`EUR`, 40 d behind now) to 7 (`USD`)",
            "2 versions, 5 columns",
            "deferred at 2026-05-28T20:26:41Z: status 429",
            "sends no request before then",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
    }

    #[test]
    fn a_source_that_is_not_requested_again_is_reported_with_the_keys_that_change_it() {
        let source = SourceReport {
            status: "complete".into(),
            rows: 7,
            new_rows: Some(0),
            recheck_keys: vec!["refresh".into(), "incremental".into()],
            ..SourceReport::default()
        };
        let mut out = String::new();
        write_source(&source, &mut out).unwrap();
        let expected = "complete: read before, and only `refresh` or `incremental` requests it again, 7 rows landed, ";
        assert!(out.contains(expected), "{out}");
        assert!(!out.contains("nothing new"), "{out}");
    }

    #[test]
    fn rejects_of_this_run_are_reported_beside_all_open_ones() {
        for (new_rejected, expected) in [
            (None, " 3 rejected; "),
            (Some(3), " 3 rejected; "),
            (Some(1), " 3 rejected (1 by this run); "),
            (Some(0), " 3 rejected (none by this run); "),
        ] {
            let source = SourceReport {
                rejected: 3,
                new_rejected,
                ..SourceReport::default()
            };
            let mut out = String::new();
            write_source(&source, &mut out).unwrap();
            assert!(out.contains(expected), "{out}");
        }
        let status = SourceReport {
            rejected: 3,
            standing: Some(Standing {
                last_rejected: Some(1),
                ..Standing::default()
            }),
            ..SourceReport::default()
        };
        let mut out = String::new();
        write_source(&status, &mut out).unwrap();
        let expected = " 3 rejected (1 by the newest run with a batch); ";
        assert!(out.contains(expected), "{out}");
    }

    #[test]
    fn rejected_records_are_reported_with_the_keys_that_change_it() {
        let keys = ["contract.types", "contract.column.<name>.type"];
        let source = SourceReport {
            rejected_by_reason: [("type_conflict".into(), 50), ("not_an_object".into(), 2)].into(),
            reject_keys: [("type_conflict".into(), keys.map(str::to_owned).to_vec())].into(),
            ..SourceReport::default()
        };
        let mut out = String::new();
        write_source(&source, &mut out).unwrap();
        let lines: Vec<&str> = out
            .lines()
            .filter(|line| line.contains("rejected"))
            .collect();
        let ends = [
            "rejected       2 not_an_object",
            "rejected       50 type_conflict; see `contract.types` or `contract.column.<name>.type`",
        ];
        let lines = &lines[lines.len() - 2..];
        assert!(
            lines
                .iter()
                .zip(ends)
                .all(|(line, end)| line.ends_with(end)),
            "{lines:?}"
        );
    }
}
