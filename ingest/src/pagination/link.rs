//! The `Link` header (RFC 8288).

/// Target of the first link whose relation is `next` in the values of `Link` headers.
///
/// Links about another resource (`anchor`) are passed over. What cannot be read ends the value.
pub(super) fn next<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<String> {
    values.into_iter().find_map(next_in)
}

fn next_in(mut text: &str) -> Option<String> {
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        let (target, rest) = text.strip_prefix('<')?.split_once('>')?;
        let (is_next, rest) = parameters(rest);
        if is_next {
            return Some(target.trim().to_owned());
        }
        text = rest;
    }
}

/// Whether the parameters at the beginning of `text` make a link the next one, and what follows them.
fn parameters(mut text: &str) -> (bool, &str) {
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
            Some(rest) => value(rest.trim_start()),
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
    let relation = relation.unwrap_or_default();
    let mut relations = relation.split_ascii_whitespace();
    let is_next = relations.any(|relation| relation.eq_ignore_ascii_case("next"));
    (is_next && !has_anchor, text)
}

/// A token or a quoted string at the beginning of `text`, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return (text[..end].trim_end().to_owned(), &text[end..]);
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, c) in quoted.char_indices() {
        match c {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            '"' if !is_escaped => return (value, &quoted[at + 1..]),
            c => value.push(c),
        }
        is_escaped = false;
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[&str], expected: Option<&str>) {
        assert_eq!(
            next(values.iter().copied()).as_deref(),
            expected,
            "{values:?}"
        );
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
    }

    #[test]
    fn what_is_not_the_next_page_is_not_followed() {
        check(&[], None);
        check(&[""], None);
        check(&["<b>; rel=nextish"], None);
        check(&["<b>; rel=prev; rel=next"], None);
        check(&[r##"<b>; rel=next; anchor="#x""##], None);
        check(&[r#"<b>; title="rel=next"#], None);
        check(
            &["b; rel=next", "<b; rel=next", "<b>", "<b>;", "<b>;="],
            None,
        );
    }
}
