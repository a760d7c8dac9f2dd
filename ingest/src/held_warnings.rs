//! Landed warnings that hold under the current settings.

use feedline_http::without_users_of_urls;
use feedline_schemas::{
    config::{CsvConfig, PaginationKind, SourceConfig},
    record::{join_path, split_path},
    report::{WarnedColumn, Warning},
};

use crate::{
    csv_header::NO_COMMON_COLUMN,
    file_list::OF_ONE_RUN,
    html::SELECTOR_WITHOUT_MATCH,
    infer,
    rest::graphql::effective,
    source_table::unit_of,
    source_type::ReadUnit,
    warnings::{
        COMMON_CAP, ERRORS_BESIDE_RECORDS, LIST_MOVED, NEXT_PAGE_NOT_REQUESTED, SHORT_MIDDLE_PAGE,
        is_end,
    },
};

/// Beginning of the codes of warnings about the format of pages.
const DECIDED_FORMAT: &str = "response_is_";

/// Returns the `landed` warnings that hold under `config`. A warning about a reverted setting does
/// not.
pub(crate) fn holding(config: &SourceConfig, landed: &[Warning]) -> Vec<Warning> {
    let config = &*effective(config);
    let pages = &config.pagination;
    let kind = pages.way.kind();
    let has_pages = unit_of(config) == ReadUnit::Page;
    let has_page_size =
        matches!(kind, PaginationKind::Page | PaginationKind::Offset) && pages.common.page_size > 0;
    let holds = |warning: &&Warning| match warning.code.as_str() {
        "small_pages" | "repeated_page" => has_page_size,
        SHORT_MIDDLE_PAGE => has_page_size && pages.way.empty_pages() <= 1,
        LIST_MOVED => matches!(kind, PaginationKind::Page | PaginationKind::Offset),
        "no_link_header" => kind == PaginationKind::Link,
        "no_cursor_header" => kind == PaginationKind::HeaderCursor,
        "no_next_cursor" => kind == PaginationKind::Cursor,
        "no_next_url" => kind == PaginationKind::NextUrl,
        "no_has_more" => pages.way.has_more_path().is_some(),
        NEXT_PAGE_NOT_REQUESTED => pages.way.is_absent(),
        "total_differs" | "total_changed" | "no_total" => {
            pages.common.total_path.is_some() || pages.common.total_header.is_some()
        }
        COMMON_CAP => {
            let common = &pages.common;
            let has_total = common.total_path.is_some() || common.total_header.is_some();
            common.max_records.is_none() && !has_total
        }
        "null_list" => config.error_path.as_deref() != Some(""),
        ERRORS_BESIDE_RECORDS => config.error_path.is_none(),
        code if code.starts_with(DECIDED_FORMAT) => config.response.format.is_auto(),
        _ => true,
    };
    let has_csv = |warning: &&Warning| {
        warning.code != infer::CSV_NOT_USED || config.csv != CsvConfig::default()
    };
    let has_column = |warning: &&Warning| {
        let has_selector = |column: &WarnedColumn| {
            let selector = config.page.columns.get(&column.name);
            selector.is_some_and(|selector| column.values.first() == Some(selector))
        };
        let is_about_selector = warning.code == SELECTOR_WITHOUT_MATCH;
        !is_about_selector || warning.findings.is_empty() || warning.columns().any(has_selector)
    };
    let is_open = |warning: &&Warning| {
        let mut declared = config
            .contract
            .column
            .keys()
            .chain(&config.contract.required);
        // Of NDJSON the first keys of paths are named.
        let is_open = |name: &String| {
            let keys = split_path(name);
            let first = join_path(keys.first().map(String::as_str));
            !warning.is_about(name) && !warning.is_about(&first)
        };
        warning.code != NO_COMMON_COLUMN || declared.all(is_open)
    };
    let is_of_pages =
        |code: &str| is_end(code) || code == "small_pages" || code.starts_with(DECIDED_FORMAT);
    let holds = |warning: &&Warning| !is_of_pages(&warning.code) || (has_pages && holds(warning));
    // Logs of earlier builds may have them.
    landed
        .iter()
        .filter(|warning| !OF_ONE_RUN.contains(&warning.code.as_str()))
        .filter(holds)
        .filter(has_csv)
        .filter(has_column)
        .filter(is_open)
        .filter_map(|warning| infer::hold_under(config, without_users(warning.clone())))
        .collect()
}

