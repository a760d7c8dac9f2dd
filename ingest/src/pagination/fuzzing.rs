//! Fuzz target of `Link` headers.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use super::link;

/// `Link` headers, one a line. A next link that is printed as a header is read as itself.
pub fn link_header(data: &[u8]) {
    let read = link::read(data.split(|byte| *byte == b'\n'));
    let Ok(links) = read else {
        return;
    };
    if let Some(next) = links.next {
        assert!(links.are_of_pages && next.is_ascii());
        let header = format!("<{next}>; rel=\"next\"");
        let again = link::read([header.as_bytes()]).map(|links| links.next);
        assert_eq!(again, Ok(Some(next)));
    }
}
