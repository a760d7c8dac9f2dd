//! The embedded API behind `demo://market`, started for a source.

pub(crate) use feedline_demo::{DemoServer, PATH};

use feedline_demo::DemoError;
use feedline_http::HttpCause;

use crate::error::Error;

/// Starts the server that `url` (`demo://market?...`) describes.
pub(crate) async fn serve(url: &str) -> Result<DemoServer, Error> {
    feedline_demo::serve(url)
        .await
        .map_err(|error| match error {
            DemoError::Url(reason) => Error::config("url", reason),
            DemoError::Port(cause) => Error::Http {
                url: "demo://market".into(),
                cause: HttpCause::Other,
                what: format!("cannot open a port on 127.0.0.1: {cause}"),
                advice: "allow the program to listen on loopback, or name another source".into(),
            },
        })
}

#[cfg(test)]
mod tests {
    use feedline_demo::RUDE_SEED;
    use feedline_schemas::config::PaginationKind;

    use crate::testing::{config, read_all, set_key};

    #[tokio::test]
    async fn a_rude_server_is_read_whole_and_so_is_a_row_of_servers() {
        let mut config = config(
            &format!("demo://market?seed={RUDE_SEED}&rows=298&page_size=5"),
            PaginationKind::Cursor,
        );
        config.records = "data.items".into();
        set_key(&mut config, "cursor_path", "paging.next_cursor");
        let (rude, requests) = read_all(&config, usize::MAX).await.unwrap();
        assert_eq!(rude.len(), 298);
        assert!(requests.retries >= 5, "{requests:?}");
        assert_eq!(read_all(&config, 7).await.unwrap().0, rude);
        config.url += "&rude=false";
        let (polite, requests) = read_all(&config, usize::MAX).await.unwrap();
        assert_eq!((requests.requests, requests.retries), (60, 0));
        assert_eq!(polite, rude);
    }
}
