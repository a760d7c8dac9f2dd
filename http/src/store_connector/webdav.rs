//! Listings of folders by WebDAV (RFC 4918), with those of the folders below.
//!
//! A server may list one level although a request asks for all, or refuse such a request. So each folder that has
//! no members in a response is requested by itself. The client of the store reads one body with all resources.

use std::collections::{BTreeMap, BTreeSet};

use object_store::{
    client::{HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody},
    path::Path,
};
use reqwest::{
    Method, StatusCode,
    header::{CONTENT_LENGTH, HeaderValue},
};
use url::Url;

use super::{
    Asking, NO_LISTING, WebFolders,
    multistatus::{self, WebDavResource},
    refused, truncated,
};
use crate::location::redacted_location;

/// Most levels of folders below the listed one. A link to a folder around it would have no end.
const MAX_LEVELS: usize = 64;
/// Most folders of a listing.
const MAX_FOLDERS: usize = 100_000;

/// Advice where a server refuses a part of a listing.
const NO_ACCESS: &str =
    "permit access to it, remove it, or set `url` to a folder or a file without it";

impl Asking {
    /// Returns the response to `PROPFIND`, with the resources of all folders below if its `Depth` is `infinity`.
    pub(super) async fn list(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let depth = request.headers().get("depth");
        let is_deep = depth.is_some_and(|depth| depth == "infinity");
        let root =
            Url::parse(&request.uri().to_string()).map_err(|error| refused(error.to_string()))?;
        let (mut answer, mut at) = self.follow(request.clone()).await?;
        // The status of a server that lists one level only and says so (RFC 4918, section 9.1).
        if is_deep && answer.status() == StatusCode::FORBIDDEN {
            (answer, at) = self.follow(one_level(&request, &root)?).await?;
        }
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let (mut head, body) = answer.into_parts();
        let mut walk = WebDavWalk::new(root, self.options.folders.clone());
        let body = body.bytes().await.map_err(|error| truncated(&error))?;
        walk.add("", &at, &body)?;
        let mut left_out = BTreeMap::new();
        while is_deep && let Some(folder) = walk.pending.pop() {
            let url = walk.url_of(&folder, true);
            let (answer, at) = self.follow(one_level(&request, &url)?).await?;
            let status = answer.status();
            if is_transient(status) {
                // The client of the store repeats the whole listing, if no policy has repeated the request.
                return Ok(answer);
            }
            let is_gone = [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&status);
            // A server that lists all levels has left out the members of a folder that it refuses.
            if is_gone || (walk.lists_all && status == StatusCode::FORBIDDEN) {
                // The report of the listing names it.
                tracing::debug!(%status, "the server lists a folder and not its files");
                left_out.insert(folder, status.as_u16());
                continue;
            }
            if !status.is_success() {
                let url = redacted_location(url.as_str());
                return Err(refused(format!(
                    "`PROPFIND` of the folder `{url}` below it got status {status}; {NO_ACCESS}"
                )));
            }
            let body = answer.into_body().bytes().await;
            walk.add(&folder, &at, &body.map_err(|error| truncated(&error))?)?;
        }
        let files = walk.found.values_mut();
        for file in files.filter(|of| !of.is_folder && of.bytes.is_none()) {
            let mut url = walk.root.clone();
            url.set_path(&file.href);
            file.bytes = Some(self.size_of(&url).await?);
        }
        self.options.folders.leave_out(left_out);
        head.headers.remove(CONTENT_LENGTH);
        let body = multistatus::write(walk.found.values());
        Ok(HttpResponse::from_parts(head, HttpResponseBody::from(body)))
    }

