//! Members that are pictures: a record each.

use feedline_schemas::config::ArchiveConfig;

use super::{Member, Members, is_meant};
use crate::{file_format, picture_rows, rows::Rows, source::Record, value::shorten};

/// Reads the pictures of an archive: the members whose names end as pictures do.
pub(super) struct PictureMembers<M> {
    members: M,
    archive: String,
    config: ArchiveConfig,
}

impl<M> PictureMembers<M> {
    /// Those of the archive at `archive`.
    pub(super) fn new(members: M, archive: &str, config: &ArchiveConfig) -> Self {
        Self {
            members,
            archive: archive.to_owned(),
            config: config.clone(),
        }
    }
}

impl<M: Members> Rows for PictureMembers<M> {
    fn next(&mut self) -> Result<Option<Record>, String> {
        let config = &self.config;
        let wanted = |name: &str| file_format::is_picture(name) && is_meant(name, config);
        let next = self.members.next(&wanted)?;
        Ok(next.map(|(name, member)| record(&self.archive, &name, member)))
    }
}

/// The record of a member of the archive at `archive`.
fn record(archive: &str, name: &str, member: Member) -> Record {
    let path = format!("{archive}!/{name}");
    match member {
        Member::Whole(bytes) => {
            let folder = name.rsplit('/').nth(1).filter(|folder| !folder.is_empty());
            picture_rows::record(bytes, path, folder)
        }
        Member::Bad(reason, told) => Record::Bad {
            detail: format!("`{}`: {told}", shorten(&path, 200)),
            raw: path,
            reason,
        },
    }
}
