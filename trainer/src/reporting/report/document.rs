//! A page of HTML around its body.

use super::text::escape;

/// A page around `body`.
pub(crate) fn document(title: &str, body: &str) -> String {
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
