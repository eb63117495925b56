/// Calls a macro with all services and methods of the admin API.
#[macro_export]
macro_rules! for_each_service { ($each:ident) => { $each! {
access_service_server::AccessService "insula.admin.v1.AccessService" {
unary "/insula.admin.v1.AccessService/GrantAccess" grant_access;
unary "/insula.admin.v1.AccessService/RevokeAccess" revoke_access;
unary "/insula.admin.v1.AccessService/ListAccess" list_access;
unary "/insula.admin.v1.AccessService/WhoCan" who_can;
unary "/insula.admin.v1.AccessService/CheckAccess" check_access;
unary "/insula.admin.v1.AccessService/GetKubeconfig" get_kubeconfig;
unary "/insula.admin.v1.AccessService/ListVisible" list_visible;
}
api_service_server::ApiService "insula.admin.v1.ApiService" {
unary "/insula.admin.v1.ApiService/ListExports" list_exports;
unary "/insula.admin.v1.ApiService/GetExport" get_export;
unary "/insula.admin.v1.ApiService/PublishApi" publish_api;
unary "/insula.admin.v1.ApiService/DiffApi" diff_api;
unary "/insula.admin.v1.ApiService/CheckRollout" check_rollout;
unary "/insula.admin.v1.ApiService/PauseRollout" pause_rollout;
unary "/insula.admin.v1.ApiService/ResumeRollout" resume_rollout;
unary "/insula.admin.v1.ApiService/AbortRollout" abort_rollout;
unary "/insula.admin.v1.ApiService/ImportDefinitions" import_definitions;
unary "/insula.admin.v1.ApiService/BindApi" bind_api;
unary "/insula.admin.v1.ApiService/UnbindApi" unbind_api;
unary "/insula.admin.v1.ApiService/ListClaims" list_claims;
unary "/insula.admin.v1.ApiService/AcceptClaims" accept_claims;
unary "/insula.admin.v1.ApiService/RejectClaims" reject_claims;
unary "/insula.admin.v1.ApiService/ListConsumers" list_consumers;
unary "/insula.admin.v1.ApiService/GetVersionUsage" get_version_usage;
unary "/insula.admin.v1.ApiService/LintApi" lint_api;
unary "/insula.admin.v1.ApiService/RetireVersion" retire_version;
}
operation_service_server::OperationService "insula.admin.v1.OperationService" {
unary "/insula.admin.v1.OperationService/GetOperation" get_operation;
unary "/insula.admin.v1.OperationService/ListOperations" list_operations;
unary "/insula.admin.v1.OperationService/CancelOperation" cancel_operation;
unary "/insula.admin.v1.OperationService/WaitOperation" wait_operation;
unary "/insula.admin.v1.OperationService/DeleteOperation" delete_operation;
}
backup_service_server::BackupService "insula.admin.v1.BackupService" {
unary "/insula.admin.v1.BackupService/CreateBackup" create_backup;
unary "/insula.admin.v1.BackupService/ListBackups" list_backups;
unary "/insula.admin.v1.BackupService/GetBackup" get_backup;
unary "/insula.admin.v1.BackupService/VerifyBackup" verify_backup;
unary "/insula.admin.v1.BackupService/DeleteBackup" delete_backup;
unary "/insula.admin.v1.BackupService/RestoreBackup" restore_backup;
server_streaming "/insula.admin.v1.BackupService/DownloadBackup" download_backup;
client_streaming "/insula.admin.v1.BackupService/UploadBackup" upload_backup;
}
cluster_service_server::ClusterService "insula.admin.v1.ClusterService" {
unary "/insula.admin.v1.ClusterService/GetInfo" get_info;
}
conversion_service_server::ConversionService "insula.admin.v1.ConversionService" {
unary "/insula.admin.v1.ConversionService/Validate" validate;
unary "/insula.admin.v1.ConversionService/Convert" convert;
unary "/insula.admin.v1.ConversionService/Recompute" recompute;
unary "/insula.admin.v1.ConversionService/SuggestRules" suggest_rules;
unary "/insula.admin.v1.ConversionService/GetCoverage" get_coverage;
unary "/insula.admin.v1.ConversionService/ListConversionFailures" list_conversion_failures;
}
maintenance_service_server::MaintenanceService "insula.admin.v1.MaintenanceService" {
unary "/insula.admin.v1.MaintenanceService/Compact" compact;
unary "/insula.admin.v1.MaintenanceService/GetHealth" get_health;
unary "/insula.admin.v1.MaintenanceService/ListMembers" list_members;
unary "/insula.admin.v1.MaintenanceService/GetConfig" get_config;
unary "/insula.admin.v1.MaintenanceService/GetLogLevel" get_log_level;
unary "/insula.admin.v1.MaintenanceService/SetLogLevel" set_log_level;
server_streaming "/insula.admin.v1.MaintenanceService/GetSupportBundle" get_support_bundle;
}
migration_service_server::MigrationService "insula.admin.v1.MigrationService" {
unary "/insula.admin.v1.MigrationService/PlanMigration" plan_migration;
unary "/insula.admin.v1.MigrationService/BeginMigration" begin_migration;
unary "/insula.admin.v1.MigrationService/AdvanceMigration" advance_migration;
unary "/insula.admin.v1.MigrationService/UndoMigration" undo_migration;
unary "/insula.admin.v1.MigrationService/ListMigrations" list_migrations;
}
object_service_server::ObjectService "insula.admin.v1.ObjectService" {
unary "/insula.admin.v1.ObjectService/GetObject" get_object;
unary "/insula.admin.v1.ObjectService/ListObjects" list_objects;
unary "/insula.admin.v1.ObjectService/ApplyObject" apply_object;
unary "/insula.admin.v1.ObjectService/DeleteObject" delete_object;
server_streaming "/insula.admin.v1.ObjectService/WatchObjects" watch_objects;
}
quota_service_server::QuotaService "insula.admin.v1.QuotaService" {
unary "/insula.admin.v1.QuotaService/GetLimits" get_limits;
unary "/insula.admin.v1.QuotaService/SetLimits" set_limits;
unary "/insula.admin.v1.QuotaService/GetUsage" get_usage;
unary "/insula.admin.v1.QuotaService/ListUsage" list_usage;
}
workspace_service_server::WorkspaceService "insula.admin.v1.WorkspaceService" {
unary "/insula.admin.v1.WorkspaceService/ListWorkspaces" list_workspaces;
unary "/insula.admin.v1.WorkspaceService/GetWorkspace" get_workspace;
server_streaming "/insula.admin.v1.WorkspaceService/TreeWorkspaces" tree_workspaces;
unary "/insula.admin.v1.WorkspaceService/FreezeWorkspace" freeze_workspace;
unary "/insula.admin.v1.WorkspaceService/ThawWorkspace" thaw_workspace;
unary "/insula.admin.v1.WorkspaceService/CreateWorkspace" create_workspace;
unary "/insula.admin.v1.WorkspaceService/UpdateWorkspace" update_workspace;
unary "/insula.admin.v1.WorkspaceService/DeleteWorkspace" delete_workspace;
unary "/insula.admin.v1.WorkspaceService/UndeleteWorkspace" undelete_workspace;
server_streaming "/insula.admin.v1.WorkspaceService/WatchWorkspaces" watch_workspaces;
unary "/insula.admin.v1.WorkspaceService/ExplainWorkspace" explain_workspace;
}
} } }
