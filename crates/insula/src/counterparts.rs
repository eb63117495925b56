//! The methods of the admin API and the commands that do the same, and the reverse: each has a
//! counterpart here, or a reason.

use std::collections::BTreeSet;

use clap::{CommandFactory, ValueEnum};

use crate::print::Format;

/// A method, and the command that does the same work.
const COUNTERPARTS: &[(&str, &str)] = &[
    ("AccessService/GrantAccess", "access grant"),
    ("AccessService/RevokeAccess", "access revoke"),
    ("AccessService/ListAccess", "access list"),
    ("AccessService/WhoCan", "access who-can"),
    ("AccessService/ListVisible", "access visible"),
    ("AccessService/GetKubeconfig", "kubeconfig"),
    ("ApiService/ListApis", "apis"),
    ("ApiService/GetApi", "apis show"),
    ("ApiService/RequestApi", "apis request"),
    ("ApiService/ListApiRequests", "apis requests"),
    ("ApiService/DecideApiRequest", "apis approve"),
    ("ApiService/DecideApiRequest", "apis deny"),
    ("ApiService/ListExports", "export list"),
    ("ApiService/GetExport", "export show"),
    ("ApiService/UpdateExport", "export update"),
    ("ApiService/PublishApi", "export publish"),
    ("ApiService/DiffApi", "schema diff"),
    ("ApiService/CheckRollout", "export publish"),
    ("ApiService/PauseRollout", "export pause"),
    ("ApiService/ResumeRollout", "export resume"),
    ("ApiService/AbortRollout", "export abort"),
    ("ApiService/RollbackRelease", "export rollback"),
    ("ApiService/BindApi", "bind apiexport"),
    ("ApiService/UnbindApi", "unbind"),
    ("ApiService/UndeleteBinding", "unbind"),
    ("ApiService/ListClaims", "claims get apibinding"),
    ("ApiService/AcceptClaims", "claims accept"),
    ("ApiService/RejectClaims", "claims reject"),
    ("ApiService/ListConsumers", "export consumers"),
    ("ApiService/GetVersionUsage", "export usage"),
    ("ApiService/LintApi", "schema lint"),
    ("ApiService/RetireVersion", "export retire"),
    ("ApiService/RetireField", "export retire"),
    ("ApiService/RetireField", "conversion retire"),
    ("BackupService/CreateBackup", "backup create"),
    ("BackupService/ListBackups", "backup list"),
    ("BackupService/GetBackup", "backup show"),
    ("BackupService/VerifyBackup", "backup verify"),
    ("BackupService/DeleteBackup", "backup delete"),
    ("BackupService/RestoreBackup", "backup restore"),
    ("BackupService/DownloadBackup", "backup download"),
    ("BackupService/UploadBackup", "backup upload"),
    ("ClusterService/GetInfo", "status"),
    ("ConversionService/Validate", "conversion test"),
    ("ConversionService/Convert", "conversion convert"),
    ("ConversionService/Recompute", "conversion recompute"),
    ("ConversionService/SuggestRules", "conversion suggest"),
    ("ConversionService/GetCoverage", "conversion coverage"),
    ("MaintenanceService/GetHealth", "doctor"),
    ("MaintenanceService/Compact", "server compact"),
    ("MaintenanceService/ListMembers", "server members"),
    ("MaintenanceService/GetConfig", "server config"),
    ("MaintenanceService/GetLogLevel", "server log-level"),
    ("MaintenanceService/SetLogLevel", "server log-level"),
    ("MaintenanceService/ListAuditEvents", "server audit"),
    ("MaintenanceService/GetSupportBundle", "server support-bundle"),
    ("MigrationService/PlanMigration", "migrate tpr"),
    ("MigrationService/BeginMigration", "migrate tpr"),
    ("MigrationService/AdvanceMigration", "migrate tpr"),
    ("MigrationService/UndoMigration", "migrate tpr"),
    ("MigrationService/ListMigrations", "migrate tpr"),
    ("OperationService/GetOperation", "operation show"),
    ("OperationService/ListOperations", "operation list"),
    ("OperationService/CancelOperation", "operation cancel"),
    ("OperationService/WaitOperation", "operation wait"),
    ("OperationService/DeleteOperation", "operation delete"),
    ("QuotaService/GetLimits", "ws limits"),
    ("QuotaService/SetLimits", "ws limits"),
    ("QuotaService/GetUsage", "ws usage"),
    ("QuotaService/ListUsage", "ws usage"),
    ("WorkspaceService/ListWorkspaces", "ws tree"),
    ("WorkspaceService/TreeWorkspaces", "ws tree"),
    ("WorkspaceService/FreezeWorkspace", "ws freeze"),
    ("WorkspaceService/ThawWorkspace", "ws thaw"),
    ("WorkspaceService/CreateWorkspace", "ws create"),
    ("WorkspaceService/UndeleteWorkspace", "ws undelete"),
    ("WorkspaceService/ExplainWorkspace", "ws explain"),
];

