//! Tar archives, plain or packed, read from their beginning to their end.

use std::io::Read;

use feedline_schemas::config::ArchiveConfig;
use feedline_storage::tar::{BLOCK, Entry, Headers, padded};

use super::{Bounds, CUT, Member, fill, is_meant, record};
use crate::{
    file_bytes::FileBytes,
    file_format::Packing,
    rows::{Rows, unpacked},
    source::Record,
};

/// Reads the pictures of a tar archive.
pub(crate) struct TarRows {
    archive: String,
    members: Members,
}

impl TarRows {
    /// Walks over the whole archive, and begins again.
    ///
    /// # Errors
    /// What is wrong with the archive.
    pub(crate) fn open(
        file: &FileBytes,
        packing: Packing,
        config: &ArchiveConfig,
    ) -> Result<Self, String> {
        let members = || Members::open(file, packing, config);
        let mut all = members()?;
        while all.next(|_| false)?.is_some() {}
        Ok(Self {
            archive: file.path().to_owned(),
            members: members()?,
        })
    }
}

impl Rows for TarRows {
    fn next(&mut self) -> Result<Option<Record>, String> {
        loop {
            match self.members.next(is_meant)? {
                None => return Ok(None),
                Some((_, None)) => {}
                Some((name, Some(member))) => {
                    return Ok(Some(record(&self.archive, &name, member)));
                }
            }
        }
    }
}

struct Members {
    reader: Box<dyn Read + Send>,
    headers: Headers,
    bounds: Bounds,
}

impl Members {
    fn open(file: &FileBytes, packing: Packing, config: &ArchiveConfig) -> Result<Self, String> {
        Ok(Self {
            reader: unpacked(file, packing)?,
            headers: Headers::default(),
            bounds: Bounds::new(config, file.mark.bytes),
        })
    }

    /// The next file or link, with its content if it is `wanted`; `None` after the last.
    fn next(
        &mut self,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<(String, Option<Member>)>, String> {
        loop {
            match self.header()? {
                Entry::Zeros => return self.end().map(|()| None),
                Entry::Extension { bytes } => {
                    let data = self.data(bytes)?;
                    self.headers.extend(&data)?;
                }
                Entry::Other => self.bounds.member()?,
                Entry::Link { name } => {
                    self.bounds.member()?;
                    let told = "it is a link to another member, not a file; write the archive with files in their places";
                    let member = wanted(&name).then(|| Member::Bad("member_link", told.into()));
                    return Ok(Some((name, member)));
                }
                Entry::File { name, bytes } => {
                    self.bounds.member()?;
                    let member = match (wanted(&name), self.bounds.allows(bytes)) {
                        (true, Ok(())) => Some(Member::Whole(self.data(bytes)?)),
                        (true, Err(bad)) => {
                            self.pass(padded(bytes))?;
                            Some(bad)
                        }
                        (false, _) => {
                            self.pass(padded(bytes))?;
                            None
                        }
                    };
                    return Ok(Some((name, member)));
                }
            }
        }
    }

    fn header(&mut self) -> Result<Entry, String> {
        let mut block = [0; 512];
        self.bounds.take(BLOCK)?;
        if !fill(&mut self.reader, &mut block)? {
            return Err(CUT.into());
        }
        self.headers.header(&block)
    }

    /// The data of a member; what was held to a bound before.
    fn data(&mut self, bytes: u64) -> Result<Vec<u8>, String> {
        self.bounds.take(bytes)?;
        let mut data = Vec::new();
        let read = (&mut self.reader).take(bytes).read_to_end(&mut data);
        if read.map_err(|e| e.to_string())? as u64 != bytes {
            return Err(CUT.into());
        }
        self.pass(padded(bytes) - bytes)?;
        Ok(data)
    }

    fn pass(&mut self, bytes: u64) -> Result<(), String> {
        self.bounds.take(bytes)?;
        let passed = std::io::copy(&mut (&mut self.reader).take(bytes), &mut std::io::sink());
        if passed.map_err(|e| e.to_string())? != bytes {
            return Err(CUT.into());
        }
        Ok(())
    }

    /// Reads what follows the first block of zeros: zeros, of which writers put many.
    fn end(&mut self) -> Result<(), String> {
        let mut block = [0; 8192];
        loop {
            let count = self.reader.read(&mut block).map_err(|e| e.to_string())?;
            self.bounds.take(count as u64)?;
            if count == 0 {
                return Ok(());
            }
            if block[..count].iter().any(|byte| *byte != 0) {
                let told = "it goes on after its end; if archives were joined, keep them as files of their own";
                return Err(told.into());
            }
        }
    }
}
