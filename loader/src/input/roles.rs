//! Roles of columns: those that an export of feedline names in its files, and names that are never features.

use feedline_schemas::{
    config::ImageBackground,
    export::{ExportedRoles, ROLES},
    manifest::TargetKind,
};

use super::{config::InputConfig, names::TARGETS, splits::list, warnings::Warnings};

/// Beginning of the names of columns that identify a row of feedline.
const OWN: &str = "_feedline_";
/// End of the names of landed values beside a column of the model.
const LANDED: &str = "__landed";
/// Beginning of the names of columns in which pandas stores the index of a table.
const PANDAS_INDEX: &str = "__index_level_";

/// Returns true if a column of this name is no feature unless the settings name it: it identifies a row, or has the landed
/// value of another column, which may be the target.
pub(super) fn is_never_feature(name: &str) -> bool {
    name.starts_with(OWN) || name.ends_with(LANDED) || name.starts_with(PANDAS_INDEX)
}

/// The settings, with the columns that an export names in place of those that the settings do not. `text` is what the files
/// have under the key [`ROLES`].
///
/// # Errors
/// A message for roles that cannot be read, and for several targets if the settings name none of them.
pub(super) fn complete_columns(
    config: &InputConfig,
    text: Option<&str>,
    warnings: &Warnings,
) -> Result<InputConfig, String> {
    let mut completed = config.clone();
    let Some(text) = text else {
        return Ok(completed);
    };
    let roles: ExportedRoles = serde_json::from_str(text).map_err(|e| {
        format!("its `{ROLES}`, which names the columns of an export, cannot be read: {e}; export it again")
    })?;
    take_parts(&mut completed, &roles, warnings);
    if completed.columns.key.is_none() {
        completed.columns.key = roles.key.clone();
    }
    take_target(&mut completed, &roles)?;
    Ok(completed)
}

/// Names the features, the image or the tokens of a row, if none of them is named.
fn take_parts(config: &mut InputConfig, roles: &ExportedRoles, warnings: &Warnings) {
    let map = &mut config.columns;
    if !map.names_no_part() {
        return;
    }
    let parts = [
        ("columns.image", roles.image.is_some()),
        ("columns.x", !roles.features.is_empty()),
        ("columns.tokens", roles.tokens.is_some()),
    ];
    let parts: Vec<&str> = parts
        .iter()
        .filter(|part| part.1)
        .map(|part| part.0)
        .collect();
    if let [read, others @ ..] = &parts[..]
        && !others.is_empty()
    {
        warnings.add(&format!(
            "its rows have several parts, and this format gives one of them: {} are exported and `{read}` is read; name the \
             columns of another one, or read the dataset itself",
            list(parts.iter().copied())
        ));
    }
    if roles.image.is_some() {
        map.image.clone_from(&roles.image);
    } else if roles.features.is_empty() {
        map.tokens.clone_from(&roles.tokens);
    } else {
        map.x.clone_from(&roles.features);
    }
}

/// Names the target, if it is not named.
fn take_target(config: &mut InputConfig, roles: &ExportedRoles) -> Result<(), String> {
    let map = &mut config.columns;
    if map.y.is_some() || map.tokens.is_some() || config.target == Some(TargetKind::None) {
        return Ok(());
    }
    match &roles.targets[..] {
        // A column that is called like a target is none here.
        [] if config.target.is_none() => config.target = Some(TargetKind::None),
        [] => {}
        [target] => {
            map.y = Some(target.clone());
            if config.target.is_none() && !roles.classes.is_empty() {
                let classes = u32::try_from(roles.classes.len());
                let classes = classes.map_err(|_| "it has more than 2^32 classes")?;
                config.target = Some(TargetKind::Classification { classes });
            }
        }
        several => {
            return Err(format!(
                "it is exported with the targets {}, and a row of an export has one; name it in `columns.y`, in Python \
                 `columns={{\"y\": \"{}\"}}`, or read none with `target`, in Python `target=\"none\"`; the dataset itself gives \
                 all of them",
                list(several.iter().map(String::as_str)),
                several.first().map_or("", String::as_str)
            ));
        }
    }
    Ok(())
}

