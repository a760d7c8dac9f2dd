//! The encoding that the first bytes of a file show, beside the one in which the file is read.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use feedline_schemas::count::counted;

use crate::{notices::Notices, remedy::Remedy, value::shorten};

/// A file is no UTF-8 if at least one of so many lines is none.
const FOREIGN_LINES: usize = 20;

/// Fewest characters of UTF-8 that show it beside an encoding of several bytes a character, where a
/// few may be chance.
const SURE_CHARACTERS: usize = 3;

/// Characters around the first one that is no ASCII, in a message.
const SHOWN: usize = 20;

/// Checks that the file `name` can have the encoding `wanted`; without one it is read as UTF-8. The
/// file has no byte order mark and begins with `sample`, all of it if `is_whole`. A doubt goes to
/// `notices`.
///
/// # Errors
/// The encoding that the bytes have instead, and the key.
pub(crate) fn check_encoding(
    sample: &[u8],
    is_whole: bool,
    wanted: Option<&'static Encoding>,
    name: &str,
    notices: &Notices,
) -> Result<(), String> {
    let is_wide = wanted.is_some_and(|wanted| [UTF_16LE, UTF_16BE].contains(&wanted));
    let sample = match is_whole {
        true => sample,
        false => &sample[..sample.iter().rposition(|b| *b == b'\n').unwrap_or_default()],
    };
    // Rows of bytes that are no UTF-8 are rejected, as configured.
    if wanted == Some(UTF_8) {
        return Ok(());
    }
    if let (false, Some(wide)) = (is_wide, wide_encoding(sample)) {
        notices.push_remedy(Remedy::Encoding(Some(label(wide))));
        return Err(format!(
            "every other byte of it is zero, as in UTF-16 without a byte order mark: set `csv.encoding` to `{}`",
            label(wide)
        ));
    }
    match wanted {
        _ if sample.is_ascii() && !is_wide => Ok(()),
        None => check_utf8(sample, name, notices),
        Some(_) if is_wide => check_wide(sample, notices),
        Some(wanted) => {
            note_utf8(sample, wanted, name, notices);
            Ok(())
        }
    }
}

/// UTF-16 of the byte order that the sample shows. Nearly every other byte of text in UTF-16 is zero.
pub(crate) fn wide_encoding(sample: &[u8]) -> Option<&'static Encoding> {
    let zeros = |from: usize| {
        let bytes = sample.iter().skip(from).step_by(2);
        bytes.filter(|byte| **byte == 0).count()
    };
    let half = sample.len() / 2;
    let is_most = |count: usize| half >= 2 && count * 10 >= half * 8;
    match (is_most(zeros(1)), is_most(zeros(0))) {
        (true, _) => Some(UTF_16LE),
        (false, true) => Some(UTF_16BE),
        (false, false) => None,
    }
}

/// Checks text that is to be UTF-8 by default.
fn check_utf8(sample: &[u8], name: &str, notices: &Notices) -> Result<(), String> {
    let lines = || sample.trim_ascii_end().split(|byte| *byte == b'\n');
    let is_foreign = |line: &&[u8]| std::str::from_utf8(line).is_err();
    let (all, foreign) = (lines().count(), lines().filter(is_foreign).count());
    if foreign == 0 {
        return Ok(());
    }
    let likely = likely_label(sample);
    let mut valid = sample.utf8_chunks().map(|chunk| chunk.valid());
    let is_mixed = valid.any(|text| !text.is_ascii());
    if !is_mixed && foreign > 1 && foreign * FOREIGN_LINES >= all {
        notices.push_remedy(Remedy::Encoding(Some(likely.clone())));
        return Err(format!(
            "it is not UTF-8: {foreign} of its first {all} lines have other bytes, which look like `{likely}`: set `csv.encoding` to `{likely}`; with `utf-8` there, such rows are rejected"
        ));
    }
    let also = match is_mixed {
        true => ", and other lines are UTF-8",
        false => "",
    };
    notices.push(
        "csv_encoding",
        "csv.encoding",
        match foreign {
            1 => format!(
                "1 of the first {} of `{name}` is not UTF-8{also}: its row is rejected; its bytes look like `{likely}`",
                counted(all as u64, "line")
            ),
            many => format!(
                "{many} of the first {all} lines of `{name}` are not UTF-8{also}: their rows are rejected; their bytes look like `{likely}`"
            ),
        },
    );
    Ok(())
}

