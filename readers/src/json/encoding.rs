//! JSON that is not UTF-8 throughout.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

/// Returns true if the bytes begin like UTF-16: with its mark, or with an ASCII character of two
/// bytes.
pub(crate) fn is_utf16(bytes: &[u8]) -> bool {
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

/// Decodes the text. Also returns the offsets where U+FFFD replaces bytes that are not UTF-8.
///
/// # Errors
/// Invalid UTF-16: its flaws cannot be located.
pub(crate) fn decode(bytes: &[u8]) -> Result<(String, Vec<usize>), String> {
    if let Some(encoding) = utf16(bytes) {
        let (text, _, is_broken) = encoding.decode(bytes);
        return match is_broken {
            false => Ok((text.into_owned(), Vec::new())),
            true => Err(format!("it begins like {} but is invalid", encoding.name())),
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