/// Names of the classes of the target that is read, by id, where an export has them. `chosen` is what [`complete_columns`] made
/// of the settings and `text`.
pub(super) fn class_names(chosen: &InputConfig, text: Option<&str>) -> Vec<String> {
    if !matches!(chosen.target, Some(TargetKind::Classification { .. })) {
        return Vec::new();
    }
    let roles = text.and_then(|text| serde_json::from_str::<ExportedRoles>(text).ok());
    let roles = roles.filter(|roles| roles.targets.first() == chosen.columns.y.as_ref());
    roles.map(|roles| roles.classes).unwrap_or_default()
}

/// Colour that transparent pixels of the images of an export are blended onto, if `text`, its roles, has one.
pub(super) fn image_background(text: Option<&str>) -> Option<ImageBackground> {
    let roles = text.and_then(|text| serde_json::from_str::<ExportedRoles>(text).ok());
    roles.and_then(|roles| roles.background)
}

/// Warns of numeric columns that are no features by their names.
pub(super) fn warn_of_own_names<'a>(numbers: impl Iterator<Item = &'a str>, warnings: &Warnings) {
    let own: Vec<&str> = numbers.filter(|name| is_never_feature(name)).collect();
    if !own.is_empty() {
        warnings.add(&format!(
            "columns {} are no features: keys, origins and landed values of feedline and the index of pandas are called so; \
             name those to read in `columns.x`",
            list(own.into_iter())
        ));
    }
}

/// Warns of columns that are not read, where the settings do not say which are.
pub(super) fn warn_of_unread(read: &[&str], unread: &[&str], warnings: &Warnings) {
    if !unread.is_empty() {
        warnings.add(&format!(
            "columns {} are read, and {} are not; name those to read in `columns`",
            list(read.iter().copied()),
            list(unread.iter().copied())
        ));
    }
}

/// Warns of a target that is one of the features `x`, which the settings name.
pub(super) fn warn_of_target_in_features(y: &str, x: &[String], warnings: &Warnings) {
    if x.iter().any(|name| name == y) {
        warnings.add(&format!(
            "the target `{y}` is also a feature, so that a model is given what it is to predict; take it out of `columns.x`, or \
             name another target in `columns.y`"
        ));
    }
}

/// Checks columns that are called like a target beside `y`, which is read as the target. The settings name it if `is_named`;
/// `are_features` is true if the others become features.
///
/// # Errors
/// A message if it is not clear which of them is the target, and the others would be features.
pub(super) fn check_other_targets(
    (y, is_named): (&str, bool),
    others: &[&str],
    are_features: bool,
    warnings: &Warnings,
) -> Result<(), String> {
    if others.is_empty() {
        return Ok(());
    }
    let names = list(others.iter().copied());
    match (is_named, are_features) {
        (true, false) => Ok(()),
        (true, true) => {
            warnings.add(&format!(
                "features are called like a target: {names}; if a model will not have them when it predicts, name the \
                 features in `columns.x`"
            ));
            Ok(())
        }
        (false, false) => {
            warnings.add(&format!(
                "`{y}` is read as the target, and there are also {names}; name the target in `columns.y`"
            ));
            Ok(())
        }
        (false, true) => Err(format!(
            "`{y}` and {names} are all called like a target, and those that are not the target would be features; name the \
             target in `columns.y`, in Python `columns={{\"y\": \"{y}\"}}`, and the features in `columns.x` if the others are \
             none"
        )),
    }
}

/// Warns that no column is the target, of rows of numbers.
pub(super) fn warn_that_all_are_features(warnings: &Warnings) {
    warnings.add(&format!(
        "there is no target, and all columns of numbers are features, since none is called {}; name the target in `columns.y` \
         and the features in `columns.x`, or set `target` to none",
        list(TARGETS.iter().copied())
    ));
}

