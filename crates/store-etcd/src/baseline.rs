//! Puts without a store: etcd's own rate, which that of a store is compared with.

use etcd_client::{Client, KvClient};

/// A connection to etcd. The keys are outside of those of a store.
#[derive(Clone)]
pub struct Puts(KvClient);

impl Puts {
    /// Connects to a member, such as `http://127.0.0.1:2379`.
    ///
    /// # Errors
    /// The reason why it cannot be reached.
    pub async fn connect(endpoint: &str) -> Result<Self, String> {
        let client = Client::connect([endpoint], None).await;
        Ok(Puts(client.map_err(|error| error.to_string())?.kv_client()))
    }

    /// Writes a value, which is durable when this returns.
    ///
    /// # Errors
    /// The reason why etcd refuses it.
    pub async fn put(&self, name: &str, value: Vec<u8>) -> Result<(), String> {
        let key = format!("/insula-baseline/{name}");
        let put = self.0.clone().put(key, value, None).await;
        put.map(drop).map_err(|error| error.to_string())
    }
}
