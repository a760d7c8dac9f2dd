//! A page of HTML around its body.

use crate::text::escape;

/// A page around `body`, which is HTML. Where it has three sections (`h2`) or more, links to them come before the first.
#[must_use]
pub fn document(title: &str, body: &str) -> String {
    let body = with_contents(body);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n",
        escape(title),
        include_str!("page.css")
    )
}

/// `body` with a table of contents before its first section, where it has three or more.
fn with_contents(body: &str) -> String {
    const OPEN: &str = "<h2>";
    let mut parts = body.split(OPEN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    let (mut contents, mut sections, mut count) = (String::new(), String::new(), 0);
    for part in parts {
        count += 1;
        let title = part.split("</h2>").next().unwrap_or_default();
        contents += &format!("<li><a href=\"#s{count}\">{title}</a></li>");
        sections += &format!("<h2 id=\"s{count}\">{part}");
    }
    if count > 2 {
        out += &format!("<nav aria-label=\"Contents\"><ul>{contents}</ul></nav>\n");
    }
    out + &sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_sections_have_links_to_them() {
        let section = |title: &str| format!("<h2>{title}</h2>\n");
        let two = document("<a>", &(section("b") + &section("c")));
        assert!(two.contains("<title>&lt;a&gt;</title>") && !two.contains("<nav"));
        let three = document("a", &["b", "c", "d"].map(section).concat());
        assert!(three.contains("<li><a href=\"#s2\">c</a></li>"), "{three}");
        assert!(three.contains("<h2 id=\"s2\">c</h2>"), "{three}");
    }
}
