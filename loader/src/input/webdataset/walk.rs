//! Walk over the members of an archive, which gives its samples in order.

use std::ops::Range;

use bytes::Bytes;
use feedline_schemas::export::ROLES_MEMBER;
use feedline_storage::tar::{BLOCK, Entry, Headers, padded};
use xxhash_rust::xxh3::Xxh3;

use super::{
    label::{Label, label_in_json, label_in_text},
    members::{IMAGES, LabelKey, SampleMembers, label_key, split_name},
};
use crate::{
    Error,
    input::{foreign::Foreign, names::TARGETS},
};

/// Bytes of an archive that are read at once while its headers are walked.
const SCAN_BYTES: u64 = 1 << 20;
/// Longest label.
const MOST_LABEL: u64 = 1 << 20;

/// A sample of an archive.
#[derive(Debug)]
pub(super) struct ArchiveSample {
    pub(super) key: String,
    /// From its first header to the end of its last member.
    pub(super) bytes: Range<u64>,
    pub(super) image: Option<Range<u64>>,
    pub(super) label: Option<Label>,
    /// One found in a `json` member by a usual name, behind that name.
    pub(super) json_label: Option<(&'static str, Label)>,
    /// The `json` member, where rows or keys are read from it.
    pub(super) json: Option<Bytes>,
    pub(super) extensions: Vec<String>,
}

/// Reason that walking stopped.
pub(super) enum Problem {
    Read(Error),
    Content(String),
}

impl From<String> for Problem {
    fn from(reason: String) -> Self {
        Self::Content(reason)
    }
}

/// Part of an archive that is in memory, and where more comes from.
pub(super) struct ArchiveWindow<'a> {
    pub(super) source: Option<(&'a Foreign, u32)>,
    pub(super) start: u64,
    pub(super) bytes: Bytes,
    /// End of the archive, or of the block.
    pub(super) end: u64,
}

impl ArchiveWindow<'_> {
    /// Bytes of the archive. Reads ahead when it has to read.
    async fn get(&mut self, range: Range<u64>) -> Result<Bytes, Problem> {
        if range.end > self.end {
            return Err(Problem::Content(
                "it ends in the middle of a member; it is truncated".into(),
            ));
        }
        let here = self.start..self.start + self.bytes.len() as u64;
        if range.start < here.start || range.end > here.end {
            let Some((foreign, file)) = self.source else {
                return Err(Problem::Content("a member is outside its block".into()));
            };
            let end = range.end.max(range.start + SCAN_BYTES).min(self.end);
            self.bytes = foreign
                .get_range(file, range.start..end)
                .await
                .map_err(Problem::Read)?;
            self.start = range.start;
        }
        let at = |offset: u64| usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(self.bytes.slice(at(range.start)..at(range.end)))
    }
}

/// Walks the members in `window` and hands out samples in order. `hash` gets every header.
pub(super) async fn walk(
    window: &mut ArchiveWindow<'_>,
    wanted: &SampleMembers,
    hash: &mut Xxh3,
    mut each: impl FnMut(ArchiveSample) -> Result<(), String>,
) -> Result<(), Problem> {
    let is_whole = window.source.is_some();
    let mut headers = Headers::default();
    let mut at = window.start;
    let mut first_header = at;
    let mut zeros = 0;
    let mut current: Option<ArchiveSample> = None;
    while at < window.end && zeros < 2 {
        let header = window.get(at..at + BLOCK).await?;
        hash.update(&header);
        if !headers.is_pending() {
            first_header = at;
        }
        at += BLOCK;
        let header: &[u8; 512] = header[..]
            .try_into()
            .map_err(|_| "a header is truncated".to_owned())?;
        let entry = headers.header(header)?;
        if zeros > 0 && entry != Entry::Zeros {
            return Err(Problem::Content(
                "a member follows the mark of its end".into(),
            ));
        }
        match entry {
            Entry::Zeros => zeros += 1,
            Entry::Link { .. } | Entry::Other => {}
            Entry::Extension { bytes } => {
                let data = window.get(at..at + bytes).await?;
                hash.update(&data);
                headers.extend(&data)?;
                at += padded(bytes);
            }
            Entry::File { name, bytes } => {
                let data = at..at
                    .checked_add(bytes)
                    .ok_or("a member is too long".to_owned())?;
                if data.end > window.end {
                    return Err(Problem::Content(format!(
                        "it ends in the middle of member `{name}`; it is truncated"
                    )));
                }
                at = at.saturating_add(padded(bytes));
                if let Some((key, extension)) = split_name(&name) {
                    if current.as_ref().is_some_and(|sample| sample.key != key)
                        && let Some(done) = current.take()
                    {
                        finish(done, wanted, &mut each)?;
                    }
                    let sample = current.get_or_insert_with(|| ArchiveSample {
                        key: key.to_owned(),
                        bytes: first_header..at,
                        image: None,
                        label: None,
                        json_label: None,
                        json: None,
                        extensions: Vec::new(),
                    });
                    sample.bytes.end = at;
                    let extension = extension.to_ascii_lowercase();
                    member(sample, window, wanted, &extension, data).await?;
                    sample.extensions.push(extension);
                }
            }
        }
    }
    if is_whole && zeros < 2 {
        return Err(Problem::Content(
            "it does not end with two blocks of zeros as an archive does; it is truncated".into(),
        ));
    }
    match current {
        Some(last) => Ok(finish(last, wanted, &mut each)?),
        None => Ok(()),
    }
}

