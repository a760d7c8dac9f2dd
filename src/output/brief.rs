//! Reports of a run, short enough for one screen.
//!
//! Lines of a report are headings (not indented), results (indented by two) and details (by four).
//! Warnings come last. A report above [`MAX_LINES`] lines has its details left out, with a line
//! that names their kinds. It keeps the reasons that rejected the most rows, and the warnings of the
//! worst [`Severity`]; a line has the codes of the others.

use std::{
    cmp::Reverse,
    fmt::{self, Write as _},
};

use serde::{Serialize, Serializer};

use super::{
    severity::{Severity, shown_code},
    text::{Text, counted, line},
};

/// Most lines of a report without `--verbose`.
const MAX_LINES: usize = 25;

/// Fewest warnings that a long report shows.
const MIN_WARNINGS: usize = 3;

/// Details that count rejected rows by reason.
const REASONS: [&str; 2] = ["rejected", "left out"];

/// Most reasons that a long report shows: those with the most rows.
const MAX_REASONS: usize = 3;

/// Results that a long report leaves out, as it does details.
const MINOR: [&str; 2] = ["fingerprint", "metrics"];
/// Column behind the names of lines.
const NAMES_END: usize = 18;

/// A report with its warnings last, in at most [`MAX_LINES`] lines unless `verbose`.
pub(crate) struct Brief<'a, R> {
    pub(crate) report: &'a R,
    pub(crate) verbose: bool,
    /// Commands that come next, if any; text only.
    pub(crate) next: Option<String>,
}

impl<R: Serialize> Serialize for Brief<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.report.serialize(serializer)
    }
}

impl<R: Text> Text for Brief<'_, R> {
    fn write(&self, out: &mut String) -> fmt::Result {
        let mut text = String::new();
        self.report.write(&mut text)?;
        arrange(&text, self.next.as_deref(), self.verbose, out)
    }
}

/// Moves warnings to the end and shortens a long report.
fn arrange(text: &str, next: Option<&str>, verbose: bool, out: &mut String) -> fmt::Result {
    let mut results: Vec<&str> = Vec::new();
    let mut warnings: Vec<(&str, &str)> = Vec::new();
    // The source, or the stage, whose lines are being read.
    let mut subject = "";
    let mut is_ingest = false;
    for text in text.lines() {
        match name_of(text) {
            (0, heading) => {
                is_ingest = heading.starts_with("ingest");
                subject = heading.split([' ', ',']).next().unwrap_or(heading);
            }
            (2, name) if is_ingest => subject = name,
            _ => {}
        }
        match text.trim_start().strip_prefix("warning") {
            Some(warning) if text.starts_with("    ") => {
                warnings.push((subject, warning.trim_start()));
            }
            _ => results.push(text),
        }
    }
    let other = warnings.len() + usize::from(!warnings.is_empty()) + usize::from(next.is_some());
    let mut left_out = OmittedLines::default();
    if !verbose && results.len() + other > MAX_LINES {
        let beside = warnings.len().min(MIN_WARNINGS) + 3;
        let reasons = top_reasons(&results, MAX_LINES.saturating_sub(beside));
        let mut index = 0..;
        results.retain(|text| {
            let is_reason = index.next().is_some_and(|index| reasons.contains(&index));
            is_kept(text) || is_reason || left_out.add(1, name_of(text).1)
        });
        let room = (MAX_LINES - 1).saturating_sub(other).max(MAX_LINES / 2);
        left_out.add(fold(&mut results, room), "complete sources");
    }
    for text in &results {
        writeln!(out, "{text}")?;
    }
    if !warnings.is_empty() {
        writeln!(out, "warnings")?;
        let room = MAX_LINES
            .saturating_sub(results.len() + 3)
            .max(MIN_WARNINGS);
        let shown = if verbose || warnings.len() <= room {
            warnings.len()
        } else {
            room
        };
        left_out.add(write_some(&mut warnings, shown, out)?, "warnings");
    }
    if left_out.lines > 0 {
        let OmittedLines { lines, kinds } = &left_out;
        let kinds = kinds.join(", ");
        let lines = counted(*lines as u64, "line");
        let text = format!("{lines} with `--verbose` ({kinds}), everything with `--json`");
        line(out, "more", text)?;
    }
    match next {
        Some(next) => line(out, "next", next),
        None => Ok(()),
    }
}

