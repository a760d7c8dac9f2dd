//! Requests with the credentials of their source.

use feedline_schemas::config::AuthConfig;
use reqwest::{
    Response, StatusCode,
    header::{ACCEPT, HeaderMap, HeaderValue},
};
use url::Url;

use super::Http;
use crate::{
    auth::{
        Auth,
        aws::Unsigned,
        proof::{Proof, without_param},
    },
    classification::{is_used_up, terminal},
    context::RequestContext,
    error::Error,
    hosts::Turn,
    request::Request,
    retry::failed_try::Failure,
    transport::{built, client},
};

const AWS_ADVICE: &str = "check the keys of `auth` and this machine's clock";

/// Credentials of a request, and the number of the login that they are from.
#[derive(Default)]
pub(super) struct Proved {
    pub(super) proof: Proof,
    login: Option<u64>,
}

impl Http {
    /// Adds the credentials of `config` to the client, if it has any.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn with_auth(
        mut self,
        config: Option<&AuthConfig>,
        context: &RequestContext,
    ) -> Result<Self, Error> {
        let Some(config) = config else {
            return Ok(self);
        };
        let client = built(client(&self.transport.limits))?;
        let auth = Auth::new(config, &client, context, &mut self.transport.secretive)?;
        if let Some(name) = auth.header()
            && self.headers.contains_key(name)
        {
            let reason = format!("`headers` has `{name}`, which `auth` sends; remove one of them");
            return Err(Error::config("auth.type", reason));
        }
        if let Auth::Credentials(oauth) = &auth {
            self.transport.guard.configure(oauth.url());
        }
        if let Auth::Session(session) = &auth
            && session.url().origin() != self.origin
        {
            let reason = "has another scheme, host or port than `url`: its cookies would not be for that; give the login of the same host";
            return Err(Error::config("auth.login_url", reason));
        }
        // One budget for each user of a server, identified by a hash of the secrets.
        self.credential ^= auth.credential();
        self.auth = auth;
        Ok(self)
    }

    /// Sends `request` with `headers`, and with credentials where they belong. A refused
    /// token or session is replaced and the request sent again, once.
    pub(super) async fn send_proved(
        &self,
        request: &Request,
        mut headers: HeaderMap,
        turn: &mut Turn,
    ) -> Result<Response, Failure> {
        let url = &request.url;
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        let mut signed = HeaderMap::new();
        if matches!(self.auth, Auth::Aws(_)) {
            signed.extend(self.headers.clone());
            request.add_headers(&mut signed);
            signed.extend(request.content_type());
            signed.extend(headers.clone());
        }
        let unsigned = Unsigned {
            method: &request.method,
            url,
            headers: &signed,
            body: request.body.as_ref().map_or(b"", |body| &body.bytes),
        };
        let proved = self.prove(&unsigned, None).await?;
        let response = self
            .send(request, headers.clone(), &proved.proof, turn)
            .await?;
        if !self.is_proof_refused(url, response.status(), response.headers()) {
            return Ok(response);
        }
        let proved = self.prove(&unsigned, Some(&proved)).await?;
        self.send(request, headers, &proved.proof, turn).await
    }

    /// Returns credentials for a request, other than the `refused` ones. There are none for another
    /// origin than the source's own.
    pub(super) async fn prove(
        &self,
        unsigned: &Unsigned<'_>,
        refused: Option<&Proved>,
    ) -> Result<Proved, Failure> {
        let Self {
            auth, transport, ..
        } = self;
        let url = unsigned.url;
        if url.origin() != self.origin {
            return Ok(Proved::default());
        }
        let (proof, login) = match auth {
            Auth::None => (Proof::default(), None),
            Auth::Fixed(proof) => (Proof::clone(proof), None),
            Auth::Credentials(oauth) => {
                let refused = refused.map(|refused| &refused.proof);
                (oauth.proof(transport, refused).await?, None)
            }
            Auth::Session(session) => {
                let refused = refused.and_then(|refused| refused.login);
                let (proof, login) = session.proof(transport, url, refused).await?;
                (proof, Some(login))
            }
            Auth::Aws(aws) => {
                let proof = aws.sign(unsigned, transport.clock.unix());
                (proof.map_err(|what| terminal(url, what, AWS_ADVICE))?, None)
            }
        };
        Ok(Proved { proof, login })
    }

    /// Returns true if a response to a request for `url` means that its token or session has ended.
    pub(super) fn is_proof_refused(
        &self,
        url: &Url,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> bool {
        let is_refused = match &self.auth {
            Auth::Credentials(_) => status == StatusCode::UNAUTHORIZED,
            Auth::Session(_) => {
                matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                    && !is_used_up(status, self.transport.quota(headers))
            }
            Auth::None | Auth::Fixed(_) | Auth::Aws(_) => false,
        };
        is_refused && url.origin() == self.origin
    }

    /// Returns true if `text` contains a credential and must not be written anywhere.
    #[must_use]
    pub fn is_revealed_by(&self, text: &str) -> bool {
        self.transport.secretive.is_revealed_by(text)
    }

    /// Returns `url` without credentials in its query, as it may be stored. They are sent to the
    /// source's own origin anyway.
    pub(super) fn without_proof(&self, url: Url) -> Url {
        match self.auth.param() {
            Some(param) if url.origin() == self.origin => without_param(url, param),
            _ => url,
        }
    }
}
