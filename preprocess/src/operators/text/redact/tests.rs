use proptest::prelude::*;

use super::*;

const ALL: [PersonalData; 3] = [PersonalData::Email, PersonalData::Phone, PersonalData::Card];

fn check(text: &str, expected: &str) {
    assert_eq!(redacted(text, &ALL).0, expected);
}

fn stays(text: &str) {
    check(text, text);
}

#[test]
fn addresses_are_found_where_they_end() {
    check("write to ann.b+x@mail.example.org.", "write to [email].");
    check("<a@b.co>, 'c_d@e-f.info'", "<[email]>, '[email]'");
    check("mailto:user%41@x.example?subject", "mailto:[email]?subject");
    check(
        "jörg@müller.example und 山田@例え.テスト",
        "[email] und [email]",
    );
    check("a@b.org@c.org", "[email]@c.org");
    for text in [
        "@handle",
        "a @ b.org",
        "user@localhost",
        "a@b.1",
        "@@@",
        "x@.org",
        "x@-",
        "a@b..org",
    ] {
        stays(text);
    }
}

#[test]
fn cards_are_told_by_their_check_digit() {
    check("card 4111 1111 1111 1111, thanks", "card [card], thanks");
    check("4111-1111-1111-1111/5500005555555559", "[card]/[card]");
    check("378282246310005 and 6011111111111117", "[card] and [card]");
    check("no 7 4111 1111 1111 1111", "no 7 [card]");
    check("４１１１１１１１１１１１１１１１", "[card]");
    for text in [
        "4111 1111 1111 1112",
        "9111111111111111",
        "x4111111111111111",
        "4111 111111111111",
        "41 1111 1111 1111 11",
        "41111111111111111111111",
    ] {
        stays(text);
    }
}

#[test]
fn telephone_numbers_have_a_prefix_or_groups() {
    check("call +49 (30) 1234-5678 now", "call [phone] now");
    check("+14155552671, 0044 20 7946 0958", "[phone], [phone]");
    check(
        "(415) 555-2671 or 415.555.2671 or 1-415-555-2671",
        "[phone] or [phone] or [phone]",
    );
    check(
        "030/1234567; 01 23 45 67 89; 0171-1234567",
        "[phone]; [phone]; [phone]",
    );
    check("(030) 12345678", "[phone]");
    check("0176\u{a0}1234567, 098765 43210", "[phone], [phone]");
    let others = [
        "2024-01-15",
        "01.02.2024",
        "01.02.2024 10",
        "192.168.100.200",
        "1 000 000",
        "3.14159265358979",
        "978-3-16-148410-0",
        "1234567890",
        "call 110",
        "12:30:45",
        "2019-2020",
        "x+1415555",
        "pp. 322-331",
    ];
    others.into_iter().for_each(stays);
}

#[test]
fn telephone_numbers_of_many_countries_are_found_as_a_whole() {
    for number in [
        // Germany, Austria, Switzerland.
        "+49 (0)30 123456",
        "+49(0)171 1234567",
        "030 / 123 45 67",
        "030 - 1234567",
        "+49 30 / 123456",
        "01711234567",
        "0664 1234567",
        "079 123 45 67",
        // United Kingdom, France, the Netherlands, Italy, Spain, Poland.
        "020 7946 0958",
        "07700900123",
        "0123456789",
        "+33 (0)1.23.45.67.89",
        "06-12345678",
        "+39 333 123 4567",
        "+34 612 345 678",
        "+48 123 456 789",
        // North America, Brazil, Russia.
        "(415)555-2671",
        "415 555-2671",
        "+1 (415) 555-2671",
        "1-800-555-1234",
        "(11) 91234-5678",
        "(21) 2345-6789",
        "8 (495) 123-45-67",
        "8-800-555-35-35",
        // India, China, Japan, Australia.
        "+91 98765 43210",
        "+86 138 1234 5678",
        "03-1234-5678",
        "(02) 9876 5432",
        "0412 345 678",
        // With 00.
        "00 49 30 123456",
        "004930123456",
        "0049 (0)30 - 123456",
        "001 415 555 2671",
        "٠١٧١ ١٢٣٤٥٦٧",
    ] {
        check(number, "[phone]");
        check(&format!("Tel. {number}, x"), "Tel. [phone], x");
    }
}