    /// Requests the size of a file that is listed without.
    async fn size_of(&self, url: &Url) -> Result<u64, HttpError> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::HEAD;
        set_url(&mut request, url)?;
        let (answer, _) = self.follow(request).await?;
        let status = answer.status();
        let bytes = answer.headers().get(CONTENT_LENGTH);
        let bytes = bytes.and_then(|bytes| bytes.to_str().ok()?.parse().ok());
        bytes.filter(|_| status.is_success()).ok_or_else(|| {
            let url = redacted_location(url.as_str());
            refused(format!(
                "its server lists `{url}` without a size, and `HEAD` of it got status {status} without one; {NO_ACCESS}"
            ))
        })
    }
}

/// Returns true for a status that may be gone at the next try.
fn is_transient(status: StatusCode) -> bool {
    const OF_CLIENTS: [StatusCode; 2] =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || OF_CLIENTS.contains(&status)
}

/// The request for the members of one folder, without those of folders below it.
fn one_level(request: &HttpRequest, url: &Url) -> Result<HttpRequest, HttpError> {
    let mut request = request.clone();
    set_url(&mut request, url)?;
    let one = HeaderValue::from_static("1");
    request.headers_mut().insert("depth", one);
    Ok(request)
}

fn set_url(request: &mut HttpRequest, url: &Url) -> Result<(), HttpError> {
    let unreadable = |_| refused("a folder of the listing has no readable URL");
    *request.uri_mut() = url.as_str().parse().map_err(unreadable)?;
    Ok(())
}

/// The resources of a folder and of the folders below it.
struct WebDavWalk {
    root: Url,
    folders: WebFolders,
    /// True if the response for the root has resources in folders below it.
    lists_all: bool,
    /// By path below the root, decoded. The path of the root is empty.
    found: BTreeMap<String, WebDavResource>,
    /// Folders that were requested, or are pending.
    known: BTreeSet<String>,
    /// Folders without members in the responses so far.
    pending: Vec<String>,
}

impl WebDavWalk {
    fn new(root: Url, folders: WebFolders) -> Self {
        let folder = WebDavResource {
            href: root.path().to_owned(),
            is_folder: true,
            ..WebDavResource::default()
        };
        Self {
            root,
            folders,
            lists_all: false,
            found: BTreeMap::from([(String::new(), folder)]),
            known: BTreeSet::from([String::new()]),
            pending: Vec::new(),
        }
    }

    /// Adds the resources of a response to a request for `folder`, which redirects led to `at`.
    fn add(&mut self, folder: &str, at: &Url, body: &[u8]) -> Result<(), HttpError> {
        let resources = multistatus::parse(body).map_err(|cause| {
            refused(format!(
                "the response to `PROPFIND` of WebDAV, which lists a folder, is no list of files ({cause}): {NO_LISTING}"
            ))
        })?;
        let places = [location(&self.url_of(folder, true))?, location(at)?];
        let mut folders = Vec::new();
        for mut resource in resources {
            let url = at.join(&resource.href);
            let url = url.map_err(|error| refused(format!("its listing has no URL: {error}")))?;
            let shown = redacted_location(url.as_str());
            let path = location(&url)?;
            let Some(path) = path_below(path.as_ref(), &places) else {
                return Err(refused(format!(
                    "its server lists `{shown}`, which is not below it; set `url` to the path that the server has for the folder"
                )));
            };
            resource.is_folder |= path.is_empty();
            let path = joined(folder, path);
            self.lists_all |= folder.is_empty() && path.contains('/');
            if self.is_unwanted(&path, &resource) {
                continue;
            }
            if let Some(status) = &resource.refused {
                return Err(refused(format!(
                    "its server lists `{shown}` with the status `{status}`; {NO_ACCESS}"
                )));
            }
            resource.href = self.url_of(&path, resource.is_folder).path().to_owned();
            if resource.is_folder && self.folders.wants(&path) {
                folders.push(path.clone());
            }
            self.found.insert(path, resource);
        }
        for folder in folders {
            self.request_unlisted(folder)?;
        }
        Ok(())
    }

