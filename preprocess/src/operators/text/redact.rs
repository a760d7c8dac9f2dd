//! Redaction of personal data: e-mail addresses, telephone numbers and payment cards, each replaced
//! by its kind in brackets.
//!
//! The patterns do not depend on a language; [`PersonalData`] lists them. The document is scanned
//! once; no part of it is read more often than the length of the longest pattern.

use std::{borrow::Cow, ops::Range};

use feedline_schemas::config::PersonalData;

/// Characters of an address on either side of its `@`, at most (RFC 5321, 4.5.3.1).
const LOCAL: usize = 64;
const DOMAIN: usize = 255;

/// Digits of a payment card (ISO/IEC 7812-1).
const CARD: std::ops::RangeInclusive<usize> = 13..=19;

/// Digits of an international telephone number with its country (E.164), and of one in North America.
const INTERNATIONAL: std::ops::RangeInclusive<usize> = 8..=15;
const NORTH_AMERICAN: usize = 11;

/// Digits of a telephone number with a leading zero, in groups and without any.
const NATIONAL: std::ops::RangeInclusive<usize> = 9..=12;
const UNGROUPED: std::ops::RangeInclusive<usize> = 10..=11;

/// Digits of a country and an area, and of an area with its zero, at most: blanks may be around the separator behind them.
const COUNTRY_AND_AREA: usize = 7;
const AREA: usize = 5;

/// Names of article numbers that are written before them.
const ARTICLE_NUMBERS: [&str; 5] = ["isbn", "issn", "ean", "gtin", "upc"];

/// Separators: one of them may be between two groups of digits.
const SEPARATORS: &str = " -./\u{a0}\u{2011}\u{2013}";

/// Replacements by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redacted {
    pub(crate) emails: u32,
    pub(crate) phones: u32,
    pub(crate) cards: u32,
}

/// `text` without personal data of `kinds`, and how much of it there was. Addresses go first, then cards, then telephone
/// numbers, so that no part of one is taken for another.
pub(crate) fn redacted<'a>(text: &'a str, kinds: &[PersonalData]) -> (Cow<'a, str>, Redacted) {
    let mut text = Cow::Borrowed(text);
    let mut counts = Redacted::default();
    if kinds.contains(&PersonalData::Email) {
        counts.emails = replace(&mut text, emails, "[email]");
    }
    if kinds.contains(&PersonalData::Card) {
        counts.cards = replace(&mut text, cards, "[card]");
    }
    if kinds.contains(&PersonalData::Phone) {
        counts.phones = replace(&mut text, phones, "[phone]");
    }
    (text, counts)
}

/// Puts `name` in place of what `find` finds, in order, and counts it.
fn replace(text: &mut Cow<'_, str>, find: fn(&str) -> Vec<Range<usize>>, name: &str) -> u32 {
    // No match spans a line end, so memory holds only the groups of digits of one line.
    let mut found = Vec::new();
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let ranges = find(line).into_iter();
        found.extend(ranges.map(|range| begin + range.start..begin + range.end));
        begin += line.len();
    }
    if found.is_empty() {
        return 0;
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for range in &found {
        out.push_str(&text[at..range.start]);
        out.push_str(name);
        at = range.end;
    }
    out.push_str(&text[at..]);
    *text = Cow::Owned(out);
    u32::try_from(found.len()).unwrap_or(u32::MAX)
}

/// Addresses: letters, digits and `._%+-'` before the `@`, a domain of two labels or more after it.
fn emails(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, _) in text.match_indices('@') {
        let free = found.last().map_or(0, |last| last.end);
        let before = text[free..at].char_indices().rev().take(LOCAL);
        let local = before.take_while(|(_, c)| c.is_alphanumeric() || "._%+-'".contains(*c));
        let Some(start) = local.map(|(place, _)| free + place).last() else {
            continue;
        };
        let start = start + leading_marks(&text[start..at]);
        let Some(length) = domain(&text[at + 1..]) else {
            continue;
        };
        if start < at {
            found.push(start..at + 1 + length);
        }
    }
    found
}

/// Bytes of marks that begin no address, such as the quote around one.
fn leading_marks(local: &str) -> usize {
    local.len() - local.trim_start_matches(['.', '\'', '-', '%', '+']).len()
}