/// Methods without a command, and the reason.
const METHODS_ALONE: &[(&str, &str)] = &[
    ("AccessService/CheckAccess", "kubectl auth can-i"),
    (
        "ApiService/ImportDefinitions",
        "export publish makes schemas of definitions, with their export",
    ),
    (
        "ConversionService/ListConversionFailures",
        "export publish --check reads the same objects",
    ),
    ("ObjectService/GetObject", "kubectl get"),
    ("ObjectService/ListObjects", "kubectl get"),
    ("ObjectService/ApplyObject", "kubectl apply --server-side"),
    ("ObjectService/DeleteObject", "kubectl delete"),
    ("ObjectService/WatchObjects", "kubectl get --watch"),
    ("WorkspaceService/GetWorkspace", "kubectl get workspace"),
    ("WorkspaceService/UpdateWorkspace", "kubectl label and kubectl annotate"),
    ("WorkspaceService/DeleteWorkspace", "kubectl delete workspace"),
    ("WorkspaceService/WatchWorkspaces", "kubectl get workspaces --watch"),
];

/// Commands without a method, or groups of them, and the reason.
const COMMANDS_ALONE: &[(&str, &str)] = &[
    ("start", "it is the server"),
    ("demo", "it starts a server"),
    ("ws", "the kubeconfig of this machine"),
    ("create-workspace", "ws create by the name of kcp's plugin"),
    ("boot", "files of this machine"),
    ("explain", "the audit log of this machine"),
    ("samples", "files in the program; PublishApi publishes them"),
    ("plugin", "links on this machine"),
    ("completion", "the shell"),
    ("man", "the manual"),
    ("docs", "the documents in the program"),
    ("version", "the program; GetInfo has the server's"),
    ("conversion check", "a converter on this machine"),
    ("conversion webhook", "it is a server"),
    ("export schemas", "ObjectService lists and deletes the objects"),
];

/// Fields of the requests of writes, and the flags of commands that set them.
const WRITE_FLAGS: [(&str, &str); 3] = [
    ("etag", "etag"),
    ("request_id", "request-id"),
    ("validate_only", "dry-run"),
];

/// Flags of writes that a command lacks, and the reason.
const FLAGS_MISSING: &[(&str, &str, &str)] = &[
    ("access grant", "request-id", ROLES),
    ("access revoke", "etag", "it changes every binding that has the subject"),
    ("access revoke", "request-id", ROLES),
    ("bind apiexport", "request-id", PLUGIN),
    ("claims accept", "request-id", PLUGIN),
    ("claims reject", "request-id", PLUGIN),
    ("conversion recompute", "request-id", PAGES),
    ("conversion retire", "request-id", PAGES),
    ("export publish", "dry-run", "--diff and --check change nothing"),
    (
        "export publish",
        "request-id",
        "it writes the objects themselves: a repetition finds what is there",
    ),
    ("migrate tpr", "request-id", PAGES),
    ("ws create", "request-id", PLUGIN),
];

/// Reasons for several flags.
const PAGES: &str = "it is many calls, a page of objects each, and a repetition goes on";
const PLUGIN: &str = "its requests are those of kcp's plugin, over HTTP, which have no id";
const ROLES: &str = "it writes bindings of roles by their names: a repetition finds what is there";

/// Commands without `-o`, or groups of them, and the reason.
const OUTPUTS_MISSING: &[(&str, &str)] = &[
    ("start", "it is the server"),
    (
        "ws",
        "it enters a workspace or prints the current one, in the words of kcp's plugin; --short is for programs",
    ),
    ("ws use", "it enters a workspace"),
    ("ws current", "it prints the current workspace; --short is for programs"),
    ("ws create-context", "it writes the kubeconfig of this machine"),
    ("kubeconfig", "it prints a kubeconfig, to -o FILE"),
    ("server support-bundle", "it prints one JSON document, to -o FILE"),
    ("conversion webhook", "it is a server"),
    ("boot", "it writes files of this machine"),
    ("samples", "it prints the files of a sample"),
    ("plugin", "it links files of this machine"),
    ("completion", "it prints a script"),
    ("man", "it prints a page of the manual"),
    ("docs", "it serves the documents, or writes them"),
];

/// Returns the commands that run something, as `export show`, and `apis`, which has subcommands
/// besides.
fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let path = format!("{path} {}", below.get_name()).trim_start().to_owned();
        leaves(below, &path, found);
        if !below.is_subcommand_required_set() {
            found.insert(path);
        }
    }
}

