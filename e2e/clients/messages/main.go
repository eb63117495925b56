// Kubernetes' protobuf messages by its own Go types: "table" prints their fields as data, "samples SEED COUNT" objects of every kind in JSON and in protobuf.
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	admission "k8s.io/api/admissionregistration/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	rbac "k8s.io/api/rbac/v1"
	storagemigration "k8s.io/api/storagemigration/v1beta1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	registrationbeta "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
)

// A kind that is read or written in protobuf.
type root struct {
	apiVersion, kind string
	object           any
}

const (
	admissionVersion      = "admissionregistration.k8s.io/v1"
	authenticationVersion = "authentication.k8s.io/v1"
	authorizationVersion  = "authorization.k8s.io/v1"
	flowVersion           = "flowcontrol.apiserver.k8s.io/v1"
	rbacVersion           = "rbac.authorization.k8s.io/v1"
	metaVersion           = "meta.k8s.io/v1"
)

var roots = []root{
	{"v1", "ConfigMap", core.ConfigMap{}}, {"v1", "ConfigMapList", core.ConfigMapList{}},
	{"v1", "Event", core.Event{}}, {"v1", "EventList", core.EventList{}},
	{"v1", "Namespace", core.Namespace{}}, {"v1", "NamespaceList", core.NamespaceList{}},
	{"v1", "ResourceQuota", core.ResourceQuota{}}, {"v1", "ResourceQuotaList", core.ResourceQuotaList{}},
	{"v1", "Secret", core.Secret{}}, {"v1", "SecretList", core.SecretList{}},
	{"v1", "ServiceAccount", core.ServiceAccount{}}, {"v1", "ServiceAccountList", core.ServiceAccountList{}},
	{admissionVersion, "MutatingAdmissionPolicy", admission.MutatingAdmissionPolicy{}},
	{admissionVersion, "MutatingAdmissionPolicyList", admission.MutatingAdmissionPolicyList{}},
	{admissionVersion, "MutatingAdmissionPolicyBinding", admission.MutatingAdmissionPolicyBinding{}},
	{admissionVersion, "MutatingAdmissionPolicyBindingList", admission.MutatingAdmissionPolicyBindingList{}},
	{admissionVersion, "MutatingWebhookConfiguration", admission.MutatingWebhookConfiguration{}},
	{admissionVersion, "MutatingWebhookConfigurationList", admission.MutatingWebhookConfigurationList{}},
	{admissionVersion, "ValidatingAdmissionPolicy", admission.ValidatingAdmissionPolicy{}},
	{admissionVersion, "ValidatingAdmissionPolicyList", admission.ValidatingAdmissionPolicyList{}},
	{admissionVersion, "ValidatingAdmissionPolicyBinding", admission.ValidatingAdmissionPolicyBinding{}},
	{admissionVersion, "ValidatingAdmissionPolicyBindingList", admission.ValidatingAdmissionPolicyBindingList{}},
	{admissionVersion, "ValidatingWebhookConfiguration", admission.ValidatingWebhookConfiguration{}},
	{admissionVersion, "ValidatingWebhookConfigurationList", admission.ValidatingWebhookConfigurationList{}},
	{"apiextensions.k8s.io/v1", "CustomResourceDefinition", extensions.CustomResourceDefinition{}},
	{"apiextensions.k8s.io/v1", "CustomResourceDefinitionList", extensions.CustomResourceDefinitionList{}},
	{"apiregistration.k8s.io/v1", "APIService", registration.APIService{}},
	{"apiregistration.k8s.io/v1", "APIServiceList", registration.APIServiceList{}},
	{"apiregistration.k8s.io/v1beta1", "APIService", registrationbeta.APIService{}},
	{"apiregistration.k8s.io/v1beta1", "APIServiceList", registrationbeta.APIServiceList{}},
	{authenticationVersion, "SelfSubjectReview", authentication.SelfSubjectReview{}},
	{authenticationVersion, "TokenRequest", authentication.TokenRequest{}},
	{authenticationVersion, "TokenReview", authentication.TokenReview{}},
	{authorizationVersion, "LocalSubjectAccessReview", authorization.LocalSubjectAccessReview{}},
	{authorizationVersion, "SelfSubjectAccessReview", authorization.SelfSubjectAccessReview{}},
	{authorizationVersion, "SelfSubjectRulesReview", authorization.SelfSubjectRulesReview{}},
	{authorizationVersion, "SubjectAccessReview", authorization.SubjectAccessReview{}},
	{"autoscaling/v1", "Scale", autoscaling.Scale{}},
	{"certificates.k8s.io/v1", "CertificateSigningRequest", certificates.CertificateSigningRequest{}},
	{"certificates.k8s.io/v1", "CertificateSigningRequestList", certificates.CertificateSigningRequestList{}},
	{"coordination.k8s.io/v1", "Lease", coordination.Lease{}}, {"coordination.k8s.io/v1", "LeaseList", coordination.LeaseList{}},
	{"events.k8s.io/v1", "Event", events.Event{}}, {"events.k8s.io/v1", "EventList", events.EventList{}},
	{flowVersion, "FlowSchema", flowcontrol.FlowSchema{}}, {flowVersion, "FlowSchemaList", flowcontrol.FlowSchemaList{}},
	{flowVersion, "PriorityLevelConfiguration", flowcontrol.PriorityLevelConfiguration{}},
	{flowVersion, "PriorityLevelConfigurationList", flowcontrol.PriorityLevelConfigurationList{}},
	{rbacVersion, "ClusterRole", rbac.ClusterRole{}}, {rbacVersion, "ClusterRoleList", rbac.ClusterRoleList{}},
	{rbacVersion, "ClusterRoleBinding", rbac.ClusterRoleBinding{}}, {rbacVersion, "ClusterRoleBindingList", rbac.ClusterRoleBindingList{}},
	{rbacVersion, "Role", rbac.Role{}}, {rbacVersion, "RoleList", rbac.RoleList{}},
	{rbacVersion, "RoleBinding", rbac.RoleBinding{}}, {rbacVersion, "RoleBindingList", rbac.RoleBindingList{}},
	{"storagemigration.k8s.io/v1beta1", "StorageVersionMigration", storagemigration.StorageVersionMigration{}},
	{"storagemigration.k8s.io/v1beta1", "StorageVersionMigrationList", storagemigration.StorageVersionMigrationList{}},
	{"v1", "Status", meta.Status{}}, {"v1", "APIGroup", meta.APIGroup{}}, {"v1", "APIGroupList", meta.APIGroupList{}},
	{"v1", "APIResourceList", meta.APIResourceList{}}, {"v1", "APIVersions", meta.APIVersions{}},
	{metaVersion, "DeleteOptions", meta.DeleteOptions{}},
	{metaVersion, "PartialObjectMetadata", meta.PartialObjectMetadata{}},
	{metaVersion, "PartialObjectMetadataList", meta.PartialObjectMetadataList{}},
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "table":
		table(out)
	case len(os.Args) == 4 && os.Args[1] == "samples":
		seed, err := strconv.ParseUint(os.Args[2], 10, 64)
		must(err)
		count, err := strconv.Atoi(os.Args[3])
		must(err)
		random := rand.New(rand.NewPCG(seed, 0))
		for range count {
			for _, root := range roots {
				sample(out, root, random)
			}
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: messages table | samples SEED COUNT")
		os.Exit(2)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