/// Bytes of the domain at the beginning of `text`.
fn domain(text: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '.';
    let part = text
        .char_indices()
        .take(DOMAIN)
        .take_while(|(_, c)| is_part(*c));
    let end = part.last().map(|(at, c)| at + c.len_utf8())?;
    let domain = text[..end].trim_end_matches(['.', '-']);
    let (_, last) = domain.rsplit_once('.')?;
    let is_top = last.chars().count() > 1 && last.chars().any(char::is_alphabetic);
    let are_labels = domain.split('.').all(|label| !label.is_empty());
    (is_top && are_labels).then_some(domain.len())
}

/// A run of digits.
struct Group {
    range: Range<usize>,
    /// Number of digits.
    digits: usize,
    /// The first of them, then no digits where there are fewer.
    first: [u8; 3],
    /// Separator before it, if a single one follows another group.
    separator: Option<char>,
    /// True if blanks are around the separator.
    is_spaced: bool,
    /// True if the group is in round brackets.
    in_brackets: bool,
}

/// Placeholder for a digit that a group does not have.
const NO_DIGIT: u8 = 10;

/// The value of a decimal digit: ASCII, full-width, Arabic-Indic (two forms) or Devanagari.
fn digit(character: char) -> Option<u8> {
    const ZEROS: [char; 5] = ['0', '\u{ff10}', '\u{660}', '\u{6f0}', '\u{966}'];
    let code = u32::from(character);
    ZEROS.into_iter().find_map(|zero| {
        let value = code
            .checked_sub(u32::from(zero))
            .filter(|value| *value < 10)?;
        u8::try_from(value).ok()
    })
}

fn groups(text: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut is_open = false;
    for (at, character) in text.char_indices() {
        let Some(value) = digit(character) else {
            is_open = false;
            continue;
        };
        let end = at + character.len_utf8();
        if !is_open {
            let between = groups.last().map(|last| &text[last.range.end..at]);
            let separator = between.and_then(separator);
            groups.push(Group {
                range: at..at,
                digits: 0,
                first: [NO_DIGIT; 3],
                separator,
                is_spaced: separator.is_some() && between.is_some_and(is_spaced),
                in_brackets: text[..at].ends_with('('),
            });
            is_open = true;
        }
        if let Some(group) = groups.last_mut() {
            group.range.end = end;
            if let Some(first) = group.first.get_mut(group.digits) {
                *first = value;
            }
            group.digits += 1;
        }
    }
    for group in &mut groups {
        group.in_brackets &= text[group.range.end..].starts_with(')');
    }
    groups
}

/// Returns the separator if it is the only character between two groups; brackets around a group do
/// not count, and one blank on each side of another separator neither.
fn separator(between: &str) -> Option<char> {
    let inner = between.trim_start_matches(')').trim_end_matches('(');
    let inner = match is_spaced(between) {
        true => inner.trim_matches(' '),
        false => inner,
    };
    let mut characters = inner.chars();
    match (characters.next(), characters.next()) {
        (Some(only), None) if SEPARATORS.contains(only) => Some(only),
        (None, None) if !between.is_empty() => Some(' '),
        _ => None,
    }
}

/// Returns true for a slash or a hyphen with a blank on each side, and no more.
fn is_spaced(between: &str) -> bool {
    let inner = between
        .strip_prefix(' ')
        .and_then(|rest| rest.strip_suffix(' '));
    let mut characters = inner.into_iter().flat_map(str::chars);
    match (characters.next(), characters.next()) {
        (Some(only), None) => only == '/' || is_hyphen(only),
        _ => false,
    }
}

/// Returns true if no letter, digit or `_` is right before or after.
fn is_free(text: &str, range: &Range<usize>) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..range.start].chars().next_back().is_some_and(is_word)
        && !text[range.end..].chars().next().is_some_and(is_word)
}

fn cards(text: &str) -> Vec<Range<usize>> {
    let groups = groups(text);
    let (mut found, mut at) = (Vec::new(), 0);
    while at < groups.len() {
        let card = card(text, &groups[at..]);
        at += card.as_ref().map_or(1, |(_, count)| *count);
        found.extend(card.map(|(range, _)| range));
    }
    found
}

/// The card that begins with the first group, and its groups: the longest there is.
fn card(text: &str, groups: &[Group]) -> Option<(Range<usize>, usize)> {
    let most = groups.len().min(CARD.end().div_ceil(4));
    (1..=most).rev().find_map(|count| {
        let groups = &groups[..count];
        let range = groups[0].range.start..groups[count - 1].range.end;
        let digits: usize = groups.iter().map(|group| group.digits).sum();
        let is_card = CARD.contains(&digits)
            && is_grouped_as_card(groups)
            && (2..=6).contains(&groups[0].first[0])
            && is_free(text, &range)
            && luhn(text[range.clone()].chars().rev().filter_map(digit));
        is_card.then_some((range, count))
    })
}

