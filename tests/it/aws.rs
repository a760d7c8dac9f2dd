//! Signed requests at servers that verify them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use feedline_testkit::free_port::free_port;
use serde_json::Value;

use crate::support::{Finished, feedline, finish, pipeline, python, wait};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/signed_server.py");

/// Makes a user with an access key and an object at moto, before which no signature is verified.
/// Prints the key.
const SETUP: &str = r#"
import boto3, json, sys
place = dict(endpoint_url="http://127.0.0.1:" + sys.argv[1], region_name="us-east-1")
iam = boto3.client("iam", aws_access_key_id="a", aws_secret_access_key="b", **place)
s3 = boto3.client("s3", aws_access_key_id="a", aws_secret_access_key="b", **place)
s3.create_bucket(Bucket="lake")
s3.put_object(Bucket="lake", Key="data/items.json", Body=b'[{"id":1},{"id":2}]')
iam.create_user(UserName="robot")
key = iam.create_access_key(UserName="robot")["AccessKey"]
allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
iam.put_user_policy(UserName="robot", PolicyName="all", PolicyDocument=json.dumps(allow))
print(key["AccessKeyId"], key["SecretAccessKey"])
"#;
/// Requests of [`SETUP`].
const UNSIGNED: &str = "5";

/// A process that ends with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

/// Ingests `source` with the `keys` of `[source.auth]`.
fn ingest(folder: &Path, source: &str, keys: &str, secret: &str) -> Finished {
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\n{source}\n\
         [source.auth]\ntype = \"aws\"\nregion = {{ env = \"AWS_REGION\" }}\n{keys}\n\
         secret_access_key = {{ env = \"SECRET\" }}\n"
    );
    fs::remove_dir_all(folder.join("out")).ok();
    let file = pipeline(folder, &text);
    let mut command = feedline(folder);
    command.args(["ingest", file, "--json"]);
    command.env("AWS_REGION", "us-east-1").env("SECRET", secret);
    let output = command.env("TOKEN", "canary-token").output();
    let finished = finish(output.unwrap());
    assert!(!finished.stderr.contains("canary"), "{finished:#?}");
    assert!(!finished.stdout.contains("canary"), "{finished:#?}");
    finished
}

#[test]
fn requests_with_odd_queries_are_signed_as_botocore_verifies_them() {
    let Some(mut python) = python("botocore") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let process = python.arg(SERVER).stdout(Stdio::piped()).spawn();
    let mut server = Server(process.unwrap());
    let mut port = String::new();
    let mut printed = BufReader::new(server.0.stdout.take().unwrap());
    printed.read_line(&mut port).unwrap();
    let port = port.trim();
    let source = format!(
        "url = \"http://127.0.0.1:{port}/v1//my items/(all)\"\nrecords = \"items\"\n\
         params = {{ q = \"a b+c(d)*é\", Z = \"1\" }}\n\
         pagination = {{ type = \"cursor\", cursor_param = \"after\", cursor_path = \"next\" }}"
    );
    let keys = "service = \"execute-api\"\naccess_key_id = \"AKIDEXAMPLE\"\nsession_token = { env = \"TOKEN\" }";
    let landed = ingest(folder.path(), &source, keys, "canary-secret");
    assert_eq!(landed.expect(0).json()["rows"], 3);
    let refused = ingest(folder.path(), &source, keys, "canary-guess").expect(1);
    assert!(
        refused.stderr.contains("SignatureDoesNotMatch"),
        "{refused:#?}"
    );
}

/// Starts moto, which verifies signatures after the first requests, and returns its port.
fn moto() -> Option<(Server, u16)> {
    let mut command = python("moto.server, boto3")?;
    let port = free_port();
    command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p"]);
    command.arg(port.to_string());
    command.env("INITIAL_NO_AUTH_ACTION_COUNT", UNSIGNED);
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = Server(process.unwrap());
    for _ in 0..600 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some((server, port));
        }
        wait(Duration::from_millis(100));
    }
    panic!("moto did not start within a minute");
}

fn set_up(python: &mut Command, port: u16) -> (String, String) {
    let made = python.args(["-c", SETUP, &port.to_string()]).output();
    let made = finish(made.unwrap()).expect(0);
    let (id, secret) = made.stdout.trim().split_once(' ').unwrap();
    (id.to_owned(), secret.to_owned())
}

#[test]
fn an_object_of_s3_is_read_with_a_signature_that_moto_verifies() {
    let Some((_server, port)) = moto() else {
        return;
    };
    let (id, secret) = set_up(&mut python("boto3").unwrap(), port);
    let folder = tempfile::tempdir().unwrap();
    let source = format!(
        "url = \"http://127.0.0.1:{port}/lake/data/items.json\"\npagination = {{ type = \"none\" }}"
    );
    let keys = format!("service = \"s3\"\naccess_key_id = \"{id}\"");
    let landed: Value = ingest(folder.path(), &source, &keys, &secret)
        .expect(0)
        .json();
    assert_eq!(landed["rows"], 2, "{landed}");
    let refused = ingest(folder.path(), &source, &keys, "canary-guess").expect(1);
    assert!(refused.stderr.contains("answered 403"), "{refused:#?}");
}
