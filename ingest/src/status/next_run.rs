//! Description of the next run of a source.

use std::time::Duration;

use feedline_readers::value::shorten;
use feedline_schemas::{
    commit::{FileProgress, Position, SourceState},
    config::SourceConfig,
    count::counted,
};

use crate::{
    backfill::{has_other_list, slices_report},
    error::when,
    held_warnings::holding,
    settings::{failed_pages, has_requests, looks_for_more},
    source_table::source_type,
    source_type::EarlierReadings,
    warnings::may_lack_records,
};

/// Describes the next run.
pub(crate) fn describe_next_run(
    config: &SourceConfig,
    state: Option<&SourceState>,
    highs: &[String],
    now_s: u64,
) -> String {
    let Some(state) = state else {
        return "starts from the beginning".to_owned();
    };
    let position = &state.position;
    if has_requests(config, position)
        && let Some(until) = not_before(Some(state), now_s)
    {
        return format!("sends no request before {}, as a server asked", when(until));
    }
    match position {
        Position::Start => "starts from the beginning".to_owned(),
        Position::Page { page, cursor, .. } => {
            let at = cursor.as_deref().map_or_else(String::new, |cursor| {
                format!(", cursor `{}`", shorten(cursor, 60))
            });
            let part =
                slices_report(config, Some(position), None).and_then(|slices| slices.in_work);
            let part =
                part.map_or_else(String::new, |part| format!(" of `{}`", shorten(&part, 60)));
            format!("resumes after page {page}{part}{at}")
        }
        Position::File {
            current: Some(FileProgress { url, records, .. }),
            ..
        } => format!("resumes in `{url}` after {}", counted(*records, "record")),
        Position::File { done, .. } => {
            let older: u64 = state.marks.iter().map(|file| file.rows).sum();
            let files = done.len() as u64 + older;
            format!("resumes after {}", counted(files, "file"))
        }
        Position::Done { .. } if !looks_for_more(config) => match failed_pages(position) {
            0 => all_read(config, state),
            failed => format!("requests {} again", counted(failed, "failed page")),
        },
        Position::Done { .. } if config.slices.is_some() || config.for_each.is_some() => {
            next_slices(config, state)
        }
        Position::Done { files, run, .. } => {
            let earlier = EarlierReadings {
                files: files.len(),
                run,
                highs,
                now: Duration::from_secs(now_s),
            };
            source_type(config).describe_next_run(config, &earlier)
        }
    }
}

/// Reports that nothing is left to read, as far as known.
fn all_read(config: &SourceConfig, state: &SourceState) -> String {
    let mut warnings = holding(config, &state.warnings);
    warnings.retain(|warning| may_lack_records(&warning.code));
    match warnings.as_slice() {
        [] if looks_for_more(config) => "nothing: everything has been read".to_owned(),
        [] => {
            let keys = source_type(config).recheck_keys(config);
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let keys = keys.join(" or ");
            format!("nothing: everything has been read, and only {keys} requests it again")
        }
        [warning] => format!(
            "nothing, though records may be missing: see the warning `{}`",
            warning.code
        ),
        all => format!(
            "nothing, though records may be missing: see its {} warnings",
            all.len()
        ),
    }
}

/// Describes the requests of the next run for slices and values after a finished pass.
fn next_slices(config: &SourceConfig, state: &SourceState) -> String {
    let position = &state.position;
    let what = match (&config.slices, &config.for_each) {
        (Some(_), Some(_)) => "slices and values",
        (Some(_), None) => "slices",
        _ => "values",
    };
    if !config.refresh.is_never() {
        return format!("requests all {what} again");
    }
    if config.incremental.is_some() {
        return "requests new records of all values".to_owned();
    }
    let has_open = slices_report(config, Some(position), None)
        .is_none_or(|slices| slices.open > 0 || slices.values_open > 0);
    if has_open {
        return format!("requests unfinished {what}");
    }
    let mut grows = Vec::new();
    let ledger = position.ledger();
    if ledger.is_some_and(|ledger| !ledger.absent.is_empty()) {
        grows.push("values that the server did not know".to_owned());
    }
    if config
        .slices
        .as_ref()
        .is_some_and(|slices| slices.end.is_none())
    {
        grows.push("slices that have become due".to_owned());
    }
    if let Some(source) = config
        .for_each
        .as_ref()
        .and_then(|each| each.source.as_ref())
    {
        grows.push(format!("values that `{source}` has landed since"));
    }
    if has_other_list(config, position) {
        grows.push("values that are new in the list, if any".to_owned());
    }
    match grows.as_slice() {
        [] => all_read(config, state),
        grows => format!("requests {}", grows.join(" and ")),
    }
}