/// One group; or fours with a shorter one at the end, or 4, 6 and 4 or 5 digits, divided alike.
fn is_grouped_as_card(groups: &[Group]) -> bool {
    let divider = groups.get(1).and_then(|group| group.separator);
    let lengths: Vec<usize> = groups.iter().map(|group| group.digits).collect();
    let (last, before) = lengths.split_last().unwrap_or((&0, &[]));
    let is_shape = match lengths.as_slice() {
        [_] | [4, 6, 4 | 5] => true,
        _ => before.iter().all(|length| *length == 4) && *last <= 4,
    };
    let is_joined = |group: &Group| group.separator.is_some() && group.separator == divider;
    is_shape && groups[1..].iter().all(is_joined)
}

/// Returns true if the last digit checks the others (ISO/IEC 7812-1, annex B).
fn luhn(from_the_last: impl Iterator<Item = u8>) -> bool {
    let weighed = from_the_last.enumerate().map(|(place, digit)| {
        let doubled = u32::from(digit) * if place % 2 == 1 { 2 } else { 1 };
        doubled / 10 + doubled % 10
    });
    weighed.sum::<u32>() % 10 == 0
}

fn phones(text: &str) -> Vec<Range<usize>> {
    let groups = groups(text);
    let (mut found, mut at) = (Vec::new(), 0);
    while at < groups.len() {
        let joined = groups[at + 1..]
            .iter()
            .take_while(|group| group.separator.is_some());
        let end = at + 1 + joined.count();
        // A number begins where digits begin, or right after another one; not in the middle.
        while let Some((range, count)) = phone(text, &groups[at..end]) {
            found.push(range);
            at += count;
            if at == end {
                break;
            }
        }
        at = end;
    }
    found
}

/// Longest telephone number that begins with the first of adjacent groups, and its number of
/// groups.
fn phone(text: &str, groups: &[Group]) -> Option<(Range<usize>, usize)> {
    let first = &groups[0];
    let brackets = usize::from(first.in_brackets);
    let before = &text[..first.range.start - brackets];
    let has_plus = before.ends_with(['+', '\u{ff0b}']);
    let plus = before.chars().next_back().filter(|_| has_plus);
    let start = before.len() - plus.map_or(0, char::len_utf8);
    if !has_plus && is_part_of_name(before) {
        return None;
    }
    // More groups than digits of the longest number are no number.
    let most = groups.len().min(INTERNATIONAL.end() + 2);
    let most = next_number(&groups[..most]).unwrap_or(most);
    (1..=most).rev().find_map(|count| {
        let range = start..groups[count - 1].range.end;
        let is_number = is_phone(&groups[..count], has_plus);
        (is_number && is_free(text, &range)).then_some((range, count))
    })
}

/// Returns true if digits behind `before` are part of a name or an article number: behind a `#`, behind a hyphen or a slash that
/// follows a letter, and behind the name of a kind of article number.
fn is_part_of_name(before: &str) -> bool {
    let attached = before.strip_suffix(['-', '/']);
    let is_attached = attached.is_some_and(|name| name.ends_with(char::is_alphabetic));
    let label = before.trim_end_matches([' ', ':', '\u{a0}']);
    let is_labelled = ARTICLE_NUMBERS.iter().any(|name| {
        let start = label.len().checked_sub(name.len());
        let last = start.and_then(|start| label.get(start..));
        last.is_some_and(|last| last.eq_ignore_ascii_case(name))
    });
    before.ends_with('#') || is_attached || is_labelled
}

/// The group that begins another number: behind a slash or a spaced separator, with a zero, where a number is complete already.
fn next_number(groups: &[Group]) -> Option<usize> {
    let mut digits = 0;
    groups.iter().position(|group| {
        let is_behind = group.separator == Some('/') || group.is_spaced;
        let is_next = is_behind && group.first[0] == 0 && digits > COUNTRY_AND_AREA;
        digits += group.digits;
        is_next
    })
}

