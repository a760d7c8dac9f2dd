//! Clients of an object store that try each request once, record the heads of its responses, and mask the credentials
//! that they repeat.

use std::{
    collections::BTreeMap,
    error::Error as StdError,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use feedline_http::{
    SecretMasks, StoreConnector, WebOptions,
    clock::{Clock as _, SystemClock},
    mask_failed, refusal, retry_after,
};
use object_store::{
    ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpService, ReqwestConnector,
    },
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    http::HttpBuilder,
    parse_url_opts,
    path::Path,
};
use url::{Position, Url};

use crate::{
    FailureClass, Lane, StoreOptions,
    sent_secrets::{masks_of_variables, sent_secrets},
};

/// Callers have deadlines of their own, which depend on the size of the request.
const NO_TIMEOUT: &str = "1 day";

/// One client per lane, created at its first use.
pub(crate) struct Clients {
    made: RwLock<[Option<Arc<dyn ObjectStore>>; 2]>,
    how: How,
}

enum How {
    /// One client for all lanes: without a network they need not be separate.
    Same(Arc<dyn ObjectStore>),
    Settings(Url, Box<StoreOptions>),
}

impl std::fmt::Debug for Clients {
    /// Shows no fields: the settings hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clients")
    }
}

impl Clients {
    pub(crate) const fn same(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            made: RwLock::new([None, None]),
            how: How::Same(store),
        }
    }

    pub(crate) fn new(url: Url, options: StoreOptions) -> Self {
        Self {
            made: RwLock::new([None, None]),
            how: How::Settings(url, Box::new(options)),
        }
    }

    pub(crate) fn get(&self, lane: Lane) -> object_store::Result<Arc<dyn ObjectStore>> {
        let (url, options) = match &self.how {
            How::Same(store) => return Ok(Arc::clone(store)),
            How::Settings(url, options) => (url, options),
        };
        let made = self.made.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &made[lane as usize] {
            return Ok(Arc::clone(client));
        }
        drop(made);
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut made[lane as usize];
        if slot.is_none() {
            *slot = Some(connect(url, options)?);
        }
        slot.clone().ok_or(object_store::Error::NotImplemented {
            operation: "connect".into(),
            implementer: "Clients".into(),
        })
    }

    /// Forgets the clients, and with them connections and credentials.
    pub(crate) fn forget(&self) {
        *self.made.write().unwrap_or_else(PoisonError::into_inner) = [None, None];
    }
}

/// `$builder` with the settings of `$vars`, for a client that masks the credentials that its store repeats.
macro_rules! configured {
    ($builder:expr, $vars:expr) => {
        $vars
            .iter()
            .fold($builder, |builder, (name, value)| {
                match name.to_ascii_lowercase().parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                }
            })
            .with_http_connector(NotingConnector {
                connector: ReqwestConnector::default(),
                masks: masks_of_variables($vars),
            })
    };
}

/// The client of `$builder` that tries each request once.
macro_rules! tried_once {
    ($builder:expr, $key:ty) => {{
        let builder = $builder
            .with_config(<$key>::Client(ClientConfigKey::Timeout), NO_TIMEOUT)
            .with_retry(once());
        Arc::new(builder.build()?)
    }};
}

fn connect(url: &Url, options: &StoreOptions) -> object_store::Result<Arc<dyn ObjectStore>> {
    let vars = &options.vars;
    Ok(match ObjectStoreScheme::parse(url)?.0 {
        ObjectStoreScheme::AmazonS3 => tried_once!(
            configured!(AmazonS3Builder::new().with_url(url.as_str()), vars),
            AmazonS3ConfigKey
        ),
        ObjectStoreScheme::GoogleCloudStorage => tried_once!(
            configured!(
                GoogleCloudStorageBuilder::new().with_url(url.as_str()),
                vars
            ),
            GoogleConfigKey
        ),
        ObjectStoreScheme::MicrosoftAzure => tried_once!(
            configured!(MicrosoftAzureBuilder::new().with_url(url.as_str()), vars),
            AzureConfigKey
        ),
        _ => {
            let connector = StoreConnector::new(url, &options.web, true);
            let builder = HttpBuilder::new()
                .with_url(server_of(url))
                .with_retry(once())
                .with_http_connector(NotingConnector {
                    connector,
                    masks: SecretMasks::default(),
                });
            Arc::new(builder.build()?)
        }
    })
}

