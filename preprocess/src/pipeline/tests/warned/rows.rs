//! Warnings of rows that a split leaves out, that equal others, that find no row of a joined source, or have no certain time.

use super::*;

/// Microseconds of a day of January 2026.
fn day(day: i64) -> i64 {
    1_767_225_600_000_000 + (day - 1) * 86_400_000_000
}

#[tokio::test]
async fn rows_that_a_split_by_time_and_key_leaves_out_are_warned_of_and_so_are_the_fractions() {
    let columns = [
        ("at", Int64),
        ("patient", Int64),
        ("x", Float64),
        ("y", Float64),
    ];
    // Patients of even rows are there until the end, those of odd ones once.
    let row = |i: i64| {
        let patient = if i % 2 == 0 { i % 50 } else { 1000 + i };
        vec![
            json!(i),
            json!(patient),
            json!((i * 37 % 101) as f64),
            json!(0.5 * (i % 7) as f64),
        ]
    };
    let rows: Vec<Cells> = (0..400).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let fractions = "train = 0.6, validation = 0.2, test = 0.2";
    let dataset = format!(
        "target = \"y\"\nfeatures = [\"x\"]\nsplit = {{ by = \"time\", time = \"at\", key = [\"patient\"], {fractions} }}\n"
    );
    let report = report_of(&root, &dataset).await;
    check_warning(
        &report,
        "split_drops_rows",
        "dataset.split.key",
        &[
            "160 of 400 rows (40.0 %) are in no split (`group_straddles`): a group of `patient`",
            "`by = \"key\"`",
        ],
    );
    check_warning(
        &report,
        "split_misses_share",
        "dataset.split",
        &[
            "the test split has 80 of 240 rows, a share of 0.3333 and not 0.2",
            "since the split left out 160 rows",
        ],
    );
    let alone = format!(
        "target = \"y\"\nfeatures = [\"x\"]\nsplit = {{ by = \"time\", time = \"at\", {fractions} }}\n"
    );
    let (root, _) = landed(&columns, &rows).await;
    let report = report_of(&root, &alone).await;
    check_none(&report, "split_drops_rows");
    check_none(&report, "split_misses_share");
}

/// 60 rows of 28 days and of shops.
async fn visits() -> Store {
    let columns = [
        ("on", Timestamp),
        ("shop", Utf8),
        ("z", Float64),
        ("y", Float64),
    ];
    let row = |i: i64| {
        let shop = if i % 20 == 0 {
            " s1".to_owned()
        } else {
            format!("S{}", i % 5)
        };
        vec![
            json!(day(i % 28 + 1)),
            json!(shop),
            json!(i as f64 / 3.0),
            json!((i % 4) as f64),
        ]
    };
    let rows: Vec<Cells> = (0..60).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    root
}

/// The visits, and a number for each day, which is text.
async fn visits_and_days() -> Store {
    let root = visits().await;
    let mut days = LandingZone::new(&root, "b", &[("on", Utf8), ("w", Float64)]);
    let date = |d: i64| vec![json!(format!("2026-01-{d:02}")), json!(d as f64)];
    days.batch(&(1..=28).map(date).collect::<Vec<_>>()).await;
    root
}

#[tokio::test]
async fn keys_of_two_types_that_never_match_are_warned_of_with_both_examples() {
    let root = visits_and_days().await;
    let join = "join = [{ source = \"b\", left = \"on\", unmatched = \"null\" }]\n";
    let report = report_of(
        &root,
        &format!("target = \"y\"\ndrop = [\"on\", \"shop\"]\n{join}{ALL_TRAIN}"),
    )
    .await;
    check_warning(
        &report,
        "join_unmatched",
        "dataset.join.left",
        &[
            "none of 60 rows find a row of `b` by `on`; column `on` of the rows holds timestamps, and column `on` of `b` holds text",
            "60 rows find none although `b` has their key",
            "how they are written: `2026-01-01T00:00:00Z` (3 rows) and `2026-01-01`, ",
            "`contract.column.<name>.type`",
        ],
    );
    let root = visits_and_days().await;
    let features =
        format!("sources = [\"a\"]\ntarget = \"y\"\nfeatures = [\"w\", \"z\"]\n{join}{ALL_TRAIN}");
    let message = build_with(&root, &features, 1)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("to column `w`: ")
            && message
                .ends_with("it is joined from source `b`, in which 0 of 60 landed rows find a row"),
        "{message}"
    );
}

/// The visits, and a number for each shop.
async fn visits_and_shops() -> Store {
    let root = visits().await;
    let mut shops = LandingZone::new(&root, "b", &[("name", Utf8), ("size", Float64)]);
    let shop = |i: i64| vec![json!(format!("S{i}")), json!(i as f64)];
    shops.batch(&(0..5).map(shop).collect::<Vec<_>>()).await;
    root
}