/// Checks text that is to be UTF-16. Its line ends have a zero byte.
fn check_wide(sample: &[u8], notices: &Notices) -> Result<(), String> {
    if !sample.contains(&b'\n') || sample.contains(&0) {
        return Ok(());
    }
    let likely = match std::str::from_utf8(sample) {
        Ok(_) => UTF_8,
        Err(_) => guess(sample),
    };
    notices.push_remedy(Remedy::Encoding(Some(label(likely))));
    Err(format!(
        "it is no UTF-16, which has zero bytes in its line ends, and looks like `{0}`: set `csv.encoding` to `{0}`",
        label(likely)
    ))
}

/// Reports a file that is decoded as `wanted` although it is UTF-8.
fn note_utf8(sample: &[u8], wanted: &'static Encoding, name: &str, notices: &Notices) {
    let Ok(text) = std::str::from_utf8(sample) else {
        return;
    };
    let characters = text.chars().filter(|c| !c.is_ascii()).count();
    let enough = match wanted.is_single_byte() {
        true => 1,
        false => SURE_CHARACTERS,
    };
    if characters < enough {
        return;
    }
    let word = |c: char| c.is_alphanumeric() || !c.is_ascii();
    let mut words = text.split(|c| !word(c)).filter(|word| !word.is_ascii());
    let right = shorten(words.next().unwrap_or_default(), SHOWN).into_owned();
    let (wrong, _) = wanted.decode_without_bom_handling(right.as_bytes());
    notices.push(
        "csv_encoding",
        "csv.encoding",
        format!(
            "`{name}` is decoded as `{}`, but its bytes are UTF-8: `{right}` in it lands as `{wrong}`; set `csv.encoding` to `utf-8`, or remove it",
            label(wanted)
        ),
    );
}

/// The likely encoding of text that is no UTF-8, as a value of `csv.encoding`.
pub(crate) fn likely_label(sample: &[u8]) -> String {
    label(guess(sample))
}

/// The encoding of text that is no UTF-8, by the frequency of its characters.
fn guess(sample: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, true);
    detector.guess(None, Utf8Detection::Deny)
}

