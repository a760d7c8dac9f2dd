//! robots.txt (RFC 9309), and its unofficial Crawl-delay.

use std::time::Duration;

use super::pattern::{Pattern, octets};

/// Bytes read of the file. The standard requires at least 500 KiB.
pub(super) const MAX_BYTES: usize = 500 << 10;

/// Rules of a host for one robot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Robots {
    rules: Vec<Rule>,
    /// Pause between two requests.
    pub(super) crawl_delay: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    pattern: Pattern,
    allows: bool,
}

impl Robots {
    /// Parses the rules for the robot with the product token `product`: those of all groups that
    /// name it, otherwise those of all groups for `*`. A line truncated at [`MAX_BYTES`] does not
    /// count.
    pub(super) fn parse(file: &[u8], product: &str) -> Self {
        let file = match file.get(..MAX_BYTES) {
            Some(start) if file.len() > MAX_BYTES => {
                let end = start.iter().rposition(|b| matches!(b, b'\n' | b'\r'));
                &start[..end.unwrap_or(0)]
            }
            _ => file,
        };
        let text = String::from_utf8_lossy(file);
        let text = text.trim_start_matches('\u{feff}');
        let (mut ours, mut anyones): (Option<Self>, Self) = (None, Self::default());
        // The robots that the current group applies to, and whether its user-agent lines continue.
        let (mut is_ours, mut is_anyones, mut in_head) = (false, false, false);
        for line in text.split(['\n', '\r']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    if !in_head {
                        (is_ours, is_anyones, in_head) = (false, false, true);
                    }
                    is_anyones |= value == "*";
                    is_ours |= token(value).eq_ignore_ascii_case(product);
                    if is_ours {
                        ours.get_or_insert_default();
                    }
                }
                "allow" | "disallow" | "crawl-delay" => {
                    in_head = false;
                    if let Some(ours) = ours.as_mut().filter(|_| is_ours) {
                        ours.add(&key, value);
                    }
                    if is_anyones {
                        anyones.add(&key, value);
                    }
                }
                // Sitemap and unknown lines belong to no group.
                _ => {}
            }
        }
        ours.unwrap_or(anyones)
    }

    fn add(&mut self, key: &str, value: &str) {
        if key == "crawl-delay" {
            let seconds = value.parse::<f64>().ok();
            let delay = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
            self.crawl_delay = self.crawl_delay.max(delay);
        } else if !value.is_empty() {
            self.rules.push(Rule {
                pattern: Pattern::new(value),
                allows: key == "allow",
            });
        }
    }

    /// Returns true if `path`, with its query, may be fetched. The longest matching rule decides,
    /// `allow` among equals.
    pub(super) fn allows(&self, path: &str) -> bool {
        let path = octets(path.as_bytes());
        let matching = self.rules.iter().filter(|rule| rule.pattern.matches(&path));
        let strongest = matching.max_by_key(|rule| (rule.pattern.weight, rule.allows));
        path == b"/robots.txt" || strongest.is_none_or(|rule| rule.allows)
    }
}

/// The product token at the beginning of a user-agent line.
fn token(value: &str) -> &str {
    let end = value.find(|c: char| !(c.is_ascii_alphabetic() || matches!(c, '-' | '_')));
    &value[..end.unwrap_or(value.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, allowed: &[&str], refused: &[&str]) {
        let robots = Robots::parse(file.as_bytes(), "feedline");
        for path in allowed {
            assert!(robots.allows(path), "{path} of {file}");
        }
        for path in refused {
            assert!(!robots.allows(path), "{path} of {file}");
        }
    }

    #[test]
    fn the_longest_rule_decides_and_allow_wins_a_tie() {
        check(
            "User-agent: *\nDisallow: /\nAllow: /p",
            &["/page"],
            &["/x", "/"],
        );
        check(
            "User-agent: *\nAllow: /folder\nDisallow: /folder",
            &["/folder/page"],
            &[],
        );
        check(
            "User-agent: *\nAllow: /page\nDisallow: /*.htm",
            &["/page"],
            &["/page.htm"],
        );
        check(
            "User-agent: *\nAllow: /$\nDisallow: /",
            &["/"],
            &["/page.htm"],
        );
        // The examples of RFC 9309, 5.1 and 5.2.
        check(
            "User-Agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\n\nUser-Agent: foobot\nDisallow:/\n",
            &["/publications/", "/a.gift"],
            &["/x.gif", "/example/a"],
        );
        check(
            "User-agent: feedline\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif",
            &["/example/page/a"],
            &["/example/page/disallowed.gif"],
        );
    }

    #[test]
    fn groups_that_name_us_count_together_and_keep_out_those_for_anyone() {
        let file = "user-agent: FeedLine/2.0\nuser-agent: other\ndisallow: /a\n\nUser-agent: *\nDisallow: /\n\nUser-agent: feedline\nDisallow: /b\n";
        check(file, &["/c"], &["/a", "/b"]);
        check("User-agent: feedlinebot\nDisallow: /\n", &["/a"], &[]);
        check(
            "User-agent: x\nDisallow: /\nUser-agent: *\nDisallow: /b",
            &["/a"],
            &["/b"],
        );
        // An empty group for us allows everything.
        check(
            "User-agent: feedline\nDisallow:\nUser-agent: *\nDisallow: /",
            &["/a"],
            &[],
        );
        check("Disallow: /", &["/a"], &[]);
    }

    #[test]
    fn the_file_itself_and_what_nobody_mentions_are_allowed() {
        check(
            "User-agent: *\nDisallow: /",
            &["/robots.txt"],
            &["/robots.txt.bak"],
        );
        check("", &["/"], &[]);
        check("<html>not found</html>", &["/"], &[]);
    }

    #[test]
    fn odd_files_are_read_as_far_as_they_go() {
        check(
            "\u{feff}User-agent: *\rDisallow: /a # why\r\nDisallow : /b\nNonsense\nSitemap: /s\nDisallow: /c",
            &["/d"],
            &["/a", "/b", "/c"],
        );
        check(
            "user-agent: a\nsitemap: x\nuser-agent: feedline\ndisallow: /a",
            &["/b"],
            &["/a"],
        );
        let robots = Robots::parse(b"User-agent: *\nDisallow: /a\xff\nDisallow: /b", "feedline");
        assert!(!robots.allows("/b"));
    }

    #[test]
    fn fault_45_what_lies_behind_500_kib_does_not_count() {
        let mut file = "User-agent: *\nDisallow: /a\n".to_owned();
        file += &"#".repeat(MAX_BYTES - file.len() - 20);
        file += "\nDisallow: /secret-place\nDisallow: /b\n";
        assert!(file.len() > MAX_BYTES);
        // A rule truncated to `/secr` or `/` would have another meaning.
        check(&file, &["/secret-place", "/b", "/"], &["/a"]);
    }

    #[test]
    fn a_crawl_delay_belongs_to_its_group() {
        let file =
            "User-agent: *\nCrawl-delay: 1.5\nUser-agent: feedline\nCrawl-delay: 120\nDisallow: /a";
        let delay = |product| Robots::parse(file.as_bytes(), product).crawl_delay;
        assert_eq!(delay("feedline"), Some(Duration::from_secs(120)));
        assert_eq!(delay("other"), Some(Duration::from_millis(1_500)));
        for odd in ["soon", "-1", "NaN", "1e400"] {
            let file = format!("User-agent: *\nCrawl-delay: {odd}");
            assert_eq!(
                Robots::parse(file.as_bytes(), "x").crawl_delay,
                None,
                "{odd}"
            );
        }
    }
}
