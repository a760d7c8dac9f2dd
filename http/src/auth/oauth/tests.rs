//! Grants at scripted token endpoints.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use feedline_schemas::config::{AuthConfig, JwtBearer, PasswordGrant, RefreshToken};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
};
use rustls_pki_types::pem::PemObject as _;

use super::{
    super::tests::{client_in, count, env},
    *,
};
use crate::{
    context::Secrets,
    retry::failed_try::TriedError as _,
    testing::{Scripted, answer, context, ok},
};

/// Reads files, and resolves `{ env = "NAME" }` to `secret-NAME`.
#[derive(Debug)]
struct SecretFiles;

impl Secrets for SecretFiles {
    fn resolve(&self, reference: &SecretRef) -> Result<String, String> {
        match &reference.file {
            Some(path) => fs::read_to_string(path)
                .map(|text| text.trim_end().to_owned())
                .map_err(|e| e.to_string()),
            None => Ok(format!(
                "secret-{}",
                reference.env.as_deref().unwrap_or_default()
            )),
        }
    }
}

fn with_files() -> RequestContext {
    RequestContext {
        secrets: Arc::new(SecretFiles),
        ..context()
    }
}

fn config(server: &Scripted, grant: OauthGrant) -> AuthConfig {
    AuthConfig::Oauth2(OauthConfig {
        endpoint: TokenEndpoint {
            token_url: server.url.join("token").unwrap().into(),
            scope: Some("read".into()),
            credentials: CredentialsIn::Header,
        },
        grant,
    })
}

fn refresh(file: Option<&Path>) -> OauthGrant {
    OauthGrant::RefreshToken(RefreshToken {
        client_id: env("ID"),
        client_secret: None,
        refresh_token: file.is_none().then(|| env("R0")),
        refresh_token_file: file.map(|path| path.to_str().unwrap().to_owned()),
    })
}