    /// Returns true for a resource in a folder without wanted files, and for such a folder that the server refuses.
    fn is_unwanted(&self, path: &str, resource: &WebDavResource) -> bool {
        let around = path.rsplit_once('/').map_or("", |(around, _)| around);
        // A refused resource has no properties, so that only its URL shows that it is a folder.
        let is_refused_folder = resource.refused.is_some() && resource.href.ends_with('/');
        !self.folders.wants(around) || (is_refused_folder && !self.folders.wants(path))
    }

    /// Makes a folder pending, if it has no members and was not requested.
    fn request_unlisted(&mut self, folder: String) -> Result<(), HttpError> {
        let inside = format!("{folder}/");
        let mut next = self.found.range(inside.clone()..);
        let is_listed = next
            .next()
            .is_some_and(|(path, _)| path.starts_with(&inside));
        if is_listed || !self.known.insert(folder.clone()) {
            return Ok(());
        }
        let is_too_deep = folder.split('/').count() > MAX_LEVELS;
        if is_too_deep || self.known.len() > MAX_FOLDERS {
            let shown = redacted_location(self.url_of(&folder, true).as_str());
            return Err(refused(format!(
                "it has more than {MAX_LEVELS} levels of folders or {MAX_FOLDERS} folders, such as `{shown}`; set `url` to one of its folders, one source for each"
            )));
        }
        self.pending.push(folder);
        Ok(())
    }

    /// URL of the resource at `path` below the root.
    fn url_of(&self, path: &str, is_folder: bool) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty();
            if !path.is_empty() {
                segments.extend(path.split('/'));
            }
            if is_folder {
                segments.push("");
            }
        }
        url
    }
}

/// Decoded path of `url`, without a slash at its ends.
fn location(url: &Url) -> Result<Path, HttpError> {
    Path::from_url_path(url.path()).map_err(|error| {
        let url = redacted_location(url.as_str());
        refused(format!("its server lists `{url}`, which is no path of a file ({error}); rename it or set `url` to another folder"))
    })
}

/// Returns the path below the first of `folders` that it is in; empty for the folder itself.
fn path_below<'p>(path: &'p str, folders: &[Path; 2]) -> Option<&'p str> {
    folders.iter().find_map(|folder| match folder.as_ref() {
        "" => Some(path),
        folder => match path.strip_prefix(folder)? {
            "" => Some(""),
            rest => rest.strip_prefix('/'),
        },
    })
}