async fn member(
    sample: &mut ArchiveSample,
    window: &mut ArchiveWindow<'_>,
    wanted: &SampleMembers,
    extension: &str,
    data: Range<u64>,
) -> Result<(), Problem> {
    if sample.extensions.iter().any(|e| e == extension) {
        return Err(Problem::Content(format!(
            "sample `{}` has two members `{extension}`",
            sample.key
        )));
    }
    if (wanted.row.is_some() || wanted.key.is_some()) && extension == "json" {
        check_length(&data, sample)?;
        sample.json = Some(window.get(data.clone()).await?);
    }
    let is_image = match &wanted.image {
        _ if wanted.row.is_some() => false,
        Some(image) => extension == image,
        None => IMAGES.contains(&extension),
    };
    if is_image {
        if sample.image.is_some() {
            return Err(Problem::Content(format!(
                "sample `{}` has two images; name the extension of one in `columns.image`",
                sample.key
            )));
        }
        sample.image = Some(data);
    } else if let Some(key) = label_key(wanted, extension) {
        check_length(&data, sample)?;
        let text = window.get(data).await?;
        let label = match key {
            LabelKey::Text => label_in_text(&text),
            LabelKey::Json(key) => label_in_json(&text, key),
            LabelKey::Usual => {
                let label_at =
                    |key: &'static str| Some((key, label_in_json(&text, key).ok().flatten()?));
                sample.json_label = TARGETS.iter().copied().find_map(label_at);
                Ok(None)
            }
        };
        let label = label.map_err(|reason| {
            format!(
                "sample `{}`: {reason}; name another member or key in `columns.y`, or set `target` to none",
                sample.key
            )
        })?;
        sample.label = sample.label.or(label);
    }
    Ok(())
}

/// Checks the length of a label or a row.
fn check_length(data: &Range<u64>, sample: &ArchiveSample) -> Result<(), String> {
    if data.end - data.start > MOST_LABEL {
        return Err(format!("the label of sample `{}` is too long", sample.key));
    }
    Ok(())
}

fn finish(
    sample: ArchiveSample,
    wanted: &SampleMembers,
    each: &mut impl FnMut(ArchiveSample) -> Result<(), String>,
) -> Result<(), String> {
    if wanted.row.is_some() {
        if sample.json.is_none() {
            return Err(format!(
                "sample `{}` has no member `json`, from which `columns.x` is read",
                sample.key
            ));
        }
    } else if sample.image.is_none() {
        let advice = match sample.extensions.iter().any(|name| name == "json") {
            true => {
                "; to read rows of numbers from the `json` members, name their keys in `columns.x`"
            }
            false => "",
        };
        return Err(format!("sample `{}` has no image{advice}", sample.key));
    }
    each(sample)
}

/// Content of the member at the beginning of an archive that names the roles of an export's columns.
pub(super) async fn roles_in(window: &mut ArchiveWindow<'_>) -> Result<Option<Bytes>, Error> {
    let start = window.start;
    let first = window.get(start..start + BLOCK).await;
    let header = match first {
        Ok(header) => header,
        Err(Problem::Read(error)) => return Err(error),
        // The walk says what is wrong with the archive.
        Err(Problem::Content(_)) => return Ok(None),
    };
    let header: Option<&[u8; 512]> = header[..].try_into().ok();
    let entry = header.map(|header| Headers::default().header(header));
    let Some(Ok(Entry::File { name, bytes })) = entry else {
        return Ok(None);
    };
    let data = start + BLOCK..(start + BLOCK).saturating_add(bytes);
    if name != ROLES_MEMBER || bytes > MOST_LABEL {
        return Ok(None);
    }
    match window.get(data).await {
        Ok(text) => Ok(Some(text)),
        Err(Problem::Read(error)) => Err(error),
        Err(Problem::Content(_)) => Ok(None),
    }
}
