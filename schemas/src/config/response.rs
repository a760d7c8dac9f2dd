//! `[source.response]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[source.response]`: format of the pages of a `rest` source.
///
/// XML and CSV have no types of their own. Their texts are cells: as for `files` in CSV, the first
/// batch decides the types of the columns, and `csv.null_values`, `csv.null_spellings`,
/// `csv.decimal_separator`, `csv.thousands_separator`, `csv.percent` and `csv.currency` apply to
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseConfig {
    /// Format of each page: `auto` (default), `json`, `ndjson`, `xml` or `csv`.
    #[serde(skip_serializing_if = "ResponseFormat::is_auto")]
    pub format: ResponseFormat,
    /// XML: paths below a record of elements that may be repeated, keys joined with `.`, such as
    /// `["category", "author.name"]`. They are lists even where they occur once. Default `[]`: an
    /// element is a list where it is repeated in its parent. A warning names an element that is a
    /// list in some records only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<String>,
    /// JSON: true if an object at `records`, or as the page itself, is one record, as in
    /// `{"id": 1, "t": 5.5}` of an endpoint that `for_each` requests for each id. A list is read as
    /// always. Default false: such an object is an error, since it may be an error document, or contain
    /// the list of records.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub single_record: bool,
}

impl ResponseConfig {
    /// Returns true for the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Format of the pages of a `rest` source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// By the `Content-Type` of the page: XML, CSV or NDJSON if it names them, otherwise JSON. A
    /// page that begins with `{` or `[` is JSON in spite of a `Content-Type` of XML or CSV. A
    /// warning reports another format than JSON.
    #[default]
    Auto,
    /// One JSON document.
    Json,
    /// One JSON object per line; `records` stays empty.
    Ndjson,
    /// One XML document. An element with attributes or elements in it is an object: the values of
    /// attributes at `@name`, elements at their names, text beside them at `#text`. An element with
    /// text alone is that text, and an empty one is null. A repeated element is a list. Prefixes of
    /// names stay as they are written; declarations of namespaces are left out. White space around
    /// text is removed.
    ///
    /// Paths such as `records` begin with the root element: `feed.entry`. The elements at `records`
    /// are a list even if there is one of them or none. A path of the pagination leads to an element
    /// or an attribute; at elements with `rel` and `href`, such as `feed.link` of Atom, it is the
    /// `href` of `rel="next"`. A document with a DTD of its own is refused, and a DTD elsewhere is
    /// not read.
    Xml,
    /// A table with a header on each page; see `[source.csv]`. `records` stays empty. The end of the
    /// pages follows from `pagination` and from headers such as `pagination.total_header`.
    Csv,
}

impl ResponseFormat {
    /// Returns true for [`ResponseFormat::Auto`].
    #[must_use]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// Its name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Xml => "xml",
            Self::Csv => "csv",
        }
    }
}