fn joined(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("", path) => path.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, path) => format!("{folder}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;
    use object_store::{ClientOptions, ObjectStore as _, http::HttpBuilder};

    use super::*;
    use crate::{
        refusal,
        store_connector::{StoreConnector, WebOptions},
        testing::{Scripted, Step, answer, raw},
    };

    /// One resource of a listing, a folder if its path ends with `/`.
    fn entry(path: &str) -> String {
        let properties = match path.ends_with('/') {
            true => "<D:resourcetype><D:collection/></D:resourcetype>",
            false => "<D:getcontentlength>9</D:getcontentlength><D:resourcetype/>",
        };
        with_properties(path, properties)
    }

    fn with_properties(path: &str, properties: &str) -> String {
        format!(
            "<D:response><D:href>{path}</D:href><D:propstat><D:prop>{properties}</D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    }

    fn listing(entries: &str) -> Step {
        let body = format!("<D:multistatus xmlns:D=\"DAV:\">{entries}</D:multistatus>");
        answer("207 Multi-Status", &body)
    }

    /// Names in a folder of the example, in which `none` is empty.
    fn members(folder: &str) -> &'static [&'static str] {
        match folder {
            "/d/" => &["a%20b.csv", "e/", "none/"],
            "/d/e/" => &["b.csv", "f/"],
            "/d/e/f/" => &["100%25.csv"],
            _ => &[],
        }
    }

    /// The folder in the head of a request, with a slash at its end.
    fn folder_of(request: &str) -> String {
        let target = request.split(' ').nth(1).unwrap();
        format!("{}/", target.trim_end_matches('/'))
    }

    /// The response of a server that lists one level.
    fn one_level_of(request: &str) -> Step {
        let folder = folder_of(request);
        let members = members(&folder).iter();
        let members: String = members
            .map(|name| entry(&format!("{folder}{name}")))
            .collect();
        listing(&(entry(&folder) + &members))
    }

    fn store_of(server: &Scripted, folders: &WebFolders) -> object_store::http::HttpStore {
        let options = WebOptions {
            folders: folders.clone(),
            ..WebOptions::default()
        };
        HttpBuilder::new()
            .with_url(server.url.as_str())
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_http_connector(StoreConnector::new(&server.url, &options, false))
            .build()
            .unwrap()
    }

    /// Lists `/d` with all folders below it: paths and sizes, or the reason of a refusal.
    async fn list(server: &Scripted) -> Result<Vec<(String, u64)>, String> {
        list_wanted(server, &WebFolders::default()).await
    }

    /// Lists `/d` with the wanted folders below it.
    async fn list_wanted(
        server: &Scripted,
        folders: &WebFolders,
    ) -> Result<Vec<(String, u64)>, String> {
        let store = store_of(server, folders);
        let found = store.list(Some(&Path::from("d"))).try_collect::<Vec<_>>();
        let found = found.await.map_err(|error| refusal(&error).unwrap())?;
        let found = found
            .iter()
            .map(|meta| (meta.location.to_string(), meta.size));
        Ok(found.collect())
    }

    fn all_files() -> Vec<(String, u64)> {
        ["d/a b.csv", "d/e/b.csv", "d/e/f/100%.csv"]
            .map(|path| (path.to_owned(), 9))
            .to_vec()
    }

    #[tokio::test]
    async fn folders_that_a_response_leaves_out_are_requested_once_each() {
        for refuses_infinity in [false, true] {
            let server = Scripted::answering(move |_, request| {
                if refuses_infinity && request.contains("depth: infinity") {
                    return answer("403 Forbidden", "<D:error xmlns:D=\"DAV:\"/>");
                }
                one_level_of(request)
            })
            .await;
            assert_eq!(list(&server).await.unwrap(), all_files());
            let mut targets = server.targets();
            targets.sort();
            let mut expected = vec!["/d", "/d/e/", "/d/e/f/", "/d/none/"];
            if refuses_infinity {
                expected.insert(0, "/d");
            }
            assert_eq!(targets, expected);
        }
    }

    #[tokio::test]
    async fn a_response_with_all_levels_is_enough() {
        let all: String = ["", "e/", "e/f/", "a%20b.csv", "e/b.csv", "e/f/100%25.csv"]
            .iter()
            .map(|name| entry(&format!("/d/{name}")))
            .collect();
        let server = Scripted::answering(move |_, _| listing(&all)).await;
        assert_eq!(list(&server).await.unwrap(), all_files());
        assert_eq!(server.heads().len(), 1);
    }

    #[tokio::test]
    async fn the_files_of_one_folder_need_one_request() {
        let server = Scripted::answering(|_, request| one_level_of(request)).await;
        let store = store_of(&server, &WebFolders::default());
        let folder = Path::from("d");
        let found = store.list_with_delimiter(Some(&folder)).await.unwrap();
        assert_eq!(found.objects.len(), 1);
        assert_eq!(found.common_prefixes.len(), 2);
        assert_eq!(server.heads().len(), 1);
    }

    #[tokio::test]
    async fn a_listed_file_needs_no_time_and_no_size() {
        let server = Scripted::answering(|_, request| {
            if request.starts_with("HEAD ") {
                return raw("200 OK\r\nContent-Length: 7", b"");
            }
            let later = "<D:getlastmodified>tomorrow</D:getlastmodified>";
            listing(&(with_properties("/d/a.csv", later) + &entry("/d/b.csv")))
        })
        .await;
        let expected = [("d/a.csv".to_owned(), 7), ("d/b.csv".to_owned(), 9)];
        assert_eq!(list(&server).await.unwrap(), expected);
        assert_eq!(server.targets(), ["/d", "/d/a.csv"]);
    }

    #[tokio::test]
    async fn a_part_that_the_server_refuses_is_named() {
        let forbidden = "<D:response><D:href>/d/b.csv</D:href>\
                         <D:status>HTTP/1.1 403 Forbidden</D:status></D:response>";
        let sizeless = with_properties("/d/b.csv", "<D:resourcetype/>");
        for (body, parts) in [
            (forbidden.to_owned(), ["/d/b.csv` with", "403 Forbidden"]),
            (
                entry("/d/e/"),
                ["folder `http://", "/d/e/` below it got status 403"],
            ),
            (sizeless, ["/d/b.csv` without a size", "status 403"]),
            (entry("/other/b.csv"), ["/other/b.csv`", "not below it"]),
            (entry("/d//b.csv"), ["/d//b.csv`", "no path of a file"]),
        ] {
            let server = Scripted::answering(move |number, _| match number {
                0 => listing(&(entry("/d/") + &entry("/d/a.csv") + &body)),
                _ => answer("403 Forbidden", ""),
            })
            .await;
            let error = list(&server).await.unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_or_refused_beside_all_levels_is_left_out() {
        let below = entry("/d/c/") + &entry("/d/c/b.csv");
        for (status, below, count) in [
            ("404 Not Found", String::new(), 1),
            ("403 Forbidden", below, 2),
        ] {
            let server = Scripted::answering(move |number, _| match number {
                0 => listing(&(entry("/d/") + &entry("/d/a.csv") + &below + &entry("/d/e/"))),
                _ => answer(status, ""),
            })
            .await;
            let folders = WebFolders::default();
            let found = list_wanted(&server, &folders).await.unwrap();
            assert_eq!(found.len(), count, "{found:?}");
            assert_eq!(server.targets(), ["/d", "/d/e/"]);
            let number = status.split(' ').next().unwrap().parse().unwrap();
            let expected = BTreeMap::from([("e".to_owned(), number)]);
            assert_eq!(folders.left_out(), expected);
        }
    }

    #[tokio::test]
    async fn a_folder_without_wanted_files_is_not_requested_and_may_be_refused() {
        let refused = "<D:response><D:href>/d/shut/</D:href>\
                       <D:status>HTTP/1.1 403 Forbidden</D:status></D:response>";
        // One with a file in a folder that is not wanted, as of a server that lists all levels.
        for more in ["", &with_properties("/d/shut/x.csv", "<D:resourcetype/>")] {
            let more = refused.to_owned() + more;
            let server = Scripted::answering(move |_, request| match &*folder_of(request) {
                "/d/" => listing(&(entry("/d/") + &entry("/d/e/") + &entry("/d/closed/") + &more)),
                "/d/e/" => listing(&(entry("/d/e/") + &entry("/d/e/b.csv") + &entry("/d/e/f/"))),
                _ => answer("403 Forbidden", ""),
            })
            .await;
            let folders = WebFolders::with_filter(|folder| folder == "e");
            let found = list_wanted(&server, &folders).await.unwrap();
            assert_eq!(found, [("d/e/b.csv".to_owned(), 9)]);
            assert_eq!(server.targets(), ["/d", "/d/e/"]);
            assert!(folders.left_out().is_empty());
        }
    }

    #[tokio::test]
    async fn a_folder_without_an_end_is_refused() {
        let server = Scripted::answering(|_, request| {
            let folder = folder_of(request);
            listing(&(entry(&folder) + &entry(&format!("{folder}again/"))))
        })
        .await;
        let error = list(&server).await.unwrap_err();
        assert!(error.contains("more than 64 levels"), "{error}");
        assert_eq!(server.heads().len(), MAX_LEVELS + 1);
    }
}
