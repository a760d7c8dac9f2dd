//! The type `html`.

use async_trait::async_trait;
use feedline_schemas::{
    commit::Position,
    config::{Bounded, CrawlConfig, PageExtract, Refresh, SourceConfig},
    report::Warning,
};

use super::address::check_hosts;
use crate::{
    context::Context,
    error::Error,
    source::Source,
    source_type::{EarlierReadings, ReadUnit, SourceType},
};

/// Crawls of sites.
#[derive(Debug)]
pub(crate) struct HtmlType;

#[async_trait]
impl SourceType for HtmlType {
    async fn open(
        &self,
        config: &SourceConfig,
        context: &Context,
    ) -> Result<Box<dyn Source>, Error> {
        super::open(config, context)
    }

    fn check(&self, config: &SourceConfig) -> Result<(), Error> {
        check_hosts(&config.crawl.hosts)
    }

    fn unit(&self) -> ReadUnit {
        ReadUnit::Url
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["headers", "crawl", "page"]
    }

    fn is_idle(&self, _: &SourceConfig, _: &str) -> bool {
        false
    }

    fn uses_key(&self, _: &SourceConfig, _: &str) -> bool {
        true
    }

    fn encode_settings(&self, config: &SourceConfig) -> serde_json::Result<Vec<u8>> {
        let crawl = CrawlConfig {
            delay_ms: Bounded::default(),
            max_crawl_delay_s: Bounded::default(),
            concurrency: 0,
            refresh: Refresh::Never,
            contact: None,
            ..config.crawl.clone()
        };
        serde_json::to_vec(&("html", &config.url, crawl, &config.page))
    }

    fn looks_for_more(&self, config: &SourceConfig) -> bool {
        !config.crawl.refresh.is_never()
    }

    fn recheck_keys(&self, _: &SourceConfig) -> &'static [&'static str] {
        &["crawl.refresh"]
    }

    fn describe_next_run(&self, _: &SourceConfig, _: &EarlierReadings<'_>) -> String {
        "checks every known page for changes".to_owned()
    }

    fn rejects_have_cells(
        &self,
        config: &SourceConfig,
        _: &[Warning],
        _: &Position,
    ) -> Result<bool, Error> {
        Ok(config.page.extract == PageExtract::Tables)
    }
}