fn is_phone(groups: &[Group], has_plus: bool) -> bool {
    let digits: usize = groups.iter().map(|group| group.digits).sum();
    match groups[0].first {
        [country, ..] if has_plus => {
            is_international(country, digits) && is_joined(groups, COUNTRY_AND_AREA)
        }
        // What begins with more zeros is a number that is filled up to a length.
        [0, 0, 0] => false,
        [0, 0, NO_DIGIT] => {
            let country = groups.get(1).map_or(NO_DIGIT, |group| group.first[0]);
            country > 0
                && is_international(country, digits - 2)
                && is_joined(groups, COUNTRY_AND_AREA + 2)
        }
        [0, 0, country] => {
            is_international(country, digits - 2) && is_joined(groups, COUNTRY_AND_AREA + 2)
        }
        _ => {
            is_ungrouped(groups)
                || (is_national(groups) && NATIONAL.contains(&digits))
                || is_north_american(groups)
                || is_bracketed(groups)
                || is_russian(groups)
        }
    }
}

/// Returns true for as many digits as a number of the country that begins with this digit may have. North America alone
/// begins with 1.
fn is_international(country: u8, digits: usize) -> bool {
    match country {
        1 => digits == NORTH_AMERICAN,
        _ => INTERNATIONAL.contains(&digits),
    }
}

/// Returns true if blanks are around a separator at most once, behind `most` digits or fewer.
fn is_joined(groups: &[Group], most: usize) -> bool {
    let mut digits = groups[0].digits;
    let mut spaced = 0;
    groups[1..].iter().all(|group| {
        spaced += usize::from(group.is_spaced);
        let is_early = !group.is_spaced || (digits <= most && spaced == 1);
        digits += group.digits;
        is_early
    })
}

/// One zero, then digits without a separator.
fn is_ungrouped(groups: &[Group]) -> bool {
    let [group] = groups else {
        return false;
    };
    group.first[0] == 0 && group.first[1] != 0 && UNGROUPED.contains(&group.digits)
}

/// An area code with its leading zero, then groups of two digits or more, all divided alike.
fn is_national(groups: &[Group]) -> bool {
    let mut dividers = groups.iter().skip(2).filter_map(|group| group.separator);
    let divider = dividers.next();
    groups.len() > 1
        && groups[0].first[0] == 0
        && groups.iter().all(|group| group.digits > 1)
        && dividers.all(|other| Some(other) == divider)
        && is_joined(groups, AREA)
        && !groups[2..].iter().any(|group| group.is_spaced)
        && !is_other_number(groups)
}

/// Returns true for dates, file numbers and postal codes that have the groups of a national number.
fn is_other_number(groups: &[Group]) -> bool {
    let separator = groups[1].separator;
    let lengths: Vec<usize> = groups.iter().map(|group| group.digits).collect();
    let is_year = |group: &Group| matches!(group.first, [1, 9, _] | [2, 0, _]);
    match lengths.as_slice() {
        // Day, month and year, and what follows them.
        [2, 2, 4, ..] => true,
        // Month and year.
        [2, 4, ..] => separator == Some('/') && is_year(&groups[1]),
        [5, 4] => separator == Some('-'),
        _ => false,
    }
}

/// Groups of 3, 3 and 4 digits, maybe after a 1; area code and exchange begin with 2 to 9. Both dividers are the same, or the
/// last one is a hyphen: a page range before a year is no number.
fn is_north_american(groups: &[Group]) -> bool {
    let own = match groups {
        [one, own @ ..] if one.first == [1, NO_DIGIT, NO_DIGIT] => own,
        own => own,
    };
    let [area, exchange, line] = own else {
        return false;
    };
    let lengths = [area, exchange, line].map(|group| group.digits);
    let is_divided = exchange.separator == line.separator || line.separator.is_some_and(is_hyphen);
    lengths == [3, 3, 4]
        && area.first[0] > 1
        && exchange.first[0] > 1
        && is_divided
        && !groups[1..].iter().any(|group| group.is_spaced)
}

/// An area code of two digits in round brackets, 4 or 5 digits, a hyphen and 4 digits, as in Latin America.
fn is_bracketed(groups: &[Group]) -> bool {
    let [area, exchange, line] = groups else {
        return false;
    };
    area.in_brackets
        && area.digits == 2
        && [4, 5].contains(&exchange.digits)
        && line.digits == 4
        && line.separator.is_some_and(is_hyphen)
        && !line.is_spaced
}

/// An 8, then groups of 3, 3, 2 and 2 digits.
fn is_russian(groups: &[Group]) -> bool {
    let lengths: Vec<usize> = groups.iter().map(|group| group.digits).collect();
    groups[0].first[0] == 8
        && lengths == [1, 3, 3, 2, 2]
        && !groups[1..].iter().any(|group| group.is_spaced)
}

fn is_hyphen(separator: char) -> bool {
    ['-', '\u{2011}', '\u{2013}'].contains(&separator)
}

#[cfg(test)]
mod tests;