/// Warns that no column is the target, of images.
pub(super) fn warn_without_target(warnings: &Warnings) {
    warnings.add(&format!(
        "no target is read, since no column is called {}; name it in `columns.y`, or set `target` to none",
        list(TARGETS.iter().copied())
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::config::ColumnMap;

    const ROWS: &str =
        r#"{"features": ["b", "a"], "targets": ["price"], "key": "_feedline_key", "later": 1}"#;

    fn complete_default(text: &str) -> Result<(InputConfig, Vec<String>), String> {
        let warnings = Warnings::new("memory:///d".into());
        let config = complete_columns(&InputConfig::new(), Some(text), &warnings)?;
        Ok((config, warnings.list()))
    }

    #[test]
    fn columns_that_the_settings_do_not_name_are_those_of_the_export() {
        let (config, warnings) = complete_default(ROWS).unwrap();
        assert_eq!(config.columns.x, ["b", "a"]);
        assert_eq!(config.columns.y.as_deref(), Some("price"));
        assert_eq!(config.columns.key.as_deref(), Some("_feedline_key"));
        assert_eq!((config.target, warnings.len()), (None, 0));
        let named = InputConfig {
            columns: ColumnMap {
                x: vec!["a".into()],
                y: Some("b".into()),
                key: Some("id".into()),
                ..ColumnMap::default()
            },
            ..InputConfig::new()
        };
        let warnings = Warnings::new("memory:///d".into());
        assert_eq!(
            complete_columns(&named, Some(ROWS), &warnings),
            Ok(named.clone())
        );
        assert_eq!(complete_columns(&named, None, &warnings), Ok(named));
    }

    #[test]
    fn classes_have_their_number_and_a_dataset_without_a_target_has_none() {
        let (config, _) =
            complete_default(r#"{"image": "image", "targets": ["folder"], "classes": ["a", "b"]}"#)
                .unwrap();
        let target = TargetKind::Classification { classes: 2 };
        assert_eq!(config.target, Some(target));
        assert_eq!(config.columns.image.as_deref(), Some("image"));
        assert!(class_names(&config, None).is_empty());
        let on_white = r#"{"image": "image", "background": "white"}"#;
        let white = "white".parse::<ImageBackground>().ok();
        assert_eq!(image_background(Some(on_white)), white);
        let named = r#"{"image": "image", "targets": ["folder"], "classes": ["a", "b"]}"#;
        assert_eq!(image_background(Some(named)), None);
        assert_eq!(class_names(&config, Some(named)), ["a", "b"]);
        let of_another = named.replace("folder", "kind");
        assert!(class_names(&config, Some(&of_another)).is_empty());
        let (config, _) = complete_default(r#"{"features": ["label"]}"#).unwrap();
        assert_eq!(
            (config.target, config.columns.y),
            (Some(TargetKind::None), None)
        );
    }

    #[test]
    fn columns_that_are_called_like_the_target_are_refused_or_warned_of() {
        let check = |is_named, others: &[&str], are_features| {
            let warnings = Warnings::new("memory:///d".into());
            let y = ("label", is_named);
            check_other_targets(y, others, are_features, &warnings).map(|()| warnings.list())
        };
        assert_eq!(check(false, &[], true), Ok(Vec::new()));
        assert_eq!(check(true, &["target"], false), Ok(Vec::new()));
        let error = check(false, &["target"], true).unwrap_err();
        assert!(
            error.contains("`label` and `target`") && error.contains("`columns.y`"),
            "{error}"
        );
        for (is_named, are_features, key) in
            [(true, true, "columns.x"), (false, false, "columns.y")]
        {
            let warnings = check(is_named, &["target"], are_features).unwrap();
            assert!(
                warnings[0].contains("`target`") && warnings[0].contains(key),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn several_parts_are_warned_of_and_several_targets_are_refused() {
        let parts = r#"{"features": ["a"], "tokens": "ids", "targets": ["price"]}"#;
        let (config, warnings) = complete_default(parts).unwrap();
        assert_eq!(
            (config.columns.x, config.columns.tokens),
            (vec!["a".to_owned()], None)
        );
        assert!(
            warnings[0]
                .contains("`columns.x`, `columns.tokens` are exported and `columns.x` is read"),
            "{warnings:?}"
        );
        let error = complete_default(r#"{"features": ["a"], "targets": ["y", "z"]}"#).unwrap_err();
        assert!(
            error.contains("the targets `y`, `z`") && error.contains("`columns.y`"),
            "{error}"
        );
        assert!(
            error.contains(r#"`columns={"y": "y"}`"#) && error.contains(r#"`target="none"`"#),
            "{error}"
        );
        assert!(
            complete_default("[")
                .unwrap_err()
                .contains("export it again")
        );
    }
}
