//! Secrets of sources appear in no output, also where a server repeats them.

use std::fs;

use crate::support::{Finished, feedline, files, finish, pipeline, run, serve};

/// Asserts that a command has not shown the secret.
fn check_hidden(shown: &Finished) {
    assert!(!shown.stdout.contains("canary"), "{shown:#?}");
    assert!(!shown.stderr.contains("canary"), "{shown:#?}");
}

#[test]
fn a_password_in_a_url_is_refused_by_every_command_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (url, remedy) in [
        ("http://reader:canary@127.0.0.1:9/dav/*.csv", "`auth = {"),
        ("s3://KEY:can/canary@bucket/*.csv", "AWS_SECRET_ACCESS_KEY"),
    ] {
        let source = format!("[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{url}\"\n");
        let file = pipeline(folder, &format!("[pipeline]\nname = \"p\"\n{source}"));
        for arguments in [
            &["check", file][..],
            &["check", file, "--offline", "--json"],
            &["preview", file],
            &["ingest", file],
        ] {
            let refused = run(folder, arguments).expect(2);
            check_hidden(&refused);
            let shown = format!("{}{}", refused.stdout, refused.stderr);
            assert!(shown.contains("`source.0.url`: has a user"), "{shown}");
            assert!(shown.contains(remedy), "{shown}");
        }
        for arguments in [&["init", url][..], &["preview", url]] {
            let refused = run(folder, arguments).expect(1);
            check_hidden(&refused);
            let part = "was given with a user or a password";
            assert!(refused.stderr.contains(part), "{refused:#?}");
        }
        let text = format!(
            "[pipeline]\nname = \"p\"\nroot = \"{}\"\n",
            &url[..url.len() - 6]
        );
        let refused = run(folder, &["check", pipeline(folder, &text)]).expect(2);
        check_hidden(&refused);
        let part = "`pipeline.root`: has a user";
        assert!(refused.stderr.contains(part), "{refused:#?}");
    }
    let names: Vec<String> = files(folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["pipeline.toml"]);
}

#[test]
fn a_secret_that_a_server_repeats_in_records_is_masked_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let base = serve(|_| {
        let row = |id: u32| match id % 5 {
            1 => format!(r#"{{"id": {id}, "x": "bad token canary-0123"}}"#),
            _ => format!(r#"{{"id": {id}, "x": 1}}"#),
        };
        let rows: Vec<String> = (0..100).map(row).collect();
        let type_of = "Content-Type: application/json\r\n".to_owned();
        let body = format!(r#"{{"data": [{}]}}"#, rows.join(", "));
        ("200 OK", type_of, body)
    });
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{base}/rows\"\n\
         records = \"data\"\npagination.type = \"none\"\nheaders.X-Token = {{ file = \"token\" }}\n\
         contract = {{ max_reject_fraction = 0.5, column = {{ x = {{ type = \"int\" }} }} }}\n"
    );
    let file = pipeline(folder, &text);
    fs::write(folder.join("token"), "canary-0123\n").unwrap();
    for arguments in [
        &["check", file][..],
        &["check", file, "--json"],
        &["preview", file, "--rows", "3"],
        &["preview", file, "--rows", "3", "--json"],
        &["ingest", file],
        // The source is finished, and its report is the one of its log.
        &["ingest", file, "--json"],
        &["ingest", "status", file],
        &["ingest", "status", file, "--json"],
    ] {
        let mut command = feedline(folder);
        let shown = finish(command.args(arguments).output().unwrap()).expect(0);
        check_hidden(&shown);
        if arguments.contains(&"--json") {
            assert!(shown.stdout.contains("***"), "{arguments:?} {shown:#?}");
        }
    }
    // The status needs no secret.
    fs::remove_file(folder.join("token")).unwrap();
    run(folder, &["ingest", "status", file]).expect(0);
}

#[test]
fn credentials_that_a_file_server_repeats_in_refusals_are_masked_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("token"), "canary-0123\n").unwrap();
    let base = serve(|_| {
        let body = "refused: Bearer canary-0123".to_owned();
        ("403 Forbidden", String::new(), body)
    });
    let text = |url: &str| {
        format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nformat = \"csv\"\n\
             url = \"{url}\"\nretry = {{ max_tries = 1 }}\nauth = {{ type = \"bearer\", secret = {{ file = \"token\" }} }}\n"
        )
    };
    for path in ["data/", "a.csv"] {
        let file = pipeline(folder, &text(&format!("{base}/{path}")));
        for arguments in [
            &["check", file][..],
            &["preview", file],
            &["ingest", file],
            &["ingest", file, "--json"],
            &["run", file],
            &["ingest", "status", file],
        ] {
            check_hidden(&run(folder, arguments));
        }
    }
    let file = pipeline(folder, &text(&format!("{base}/data/")));
    let refused = run(folder, &["ingest", file]).expect(1);
    let last = refused.stderr.lines().last().unwrap();
    assert!(last.contains("refused: Bearer ***"), "{refused:#?}");
    for (name, bytes) in files(&folder.join("out")) {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("canary"), "{name}: {text}");
    }
    // The path of the URL has the token, and there is no server.
    let file = pipeline(folder, &text("http://127.0.0.1:9/canary-0123/a.csv"));
    let failed = run(folder, &["ingest", file]).expect(1);
    let last = failed.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("error: ") && last.contains("/***/a.csv"),
        "{failed:#?}"
    );
    assert!(!last.contains("canary"), "{failed:#?}");
}
