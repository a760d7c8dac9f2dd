//! Hash of the settings that decide which data is fetched.

use feedline_schemas::{config::SourceConfig, ids::Hash128};

use crate::source_table::source_type;

/// Hash of the settings that decide which data is fetched and how it is parsed. Settings that only
/// bound, retry or batch may change between runs, and so may secrets.
pub(crate) fn config_hash(config: &SourceConfig) -> Hash128 {
    let decisive = source_type(config).encode_settings(config);
    Hash128::of(&decisive.expect("settings have string keys and finite numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::pipeline;

    /// Hash of the source `index`, a `files` source at 0 and a `rest` source at 1.
    fn hash(index: usize, settings: &[&str]) -> Hash128 {
        let settings = settings
            .iter()
            .map(|setting| format!("source.{index}.{setting}"));
        let settings: Vec<String> = settings.collect();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        config_hash(&pipeline(&settings).source[index])
    }

    /// Checks that each of `other` changes the hash of a source with the settings `base`, and each
    /// of `same` does not.
    fn check(index: usize, base: &[&str], other: &[&str], same: &[&str]) {
        let with = |setting: &str| hash(index, &[base, &[setting]].concat());
        let plain = hash(index, base);
        for other in other {
            assert_ne!(plain, with(other), "{other}");
        }
        for same in same {
            assert_eq!(plain, with(same), "{same}");
        }
    }

    #[test]
    fn the_hash_of_settings_that_were_there_before_stays() {
        let config = pipeline(&["source.1.params.q='1'", "source.1.pagination.type=cursor"]);
        let hash = config_hash(&config.source[1]);
        assert_eq!(hash.to_string(), "0e4b83b6df0d4603edc6762c2b6b8456");
    }

    #[test]
    fn the_hash_of_files_covers_what_is_read_and_nothing_else() {
        let other = [
            "url=y",
            "records=r",
            "format=csv",
            "csv.null_values=['NA']",
            "csv.decimal_separator=','",
            "csv.percent=true",
            "csv.currency='$'",
            "idx.labels=l",
            "text.separator='--'",
            "archive.member='*.csv'",
        ];
        let same = [
            "batch.rows=3",
            "contract.types=widen",
            "infer.rows=5",
            "csv.null_spellings=none",
            "archive.max_ratio=7",
            "licence=MIT",
        ];
        check(0, &[], &other, &same);
    }

    #[test]
    fn the_hash_of_an_api_covers_what_is_fetched_and_nothing_else() {
        let other = [
            "url=http://i/",
            "params.q='1'",
            "headers.h=v",
            "pagination.type=page",
            "pagination.page_size=7",
            "pagination.type=link",
            "incremental={cursor='c',param='p'}",
            "method=POST",
            "graphql={query='{ a }'}",
            "response.format=csv",
            "csv.delimiter=';'",
        ];
        let same = [
            "limits.requests_per_s=2.5",
            "private_hosts=['a.corp']",
            "trust_proxy=true",
            "tls={ca={file='ca.pem'}}",
            "headers.h={env='H'}",
            "pagination.max_pages=3",
            "retry.max_tries=2",
            "auth={type='bearer',secret={env='T'}}",
            "error_path='error'",
            "refresh=if_changed",
            "archive_raw=true",
            "pagination.max_records=9",
            "pagination.total_path='n'",
        ];
        check(1, &[], &other, &same);
        let offset = ["pagination.offset_param=skip", "pagination.first_offset=1"];
        check(1, &["pagination.type=offset"], &offset, &[]);
    }

    #[test]
    fn the_hash_of_a_crawl_covers_its_pages_and_not_its_pace() {
        let other = ["crawl.depth=1", "crawl.allow=['/a']", "page.land=['/a']"];
        let same = [
            "crawl.delay_ms=1",
            "crawl.contact='x'",
            "crawl.concurrency=2",
            "crawl.refresh=if_changed",
        ];
        check(1, &["type=html"], &other, &same);
    }
}
