//! Pages whose tables have no header.

use super::*;

const HEADLESS: &str = "<table><tr><td>x<td>1<tr><td>y<td>2</table>";

async fn serve(page: &str) -> (Scripted, SourceConfig) {
    let server = site(Routes::from([("/", html(page))])).await;
    let mut config = config(&server);
    config.page.extract = PageExtract::Tables;
    (server, config)
}

#[tokio::test]
async fn tables_without_a_header_are_a_warning_beside_others() {
    let with_header = "<table><tr><th>a<tr><td>1</table>";
    let (_server, config) = serve(&format!("{HEADLESS}{HEADLESS}{with_header}")).await;
    let mut source = open(&config, &context()).unwrap();
    let (mut at, mut warnings, mut rows) = (Position::Start, Vec::new(), 0);
    while !matches!(at, Position::Done { .. }) {
        let page = source.next_page(&at).await.unwrap();
        rows += page.records.len();
        warnings.extend(page.crawled.unwrap().warnings);
        at = page.next;
    }
    assert_eq!((rows, warnings.len()), (1, 1), "{warnings:?}");
    assert_eq!(warnings[0].code, "tables_without_header");
    let begin = "2 tables without a header";
    assert!(warnings[0].message.starts_with(begin), "{warnings:?}");
}

#[tokio::test]
async fn an_error_about_tables_alone_without_a_header_names_it() {
    let (_server, config) = serve(HEADLESS).await;
    let error = crawl(&config).await.unwrap_err().to_string();
    assert!(
        error.contains("1 table on them without a header"),
        "{error}"
    );
}
