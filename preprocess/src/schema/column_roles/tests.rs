use feedline_schemas::record::ColumnType::{Bool, Float64, Int64, Json, Null, Utf8};

use super::*;
use crate::{schema::no_feature::NoFeatureReason, testing::pipeline};

const LANDED: [(&str, ColumnType); 8] = [
    ("price", Float64),
    ("rooms", Int64),
    ("new", Bool),
    ("town", Utf8),
    ("code", Utf8),
    ("tags", Json),
    ("gone", Null),
    ("owner", Int64),
];

fn resolved(dataset: &str) -> Result<DatasetSpec, Error> {
    let columns = LANDED.map(|(name, r#type)| MergedColumn {
        name: name.into(),
        r#type,
    });
    resolve(pipeline(dataset).dataset.as_ref().unwrap(), &columns)
}

fn inputs_of(dataset: &str) -> String {
    let input = |i: &Input| format!("{}:{:?}", i.column.name, i.column.kind);
    resolved(dataset)
        .unwrap()
        .inputs
        .iter()
        .map(input)
        .collect::<Vec<_>>()
        .join(" ")
}

fn check_refused(dataset: &str, message: &str) {
    let error = resolved(dataset).unwrap_err().to_string();
    assert!(error.starts_with(message), "{error}");
}

#[test]
fn by_default_every_column_of_numbers_or_text_but_target_and_key_is_a_feature() {
    assert_eq!(
        inputs_of("target = \"price\"\nsplit = { key = [\"owner\"] }"),
        "rooms:Numeric new:Numeric town:Categorical code:Categorical"
    );
}

#[test]
fn columns_that_a_key_names_for_another_use_are_no_features_and_found_with_their_key() {
    let others = |dataset: &str| {
        let spec = resolved(dataset).unwrap();
        let others = columns_in_other_use(&spec.config, &spec.inputs);
        others.into_iter().collect::<Vec<_>>()
    };
    let found = others(
        "target = \"price\"\npassthrough = [\"rooms\", \"owner\", \"price\"]\nsplit = { key = [\"owner\"] }",
    );
    let expected = [
        ("owner".to_owned(), "dataset.split.key"),
        ("rooms".to_owned(), "dataset.passthrough"),
    ];
    assert_eq!(found, expected);
    // The configuration says which columns are features, or that this one is none.
    for dataset in [
        "features = [\"town\"]\npassthrough = [\"rooms\"]",
        "passthrough = [\"rooms\"]\nstep = [{ type = \"impute\", columns = [\"rooms\"] }]",
        "passthrough = [\"rooms\"]\ndrop = [\"rooms\"]",
        "passthrough = [\"code\", \"town\"]\nseries = { time = \"code\", clock = \"town\", format = \"%F %T\" }",
        "passthrough = [\"code\"]\nsplit = { by = \"time\", time = \"code\" }",
    ] {
        assert!(others(dataset).is_empty(), "{dataset}");
    }
    check_refused(
        "passthrough = [\"price\", \"rooms\", \"new\", \"town\", \"code\"]\nsplit = { key = [\"owner\"] }",
        "`dataset.features`: no column is left to be a feature; `code`, `new`, `price`, `rooms`, `town` are named in \
         `dataset.passthrough`; `owner` is named in `dataset.split.key`; list some, or drop and key fewer",
    );
}

#[test]
fn the_configuration_decides_the_kind() {
    assert_eq!(
        inputs_of(
            "features = [\"town\", \"rooms\", \"code\"]\ncategorical = [\"rooms\"]\nstep = [{ type = \"impute\", columns = [\"code\"] }]"
        ),
        "town:Categorical rooms:Categorical code:Numeric"
    );
    check_refused(
        "categorical = [\"rooms\"]\nstep = [{ type = \"impute\", columns = [\"rooms\"] }]",
        "`dataset.step.0.columns`: `rooms` is read as a number in one place and as a category in another",
    );
}

#[test]
fn steps_get_their_columns_and_defaults() {
    let spec = resolved("target = \"price\"\nfeatures = [\"rooms\", \"town\"]").unwrap();
    let steps: Vec<_> = spec
        .steps
        .iter()
        .map(|s| (s.step.name(), s.columns.join(" ")))
        .collect();
    let expected = ["impute", "winsorize", "standardize"].map(|kind| (kind, "rooms".to_owned()));
    assert_eq!(
        steps,
        [expected.as_slice(), &[("categories", "town".to_owned())]].concat()
    );
    let written = serde_json::to_value(&spec.steps).unwrap();
    assert_eq!([&written[1]["lower"], &written[1]["upper"]], [0.01, 0.99]);
    assert_eq!(written[3]["max_values"], 100);
}

