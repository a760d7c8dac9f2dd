//! A server of any routes.

use std::sync::Arc;

use axum::Router;

/// A server on loopback that collects `S` about its requests.
#[derive(Debug)]
pub struct Served<S> {
    /// Address, without a path.
    pub url: String,
    /// State of its handlers.
    pub seen: Arc<S>,
    task: tokio::task::JoinHandle<()>,
}

impl<S> Drop for Served<S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<S: Default + Send + Sync + 'static> Served<S> {
    /// Serves `router`, whose handlers have the state.
    pub async fn start(router: Router<Arc<S>>) -> Self {
        let seen = Arc::<S>::default();
        let router = router.with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen, task }
    }
}
