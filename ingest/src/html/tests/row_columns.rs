//! Columns of rows that have no value.

use super::*;

/// A site of this page, read as rows with these columns.
async fn rows_of(page: &str, columns: &[(&str, &str)]) -> (Scripted, SourceConfig) {
    let server = site(Routes::from([("/", html(page))])).await;
    let mut config = config(&server);
    config.page.extract = PageExtract::Rows;
    config.page.rows = Some("li".into());
    let columns = columns.iter();
    let columns = columns.map(|(name, place)| ((*name).to_owned(), (*place).to_owned()));
    config.page.columns = columns.collect();
    (server, config)
}

#[tokio::test]
async fn an_error_about_rows_without_a_value_names_the_columns() {
    let page = "<ul><li>alpha</li><li>beta</li></ul>";
    let (_server, config) = rows_of(page, &[("t", "b")]).await;
    let error = crawl(&config).await.unwrap_err().to_string();
    let expected = "`page.rows` = `li` matches 2 rows on them, and no selector of `page.columns`";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn a_column_that_matches_in_no_row_is_a_warning() {
    let page = "<ul><li><b>x</b></li><li><b>y</b></li></ul>";
    let (_server, config) = rows_of(page, &[("t", "b"), ("n", "i.price")]).await;
    let mut source = open(&config, &context()).unwrap();
    let page = source.next_page(&Position::Start).await.unwrap();
    let warnings = page.crawled.unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].code, "selector_without_match");
    assert_eq!(warnings[0].key.as_deref(), Some("page.columns"));
    let begin = "`n` (`i.price`) has no value in any of 2 rows";
    assert!(warnings[0].message.starts_with(begin), "{warnings:?}");
}
