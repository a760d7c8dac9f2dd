//! Bodies of responses to `PROPFIND` of WebDAV (RFC 4918, section 14.16): reading and writing.
//!
//! Names of elements are compared without their namespace. A property may be absent, and each resource may have
//! several `propstat`; those with a status of success count.

use std::time::SystemTime;

use quick_xml::{
    Reader,
    escape::{escape, resolve_xml_entity},
    events::Event,
};

/// Deepest nesting of elements that is read. Listings have 6 levels, values of other properties some more.
const MAX_NESTING: usize = 64;

/// A file or a folder, as a server lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WebDavResource {
    /// Its URL or path, percent-encoded.
    pub(super) href: String,
    pub(super) is_folder: bool,
    /// Size in bytes.
    pub(super) bytes: Option<u64>,
    /// Time of the last change.
    pub(super) modified: Option<SystemTime>,
    pub(super) etag: Option<String>,
    /// Status of the resource, if the server refuses its properties.
    pub(super) refused: Option<String>,
}

/// Properties of one `propstat`.
#[derive(Debug, Default)]
struct PropStatus {
    status: String,
    length: String,
    modified: String,
    etag: String,
    is_collection: bool,
}

/// The parts of one `response`.
#[derive(Debug, Default)]
struct OneResponse {
    href: String,
    status: String,
    properties: Vec<PropStatus>,
}

