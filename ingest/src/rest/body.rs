//! Bodies of requests.

use std::collections::BTreeSet;

use bytes::Bytes;
use feedline_readers::xml::is_outside_of_values;
use feedline_schemas::config::{BodyConfig, GraphqlConfig, SourceConfig};
use reqwest::header::HeaderValue;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::template::{TemplateNode, Text, put};
use crate::{context::Context, error::Error, param::Param};

/// Body of the requests of a source.
#[derive(Debug)]
pub(super) struct Body {
    content_type: HeaderValue,
    content: BodyContent,
    has_secrets: bool,
}

#[derive(Debug)]
enum BodyContent {
    /// A JSON value; its parameters are in it, or in the table of variables in it.
    Json {
        node: TemplateNode,
        is_graphql: bool,
    },
    Form(Vec<(String, TemplateNode)>),
    Xml(Text),
    Text(Text),
}

/// Text in the placeholders of a body of XML while it is checked.
const MARKER: &str = "feedline-place";
/// Key of the variables in the body of a GraphQL request.
const VARIABLES: &str = "variables";

impl Body {
    /// The body that `config` describes, with placeholders for `params`; `None` without one. Its
    /// secrets are added to those of the second part of `secrets`.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown placeholder, or a secret that cannot be found or sent.
    pub(super) fn new(
        config: &SourceConfig,
        params: &[&str],
        (context, secrets): (&Context, &mut Vec<String>),
    ) -> Result<Option<Self>, Error> {
        let before = secrets.len();
        let (content, usual) = match (&config.graphql, &config.body) {
            (Some(graphql), _) => (
                graphql_content(graphql, params, (context, &mut *secrets))?,
                "application/json",
            ),
            (None, Some(body)) => content(body, params, (context, &mut *secrets))?,
            (None, None) => return Ok(None),
        };
        let named = config.body.as_ref();
        let named = named.and_then(|body| body.content_type.as_deref());
        let content_type = HeaderValue::try_from(named.unwrap_or(usual)).map_err(|_| {
            Error::config(
                "body.content_type",
                "has characters that a header cannot carry, such as a line end",
            )
        })?;
        Ok(Some(Self {
            content_type,
            content,
            has_secrets: secrets.len() > before,
        }))
    }

    pub(super) fn content_type(&self) -> &HeaderValue {
        &self.content_type
    }

    /// Adds the names of its placeholders to `holes`.
    pub(super) fn note_holes(&self, holes: &mut BTreeSet<String>) {
        match &self.content {
            BodyContent::Json { node, .. } => node.note_holes(holes),
            BodyContent::Form(fields) => fields.iter().for_each(|(_, node)| node.note_holes(holes)),
            BodyContent::Xml(text) | BodyContent::Text(text) => {
                holes.extend(text.holes().map(ToOwned::to_owned))
            }
        }
    }

    /// Returns true if it has a place for parameters without a placeholder.
    pub(super) fn takes_params(&self) -> bool {
        match &self.content {
            BodyContent::Json { node, .. } => matches!(node, TemplateNode::Table(_)),
            BodyContent::Form(_) => true,
            BodyContent::Xml(_) | BodyContent::Text(_) => false,
        }
    }

