//! Sources that read a GraphQL server, graphql-yoga on Node.js.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Stdio},
};

use crate::support::{Finished, feedline, finish, node, pipeline};

const SERVER: &str = include_str!("../node/graphql.mjs");

/// A process that ends with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

/// Starts the server in `folder` and returns its address; `None` (with a message) where its packages
/// are not installed.
fn start(folder: &Path) -> Option<(Server, String)> {
    let (mut command, packages) = node("graphql-yoga")?;
    symlink(packages, folder.join("node_modules")).unwrap();
    fs::write(folder.join("server.mjs"), SERVER).unwrap();
    let process = command
        .current_dir(folder)
        .arg("server.mjs")
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Server(process.unwrap());
    let mut port = String::new();
    let mut printed = BufReader::new(server.0.stdout.take().unwrap());
    printed.read_line(&mut port).unwrap();
    let url = format!("http://127.0.0.1:{}/graphql", port.trim());
    Some((server, url))
}

fn ingest(folder: &Path, url: &str, source: &str) -> Finished {
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"issues\"\ntype = \"rest\"\nurl = \"{url}\"\n{source}"
    );
    let file = pipeline(folder, &text);
    let mut command = feedline(folder);
    finish(command.args(["ingest", file, "--json"]).output().unwrap())
}

/// Lines of a source that reads the list at `list` of the issues, with `fields` of each.
fn issues(list: &str, more: &str) -> String {
    format!(
        "batch = {{ pages = 2 }}\n[source.graphql]\nconnection = \"repository.issues\"\nvariables = {{ owner = \"feedline\" }}\n{more}\n\
         query = '''\nquery Issues($owner: String!, $after: String, $size: Int!, $filter: Filter) {{\n  # {{ one page\n\
         repository(owner: $owner) {{ issues(first: $size, after: $after, filter: $filter) {{ {list} pageInfo {{ endCursor hasNextPage }} totalCount }} }}\n}}\n'''\n\
         [source.pagination]\npage_size = 4\nsize_param = \"size\"\ntotal_path = \"data.repository.issues.totalCount\"\nstrict_total = true\n"
    )
}

#[test]
fn all_records_of_a_connection_land_once_by_nodes_and_by_edges() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, url)) = start(folder.path()) else {
        return;
    };
    for (name, list) in [
        ("nodes", "nodes { number title author { login } }"),
        (
            "edges",
            "edges { cursor node { number title author { login } } }",
        ),
    ] {
        let own = folder.path().join(name);
        fs::create_dir(&own).unwrap();
        let report = ingest(&own, &url, &issues(list, "")).expect(0).json();
        assert_eq!(report["rows"], 25, "{report}");
        let again = ingest(&own, &url, &issues(list, "")).expect(0).json();
        assert_eq!(again["sources"][0]["new_rows"], 0, "{again}");
    }
}

#[test]
fn a_query_in_a_file_reads_the_same_and_a_changed_file_is_a_changed_setting() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, url)) = start(folder.path()) else {
        return;
    };
    let query = |field: &str| {
        let text = format!("{{ limited {{ {field} }} }}");
        fs::write(folder.path().join("limited.graphql"), text).unwrap();
    };
    let source = "records = \"data.limited\"\nretry = { base_ms = 1 }\ngraphql.query = { file = \"limited.graphql\" }\n";
    query("number");
    let report = ingest(folder.path(), &url, source).expect(0).json();
    assert_eq!(report["rows"], 2, "{report}");
    query("number title");
    let report = ingest(folder.path(), &url, source).expect(0).json();
    let changed = report["sources"][0]["settings_changed"].to_string();
    assert!(changed.contains("graphql.query"), "{report}");
}

#[test]
fn a_bound_in_a_variable_asks_for_newer_records_only() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, url)) = start(folder.path()) else {
        return;
    };
    let newer =
        "\n[source.incremental]\ncursor = \"number\"\nparam = \"filter.since\"\nstart = \"20\"\n";
    let source = issues("nodes { number }", "") + newer;
    let report = ingest(folder.path(), &url, &source).expect(0).json();
    assert_eq!(report["rows"], 6, "{report}");
}

#[test]
fn rate_limits_are_retried_and_other_errors_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, url)) = start(folder.path()) else {
        return;
    };
    let limited = "records = \"data.limited\"\nretry = { base_ms = 1 }\ngraphql.query = \"{ limited { number } }\"\n";
    let report = ingest(folder.path(), &url, limited).expect(0).json();
    assert_eq!(report["rows"], 2, "{report}");

    let own = folder.path().join("wrong");
    fs::create_dir(&own).unwrap();
    let wrong = issues("nodes { nummer }", "");
    let refused = ingest(&own, &url, &wrong).expect(1);
    assert!(refused.stderr.contains("Cannot query field"), "{refused:?}");

    let partial = issues("nodes { number secret }", "");
    let refused = ingest(&own, &url, &partial).expect(1);
    let path = "no right to see this at repository.issues.nodes.0.secret";
    assert!(refused.stderr.contains(path), "{refused:?}");
    let accepted = issues("nodes { number secret }", "partial_data = \"warn\"");
    let report = ingest(&own, &url, &accepted).expect(0).json();
    assert_eq!(report["rows"], 25, "{report}");
    assert!(
        report.to_string().contains("graphql_partial_data"),
        "{report}"
    );
}
