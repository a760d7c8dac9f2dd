//! Counts with their nouns, for messages and reports.

/// A count and its noun: in the plural but for 1.
///
/// ```
/// use feedline_schemas::count::counted;
///
/// assert_eq!(counted(1, "batch"), "1 batch");
/// assert_eq!(counted(0, "training row"), "0 training rows");
/// assert_eq!(counted(2, "entry"), "2 entries");
/// ```
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {}", noun_of(count, noun))
}

/// The noun of a count without its number: `noun` for 1, and otherwise its plural.
#[must_use]
pub fn noun_of(count: u64, noun: &str) -> String {
    let is_any = |ends: &[&str]| ends.iter().any(|end| noun.ends_with(end));
    let is_vowel = |text: &str| text.ends_with(['a', 'e', 'i', 'o', 'u']);
    match (count, noun.strip_suffix('y')) {
        (1, _) => noun.to_owned(),
        (_, Some(stem)) if !is_vowel(stem) => format!("{stem}ies"),
        _ if is_any(&["s", "x", "sh", "tch"]) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_have_their_plural_but_for_one() {
        for (noun, plural) in [
            ("row", "rows"),
            ("batch", "batches"),
            ("epoch", "epochs"),
            ("class", "classes"),
            ("entry", "entries"),
            ("day", "days"),
            ("matching index", "matching indexes"),
        ] {
            assert_eq!(counted(1, noun), format!("1 {noun}"));
            assert_eq!(counted(0, noun), format!("0 {plural}"));
            assert_eq!(counted(12_345, noun), format!("12345 {plural}"));
        }
    }
}
