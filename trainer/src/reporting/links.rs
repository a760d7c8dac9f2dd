//! Links between pages that are stored below one root.

/// Relative link from a page in `folder` to `to`, both as URLs or paths; `None` where they share no root.
pub(crate) fn relative(folder: &str, to: &str) -> Option<String> {
    let (folder, to) = (parts(folder), parts(to));
    let common = folder.iter().zip(&to).take_while(|(a, b)| a == b).count();
    // Of a URL, scheme and host are the first three parts, `s3:`, an empty one and the bucket.
    let is_url = folder.first().is_some_and(|first| first.ends_with(':'));
    let shared = if is_url { 3 } else { 1 };
    let (up, down) = (&folder[common..], &to[common..]);
    if common < shared || down.is_empty() || up.contains(&"..") || down.contains(&"..") {
        return None;
    }
    let up = up.iter().map(|_| "..".to_owned());
    let down = down.iter().map(|part| encoded(part));
    Some(up.chain(down).collect::<Vec<_>>().join("/"))
}

/// The parts of a path or URL, without those that mean nothing.
fn parts(url: &str) -> Vec<&str> {
    let url = url.strip_suffix('/').unwrap_or(url);
    if url.contains("://") {
        return url.split('/').collect();
    }
    // The root of an absolute path is a part of its own, so that no relative one shares it.
    let root = url.starts_with('/').then_some("/");
    let parts = url.split('/').filter(|part| !matches!(*part, "" | "."));
    root.into_iter().chain(parts).collect()
}

/// A part of a path as links write it.
fn encoded(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::relative;

    #[test]
    fn links_are_relative_below_one_root_and_absent_elsewhere() {
        for (folder, to, expected) in [
            (
                "out/train/aa",
                "out/dataset/report-1.html",
                Some("../../dataset/report-1.html"),
            ),
            (
                "./out/train",
                "out/train/aa/report.html",
                Some("aa/report.html"),
            ),
            ("/a/train/x", "/a/index.html", Some("../../index.html")),
            (
                "../o/train/x",
                "../o/train/index.html",
                Some("../index.html"),
            ),
            ("/a/train/x", "/b/index.html", Some("../../../b/index.html")),
            ("a/train/x", "b/index.html", None),
            ("/a/train", "a/train/index.html", None),
            ("a/../b", "a/index.html", None),
            (
                "s3://bucket/p/train/x/",
                "s3://bucket/p/dataset/r.html",
                Some("../../dataset/r.html"),
            ),
            ("s3://bucket/train", "s3://other/dataset/r.html", None),
            ("s3://bucket/train", "gs://bucket/dataset/r.html", None),
            (
                "out/train",
                "out/a b/<&\"'#?:.html",
                Some("../a%20b/%3C%26%22%27%23%3F%3A.html"),
            ),
        ] {
            assert_eq!(relative(folder, to).as_deref(), expected, "{folder} {to}");
        }
    }
}
