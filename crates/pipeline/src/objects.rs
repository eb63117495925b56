//! The verbs of an [`Authorized`] request on the objects of one resource: what a face calls when
//! it has read the request. A face adds the wire format before and after, and nothing else.
//!
//! Each verb is a method with its own result, and not a case of one enum: a face that creates has
//! no answer of a list to refuse.

use crate::{Authorized, Refusal, home};
use insula_access::{Target, delegate::Delegate};
use insula_api::Json;
use insula_apply::OnConflict;
use insula_auth::audit::Record;
use insula_catalog::{Error, Part};
use insula_registry::{
    Change, Configured, DeleteOptions, Deletion, Deps, FieldValidation, IfAbsent, List, ListOptions, Patch, SentKeys,
    WriteOptions, Written, verbs,
};
use insula_store::Entry;
use std::time::Duration;
use tokio::time::timeout;

/// Time that a write of a definition or of rules waits until it is in force. A trial of many stored
/// objects takes longer.
const IN_FORCE_TIME: Duration = Duration::from_secs(2);
/// The warning about a write that is not in force by then.
const NOT_IN_FORCE: &str = "not in force yet: what was served before is served on; see the condition RolledOut of the \
                            CustomResourceDefinition";

/// The objects that a request is about.
#[derive(Clone, Copy)]
pub struct Objects<'a> {
    /// The registry.
    pub registry: &'a Deps,
    /// The server that decides where the chain of authorizers leaves it to one.
    pub delegate: Option<&'a dyn Delegate>,
    /// The request.
    pub request: &'a Authorized,
    /// The resource, version, cluster and namespace.
    pub target: &'a Target,
    /// Object name; empty for collections.
    pub name: &'a str,
    /// The request's record in the audit log.
    pub record: &'a Record,
}

