//! Texts and attributes of the nodes of a page.

use dom_query::NodeRef;

pub(super) fn attribute(node: &NodeRef<'_>, name: &str) -> String {
    node.attr(name)
        .map(|value| value.to_string())
        .unwrap_or_default()
}

/// Text with every run of white space as one space.
pub(super) fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
