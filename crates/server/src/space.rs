//! Alarm of a full disk, in the log and in the metrics. The check of the store also ends the alarm
//! once there is space again.

use std::{sync::Arc, time::Duration};

use insula_store::Store;

use crate::metrics::Metrics;

const PERIOD: Duration = Duration::from_secs(1);

/// Checks the store periodically, for as long as the server runs.
pub(crate) async fn follow(store: Arc<dyn Store>, metrics: Arc<Metrics>) {
    let mut is_full = false;
    loop {
        let alarm = store.alarm();
        match &alarm {
            Some(alarm) if !is_full => tracing::error!("{alarm}"),
            None if is_full => tracing::info!("there is space on the disk again; everything is taken"),
            Some(_) | None => {}
        }
        is_full = alarm.is_some();
        metrics.disk_full(is_full);
        tokio::time::sleep(PERIOD).await;
    }
}
