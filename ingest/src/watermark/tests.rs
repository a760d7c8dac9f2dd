use super::*;

fn incremental(start: Option<&str>, lookback: &str) -> Result<Incremental, Error> {
    Incremental::new(&IncrementalConfig {
        cursor: "at".into(),
        param: "since".into(),
        start: start.map(ToOwned::to_owned),
        lookback: lookback.into(),
        max_ahead: "5m".into(),
    })
}

/// 2026-03-20.
const NOW: Duration = Duration::from_secs(1_773_964_800);

fn check_next(start: Option<&str>, lookback: &str, high: &str, since: &str) {
    let done = PageRun {
        number: 4,
        high: Some(high.into()),
        restarted: true,
        records: 9,
        ..PageRun::default()
    };
    let next = incremental(start, lookback)
        .unwrap()
        .next_run(&done, &[], NOW)
        .unwrap();
    let expected = PageRun {
        number: 5,
        since: Some(since.into()),
        high: Some(high.into()),
        ..PageRun::default()
    };
    assert_eq!(next, expected);
}

#[test]
fn the_next_run_begins_a_lookback_before_the_newest_cursor_and_not_before_the_start() {
    check_next(
        None,
        "0",
        "2026-03-01T12:00:00.5+02:00",
        "2026-03-01T12:00:00.5+02:00",
    );
    check_next(None, "6h", "2026-03-01T02:00:00Z", "2026-02-28T20:00:00Z");
    check_next(None, "1d", "2026-03-01", "2026-02-28");
    check_next(None, "100", "1700", "1600");
    check_next(Some("1650"), "100", "1700", "1650");
    // A date beside times is the beginning of its day, and a time beside dates its day.
    let time = "2026-03-01T02:00:00Z";
    check_next(Some("2026-01-01"), "1d", time, "2026-02-28T02:00:00Z");
    check_next(Some("2026-03-01"), "90d", time, "2026-03-01T00:00:00Z");
    check_next(Some(time), "9d", "2026-03-02", "2026-03-01");
    check_next(
        Some("2026-03-01T00:00:00Z"),
        "90d",
        "2026-03-02T00:00:00+01:00",
        "2026-03-01T00:00:00Z",
    );
    check_next(None, "9", "-9223372036854775808", "-9223372036854775808");
    check_next(
        None,
        "1d",
        "-009999-01-01T12:00:00Z",
        "-009999-01-01T00:00:00Z",
    );
}

#[test]
fn settings_that_cannot_work_name_their_key() {
    let check = |start, lookback, key: &str| match incremental(start, lookback) {
        Err(Error::Config { key: found, .. }) => assert_eq!(found, key),
        other => panic!("{other:?}"),
    };
    for lookback in ["", "h", "-1", "1.5h", "6 h", "2w", "99999999999d", "é"] {
        check(None, lookback, "incremental.lookback");
    }
    check(Some("2026-03-01"), "6h", "incremental.lookback");
    check(Some("7"), "6h", "incremental.lookback");
    check(Some("2026-03-01T00:00:00Z"), "6", "incremental.lookback");
    check(Some("yesterday"), "0", "incremental.start");
}

fn records(bodies: &[&str]) -> Vec<Record> {
    let record = |body: &&str| Record::Value(Value::parse(body.as_bytes()).unwrap());
    bodies.iter().map(record).collect()
}

fn check_highest(high: Option<&str>, bodies: &[&str], expected: Result<Option<&str>, &str>) {
    let incremental = incremental(None, "0").unwrap();
    let mut run = PageRun {
        high: high.map(ToOwned::to_owned),
        ..PageRun::default()
    };
    match incremental.note(&mut run, &records(bodies), NOW) {
        Ok(()) => assert_eq!(Ok(run.high.as_deref()), expected),
        Err(found) => assert!(found.contains(expected.unwrap_err()), "{found}"),
    }
}

