//! Leaks that are found, and strong features that are none.

use super::*;

/// Numbers from -0.5 to 0.5 that follow from `seed`.
fn noise(seed: u64, rows: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        #[expect(clippy::cast_precision_loss, reason = "noise needs no 53 bits")]
        let share = (state >> 11) as f64 / (1_u64 << 53) as f64;
        share - 0.5
    };
    (0..rows).map(next).collect()
}

fn numbers(name: &str, cells: Vec<f64>) -> (String, Cells) {
    (name.to_owned(), Cells::Numbers(cells))
}

fn texts(name: &str, cells: impl Iterator<Item = String>) -> (String, Cells) {
    (name.to_owned(), Cells::Texts(cells.map(Some).collect()))
}

fn names(found: &[Leak]) -> Vec<&str> {
    columns_of(found).into_iter().collect()
}

#[test]
fn a_copy_a_line_and_a_curve_of_the_target_are_found_and_a_strong_feature_is_none() {
    let y: Vec<f64> = noise(1, 500).iter().map(|x| (x * 8.0).exp()).collect();
    let other = noise(2, 500);
    let with = |share: f64| y.iter().zip(&other).map(|(y, n)| y + share * n).collect();
    let features = [
        numbers("copy", y.iter().map(|y| 2.0 * y + 1.0).collect()),
        numbers("down", y.iter().map(|y| -y).collect()),
        numbers("curve", y.iter().map(|y| y.ln()).collect()),
        numbers(
            "rounded",
            y.iter().map(|y| (y * 100.0).round() / 100.0).collect(),
        ),
        numbers("strong", with(5.0)),
        numbers("noise", other.clone()),
        numbers("constant", vec![3.0; 500]),
        numbers("nothing", vec![f64::NAN; 500]),
    ];
    let found = of_number(&features, &y);
    assert_eq!(
        names(&found),
        ["copy", "curve", "down", "rounded"],
        "{found:?}"
    );
    let lines = found
        .iter()
        .filter(|leak| matches!(leak, Leak::Line { .. }));
    assert_eq!(lines.count(), 3, "{found:?}");
    let down = found.iter().find_map(|leak| match leak {
        Leak::Line {
            column,
            correlation,
        } if column == "down" => Some(*correlation),
        _ => None,
    });
    assert!(
        down.is_some_and(|down| (down + 1.0).abs() < 1e-9),
        "{down:?}"
    );
}

#[test]
fn parts_that_the_target_is_the_sum_of_are_found_with_their_factors() {
    let (casual, registered, wind) = (noise(3, 400), noise(4, 400), noise(5, 400));
    let y = casual.iter().zip(&registered);
    let y: Vec<f64> = y.map(|(a, b)| 1000.0 + 2.0 * a - b).collect();
    let features = [
        numbers("wind", wind.clone()),
        numbers("casual", casual.clone()),
        numbers("registered", registered.clone()),
    ];
    let found = of_number(&features, &y);
    let [
        Leak::Sum {
            terms,
            residual,
            rows,
        },
    ] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert!(*residual < 1e-12, "{residual}");
    assert_eq!([rows.known, rows.compared, rows.equal], [400; 3]);
    let [(casual, of_casual), (registered, of_registered)] = &terms[..] else {
        panic!("{terms:?}")
    };
    assert_eq!([casual, registered], ["casual", "registered"]);
    assert!((of_casual - 2.0).abs() < 1e-9 && (of_registered + 1.0).abs() < 1e-9);
    // Without a part it is a matter of learning.
    assert_eq!(of_number(&features[..2], &y), []);
    // So does noise of a per cent.
    let noisy = y.iter().zip(&wind).map(|(y, n)| y + 0.02 * n);
    assert_eq!(of_number(&features[1..], &noisy.collect::<Vec<_>>()), []);
}

/// `cells` without those that `is_missing` by row.
fn without(cells: &[f64], is_missing: impl Fn(usize) -> bool) -> Vec<f64> {
    let cells = cells.iter().enumerate();
    cells
        .map(|(row, cell)| if is_missing(row) { f64::NAN } else { *cell })
        .collect()
}