/// Writes the worst of `warnings`, as many as `shown`, and a line with the codes of the others. Returns their number.
fn write_some(
    warnings: &mut [(&str, &str)],
    shown: usize,
    out: &mut String,
) -> Result<usize, fmt::Error> {
    if shown < warnings.len() {
        warnings.sort_by_key(|(_, warning)| Severity::of(shown_code(warning)));
    }
    let (shown, others) = warnings.split_at(shown);
    for (subject, warning) in shown {
        line(out, subject, warning)?;
    }
    if !others.is_empty() {
        let mut codes: Vec<&str> = Vec::new();
        for (_, warning) in others {
            let code = shown_code(warning);
            if !codes.contains(&code) {
                codes.push(code);
            }
        }
        let more = counted(others.len() as u64, "more warning");
        line(out, "", format!("and {more}: {}", codes.join(", ")))?;
    }
    Ok(others.len())
}

/// Lines left out, and their kinds in the order of their first appearance.
#[derive(Default)]
struct OmittedLines {
    lines: usize,
    kinds: Vec<String>,
}

impl OmittedLines {
    /// Adds lines of a kind. Returns false: none of them is kept.
    fn add(&mut self, lines: usize, kind: &str) -> bool {
        self.lines += lines;
        if lines > 0 && !self.kinds.iter().any(|known| known == kind) {
            self.kinds.push(kind.to_owned());
        }
        false
    }
}

/// Indentation and name of a line.
fn name_of(text: &str) -> (usize, &str) {
    let body = text.trim_start();
    let indent = text.len() - body.len();
    // A name is as wide as its column, or reaches to its next space.
    let column = text.char_indices().nth(NAMES_END);
    let column = column.map_or(text.len(), |(at, _)| at);
    let end = text[column..]
        .find(' ')
        .map_or(text.len(), |at| column + at);
    let name = match indent < NAMES_END {
        true => text[indent..end].trim_end(),
        false => body,
    };
    (indent, name)
}

/// Returns true for a line that a long report keeps.
fn is_kept(text: &str) -> bool {
    match name_of(text) {
        (0 | 1, _) => true,
        (2 | 3, name) => !MINOR
            .iter()
            .any(|minor| name.split(' ').next() == Some(minor)),
        (_, name) => ["error", "damaged", "changed"]
            .iter()
            .any(|kept| name.starts_with(kept)),
    }
}

/// Indexes of the lines of the reasons with the most rows, as many as fit into `room` beside the lines
/// that are kept, and at least one.
fn top_reasons(results: &[&str], room: usize) -> Vec<usize> {
    let kept = results.iter().filter(|text| is_kept(text)).count();
    let lines = results.iter().enumerate();
    let reasons = lines.filter_map(|(index, text)| match name_of(text) {
        (4, name) if REASONS.contains(&name) => Some((Reverse(rows_of(text)), index)),
        _ => None,
    });
    let mut reasons: Vec<(Reverse<u64>, usize)> = reasons.collect();
    reasons.sort_unstable();
    reasons.truncate(room.saturating_sub(kept).clamp(1, MAX_REASONS));
    reasons.into_iter().map(|(_, index)| index).collect()
}

/// The number behind the name of a line.
fn rows_of(text: &str) -> u64 {
    let mut words = text.split_whitespace();
    let count = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let digits = count.unwrap_or_default().replace(',', "");
    digits.parse().unwrap_or(0)
}