    /// The body with `params` in its placeholders, and `others` beside them, as it is sent, and with
    /// masked secrets.
    ///
    /// # Errors
    /// [`Error::Config`] if something else is in the place of a parameter.
    pub(super) fn filled(
        &self,
        params: &[Param<'_>],
        others: &[Param<'_>],
    ) -> Result<(Bytes, Bytes), Error> {
        let sent = self.written(params, others, true)?;
        let named = match self.has_secrets {
            true => self.written(params, others, false)?,
            false => sent.clone(),
        };
        Ok((sent, named))
    }

    fn written(
        &self,
        params: &[Param<'_>],
        others: &[Param<'_>],
        shows_secrets: bool,
    ) -> Result<Bytes, Error> {
        match &self.content {
            BodyContent::Text(text) => Ok(text.filled(params).into()),
            BodyContent::Xml(text) => match text.filled_in_xml(params) {
                Ok(text) => Ok(text.into()),
                Err(name) => Err(Error::config(
                    "body.xml",
                    format!(
                        "has in its placeholder `{{{name}}}` a value with a control character, which XML cannot carry"
                    ),
                )),
            },
            BodyContent::Form(fields) => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                let is_other = |name: &str| others.iter().any(|other| other.name == name);
                for (name, node) in fields.iter().filter(|(name, _)| !is_other(name)) {
                    match node.filled(params, shows_secrets) {
                        Some(Value::String(text)) => form.append_pair(name, &text),
                        Some(other) => form.append_pair(name, &other.to_string()),
                        None => continue,
                    };
                }
                for other in others {
                    form.append_pair(other.name, &other.value);
                }
                Ok(form.finish().into())
            }
            BodyContent::Json { node, is_graphql } => {
                let mut value = node.filled(params, shows_secrets).unwrap_or_default();
                let table = match (&mut value, is_graphql) {
                    (Value::Object(map), true) => map
                        .entry(VARIABLES)
                        .or_insert_with(|| Value::Object(Map::new()))
                        .as_object_mut(),
                    (value, _) => value.as_object_mut(),
                };
                if let Some(table) = table {
                    let key = if *is_graphql {
                        "graphql.variables"
                    } else {
                        "body.json"
                    };
                    for other in others {
                        put(table, other).map_err(|reason| Error::config(key, reason))?;
                    }
                }
                Ok(value.to_string().into())
            }
        }
    }
}

fn content(
    config: &BodyConfig,
    params: &[&str],
    (context, secrets): (&Context, &mut Vec<String>),
) -> Result<(BodyContent, &'static str), Error> {
    match config {
        BodyConfig {
            json: Some(json), ..
        } => {
            let node = TemplateNode::read(json, "body.json", params, (context, secrets))?;
            let is_graphql = false;
            Ok((BodyContent::Json { node, is_graphql }, "application/json"))
        }
        BodyConfig {
            form: Some(form), ..
        } => {
            let mut fields = Vec::new();
            for (name, value) in form {
                let key = format!("body.form.{name}");
                let node = TemplateNode::of_field(value, &key, params, (context, &mut *secrets))?;
                fields.push((name.clone(), node));
            }
            Ok((
                BodyContent::Form(fields),
                "application/x-www-form-urlencoded",
            ))
        }
        BodyConfig { xml: Some(xml), .. } => {
            let text = xml_text(xml, params);
            let text = text.map_err(|reason| Error::config("body.xml", reason))?;
            Ok((BodyContent::Xml(text), "application/xml"))
        }
        BodyConfig { text, .. } => {
            let text = text.as_deref().unwrap_or_default();
            let text = Text::parse(text, params);
            let text = text.map_err(|reason| Error::config("body.text", reason))?;
            Ok((BodyContent::Text(text), "text/plain"))
        }
    }
}

/// A document of XML with placeholders.
///
/// # Errors
/// A message about an unknown placeholder, or one whose values cannot be escaped.
fn xml_text(xml: &str, params: &[&str]) -> Result<Text, String> {
    let text = Text::parse(xml, params)?;
    if is_outside_of_values(&text.marked(MARKER), MARKER) {
        return Err("has a placeholder in a comment, a CDATA section, a processing instruction or a name, where values cannot be escaped; move it into a text or an attribute".into());
    }
    Ok(text)
}

fn graphql_content(
    config: &GraphqlConfig,
    params: &[&str],
    secrets: (&Context, &mut Vec<String>),
) -> Result<BodyContent, Error> {
    let variables = Value::Object(config.variables.clone());
    let variables = TemplateNode::read(&variables, "graphql.variables", params, secrets)?;
    // The braces of a query are no placeholders.
    let fixed = |text: &str| TemplateNode::Fixed(Value::from(text));
    let mut fields = vec![("query".to_owned(), fixed(config.query.text()))];
    let operation = config.operation.as_deref();
    fields.extend(operation.map(|name| ("operationName".to_owned(), fixed(name))));
    fields.push((VARIABLES.to_owned(), variables));
    Ok(BodyContent::Json {
        node: TemplateNode::Table(fields),
        is_graphql: true,
    })
}
