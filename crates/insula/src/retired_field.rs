//! Removal of what objects hold in a field that their API has no more: counted, confirmed, and done
//! a page at a time.

use std::{collections::BTreeMap, process::ExitCode};

use insula_proto::admin::v1::{RetireFieldRequest, RetireFieldResponse};

use crate::{
    admin::{Admin, Answer, Service, object},
    ask,
    print::{Output, Table},
};

/// A removal that a command asks for.
pub(crate) struct Removal<'a> {
    /// The API, as messages name it.
    pub(crate) api: &'a str,
    /// The export or the definition, as `-o name` prints it.
    pub(crate) name: &'a str,
    pub(crate) is_dry_run: bool,
    pub(crate) is_confirmed: bool,
    pub(crate) output: Output,
}

impl Removal<'_> {
    /// Counts the objects that hold something in the field, asks, and removes it from them.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the request.
    pub(crate) fn run(&self, admin: &Admin, request: RetireFieldRequest) -> anyhow::Result<ExitCode> {
        let path = request.field.clone();
        let mut found = pages(admin, &request, true)?;
        let counted = holders(&found);
        if !found.objects.is_empty() && !self.is_dry_run {
            let (what, api) = (format!("{path} of {counted}"), self.api);
            let is_confirmed = self.is_confirmed
                || match ask::is_interactive() {
                    true => ask::confirm(&format!("Remove {what} of {api} for good?"))?,
                    false => {
                        eprintln!("error: this would remove {what} of {api} for good: confirm it by --yes");
                        false
                    }
                };
            if !is_confirmed {
                return Ok(ExitCode::from(1));
            }
            found = pages(admin, &request, false)?;
        }
        let failed = found.objects.iter().any(|holder| !holder.message.is_empty());
        let mut table = Table::new(&["WORKSPACE", "NAMESPACE", "NAME", "MESSAGE"]);
        for holder in &found.objects {
            table.row(vec![
                holder.workspace.as_str().into(),
                holder.namespace.as_str().into(),
                holder.name.as_str().into(),
                holder.message.as_str().into(),
            ]);
        }
        let done = if self.is_dry_run { "hold it" } else { "held it" };
        eprintln!("note: {counted} {done}; {} were examined", found.examined);
        let mut document = object(&found);
        document["name"] = self.name.into();
        Answer::new(document).table(table).print(self.output, usize::MAX)?;
        Ok(ExitCode::from(u8::from(failed)))
    }
}

fn holders(found: &RetireFieldResponse) -> String {
    let mut workspaces: BTreeMap<&str, usize> = BTreeMap::new();
    for holder in &found.objects {
        *workspaces.entry(&holder.workspace).or_default() += 1;
    }
    let objects = insula_api::counted(found.objects.len(), "object");
    format!("{objects} in {}", insula_api::counted(workspaces.len(), "workspace"))
}

fn pages(admin: &Admin, request: &RetireFieldRequest, validate_only: bool) -> anyhow::Result<RetireFieldResponse> {
    let mut all = RetireFieldResponse::default();
    let mut request = RetireFieldRequest {
        validate_only,
        ..request.clone()
    };
    loop {
        let page: RetireFieldResponse = admin.call((Service::Api, "RetireField"), &request)?;
        all.examined += page.examined;
        all.objects.extend(page.objects);
        all.header = page.header;
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        request.page_token = page.next_page_token;
    }
}
