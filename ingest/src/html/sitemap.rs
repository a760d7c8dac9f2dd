//! Sitemaps (sitemaps.org, protocol 0.9): lists of pages, and indexes of lists, as XML or as lines
//! of text. A robots.txt is an index too: its `Sitemap:` lines name lists.

use quick_xml::{Reader, escape::resolve_xml_entity, events::Event};
use url::Url;

use super::robots::MAX_BYTES;

/// Most URLs of one sitemap; the protocol allows 50,000.
const MOST_URLS: usize = 100_000;
/// Deepest nesting of elements; the protocol has 3, extensions some more.
const MAX_DEPTH: usize = 32;

/// URLs of a sitemap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sitemap {
    /// URLs of pages, or of sitemaps.
    pub(super) urls: Vec<String>,
    /// True if they are sitemaps.
    pub(super) is_index: bool,
}

impl Sitemap {
    /// Returns true if it has no URL.
    pub(super) fn is_empty(&self) -> bool {
        self.urls.iter().all(String::is_empty)
    }

    /// Hosts of its URLs; none for a URL without a scheme and a host.
    pub(super) fn hosts(&self) -> impl Iterator<Item = String> {
        let urls = self.urls.iter().filter_map(|url| Url::parse(url).ok());
        urls.filter_map(|url| url.host_str().map(ToOwned::to_owned))
    }
}

/// Returns true if `url` is that of a robots.txt.
pub(super) fn is_robots_txt(url: &Url) -> bool {
    url.path() == "/robots.txt"
}

/// Reads a sitemap.
///
/// # Errors
/// The reason why it is invalid.
pub(super) fn parse(bytes: &[u8]) -> Result<Sitemap, String> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8, which the protocol requires")?;
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.starts_with('<') {
        return xml(text);
    }
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let urls: Vec<String> = lines.map(ToOwned::to_owned).collect();
    match urls.iter().find(|url| !url.starts_with("http")) {
        Some(line) => Err(format!(
            "it is no XML, and its line `{}` is no URL",
            feedline_readers::value::shorten(line, 100)
        )),
        None => bounded(urls, false),
    }
}

/// Sitemaps that a robots.txt names, anywhere in its first [`MAX_BYTES`].
pub(super) fn of_robots(bytes: &[u8]) -> Sitemap {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_BYTES)]);
    let lines = text.trim_start_matches('\u{feff}').split(['\n', '\r']);
    let fields = lines.filter_map(|line| line.split_once(':'));
    let named = fields.filter(|(key, _)| key.trim().eq_ignore_ascii_case("sitemap"));
    // A `#` may be part of a URL, so a comment begins after a space.
    let urls = named.filter_map(|(_, value)| value.split_ascii_whitespace().next());
    Sitemap {
        urls: urls.map(ToOwned::to_owned).take(MOST_URLS).collect(),
        is_index: true,
    }
}

fn xml(text: &str) -> Result<Sitemap, String> {
    let mut reader = Reader::from_str(text);
    let (mut path, mut urls, mut is_index): (Vec<Vec<u8>>, Vec<String>, _) =
        (Vec::new(), Vec::new(), false);
    let mut url = String::new();
    loop {
        let event = reader
            .read_event()
            .map_err(|e| format!("it is not XML: {e}"))?;
        let in_loc = path.len() == 3 && path[2] == b"loc";
        match event {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_vec();
                if path.is_empty() {
                    is_index = match name.as_slice() {
                        b"urlset" => false,
                        b"sitemapindex" => true,
                        other => {
                            return Err(format!(
                                "its root is `{}`, not `urlset` or `sitemapindex`",
                                String::from_utf8_lossy(other)
                            ));
                        }
                    };
                }
                path.push(name);
                if path.len() > MAX_DEPTH {
                    return Err(format!(
                        "its elements are nested more than {MAX_DEPTH} deep"
                    ));
                }
            }
            Event::End(_) => {
                path.pop();
                if in_loc {
                    urls.push(std::mem::take(&mut url).trim().to_owned());
                    if urls.len() > MOST_URLS {
                        return bounded(urls, is_index);
                    }
                }
            }
            Event::Text(text) if in_loc => url += &text.decode().map_err(|e| e.to_string())?,
            Event::CData(text) if in_loc => url += &text.decode().map_err(|e| e.to_string())?,
            Event::GeneralRef(entity) if in_loc => {
                let name = entity.decode().map_err(|e| e.to_string())?;
                let character = entity.resolve_char_ref().ok().flatten();
                match (resolve_xml_entity(&name), character) {
                    (Some(known), _) => url += known,
                    (None, Some(character)) => url.push(character),
                    (None, None) => return Err(format!("it has an unknown entity `&{name};`")),
                }
            }
            Event::Eof if path.is_empty() => return bounded(urls, is_index),
            Event::Eof => return Err("it ends early: an element is left open".into()),
            _ => {}
        }
    }
}

fn bounded(urls: Vec<String>, is_index: bool) -> Result<Sitemap, String> {
    if urls.len() > MOST_URLS {
        return Err(format!("it has more than {MOST_URLS} URLs"));
    }
    Ok(Sitemap { urls, is_index })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, is_index: bool, urls: &[&str]) {
        let urls = urls.iter().map(|&url| url.to_owned()).collect();
        assert_eq!(
            parse(text.as_bytes()),
            Ok(Sitemap { urls, is_index }),
            "{text}"
        );
    }

    fn refused(text: &str, part: &str) {
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn pages_and_sitemaps_are_told_apart_by_the_root() {
        check(
            "\u{feff}<?xml version='1.0' encoding='UTF-8'?>\n<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:image='i'>\
             <url><loc> http://h/a?x=1&amp;y=&#50; </loc><lastmod>2020</lastmod><image:image><image:loc>http://h/i.png</image:loc></image:image></url>\
             <url><loc><![CDATA[http://h/b&c]]></loc></url><url/></urlset>",
            false,
            &["http://h/a?x=1&y=2", "http://h/b&c"],
        );
        check(
            "<s:sitemapindex xmlns:s='x'><s:sitemap><s:loc>http://h/s.xml</s:loc></s:sitemap></s:sitemapindex>",
            true,
            &["http://h/s.xml"],
        );
        check("<urlset></urlset>", false, &[]);
        check(
            "http://h/1\r\n\n http://h/2 \n",
            false,
            &["http://h/1", "http://h/2"],
        );
    }

    #[test]
    fn what_is_no_sitemap_says_why() {
        refused("<html><body>Not found</body></html>", "its root is `html`");
        refused("<urlset><url><loc>http://h/", "ends early");
        refused("<urlset><url></loc></urlset>", "not XML");
        refused("Not found", "no URL");
        refused("", "it is empty");
        refused("\u{feff}\n \n", "it is empty");
        refused(
            "<!DOCTYPE u [<!ENTITY a 'http://h/'>]><urlset><url><loc>&a;</loc></url></urlset>",
            "unknown entity",
        );
        refused(&"<urlset>".repeat(40), "nested more than 32");
        assert!(parse(b"\xff\xfe").unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let page = "<url><loc>http://h/</loc></url>".repeat(MOST_URLS + 2);
        refused(&format!("<urlset>{page}</urlset>"), "more than 100000");
        refused(&"http://h/\n".repeat(MOST_URLS + 1), "more than 100000");
    }
}
