//! Scripts without spaces between words.

/// First and last character of each block of such a script, in order: Thai, Lao, Tibetan, Myanmar, Khmer, Tai Le and
/// New Tai Lue, Khmer symbols, Tai Tham, CJK radicals, Kana, Kana extensions, Han, Javanese, Myanmar extended, Han
/// compatibility, half-width Kana, the supplementary planes of Kana and Han (Unicode 16, Blocks.txt).
const BLOCKS: [(u32, u32); 20] = [
    (0x0e00, 0x0e7f),
    (0x0e80, 0x0eff),
    (0x0f00, 0x0fff),
    (0x1000, 0x109f),
    (0x1780, 0x17ff),
    (0x1950, 0x19df),
    (0x19e0, 0x19ff),
    (0x1a20, 0x1aaf),
    (0x2e80, 0x2fdf),
    (0x3005, 0x3007),
    (0x3040, 0x30ff),
    (0x31f0, 0x31ff),
    (0x3400, 0x4dbf),
    (0x4e00, 0x9fff),
    (0xa980, 0xa9df),
    (0xaa60, 0xaa7f),
    (0xf900, 0xfaff),
    (0xff66, 0xff9f),
    (0x1_b000, 0x1_b16f),
    (0x2_0000, 0x3_ffff),
];

/// Returns true if `character` belongs to a script without spaces.
pub(super) fn is_unsegmented(character: char) -> bool {
    let code = u32::from(character);
    code >= BLOCKS[0].0
        && BLOCKS
            .binary_search_by(|(first, last)| {
                if *last < code {
                    std::cmp::Ordering::Less
                } else if *first > code {
                    std::cmp::Ordering::Greater
                } else {
                    std::cmp::Ordering::Equal
                }
            })
            .is_ok()
}

/// Returns true if most letters of `text` belong to such scripts.
pub(crate) fn is_mostly_unsegmented(text: &str) -> bool {
    let (mut letters, mut unsegmented) = (0_usize, 0_usize);
    for character in text.chars() {
        let here = is_unsegmented(character);
        letters += usize::from(here || character.is_alphabetic());
        unsegmented += usize::from(here);
    }
    unsegmented * 2 > letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_in_order_and_apart() {
        assert!(BLOCKS.iter().all(|(first, last)| first <= last));
        assert!(BLOCKS.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    #[test]
    fn scripts_without_spaces_are_told_by_their_share() {
        let unsegmented = [
            "我喜欢读书。",
            "こんにちは、世界",
            "สวัสดีชาวโลก",
            "ສະບາຍດີ",
            "မင်္ဂလာပါ",
            "我很喜欢读 Rust",
        ];
        for text in unsegmented {
            assert!(is_mostly_unsegmented(text), "{text}");
        }
        for text in [
            "",
            "plain",
            "हिन्दी भाषा",
            "안녕하세요 세계",
            "العربية",
            "Привет",
            "I like 書 a lot",
            "1 2 3",
            "\u{1f600}",
        ] {
            assert!(!is_mostly_unsegmented(text), "{text}");
        }
    }
}
