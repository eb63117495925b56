//! Views of `topology.kcp.io`.

use super::views;
use crate::Json;

views! {
    /// PartitionSet: a [`Partition`] for each combination of label values that shards have.
    PartitionSet {
        /// Desired state.
        spec: PartitionSetSpec,
    }

    /// Desired state of a [`PartitionSet`].
    PartitionSetSpec {
        /// Label keys whose combinations of values make partitions.
        dimensions: Vec<String>,
        /// Label selector of the shards; `null` selects all.
        shard_selector: Json,
    }

    /// Partition: the shards that a label selector chooses.
    Partition {
        /// Desired state.
        spec: PartitionSpec,
    }

    /// Desired state of a [`Partition`].
    PartitionSpec {
        /// Label selector of the shards; `null` selects all.
        selector: Json,
    }
}
