//! Patterns for paths: `*` is any text without `/`, `?` one character but `/`, `**` as a complete
//! segment any number of segments. As in a shell, no wildcard matches a dot at the beginning of a
//! name.

/// Returns true if all of `path` (`/`-separated) matches.
pub fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    wild(
        &pattern,
        &path,
        |p| *p == "**",
        |s| !s.starts_with('.'),
        |p, s| name(p, s),
    )
}

/// Returns true if the path of a file below `folder`, at any depth, may match.
pub fn may_match_below(pattern: &str, folder: &str) -> bool {
    if folder.is_empty() {
        return true;
    }
    let parts: Vec<&str> = pattern.split('/').collect();
    // A first part of the pattern matches the folder, and the rest is left for names in it. A `**` at its end may
    // match more of them.
    let mut ends = parts.iter().enumerate().map(|(at, last)| (at + 1, *last));
    ends.any(|(end, last)| {
        let has_rest = end < parts.len() || last == "**";
        has_rest && matches(&parts[..end].join("/"), folder)
    })
}

fn name(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    wild(
        &pattern,
        &name,
        |p| *p == '*',
        |_| true,
        |p, c| *p == '?' || p == c,
    )
}

/// Matches items against a pattern with wildcards, which match any run of items that are `open` to
/// them. Backtracking to the latest wildcard suffices, so the cost is at most the product of the
/// lengths.
pub fn wild<T>(
    pattern: &[T],
    items: &[T],
    is_wild: impl Fn(&T) -> bool,
    is_open: impl Fn(&T) -> bool,
    is_match: impl Fn(&T, &T) -> bool,
) -> bool {
    let (mut p, mut i) = (0, 0);
    // The latest wildcard, and the current end of its run.
    let mut latest: Option<(usize, usize)> = None;
    while i < items.len() {
        if pattern.get(p).is_some_and(&is_wild) {
            latest = Some((p, i));
            p += 1;
        } else if pattern.get(p).is_some_and(|p| is_match(p, &items[i])) {
            p += 1;
            i += 1;
        } else if let Some((at, end)) = latest
            && is_open(&items[end])
        {
            latest = Some((at, end + 1));
            p = at + 1;
            i = end + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(is_wild)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        yes.iter()
            .for_each(|path| assert!(matches(pattern, path), "{pattern} {path}"));
        no.iter()
            .for_each(|path| assert!(!matches(pattern, path), "{pattern} {path}"));
    }

    #[test]
    fn stars_stay_inside_a_name() {
        check(
            "*.csv",
            &["a.csv", "b.c.csv"],
            &["a.csv.gz", "x/a.csv", ".csv", ".a.csv", "csv"],
        );
        check("a*b*c", &["abc", "aXbYbc"], &["ab", "acb", "abcd"]);
        check("x/*/z.csv", &["x/y/z.csv"], &["x/z.csv", "x/y/y/z.csv"]);
        check("*", &["a"], &["a/b"]);
    }

    #[test]
    fn a_question_mark_is_one_character() {
        check(
            "202?-??.csv",
            &["2024-01.csv"],
            &["2024-1.csv", "202-01.csv"],
        );
        check("?", &["é"], &["/", "ab"]);
    }

    #[test]
    fn two_stars_are_any_number_of_folders() {
        check("**", &["a", "a/b", "a/b/c"], &[".git", "a/.git/b", "a/.b"]);
        check("**/x.csv", &["x.csv", "a/x.csv", "a/b/x.csv"], &["a/y.csv"]);
        check(
            "a/**/b/*.csv",
            &["a/b/1.csv", "a/x/y/b/1.csv", "a/b/b/1.csv"],
            &["a/1.csv", "b/1.csv"],
        );
    }

    #[test]
    fn files_below_a_folder_may_match_as_long_as_its_names_do() {
        for (pattern, folder, expected) in [
            ("**", "", true),
            ("*.csv", "", true),
            ("*.csv", "a", false),
            ("**", "a/b", true),
            ("**", "a/.b", false),
            ("**/*.csv", "a/b", true),
            ("a/**", "a", true),
            ("a/**", "b", false),
            ("a/**", "ab", false),
            ("a*/*.csv", "ab", true),
            ("a*/*.csv", "b", false),
            ("a*/*.csv", "ab/c", false),
            ("a/b/*.csv", "a", true),
            ("a/b/*.csv", "a/b", true),
            ("a/b/*.csv", "a/c", false),
            ("a/**/z/*.csv", "a/x/y", true),
            ("a/**/z/*.csv", "a/x/z", true),
        ] {
            assert_eq!(
                may_match_below(pattern, folder),
                expected,
                "{pattern} {folder}"
            );
        }
    }
}