#[test]
fn the_highest_cursor_is_so_in_time_not_in_text() {
    check_highest(None, &[], Ok(None));
    check_highest(Some("3"), &[], Ok(Some("3")));
    check_highest(
        None,
        &[r#"{"at":9}"#, r#"{"at":10}"#, r#"{"at":"2"}"#],
        Ok(Some("10")),
    );
    let (noon, later) = (
        r#"{"at":"2026-03-01T12:00:00+02:00"}"#,
        r#"{"at":"2026-03-01T11:00:00Z"}"#,
    );
    check_highest(None, &[noon, later], Ok(Some("2026-03-01T11:00:00Z")));
    check_highest(
        Some("9"),
        &[r#"{"at":null}"#, r#"{"at":8}"#, "{}"],
        Ok(Some("9")),
    );
    check_highest(
        Some("9"),
        &[r#"{"at":"2026-03-01"}"#],
        Err("different kinds"),
    );
    check_highest(
        None,
        &[r#"{"at":"2026-03-01 12:00"}"#],
        Err("no RFC 3339 time"),
    );
    check_highest(
        None,
        &[r#"{"at":1.5}"#],
        Err("(`incremental.cursor`) of a record: a float is no integer"),
    );
    check_highest(None, &[r#"{"b":1}"#], Err("`incremental.cursor`"));
}

#[test]
fn the_last_day_of_the_calendar_is_ahead_of_now() {
    let time = r#"{"at":"2026-03-01T00:00:00Z"}"#;
    let last = r#"{"at":"9999-12-31T23:59:59Z"}"#;
    check_highest(None, &[time, last], Ok(Some("2026-03-01T00:00:00Z")));
    let day = r#"{"at":"2026-03-01"}"#;
    let last = r#"{"at":"9999-12-31"}"#;
    check_highest(None, &[day, last], Ok(Some("2026-03-01")));
    let seconds = |text: &str| Mark::parse(text).unwrap().unix_s();
    assert_eq!(seconds("9999-12-31"), Some(253_402_214_400));
    assert_eq!(seconds("9999-12-31T23:59:59Z"), Some(253_402_300_799));
    let [date, time] =
        ["9999-12-31", "9999-12-31T00:00:00Z"].map(|text| Mark::parse(text).unwrap());
    assert_eq!(date.beside(&time), time);
    assert_eq!(time.beside(&date), date);
}

fn noted(pagination: &str, page: u64, run: PageRun) -> Option<Interruption> {
    let text = format!(
        "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = 'http://h.example/'\n\
         pagination = {{ {pagination} }}\nincremental = {{ cursor = 'at', param = 'since' }}\n"
    );
    let loaded = feedline_schemas::config::load("p", &text, &[]).unwrap();
    let mut position = Position::Page {
        page,
        cursor: None,
        run,
    };
    note_interruption(&loaded.config.source[0], &mut position);
    position.run().and_then(|run| run.interrupted.clone())
}

#[test]
fn the_first_interruption_is_noted_unless_the_pages_are_ordered_by_the_cursor() {
    let of = |high: &str| Interruption {
        high: Some(high.into()),
    };
    let run = |interrupted: Option<Interruption>| PageRun {
        high: Some("7".into()),
        interrupted,
        ..PageRun::default()
    };
    let pages = "type = 'page'";
    assert_eq!(noted(pages, 3, run(None)), Some(of("7")));
    assert_eq!(noted(pages, 3, run(Some(of("5")))), Some(of("5")));
    assert_eq!(noted(pages, 0, run(None)), None);
    let none = PageRun::default();
    assert_eq!(noted(pages, 3, none), Some(Interruption::default()));
    let keyset = |path: &str| {
        format!(
            "type = 'keyset', time_path = '{path}', time_param = 'from', key_path = 'id', page_size = 9"
        )
    };
    assert_eq!(noted(&keyset("at"), 3, run(None)), None);
    assert_eq!(noted(&keyset("created"), 3, run(None)), Some(of("7")));
}

#[test]
fn the_bound_after_an_interruption_follows_the_newest_cursor_from_before_it() {
    let check = |high: Option<&str>, before: Option<&str>, expected: Option<&str>| {
        let interruption = Interruption {
            high: before.map(ToOwned::to_owned),
        };
        assert_eq!(choose_bound_cursor(high, Some(&interruption)), expected);
    };
    check(Some("10"), Some("9"), Some("9"));
    // A clock that was ahead is corrected meanwhile.
    check(Some("8"), Some("9"), Some("8"));
    check(Some("10"), None, None);
    check(None, Some("9"), None);
    assert_eq!(choose_bound_cursor(Some("10"), None), Some("10"));
    let done = PageRun {
        high: Some("10".into()),
        interrupted: Some(Interruption {
            high: Some("7".into()),
        }),
        ..PageRun::default()
    };
    let next = incremental(None, "2").unwrap();
    let next = next.next_run(&done, &[], NOW).unwrap();
    let expected = (Some("5"), Some("10"), None);
    let found = (
        next.since.as_deref(),
        next.high.as_deref(),
        next.interrupted,
    );
    assert_eq!(found, expected);
}
