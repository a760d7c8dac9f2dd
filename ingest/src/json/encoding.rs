//! JSON that is not UTF-8 throughout.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

/// Whether the bytes begin as UTF-16 does: with its mark, or with an ASCII character of two bytes.
pub(super) fn is_utf16(bytes: &[u8]) -> bool {
    utf16(bytes).is_some()
}

fn utf16(bytes: &[u8]) -> Option<&'static Encoding> {
    match bytes {
        [0xff, 0xfe, ..] => Some(UTF_16LE),
        [0xfe, 0xff, ..] => Some(UTF_16BE),
        [low, 0, ..] if *low != 0 => Some(UTF_16LE),
        [0, low, ..] if *low != 0 => Some(UTF_16BE),
        _ => None,
    }
}

/// The text, and where in it U+FFFD stands for bytes that are not UTF-8.
///
/// # Errors
/// Broken UTF-16 has no places that could be told apart.
pub(super) fn decode(bytes: &[u8]) -> Result<(String, Vec<usize>), String> {
    if let Some(encoding) = utf16(bytes) {
        let (text, _, is_broken) = encoding.decode(bytes);
        return match is_broken {
            false => Ok((text.into_owned(), Vec::new())),
            true => Err(format!("it begins as {} and is not", encoding.name())),
        };
    }
    let mut text = String::with_capacity(bytes.len());
    let mut mended = Vec::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            mended.push(text.len());
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    Ok((text, mended))
}