/// A server that replaces the refresh token `secret-R<n>` with each use, and accepts an access token
/// once.
async fn rotating() -> Scripted {
    let (uses, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    Scripted::answering(move |_, head| {
        if !head.starts_with("POST") {
            let number = reads.load(Ordering::Relaxed);
            if !head.contains(&format!("Bearer secret-access-{number}\r\n")) {
                return answer("401 Unauthorized", "");
            }
            reads.fetch_add(1, Ordering::Relaxed);
            return ok("[1]");
        }
        let number = uses.load(Ordering::Relaxed);
        if !head.ends_with(&format!("refresh_token=secret-R{number}")) {
            return answer("400 Bad Request", r#"{"error":"invalid_grant"}"#);
        }
        uses.fetch_add(1, Ordering::Relaxed);
        let next = number + 1;
        ok(&format!(
            r#"{{"access_token":"secret-access-{number}","token_type":"Bearer","refresh_token":"secret-R{next}"}}"#
        ))
    })
    .await
}

#[tokio::test]
async fn a_replaced_refresh_token_is_used_and_is_kept_by_the_process_with_a_warning() {
    let server = rotating().await;
    let config = config(&server, refresh(None));
    let context = context();
    for run in 0..3 {
        let http = client_in(&context, &server.url, &config).unwrap();
        for _ in 0..2 {
            assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
        }
        let warnings = http.notices();
        assert_eq!(warnings.len(), 1, "run {run}");
        assert_eq!(warnings[0].code, "rotated_refresh_token");
        assert_eq!(warnings[0].key.as_deref(), Some("auth.refresh_token"));
        assert!(!format!("{warnings:?}{http:?}{context:?}").contains("secret-"));
    }
    let asked = &server.heads()[0];
    let form = "grant_type=refresh_token&scope=read&client_id=secret-ID&refresh_token=secret-R0";
    assert!(asked.ends_with(form), "{asked}");
    assert!(!asked.contains("authorization"), "{asked}");
}

#[tokio::test]
async fn a_replaced_refresh_token_survives_the_process_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("token"), folder.path().join("link"));
    fs::write(&file, "secret-R0\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let server = rotating().await;
    let config = config(&server, refresh(Some(&link)));
    for next in 1..4 {
        // Another process each time.
        let http = client_in(&with_files(), &server.url, &config).unwrap();
        assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            format!("secret-R{next}\n")
        );
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(http.notices().is_empty());
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn a_token_that_another_process_has_replaced_is_read_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-R0").unwrap();
    let written = file.clone();
    let server = Scripted::answering(move |number, head| {
        if !head.starts_with("POST") {
            return ok("[1]");
        }
        if number == 0 {
            fs::write(&written, "secret-R7").unwrap();
            return answer("400 Bad Request", r#"{"error":"invalid_grant"}"#);
        }
        assert!(head.ends_with("refresh_token=secret-R7"), "{head}");
        ok(r#"{"access_token":"secret-access"}"#)
    })
    .await;
    let http = client_in(
        &with_files(),
        &server.url,
        &config(&server, refresh(Some(&file))),
    );
    assert_eq!(http.unwrap().get(&server.url).await.unwrap(), "[1]");
    assert_eq!(count(&server, "POST"), 2);
}

#[tokio::test]
async fn fault_20_a_refused_grant_is_one_clear_error_and_asked_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-R0").unwrap();
    let password = OauthGrant::Password(PasswordGrant {
        user: TextOrSecret::Text("alice".into()),
        password: env("P"),
        client_id: None,
        client_secret: None,
    });
    for (grant, secret, part) in [
        (
            refresh(None),
            "secret-R0",
            "obtain a new one and set `auth.refresh_token`",
        ),
        (
            refresh(Some(&file)),
            "secret-R0",
            "obtain a new one and write it to the file of",
        ),
        (
            password,
            "secret-P",
            "check `auth.user` and `auth.password`",
        ),
    ] {
        let body = format!(r#"{{"error":"invalid_grant","error_description":"{secret}"}}"#);
        let server = Scripted::start([answer("400 Bad Request", &body)]).await;
        let http = client_in(&with_files(), &server.url, &config(&server, grant)).unwrap();
        let gets = (0..4).map(|_| http.get(&server.url));
        for got in futures::future::join_all(gets).await {
            let failure = got.unwrap_err();
            let message = failure.error.to_string();
            assert_eq!(failure.again, Again::Never, "{message}");
            let (_, cause) = failure.error.failed_request().unwrap();
            assert_eq!(cause, HttpCause::InvalidGrant(400), "{message}");
            assert!(message.contains("answered 400"), "{message}");
            assert!(message.contains("invalid_grant"), "{message}");
            assert!(message.contains(part), "{message}");
            assert!(!message.contains("secret-"), "{message}");
        }
        assert_eq!(server.heads().len(), 1);
    }
}

#[tokio::test]
async fn a_token_endpoint_that_is_down_is_asked_again() {
    let down = answer("503 Busy", "");
    let token = ok(r#"{"access_token":"secret-access"}"#);
    let server = Scripted::start([down, token, ok("[1]")]).await;
    let http = client_in(&context(), &server.url, &config(&server, refresh(None))).unwrap();
    let failure = http.get(&server.url).await.unwrap_err();
    assert_eq!(failure.again, Again::Backoff, "{}", failure.error);
    assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
}

#[tokio::test]
async fn user_and_password_are_sent_in_the_form() {
    let token = ok(r#"{"access_token":"secret-access"}"#);
    let server = Scripted::start([token, ok("[1]")]).await;
    let grant = OauthGrant::Password(PasswordGrant {
        user: TextOrSecret::Text("alice & bob".into()),
        password: env("P"),
        client_id: Some(env("ID")),
        client_secret: Some(env("S")),
    });
    let http = client_in(&context(), &server.url, &config(&server, grant)).unwrap();
    assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
    let asked = &server.heads()[0];
    let form = "grant_type=password&scope=read&username=alice+%26+bob&password=secret-P";
    assert!(asked.ends_with(form), "{asked}");
    // secret-ID:secret-S
    let basic = "authorization: Basic c2VjcmV0LUlEOnNlY3JldC1T\r\n";
    assert!(asked.contains(basic), "{asked}");
}

fn jwt(key: &Path) -> JwtBearer {
    JwtBearer {
        private_key: SecretRef {
            env: None,
            file: Some(key.to_str().unwrap().to_owned()),
            prefix: String::new(),
        },
        key_id: Some("k1".into()),
        issuer: "robot".into(),
        subject: None,
        audience: None,
        claims: BTreeMap::from([("box_sub_type".to_owned(), "enterprise".to_owned())]),
    }
}

/// Gets a token with the key in `file` and returns header, claims, message and signature of the
/// statement.
async fn signed(file: &Path) -> (serde_json::Value, serde_json::Value, String, Vec<u8>) {
    let token = ok(r#"{"access_token":"secret-access"}"#);
    let server = Scripted::start([token, ok("[1]")]).await;
    let grant = OauthGrant::JwtBearer(jwt(file));
    let http = client_in(&with_files(), &server.url, &config(&server, grant)).unwrap();
    assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
    let asked = server.heads()[0].clone();
    let kind = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&scope=read";
    assert!(asked.contains(kind), "{asked}");
    let (_, text) = asked.split_once("&assertion=").unwrap();
    let (message, signature) = text.rsplit_once('.').unwrap();
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let json = |part: &str| serde_json::from_slice(&decode(part)).unwrap();
    let audience = server.url.join("token").unwrap();
    let claims: serde_json::Value = json(claims);
    assert_eq!(claims["aud"], audience.as_str());
    (json(header), claims, message.to_owned(), decode(signature))
}

#[tokio::test]
async fn a_statement_is_signed_with_es256_and_has_its_claims() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    let (curve, random) = (
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        ring::rand::SystemRandom::new(),
    );
    let der = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
    let text = STANDARD.encode(&der);
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
    fs::write(&file, pem).unwrap();
    let (header, claims, message, signature) = signed(&file).await;
    assert_eq!(header["alg"], "ES256");
    assert_eq!(header["kid"], "k1");
    // The test's clock is at 784111777.
    assert_eq!(claims["iat"], 784_111_777);
    assert_eq!(claims["exp"], 784_111_957);
    for (name, value) in [
        ("iss", "robot"),
        ("sub", "robot"),
        ("scope", "read"),
        ("box_sub_type", "enterprise"),
    ] {
        assert_eq!(claims[name], value, "{claims}");
    }
    let pair = EcdsaKeyPair::from_pkcs8(curve, der.as_ref(), &random).unwrap();
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
    public.verify(message.as_bytes(), &signature).unwrap();
}

#[tokio::test]
async fn a_statement_is_signed_with_rs256_by_both_formats_of_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let (file, old) = (folder.path().join("key.pem"), folder.path().join("old.pem"));
    let openssl = |arguments: &[&str], out: &Path| {
        let made = Command::new("openssl")
            .args(arguments)
            .arg("-out")
            .arg(out)
            .output();
        made.is_ok_and(|made| made.status.success())
    };
    if !openssl(&["genpkey", "-algorithm", "RSA"], &file) {
        eprintln!("skipped: there is no `openssl`");
        return;
    }
    let key = file.to_str().unwrap();
    assert!(openssl(&["pkey", "-traditional", "-in", key], &old));
    let pem = fs::read_to_string(&old).unwrap();
    assert!(pem.contains("BEGIN RSA PRIVATE KEY"), "{pem}");
    let der = rustls_pki_types::PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let pair = ring::signature::RsaKeyPair::from_der(der.secret_der()).unwrap();
    for file in [&file, &old] {
        let (header, _, message, signature) = signed(file).await;
        assert_eq!(header["alg"], "RS256");
        let public = pair.public();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public.as_ref());
        public.verify(message.as_bytes(), &signature).unwrap();
    }
}

#[test]
fn grants_that_cannot_work_name_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let base = Url::parse("https://api.example/").unwrap();
    let check = |grant: OauthGrant, key: &str, part: &str| {
        let endpoint = TokenEndpoint {
            token_url: "https://login.example/".into(),
            scope: None,
            credentials: CredentialsIn::Header,
        };
        let config = AuthConfig::Oauth2(OauthConfig { endpoint, grant });
        let error = client_in(&with_files(), &base, &config).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("`auth.{key}`: ")), "{message}");
        assert!(message.contains(part), "{message}");
        assert!(!message.contains("secret-"), "{message}");
    };
    check(
        refresh(Some(&folder.path().join("none"))),
        "refresh_token_file",
        "No such file",
    );
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    check(
        refresh(Some(&write("empty", "\n"))),
        "refresh_token_file",
        "is empty",
    );
    let key = |text: &str| OauthGrant::JwtBearer(jwt(&write("key", text)));
    check(key("secret-x"), "private_key", "has no private key in PEM");
    let body = STANDARD.encode("secret-x");
    let pem = |kind: &str| format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n");
    check(
        key(&pem("PRIVATE KEY")),
        "private_key",
        "neither an RSA key",
    );
    check(key(&pem("EC PRIVATE KEY")), "private_key", "openssl pkcs8");
    check(
        key(&pem("ENCRYPTED PRIVATE KEY")),
        "private_key",
        "passphrase",
    );
    let missing = OauthGrant::Password(PasswordGrant {
        user: TextOrSecret::Text("alice".into()),
        password: env("P"),
        client_id: None,
        client_secret: Some(env("S")),
    });
    check(missing, "client_id", "is missing");
}
