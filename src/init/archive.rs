//! The kind of data in an archive without tables.

use feedline_ingest::SourcePreview;
use feedline_readers::remedy::Remedy;

use super::location::{Content, FileClass, Location, UnlabelledImages, class_of};

/// The location of an archive of images that was previewed as such; `None` if it has none.
pub(crate) fn with_images(location: &Location, preview: &SourcePreview) -> Option<Location> {
    let mut columns = preview.columns.iter();
    let folder = columns.find(|column| column.name == "folder");
    let are_classes = folder.is_some_and(|folder| {
        // Many tar archives call their members `./1.png`.
        let is_named = folder.samples.iter().all(|name| name != ".");
        // Members that were not looked at may be in further folders.
        let is_class = folder.distinct > 1 || (folder.distinct == 1 && !preview.is_all);
        is_named && is_class
    });
    let outside = folder.map_or(0, |folder| folder.missing);
    let unlabelled = (are_classes && outside > 0).then_some(UnlabelledImages {
        count: outside,
        all: preview.rows,
        example: None,
    });
    let has_classes = are_classes && unlabelled.as_ref().is_none_or(UnlabelledImages::are_few);
    let is_found = preview.error.is_none() && preview.rows > 0;
    is_found.then(|| Location {
        content: Content::Images { has_classes },
        unlabelled,
        ..location.clone()
    })
}

/// Returns true if each member of an archive that was previewed as texts is one.
pub(crate) fn texts_in(preview: &SourcePreview) -> bool {
    preview.error.is_none() && preview.rows > 0 && preview.bad == 0
}

/// Names of the first members of an archive without a table, by the remedies of its error; `None` for another error.
pub(crate) fn unread_members(remedies: &[Remedy]) -> Option<&[String]> {
    remedies.iter().find_map(|remedy| match remedy {
        Remedy::Members(names) => Some(names.as_slice()),
        _ => None,
    })
}

/// Number of texts by their endings among these `members` of an archive; 0 if they are not most of these.
pub(crate) fn named_texts(members: &[String]) -> u64 {
    let (texts, others) = texts_among(members);
    match texts.len() > others.len() {
        true => texts.len() as u64,
        false => 0,
    }
}

/// The location of an archive of texts with these `members`.
pub(crate) fn with_texts(location: &Location, members: &[String]) -> Location {
    let (texts, others) = texts_among(members);
    let other_members = others.first().map(|name| {
        format!(
            "each member of the archive is a document, also one without the extension of a text, such as `{name}`; \
             `archive.member` selects members"
        )
    });
    Location {
        content: Content::Texts { is_single: false },
        has_folders: texts.iter().any(|name| name.contains('/')),
        other_members,
        ..location.clone()
    }
}

/// Texts by their endings among `members`, and the others.
fn texts_among(members: &[String]) -> (Vec<&String>, Vec<&String>) {
    let members = members.iter();
    members.partition(|name| class_of(name) == Some(FileClass::Text))
}

#[cfg(test)]
mod tests {
    use feedline_ingest::ColumnPreview;

    use super::*;

    #[test]
    fn images_of_an_archive_have_classes_if_nearly_all_are_in_a_folder() {
        let location = Location::plain("x.zip", Content::Table, "x".to_owned());
        let found_in = |missing: u64, samples: &[&str], is_all: bool| {
            let folder = ColumnPreview {
                name: "folder".to_owned(),
                missing,
                distinct: samples.len() as u64,
                samples: samples.iter().map(|&name| name.to_owned()).collect(),
                ..ColumnPreview::default()
            };
            let preview = SourcePreview {
                rows: 10,
                is_all,
                columns: vec![folder],
                ..SourcePreview::default()
            };
            let found = with_images(&location, &preview).unwrap();
            let unlabelled = found.unlabelled.map_or(0, |images| images.count);
            (found.content, unlabelled)
        };
        let found = |missing, samples: &[&str]| found_in(missing, samples, true);
        let images = |has_classes| Content::Images { has_classes };
        assert_eq!(found(0, &["cat", "dog"]), (images(true), 0));
        assert_eq!(found(1, &["cat", "dog"]), (images(true), 1));
        assert_eq!(found(2, &["cat", "dog"]), (images(false), 2));
        assert_eq!(found(10, &[]), (images(false), 0));
        assert_eq!(found(0, &["."]), (images(false), 0));
        assert_eq!(found(0, &["photos"]), (images(false), 0));
        assert_eq!(found_in(0, &["cat"], false), (images(true), 0));
        assert_eq!(with_images(&location, &SourcePreview::default()), None);
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn an_archive_has_texts_if_most_of_the_named_members_are_some() {
        for (of, expected) in [
            (&["a.txt"][..], 1),
            (&["a.txt", "x/B.MD", "LICENSE"], 2),
            (&["a.txt", "b.docx"], 0),
            (&[], 0),
        ] {
            let remedies = [Remedy::Delimiter, Remedy::Members(names(of))];
            let members = unread_members(&remedies).unwrap();
            assert_eq!(named_texts(members), expected, "{of:?}");
        }
        assert_eq!(unread_members(&[Remedy::Header]), None);
    }

    #[test]
    fn members_that_are_texts_by_no_extension_and_folders_are_decisions() {
        let decisions = |of: &[&str]| {
            let location = Location::plain("x.zip", Content::Table, "x".to_owned());
            let found = with_texts(&location, &names(of));
            assert_eq!(found.content, Content::Texts { is_single: false });
            found.decisions()
        };
        assert!(decisions(&["a.txt", "b.txt"]).is_empty());
        let found = decisions(&["pos/a.txt", "neg/b.txt", "LICENSE"]);
        let starts = [
            "each member of the archive is a document, also one without the extension of a text, such as `LICENSE`;",
            "one language model is trained on the documents of all folders",
        ];
        assert_eq!(found.len(), 2, "{found:?}");
        for (decision, start) in found.iter().zip(starts) {
            assert!(decision.starts_with(start), "{decision}");
        }
    }
}
