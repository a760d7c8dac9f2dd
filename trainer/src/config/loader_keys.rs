//! Keys of `[train.loader]` for settings that the loader names in its own words.

use crate::{error::Error, model::models};

/// The loader's word on a setting of its own, as one on a key of `[train.loader]`.
pub(crate) fn in_section(error: feedline_loader::Error) -> Error {
    match error {
        feedline_loader::Error::Config { key, reason } => {
            let key = match key {
                "fetch.deadline" => "loader.deadline_s".to_owned(),
                "tokens" => return crate::error::config("model.type", models::ON_TOKENS),
                "tokens.length" => "model.context".to_owned(),
                "tokens.layout" => "loader.pack".to_owned(),
                "class_balance" => "loader.balance".to_owned(),
                "mixture" => key.to_owned(),
                key if key.starts_with("images") => key.to_owned(),
                key => format!("loader.{key}"),
            };
            crate::error::config(&key, reason)
        }
        error => error.into(),
    }
}
