use super::{
    are_many, duplicates_dropped,
    message::first_of,
    spelling::{alike, is_number, remedy},
};

#[test]
fn numbers_are_told_in_the_signs_of_people() {
    for number in [
        "1",
        "-2.5",
        " 3 ",
        "1,5",
        "1.234,56",
        "17%",
        "17,5 %",
        "+4",
        "1e6",
        "0.5",
        "1,234,567",
    ] {
        assert!(is_number(number), "{number}");
    }
    for text in [
        "",
        "-",
        "a",
        "NA",
        "1a",
        "a1",
        "%",
        "2024-01-01",
        "inf",
        "12:30",
        "06672",
        "12.01.2020",
        "1.2.3",
    ] {
        assert!(!is_number(text), "{text}");
    }
}

#[test]
fn values_are_alike_in_blanks_and_case_and_nothing_else() {
    let values: Vec<String> = ["a", "A ", "b", " b", "B", "c", "c d", "C  d"]
        .map(str::to_owned)
        .into();
    let found = alike(values.iter().zip(1..));
    assert_eq!(
        found,
        [
            "`C  d` (8 rows) and `c d` (7 rows)",
            "`B` (5 rows) and ` b` (4 rows) and `b` (3 rows)",
            "`A ` (2 rows) and `a` (1 rows)",
        ]
    );
    assert!(alike(["a".to_owned(), "ä".to_owned()].iter().zip(1..)).is_empty());
}

#[test]
fn values_that_look_the_same_are_shown_with_their_difference() {
    let values: Vec<String> = ["Z\u{fc}rich", "Zu\u{308}rich", "New York", "New\u{a0}York"]
        .map(str::to_owned)
        .into();
    let found = alike(values.iter().zip(1..));
    let expected = [
        r"`New\u{a0}York` (4 rows) and `New York` (3 rows)",
        r"`Zu\u{308}rich` (2 rows) and `Zürich` (1 rows)",
    ];
    assert_eq!(found, expected);
    assert!(remedy(&found).contains("chr(160)"));
    let cases = ["Z\u{fc}rich".to_owned(), "z\u{fc}rich".to_owned()];
    let found = alike(cases.iter().zip(1..));
    assert_eq!(found, ["`zürich` (2 rows) and `Zürich` (1 rows)"]);
    assert!(remedy(&found).contains("lower(trim(...))"));
}

#[test]
fn one_per_cent_of_duplicates_is_not_yet_many() {
    assert!(!are_many(0, 0));
    assert!(!are_many(10, 1000));
    assert!(are_many(11, 1000));
    assert_eq!(duplicates_dropped(10, 1000, None), None);
}

#[test]
fn many_names_are_cut_with_their_number() {
    let names: Vec<String> = (0..7).map(|i| i.to_string()).collect();
    assert_eq!(first_of(&names, 5), "0, 1, 2, 3, 4 and 2 more");
    assert_eq!(first_of(&names[..5], 5), "0, 1, 2, 3, 4");
}