#[tokio::test]
async fn keys_that_match_but_for_their_spelling_are_warned_of() {
    let join =
        "join = [{ source = \"b\", left = \"shop\", right = \"name\", unmatched = \"null\" }]\n";
    let dataset = format!("target = \"y\"\ndrop = [\"on\", \"shop\"]\n{join}{ALL_TRAIN}");
    let report = report_of(&visits_and_shops().await, &dataset).await;
    check_warning(
        &report,
        "join_unmatched",
        "dataset.join.left",
        &[
            "57 (95.0 %) of 60 rows find a row of `b` by `shop`; 3 rows find none although `b` has their key",
            "blanks or letter case: ` s1` (3 rows) and `S1`",
        ],
    );
}

/// Rows at local times of the night in which clocks of Berlin are set back, in the order of their time.
async fn night(times: &[&str]) -> Store {
    let columns = [("at", Utf8), ("x", Float64), ("y", Float64)];
    let row = |(i, at): (usize, &&str)| {
        vec![
            json!(format!("2025-10-26 {at}")),
            json!(i as f64),
            json!(i as f64 / 2.0),
        ]
    };
    let rows: Vec<Cells> = times.iter().enumerate().map(row).collect();
    landed(&columns, &rows).await.0
}

fn lagged(zone: &str) -> String {
    format!(
        "target = \"y\"\nfeatures = [\"lag\"]\nseries = {{ time = \"at\", zone = \"{zone}\", warm_start = true }}\n\
         feature = [{{ name = \"lag\", type = \"lag\", column = \"x\", rows = 1 }}]\n{ALL_TRAIN}"
    )
}

#[tokio::test]
async fn local_times_that_clocks_show_twice_are_warned_of() {
    let every_40_minutes = [
        "00:00", "00:40", "01:20", "02:00", "02:40", "02:20", "03:00",
    ];
    let report = report_of(&night(&every_40_minutes).await, &lagged("Europe/Berlin")).await;
    check_warning(
        &report,
        "ambiguous_times",
        "dataset.series.ambiguous",
        &[
            "3 times of `at` have no offset",
            "`Europe/Berlin` show twice, such as `2025-10-26 02:00`",
            "features may be made of later rows",
        ],
    );
    let report = report_of(&night(&every_40_minutes).await, &lagged("UTC")).await;
    check_none(&report, "ambiguous_times");
    for (ambiguous, rejected) in [("earlier", 0), ("later", 0), ("reject", 3)] {
        let zone = format!("Europe/Berlin\", ambiguous = \"{ambiguous}");
        let dataset = format!("max_reject_fraction = 1.0\n{}", lagged(&zone));
        let report = report_of(&night(&every_40_minutes).await, &dataset).await;
        check_none(&report, "ambiguous_times");
        let found = report.rejected_by_reason.get("time_unreadable").copied();
        assert_eq!(found.unwrap_or(0), rejected, "{ambiguous}");
    }
}

#[tokio::test]
async fn a_split_by_range_that_trains_on_the_future_of_a_series_is_warned_of() {
    let columns = [("at", Int64), ("x", Float64), ("y", Float64)];
    let row = |hour: i64| {
        vec![
            json!(day(1) / 1_000_000 + 3600 * hour),
            json!(hour as f64 / 3.0),
            json!((hour % 7) as f64),
        ]
    };
    let oldest_first: Vec<Cells> = (0..60).map(row).collect();
    let newest_first: Vec<Cells> = (0..60).rev().map(row).collect();
    let dataset = |by: &str| {
        format!(
            "target = \"y\"\nfeatures = [\"lag\"]\nseries = {{ time = \"at\", unit = \"s\", warm_start = true }}\n\
             feature = [{{ name = \"lag\", type = \"lag\", column = \"x\", rows = 1 }}]\n\
             split = {{ {by}, train = 0.6, validation = 0.2, test = 0.2 }}\n"
        )
    };
    let (root, _) = landed(&columns, &newest_first).await;
    let report = report_of(&root, &dataset("by = \"range\"")).await;
    check_warning(
        &report,
        "range_not_by_time",
        "dataset.split.by",
        &[
            "24 of 24 rows of validation and test are earlier than a training row of the same entity, in 1 entity",
            "a training row at 2026-01-02T00:00:00Z and a test row at 2026-01-01T00:00:00Z",
            "`split = { by = \"time\", time = \"at\" }`",
        ],
    );
    let (root, _) = landed(&columns, &newest_first).await;
    let report = report_of(&root, &dataset("by = \"time\", time = \"at\"")).await;
    check_none(&report, "range_not_by_time");
    let (root, _) = landed(&columns, &oldest_first).await;
    let report = report_of(&root, &dataset("by = \"range\"")).await;
    check_none(&report, "range_not_by_time");
}