#[test]
fn a_number_behind_a_slash_is_a_number_of_its_own() {
    for (text, expected) in [
        ("030 1234567 / 0171 7654321", "[phone] / [phone]"),
        ("030 1234567/0171 7654321", "[phone]/[phone]"),
        ("+49 30 1234567 / 0171 7654321", "[phone] / [phone]"),
        ("030 1234567 - 24 h", "[phone] - 24 h"),
        ("0711 1234567-0", "[phone]-0"),
    ] {
        check(text, expected);
    }
}

#[test]
fn other_numbers_are_no_telephone_numbers() {
    for text in [
        // Dates and times.
        "01.02.2024 10:30",
        "01 02 2024 10 30",
        "01/02/2024 14:00",
        "01.02.2024 - 03.04.2024",
        "02/2023-03/2024",
        "08.00-12.00 14.00-18.00",
        "20240115",
        "1700000000",
        // Orders, files, articles, postal codes.
        "000123456789",
        "0000012345",
        "0815-4711",
        "#0123456789",
        "SKU-0123-45678",
        "05/2023-123456",
        "02138-1234",
        "ISBN 0306406152",
        "EAN: 0012345678905",
        "https://x.example/orders/0123456789",
        "deadbeef-0123-4567-89ab-012345678901",
        // Numbers of other kinds.
        "+1234567.89",
        "0.123456789",
        "12.345.678,90",
        "192.168.0.1",
        "Nature 322-331 2019",
        "(2019) 123-4567",
        "GB29 NWBK 6016 1331 9268 19",
    ] {
        stays(text);
    }
}

#[test]
fn one_kind_of_data_beside_another_is_found_too() {
    check("030 1234567 4111111111111111", "[phone] [card]");
    check("+49 30 1234567.a@b.org", "+49 30 [email]");
    check("+49 30 1234567 2024-01-15", "[phone]-01-15");
    check("415-555-2671 24 h", "[phone] 24 h");
}

#[test]
fn only_the_kinds_that_are_asked_for_are_replaced_and_counted() {
    let text = "a@b.org, +14155552671, 4111111111111111, c@d.org";
    let (found, counts) = redacted(text, &[PersonalData::Email]);
    assert_eq!(found, "[email], +14155552671, 4111111111111111, [email]");
    assert_eq!((counts.emails, counts.phones, counts.cards), (2, 0, 0));
    let (_, counts) = redacted(text, &ALL);
    assert_eq!((counts.emails, counts.phones, counts.cards), (2, 1, 1));
    assert!(matches!(redacted("plain", &ALL).0, Cow::Borrowed(_)));
    assert_eq!(redacted(text, &[]).0, text);
}

proptest! {
    #[test]
    fn nothing_is_left_to_redact_and_nothing_else_is_touched(
        text in r"[a-z0-9@+().\-/ ４é]{0,60}",
    ) {
        let (once, counts) = redacted(&text, &ALL);
        let (twice, more) = redacted(&once, &ALL);
        prop_assert_eq!(&twice, &once);
        prop_assert_eq!(more, Redacted::default());
        let marks = once.matches('[').count();
        let total = counts.emails + counts.phones + counts.cards;
        prop_assert_eq!(marks, total as usize);
        // The text has all parts between the marks, in that order.
        let mut rest = text.as_str();
        for part in once.split(['[', ']']).step_by(2) {
            let at = rest.find(part).unwrap();
            rest = &rest[at + part.len()..];
        }
    }

    #[test]
    fn any_text_is_taken(text in r"\PC{0,80}") {
        redacted(&text, &ALL);
    }

    #[test]
    fn what_is_planted_is_found(
        before in "[a-z ]{0,20}[ ,;]",
        after in "[ ,;][a-z ]{0,20}",
        seed in proptest::collection::vec(0..10_u8, 15),
    ) {
        let mut digits = vec![4];
        digits.extend(&seed[..14]);
        let check = (0..10).find(|check| luhn([&digits[..], &[*check]].concat().into_iter().rev())).unwrap();
        digits.push(check);
        let card: String = digits.iter().map(|d| char::from(b'0' + d)).collect();
        let found = redacted(&format!("{before}{card}{after}"), &ALL).0.into_owned();
        prop_assert_eq!(found, format!("{before}[card]{after}"));
    }
}

#[test]
fn long_runs_of_what_nearly_matches_end_soon() {
    for piece in ["@", "a@", "1 ", "0 ", "+", "(", "4111 ", "a.", "1"] {
        let text = piece.repeat(200_000);
        assert!(redacted(&text, &ALL).0.len() <= text.len() + 8);
    }
}
