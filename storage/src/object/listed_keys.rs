//! Keys of listed objects. The client removes a `/` at either end of a key, so that the path of such an object is that
//! of a folder, of another object, or of none.

use std::collections::BTreeSet;

use object_store::{ObjectMeta, path::Path};

/// Removes the empty objects that only mark a folder, as consoles of object stores create them: `folder`
/// itself, and the folders of other objects.
///
/// # Errors
/// Reason and remedy for an object that cannot be read, since its path is that of `folder` or of another object.
pub(super) fn without_markers(
    mut found: Vec<ObjectMeta>,
    folder: &Path,
) -> Result<Vec<ObjectMeta>, String> {
    const REMEDY: &str = "rename or delete it, or choose a folder that it is not in";
    let mut folders = BTreeSet::from([folder.as_ref().to_owned()]);
    for meta in &found {
        let mut path = meta.location.as_ref();
        while let Some((around, _)) = path.rsplit_once('/') {
            if !folders.insert(around.to_owned()) {
                break;
            }
            path = around;
        }
    }
    let is_folder = |location: &str| folders.contains(location);
    found.retain(|meta| meta.size > 0 || !is_folder(meta.location.as_ref()));
    let mut paths = BTreeSet::new();
    for meta in &found {
        let path = meta.location.as_ref();
        let shown = path.escape_debug();
        if meta.location == *folder {
            return Err(format!(
                "the key `{shown}/` of an object there ends with a `/`, and objects with such keys cannot be read; {REMEDY}"
            ));
        }
        if !paths.insert(path) {
            return Err(format!(
                "the keys of two objects there are `{shown}` without and with a `/` at its beginning or end, and the object with it cannot be read; {REMEDY}"
            ));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(objects: &[(&str, u64)]) -> Result<Vec<String>, String> {
        let meta = |(path, size): &(&str, u64)| ObjectMeta {
            location: Path::parse(path).unwrap(),
            last_modified: Default::default(),
            size: *size,
            e_tag: None,
            version: None,
        };
        let found = objects.iter().map(meta).collect();
        let kept = without_markers(found, &Path::from("lake/mark"))?;
        Ok(kept.iter().map(|meta| meta.location.to_string()).collect())
    }

    #[test]
    fn objects_that_only_mark_a_folder_are_not_listed() {
        let kept = check(&[
            ("lake/mark/", 0),
            ("lake/mark/sub/", 0),
            ("lake/mark/sub/deep/", 0),
            ("lake/mark/sub/deep/x.csv", 4),
            ("lake/mark/full", 3),
            ("lake/mark/full/y.csv", 4),
            ("lake/mark/empty.csv", 0),
        ]);
        let expected = ["sub/deep/x.csv", "full", "full/y.csv", "empty.csv"];
        assert_eq!(
            kept.unwrap(),
            expected.map(|path| format!("lake/mark/{path}"))
        );
    }

    #[test]
    fn an_object_with_the_path_of_another_or_of_the_folder_is_named_with_a_remedy() {
        for (objects, start) in [
            (
                [("lake/mark/x.csv", 4), ("lake/mark/x.csv/", 4)],
                "the keys of two objects there are `lake/mark/x.csv` without and with a `/`",
            ),
            (
                [("lake/mark/", 4), ("lake/mark/x.csv", 4)],
                "the key `lake/mark/` of an object there ends with a `/`",
            ),
        ] {
            let error = check(&objects).unwrap_err();
            assert!(error.starts_with(start), "{error}");
            assert!(error.contains("; rename or delete it"), "{error}");
        }
    }
}
