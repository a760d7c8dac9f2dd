//! Tar archives, plain or compressed, read from their beginning to their end.

use std::io::Read;

use feedline_schemas::config::ArchiveConfig;
use feedline_storage::tar::{BLOCK, Entry, Headers, padded};

use super::member::{Bounds, CUT, Member, Members, fill};
use crate::{file_bytes::FileBytes, file_format::Packing, rows::unpacked};

/// Reads the members of a tar archive.
pub(crate) struct TarMembers {
    reader: Box<dyn Read + Send>,
    headers: Headers,
    bounds: Bounds,
    is_ended: bool,
}

impl TarMembers {
    /// Reads the complete archive once to check it, then starts again at its first member.
    ///
    /// # Errors
    /// The reason why the archive cannot be read.
    pub(crate) fn open(
        file: &FileBytes,
        packing: Packing,
        config: &ArchiveConfig,
    ) -> Result<Self, String> {
        let mut all = Self::begin(file, packing, config)?;
        while all.next(&|_| false)?.is_some() {}
        Self::begin(file, packing, config)
    }

    fn begin(file: &FileBytes, packing: Packing, config: &ArchiveConfig) -> Result<Self, String> {
        Ok(Self {
            reader: unpacked(file, packing)?,
            headers: Headers::default(),
            bounds: Bounds::new(config, file.mark.bytes),
            is_ended: false,
        })
    }

    fn header(&mut self) -> Result<Entry, String> {
        let mut block = [0; 512];
        self.bounds.take(BLOCK)?;
        if !fill(&mut self.reader, &mut block)? {
            return Err(CUT.into());
        }
        self.headers.header(&block)
    }

    /// Reads the data of a member, whose size has been checked already.
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

    /// Reads the rest after the first block of zeros. Writers often pad with many such blocks.
    fn end(&mut self) -> Result<(), String> {
        let mut block = [0; 8192];
        loop {
            let count = self.reader.read(&mut block).map_err(|e| e.to_string())?;
            self.bounds.take(count as u64)?;
            if count == 0 {
                return Ok(());
            }
            if block[..count].iter().any(|byte| *byte != 0) {
                let told = "it has data after its end; if archives were joined, keep them as separate files";
                return Err(told.into());
            }
        }
    }
}

impl Members for TarMembers {
    fn next(&mut self, wanted: &dyn Fn(&str) -> bool) -> Result<Option<(String, Member)>, String> {
        while !self.is_ended {
            match self.header()? {
                Entry::Zeros => {
                    self.end()?;
                    self.is_ended = true;
                }
                Entry::Extension { bytes } => {
                    let data = self.data(bytes)?;
                    self.headers.extend(&data)?;
                }
                Entry::Other => self.bounds.member()?,
                Entry::Link { name } => {
                    self.bounds.member()?;
                    if wanted(&name) {
                        let told = "it is a link to another member, not a file; write the archive with files in their places";
                        return Ok(Some((name, Member::Bad("member_link", told.into()))));
                    }
                }
                Entry::File { name, bytes } => {
                    self.bounds.member()?;
                    if !wanted(&name) {
                        self.pass(padded(bytes))?;
                        continue;
                    }
                    let member = match self.bounds.allows(bytes) {
                        Ok(()) => Member::Whole(self.data(bytes)?),
                        Err(bad) => {
                            self.pass(padded(bytes))?;
                            bad
                        }
                    };
                    return Ok(Some((name, member)));
                }
            }
        }
        Ok(None)
    }
}
