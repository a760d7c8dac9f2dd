//! Fuzz targets of pages, robots.txt and sitemaps.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use std::{sync::Arc, thread};

use feedline_schemas::config::{PageConfig, PageExtract};
use url::Url;

use super::{
    address,
    reader::{Rules, STACK_BYTES, Unread, contents},
    robots::{MAX_BYTES, Robots},
    sitemap as sitemaps,
};
use feedline_readers::record::Record;

/// A page, read for its article, its rows and its tables. Each link is in the form that pages are
/// compared by.
///
/// # Panics
/// If a check fails.
pub fn html(data: &[u8]) {
    // The stack of the threads that read pages.
    let builder = thread::Builder::new().stack_size(STACK_BYTES);
    thread::scope(|scope| {
        let thread = builder.spawn_scoped(scope, || check_page(data));
        let joined = thread.expect("a thread").join();
        if let Err(panic) = joined {
            std::panic::resume_unwind(panic);
        }
    });
}

fn check_page(data: &[u8]) {
    let url = Url::parse("http://example.org/a/b?c=1").expect("a URL");
    let rows = PageConfig {
        extract: PageExtract::Rows,
        rows: Some("li, tr".to_owned()),
        columns: [
            ("a".to_owned(), "a@href".to_owned()),
            ("b".to_owned(), "b".to_owned()),
        ]
        .into(),
        ..PageConfig::default()
    };
    let tables = PageConfig {
        extract: PageExtract::Tables,
        ..PageConfig::default()
    };
    for (page, content_type) in [
        (PageConfig::default(), "text/html"),
        (rows, "text/html; charset=utf-8"),
        (tables, "text/html; charset=windows-1252"),
        (PageConfig::default(), "text/plain"),
    ] {
        let rules = Rules {
            page,
            links: true,
            nofollow: true,
            drop_params: vec!["utm_*".to_owned()],
        };
        let page = Unread {
            url: url.clone(),
            bytes: bytes::Bytes::copy_from_slice(data),
            content_type: content_type.to_owned(),
            robots: String::new(),
            rules: Arc::new(rules),
            lands: true,
        };
        match contents(&page, &|| false) {
            Ok(contents) => {
                assert_eq!(contents.records.is_empty(), contents.skipped.is_some());
                for record in &contents.records {
                    assert!(!matches!(record, Record::Json(_)), "{record:?}");
                }
                for link in contents.links {
                    let again = address::normalized(link.clone(), &page.rules.drop_params);
                    assert_eq!(again, Some(link));
                }
            }
            Err((reason, detail)) => assert!(!reason.is_empty() && !detail.is_empty()),
        }
    }
}

/// A robots.txt. Its line ends have no meaning, and it never forbids itself.
pub fn robots(data: &[u8]) {
    let robots = Robots::parse(data, "feedline");
    assert!(robots.allows("/robots.txt"));
    for path in [
        "/",
        "/a/b?c=d",
        "/%41%2f*$",
        "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.html",
    ] {
        robots.allows(path);
    }
    let mut longer = Vec::with_capacity(data.len());
    for byte in data {
        if *byte == b'\n' {
            longer.push(b'\r');
        }
        longer.push(*byte);
    }
    if longer.len() <= MAX_BYTES {
        assert_eq!(Robots::parse(&longer, "feedline"), robots);
    }
    let named = sitemaps::of_robots(data);
    let is_one_word = |url: &String| !url.contains(|c: char| c.is_ascii_whitespace());
    assert!(named.is_index && named.urls.iter().all(is_one_word));
}

/// A sitemap. A list of its URLs, one a line, is the same sitemap.
pub fn sitemap(data: &[u8]) {
    match sitemaps::parse(data) {
        Ok(sitemap) => {
            let is_plain = |url: &String| {
                url.starts_with("http") && url.trim() == url && url.lines().count() == 1
            };
            let is_list = !sitemap.is_index && !sitemap.urls.is_empty();
            if is_list && sitemap.urls.iter().all(is_plain) {
                let again = sitemaps::parse(sitemap.urls.join("\n").as_bytes());
                assert_eq!(again, Ok(sitemap));
            }
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
}
