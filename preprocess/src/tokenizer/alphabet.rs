//! Spelling of bytes in byte-level vocabularies: every byte is a visible character (GPT-2,
//! `bytes_to_unicode` of `src/encoder.py`).

/// The character of each byte: bytes that Latin-1 shows are themselves, the others follow U+0100 in their order.
pub(super) fn characters() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = u8::try_from(byte).expect("there are 256 bytes");
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            return char::from(byte);
        }
        next += 1;
        char::from_u32(next - 1).expect("U+0100 to U+0143 are characters")
    })
}

/// The spelling of some bytes.
pub(super) fn spelled(characters: &[char; 256], bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| characters[usize::from(*byte)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let characters = characters();
        let mut distinct = characters.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 256);
        // As in GPT-2's vocabulary.
        assert_eq!(
            spelled(&characters, b" a\n\xc3\x28"),
            "\u{120}a\u{10a}\u{c3}("
        );
    }
}
