//! Pages with bytes that are invalid in their encoding.

use super::*;

#[tokio::test]
async fn a_page_with_invalid_bytes_lands_with_a_warning() {
    // C2 80 is no character of EUC-JP.
    let page = article("Bees", &["/good"]).replace("</p>", "\u{80}</p>");
    let server = site(Routes::from([
        (
            "/",
            answer("200 OK\r\nContent-Type: text/html; charset=euc-jp", &page),
        ),
        ("/good", html(&article("good", &[]))),
    ]))
    .await;
    let mut source = open(&config(&server), &context()).unwrap();
    let (mut at, mut warnings, mut rows) = (Position::Start, Vec::new(), 0);
    while !matches!(at, Position::Done { .. }) {
        let page = source.next_page(&at).await.unwrap();
        rows += page.records.len();
        warnings.extend(page.crawled.unwrap().warnings);
        at = page.next;
    }
    assert_eq!((rows, warnings.len()), (2, 1), "{warnings:?}");
    assert_eq!(warnings[0].code, "invalid_bytes");
    let begin = "1 page has bytes that are invalid in the encoding of the page";
    assert!(warnings[0].message.starts_with(begin), "{warnings:?}");
    assert!(warnings[0].message.contains("EUC-JP"), "{warnings:?}");
}