impl<'a> Objects<'a> {
    /// Returns the options of a write by the user of the request, without a body.
    pub fn options(self, dry_run: bool, field_validation: FieldValidation, manager: String) -> WriteOptions<'a> {
        WriteOptions {
            user: self.request.writer(),
            dry_run,
            field_validation,
            body_bytes: 0,
            keys: SentKeys::default(),
            manager,
            record: self.record.clone(),
        }
    }

    /// Returns the options of a deletion, which validates no fields and has no field manager.
    pub fn deletion_options(self, dry_run: bool) -> WriteOptions<'a> {
        self.options(dry_run, FieldValidation::Ignore, String::new())
    }

    /// Returns the object. The name `~` stands for the home workspace of the user.
    ///
    /// # Errors
    /// There is none; or the home is not ready.
    pub async fn get(self) -> Result<Entry, Refusal> {
        if home::is_requested(self) {
            return home::find(self).await;
        }
        let snapshot = &self.request.scope().snapshot;
        Ok(verbs::get(self.registry, snapshot, self.target, self.name)?)
    }

    /// Returns a page of the collection.
    ///
    /// # Errors
    /// Those of [`verbs::list_at`].
    pub async fn list(self, options: &ListOptions) -> Result<List, Refusal> {
        let scope = self.request.scope();
        Ok(verbs::list_at(self.registry, &scope.snapshot, &scope.read, self.target, options).await?)
    }

    /// Refuses an object whose namespace is another than the path's.
    ///
    /// # Errors
    /// 400 for another namespace.
    pub fn check_namespace(self, new: &Json) -> Result<(), Refusal> {
        let given = new["metadata"]["namespace"].as_str().unwrap_or_default();
        match &self.target.namespace {
            Some(namespace) if !given.is_empty() && given != &**namespace => Err(Refusal::from(Error::BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request".into(),
            ))),
            _ => Ok(()),
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// Those of [`verbs::create`], and another namespace than the path's.
    pub async fn create(self, new: Json, options: &WriteOptions<'_>) -> Result<Written, Refusal> {
        self.check_namespace(&new)?;
        let written = verbs::create(self.registry, self.target, new, options).await?;
        Ok(self.in_force(written, options).await)
    }

    /// Replaces the object, or a part of it. Returns true with it if it was created, which takes
    /// the right to create it.
    ///
    /// # Errors
    /// Those of [`verbs::update`] and [`verbs::create`].
    pub async fn replace(self, new: Json, part: Part, options: &WriteOptions<'_>) -> Result<Configured, Refusal> {
        let created = part == Part::Main && self.is_created_by_replace(&new);
        let written = if created {
            self.check_create().await?;
            verbs::create(self.registry, self.target, new, options).await?
        } else {
            let change = Change::Replace(new);
            verbs::update(self.registry, self.target, self.name, change, part, options).await?
        };
        let written = self.in_force(written, options).await;
        Ok(Configured { written, created })
    }

    /// Returns true for a PUT that creates its object: there is none, and its kind allows that.
    fn is_created_by_replace(self, new: &Json) -> bool {
        self.target.served.api.strategy.traits().created_by_update
            && new["metadata"]["name"] == *self.name
            && !self.exists()
    }

    fn exists(self) -> bool {
        let snapshot = &self.request.scope().snapshot;
        verbs::get(self.registry, snapshot, self.target, self.name).is_ok()
    }

    /// Checks the right to create the object that the path names.
    pub(crate) async fn check_create(self) -> Result<(), Refusal> {
        let right = self.request.right_to_create()?.with_decision(self.delegate).await?;
        self.request.may_create(right, self.record)
    }

    /// Changes the object, or a part of it, by a function.
    ///
    /// # Errors
    /// Those of [`verbs::update`], and of the function.
    pub async fn patch(self, change: &Patch<'_>, part: Part, options: &WriteOptions<'_>) -> Result<Written, Refusal> {
        let change = Change::Patch(change);
        let written = verbs::update(self.registry, self.target, self.name, change, part, options).await?;
        Ok(self.in_force(written, options).await)
    }

    /// Applies a configuration, which creates the object if there is none.
    ///
    /// # Errors
    /// Those of [`verbs::apply`], and the missing right to create the object.
    pub async fn apply(
        self,
        config: &Json,
        on_conflict: OnConflict,
        part: Part,
        options: &WriteOptions<'_>,
    ) -> Result<Configured, Refusal> {
        let creates = part == Part::Main && !self.exists();
        let if_absent = if creates {
            self.check_create().await?;
            IfAbsent::Create
        } else {
            IfAbsent::Refuse
        };
        let (wanted, part) = ((config, on_conflict), (part, if_absent));
        let configured = verbs::apply(self.registry, self.target, self.name, wanted, part, options).await?;
        Ok(Configured {
            written: self.in_force(configured.written, options).await,
            created: configured.created,
        })
    }

    /// Deletes the object.
    ///
    /// # Errors
    /// Those of [`verbs::delete`].
    pub async fn delete(self, how: &DeleteOptions, options: &WriteOptions<'_>) -> Result<Deletion, Refusal> {
        Ok(verbs::delete(self.registry, self.target, self.name, how, options).await?)
    }

    /// Deletes the objects of the collection that are selected. Returns them with warnings.
    ///
    /// # Errors
    /// Those of [`verbs::delete_collection`].
    pub async fn delete_collection(
        self,
        list: &ListOptions,
        how: &DeleteOptions,
        options: &WriteOptions<'_>,
    ) -> Result<(List, Vec<String>), Refusal> {
        Ok(verbs::delete_collection(self.registry, self.target, list, how, options).await?)
    }

    /// Waits until a write is in force: the next request of anybody sees what it changed of an API.
    /// What is not in force in time is told by a warning.
    async fn in_force(self, mut written: Written, options: &WriteOptions<'_>) -> Written {
        let request = &self.target.served.meter;
        let in_force = insula_registry::until_in_force(self.registry, &written.entry.key, request);
        if let Some(in_force) = in_force.filter(|_| !options.dry_run)
            && timeout(IN_FORCE_TIME, in_force).await.is_err()
        {
            written.warnings.push(NOT_IN_FORCE.to_owned());
        }
        written
    }
}