#[tokio::test]
async fn two_rows_at_an_hour_that_clocks_show_twice_are_refused_with_the_cause() {
    let root = night(&["00:00", "01:00", "02:00", "02:00", "03:00"]).await;
    let dataset = format!("sources = [\"a\"]\n{}", lagged("Europe/Berlin"));
    let message = build_with(&root, &dataset, 1)
        .await
        .unwrap_err()
        .to_string();
    for part in [
        "are at 2025-10-26T00:00:00Z",
        "clocks in `Europe/Berlin` show 2025-10-26T02:00:00 twice, an hour apart",
        "land times with an offset",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[tokio::test]
async fn times_of_a_joined_source_that_clocks_show_twice_are_warned_of() {
    let root = visits().await;
    let mut prices = LandingZone::new(&root, "b", &[("since", Utf8), ("price", Float64)]);
    let price = |at: &str| vec![json!(format!("2025-10-26 {at}")), json!(1.5)];
    prices.batch(&["01:00", "02:30"].map(price)).await;
    let join = "join = [{ source = \"b\", match = \"asof\", time = { column = \"on\" }, \
                right_time = { column = \"since\", zone = \"Europe/Berlin\" } }]\n";
    let report = report_of(
        &root,
        &format!("target = \"y\"\ndrop = [\"on\", \"shop\"]\n{join}{ALL_TRAIN}"),
    )
    .await;
    check_warning(
        &report,
        "ambiguous_times",
        "dataset.join.right_time.ambiguous",
        &[
            "1 time of `since` has no offset",
            "`2025-10-26 02:30`",
            "as the later",
        ],
    );
    check_none(&report, "join_unmatched");
    let chosen = join.replace("Berlin\"", "Berlin\", ambiguous = \"earlier\"");
    let report = report_of(
        &root,
        &format!("target = \"y\"\ndrop = [\"on\", \"shop\"]\n{chosen}{ALL_TRAIN}"),
    )
    .await;
    check_none(&report, "ambiguous_times");
}

#[tokio::test]
async fn times_that_are_no_categories_are_called_times() {
    let columns = [("seen", Timestamp), ("x", Float64), ("y", Float64)];
    let row = |i: i64| vec![json!(day(i)), json!(i as f64 / 3.0), json!((i % 4) as f64)];
    let rows: Vec<Cells> = (0..200).map(row).collect();
    let report = report_of(
        &landed(&columns, &rows).await.0,
        &format!("target = \"y\"\n{ALL_TRAIN}"),
    )
    .await;
    check_warning(
        &report,
        "columns_dropped",
        "dataset.drop",
        &[
            "column `seen` is no feature: it holds a time of its own in (nearly) each training row; make it the time of `dataset.series`",
        ],
    );
}

#[tokio::test]
async fn duplicates_beside_ignored_columns_are_warned_of_with_these() {
    let columns = [("id", Int64), ("a", Int64), ("y", Float64)];
    let row = |i: u64| vec![json!(i), json!(i % 5), json!(0.5)];
    let rows: Vec<Cells> = (0..500).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let dataset = format!("target = \"y\"\n{ALL_TRAIN}drop = [\"id\"]\n");
    let dataset = format!("{dataset}dedup_ignore = [\"id\"]\n");
    let report = report_of(&root, &dataset).await;
    assert_eq!((report.rows_in, report.duplicates), (500, 495));
    check_warning(
        &report,
        "duplicates_dropped",
        "dataset.dedup_ignore",
        &[
            "495 of 500 rows (99.0 %) were dropped since they equal another row in every column but `id`",
            "row 0 of batch 0 of `a`, from 0 (a = 0.0, y = 0.5), which occurs 100 times",
            "list fewer columns in `dataset.dedup_ignore`",
        ],
    );
}

#[tokio::test]
async fn a_number_far_beyond_those_of_the_training_rows_is_warned_of_unless_it_is_capped() {
    let columns = [("x", Float64), ("y", Float64)];
    let row = |i: i64| {
        let x = if i == 95 { 1e12 } else { (i * 37 % 101) as f64 };
        vec![json!(x), json!((i % 7) as f64)]
    };
    let rows: Vec<Cells> = (0..100).map(row).collect();
    let dataset = |steps: &str| {
        format!(
            "target = \"y\"\nsplit = {{ by = \"range\", train = 0.8, validation = 0.1, test = 0.1 }}\nstep = [{steps}]\n"
        )
    };
    let (root, _) = landed(&columns, &rows).await;
    let report = report_of(&root, &dataset("{ type = \"robust\" }")).await;
    check_warning(
        &report,
        "far_from_training_rows",
        "dataset.step",
        &["over 1000 times as large", "`x` (", " in test, "],
    );
    let (root, _) = landed(&columns, &rows).await;
    let capped = "{ type = \"winsorize\" }, { type = \"robust\" }";
    let report = report_of(&root, &dataset(capped)).await;
    check_none(&report, "far_from_training_rows");
}
