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
        let is_home = url.origin() == self.origin;
        match &self.auth {
            Auth::Fixed(proof) if is_home => self.send(request, headers, proof, turn).await,
            Auth::Credentials(oauth) if is_home => {
                let proof = oauth.proof(&self.transport, None).await?;
                let response = self.send(request, headers.clone(), &proof, turn).await?;
                if response.status() != StatusCode::UNAUTHORIZED {
                    return Ok(response);
                }
                let proof = oauth.proof(&self.transport, Some(&proof)).await?;
                self.send(request, headers, &proof, turn).await
            }
            Auth::Session(session) if is_home => {
                let (proof, login) = session.proof(&self.transport, url, None).await?;
                let response = self.send(request, headers.clone(), &proof, turn).await?;
                if !self.is_logged_out(&response) {
                    return Ok(response);
                }
                let (proof, _) = session.proof(&self.transport, url, Some(login)).await?;
                self.send(request, headers, &proof, turn).await
            }
            Auth::Aws(aws) if is_home => {
                let mut all = self.headers.clone();
                request.add_headers(&mut all);
                all.extend(request.content_type());
                all.extend(headers.clone());
                let unsigned = Unsigned {
                    method: &request.method,
                    url,
                    headers: &all,
                    body: request.body.as_ref().map_or(b"", |body| &body.bytes),
                };
                let proof = aws.sign(&unsigned, self.transport.clock.unix());
                let proof = proof.map_err(|what| terminal(url, what, AWS_ADVICE))?;
                self.send(request, headers, &proof, turn).await
            }
            _ => self.send(request, headers, &Proof::default(), turn).await,
        }
    }

    /// Returns true if a response means that the session has ended.
    fn is_logged_out(&self, response: &Response) -> bool {
        let status = response.status();
        matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            && !is_used_up(status, self.transport.quota(response.headers()))
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
