//! A URL that a crawl has found.

/// A URL that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discovery {
    /// Normalized.
    pub url: Box<str>,
    /// True if the configuration names it, or a redirect of such a URL led to it.
    pub is_start: bool,
    /// True if it is a sitemap.
    pub is_sitemap: bool,
    /// Links from a start page.
    pub depth: u16,
    /// Redirects that led to it in a row.
    pub redirects: u8,
}
