//! Members of a sample of a WebDataset that are read, by their extensions.

use super::rows::JsonRow;

/// Extensions of images.
pub(super) const IMAGES: &[&str] = &["jpg", "jpeg", "png", "webp"];

/// Members of a sample that are read.
#[derive(Clone, Debug)]
pub(super) struct SampleMembers {
    /// Extension of images, if one is asked for.
    pub(super) image: Option<String>,
    /// False where the target is none, so that no label is read.
    pub(super) reads_labels: bool,
    /// Extension of labels, or key in a `json` member, if one is asked for.
    pub(super) label: Option<String>,
    /// Key of an image's sample in its `json` member, where an export has it there.
    pub(super) key: Option<String>,
    /// Numbers to read from `json` members, in place of images.
    pub(super) row: Option<JsonRow>,
}

/// Place of a label in a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum LabelKey<'a> {
    /// All of it.
    Text,
    /// At a key.
    Json(&'a str),
    /// At the first usual name that has a number.
    Usual,
}

/// Place of the label in a member with this extension, if it may have it.
pub(super) fn label_key<'a>(wanted: &'a SampleMembers, extension: &str) -> Option<LabelKey<'a>> {
    if !wanted.reads_labels {
        return None;
    }
    match wanted.label.as_deref() {
        None => match extension {
            "cls" => Some(LabelKey::Text),
            "json" => Some(LabelKey::Usual),
            _ => None,
        },
        Some(label) if extension == label => Some(LabelKey::Text),
        Some("cls") => None,
        Some(label) => (extension == "json")
            .then(|| LabelKey::Json(label.strip_prefix("json.").unwrap_or(label))),
    }
}

/// Key and extension: before and after the first dot behind the last slash.
pub(super) fn split_name(name: &str) -> Option<(&str, &str)> {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    (dot > base).then(|| (&name[..dot], &name[dot + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_at_the_first_dot_behind_the_last_slash() {
        assert_eq!(
            split_name("a/b.c/0001.seg.png"),
            Some(("a/b.c/0001", "seg.png"))
        );
        assert_eq!(split_name("0001.jpg"), Some(("0001", "jpg")));
        assert_eq!(split_name("./0001.jpg"), Some(("./0001", "jpg")));
        for none in ["README", "a/.hidden", "a.b/c", ".x"] {
            assert_eq!(split_name(none), None, "{none}");
        }
    }
}
