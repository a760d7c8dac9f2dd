//! Rows of a page by CSS selectors.

use dom_query::{Document, Matcher, NodeRef, Selection};
use feedline_readers::{record::Record, value::Value};
use feedline_schemas::config::{PageConfig, PageExtract};
use url::Url;

use super::{node_text::squeezed, text_marks::shown_text};
use crate::error::Error;

/// Selector of the row itself.
const SCOPE: &str = ":scope";
/// Reason of a row in which no column has a value.
pub(super) const EMPTY_ROW: &str = "empty_row";

/// Checks the selectors.
///
/// # Errors
/// [`Error::Config`] for a selector that is missing or invalid.
pub(super) fn check(page: &PageConfig) -> Result<(), Error> {
    if page.extract != PageExtract::Rows {
        let key = if page.rows.is_some() {
            "page.rows"
        } else {
            "page.columns"
        };
        return if page.rows.is_some() || !page.columns.is_empty() {
            Err(Error::config(
                key,
                "is for `page.extract` = `rows`; set that, or remove it",
            ))
        } else {
            Ok(())
        };
    }
    let Some(rows) = &page.rows else {
        return Err(Error::config(
            "page.rows",
            "is missing: a CSS selector of a row, such as `table.prices tr`",
        ));
    };
    if page.columns.is_empty() {
        return Err(Error::config(
            "page.columns",
            "is missing: names and CSS selectors, such as `{ name = \"h2\", link = \"a@href\" }`",
        ));
    }
    let parsed = |key: String, selector: &str| match Matcher::new(selector) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::config(
            key,
            format!("`{selector}` is not a CSS selector"),
        )),
    };
    parsed("page.rows".into(), rows)?;
    for (name, place) in &page.columns {
        let key = format!("page.columns.{name}");
        if name == "url" {
            return Err(Error::config(
                key,
                "is the URL of the page already; choose another name",
            ));
        }
        let (selector, attribute) = split(place);
        if selector.is_empty() && attribute.is_none() {
            return Err(Error::config(
                key,
                "is empty: write a CSS selector, `:scope` for the row itself, or `@attribute`",
            ));
        }
        if selector != SCOPE && selector.to_ascii_lowercase().contains(SCOPE) {
            return Err(Error::config(
                key,
                format!(
                    "`{selector}` is not possible: a selector searches the row already, and only `:scope` alone is the row \
                     itself; remove `:scope`"
                ),
            ));
        }
        if !selector.is_empty() && selector != SCOPE {
            parsed(key, selector)?;
        }
    }
    Ok(())
}

/// `selector@attribute` in its parts.
fn split(place: &str) -> (&str, Option<&str>) {
    let is_name = |text: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
        !text.is_empty() && text.chars().all(is_part)
    };
    match place.rsplit_once('@') {
        Some((selector, attribute)) if is_name(attribute) => (selector.trim(), Some(attribute)),
        _ => (place.trim(), None),
    }
}

/// Extracts the rows of a page. A row without any matching column is a reject.
pub(super) fn records(
    document: &Document,
    base: &Url,
    url: &Url,
    page: &PageConfig,
) -> Vec<Record> {
    let Some(rows) = &page.rows else {
        return Vec::new();
    };
    let record = |(number, row): (usize, &NodeRef<'_>)| {
        let mut entries = vec![("url".to_owned(), Value::Text(url.to_string()))];
        let cells = page
            .columns
            .iter()
            .map(|(name, place)| (name.clone(), cell(row, place, base)));
        entries.extend(cells);
        if entries
            .iter()
            .skip(1)
            .all(|(_, value)| *value == Value::Null)
        {
            return Record::Bad {
                raw: squeezed(&row.text()),
                reason: EMPTY_ROW,
                detail: format!("row {number} of {url}: none of `page.columns` is in it"),
            };
        }
        Record::Value(Value::Object(entries))
    };
    document
        .select(rows)
        .nodes()
        .iter()
        .enumerate()
        .map(record)
        .collect()
}

