//! Members of an archive, and the limits that they keep.

use std::io::Read;

use feedline_schemas::config::ArchiveConfig;

use crate::glob;

/// Members of an archive, in its order.
pub(crate) trait Members: Send {
    /// The next member whose name is `wanted`; `None` after the last.
    ///
    /// # Errors
    /// The reason why the archive cannot be read.
    fn next(&mut self, wanted: &dyn Fn(&str) -> bool) -> Result<Option<(String, Member)>, String>;
}

/// An archive may unpack to this many bytes, whatever its own size.
const FREE: u64 = 16 << 20;

pub(crate) const CUT: &str = "it is truncated; download it again";

/// Outcome of reading a member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// Its content.
    Whole(Vec<u8>),
    /// Reason code and details of a bad member.
    Bad(&'static str, String),
}

/// Limits of one archive, and their use so far.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    config: ArchiveConfig,
    /// Decompressed bytes left.
    left: u64,
    /// Members left.
    members: u64,
}

impl Bounds {
    /// Creates the limits of an archive of this many bytes.
    pub(crate) fn new(config: &ArchiveConfig, bytes: u64) -> Self {
        Self {
            left: bytes.saturating_mul(config.max_ratio.get()).max(FREE),
            members: config.max_members.get(),
            config: config.clone(),
        }
    }

    pub(crate) fn member(&mut self) -> Result<(), String> {
        self.members = self.members.checked_sub(1).ok_or_else(|| {
            format!(
                "it has more than {} members; raise `archive.max_members` if that is right",
                self.config.max_members
            )
        })?;
        Ok(())
    }

    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), String> {
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
    pub(crate) fn allows(&self, bytes: u64) -> Result<(), Member> {
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
pub(crate) fn is_meant(name: &str, config: &ArchiveConfig) -> bool {
    let is_hidden = |part: &str| part.starts_with('.') && !matches!(part, "." | "..");
    // Many tar archives call their members `./a.csv`.
    let plain = name.trim_start_matches("./");
    let is_asked = |pattern: &String| glob::matches(pattern, plain);
    !name.split('/').any(is_hidden) && config.member.as_ref().is_none_or(is_asked)
}

/// Fills `buffer`; returns false at the end of the data.
pub(crate) fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> Result<bool, String> {
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
