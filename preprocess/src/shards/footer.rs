//! Footer of an Arrow IPC file: its place, and the blocks that it lists.

use arrow::{
    error::ArrowError,
    ipc::{Footer, reader::read_footer_length, root_as_footer},
};

/// Length of the end of an Arrow file: footer length (4 bytes) and magic (6).
pub(crate) const TRAILER: usize = 10;

fn unfit(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_owned())
}

/// Offset of the footer in a file of `bytes` bytes, from its last bytes.
pub(crate) fn footer_at(bytes: u64, trailer: &[u8]) -> Result<u64, ArrowError> {
    let trailer = <[u8; TRAILER]>::try_from(trailer);
    let trailer = trailer.map_err(|_| unfit("the file is too short"))?;
    let length = read_footer_length(trailer)? + TRAILER;
    bytes
        .checked_sub(length as u64)
        .ok_or_else(|| unfit("the footer is longer than the file"))
}

/// Footer of a file; the end of the file is enough.
pub(crate) fn footer_of(file: &[u8]) -> Result<Footer<'_>, ArrowError> {
    let end = file.len().saturating_sub(TRAILER);
    let start = footer_at(file.len() as u64, &file[end..])?;
    let start = usize::try_from(start).map_err(|e| unfit(&e.to_string()))?;
    root_as_footer(&file[start..end]).map_err(|e| unfit(&e.to_string()))
}

/// Offset, metadata and body length of every record batch, as the footer has them.
pub(crate) fn footer_blocks(file: &[u8]) -> Result<Vec<(u64, u32, u64)>, ArrowError> {
    let footer = footer_of(file)?;
    let blocks = footer
        .recordBatches()
        .ok_or_else(|| unfit("the footer lists no blocks"))?;
    let sizes = blocks.iter().map(|b| {
        let offset = u64::try_from(b.offset()).ok()?;
        Some((
            offset,
            u32::try_from(b.metaDataLength()).ok()?,
            u64::try_from(b.bodyLength()).ok()?,
        ))
    });
    sizes
        .collect::<Option<_>>()
        .ok_or_else(|| unfit("the footer has a negative length"))
}
