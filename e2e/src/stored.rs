//! Direct changes to the store of a stopped server: objects as earlier versions of the server
//! stored them, and data that a damaged disk could lose.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use insula_api::{Object, Scope};
use insula_meter::ServerWork;
use insula_store::{
    Entry, Store, TXN_OPS_MAX, Txn, Write,
    embedded::{EmbeddedStore, Options},
};
use serde_json::{Value, json};

use crate::runtime;

/// Passes every stored object of a resource to `edit` and stores the result. Deletes an object that
/// `edit` sets to null. Returns the number of objects.
pub fn edit_stored(data_dir: &Path, plural: &str, edit: impl Fn(&mut Value)) -> usize {
    write_stored(data_dir, plural, |entry, writes| {
        let mut value = entry.object.body_value();
        edit(&mut value);
        writes.push(match value {
            Value::Null => Write::Delete(entry.key.clone()),
            value => {
                let object = Object::new(&value, entry.object.residual().map(Into::into)).unwrap();
                Write::Put(entry.key.clone(), Arc::new(object))
            }
        });
    })
}

/// Stores a number of copies of every object of a resource, under names and UIDs of their own.
pub fn copy_stored(data_dir: &Path, plural: &str, copies: usize) {
    write_stored(data_dir, plural, |entry, writes| {
        let mut value = entry.object.body_value();
        for copy in 0..copies {
            let mut key = entry.key.clone();
            key.name = format!("{}-{copy}", entry.key.name).into();
            value["metadata"]["name"] = json!(&*key.name);
            value["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{copy:012}"));
            let object = Object::new(&value, entry.object.residual().map(Into::into)).unwrap();
            writes.push(Write::Put(key, Arc::new(object.written_under(entry.object.schema()))));
        }
    });
}

/// Returns `group/resource cluster namespace/name` of every stored object.
pub fn stored_keys(data_dir: &Path) -> Vec<String> {
    let store = EmbeddedStore::open(&data_dir.join("store"), Options::default()).unwrap();
    let mut keys = Vec::new();
    store
        .latest()
        .for_server(ServerWork::Tool)
        .for_each(&Scope::everything(), |entry| {
            let key = &entry.key;
            let resource = &key.resource;
            keys.push(format!(
                "{}/{} {} {}/{}",
                resource.group, resource.resource, key.cluster, key.namespace, key.name
            ));
            ControlFlow::Continue(())
        });
    runtime().block_on(store.close());
    keys
}

fn write_stored(data_dir: &Path, plural: &str, write: impl Fn(&Entry, &mut Vec<Write>)) -> usize {
    let store = EmbeddedStore::open(&data_dir.join("store"), Options::default()).unwrap();
    let mut writes = Vec::new();
    store
        .latest()
        .for_server(ServerWork::Tool)
        .for_each(&Scope::everything(), |entry| {
            if *entry.key.resource.resource == *plural {
                write(entry, &mut writes);
            }
            ControlFlow::Continue(())
        });
    runtime().block_on(async {
        for writes in writes.chunks(TXN_OPS_MAX) {
            let txn = Txn {
                guards: Vec::new(),
                writes: writes.to_vec(),
            };
            store.commit(txn).await.unwrap();
        }
        store.close().await;
    });
    writes.len()
}