/// Reads the resources of a body, in its order.
///
/// # Errors
/// The reason why it is no list of files.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<WebDavResource>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let (mut path, mut found) = (Vec::<String>::new(), Vec::new());
    let (mut response, mut text, mut has_root) = (OneResponse::default(), String::new(), false);
    loop {
        let event = reader
            .read_event()
            .map_err(|e| format!("it is not XML: {e}"))?;
        match event {
            Event::Start(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                if path.is_empty() && name != "multistatus" {
                    return Err(format!("its root is `{name}`, not `multistatus`"));
                }
                has_root = true;
                text.clear();
                path.push(name);
                if path.len() > MAX_NESTING {
                    return Err(format!(
                        "its elements are nested more than {MAX_NESTING} deep"
                    ));
                }
                if is_at(&path, &["response", "propstat"]) {
                    response.properties.push(PropStatus::default());
                }
            }
            Event::End(_) => {
                response.take(&path, text.trim());
                if is_at(&path, &["response"]) {
                    found.push(std::mem::take(&mut response).into_resource()?);
                }
                text.clear();
                path.pop();
            }
            Event::Text(part) => text += &part.decode().map_err(|e| e.to_string())?,
            Event::CData(part) => text += &part.decode().map_err(|e| e.to_string())?,
            Event::GeneralRef(entity) => {
                let name = entity.decode().map_err(|e| e.to_string())?;
                let character = entity.resolve_char_ref().ok().flatten();
                match (resolve_xml_entity(&name), character) {
                    (Some(known), _) => text += known,
                    (None, Some(character)) => text.push(character),
                    (None, None) => return Err(format!("it has an unknown entity `&{name};`")),
                }
            }
            Event::Eof if !has_root => return Err("it has no XML".into()),
            Event::Eof if !path.is_empty() => {
                return Err("it ends early: an element is left open".into());
            }
            Event::Eof if found.is_empty() => return Err("it has no `response`".into()),
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

/// Returns true if `path` is that of an element below the root.
fn is_at(path: &[String], below: &[&str]) -> bool {
    path.len() == below.len() + 1
        && path
            .iter()
            .skip(1)
            .zip(below)
            .all(|(name, own)| name == own)
}

impl OneResponse {
    /// Takes the text of the element at `path`, which ends.
    fn take(&mut self, path: &[String], text: &str) {
        let names: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
        let properties = self.properties.last_mut();
        match (names.as_slice(), properties) {
            // Of several, the first is enough to name them.
            (["response", "href"], _) if self.href.is_empty() => text.clone_into(&mut self.href),
            (["response", "status"], _) => text.clone_into(&mut self.status),
            (["response", "propstat", "status"], Some(of)) => text.clone_into(&mut of.status),
            (["response", "propstat", "prop", name], Some(of)) => match *name {
                "getcontentlength" => text.clone_into(&mut of.length),
                "getlastmodified" => text.clone_into(&mut of.modified),
                "getetag" => text.clone_into(&mut of.etag),
                _ => {}
            },
            (["response", "propstat", "prop", "resourcetype", "collection"], Some(of)) => {
                of.is_collection = true;
            }
            _ => {}
        }
    }

    fn into_resource(self) -> Result<WebDavResource, String> {
        if self.href.is_empty() {
            return Err("a `response` of it has no `href`".into());
        }
        let is_ok = |of: &&PropStatus| is_success(&of.status);
        let mut resource = WebDavResource {
            is_folder: self.href.ends_with('/'),
            ..WebDavResource::default()
        };
        for of in self.properties.iter().filter(is_ok) {
            resource.is_folder |= of.is_collection;
            resource.bytes = resource.bytes.or_else(|| of.length.parse().ok());
            let modified = httpdate::parse_http_date(&of.modified).ok();
            resource.modified = resource.modified.or(modified);
            let etag = Some(&of.etag).filter(|etag| !etag.is_empty());
            resource.etag = resource.etag.or_else(|| etag.cloned());
        }
        if !self.properties.iter().any(|of| is_success(&of.status)) && !is_success(&self.status) {
            let statuses = self.properties.iter().map(|of| of.status.as_str());
            let mut statuses = statuses.chain([self.status.as_str()]);
            let status = statuses.find(|status| !status.is_empty());
            resource.refused = Some(status.unwrap_or("no status").to_owned());
        }
        resource.href = self.href;
        Ok(resource)
    }
}

/// Returns true for the status line of a success, such as `HTTP/1.1 200 OK`.
fn is_success(status: &str) -> bool {
    let code = status.split_ascii_whitespace().nth(1);
    code.is_some_and(|code| code.len() == 3 && code.starts_with('2'))
}

/// Writes a body with one `propstat` for each resource. The time of one without a time is the Unix epoch.
pub(super) fn write<'a>(resources: impl Iterator<Item = &'a WebDavResource>) -> String {
    let mut body = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><multistatus>");
    for of in resources {
        let modified = of.modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let modified = httpdate::fmt_http_date(modified.max(SystemTime::UNIX_EPOCH));
        let bytes = of.bytes.map_or_else(String::new, |bytes| {
            format!("<getcontentlength>{bytes}</getcontentlength>")
        });
        let etag = of.etag.as_deref().map_or_else(String::new, |etag| {
            format!("<getetag>{}</getetag>", escape(etag))
        });
        let kind = match of.is_folder {
            true => "<resourcetype><collection/></resourcetype>",
            false => "<resourcetype/>",
        };
        let href = escape(of.href.as_str());
        body += &format!(
            "<response><href>{href}</href><propstat><prop><getlastmodified>{modified}</getlastmodified>\
             {bytes}{etag}{kind}</prop><status>HTTP/1.1 200 OK</status></propstat></response>"
        );
    }
    body + "</multistatus>"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OK: &str = "<D:status>HTTP/1.1 200 OK</D:status>";
    const GONE: &str = "<D:status>HTTP/1.1 404 Not Found</D:status>";

    fn of(responses: &str) -> Result<Vec<WebDavResource>, String> {
        let root = "<?xml version=\"1.0\"?>\n<D:multistatus xmlns:D=\"DAV:\">";
        parse(format!("{root}{responses}</D:multistatus>").as_bytes())
    }

    #[test]
    fn a_resource_has_the_properties_that_its_server_has() {
        let all = of(&format!(
            "<D:response><D:href>/d/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/>\
             </D:resourcetype></D:prop>{OK}</D:propstat><D:propstat><D:prop><D:getcontentlength/>\
             </D:prop>{GONE}</D:propstat></D:response>\n\
             <D:response><D:href>/d/x&amp;y.csv</D:href><D:propstat><D:prop><D:getcontentlength/>\
             </D:prop>{GONE}</D:propstat><D:propstat><D:prop>\
             <D:getlastmodified>Thu, 01 Jan 1970 00:00:09 GMT</D:getlastmodified>\
             <D:getcontentlength> 7 </D:getcontentlength><D:getetag>&#34;e&quot;</D:getetag>\
             <D:resourcetype/></D:prop>{OK}</D:propstat></D:response>\
             <D:response><D:href>/d/b.csv</D:href><D:status>HTTP/1.1 403 Forbidden</D:status></D:response>\
             <D:response><D:href>/d/c.csv</D:href><D:propstat><D:prop><D:getcontentlength/></D:prop>\
             {GONE}</D:propstat></D:response>"
        ));
        let [folder, file, forbidden, gone] = <[_; 4]>::try_from(all.unwrap()).unwrap();
        let expected = WebDavResource {
            href: "/d/".into(),
            is_folder: true,
            ..WebDavResource::default()
        };
        assert_eq!(folder, expected);
        let expected = WebDavResource {
            href: "/d/x&y.csv".into(),
            bytes: Some(7),
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(9)),
            etag: Some("\"e\"".into()),
            ..WebDavResource::default()
        };
        assert_eq!(file, expected);
        let status = forbidden.refused.as_deref();
        assert_eq!(status, Some("HTTP/1.1 403 Forbidden"));
        assert_eq!(gone.refused.as_deref(), Some("HTTP/1.1 404 Not Found"));
        let written = [folder, file];
        assert_eq!(
            parse(write(written.iter()).as_bytes()).unwrap(),
            [
                WebDavResource {
                    modified: Some(SystemTime::UNIX_EPOCH),
                    ..written[0].clone()
                },
                written[1].clone()
            ]
        );
    }

    #[test]
    fn a_body_that_is_no_list_of_files_is_refused_with_the_reason() {
        for (body, reason) in [
            ("", "it has no XML"),
            ("no list", "it has no XML"),
            (
                "<html><body>files</body></html>",
                "its root is `html`, not `multistatus`",
            ),
            ("<multistatus/>", "it has no `response`"),
            ("<multistatus><response>", "it ends early"),
            ("<multistatus><response></multistatus>", "it is not XML"),
            (
                "<multistatus><response><status/></response></multistatus>",
                "has no `href`",
            ),
        ] {
            let error = parse(body.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{body}: {error}");
        }
    }
}