/// Leaves out complete sources without details until `room` lines remain; returns how many.
fn fold(results: &mut Vec<&str>, room: usize) -> usize {
    let too_many = results.len().saturating_sub(room);
    let next = results.iter().skip(1);
    let details: Vec<bool> = next.map(|text| text.starts_with("    ")).collect();
    let mut has_details = details.into_iter();
    let mut left_out = 0;
    results.retain(|text| {
        let is_alone = !has_details.next().unwrap_or_default();
        let is_complete = text.starts_with("  ") && text.contains(" complete: ");
        let goes = is_complete && is_alone && left_out < too_many;
        left_out += usize::from(goes);
        !goes
    });
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(text: &str, verbose: bool) -> Vec<String> {
        let mut out = String::new();
        arrange(text, Some("feedline predict"), verbose, &mut out).unwrap();
        out.lines().map(str::to_owned).collect()
    }

    fn report(sources: usize, details: usize) -> String {
        let mut text = "ingest\n".to_owned();
        for source in 0..sources {
            line(&mut text, &format!("s{source}"), "complete: 7 rows landed").unwrap();
            line(&mut text, "  warning", format!("odd values {source}")).unwrap();
            for detail in 0..details {
                line(&mut text, "  coerced", detail.to_string()).unwrap();
            }
        }
        line(&mut text, "landing zone", "x").unwrap();
        text += "dataset\n";
        line(&mut text, "  warning", "columns dropped").unwrap();
        line(&mut text, "fingerprint", "f").unwrap();
        text
    }

    #[test]
    fn a_short_report_has_all_lines_and_its_warnings_last() {
        let lines = arranged(&report(2, 1), false);
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = lines.iter().map(words).collect();
        assert_eq!(
            lines,
            [
                "ingest",
                "s0 complete: 7 rows landed",
                "coerced 0",
                "s1 complete: 7 rows landed",
                "coerced 0",
                "landing zone x",
                "dataset",
                "fingerprint f",
                "warnings",
                "s0 odd values 0",
                "s1 odd values 1",
                "dataset columns dropped",
                "next feedline predict",
            ]
        );
    }

    #[test]
    fn a_long_report_fits_a_screen_and_counts_the_lines_left_out() {
        for (sources, details) in [(1, 40), (3, 9), (12, 2), (40, 0), (200, 5)] {
            let text = report(sources, details);
            let lines = arranged(&text, false);
            assert!(
                lines.len() <= MAX_LINES + 2,
                "{sources} {details}: {lines:#?}"
            );
            let all = arranged(&text, true);
            assert_eq!(all.len(), text.lines().count() + 2);
            let more = lines
                .iter()
                .find(|line| line.starts_with("  more"))
                .unwrap();
            let count: usize = more.split_whitespace().nth(1).unwrap().parse().unwrap();
            let hidden = all.iter().filter(|line| !lines.contains(line)).count();
            assert_eq!(count, hidden, "{sources} {details}: {lines:#?}");
        }
    }

    #[test]
    fn a_long_report_shows_the_reasons_with_the_most_rows() {
        for sources in [1, 12, 40] {
            let mut text = report(sources, 3);
            for reason in 0..30 {
                let rows = (reason * 7) % 30 * 100;
                line(&mut text, "  rejected", format!("{rows} reason_{reason}")).unwrap();
                line(&mut text, "  for example", "row 1").unwrap();
            }
            line(&mut text, "  left out", "2,850 of_frozen").unwrap();
            let lines = arranged(&text, false);
            assert!(lines.len() <= MAX_LINES + 2, "{sources}: {lines:#?}");
            let reasons = lines
                .iter()
                .filter_map(|line| line.split_whitespace().last());
            let reasons = reasons.filter(|word| word.contains("reason_") || *word == "of_frozen");
            let reasons: Vec<&str> = reasons.collect();
            let most = ["reason_17", "of_frozen", "reason_4"];
            let expected: Vec<&str> = ["reason_4", "reason_17", "of_frozen"]
                .into_iter()
                .filter(|reason| most[..reasons.len()].contains(reason))
                .collect();
            assert!(!reasons.is_empty());
            assert_eq!(reasons, expected, "{sources}: {lines:#?}");
        }
    }

    #[test]
    fn equal_reasons_of_many_sources_stay_below_their_sources() {
        for (sources, expected) in [(12, 3), (40, 1)] {
            let mut text = "ingest\n".to_owned();
            for source in 0..sources {
                line(&mut text, &format!("s{source}"), "complete: 7 rows landed").unwrap();
                line(&mut text, "  coerced", "7 in `a`").unwrap();
                line(&mut text, "  rejected", "7 type_conflict").unwrap();
            }
            let lines = arranged(&text, false);
            assert!(lines.len() <= MAX_LINES + 2, "{sources}: {lines:#?}");
            let is_reason = |line: &String| line.ends_with("7 type_conflict");
            let shown = lines.iter().enumerate().filter(|(_, line)| is_reason(line));
            let shown: Vec<usize> = shown.map(|(at, _)| at).collect();
            assert_eq!(shown.len(), expected, "{sources}: {lines:#?}");
            for (source, at) in shown.into_iter().enumerate() {
                let above = &lines[at - 1];
                assert!(above.starts_with(&format!("  s{source} ")), "{lines:#?}");
            }
        }
    }

    #[test]
    fn warnings_of_leaks_are_shown_first_and_the_codes_of_the_others_are_named() {
        let mut text = report(12, 2);
        for code in [
            "missing spellings",
            "worse than baseline",
            "target leakage",
            "missing spellings",
            "equal rows",
        ] {
            line(&mut text, "  warning", format!("{code}: `x`: 7")).unwrap();
        }
        let lines = arranged(&text, false);
        let start = lines.iter().position(|line| line == "warnings").unwrap();
        let shown: Vec<String> = lines[start + 1..]
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .take_while(|line| !line.starts_with("more"))
            .collect();
        let last = shown.last().unwrap();
        let first = ["target leakage", "equal rows", "worse than baseline"];
        for (line, code) in shown.iter().zip(first) {
            assert!(line.starts_with(&format!("dataset {code}: ")), "{lines:#?}");
        }
        assert!(last.starts_with("and 8 more warnings: odd values 7, "));
        assert!(last.ends_with(", columns dropped, missing spellings"));
        let all = arranged(&text, true).join("\n");
        let places = ["odd values", "missing spellings", "target leakage"];
        let places = places.map(|code| all.find(code));
        assert!(places.is_sorted(), "{all}");
    }

    #[test]
    fn kinds_of_details_that_are_left_out_are_named() {
        let lines = arranged(&report(1, 40), false);
        let more = lines
            .iter()
            .find(|line| line.starts_with("  more"))
            .unwrap();
        assert!(
            more.ends_with(
                "41 lines with `--verbose` (coerced, fingerprint), everything with `--json`"
            ),
            "{more}"
        );
    }

    #[test]
    fn names_end_at_their_column_or_at_the_space_behind_it() {
        for (name, expected) in [
            ("rows", (2, "rows")),
            ("  coerced", (4, "coerced")),
            ("  read as missing", (4, "read as missing")),
            (
                "a-name-longer-than-its-column",
                (2, "a-name-longer-than-its-column"),
            ),
        ] {
            let mut text = String::new();
            line(&mut text, name, "7 in `a`, such as `n/a`").unwrap();
            assert_eq!(name_of(text.trim_end()), expected);
        }
        assert_eq!(name_of("dataset (nothing new: kept as it was)").0, 0);
    }

    #[test]
    fn an_error_of_a_source_is_always_shown() {
        let mut text = report(30, 3);
        line(&mut text, "bad", "failed: 0 rows landed").unwrap();
        line(&mut text, "  error", "refused").unwrap();
        let lines = arranged(&text, false).join("\n");
        assert!(
            lines.contains("refused") && lines.contains("failed: 0"),
            "{lines}"
        );
    }
}