#[test]
fn parts_with_many_missing_cells_are_compared_in_the_rows_that_have_all_of_them() {
    let rows = 2000;
    let [a, b, other] = [3, 4, 5].map(|seed| noise(seed, rows));
    let y: Vec<f64> = a.iter().zip(&b).map(|(a, b)| 2.0 * a + b).collect();
    // Each lacks two of five rows, by chance.
    let [of_a, of_b] = [6, 7].map(|seed| noise(seed, rows));
    let chance = [
        numbers("a", without(&a, |row| of_a[row] < -0.1)),
        numbers("b", without(&b, |row| of_b[row] < -0.1)),
        numbers("other", other.clone()),
        numbers("none", vec![f64::NAN; rows]),
    ];
    assert_eq!(names(&of_number(&chance, &y)), ["a", "b"]);
    // Most rows have another feature, which no row has beside the parts.
    let early = [
        numbers("a", without(&a, |row| row >= 500)),
        numbers("b", without(&b, |row| row >= 500)),
        numbers("late", without(&other, |row| row < 500)),
    ];
    assert_eq!(names(&of_number(&early, &y)), ["a", "b"]);
    // The rows are counted that have both, and those whose sum is the target.
    let (mut y_but_one, mut y_unknown) = (y.clone(), y.clone());
    y_but_one[100] += 0.01;
    y_unknown[1900] = f64::NAN;
    for (y, expected) in [
        (&y, [2000, 500, 500]),
        (&y_but_one, [2000, 500, 499]),
        (&y_unknown, [1999, 500, 500]),
    ] {
        let found = of_number(&early, y);
        let [Leak::Sum { rows, .. }] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!([rows.known, rows.compared, rows.equal], expected);
    }
    // So few rows have both that a sum of them says nothing of the others.
    let few = [
        numbers("a", without(&a, |row| row >= 99)),
        numbers("b", without(&b, |row| row >= 99)),
    ];
    assert_eq!(of_number(&few, &y), []);
}

#[test]
fn as_many_columns_as_rows_are_no_sum() {
    let y = noise(6, 60);
    let features: Vec<_> = (0..59)
        .map(|i| numbers(&format!("x{i}"), noise(10 + i, 60)))
        .collect();
    assert_eq!(of_number(&features, &y), []);
    assert_eq!(of_number(&features[..1], &y[..40]), [], "too few rows");
}

#[test]
fn a_sum_of_many_columns_is_found_among_others() {
    let parts: Vec<Vec<f64>> = (0..12).map(|i| noise(100 + i, 2000)).collect();
    let y: Vec<f64> = (0..2000)
        .map(|row| parts.iter().map(|part| part[row]).sum())
        .collect();
    let mut features: Vec<_> = (0..30)
        .map(|i| numbers(&format!("n{i}"), noise(200 + i, 2000)))
        .collect();
    features.extend((0..12).map(|i| numbers(&format!("month{i}"), noise(100 + i, 2000))));
    let found = of_number(&features, &y);
    let [Leak::Sum { terms, .. }] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(terms.len(), 12);
    assert!(
        terms
            .iter()
            .all(|(name, factor)| name.starts_with("month") && (factor - 1.0).abs() < 1e-6)
    );
}

#[test]
fn values_of_one_class_each_are_found_and_values_that_are_mostly_right_are_none() {
    let class = |row: usize| ["good", "bad", "fair"][row * row % 7 % 3].to_owned();
    let target: Vec<Option<String>> = (0..600).map(|row| Some(class(row))).collect();
    let number = |row: usize| match class(row).as_str() {
        "good" => 2.0,
        "bad" => 0.0,
        _ => 1.0,
    };
    let wave = noise(7, 600);
    let near = |row: usize| match row % 50 {
        0 => "u".to_owned(),
        _ => class(row),
    };
    let features = [
        texts("grade", (0..600).map(|row| class(row).to_uppercase())),
        numbers("code", (0..600).map(number).collect()),
        numbers(
            "score",
            (0..600).map(|row| number(row) * 10.0 + wave[row]).collect(),
        ),
        texts("nearly", (0..600).map(near)),
        texts("town", (0..600).map(|row| format!("t{}", row % 5))),
        texts("name", (0..600).map(|row| format!("n{row}"))),
        numbers("noise", wave.clone()),
    ];
    let found = of_class(&features, &target);
    assert_eq!(names(&found), ["code", "grade", "score"], "{found:?}");
    // Where hardly any row is of another class, each value is nearly always right.
    let rare: Vec<_> = (0..600)
        .map(|row| Some(["no", "yes"][usize::from(row > 595)].to_owned()))
        .collect();
    assert_eq!(of_class(&features, &rare), []);
}

#[test]
fn a_number_that_separates_the_classes_of_a_small_table_is_a_feature_and_of_a_large_one_a_leak() {
    let found = |rows: usize| {
        let length = |row: usize| if row.is_multiple_of(3) { 1.4 } else { 4.7 };
        let spread = noise(8, rows);
        let lengths = (0..rows).map(|row| length(row) + spread[row]).collect();
        let kind = |row: usize| ["setosa", "other"][usize::from(!row.is_multiple_of(3))];
        let target: Vec<Option<String>> = (0..rows).map(|row| Some(kind(row).to_owned())).collect();
        of_class(&[numbers("petal_length", lengths)], &target)
    };
    assert_eq!(found(120), []);
    assert_eq!(found(299), []);
    assert_eq!(names(&found(300)), ["petal_length"]);
}