fn has_reason(command: &str) -> bool {
    let starts = |prefix: &str| {
        command
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    COMMANDS_ALONE
        .iter()
        .any(|(prefix, reason)| starts(prefix) && !reason.is_empty())
}

#[test]
fn every_method_has_a_command_or_a_reason() {
    let methods: BTreeSet<String> = insula_proto::methods::methods()
        .iter()
        .map(|method| method.name().to_owned())
        .collect();
    let known = COUNTERPARTS
        .iter()
        .chain(METHODS_ALONE)
        .map(|(method, _)| (*method).to_owned());
    let known: BTreeSet<String> = known.collect();
    let missing: Vec<&String> = methods.symmetric_difference(&known).collect();
    assert!(
        missing.is_empty(),
        "methods without a line here, or lines without a method: {missing:#?}"
    );
    let twice = METHODS_ALONE
        .iter()
        .find(|(alone, _)| COUNTERPARTS.iter().any(|(method, _)| method == alone));
    assert_eq!(twice, None, "a method with a command needs no reason");
}

/// Returns the flags of writes that commands lack whose methods have a field for them.
fn missing_flags() -> BTreeSet<(&'static str, &'static str)> {
    let mut cli = super::Cli::command();
    cli.build();
    let methods = insula_proto::methods::methods();
    let mut missing = BTreeSet::new();
    for (method, path) in COUNTERPARTS {
        let fields = methods.iter().find(|it| it.name() == *method).map(|it| &it.fields);
        let command = path
            .split(' ')
            .try_fold(&cli, |command, name| command.find_subcommand(name));
        let command = command.expect(path);
        for (field, flag) in WRITE_FLAGS {
            let has_field = fields.is_some_and(|fields| fields.iter().any(|it| it == field));
            let has_flag = command.get_arguments().any(|it| it.get_long() == Some(flag));
            if has_field && !has_flag {
                missing.insert((*path, flag));
            }
        }
    }
    missing
}

#[test]
fn every_write_has_the_flags_of_its_method_or_a_reason() {
    let known: BTreeSet<(&str, &str)> = FLAGS_MISSING
        .iter()
        .filter(|(.., reason)| !reason.is_empty())
        .map(|(command, flag, _)| (*command, *flag))
        .collect();
    let missing = missing_flags();
    let differences: Vec<_> = missing.symmetric_difference(&known).collect();
    assert!(
        differences.is_empty(),
        "flags without a line here, or lines of flags that are there: {differences:#?}"
    );
}

/// Returns true for the one flag `-o`, with every format.
fn prints_every_format(command: &clap::Command) -> bool {
    let formats: BTreeSet<String> = Format::value_variants().iter().filter_map(name_of).collect();
    command.get_arguments().any(|flag| {
        let values = flag.get_possible_values();
        let values: BTreeSet<String> = values.iter().map(|value| value.get_name().to_owned()).collect();
        flag.get_long() == Some("output") && flag.get_short() == Some('o') && values == formats
    })
}

fn name_of(format: &Format) -> Option<String> {
    Some(format.to_possible_value()?.get_name().to_owned())
}

/// Objects are printed in one way: as a table, wide, as JSON, as YAML, and by their names.
#[test]
fn every_command_prints_in_every_format_or_has_a_reason() {
    let mut cli = super::Cli::command();
    cli.build();
    let mut commands = BTreeSet::new();
    leaves(&cli, "", &mut commands);
    let has_output = |path: &String| {
        let command = path
            .split(' ')
            .try_fold(&cli, |command, name| command.find_subcommand(name));
        prints_every_format(command.expect(path))
    };
    // A line is about a command or, if there is none of its name, about a group.
    let has_line = |path: &str, line: &str| match commands.contains(line) {
        true => path == line,
        false => path.strip_prefix(line).is_some_and(|rest| rest.starts_with(' ')),
    };
    let without: Vec<&String> = commands.iter().filter(|path| !has_output(path)).collect();
    let mut missing = without.clone();
    missing.retain(|path| {
        let mut lines = OUTPUTS_MISSING.iter();
        !lines.any(|(line, reason)| has_line(path, line) && !reason.is_empty())
    });
    assert!(missing.is_empty(), "commands without -o and a reason: {missing:#?}");
    let stale = OUTPUTS_MISSING.iter().map(|(line, _)| *line);
    let stale: Vec<&str> = stale
        .filter(|line| !without.iter().any(|path| has_line(path, line)))
        .collect();
    assert!(stale.is_empty(), "lines of commands that have -o: {stale:#?}");
}

#[test]
fn every_command_has_a_method_or_a_reason() {
    let mut commands = BTreeSet::new();
    leaves(&super::Cli::command(), "", &mut commands);
    let counterparts: BTreeSet<&str> = COUNTERPARTS.iter().map(|(_, command)| *command).collect();
    let unknown: Vec<&&str> = counterparts
        .iter()
        .filter(|command| !commands.contains(**command))
        .collect();
    assert!(unknown.is_empty(), "there are no such commands: {unknown:#?}");
    let alone = commands
        .iter()
        .filter(|command| !counterparts.contains(command.as_str()));
    let missing: Vec<&String> = alone.filter(|command| !has_reason(command)).collect();
    assert!(
        missing.is_empty(),
        "commands without a method and a reason: {missing:#?}"
    );
}
