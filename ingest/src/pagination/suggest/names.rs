//! Names of fields, headers and parameters that pages are recognised by.

/// Names of the total number of records, without case and punctuation.
pub(super) const TOTALS: [&str; 16] = [
    "total",
    "totalcount",
    "totalresults",
    "totalrecords",
    "totalitems",
    "totalhits",
    "totalsize",
    "totalelements",
    "totalrows",
    "numfound",
    "hitstotal",
    "recordcount",
    "resultcount",
    "odatacount",
    "count",
    "matches",
];
/// Names among them that may count the records of one response.
pub(super) const COUNTS: [&str; 3] = ["count", "recordcount", "resultcount"];
/// Headers with it.
pub(super) const TOTAL_HEADERS: [&str; 4] =
    ["x-total-count", "x-total", "total-count", "x-total-results"];
/// Names of a cursor in a body.
pub(super) const CURSORS: [&str; 22] = [
    "nextcursor",
    "nextpagetoken",
    "nexttoken",
    "nextcontinuationtoken",
    "continuationtoken",
    "continuation",
    "resumptiontoken",
    "nextpagecursor",
    "nextmarker",
    "nextbookmark",
    "nextkey",
    "nextsearchkey",
    "nextpage",
    "nextoffset",
    "next",
    "endcursor",
    "after",
    "bookmark",
    "scrollid",
    "cursor",
    "pagetoken",
    "marker",
];
/// Cursors among them that the last page has too, empty.
pub(super) const SURE_CURSORS: [&str; 5] = [
    "nextcursor",
    "nextpagetoken",
    "nexttoken",
    "nextcontinuationtoken",
    "continuationtoken",
];
/// Cursors among them that a page may have as text without a next page.
pub(super) const UNSURE_CURSORS: [&str; 6] = [
    "next",
    "endcursor",
    "after",
    "cursor",
    "pagetoken",
    "marker",
];
/// Usual names of an object that describes a page.
pub(super) const DESCRIPTIONS: [&str; 16] = [
    "meta",
    "metadata",
    "pagination",
    "paging",
    "page",
    "pageinfo",
    "paginator",
    "links",
    "info",
    "cursor",
    "cursors",
    "response",
    "responsemetadata",
    "result",
    "results",
    "data",
];
/// Names of the URL of the next page.
pub(super) const NEXT_URLS: [&str; 8] = [
    "next",
    "nextpage",
    "nexturl",
    "nextlink",
    "nextpageurl",
    "nexthref",
    "nexturi",
    "odatanextlink",
];
/// Names of a flag that is true if there are further pages.
pub(super) const FLAGS: [&str; 9] = [
    "hasmore",
    "hasnext",
    "hasnextpage",
    "hasmorepages",
    "hasmoreitems",
    "hasmoreresults",
    "hasmorerecords",
    "moreresults",
    "more",
];
/// Names of the number of a page.
pub(super) const PAGES: [&str; 6] = [
    "page",
    "currentpage",
    "pagenumber",
    "pageno",
    "pageindex",
    "pagenum",
];
/// Names of the count of all pages.
pub(super) const PAGE_COUNTS: [&str; 8] = [
    "totalpages",
    "totalpagecount",
    "pagecount",
    "pagestotal",
    "numpages",
    "numberofpages",
    "lastpage",
    "pages",
];
/// Names of an offset.
pub(super) const OFFSETS: [&str; 6] = ["offset", "skip", "startat", "startindex", "start", "from"];
/// Names of the number of records of a page.
pub(super) const SIZES: [&str; 9] = [
    "limit",
    "perpage",
    "pagesize",
    "size",
    "pagelength",
    "itemsperpage",
    "maxresults",
    "rows",
    "take",
];
