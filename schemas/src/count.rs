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

/// The first `most` of some parts, and how many more there are.
///
/// ```
/// use feedline_schemas::count::first_of;
///
/// assert_eq!(first_of(&["a", "b"], 2), "a, b");
/// assert_eq!(first_of(&["a", "b", "c", "d"], 2), "a, b and 2 more");
/// ```
#[must_use]
pub fn first_of<S: AsRef<str>>(parts: &[S], most: usize) -> String {
    first_and_rest(parts, most, |rest| format!("{rest} more"))
}

/// The same with the noun of a part behind the number of the others: `a, b and 2 more columns`.
#[must_use]
pub fn first_counted<S: AsRef<str>>(parts: &[S], most: usize, noun: &str) -> String {
    first_and_rest(parts, most, |rest| counted(rest, &format!("more {noun}")))
}

fn first_and_rest<S: AsRef<str>>(
    parts: &[S],
    most: usize,
    describe: impl Fn(u64) -> String,
) -> String {
    let first: Vec<&str> = parts.iter().take(most).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match parts.len().saturating_sub(most) {
        0 => first,
        rest => format!("{first} and {}", describe(rest as u64)),
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

    #[test]
    fn parts_beyond_the_first_are_counted() {
        let parts: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        for (most, expected, with_noun) in [
            (4, "a, b, c", "a, b, c"),
            (3, "a, b, c", "a, b, c"),
            (2, "a, b and 1 more", "a, b and 1 more entry"),
            (1, "a and 2 more", "a and 2 more entries"),
        ] {
            assert_eq!(first_of(&parts, most), expected);
            assert_eq!(first_counted(&parts, most, "entry"), with_noun);
        }
        let none: [&str; 0] = [];
        assert_eq!(first_of(&none, 2), "");
    }
}