#[test]
fn missing_cells_that_give_the_target_away_are_found() {
    let cells = without(&noise(9, 400), |row| row.is_multiple_of(3));
    let class = |row: usize| Some(["yes", "no"][usize::from(row.is_multiple_of(3))].to_owned());
    let classes: Vec<Option<String>> = (0..400).map(class).collect();
    let y: Vec<f64> = noise(10, 400)
        .iter()
        .zip(&cells)
        .map(|(y, cell)| if cell.is_nan() { *y } else { 5000.0 + y })
        .collect();
    let found = of_missing("refund", &cells, &Cells::Texts(classes.clone()));
    assert!(
        matches!(&found, Some(Leak::MissingClass { column, fraction }) if column == "refund" && *fraction > 0.999),
        "{found:?}"
    );
    let found = of_missing("when", &cells, &Cells::Numbers(y.clone()));
    assert!(
        matches!(&found, Some(Leak::MissingNumber { column, explained }) if column == "when" && *explained > 0.9999),
        "{found:?}"
    );
    // Cells that are missing by chance, or are few, and a table of few rows.
    let others = without(&noise(9, 400), |row| row % 7 < 3);
    let few = without(&noise(9, 400), |row| row == 3);
    for cells in [&others, &few, &cells[..40].to_vec()] {
        let rows = cells.len();
        for target in [
            Cells::Texts(classes[..rows].to_vec()),
            Cells::Numbers(y[..rows].to_vec()),
        ] {
            assert_eq!(of_missing("other", cells, &target), None);
        }
    }
}

#[test]
fn a_category_that_explains_a_number_is_found() {
    let y: Vec<f64> = (0..400).map(|row| f64::from(row % 4)).collect();
    let features = [
        texts("label", (0..400).map(|row| format!("stars {}", row % 4))),
        texts("half", (0..400).map(|row| format!("{}", row % 2))),
    ];
    let found = of_number(&features, &y);
    assert_eq!(names(&found), ["label"], "{found:?}");
}

/// Columns of a table of the shared data: numbers where all values are some, else categories; sensors write -200 for nothing.
fn table(path: &str) -> Option<Vec<(String, Cells)>> {
    let text = crate::testing::unpacked(&crate::testing::shared(path)?);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader
        .headers()
        .unwrap()
        .iter()
        .map(str::to_owned)
        .collect();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let rows = &rows[..rows.len().min(SAMPLE_ROWS)];
    let columns = names.into_iter().enumerate().map(|(at, name)| {
        let cells = rows.iter().map(|row| {
            let cell = row.get(at).unwrap_or_default();
            (!["", "NA", "N/A", "-200"].contains(&cell)).then(|| cell.to_owned())
        });
        let cells: Vec<Option<String>> = cells.collect();
        let is_number = cells
            .iter()
            .flatten()
            .all(|cell| cell.parse::<f64>().is_ok());
        let numbers =
            |cell: &Option<String>| cell.as_ref().map_or(f64::NAN, |cell| cell.parse().unwrap());
        match is_number {
            true => (name, Cells::Numbers(cells.iter().map(numbers).collect())),
            false => (name, Cells::Texts(cells)),
        }
    });
    Some(columns.collect())
}

/// All columns as a target, each with what gives it away.
fn leaks(path: &str) -> Option<Vec<String>> {
    let columns = table(path)?;
    let mut found = Vec::new();
    for (at, (target, cells)) in columns.iter().enumerate() {
        let mut features = columns.clone();
        features.remove(at);
        // Columns of many texts are no features.
        features.retain(|(_, cells)| match cells {
            Cells::Numbers(_) => true,
            Cells::Texts(texts) => texts.iter().collect::<BTreeSet<_>>().len() <= 100,
        });
        let leaks = match cells {
            Cells::Numbers(cells) => of_number(&features, cells),
            Cells::Texts(cells) if cells.iter().collect::<BTreeSet<_>>().len() <= 50 => {
                of_class(&features, cells)
            }
            Cells::Texts(_) => continue,
        };
        if !leaks.is_empty() {
            eprintln!("{path}: {target}: {leaks:?}");
            found.push(format!("{target}: {}", names(&leaks).join(", ")));
        }
    }
    Some(found)
}

/// The columns of real tables that something gives away, each looked at by hand: parts and sums, currencies with a fixed rate,
/// and remarks that repeat another column.
#[test]
fn of_real_tables_only_sums_copies_and_remarks_are_found() {
    let mut found = String::new();
    for path in [
        "tabular/california_housing.csv.gz",
        "tabular/penguins_raw.csv.gz",
        "tabular/birdstrikes.csv.gz",
        "timeseries/air_quality_uci.csv.gz",
        "timeseries/cta_ridership_daily.csv.gz",
        "timeseries/opsd_germany_daily.csv.gz",
        "timeseries/ecb_eurofxref_hist.csv.gz",
    ] {
        let Some(leaks) = leaks(path) else { return };
        found.push_str(&format!("{path}\n"));
        leaks
            .iter()
            .for_each(|leak| found.push_str(&format!("  {leak}\n")));
    }
    let expected = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/statistics/target_leakage/real_tables.txt"
    );
    let expected = std::fs::read_to_string(expected).unwrap();
    assert_eq!(found, expected, "found:\n{found}");
}
