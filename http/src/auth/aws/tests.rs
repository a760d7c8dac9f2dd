//! Signatures of the published test suite (awslabs/aws-c-auth), and of botocore where it has none.

use super::*;
use crate::testing::context;

/// 2015-08-30T12:36:00Z.
const TIME: Duration = Duration::from_secs(1_440_938_160);

fn signer(service: &str, token: Option<&'static str>) -> Aws {
    Aws {
        region: "us-east-1".into(),
        service: service.into(),
        key_id: "AKIDEXAMPLE".into(),
        secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
        token: token.map(HeaderValue::from_static),
    }
}

struct Case<'a> {
    signer: Aws,
    method: Method,
    path: &'a str,
    headers: &'a [(&'static str, &'static str)],
    body: &'a str,
}

impl Case<'_> {
    /// Signs it and returns the `Authorization` header and the URL.
    fn sign(&self) -> (String, Url) {
        let url = format!("https://example.amazonaws.com{}", self.path);
        let url = Url::parse(&url).unwrap();
        let headers = self.headers.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let request = Unsigned {
            method: &self.method,
            url: &url,
            headers: &headers.collect(),
            body: self.body.as_bytes(),
        };
        let (url, headers) = self.signer.sign(&request, TIME).unwrap().signed.unwrap();
        assert_eq!(headers[DATE], "20150830T123600Z");
        (headers[AUTHORIZATION].to_str().unwrap().to_owned(), url)
    }
}

fn get(signer: Aws, path: &str) -> Case<'_> {
    Case {
        signer,
        method: Method::GET,
        path,
        headers: &[],
        body: "",
    }
}

fn check(case: &Case<'_>, names: &str, signature: &str) {
    let (found, _) = case.sign();
    let service = &case.signer.service;
    let expected = format!(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/{service}/aws4_request, SignedHeaders={names}, Signature={signature}"
    );
    assert_eq!(found, expected, "{}", case.path);
}

#[test]
fn signatures_are_those_of_the_published_test_suite() {
    const LETTERS: &str = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let unreserved = format!("/?{LETTERS}={LETTERS}");
    for (path, signature) in [
        // get-vanilla
        (
            "/",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        // get-vanilla-query-order-key-case
        (
            "/?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        // get-vanilla-query-unreserved
        (
            &unreserved,
            "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
        ),
        // get-vanilla-utf8-query
        (
            "/?ሴ=bar",
            "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
        ),
        // get-vanilla-query-order-encoded
        (
            "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
            "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
        ),
        // get-slashes-normalized
        (
            "//example//",
            "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
        ),
        // get-unreserved
        (
            &format!("/{LETTERS}"),
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ),
    ] {
        check(
            &get(signer("service", None), path),
            "host;x-amz-date",
            signature,
        );
    }
    // get-vanilla-with-session-token
    let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
    check(
        &get(signer("service", Some(token)), "/"),
        "host;x-amz-date;x-amz-security-token",
        "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
    );
}

#[test]
fn signatures_are_those_of_botocore() {
    let path = "/a%20b/c%28d/?q=a%20b&e=%C3%A9";
    check(
        &get(signer("service", None), path),
        "host;x-amz-date",
        "1df378de9e208e2e55a6f59f56360fd10838c2a06a7e9e9a60da9d5f432be648",
    );
    check(
        &get(signer("s3", None), path),
        "host;x-amz-content-sha256;x-amz-date",
        "268a00f63c336be98d04a785678e88ed42a27319c5d2bf9abd830840dc28d7c6",
    );
    check(
        &get(signer("service", Some("TOKEN")), ":8443/x"),
        "host;x-amz-date;x-amz-security-token",
        "2723239eb4f80692e9b289e60363fb690891a0a8a16e71bd48921baff7b2e603",
    );
    let post = Case {
        method: Method::POST,
        headers: &[
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", "DynamoDB_20120810.Scan"),
            ("x-amz-date", "overwritten"),
            ("accept", "*/*"),
        ],
        body: r#"{"TableName":"t"}"#,
        ..get(signer("service", None), "/")
    };
    check(
        &post,
        "content-type;host;x-amz-date;x-amz-target",
        "6a9da6effbde3686a8c499384f5f7bd9c43274fcf36b00e0c8deeede29893f59",
    );
}

#[test]
fn a_query_is_sent_as_it_is_signed() {
    let sent = |path: &str| get(signer("service", None), path).sign().1;
    let sent = |path: &str| sent(path).as_str().split_once(".com").unwrap().1.to_owned();
    assert_eq!(sent("/x?b=1+2&a=(%2B)&c"), "/x?a=%28%2B%29&b=1%202&c=");
    assert_eq!(sent("/x"), "/x");
    // Another spelling has the same signature.
    let sign = |path: &str| get(signer("service", None), path).sign().0;
    assert_eq!(sign("/x?b=1+2&a=3"), sign("/x?a=3&b=1%202"));
    assert_ne!(sign("/x?b=1+2&a=3"), sign("/x?b=1%2B2&a=3"));
}

#[test]
fn keys_that_cannot_be_signed_with_are_named() {
    let env = |name: &str| SecretRef {
        env: Some(name.into()),
        file: None,
        prefix: String::new(),
    };
    let good = || AwsSignature {
        region: TextOrSecret::Text("eu-central-1".into()),
        service: "execute-api".into(),
        access_key_id: TextOrSecret::Secret(env("ID")),
        secret_access_key: env("KEY"),
        session_token: Some(env("TOKEN")),
    };
    let aws = Aws::new(&good(), &context(), &mut Secretive::default()).unwrap();
    assert_eq!(
        (aws.key_id.as_str(), aws.secret.as_str()),
        ("secret-ID", "secret-KEY")
    );
    assert_eq!(aws.token.unwrap(), "secret-TOKEN");
    let check = |config: AwsSignature, key: &str| {
        let error = Aws::new(&config, &context(), &mut Secretive::default());
        let error = error.err().unwrap().to_string();
        assert!(error.starts_with(&format!("`auth.{key}`: ")), "{error}");
    };
    let text = |text: &str| TextOrSecret::Text(text.into());
    check(
        AwsSignature {
            region: text("eu central"),
            ..good()
        },
        "region",
    );
    check(
        AwsSignature {
            service: String::new(),
            ..good()
        },
        "service",
    );
    check(
        AwsSignature {
            access_key_id: text("a/b"),
            ..good()
        },
        "access_key_id",
    );
    check(
        AwsSignature {
            session_token: Some(env("line\nend")),
            ..good()
        },
        "session_token",
    );
}