fn cell(row: &NodeRef<'_>, place: &str, base: &Url) -> Value {
    let (selector, attribute) = split(place);
    let row = Selection::from(*row);
    let found = if selector.is_empty() || selector == SCOPE {
        row
    } else {
        row.select_single(selector)
    };
    if found.is_empty() {
        return Value::Null;
    }
    let text = match attribute {
        None => {
            let texts = found.nodes().iter().map(shown_text);
            Some(squeezed(&texts.collect::<Vec<_>>().join(" ")))
        }
        Some(name) => found.attr(name).map(|value| match name {
            // As the browser reads it.
            "href" | "src" => base
                .join(value.trim())
                .map_or_else(|_| value.to_string(), String::from),
            _ => squeezed(&value),
        }),
    };
    text.filter(|text| !text.is_empty())
        .map_or(Value::Null, Value::Cell)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn page(rows: &str, columns: &[(&str, &str)]) -> PageConfig {
        let columns = columns
            .iter()
            .map(|(name, place)| ((*name).to_owned(), (*place).to_owned()));
        PageConfig {
            extract: PageExtract::Rows,
            rows: Some(rows.to_owned()),
            columns: columns.collect::<BTreeMap<_, _>>(),
            ..PageConfig::default()
        }
    }

    #[test]
    fn texts_of_a_row_are_those_that_a_page_shows() {
        let html = "<section><b>Main St<br>Bern</b><i>50<span style='display: none'>99</span></i>\
                    <u><div>1</div><div>2</div></u><s hidden>x<em>y</em></s><q>a<script>b()</script></q></section>";
        let columns = [
            ("street", "b"),
            ("n", "i"),
            ("two", "u"),
            ("hidden", "s"),
            ("q", "q"),
        ];
        let config = page("section", &columns);
        let url = Url::parse("http://h/").unwrap();
        let found = records(&Document::from(html), &url, &url, &config);
        let [Record::Value(found)] = found.as_slice() else {
            panic!("{found:?}")
        };
        let Value::Object(entries) = found else {
            panic!("{found:?}")
        };
        let found: Vec<_> = entries.iter().skip(1).map(|(_, value)| value).collect();
        let cell = |text: &str| Value::Cell(text.to_owned());
        // In the order of the names: hidden, n, q, street, two. An element that is asked for may be hidden itself.
        let expected = [
            cell("xy"),
            cell("50"),
            cell("a"),
            cell("Main St Bern"),
            cell("1 2"),
        ];
        assert_eq!(found, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_row_has_texts_and_attributes() {
        let html = "<ul><li data-id=7><a href='a/1'> Red\n <b>box</b></a><i>12</i></li>\
                    <li data-id=8><a href='/2'>Blue</a></li><li></li></ul>";
        let config = page(
            "li",
            &[
                ("name", "a"),
                ("link", "a@href"),
                ("price", "i"),
                ("id", "@data-id"),
            ],
        );
        check(&config).unwrap();
        let url = Url::parse("http://h/shop/").unwrap();
        let found = records(&Document::from(html), &url, &url, &config);
        let shown: Vec<_> = found
            .iter()
            .map(|record| match record {
                record @ (Record::Value(_) | Record::Json(_)) => record.canonical(),
                Record::Bad { reason, detail, .. } => format!("{reason} {detail}"),
            })
            .collect();
        assert_eq!(
            shown,
            [
                r#"{"id":"7","link":"http://h/shop/a/1","name":"Red box","price":"12","url":"http://h/shop/"}"#,
                r#"{"id":"8","link":"http://h/2","name":"Blue","price":null,"url":"http://h/shop/"}"#,
                "empty_row row 2 of http://h/shop/: none of `page.columns` is in it",
            ]
        );
    }

    #[test]
    fn the_row_itself_is_its_scope() {
        let html = "<li data-id=7>own <b>text</b></li>";
        let config = page(
            "li",
            &[("all", ":scope"), ("bold", "b"), ("id", ":scope@data-id")],
        );
        check(&config).unwrap();
        let url = Url::parse("http://h/").unwrap();
        let found = records(&Document::from(html), &url, &url, &config);
        let expected = r#"{"all":"own text","bold":"text","id":"7","url":"http://h/"}"#;
        assert_eq!(found[0].canonical(), expected);
    }

    #[test]
    fn selectors_are_checked_before_any_request() {
        let refused = |config: PageConfig| check(&config).unwrap_err().to_string();
        assert!(refused(page("li[", &[("a", "b")])).starts_with("`page.rows`: `li[` is not"));
        assert!(refused(page("li", &[("a", "b >")])).starts_with("`page.columns.a`"));
        assert!(refused(page("li", &[("a", "")])).contains("is empty"));
        for scope in [":scope > b", ":SCOPE", ":scope b@id"] {
            assert!(
                refused(page("li", &[("a", scope)])).contains("remove `:scope`"),
                "{scope}"
            );
        }
        assert!(refused(page("li", &[("url", "a")])).contains("another name"));
        assert!(refused(page("li", &[])).starts_with("`page.columns`: is missing"));
        let article = PageConfig {
            extract: PageExtract::Article,
            ..page("li", &[])
        };
        assert!(refused(article).starts_with("`page.rows`: is for"));
        check(&PageConfig::default()).unwrap();
        check(&page("li", &[("a", "a[href*='@x']"), ("b", "@id")])).unwrap();
    }
}
