//! Members of an archive, one after another: images, one record each, or tables and texts with any
//! number of records.
//!
//! An image becomes the same record as an image file, with the `path` of the archive, `!/` and the
//! member's name. A table gives the same records as a file of its name, and so does a text, with a
//! `path` as images have it.
//!
//! Names are only labels. No file is ever written under them, two members of one name count as two,
//! and names like `../a.png` have no effect. A damaged image is rejected alone. A damaged table
//! ends the run, since its other rows would be lost. The archive itself is checked before its first
//! record, so a damaged one lands nothing. Memory holds one member.

mod images;
mod member;
mod tables;
mod tar;
mod zip;

use feedline_schemas::config::FileFormat;

use self::{
    images::ImageMembers, member::Members, tables::TableMembers, tar::TarMembers, zip::ZipMembers,
};
use crate::{
    file_bytes::FileBytes,
    rows::{Layout, Rows},
};

/// The records of the members of a tar archive.
///
/// # Errors
/// The reason why the archive cannot be read.
pub(crate) fn tar(file: &FileBytes, layout: &Layout) -> Result<Box<dyn Rows>, String> {
    let members = TarMembers::open(file, layout.packing, &layout.archive)?;
    Ok(rows(members, file, layout))
}

/// The records of the members of a zip archive.
///
/// # Errors
/// The reason why the archive cannot be read.
pub(crate) fn zip(file: &FileBytes, layout: &Layout) -> Result<Box<dyn Rows>, String> {
    let members = ZipMembers::open(file, &layout.archive)?;
    Ok(rows(members, file, layout))
}

fn rows(members: impl Members + 'static, file: &FileBytes, layout: &Layout) -> Box<dyn Rows> {
    if layout.format == FileFormat::Image {
        Box::new(ImageMembers::new(members, file.path(), layout))
    } else {
        Box::new(TableMembers::new(members, file.path(), layout))
    }
}