/// Creates a client of the store at `url` that retries transient failures. Returns the path of `url` too.
pub(crate) fn retrying(
    url: &Url,
    vars: &BTreeMap<String, String>,
) -> object_store::Result<(Box<dyn ObjectStore>, Path)> {
    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    let path = Path::parse(path)?;
    let address = url.as_str();
    let store: Box<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let builder = configured!(AmazonS3Builder::new().with_url(address), vars);
            Box::new(builder.build()?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = configured!(GoogleCloudStorageBuilder::new().with_url(address), vars);
            Box::new(builder.build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = configured!(MicrosoftAzureBuilder::new().with_url(address), vars);
            Box::new(builder.build()?)
        }
        // These have no credentials.
        _ => return parse_url_opts(url, vars),
    };
    Ok((store, path))
}

/// Creates a store of http or https files at `url` that retries transient failures.
pub(crate) fn web(
    url: &Url,
    options: &WebOptions,
) -> object_store::Result<Option<Box<dyn ObjectStore>>> {
    if !matches!(ObjectStoreScheme::parse(url)?.0, ObjectStoreScheme::Http) {
        return Ok(None);
    }
    let builder = HttpBuilder::new()
        .with_url(server_of(url))
        .with_http_connector(StoreConnector::new(url, options, false));
    Ok(Some(Box::new(builder.build()?)))
}

/// URL of the server of `url`, without user and password: the client shows it in its errors.
fn server_of(url: &Url) -> String {
    let host = &url[Position::BeforeHost..Position::BeforePath];
    format!("{}://{host}", url.scheme())
}

fn once() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: Duration::ZERO,
        ..RetryConfig::default()
    }
}

/// Known facts about a response besides its body. They travel with the request.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Note>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Note {
    /// Class of the failure, if the request was sent and failed.
    pub(crate) class: Option<FailureClass>,
    pub(crate) retry_after: Option<Duration>,
}

impl Notes {
    pub(crate) fn read(&self) -> Note {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, note: Note) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = note;
    }
}

#[derive(Debug)]
struct NotingConnector<C> {
    connector: C,
    /// Secrets among the variables of the store.
    masks: SecretMasks,
}

impl<C: HttpConnector> HttpConnector for NotingConnector<C> {
    fn connect(&self, options: &object_store::ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(NotingService {
            client: self.connector.connect(options)?,
            masks: self.masks.clone(),
        }))
    }
}

#[derive(Debug)]
struct NotingService {
    client: HttpClient,
    masks: SecretMasks,
}

#[async_trait]
impl HttpService for NotingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let notes = request.extensions().get::<Arc<Notes>>().cloned();
        let secrets = sent_secrets(&request);
        let answer = self.client.execute(request).await;
        if let Some(notes) = notes {
            notes.write(note(&answer));
        }
        Ok(mask_failed(answer?, &self.masks.with(secrets)).await)
    }
}

fn note(answer: &Result<HttpResponse, HttpError>) -> Note {
    match answer {
        Ok(answer) if answer.status().is_success() => Note::default(),
        Ok(answer) => Note {
            class: Some(FailureClass::of_status(answer.status().as_u16())),
            retry_after: {
                let header = |name| answer.headers().get(name)?.to_str().ok();
                header("retry-after")
                    .and_then(|value| retry_after(value, header("date"), SystemClock.unix()))
            },
        },
        Err(error) => Note {
            class: Some(class_of(error)),
            retry_after: None,
        },
    }
}

fn class_of(error: &HttpError) -> FailureClass {
    match error.kind() {
        _ if refusal(error).is_some() => FailureClass::Fatal,
        HttpErrorKind::Timeout => FailureClass::TimedOut,
        HttpErrorKind::Connect => connect_class(error),
        _ => FailureClass::Broken,
    }
}

/// Classifies a failed connection by the texts of its causes: the error of hyper-util about a name is of a private type,
/// and those of rustls have types of the version that reqwest chooses.
fn connect_class(error: &HttpError) -> FailureClass {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if text.contains("dns error") {
            return FailureClass::Dns;
        }
        if ["tls", "handshake", "certificate"]
            .iter()
            .any(|word| text.contains(word))
        {
            return FailureClass::Tls;
        }
        cause = error.source();
    }
    FailureClass::Connect
}
