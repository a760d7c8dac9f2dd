//! Encoding of XML documents.
//!
//! A byte order mark decides, else the `Content-Type` header, else the XML declaration (RFC 7303),
//! else it is UTF-8. Where header and declaration differ, a declaration of UTF-8 that fits the bytes
//! decides: other encodings rarely do, and a header is often a default of the server. Where only one
//! of the two fits, that one is used.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use crate::{charset, notices::Notices, value::shorten};

/// Bytes that a declaration is in.
const SCANNED: usize = 1_024;

/// Decodes a document.
///
/// # Errors
/// The reason why it cannot be decoded.
pub(crate) fn decode<'b>(
    bytes: &'b [u8],
    content_type: &str,
    notices: &Notices,
) -> Result<Cow<'b, str>, String> {
    if let Some(encoding) = marked(bytes) {
        return decoded(bytes, encoding).ok_or_else(|| invalid(&[encoding]));
    }
    let of_header = charset::label(content_type);
    let of_declaration = match declared(bytes) {
        None => None,
        Some(label) => Some(known(&label)?),
    };
    let candidates: Vec<&'static Encoding> = match (of_header, of_declaration) {
        (None, None) => vec![UTF_8],
        (Some(one), None) | (None, Some(one)) => vec![one],
        (Some(header), Some(declaration)) if header == declaration => vec![header],
        (Some(header), Some(declaration)) if declaration == UTF_8 => vec![declaration, header],
        (Some(header), Some(declaration)) => vec![header, declaration],
    };
    let mut fitting = candidates
        .iter()
        .filter_map(|encoding| Some((*encoding, decoded(bytes, encoding)?)));
    let (used, text) = fitting.next().ok_or_else(|| invalid(&candidates))?;
    if let Some(other) = candidates.iter().find(|other| **other != used)
        && decoded(bytes, other).is_some_and(|another| another != text)
    {
        let message = format!(
            "pages are decoded from {} and not from {}: their `Content-Type` and their XML declaration differ",
            used.name(),
            other.name()
        );
        notices.push("xml_encoding", "", message);
    }
    Ok(text)
}

/// The text of `bytes` without their byte order mark; `None` if they are not of this encoding.
fn decoded<'b>(bytes: &'b [u8], encoding: &'static Encoding) -> Option<Cow<'b, str>> {
    let bytes = match Encoding::for_bom(bytes) {
        Some((_, length)) => &bytes[length..],
        None => bytes,
    };
    encoding.decode_without_bom_handling_and_without_replacement(bytes)
}

/// The encoding of a byte order mark, or of UTF-16 without one.
fn marked(bytes: &[u8]) -> Option<&'static Encoding> {
    match bytes {
        [b'<', 0, ..] => Some(UTF_16LE),
        [0, b'<', ..] => Some(UTF_16BE),
        _ => Encoding::for_bom(bytes).map(|(encoding, _)| encoding),
    }
}

/// The label of the encoding in the XML declaration.
pub(crate) fn declared(bytes: &[u8]) -> Option<String> {
    let start = bytes[..bytes.len().min(SCANNED)].trim_ascii_start();
    let rest = String::from_utf8_lossy(start.strip_prefix(b"<?xml")?).into_owned();
    let declaration = &rest[..rest.find("?>")?];
    let (_, value) = declaration.split_once("encoding")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let label = value[1..].split(quote).next()?;
    Some(label.trim().to_owned())
}

/// # Errors
/// A message about an unknown label.
fn known(label: &str) -> Result<&'static Encoding, String> {
    let found = Encoding::for_label(label.as_bytes())
        .filter(|encoding| *encoding != encoding_rs::REPLACEMENT);
    match found {
        // A declaration that is readable as ASCII is not UTF-16.
        Some(encoding) if encoding == UTF_16LE || encoding == UTF_16BE => Ok(UTF_8),
        Some(encoding) => Ok(encoding),
        None => Err(format!(
            "its XML declaration names the encoding `{}`, which is unknown",
            shorten(&label.escape_debug().to_string(), 60)
        )),
    }
}

fn invalid(candidates: &[&'static Encoding]) -> String {
    let names: Vec<&str> = candidates.iter().map(|encoding| encoding.name()).collect();
    format!(
        "its bytes are not {}, the encoding that its `Content-Type`, its XML declaration or the default names",
        names.join(" or ")
    )
}
