//! Parses a body into records and links, on a thread of its own.
//!
//! Pages come from untrusted servers. Nesting and attributes are bounded before a tree is built,
//! and a tree is walked on a large stack. A panic, or a page that takes too long, costs the page
//! and not the run. The thread of a slow page is signalled between two parts of the page. Until it
//! ends, it no longer counts as a reader.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use dom_query::Document;
use feedline_schemas::config::{PageConfig, PageExtract};
use html5ever::{
    ParseOpts, parse_document,
    tendril::{StrTendril, TendrilSink as _},
    tree_builder::TreeBuilderOpts,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use url::Url;

use feedline_readers::charset::{self, DecodedPage};

use super::{address, article, nesting, node_text::attribute, rows, tables};
use feedline_readers::record::Record;

pub(super) const STACK_BYTES: usize = 64 << 20;
const LONGEST: Duration = Duration::from_secs(20);
/// Maximum number of threads that may still run after their page was given up, in addition to the
/// readers.
const GIVEN_UP: usize = 8;
/// Given-up pages of a host after which no more of its pages are read.
const HOST_GIVEN_UP: u32 = 3;
/// Reason for a page that was not read since that many pages of its host were given up.
pub(super) const HOST_TOO_SLOW: &str = "host_too_slow";
/// Bytes parsed between two checks for cancellation: about a second for the worst page.
const PART_BYTES: usize = 4 << 10;

/// A fetched page to be parsed.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    pub(super) url: Url,
    pub(super) bytes: bytes::Bytes,
    pub(super) content_type: String,
    /// The `X-Robots-Tag` header.
    pub(super) robots: String,
    pub(super) rules: Arc<Rules>,
    /// True if the page becomes records.
    pub(super) lands: bool,
}

/// Rules for parsing pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) page: PageConfig,
    pub(super) links: bool,
    pub(super) nofollow: bool,
    pub(super) drop_params: Vec<String>,
}

/// Contents of a parsed page.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Contents {
    pub(super) records: Vec<Record>,
    /// Reason for the absence of records.
    pub(super) skipped: Option<&'static str>,
    /// Encoding in which some bytes of the page are invalid.
    pub(super) invalid_in: Option<&'static str>,
    /// Number of tables without a header, if records are rows of tables.
    pub(super) headless_tables: u64,
    /// Normalized, in the order of the document.
    pub(super) links: Vec<Url>,
}

/// Reason for an unreadable page: a fixed word, and details.
pub(super) type Fault = (&'static str, String);

/// Threads that parse pages, of a limited number.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    slots: Arc<Semaphore>,
    /// Slots of threads that still run after their page was given up.
    given_up: Arc<Semaphore>,
    /// Pages given up, by host.
    hosts: Arc<Mutex<HashMap<String, u32>>>,
}

impl Readers {
    pub(super) fn new(most: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(most)),
            given_up: Arc::new(Semaphore::new(GIVEN_UP)),
            hosts: Arc::default(),
        }
    }

    /// Waits until one of the threads is free.
    pub(super) async fn slot(&self) -> OwnedSemaphorePermit {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        slot.expect("the semaphore is never closed")
    }

    /// Returns the reason, if any, to read no more pages of the host of `url`.
    pub(super) fn refusal(&self, url: &Url) -> Option<Fault> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = *hosts.get(url.host_str()?)?;
        let detail = format!(
            "{count} pages of its host took longer than {} s each, so no more of them are read in this run; the next one requests them again; exclude slow pages with `crawl.deny`",
            LONGEST.as_secs()
        );
        (count >= HOST_GIVEN_UP).then_some((HOST_TOO_SLOW, detail))
    }

    /// Reads a page in a `slot`.
    ///
    /// # Errors
    /// A [`Fault`] when it is too deep, has a tag of too many attributes, panics or takes too long.
    pub(super) async fn read(
        &self,
        page: Unread,
        slot: OwnedSemaphorePermit,
    ) -> Result<Contents, Fault> {
        let url = page.url.clone();
        self.apart(LONGEST, &url, slot, move |is_over| contents(&page, is_over))
            .await?
    }

    /// Runs `work` on a separate thread and signals it when the caller stops waiting. The slot is
    /// freed when the work ends or is given up. If too many given-up threads still run, only the
    /// end of the work frees it.
    async fn apart<T: Send + 'static>(
        &self,
        longest: Duration,
        url: &Url,
        slot: OwnedSemaphorePermit,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let (sender, receiver) = oneshot::channel();
        let held = Arc::new(Mutex::new(Some(slot)));
        let kept = Held(Arc::clone(&held));
        let run = move || {
            let done = work(&|| sender.is_closed());
            drop(kept);
            // The send fails if the caller no longer waits: it took too long, or the run stops.
            drop(sender.send(done));
        };
        let thread = thread::Builder::new()
            .name("page".into())
            .stack_size(STACK_BYTES);
        thread
            .spawn(run)
            .map_err(|e| ("extraction_failed", format!("no thread: {e}")))?;
        match tokio::time::timeout(longest, receiver).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err((
                "extraction_failed",
                "reading the page ended in a panic".into(),
            )),
            Err(_) => {
                self.give_up(url, &held);
                Err((
                    "took_too_long",
                    format!("reading the page takes longer than {} s", longest.as_secs()),
                ))
            }
        }
    }

    /// Frees the slot of a page of `url`, and counts the page against its host.
    fn give_up(&self, url: &Url, held: &Mutex<Option<OwnedSemaphorePermit>>) {
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        *hosts.entry(host).or_default() += 1;
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some()
            && let Ok(other) = Arc::clone(&self.given_up).try_acquire_owned()
        {
            *held = Some(other);
        }
    }
}

