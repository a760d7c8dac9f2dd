//! Lower bound of the fetch time: reads the pages of `bench/ingest/server.py` to their end and
//! discards them.
//!
//! `cargo bench -p feedline-ingest --bench floor -- URL STREAMS`: follows `next` of each stream,
//! all concurrently, as `bench/ingest/run.sh` does. A refused page is retried at once. Without
//! arguments there is nothing to read.
#![expect(clippy::unwrap_used, reason = "a failed request ends the bench")]
#![expect(clippy::print_stdout, reason = "the result is for a person")]

use futures::future::join_all;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [url, streams] = &*words else {
        println!("nothing is read: name a URL and a number of streams");
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let streams =
        (0..streams.parse::<u32>().unwrap()).map(|n| stream(&client, format!("{url}/stream/{n}")));
    let read = runtime.block_on(join_all(streams));
    println!(
        "{} pages, {} bytes",
        read.iter().map(|r| r.0).sum::<u64>(),
        read.iter().map(|r| r.1).sum::<u64>()
    );
}

/// Pages and bytes of a stream.
async fn stream(client: &reqwest::Client, first: String) -> (u64, u64) {
    let (mut pages, mut bytes, mut at) = (0, 0, first.clone());
    loop {
        let response = client.get(&at).send().await.unwrap();
        if !response.status().is_success() {
            continue;
        }
        let body = response.bytes().await.unwrap();
        pages += 1;
        bytes += body.len() as u64;
        // The token is the last thing in a page: `"next":"..."}`.
        let end = String::from_utf8_lossy(&body[body.len().saturating_sub(64)..]).into_owned();
        match end
            .rsplit_once("\"next\":\"")
            .and_then(|(_, token)| token.strip_suffix("\"}"))
        {
            Some(token) => at = format!("{first}?after={token}"),
            None => return (pages, bytes),
        }
    }
}
