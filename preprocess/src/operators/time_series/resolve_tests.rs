//! Faults that `[dataset.series]` and `[[dataset.feature]]` refuse.

use super::tests::{TIMED, resolved};

fn check_refused(dataset: &str, message: &str) {
    let error = resolved(dataset).unwrap_err().to_string();
    assert!(error.starts_with(message), "{error}");
}

#[test]
fn keys_that_do_not_fit_are_refused_by_name() {
    let feature = |feature: &str| format!("{TIMED} }}\nfeature = [{{ name = \"f\", {feature} }}]");
    for (keys, message) in [
        (
            "type = \"lag\", column = \"u\", rows = 1",
            "`dataset.feature.0.column`: there is no column `u`",
        ),
        (
            "type = \"lag\", column = \"t\", rows = 1",
            "`dataset.feature.0.column`: column `t` holds no numbers",
        ),
    ] {
        check_refused(&feature(keys), message);
    }
    let lag = "type = \"lag\", column = \"v\", rows = 1 }]";
    check_refused(
        &format!("{TIMED} }}\nfeature = [{{ name = \"v\", {lag}"),
        "`dataset.feature.0.name`",
    );
    check_refused(
        &format!("feature = [{{ name = \"f\", {lag}"),
        "`dataset.feature`: features are made over time",
    );
    let timed = |keys: &str| format!("split = {{ by = \"range\" }}\nseries = {{ {keys} }}");
    for (keys, message) in [
        ("time = \"t\"", "`dataset.series.unit`"),
        ("time = \"when\", unit = \"s\"", "`dataset.series.unit`"),
        (
            "time = \"when\", format = \"yyyy\"",
            "`dataset.series.format`",
        ),
        (
            "time = \"when\", format = \"%H:%M\"",
            "`dataset.series.format`: no text that `%H:%M` reads",
        ),
        (
            "time = \"t\", unit = \"us\", format = \"%s\"",
            "`dataset.series.format`: column `t` holds numbers, which `unit` reads",
        ),
        (
            "time = \"when\", zone = \"Europe/Atlantis\"",
            "`dataset.series.zone`",
        ),
        (
            "time = \"when\", ambiguous = \"later\"",
            "`dataset.series.ambiguous`: strings of `when` are read in UTC",
        ),
        (
            "time = \"t\", unit = \"s\", zone = \"Europe/Rome\", ambiguous = \"later\"",
            "`dataset.series.ambiguous`: column `t` holds no text",
        ),
        ("time = \"then\"", "`dataset.series.time`"),
        ("time = \"when\", clock = \"v\"", "`dataset.series.clock`"),
        (
            "time = \"when\", entity = [\"who\", \"who\"]",
            "`dataset.series.entity`",
        ),
        ("time = \"when\", gaps = \"error\"", "`dataset.series.gaps`"),
    ] {
        check_refused(&timed(keys), message);
    }
}

#[test]
fn trap_44_the_time_is_not_filled_in_and_the_target_is_not_given_away() {
    let impute = "\nstep = [{ type = \"impute\", columns = [\"t\"] }]";
    check_refused(
        &format!("{TIMED} }}{impute}"),
        "`dataset.step.0.columns`: `t` is the time",
    );
    for given in [
        "type = \"rolling_mean\", rows = 2, closed = \"right\"",
        "type = \"forward_fill\"",
        "type = \"interpolate\"",
        "type = \"difference\", rows = 1, closed = \"right\"",
    ] {
        let feature = format!("feature = [{{ name = \"f\", column = \"y\", {given} }}]");
        check_refused(
            &format!("target = \"y\"\n{TIMED} }}\n{feature}"),
            "`dataset.feature.0.column`: `y` is the target",
        );
    }
    let past = "feature = [{ name = \"f\", column = \"y\", type = \"rolling_mean\", rows = 2 }]";
    resolved(&format!("target = \"y\"\n{TIMED} }}\n{past}")).unwrap();
}

#[test]
fn an_entity_that_is_the_target_or_the_time_is_refused() {
    let series = |entity: &str| {
        format!("target = \"y\"\n{TIMED} }}\n").replace("[\"who\"]", &format!("[{entity}]"))
    };
    check_refused(
        &series("\"who\", \"y\""),
        "`dataset.series.entity`: `y` is the target",
    );
    check_refused(&series("\"t\""), "`dataset.series.entity`: `t` is the time");
    resolved(&series("\"who\", \"v\"")).unwrap();
}

#[test]
fn a_split_by_content_is_refused_unless_entities_stay_whole() {
    let series = "series = { time = \"t\", unit = \"s\", entity = [\"who\"] }\n";
    let feature = "feature = [{ name = \"f\", column = \"v\", type = \"lag\", rows = 1 }]";
    check_refused(&format!("{series}{feature}"), "`dataset.split.by`");
    resolved(&format!("split = {{ key = [\"who\"] }}\n{series}{feature}")).unwrap();
    let calendar = "feature = [{ name = \"f\", type = \"calendar\", part = \"hour\" }]";
    resolved(&format!("{series}{calendar}")).unwrap();
}
