//! The `Link` header (RFC 8288).

use std::fmt::Write as _;

/// Relations to other pages in the `Link` headers of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    /// Target of the first link whose relation is `next`.
    pub(super) next: Option<String>,
    /// True if a link relates the pages of a list: next, previous, first or last.
    pub(super) are_of_pages: bool,
}

/// Reads the links in the values of `Link` headers, except links about another resource (`anchor`).
/// A byte beyond ASCII becomes `%` and two digits.
///
/// # Errors
/// The reason that a next link may exist but cannot be read. It quotes nothing: a link may hold a
/// secret.
pub(super) fn read<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Result<Links, &'static str> {
    let (mut links, mut unreadable) = (Links::default(), None);
    for value in values {
        if let Err(reason) = read_value(&text(value), &mut links) {
            unreadable = Some(reason);
        }
    }
    match (&links.next, unreadable) {
        (None, Some(reason)) => Err(reason),
        _ => Ok(links),
    }
}

fn text(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value {
        if byte.is_ascii() {
            text.push(char::from(*byte));
        } else {
            write!(text, "%{byte:02X}").expect("writing to a string does not fail");
        }
    }
    text
}

fn read_value(mut text: &str, links: &mut Links) -> Result<(), &'static str> {
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if text.is_empty() {
            return Ok(());
        }
        let link = text
            .strip_prefix('<')
            .and_then(|behind| behind.split_once('>'));
        let (target, rest) = link.ok_or("a link in it is not in `<` and `>`")?;
        let (relations, rest) = parameters(rest)?;
        let is = |name: &str| relations.iter().any(|r| r.eq_ignore_ascii_case(name));
        if is("next") && links.next.is_none() {
            links.next = Some(target.trim().to_owned());
        }
        let of_pages = ["next", "prev", "previous", "first", "last"];
        links.are_of_pages |= of_pages.into_iter().any(is);
        text = rest;
    }
}

/// Reads the parameters of a link at the beginning of `text`. Returns its relations, and the rest
/// of the text.
fn parameters(mut text: &str) -> Result<(Vec<String>, &str), &'static str> {
    let (mut relation, mut has_anchor) = (None, false);
    loop {
        text = text.trim_start();
        let Some(rest) = text.strip_prefix(';') else {
            break;
        };
        let rest = rest.trim_start();
        let end = rest.find(['=', ';', ',']).unwrap_or(rest.len());
        let name = rest[..end].trim_end();
        let (value, rest) = match rest[end..].strip_prefix('=') {
            Some(rest) => value(rest.trim_start())?,
            None => (String::new(), &rest[end..]),
        };
        if name.eq_ignore_ascii_case("rel") {
            // Only the first one counts (section 3.3).
            relation.get_or_insert(value);
        } else if name.eq_ignore_ascii_case("anchor") {
            has_anchor = true;
        }
        text = rest;
    }
    let relation = relation.filter(|_| !has_anchor).unwrap_or_default();
    let relations = relation.split_ascii_whitespace().map(ToOwned::to_owned);
    Ok((relations.collect(), text))
}

/// Reads a token or a quoted string at the beginning of `text`. Returns the rest of the text too.
fn value(text: &str) -> Result<(String, &str), &'static str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return Ok((text[..end].trim_end().to_owned(), &text[end..]));
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, c) in quoted.char_indices() {
        match c {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            '"' if !is_escaped => return Ok((value, &quoted[at + 1..])),
            c => value.push(c),
        }
        is_escaped = false;
    }
    Err("a quoted string in it has no end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[&str], expected: Option<&str>) {
        let links = read(values.iter().map(|value| value.as_bytes()));
        assert_eq!(links.unwrap().next.as_deref(), expected, "{values:?}");
    }

    #[test]
    fn the_next_link_is_found_in_every_form_the_standard_allows() {
        let github = r#"<https://h/r?page=1>; rel="prev", <https://h/r?page=3>; rel="next", <https://h/r?page=5>; rel="last""#;
        check(&[github], Some("https://h/r?page=3"));
        check(&["<b>;rel=next"], Some("b"));
        check(&["<b> ; REL = \"NEXT\""], Some("b"));
        check(&[r#"<b>; rel="last next""#], Some("b"));
        check(&["<a>; rel=prev", "<b>; rel=next"], Some("b"));
        check(
            &[r#"<a,b;c>; title="x, <no>; rel=next"; rel=next"#],
            Some("a,b;c"),
        );
        check(&[r#"<b>; title="say \"next\""; rel=next"#], Some("b"));
        check(&["<b>; crossorigin; rel=next"], Some("b"));
        check(&["<>; rel=next"], Some(""));
        check(&["b; rel=prev", "<b>; rel=next"], Some("b"));
    }

    #[test]
    fn what_is_not_the_next_page_is_not_followed() {
        check(&[], None);
        check(&[""], None);
        check(&["<b>; rel=nextish"], None);
        check(&["<b>; rel=prev; rel=next"], None);
        check(&[r##"<b>; rel=next; anchor="#x""##], None);
        check(&["<b>", "<b>;", "<b>;="], None);
    }

    #[test]
    fn bytes_beyond_ascii_stay_what_they_are() {
        let utf8 = "<https://h/r?q=caf\u{e9}&page=2>; rel=\"next\"; title=\"n\u{e4}chste\"";
        check(&[utf8], Some("https://h/r?q=caf%C3%A9&page=2"));
        let latin1 = read([&b"<?q=caf\xe9&page=2>; rel=next"[..]]).unwrap();
        assert_eq!(latin1.next.as_deref(), Some("?q=caf%E9&page=2"));
    }

    #[test]
    fn what_cannot_be_read_is_not_the_end() {
        for value in [
            "b; rel=next",
            "<b; rel=next",
            "<a>; rel=prev, b; rel=next",
            r#"<b>; title="rel=next"#,
        ] {
            assert!(read([value.as_bytes()]).is_err(), "{value}");
        }
    }

    #[test]
    fn links_of_pages_are_told_from_others() {
        let are_of_pages = |value: &str| read([value.as_bytes()]).unwrap().are_of_pages;
        assert!(are_of_pages("<a>; rel=first, <b>; rel=last"));
        assert!(!are_of_pages("<style.css>; rel=preload; as=style"));
    }
}