/// Time before which no request may be made, if it is in the future.
pub(super) fn not_before(state: Option<&SourceState>, now_s: u64) -> Option<u64> {
    let until = state.and_then(|state| state.not_before_unix_s);
    until.filter(|until| *until > now_s)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        commit::{FailedPages, Ledger, PageRun},
        config::{Refresh, load},
        ids::Hash128,
        report::Warning,
    };

    use super::*;

    fn source(settings: &str) -> SourceConfig {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\nurl = \"http://h.example/\"\n{settings}"
        );
        load("p", &text, &[]).unwrap().config.source.remove(0)
    }

    fn at(position: Position, not_before_unix_s: Option<u64>) -> SourceState {
        SourceState {
            position,
            not_before_unix_s,
            ..SourceState::default()
        }
    }

    fn done(run: PageRun) -> Position {
        Position::Done {
            pages: 3,
            files: Vec::new(),
            run,
        }
    }

    fn check(source: &SourceConfig, position: Position, expected: &str) {
        let state = at(position, None);
        assert_eq!(
            describe_next_run(source, Some(&state), &[], 1_800_000_000),
            expected
        );
    }

    /// A run of pages at this state of its slices and values.
    fn with_ledger(ledger: Ledger) -> PageRun {
        PageRun {
            ledger: Some(Box::new(ledger)),
            ..PageRun::default()
        }
    }

    fn page(number: u64, cursor: Option<&str>, run: PageRun) -> Position {
        Position::Page {
            page: number,
            cursor: cursor.map(str::to_owned),
            run,
        }
    }

    /// A source with slices of 100 from 0 to `end`.
    fn sliced(end: i64) -> SourceConfig {
        source(&format!(
            "type = \"rest\"\nslices = {{ from_param = \"from\", to_param = \"to\", start = \"0\", end = \"{end}\", step = \"100\", format = \"integer\" }}"
        ))
    }

    const COMPLETE: &str = "nothing: everything has been read";

    const FINISHED: &str =
        "nothing: everything has been read, and only `refresh` or `incremental` requests it again";

    #[test]
    fn a_source_without_a_log_starts_from_the_beginning_and_resumes_after_its_last_page() {
        let rest = source("type = \"rest\"");
        assert_eq!(
            describe_next_run(&rest, None, &[], 100),
            "starts from the beginning"
        );
        let page = page(12, Some("abc"), PageRun::default());
        check(&rest, page.clone(), "resumes after page 12, cursor `abc`");
        let deferred = at(page, Some(4_102_444_800));
        assert_eq!(
            describe_next_run(&rest, Some(&deferred), &[], 100),
            "sends no request before 2100-01-01T00:00:00Z, as a server asked"
        );
        assert!(
            describe_next_run(&rest, Some(&deferred), &[], 4_102_444_800)
                .starts_with("resumes after")
        );
    }

    #[test]
    fn a_finished_source_reads_nothing_or_what_may_be_new() {
        let rest = source("type = \"rest\"");
        check(&rest, done(PageRun::default()), FINISHED);
        let posted = source("type = \"rest\"\nmethod = \"POST\"");
        check(
            &posted,
            done(PageRun::default()),
            "nothing: everything has been read, and only `incremental` requests it again",
        );
        let warned = SourceState {
            warnings: vec![Warning::new("partial_content", "x")],
            ..at(done(PageRun::default()), None)
        };
        assert_eq!(
            describe_next_run(&rest, Some(&warned), &[], 100),
            "nothing, though records may be missing: see the warning `partial_content`"
        );
        // A warning about values is no sign of missing records.
        let rounded = SourceState {
            warnings: vec![Warning::new("digits_rounded", "x")],
            ..at(done(PageRun::default()), None)
        };
        assert_eq!(describe_next_run(&rest, Some(&rounded), &[], 100), FINISHED);
        let until = at(done(PageRun::default()), Some(4_102_444_800));
        assert_eq!(describe_next_run(&rest, Some(&until), &[], 100), FINISHED);
        let more = source(
            "type = \"rest\"\nincremental = { cursor = \"d\", param = \"from\", lookback = \"1d\" }",
        );
        let run = PageRun {
            high: Some("2026-03-18".into()),
            ..PageRun::default()
        };
        check(&more, done(run), "requests new records since `2026-03-17`");
        let html = source("type = \"html\"\ncrawl = { refresh = \"if_changed\" }");
        check(
            &html,
            done(PageRun::default()),
            "checks every known page for changes",
        );
    }

    #[test]
    fn failed_pages_of_a_complete_crawl_are_requested_again() {
        let failed = |numbers: &[u64], beyond_limit: u64| {
            done(PageRun {
                failed_pages: Box::new(FailedPages {
                    numbers: numbers.to_vec(),
                    open: None,
                    beyond_limit,
                }),
                ..PageRun::default()
            })
        };
        let html = source("type = \"html\"");
        check(&html, failed(&[3], 0), "requests 1 failed page again");
        let deferred = at(failed(&[3, 4], 0), Some(4_102_444_800));
        let described = |now: u64| describe_next_run(&html, Some(&deferred), &[], now);
        assert!(described(100).starts_with("sends no request before 2100-01-01"));
        assert_eq!(described(4_102_444_800), "requests 2 failed pages again");
        let read = "nothing: everything has been read, and only `crawl.refresh` requests it again";
        check(&html, failed(&[], 0), read);
        let repeated = source("type = \"html\"\ncrawl = { refresh = \"if_changed\" }");
        let all = "checks every known page for changes";
        check(&repeated, failed(&[3], 0), all);
        // Those beyond the limit are not requested.
        let lost = SourceState {
            warnings: vec![Warning::new("pages_beyond_limit", "x")],
            ..at(failed(&[], 7), None)
        };
        assert_eq!(
            describe_next_run(&html, Some(&lost), &[], 100),
            "nothing, though records may be missing: see the warning `pages_beyond_limit`"
        );
    }

    #[test]
    fn slices_that_are_open_or_have_become_due_are_requested() {
        let all = with_ledger(Ledger {
            done: vec![[0, 300]],
            target: [0, 300],
            values: 1,
            ..Ledger::default()
        });
        check(&sliced(300), done(all.clone()), COMPLETE);
        check(&sliced(400), done(all), "requests unfinished slices");
        let open = source(
            "type = \"rest\"\nslices = { from_param = \"from\", to_param = \"to\", start = \"2026-01-01\", step = \"1d\", format = \"%Y-%m-%d\" }",
        );
        let days = with_ledger(Ledger {
            done: vec![[20_454, 20_460]],
            target: [20_454, 20_460],
            values: 1,
            ..Ledger::default()
        });
        check(&open, done(days), "requests slices that have become due");
        let begun = with_ledger(Ledger {
            slice: Some([100, 200]),
            part: vec![[0, 100]],
            target: [0, 300],
            values: 1,
            ..Ledger::default()
        });
        let page = page(2, None, begun);
        check(&sliced(300), page, "resumes after page 2 of `100 to 200`");
    }

    #[test]
    fn values_that_are_open_or_have_landed_since_are_requested() {
        let listed =
            source("type = \"rest\"\nfor_each = { param = \"id\", values = [\"a\", \"b\"] }");
        let values = |values: u64| {
            done(with_ledger(Ledger {
                done: vec![[0, 1]],
                target: [0, 1],
                values,
                ..Ledger::default()
            }))
        };
        check(
            &listed,
            values(2),
            "requests values that are new in the list, if any",
        );
        check(&listed, values(1), "requests unfinished values");
        let mut read = values(2);
        if let Position::Done { run, .. } = &mut read {
            let ledger = run.ledger.as_mut().unwrap();
            ledger.values_hash = Some(Hash128::of(b"\"a\"\n\"b\""));
        }
        check(&listed, read.clone(), COMPLETE);
        let mut absent = read.clone();
        if let Position::Done { run, .. } = &mut absent {
            run.ledger.as_mut().unwrap().absent = vec![(1, vec![[0, 1]])];
        }
        let again = "requests values that the server did not know";
        check(&listed, absent, again);
        let again = SourceConfig {
            refresh: Refresh::IfChanged,
            ..listed
        };
        check(&again, read, "requests all values again");
        let given = source(
            "type = \"rest\"\nfor_each = { param = \"id\", source = \"other\", column = \"id\" }",
        );
        check(
            &given,
            values(5),
            "requests values that `other` has landed since",
        );
    }
}