#[test]
fn categories_no_step_names_are_encoded_at_the_end() {
    let dataset = "features = [\"rooms\", \"town\", \"code\"]\n\
         step = [{ type = \"categories\", columns = [\"code\"], encoding = \"ordinal\" }, { type = \"standardize\" }]";
    let steps = resolved(dataset).unwrap().steps;
    let listed: Vec<String> = steps.iter().map(|s| s.columns.join(" ")).collect();
    assert_eq!(listed, ["code", "rooms", "town"]);
}

#[test]
fn encodings_get_the_defaults_of_their_kind() {
    for (encoding, expected) in [
        ("one_hot", (Some(100), None)),
        ("frequency", (Some(10_000), None)),
        ("hash", (None, Some(64))),
    ] {
        let dataset = format!(
            "features = [\"town\"]\nstep = [{{ type = \"categories\", encoding = \"{encoding}\" }}]"
        );
        let step = resolved(&dataset).unwrap().steps.remove(0);
        let Step::Categories(categories) = step.step else {
            panic!("{step:?}")
        };
        let buckets = match &categories {
            Categories::Hash(hash) => Some(hash.buckets.get()),
            _ => None,
        };
        assert_eq!((categories.max_values(), buckets), expected, "{encoding}");
        let vocabulary = categories.vocabulary();
        assert_eq!(vocabulary.and_then(|known| known.min_count), None);
    }
}

#[test]
fn a_column_that_groups_is_a_category_that_stays() {
    let dataset =
        "features = [\"price\", \"owner\"]\nstep = [{ type = \"standardize\", by = \"owner\" }]";
    assert_eq!(inputs_of(dataset), "price:Numeric owner:Categorical");
    let spec = resolved(dataset).unwrap();
    let written = serde_json::to_value(&spec.steps).unwrap();
    assert_eq!(written[0]["min_count"], 30);
    assert!(!spec.inputs[1].by_default);
    let kept = resolved("step = [{ type = \"winsorize\", by = \"town\" }]").unwrap();
    let town = kept
        .inputs
        .iter()
        .find(|input| input.column.name == "town")
        .unwrap();
    assert!(!town.by_default);
}

#[test]
fn columns_left_out_leave_their_steps_too() {
    let spec = resolved("target = \"price\"\nfeatures = [\"rooms\", \"town\"]").unwrap();
    let left_out = [("town".to_owned(), NoFeatureReason::OwnTexts)];
    let fit = spec.fit_spec(&left_out.into());
    assert_eq!(fit.inputs.len(), 1);
    assert_eq!(fit.steps.len(), 3);
}

#[test]
fn a_column_that_is_not_there_is_refused_wherever_it_is_named() {
    for (dataset, key) in [
        ("target = \"prise\"", "dataset.target"),
        ("features = [\"prise\"]", "dataset.features"),
        ("drop = [\"prise\"]", "dataset.drop"),
        ("categorical = [\"prise\"]", "dataset.categorical"),
        ("split = { key = [\"prise\"] }", "dataset.split.key"),
        (
            "step = [{ type = \"impute\", columns = [\"prise\"] }]",
            "dataset.step.0.columns",
        ),
    ] {
        check_refused(
            dataset,
            &format!("`{key}`: there is no column `prise` among `price`, `rooms`,"),
        );
    }
}

#[test]
fn a_wrong_name_among_many_lists_few_and_shows_control_characters() {
    let many = (0..2000).map(|i| MergedColumn {
        name: format!("c{i}\n"),
        r#type: Float64,
    });
    let many: Vec<MergedColumn> = many.collect();
    let error = find("dataset.drop", "c77\t", &many)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no column `c77\\t` among `c0\\n`, `c1\\n`, "),
        "{error}"
    );
    assert!(
        error.contains(", `c19\\n` and 1980 more; did you mean `c77\\n`?"),
        "{error}"
    );
    assert!(error.len() < 400, "{error}");
}

#[test]
fn numbers_that_are_not_finite_are_no_missing_values() {
    check_refused(
        "missing_values = [inf]",
        "`dataset.missing_values`: write finite numbers",
    );
}

