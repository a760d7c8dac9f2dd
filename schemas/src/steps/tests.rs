use super::*;

fn read(text: &str) -> Result<StepConfig, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn a_step_is_written_with_the_keys_and_the_order_that_hashes_hold() {
    for (text, expected) in [
        (
            r#"{"type":"impute"}"#,
            r#"{"type":"impute","columns":[],"strategy":"median","value":null,"indicator":false,"lower":null,"upper":null,"encoding":null,"max_values":null}"#,
        ),
        (
            r#"{"type":"impute","columns":["a"],"strategy":"knn","weights":"distance"}"#,
            r#"{"type":"impute","columns":["a"],"strategy":"knn","value":null,"indicator":false,"lower":null,"upper":null,"encoding":null,"max_values":null,"neighbours":5,"weights":"distance","reference_rows":10000}"#,
        ),
        (
            r#"{"type":"standardize","by":"g"}"#,
            r#"{"type":"standardize","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":null,"max_values":null,"min_count":30,"by":"g"}"#,
        ),
        (
            r#"{"type":"winsorize","upper":1}"#,
            r#"{"type":"winsorize","columns":[],"strategy":null,"value":null,"indicator":null,"lower":0.01,"upper":1.0,"encoding":null,"max_values":null}"#,
        ),
        (
            r#"{"type":"categories","encoding":"target"}"#,
            r#"{"type":"categories","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":"target","max_values":10000,"folds":5,"smoothing":10.0}"#,
        ),
        (
            r#"{"type":"categories","encoding":"hash"}"#,
            r#"{"type":"categories","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":"hash","max_values":null,"buckets":64}"#,
        ),
        (
            r#"{"type":"bin","strategy":"uniform"}"#,
            r#"{"type":"bin","columns":[],"strategy":"uniform","value":null,"indicator":null,"lower":null,"upper":null,"encoding":null,"max_values":null,"bins":10}"#,
        ),
        (
            r#"{"type":"log1p"}"#,
            r#"{"type":"log1p","columns":[],"strategy":null,"value":null,"indicator":null,"lower":null,"upper":null,"encoding":null,"max_values":null}"#,
        ),
    ] {
        let step = read(text).unwrap();
        let written = serde_json::to_string(&step).unwrap();
        assert_eq!(written, expected);
        let again = read(&written).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), expected);
    }
}

#[test]
fn a_key_of_another_type_is_refused_with_its_owner_and_the_keys_that_fit() {
    for (text, expected) in [
        (
            r#"{"type":"min_max","lower":0.1}"#,
            "at `lower`: this key belongs to `type = \"winsorize\"` and `type = \"robust\"`; `type = \"min_max\"` has the \
             keys `type`, `columns`, `clip`",
        ),
        (
            r#"{"type":"impute","neighbours":3}"#,
            "at `neighbours`: this key belongs to `strategy = \"knn\"`; `strategy = \"median\"` has the keys `strategy`, \
             `indicator`",
        ),
        (
            r#"{"type":"impute","strategy":"constant"}"#,
            "at `value`: `strategy = \"constant\"` needs this key, add it",
        ),
        (
            r#"{"type":"categories","encoding":"hash","max_values":3}"#,
            "at `max_values`: this key belongs to `encoding = \"one_hot\"`, `encoding = \"ordinal\"`, `encoding = \
             \"frequency\"` and `encoding = \"target\"`; `encoding = \"hash\"` has the keys `encoding`, `buckets`",
        ),
        (
            r#"{"type":"standardize","min_count":3}"#,
            "at `min_count`: this key counts the values of a group: name the column of groups with `by`, or remove it",
        ),
        (
            r#"{"type":"winsorize","lower":0.9,"upper":0.1}"#,
            "at `lower`: must be less than `upper`, got 0.9 with `upper` 0.1",
        ),
        (
            r#"{"type":"winsorize","lower":-0.5}"#,
            "at `lower`: must be 0 to 1, got -0.5",
        ),
        (
            r#"{"type":"scale"}"#,
            "at `type`: unknown variant `scale`, expected one of `impute`, `winsorize`, `standardize`, `min_max`, \
             `robust`, `log1p`, `power`, `bin`, `categories`",
        ),
        (
            r#"{"type":"bin","bins":1}"#,
            "at `bins`: must be 2 to 100, got 1",
        ),
        (
            r#"{"type":"bin","bins":101}"#,
            "at `bins`: must be 2 to 100, got 101",
        ),
        (
            r#"{"type":"winsorize","bins":3}"#,
            "at `bins`: this key belongs to `type = \"bin\"`; `type = \"winsorize\"` has the keys `type`, `columns`, \
             `lower`, `upper`, `by`, `min_count`",
        ),
        (r#"{"columns":[]}"#, "missing field `type`"),
        (
            r#"{"type":"power","methd":"box_cox"}"#,
            "unknown field `methd`, expected one of `type`, `columns`, `method`",
        ),
    ] {
        assert_eq!(
            read(text).unwrap_err().split(" at line").next(),
            Some(expected),
            "{text}"
        );
    }
}
