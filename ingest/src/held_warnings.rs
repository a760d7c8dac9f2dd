//! Landed warnings that hold under the current settings.

use feedline_http::without_users_of_urls;
use feedline_schemas::{
    config::{CsvConfig, PaginationKind, SourceConfig},
    record::{join_path, split_path},
    report::Warning,
};

use crate::{
    csv_header::NO_COMMON_COLUMN,
    file_list::OF_ONE_RUN,
    html::{SELECTOR_WITHOUT_MATCH, shown_column},
    infer,
    rest::graphql::effective,
    source_table::unit_of,
    source_type::ReadUnit,
    warnings::{
        COMMON_CAP, ERRORS_BESIDE_RECORDS, LIST_MOVED, NEXT_PAGE_NOT_REQUESTED, SHORT_MIDDLE_PAGE,
        is_end,
    },
};

/// Code of the warning about values that do not fit the type of their column.
const ODD_VALUES: &str = "odd_values";

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
    let is_odd = |warning: &Warning| warning.code == ODD_VALUES;
    let has_fate = |warning: &&Warning| {
        !is_odd(warning) || infer::is_about_odd_values(&warning.message, config.contract.types)
    };
    let has_csv = |warning: &&Warning| {
        warning.code != infer::CSV_NOT_USED || config.csv != CsvConfig::default()
    };
    let has_column = |warning: &&Warning| {
        let mut columns = config.page.columns.iter();
        let is_named = |(name, place): (&String, &String)| {
            warning.message.contains(&shown_column(name, place))
        };
        warning.code != SELECTOR_WITHOUT_MATCH || columns.any(is_named)
    };
    let is_open = |warning: &&Warning| {
        let mut declared = config
            .contract
            .column
            .keys()
            .chain(&config.contract.required);
        let is_named = |name: &str| warning.message.contains(&format!("`{name}`"));
        // Of NDJSON the first keys of paths are named.
        let is_open = |name: &String| {
            let keys = split_path(name);
            !is_named(name) && !is_named(&join_path(keys.first().map(String::as_str)))
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
        .filter(has_fate)
        .filter(has_csv)
        .filter(has_column)
        .filter(is_open)
        .filter(|warning| infer::has_open_columns(warning, config))
        .filter(|warning| infer::has_open_version(warning, config))
        .map(|warning| infer::follow_settings(without_users(warning.clone()), config))
        .filter_map(|warning| infer::follow_missing_words(warning, config))
        .filter_map(|warning| infer::follow_rounded_digits(warning, config))
        .collect()
}

/// A warning without users and passwords of URLs, which those of earlier releases may have.
pub(crate) fn without_users(mut warning: Warning) -> Warning {
    warning.message = without_users_of_urls(&warning.message).into_owned();
    warning
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::{Bounded, ColumnContract, DeclaredType};
    use serde_json::json;

    use super::*;

    fn warning(code: &str, message: &str) -> Warning {
        Warning {
            code: code.into(),
            message: message.into(),
            key: None,
        }
    }

    #[test]
    fn advice_about_dates_follows_the_settings() {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        let advice = "`day` (`31/01/2020`): dates land as text; to have dates name the format";
        let landed = [Warning::new("looks_like_dates", advice).with_key("contract.dates")];
        assert_eq!(holding(&config, &landed), landed);
        config.contract.dates = vec!["%d/%m/%Y".into()];
        let held = holding(&config, &landed);
        assert!(
            held[0].message.contains("`contract.dates` is set, but"),
            "{held:?}"
        );
    }

    #[test]
    fn a_password_of_an_earlier_configuration_is_not_shown() {
        let config = crate::testing::config("http://h/", PaginationKind::Page);
        let landed = warning(
            "file_copied",
            "`http://u:canary@h/a` is equal to `http://u:canary@h/b`",
        );
        let held = holding(&config, &[landed]);
        assert_eq!(held[0].message, "`http://h/a` is equal to `http://h/b`");
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
        let landed = [warning("selector_without_match", message)];
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
        let landed = [warning(NO_COMMON_COLUMN, message)];
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
