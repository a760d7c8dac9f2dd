//! The table of all types of sources.

use feedline_schemas::config::{SourceConfig, SourceKind};

use crate::{
    files::source_type::FilesType,
    html::source_type::HtmlType,
    rest::source_type::RestType,
    source_type::{ReadUnit, SourceType},
};

/// Returns the type of a source.
pub(crate) fn source_type(config: &SourceConfig) -> &'static dyn SourceType {
    type_of(config.r#type)
}

fn type_of(kind: SourceKind) -> &'static dyn SourceType {
    match kind {
        SourceKind::Rest => &RestType,
        SourceKind::Html => &HtmlType,
        SourceKind::Files => &FilesType,
    }
}

/// Returns the unit that a source is read by.
pub(crate) fn unit_of(config: &SourceConfig) -> ReadUnit {
    source_type(config).unit()
}

/// Returns true if the key, or its table, belongs to sources of a type: it is one of its own keys,
/// or no type has it as its own.
pub(crate) fn has_key(config: &SourceConfig, key: &str) -> bool {
    let table = key.split('.').next().unwrap_or(key);
    let is_own = |kind: SourceKind| type_of(kind).own_keys().contains(&table);
    is_own(config.r#type) || !SourceKind::ALL.into_iter().any(is_own)
}
