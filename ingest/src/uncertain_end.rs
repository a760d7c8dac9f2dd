//! Warning about CSV whose end only the end of a connection shows, and which ends within a line.

use feedline_readers::notices::Notices;

/// Notes that the table at `url`, which ends without a line end, may be truncated.
pub(crate) fn note(url: &str, notices: &Notices) {
    let message = format!(
        "the response with `{url}` has neither `Content-Length` nor chunks, and its last line has no line end: if the connection was closed too early, the last row is truncated and rows behind it are missing; compare the last row with its origin, and let the server send a length or a final line end"
    );
    notices.push("end_not_certain", "url", message);
}

/// Returns true if text ends with a line end, in UTF-16 too, or is empty.
pub(crate) fn ends_line(text: &[u8]) -> bool {
    let last = text.iter().rev().find(|byte| **byte != 0);
    last.is_none_or(|byte| matches!(byte, b'\n' | b'\r'))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;
    use feedline_storage::Store;

    use crate::{
        context::Context,
        run::ingest,
        testing::{Scripted, context, raw},
    };

    /// Warnings about the end of a table that a server sends for any request.
    async fn ends(source: &str, head: &str, body: &str) -> Vec<String> {
        let response = raw(
            &format!("200 OK\r\nContent-Type: text/csv{head}"),
            body.as_bytes(),
        );
        let server = Scripted::answering(move |_, _| response.clone()).await;
        let source = source.replace("URL", server.url.as_str());
        let text = format!("[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\n{source}\n");
        let config = load("p.toml", &text, &[]).unwrap().config;
        let context = Context {
            root: Store::memory(),
            ..context()
        };
        let report = ingest(&config, None, &context).await.unwrap();
        assert_eq!(report.rows, 2, "{source}");
        let warnings = report.sources[0].warnings.iter();
        let warnings = warnings.filter(|warning| warning.code == "end_not_certain");
        warnings.map(|warning| warning.message.clone()).collect()
    }

    #[tokio::test]
    async fn a_table_without_a_length_that_ends_within_a_line_is_a_warning() {
        for source in [
            "type = \"files\"\nurl = \"URLt.csv\"",
            "type = \"files\"\nurl = \"URLt.csv?day=1\"",
            "type = \"rest\"\nurl = \"URLt.csv\"\nresponse.format = \"csv\"",
        ] {
            let found = ends(source, "", "id,v\n1,100\n2,20").await;
            assert_eq!(found.len(), 1, "{source}");
            assert!(found[0].contains("/t.csv"), "{found:?}");
            let length = "\r\nContent-Length: 15";
            for (head, body) in [("", "id,v\n1,100\n2,200\n"), (length, "id,v\n1,100\n2,20")] {
                assert_eq!(ends(source, head, body).await, [""; 0], "{source} {body}");
            }
        }
    }
}