/// The name of an encoding as a value of `csv.encoding`.
fn label(encoding: &'static Encoding) -> String {
    encoding.name().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use encoding_rs::{GBK, WINDOWS_1251, WINDOWS_1252};

    use super::*;

    /// Notice or error about the bytes of `text` in the encoding `real` that are read as `wanted`. An error has the
    /// encoding that its remedy has.
    fn found(text: &str, real: &'static Encoding, wanted: Option<&'static Encoding>) -> String {
        let bytes: Vec<u8> = match real {
            real if real == UTF_16LE => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            real if real == UTF_16BE => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            real => real.encode(text).0.into_owned(),
        };
        let notices = Notices::default();
        match check_encoding(&bytes, true, wanted, "a.csv", &notices) {
            Err(error) => {
                let remedies = notices.remedies();
                let [Remedy::Encoding(Some(label))] = &remedies[..] else {
                    panic!("{remedies:?}");
                };
                let key = format!("set `csv.encoding` to `{label}`");
                assert!(error.contains(&key), "{error}");
                format!("error: {error}")
            }
            Ok(()) => match notices.all().pop() {
                Some(warning) => warning.message,
                None => String::new(),
            },
        }
    }

    const GERMAN: &str = "id,ort\n1,Köln\n2,Zürich\n3,Bonn\n";
    const RUSSIAN: &str = "id,город\n1,Москва\n2,Новгород\n3,Казань\n";

    #[test]
    fn text_of_another_encoding_than_utf8_is_refused_with_its_likely_name() {
        let check = |text: &str, real, start: &str, end: &str| {
            let found = found(text, real, None);
            assert!(found.starts_with(start) && found.contains(end), "{found}");
        };
        let set = "set `csv.encoding` to `windows-1252`; with `utf-8` there, such rows";
        let start = "error: it is not UTF-8: 2 of its first 4 lines";
        check(GERMAN, WINDOWS_1252, start, set);
        let set = "set `csv.encoding` to `windows-1251`;";
        check(RUSSIAN, WINDOWS_1251, "error: it is not UTF-8", set);
        check(GERMAN, UTF_16LE, "error: every other byte", "`utf-16le`");
        check(GERMAN, UTF_16BE, "error: every other byte", "`utf-16be`");
        assert_eq!(found(GERMAN, UTF_8, None), "");
        assert_eq!(found("a,b\n1,2\n", UTF_8, None), "");
    }

    #[test]
    fn a_few_foreign_lines_are_a_notice_and_their_rows_rejects() {
        let one = "1,Köln\n".to_owned() + &"2,Bonn\n".repeat(40);
        let notice = found(&one, WINDOWS_1252, None);
        let start = "1 of the first 41 lines of `a.csv` is not UTF-8: its row is rejected";
        assert!(notice.starts_with(start), "{notice}");
        let notices = Notices::default();
        let mixed = b"M\xfcnchen\nK\xf6ln\nZ\xc3\xbcrich\n";
        check_encoding(mixed, true, None, "a.csv", &notices).unwrap();
        let notice = notices.all().remove(0).message;
        assert!(notice.contains("and other lines are UTF-8"), "{notice}");
        // `utf-8` by the key: the rows are rejected, as configured.
        assert_eq!(found(GERMAN, WINDOWS_1252, Some(UTF_8)), "");
    }

    #[test]
    fn utf8_that_is_decoded_as_another_encoding_is_a_notice() {
        let notice = found(GERMAN, UTF_8, Some(WINDOWS_1252));
        let lands = "`a.csv` is decoded as `windows-1252`, but its bytes are UTF-8: `Köln` in it lands as `KÃ¶ln`";
        assert!(notice.starts_with(lands), "{notice}");
        assert_ne!(found(GERMAN.repeat(2).as_str(), UTF_8, Some(GBK)), "");
        assert_eq!(found("a\nü\n", UTF_8, Some(GBK)), "");
        assert_eq!(found(GERMAN, WINDOWS_1252, Some(WINDOWS_1252)), "");
        assert_eq!(found("a,b\n", UTF_8, Some(WINDOWS_1252)), "");
    }

    #[test]
    fn utf16_and_other_text_are_not_read_as_each_other() {
        let error = found(GERMAN, UTF_8, Some(UTF_16LE));
        assert!(error.contains("set `csv.encoding` to `utf-8`"), "{error}");
        let error = found(GERMAN, WINDOWS_1252, Some(UTF_16LE));
        assert!(error.contains("to `windows-1252`"), "{error}");
        let error = found(GERMAN, UTF_16LE, Some(WINDOWS_1252));
        assert!(error.contains("to `utf-16le`"), "{error}");
        assert_eq!(found(GERMAN, UTF_16LE, Some(UTF_16LE)), "");
    }

    #[test]
    fn a_character_that_the_sample_splits_is_no_foreign_byte() {
        let notices = Notices::default();
        let cut = b"a\nb\xc3\xbc\nc\xc3";
        check_encoding(cut, false, None, "a.csv", &notices).unwrap();
        assert_eq!(notices.all(), []);
    }
}
