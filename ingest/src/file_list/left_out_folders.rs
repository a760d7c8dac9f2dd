//! Folders that a web server lists, and whose files it does not.

use std::collections::BTreeMap;

use feedline_http::without_user_info;
use feedline_readers::value::shorten;
use feedline_schemas::count::{counted, first_of};

/// Most folders that a message names.
const NAMED: usize = 5;

/// Names the folders in `folder` that were left out, each with the status of its response; `None` if there are
/// none.
pub(super) fn message(folder: &str, left_out: &BTreeMap<String, u16>) -> Option<String> {
    let named = left_out.iter();
    let named = named.map(|(path, status)| format!("`{}` (status {status})", shorten(path, 100)));
    let named: Vec<String> = named.collect();
    (!left_out.is_empty()).then(|| {
        format!(
            "the files in {} below `{}` are not read, as the server lists none of them: {}; permit access to them, or set `url` to a pattern that matches no file in them, such as `{}NAME/**`",
            counted(left_out.len() as u64, "folder"),
            without_user_info(folder),
            first_of(&named, NAMED),
            without_user_info(folder),
        )
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{config::load, report::IngestReport};
    use feedline_storage::Store;

    use super::*;
    use crate::{
        context::Context,
        run::ingest,
        status::status_with_lag,
        testing::{Scripted, answer, context, raw},
    };

    /// A server with a folder `d` of one file and a folder `gone`, which it does not list.
    async fn serve() -> Scripted {
        let entry = |path: &str, properties: &str| {
            format!(
                "<response><href>{path}</href><propstat><prop>{properties}</prop>\
                 <status>HTTP/1.1 200 OK</status></propstat></response>"
            )
        };
        let file = "<getcontentlength>4</getcontentlength><resourcetype/>";
        let folder = "<resourcetype><collection/></resourcetype>";
        let entries = entry("/d/a.csv", file) + &entry("/d/gone/", folder);
        let listing = format!("<multistatus>{entries}</multistatus>");
        Scripted::answering(move |_, request| {
            let mut words = request.split(' ');
            match (words.next(), words.next()) {
                (Some("PROPFIND"), Some("/d" | "/d/")) => answer("207 Multi-Status", &listing),
                (Some("HEAD"), Some("/d/a.csv")) => raw("200 OK\r\nContent-Length: 4", b""),
                (Some("GET"), Some("/d/a.csv")) => answer("200 OK", "a\n1\n"),
                _ => answer("404 Not Found", ""),
            }
        })
        .await
    }

    #[tokio::test]
    async fn a_left_out_folder_is_a_warning_of_each_run_and_of_status() {
        let server = serve().await;
        let messages = |report: &IngestReport| -> Vec<String> {
            let warnings = report.sources[0].warnings.iter();
            let left_out = warnings.filter(|warning| warning.code == "folders_left_out");
            left_out.map(|warning| warning.message.clone()).collect()
        };
        for (pattern, count) in [("", 1), ("**/*.csv", 1), ("*.csv", 0)] {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}d/{pattern}\"\n",
                server.url
            );
            let config = load("p.toml", &text, &[]).unwrap().config;
            let context = Context {
                root: Store::memory(),
                ..context()
            };
            for _ in 0..2 {
                let report = ingest(&config, None, &context).await.unwrap();
                let found = messages(&report);
                assert_eq!(found.len(), count, "{report:?}");
                assert!(
                    found
                        .iter()
                        .all(|text| text.contains("`gone` (status 404)"))
                );
                let now = context.clock.unix();
                let shown = status_with_lag(&config, &context.root, now).await;
                assert_eq!(messages(&shown.unwrap()), found);
            }
        }
    }

    #[test]
    fn the_first_folders_are_named_with_the_statuses_and_the_others_counted() {
        assert_eq!(message("http://h/d/", &BTreeMap::new()), None);
        let one = BTreeMap::from([("closed".to_owned(), 403)]);
        assert_eq!(
            message("http://user:canary@h/d/", &one).as_deref(),
            Some(
                "the files in 1 folder below `http://h/d/` are not read, as the server lists none of them: `closed` (status 403); permit access to them, or set `url` to a pattern that matches no file in them, such as `http://h/d/NAME/**`"
            )
        );
        let many = (0..7).map(|i| (format!("{i}/x"), 404)).collect();
        let message = message("http://h/", &many).unwrap();
        let named = "`4/x` (status 404) and 2 more;";
        assert!(message.starts_with("the files in 7 folders"), "{message}");
        assert!(message.contains(named), "{message}");
    }
}
