//! Times in strings, other than CSV cells: their characters have the order of the times only in one
//! form.

use std::collections::{BTreeMap, BTreeSet};

use feedline_readers::value::{one_line, shorten};

use crate::contract::iso_format;

/// Most forms that are kept.
const FORMS: usize = 3;
/// Maximum characters of a string that is no time.
const SHOWN: usize = 40;

/// Strings of a column that are dates or times as ISO 8601 writes them.
#[derive(Clone, Debug, Default)]
pub(super) struct TextTimes {
    /// Number of times.
    pub(super) count: u64,
    /// Number of strings that are empty or blank.
    pub(super) blanks: u64,
    /// First of the other strings in byte order.
    other: Option<String>,
    /// Formats of `contract.dates` that read them.
    formats: BTreeSet<&'static str>,
    /// First forms in byte order, each with its first string in byte order, so that the order of
    /// records does not matter.
    forms: BTreeMap<String, String>,
}

impl TextTimes {
    /// Counts a string if it is a time or blank.
    pub(super) fn add(&mut self, text: &str) {
        let Some(format) = iso_format(text) else {
            return self.add_other(text);
        };
        self.count += 1;
        self.formats.insert(format);
        let first = self.forms.entry(form_of(text));
        let first = first.or_insert_with(|| text.to_owned());
        if text < first.as_str() {
            text.clone_into(first);
        }
        if self.forms.len() > FORMS {
            self.forms.pop_last();
        }
    }

    /// Counts a blank string, or keeps another one that is no time as a sample.
    fn add_other(&mut self, text: &str) {
        if text.trim().is_empty() {
            self.blanks += 1;
        } else if self.other.as_deref().is_none_or(|other| text < other) {
            self.other = Some(text.to_owned());
        }
    }

    /// Returns true for times of several forms.
    pub(super) fn has_several_forms(&self) -> bool {
        self.forms.len() > 1
    }

    /// A string that is no time, for messages.
    pub(super) fn other(&self) -> String {
        let other = self.other.as_deref();
        other.map_or_else(
            || "an empty string".to_owned(),
            |other| format!("`{}`", one_line(&shorten(other, SHOWN))),
        )
    }

    /// One string of each form, for messages.
    pub(super) fn samples(&self) -> String {
        let samples = self.forms.values().map(|text| format!("`{text}`"));
        samples.collect::<Vec<_>>().join(", ")
    }

    /// Formats of `contract.dates` that read the strings.
    pub(super) fn formats(&self) -> impl Iterator<Item = &'static str> {
        self.formats.iter().copied()
    }
}

