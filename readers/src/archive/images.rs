//! Members that are images: a record each.

use std::cell::RefCell;

use feedline_schemas::config::ArchiveConfig;

use super::member::{Member, Members, is_meant};
use crate::{
    file_format, image_rows,
    notices::LeftOut,
    record::Record,
    rows::{Layout, Rows},
    value::shorten,
};

/// Reads the images of an archive: members with the extension of an image, or those that match
/// `archive.member`.
pub(crate) struct ImageMembers<M> {
    members: M,
    /// Name of the last member.
    name: String,
    archive: String,
    layout: Layout,
    left_out: LeftOut,
}

impl<M> ImageMembers<M> {
    /// Reads the archive at the URL `archive`.
    pub(crate) fn new(members: M, archive: &str, layout: &Layout) -> Self {
        Self {
            members,
            name: String::new(),
            archive: archive.to_owned(),
            layout: layout.clone(),
            left_out: LeftOut::default(),
        }
    }
}

impl<M: Members> Rows for ImageMembers<M> {
    fn next(&mut self) -> Result<Option<Record>, String> {
        let config = &self.layout.archive;
        let left_out = RefCell::new(std::mem::take(&mut self.left_out));
        let wanted = |name: &str| {
            if !is_meant(name, config) {
                return false;
            }
            let is_wanted = file_format::is_image(name) || is_chosen(name, config);
            if !is_wanted {
                left_out.borrow_mut().add(name);
            }
            is_wanted
        };
        let next = self.members.next(&wanted);
        self.left_out = left_out.into_inner();
        let next = next?;
        if next.is_none() {
            let advice = "set `archive.member` to a pattern with their extension, such as `**/*.dat`, to read them";
            let (notices, name) = (&self.layout.notices, &self.layout.name);
            self.left_out.push(notices, name, "archive.member", advice);
        }
        Ok(next.map(|(name, member)| {
            let record = record(&self.archive, &name, member);
            self.name = name;
            record
        }))
    }

    fn place(&self) -> String {
        format!("member `{}`", shorten(&self.name, 200))
    }
}

/// True if `archive.member` has the very ending of `name`.
fn is_chosen(name: &str, config: &ArchiveConfig) -> bool {
    let ending = |name: &str| {
        let (_, ending) = name.rsplit_once('.')?;
        (!ending.contains(['*', '?', '/'])).then(|| ending.to_ascii_lowercase())
    };
    let asked = config.member.as_deref().and_then(ending);
    asked.is_some() && asked == ending(name)
}

/// The record of a member of the archive at `archive`.
fn record(archive: &str, name: &str, member: Member) -> Record {
    let path = format!("{archive}!/{name}");
    match member {
        Member::Whole(bytes) => {
            let folder = name.rsplit('/').nth(1).filter(|folder| !folder.is_empty());
            image_rows::record(bytes, path, folder)
        }
        Member::Bad(reason, told) => Record::Bad {
            detail: format!("`{}`: {told}", shorten(&path, 200)),
            raw: path,
            reason,
        },
    }
}