#[test]
fn steps_that_do_not_fit_the_columns_are_refused() {
    let step = |fields: &str| format!("step = [{{ {fields} }}]");
    check_refused(
        &step("type = \"categories\", encoding = \"target\""),
        "`dataset.step.0.encoding`: `target` encodes categories by what the target is like",
    );
    for (fields, message) in [
        ("by = \"twon\"", "by`: there is no column `twon`"),
        (
            "by = \"rooms\", columns = [\"rooms\"]",
            "by`: `rooms` is read as a number in one place",
        ),
    ] {
        for kind in ["winsorize", "standardize"] {
            check_refused(
                &step(&format!("type = \"{kind}\", {fields}")),
                &format!("`dataset.step.0.{message}"),
            );
        }
    }
    check_refused(
        &format!(
            "drop = [\"town\"]\n{}",
            step("type = \"standardize\", by = \"town\"")
        ),
        "`dataset.step.0.by`: `town` is not a feature of this dataset",
    );
    let twice =
        "step = [{ type = \"categories\" }, { type = \"categories\", columns = [\"town\"] }]";
    check_refused(twice, "`dataset.step.1.columns`: `town` is already encoded");
}

#[test]
fn a_column_in_two_roles_is_refused_before_any_column_is_known() {
    for (dataset, message) in [
        (
            "features = [\"town\", \"town\"]",
            "`dataset.features`: `town` is listed twice",
        ),
        (
            "step = [{ type = \"impute\", columns = [\"rooms\", \"rooms\"] }]",
            "`dataset.step.0.columns`: `rooms` is listed twice",
        ),
        (
            "categorical = [\"town\"]\ndrop = [\"town\"]",
            "`dataset.drop`: `town` is also listed in `dataset.categorical`",
        ),
        (
            "target = \"price\"\nfeatures = [\"rooms\", \"price\"]",
            "`dataset.features`: `price` is the target",
        ),
        (
            "target = \"price\"\ndedup_ignore = [\"price\"]",
            "`dataset.dedup_ignore`: `price` is the target",
        ),
        (
            "target = \"price\"\nsplit = { key = [\"price\"] }",
            "`dataset.split.key`: `price` is a target",
        ),
        (
            "target = [\"price\", \"rooms\"]\nsplit = { by = \"time\", time = \"at\", key = [\"rooms\"] }",
            "`dataset.split.key`: `rooms` is a target",
        ),
        (
            "target = \"price\"\nseries = { time = \"at\", unit = \"s\", entity = [\"price\"] }",
            "`dataset.series.entity`: `price` is the target",
        ),
    ] {
        let config = pipeline(dataset).dataset.unwrap();
        let error = check_numbers(&config).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn columns_in_two_roles_are_refused() {
    check_refused(
        "features = [\"town\"]\ndrop = [\"town\"]",
        "`dataset.drop`: `town` is also listed in `dataset.features`",
    );
    check_refused(
        "categorical = [\"rooms\"]\ndrop = [\"rooms\"]",
        "`dataset.drop`: `rooms` is also listed in `dataset.categorical`, remove it from one",
    );
    check_refused(
        "drop = [\"town\"]\nstep = [{ type = \"impute\" }, { type = \"categories\", columns = [\"code\", \"town\"] }]",
        "`dataset.drop`: `town` is also listed in `dataset.step.1.columns`, remove it from one",
    );
    for targets in ["\"price\"", "[\"rooms\", \"price\"]"] {
        check_refused(
            &format!("target = {targets}\ndrop = [\"price\"]"),
            "`dataset.drop`: `price` is the target (`dataset.target`)",
        );
    }
    check_refused(
        "target = \"price\"\nfeatures = [\"price\"]",
        "`dataset.features`: `price` is the target",
    );
    check_refused(
        "features = [\"tags\"]",
        "`dataset.features`: column `tags` holds lists",
    );
    check_refused(
        "features = [\"gone\"]",
        "`dataset.features`: column `gone` holds no value",
    );
    check_refused(
        "target = \"gone\"",
        "`dataset.target`: column `gone` holds no value",
    );
    check_refused(
        "target = \"price\"\nstep = [{ type = \"impute\", columns = [\"price\"] }]",
        "`dataset.step.0.columns`: `price` is not a feature",
    );
    check_refused(
        "target = \"owner\"\ncategorical = [\"owner\"]",
        "`dataset.categorical`: `owner` is the target; remove it here, and set `dataset.task = \"classification\"`",
    );
    check_refused(
        "features = [\"price\"]\ncategorical = [\"rooms\"]",
        "`dataset.categorical`: `rooms` is not a feature of this dataset; remove it here, or list it in `dataset.features`",
    );
    check_refused(
        "task = \"classification\"",
        "`dataset.task`: it says how to treat the target, but `dataset.target` is absent",
    );
}