/// The slot of a thread, free when the thread ends in any way.
struct Held(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Builds the tree of a page, part by part; `None` once it `is_over`.
fn parse(text: &str, is_over: &dyn Fn() -> bool) -> Option<Document> {
    let options = ParseOpts {
        tree_builder: TreeBuilderOpts {
            scripting_enabled: false,
            ..TreeBuilderOpts::default()
        },
        ..ParseOpts::default()
    };
    let mut parser = parse_document(Document::default(), options);
    let mut rest = text;
    while !rest.is_empty() {
        if is_over() {
            return None;
        }
        let (part, left) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
        parser.process(StrTendril::from_slice(part));
        rest = left;
    }
    Some(parser.finish())
}

pub(super) fn contents(page: &Unread, is_over: &dyn Fn() -> bool) -> Result<Contents, Fault> {
    let (bytes, most) = (page.bytes.len() as u64, page.rules.page.max_bytes.bytes());
    if bytes > most {
        let detail = format!("it is of {bytes} bytes, more than `page.max_bytes` = {most}");
        return Err(("too_large", detail));
    }
    let DecodedPage { text, invalid_in } = charset::decode(&page.bytes, &page.content_type);
    let essence = page
        .content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if essence.eq_ignore_ascii_case("text/plain") {
        return Ok(plain(page, text, invalid_in));
    }
    let tags = nesting::measure(text.as_bytes());
    if tags.depth > nesting::MAX_DEPTH {
        return Err(too_deep());
    }
    if tags.attributes > nesting::MAX_ATTRIBUTES {
        let detail = format!(
            "one of its tags has more than {} attributes",
            nesting::MAX_ATTRIBUTES
        );
        return Err(("too_many_attributes", detail));
    }
    let Some(document) = parse(&text, is_over) else {
        return Err(given_up());
    };
    if tree_depth(&document) > 2 * nesting::MAX_DEPTH {
        return Err(too_deep());
    }
    let (noindex, nofollow) = robots(&document, &page.robots);
    let base = base(&document, &page.url);
    let mut contents = Contents {
        invalid_in,
        ..Contents::default()
    };
    if page.rules.links && !(nofollow && page.rules.nofollow) {
        contents.links = links(&document, &base, &page.rules);
    }
    if is_over() {
        return Err(given_up());
    }
    contents.skipped = match () {
        () if !page.lands => Some("links_only"),
        () if noindex => Some("noindex"),
        () => {
            (contents.records, contents.headless_tables) = records(&document, &base, page);
            contents
                .records
                .is_empty()
                .then_some(match page.rules.page.extract {
                    PageExtract::Article => "no_text",
                    PageExtract::Rows | PageExtract::Tables => "no_rows",
                })
        }
    };
    Ok(contents)
}

fn given_up() -> Fault {
    ("took_too_long", "reading the page was given up".into())
}

fn too_deep() -> Fault {
    let detail = format!(
        "its elements are nested more than {} deep",
        nesting::MAX_DEPTH
    );
    ("too_deep", detail)
}

/// The records of a page, and the number of its tables that have no header.
fn records(document: &Document, base: &Url, page: &Unread) -> (Vec<Record>, u64) {
    let url =
        canonical(document, base, &page.rules.drop_params).unwrap_or_else(|| page.url.clone());
    let records = match page.rules.page.extract {
        PageExtract::Article => article::record(document, &url, &page.url)
            .into_iter()
            .collect(),
        PageExtract::Rows => rows::records(document, base, &page.url, &page.rules.page),
        PageExtract::Tables => return tables::records(document, &page.url),
    };
    (records, 0)
}

/// A page that is plain text.
fn plain(page: &Unread, text: String, invalid_in: Option<&'static str>) -> Contents {
    let skipped = match () {
        () if !page.lands => Some("links_only"),
        () if page.rules.page.extract != PageExtract::Article => Some("not_a_page"),
        () if text.trim().is_empty() => Some("no_text"),
        () => None,
    };
    let records = match skipped {
        Some(_) => Vec::new(),
        None => vec![article::plain(&page.url, text)],
    };
    Contents {
        records,
        skipped,
        invalid_in,
        ..Contents::default()
    }
}

/// Depth of the tree, without recursion.
fn tree_depth(document: &Document) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut at = Some(document.root());
    while let Some(node) = at {
        deepest = deepest.max(depth);
        if let Some(child) = node.first_child() {
            depth += 1;
            at = Some(child);
            continue;
        }
        let mut last = Some(node);
        at = None;
        while let Some(node) = last {
            if let Some(next) = node.next_sibling() {
                at = Some(next);
                break;
            }
            depth = depth.saturating_sub(1);
            last = node.parent();
        }
    }
    deepest
}