/// Form of a time: its characters, with each digit before the offset as a 0.
fn form_of(text: &str) -> String {
    const DATE: usize = "2024-02-29".len();
    let time = text.get(DATE..).unwrap_or_default();
    let offset = time.find(['Z', 'z', '+', '-']);
    let (local, offset) = text.split_at(offset.map_or(text.len(), |at| DATE + at));
    let zero = |c: char| if c.is_ascii_digit() { '0' } else { c };
    local.chars().map(zero).chain(offset.chars()).collect()
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::{
        config::{DeclaredType, PaginationKind, SourceConfig, TypeContract},
        record::ColumnType,
        report::Warning,
    };

    use crate::{
        held_warnings::holding,
        infer::{Inferred, Survey},
    };

    fn source() -> SourceConfig {
        crate::testing::config("http://h/", PaginationKind::Page)
    }

    fn infer_in_order(texts: &[&str], config: &SourceConfig) -> Inferred {
        let mut survey = Survey::new(config);
        for text in texts {
            let entries = vec![("at".to_owned(), Value::Text((*text).to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        survey.infer(config)
    }

    /// Infers a column of these strings, whose order does not matter.
    fn infer_texts(texts: &[&str], config: &SourceConfig) -> Inferred {
        let found = infer_in_order(texts, config);
        let backward: Vec<&str> = texts.iter().rev().copied().collect();
        assert_eq!(found.warnings, infer_in_order(&backward, config).warnings);
        found
    }

    /// Checks the warning about strings, and that following its advice lands timestamps.
    fn check_advice(texts: &[&str], named: &str, formats: &[&str]) {
        let mut config = source();
        let found = infer_texts(texts, &config);
        assert_eq!(found.types["at"], ColumnType::Utf8);
        let [warning] = &found.warnings[..] else {
            panic!("{texts:?}: {:?}", found.warnings)
        };
        assert_eq!(
            (warning.code.as_str(), warning.key.as_deref()),
            ("text_times", Some("contract.dates"))
        );
        let begin = format!("`at` ({named}): times of several forms land as text");
        assert!(warning.message.starts_with(&begin), "{warning:?}");
        let advice = format!("set `contract.dates = {formats:?}` to land timestamps");
        assert!(warning.message.contains(&advice), "{warning:?}");
        config.contract.dates = formats.iter().map(|f| (*f).to_owned()).collect();
        let followed = infer_texts(texts, &config);
        assert_eq!(followed.types["at"], ColumnType::Timestamp);
        assert_eq!(followed.warnings, []);
        // What has landed needs a reset.
        let held = holding(&config, &found.warnings);
        assert!(
            held[0].message.contains("`contract.dates` is set, but"),
            "{held:?}"
        );
    }

    #[test]
    fn times_whose_characters_have_another_order_are_named_with_the_formats_that_read_them() {
        check_advice(
            &["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5Z"],
            "`2026-03-01T12:00:00.5Z`, `2026-03-01T12:00:00Z`",
            &["rfc3339"],
        );
        check_advice(
            &[
                "2026-03-29T01:30:00+01:00",
                "2026-03-29T03:30:00+02:00",
                "2026-03-28T01:30:00+01:00",
            ],
            "`2026-03-28T01:30:00+01:00`, `2026-03-29T03:30:00+02:00`",
            &["rfc3339"],
        );
        check_advice(
            &["2026-03-01", "2026-03-01T12:00:00", "2026-03-01T12:00:00Z"],
            "`2026-03-01`, `2026-03-01T12:00:00`, `2026-03-01T12:00:00Z`",
            &["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%.f", "rfc3339"],
        );
        // Of many forms the same three are named in any order.
        check_advice(
            &[
                "2026-03-01T12:00:00+05:00",
                "2026-03-01T12:00:00+04:00",
                "2026-03-01T12:00:00+01:00",
                "2026-03-01T12:00:00+03:00",
                "2026-03-01T12:00:00+02:00",
            ],
            "`2026-03-01T12:00:00+01:00`, `2026-03-01T12:00:00+02:00`, `2026-03-01T12:00:00+03:00`",
            &["rfc3339"],
        );
    }

    #[test]
    fn times_of_one_form_and_other_strings_are_not_named() {
        for texts in [
            &["2026-03-01T12:00:00Z", "2026-04-01T00:00:00Z"][..],
            &["2026-03-01T12:00:00.5+02:00", "2026-04-01T00:00:00.0+02:00"],
            &["2026-03-01", "2025-12-31"],
            &["2026-03-01", "2026-03-01T12:00:00Z", "soon"],
            &["12:00", "12:00:30"],
        ] {
            let found = infer_texts(texts, &source());
            assert_eq!(found.types["at"], ColumnType::Utf8);
            assert_eq!(found.warnings, [], "{texts:?}");
        }
    }

    /// 599 times of two forms, and these strings.
    fn among_times<'t>(others: &[&'t str]) -> Vec<&'t str> {
        let forms = ["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5Z"];
        let times = forms.iter().copied().cycle().take(599);
        times.chain(others.iter().copied()).collect()
    }

    #[test]
    fn few_strings_that_are_no_times_are_named_with_their_fate() {
        for (other, shown) in [
            ("N/A", "`N/A`"),
            ("unknown", "`unknown`"),
            ("1772366400", "`1772366400`"),
            ("", "an empty string"),
            (" ", "an empty string"),
        ] {
            let mut config = source();
            let texts = among_times(&[other]);
            let found = infer_texts(&texts, &config);
            let [warning] = &found.warnings[..] else {
                panic!("{other:?}: {:?}", found.warnings)
            };
            assert_eq!(warning.code, "text_times");
            let begin = format!(
                "`at` (`2026-03-01T12:00:00.5Z`, `2026-03-01T12:00:00Z`; 1 of 600 is no time, such as {shown}): "
            );
            assert!(warning.message.starts_with(&begin), "{warning:?}");
            let fate = "`contract.dates = [\"rfc3339\"]` to land timestamps, where strings that are no times have \
                        their rows rejected unless `contract.types = \"null_value\"` makes them null, or declare";
            assert!(warning.message.contains(fate), "{warning:?}");
            config.contract.types = TypeContract::NullValue;
            let message = &infer_texts(&texts, &config).warnings[0].message;
            let fate = "timestamps, where strings that are no times land as null, or declare";
            assert!(message.contains(fate), "{message}");
            config.contract.dates = vec!["rfc3339".into()];
            let followed = infer_texts(&texts, &config);
            assert_eq!(followed.types["at"], ColumnType::Timestamp);
            assert_eq!(followed.warnings[0].code, "odd_values");
        }
        let found = infer_texts(&among_times(&["soon"; 7]), &source());
        assert_eq!(found.warnings, []);
    }

    #[test]
    fn many_empty_strings_among_times_need_a_declared_type() {
        let mut config = source();
        let texts = among_times(&[""; 100]);
        let message = &infer_texts(&texts, &config).warnings[0].message;
        let named = "100 of 699 are no times, such as an empty string): ";
        assert!(message.contains(named), "{message}");
        let advice = "and declare `timestamp` each column with more strings that are no times than `infer.max_odd_fraction`";
        assert!(message.contains(advice), "{message}");
        config.contract.dates = vec!["rfc3339".into()];
        let column = config.contract.column.entry("at".to_owned()).or_default();
        column.r#type = Some(DeclaredType::Timestamp);
        assert_eq!(infer_texts(&texts, &config).warnings, []);
    }

    #[test]
    fn a_declared_type_is_not_doubted_before_and_after_the_strings_landed() {
        let texts = ["2026-03-01", "2026-03-01T12:00:00Z"];
        let mut config = source();
        let landed = infer_texts(&texts, &config).warnings;
        assert_eq!(holding(&config, &landed), landed);
        let column = config.contract.column.entry("at".to_owned()).or_default();
        column.r#type = Some(DeclaredType::Text);
        assert_eq!(infer_texts(&texts, &config).warnings, []);
        assert_eq!(holding(&config, &landed), []);
    }

    #[test]
    fn the_warning_holds_until_all_formats_are_set_or_all_columns_are_declared() {
        let mut config = source();
        let mut survey = Survey::new(&config);
        for text in ["2026-03-01", "2026-03-01T12:00:00Z"] {
            let cell = |name: &str| (name.to_owned(), Value::Text(text.to_owned()));
            let entries = vec![cell("at"), cell("until")];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        let landed = survey.infer(&config).warnings;
        assert_eq!(landed.len(), 1, "{landed:?}");
        config.contract.dates = vec!["rfc3339".into()];
        assert_eq!(holding(&config, &landed), landed);
        for (name, open) in [("at", &["until"][..]), ("until", &[])] {
            let column = config.contract.column.entry(name.to_owned()).or_default();
            column.r#type = Some(DeclaredType::Text);
            let held = holding(&config, &landed);
            let named = held.iter().flat_map(Warning::columns);
            let named = named.map(|column| column.name.as_str());
            assert!(named.eq(open.iter().copied()), "{name}: {held:?}");
        }
    }
}
