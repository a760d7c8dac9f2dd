//! Members of an archive, one after another: images, one record each, or tables and texts with any
//! number of records.
//!
//! An image becomes the same record as an image file, with the `path` of the archive, `!/` and the
//! member's name. A table or a text gives the same records as a file of its name.
//!
//! Names are only labels. No file is ever written under them, two members of one name count as two,
//! and names like `../a.png` have no effect. A damaged image is rejected alone. A damaged table
//! ends the run, since its other rows would be lost. The archive itself is checked before its first
//! record, so a damaged one lands nothing. Memory holds one member.

mod images;
mod tables;
mod tar;
mod zip;

use std::io::Read;

use feedline_schemas::config::{ArchiveConfig, FileFormat};

use self::{images::ImageMembers, tables::TableMembers, tar::TarMembers, zip::ZipMembers};
use crate::{
    file_bytes::FileBytes,
    glob,
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
        Box::new(TableMembers::new(members, layout))
    }
}

/// Members of an archive, in its order.
trait Members: Send {
    /// The next member whose name is `wanted`; `None` after the last.
    ///
    /// # Errors
    /// The reason why the archive cannot be read.
    fn next(&mut self, wanted: &dyn Fn(&str) -> bool) -> Result<Option<(String, Member)>, String>;
}

/// An archive may unpack to this many bytes, whatever its own size.
const FREE: u64 = 16 << 20;

/// Outcome of reading a member.
#[derive(Debug, PartialEq, Eq)]
enum Member {
    /// Its content.
    Whole(Vec<u8>),
    /// Reason code and details of a bad member.
    Bad(&'static str, String),
}

/// Limits of one archive, and their use so far.
#[derive(Clone, Debug)]
struct Bounds {
    config: ArchiveConfig,
    /// Decompressed bytes left.
    left: u64,
    /// Members left.
    members: u64,
}

impl Bounds {
    /// Creates the limits of an archive of this many bytes.
    fn new(config: &ArchiveConfig, bytes: u64) -> Self {
        Self {
            left: bytes.saturating_mul(config.max_ratio.get()).max(FREE),
            members: config.max_members.get(),
            config: config.clone(),
        }
    }

    fn member(&mut self) -> Result<(), String> {
        self.members = self.members.checked_sub(1).ok_or_else(|| {
            format!(
                "it has more than {} members; raise `archive.max_members` if that is right",
                self.config.max_members
            )
        })?;
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), String> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            format!(
                "it unpacks to more than {} times its size, like a decompression bomb; raise \
                 `archive.max_ratio` if that is right",
                self.config.max_ratio
            )
        })?;
        Ok(())
    }

    /// Checks the size in the member's header against `archive.max_member_bytes`.
    fn allows(&self, bytes: u64) -> Result<(), Member> {
        let most = self.config.max_member_bytes.bytes();
        if bytes <= most {
            return Ok(());
        }
        let told = format!("it has {bytes} bytes and `archive.max_member_bytes` is {most}");
        Err(Member::Bad("member_too_large", told))
    }
}

/// Returns true if a member of this name is wanted and neither it nor its folder is hidden by a
/// dot.
fn is_meant(name: &str, config: &ArchiveConfig) -> bool {
    let is_hidden = |part: &str| part.starts_with('.') && !matches!(part, "." | "..");
    // Many tar archives call their members `./a.csv`.
    let plain = name.trim_start_matches("./");
    let is_asked = |pattern: &String| glob::matches(pattern, plain);
    !name.split('/').any(is_hidden) && config.member.as_ref().is_none_or(is_asked)
}

/// Fills `buffer`; returns false at the end of the data.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> Result<bool, String> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..]).map_err(|e| e.to_string())? {
            0 if got == 0 => return Ok(false),
            0 => return Err(CUT.into()),
            some => got += some,
        }
    }
    Ok(true)
}

const CUT: &str = "it is truncated; download it again";

#[cfg(test)]
mod tests;