/// Returns the page's robots directives: (`noindex`, `nofollow`).
fn robots(document: &Document, header: &str) -> (bool, bool) {
    let mut words = header.to_ascii_lowercase();
    for node in document.select("meta[name][content]").nodes() {
        let name = attribute(node, "name").to_ascii_lowercase();
        if matches!(name.trim(), "robots" | "feedline") {
            words.push(',');
            words += &attribute(node, "content").to_ascii_lowercase();
        }
    }
    let has = |word: &str| {
        words
            .split([',', ' ', ':'])
            .any(|w| w == word || w == "none")
    };
    (has("noindex"), has("nofollow"))
}

/// Base URL of the page's relative URLs.
fn base(document: &Document, url: &Url) -> Url {
    let node = document.select_single("base[href]");
    let href = node.attr("href");
    href.and_then(|href| url.join(&href).ok())
        .unwrap_or_else(|| url.clone())
}

fn canonical(document: &Document, base: &Url, drop_params: &[String]) -> Option<Url> {
    let node = document.select_single("link[rel~=\"canonical\" i][href]");
    let href = node.attr("href")?;
    address::normalized(base.join(href.trim()).ok()?, drop_params)
}

fn links(document: &Document, base: &Url, rules: &Rules) -> Vec<Url> {
    let mut links = Vec::new();
    for node in document.select("a[href], area[href]").nodes() {
        let rel = attribute(node, "rel").to_ascii_lowercase();
        if rules.nofollow && rel.split_ascii_whitespace().any(|rel| rel == "nofollow") {
            continue;
        }
        let url = base.join(attribute(node, "href").trim()).ok();
        links.extend(url.and_then(|url| address::normalized(url, &rules.drop_params)));
    }
    links
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use feedline_schemas::units::ByteSize;

    use super::*;

    fn page(text: &str) -> Unread {
        Unread {
            url: Url::parse("http://h/a/b").unwrap(),
            bytes: text.to_owned().into(),
            content_type: "text/html".into(),
            robots: String::new(),
            rules: Arc::new(Rules {
                page: PageConfig {
                    max_bytes: ByteSize::mib(64),
                    ..PageConfig::default()
                },
                links: true,
                nofollow: true,
                ..Rules::default()
            }),
            lands: true,
        }
    }

    async fn read(page: Unread) -> Result<Contents, Fault> {
        let readers = Readers::new(1);
        let slot = readers.slot().await;
        readers.read(page, slot).await
    }

    fn any() -> Url {
        Url::parse("http://h/a/b").unwrap()
    }

    #[tokio::test]
    async fn a_panic_and_a_page_without_end_cost_the_page() {
        let minute = Duration::from_secs(60);
        let readers = Readers::new(1);
        let slot = readers.slot().await;
        assert_eq!(readers.apart(minute, &any(), slot, |_| 7).await, Ok(7));
        let slot = readers.slot().await;
        let bug = |_: &dyn Fn() -> bool| -> u8 { panic!("a bug of the extractor") };
        let (reason, detail) = readers.apart(minute, &any(), slot, bug).await.unwrap_err();
        assert_eq!(reason, "extraction_failed");
        assert!(detail.contains("panic"), "{detail}");
        let (sender, endless) = std::sync::mpsc::channel::<()>();
        let wait = move |_: &dyn Fn() -> bool| endless.recv().is_err();
        let slot = readers.slot().await;
        let short = Duration::from_millis(10);
        let (reason, _) = readers.apart(short, &any(), slot, wait).await.unwrap_err();
        assert_eq!(reason, "took_too_long");
        drop(sender);
    }

    /// Gives up a page of `host` whose reading ends when the sender is dropped.
    async fn give_up(readers: &Readers, host: &str) -> std::sync::mpsc::Sender<()> {
        let (sender, endless) = std::sync::mpsc::channel::<()>();
        let url = Url::parse(&format!("http://{host}/slow")).unwrap();
        let slot = readers.slot().await;
        let wait = move |_: &dyn Fn() -> bool| endless.recv().is_err();
        let short = Duration::from_millis(1);
        let given_up = readers.apart(short, &url, slot, wait).await;
        assert_eq!(given_up.unwrap_err().0, "took_too_long");
        sender
    }

    #[tokio::test]
    async fn a_page_given_up_frees_its_slot_and_counts_against_its_host_alone() {
        let readers = Readers::new(1);
        let mut going_on = Vec::new();
        for given_up in 1..=HOST_GIVEN_UP {
            going_on.push(give_up(&readers, "slow").await);
            let url = Url::parse("http://slow/other").unwrap();
            let refusal = readers.refusal(&url).map(|(reason, _)| reason);
            let expected = (given_up == HOST_GIVEN_UP).then_some(HOST_TOO_SLOW);
            assert_eq!(refusal, expected, "{given_up}");
        }
        assert_eq!(readers.refusal(&any()), None);
        // The only slot, while three threads still run.
        let slot = readers.slot().await;
        let text = "<article><p>Some words.</p></article>";
        assert!(readers.read(page(text), slot).await.is_ok());
    }

    #[tokio::test]
    async fn threads_that_go_on_after_being_given_up_are_bounded() {
        let readers = Readers::new(1);
        let mut going_on = Vec::new();
        for i in 0..=GIVEN_UP {
            going_on.push(give_up(&readers, &format!("h{i}")).await);
        }
        assert_eq!(readers.slots.available_permits(), 0);
        going_on.clear();
        drop(readers.slot().await);
    }

    /// A tag with so many attributes that its parsing would take an hour.
    fn endless_tag() -> String {
        (0..2_000_000).fold(String::from("<p"), |mut tag, i| {
            write!(tag, " a{i:x}").unwrap();
            tag
        }) + ">"
    }

    #[tokio::test]
    async fn a_tag_with_many_attributes_is_refused_before_it_is_parsed() {
        let (reason, detail) = read(page(&endless_tag())).await.unwrap_err();
        assert_eq!(reason, "too_many_attributes");
        assert_eq!(detail, "one of its tags has more than 1000 attributes");
    }

    #[test]
    fn parsing_ends_once_nobody_waits() {
        let looks = std::cell::Cell::new(0);
        let is_over = || {
            looks.set(looks.get() + 1);
            looks.get() > 3
        };
        assert!(parse(&endless_tag(), &is_over).is_none());
        assert_eq!(looks.get(), 4);
    }

    #[test]
    fn a_tree_built_part_by_part_is_the_same() {
        let text = "<title>ä &amp; b</title><p a='\u{20ac}'>x\r\ny<b>\u{1f600}</p><!-- c --><pre>\n d</pre>&notin;";
        for lead in 0..16 {
            let text = " ".repeat(PART_BYTES - lead * 4) + &text.repeat(200);
            let parts = parse(&text, &|| false).unwrap();
            assert_eq!(parts.html(), Document::from(text.as_str()).html());
        }
    }

    /// `FEEDLINE_PAGE_KIB` makes the broken pages larger; by default they are of 32 KiB.
    #[tokio::test]
    async fn fault_48_broken_pages_are_read_or_refused() {
        #[expect(
            clippy::disallowed_methods,
            reason = "the environment sets the size of a long test"
        )]
        let kib: usize =
            std::env::var("FEEDLINE_PAGE_KIB").map_or(32, |text| text.parse().unwrap());
        for deep in [
            "<div>",
            "<b>",
            "<table><tr><td>",
            "<div><table><td></div>",
            "<a><b><div></b></a>",
            "<svg><g>",
        ] {
            let (reason, _) = read(page(&deep.repeat(100_000))).await.unwrap_err();
            assert_eq!(reason, "too_deep", "{deep}");
        }
        let paragraph = "Some words that an article could be made of, and a few more of them. ";
        for broken in [
            "<table><tr><td>x</table>",
            "<p><i>x</p>",
            "<script>if (a</b) '<div>'</script>",
            "<div class='a",
            "<!-- x",
            "<ul><li>x<li>",
            "&amp;&#x;&#99999999;&nope",
            "</div></p>",
            "<p>x",
        ] {
            let mut text = format!(
                "<html><body><article><h1>A title</h1><p>{}</p>",
                paragraph.repeat(9)
            );
            while text.len() < kib << 10 {
                write!(text, "{broken}{}", text.len()).unwrap();
                if broken.contains("<i>") || broken.contains("<ul>") {
                    text += "</i></ul>";
                }
            }
            match read(page(&text)).await {
                Ok(contents) => assert_eq!(contents.skipped, None, "{broken}"),
                // An open quote makes attributes of all that follows.
                Err(("too_many_attributes", _)) => assert_eq!(broken, "<div class='a"),
                // Of a large one.
                Err((reason, _)) => {
                    assert_eq!((reason, kib > 32), ("took_too_long", true), "{broken}")
                }
            }
        }
    }

    #[tokio::test]
    async fn contents_name_the_encoding_in_which_bytes_are_invalid() {
        for content_type in ["text/html; charset=utf-8", "text/plain; charset=utf-8"] {
            let broken = Unread {
                bytes: bytes::Bytes::from_static(b"<p>Caf\xe9 and more"),
                content_type: content_type.into(),
                ..page("")
            };
            let contents = read(broken).await.unwrap();
            assert_eq!(contents.invalid_in, Some("UTF-8"), "{content_type}");
        }
        assert_eq!(read(page("<p>Caf\u{e9}")).await.unwrap().invalid_in, None);
    }

    #[tokio::test]
    async fn a_page_beyond_its_limit_is_refused_before_it_is_read() {
        let small = Rules {
            page: PageConfig {
                max_bytes: ByteSize::new(3),
                ..PageConfig::default()
            },
            ..Rules::default()
        };
        let sized = |text: &str| Unread {
            rules: Arc::new(small.clone()),
            ..page(text)
        };
        assert_eq!(read(sized("<p>")).await.unwrap().skipped, Some("no_text"));
        let (reason, detail) = read(sized("<p>x")).await.unwrap_err();
        assert_eq!(reason, "too_large");
        assert!(detail.contains("`page.max_bytes` = 3"), "{detail}");
    }

    #[test]
    fn the_depth_of_a_tree_is_that_of_its_deepest_node() {
        let depth = |html: &str| tree_depth(&Document::from(html));
        let flat = depth("<p></p>");
        assert_eq!(depth("<p></p><div><p></p></div><p></p>"), flat + 1);
        assert_eq!(depth(&"<div>".repeat(50)), flat + 49);
    }

    #[tokio::test]
    async fn links_are_resolved_and_in_the_order_of_the_document() {
        let html = "<base href='/c/'><map><area href=1></map><p><a href=' 2 '>x</a><a>y</a><a href='//g/3'>z</a><a href='http://['>w</a>";
        let links = read(page(html)).await.unwrap().links;
        let links: Vec<_> = links.iter().map(Url::as_str).collect();
        assert_eq!(links, ["http://h/c/1", "http://h/c/2", "http://g/3"]);
        let header = Unread {
            robots: "googlebot: x, NoFollow".into(),
            ..page(html)
        };
        assert!(read(header).await.unwrap().links.is_empty());
    }
}