/// A warning without users and passwords of URLs, which those of earlier releases may have.
pub(crate) fn without_users(mut warning: Warning) -> Warning {
    let masked = |text: &mut String| *text = without_users_of_urls(text).into_owned();
    masked(&mut warning.message);
    for column in warning
        .findings
        .iter_mut()
        .flat_map(|finding| &mut finding.columns)
    {
        masked(&mut column.found);
        column.values.iter_mut().for_each(masked);
    }
    warning
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::{Bounded, ColumnContract, DeclaredType};
    use serde_json::json;

    use super::*;

    fn warning(code: &str, message: &str) -> Warning {
        Warning::new(code, message)
    }

    #[test]
    fn advice_about_dates_follows_the_settings() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let landed_under = |config: &SourceConfig| {
            let mut survey = infer::Survey::new(config);
            let entries = vec![("day".to_owned(), Value::Cell("31/01/2020".to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
            survey.infer(config).warnings
        };
        let landed = landed_under(&config);
        assert_eq!(landed[0].code, "looks_like_dates");
        assert_eq!(holding(&config, &landed), landed);
        // Advice that was given under a format is followed by another format.
        config.contract.dates = vec!["%d.%m.%Y".into()];
        let under_other = landed_under(&config);
        assert_eq!(holding(&config, &under_other), under_other);
        config.contract.dates = vec!["%d.%m.%Y".into(), "%d/%m/%Y".into()];
        for landed in [landed, under_other] {
            let held = holding(&config, &landed);
            let begin = "`day` (`31/01/2020`;";
            let reset = "; `contract.dates` is set, but a column keeps its type";
            let message = &held[0].message;
            assert!(message.starts_with(begin), "{held:?}");
            assert!(message.contains(reset), "{held:?}");
        }
    }

    #[test]
    fn a_warning_about_columns_of_an_earlier_release_holds_unchanged() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.contract.dates = vec!["%d/%m/%Y".into()];
        let codes = infer::TYPE_WARNINGS.iter();
        let codes = codes.filter(|code| !["csv_not_used", "version_is_number"].contains(*code));
        let landed: Vec<Warning> = codes
            .map(|code| warning(code, "`a` (`1`): it is"))
            .collect();
        assert_eq!(holding(&config, &landed), landed);
    }

    #[test]
    fn a_password_of_an_earlier_configuration_is_not_shown() {
        let config = crate::testing::config("http://h/", PaginationKind::Page);
        let landed = warning(
            "file_copied",
            "`http://u:canary@h/a` is equal to `http://u:canary@h/b`",
        );
        let column = WarnedColumn {
            values: vec!["http://u:canary@h/a".to_owned()],
            ..WarnedColumn::with_found("u", "`http://u:canary@h/a`")
        };
        let landed = landed.with_columns(vec![column]);
        let held = holding(&config, &[landed]);
        assert_eq!(held[0].message, "`http://h/a` is equal to `http://h/b`");
        assert!(!format!("{held:?}").contains("canary"), "{held:?}");
    }

    #[test]
    fn warnings_about_the_files_of_one_run_do_not_hold() {
        let config = crate::testing::config("http://h/", PaginationKind::Page);
        let landed = OF_ONE_RUN.map(|code| warning(code, ""));
        assert_eq!(holding(&config, &landed), []);
    }

    #[test]
    fn a_warning_about_unused_settings_of_csv_holds_as_long_as_there_are_some() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let landed = [warning("csv_not_used", "")];
        assert!(holding(&config, &landed).is_empty());
        config.csv.percent = true;
        assert_eq!(holding(&config, &landed), landed);
    }

    #[test]
    fn a_warning_about_a_selector_holds_as_long_as_the_column_has_it() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let message = "`n` (`i.price`) has no value in any of 2 rows";
        // The last one is behind those that keep their words.
        let columns = ["m"; 30].into_iter().chain(["n"]);
        let columns = columns.map(|name| WarnedColumn {
            values: vec!["i.price".to_owned()],
            ..WarnedColumn::with_found(name, "i.price")
        });
        let landed = warning("selector_without_match", message).with_columns(columns.collect());
        let landed = [landed];
        assert!(holding(&config, &landed).is_empty());
        let mut set = |place: &str| {
            let columns = [("n".to_owned(), place.to_owned())];
            config.page.columns = columns.into();
            holding(&config, &landed)
        };
        assert_eq!(set("i.price"), landed);
        assert!(set("b.price").is_empty());
    }

    #[test]
    fn a_warning_about_words_for_a_missing_value_holds_until_the_column_is_declared() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let mut survey = infer::Survey::new(&config);
        for text in ["NA", "DE"] {
            let entries = vec![("c".to_owned(), Value::Cell(text.to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        let landed = survey.infer(&config).warnings;
        assert_eq!(landed[0].code, "missing_words");
        assert_eq!(holding(&config, &landed), landed);
        let columns = &mut config.contract.column;
        let column = columns.entry("c".to_owned()).or_default();
        column.r#type = Some(DeclaredType::Text);
        assert_eq!(holding(&config, &landed), []);
    }

    #[test]
    fn a_warning_about_files_without_a_common_column_holds_until_one_is_declared() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let message = "the header of `in/b.csv` has no column of other files: `x`, `y`; it lands";
        let columns = ["x", "y"].map(WarnedColumn::new);
        let landed = [warning(NO_COMMON_COLUMN, message).with_columns(columns.into())];
        config.contract.required = vec!["in".to_owned()];
        assert_eq!(holding(&config, &landed), landed);
        for name in ["y", "x.id"] {
            config.contract.column = [(name.to_owned(), ColumnContract::default())].into();
            assert_eq!(holding(&config, &landed), [], "{name}");
        }
    }

    #[test]
    fn a_warning_about_a_null_in_place_of_a_list_holds_until_its_meaning_is_set() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let landed = [warning("null_list", "")];
        assert_eq!(holding(&config, &landed), landed);
        // The landed page may not have that field.
        config.error_path = Some("error".into());
        assert_eq!(holding(&config, &landed), landed);
        config.error_path = Some(String::new());
        assert!(holding(&config, &landed).is_empty());
    }

    #[test]
    fn a_warning_about_a_setting_that_was_taken_back_holds_no_longer() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let held = [warning("total_differs", ""), warning("files_changed", "")];
        assert_eq!(holding(&config, &held), [warning("files_changed", "")]);
        config.pagination.common.total_path = Some("n".into());
        assert_eq!(holding(&config, &held), held);
    }

    #[test]
    fn a_short_page_between_full_ones_is_no_warning_once_the_api_is_said_to_filter_its_pages() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let held = [warning(SHORT_MIDDLE_PAGE, "")];
        let mut set = |keys: serde_json::Value| {
            config.pagination = crate::testing::pages(keys);
            holding(&config, &held)
        };
        assert_eq!(set(json!({"type": "page", "page_size": 20})), held);
        let filtered = json!({"type": "page", "page_size": 20, "empty_pages": 2});
        assert_eq!(set(filtered), []);
    }

    #[test]
    fn a_possible_cap_is_no_warning_once_the_configuration_says_that_there_is_none() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let held = [warning("common_cap", "")];
        assert_eq!(holding(&config, &held), held);
        config.pagination.common.max_records = Bounded::new(1_000_000_000).ok();
        assert_eq!(holding(&config, &held), []);
        config.pagination.common.max_records = None;
        config.pagination.common.total_path = Some("n".into());
        assert_eq!(holding(&config, &held), []);
    }

    #[test]
    fn a_next_page_that_is_not_requested_is_no_warning_once_one_page_is_chosen() {
        let mut config = crate::testing::config("http://h/", PaginationKind::None);
        let held = [warning(NEXT_PAGE_NOT_REQUESTED, "")];
        // `type = "none"` is written out.
        assert_eq!(holding(&config, &held), []);
        config.pagination = feedline_schemas::config::PaginationConfig::default();
        assert_eq!(holding(&config, &held), held);
        config.pagination.way = crate::testing::way(PaginationKind::Link);
        assert_eq!(holding(&config, &held), []);
    }
}
