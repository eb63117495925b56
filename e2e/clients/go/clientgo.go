package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const namespace = "default"

var lamps = schema.GroupVersionResource{Group: "house.example.io", Version: "v1", Resource: "lamps"}

// What envtest does with the definitions of a project, on a cluster that is there already.
func install(config *rest.Config, file string) {
	existing := true
	environment := envtest.Environment{
		Config:             config,
		UseExistingCluster: &existing,
		CRDInstallOptions:  envtest.CRDInstallOptions{Paths: []string{file}, ErrorIfPathMissing: true},
	}
	got(environment.Start())
}

func lamp(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "house.example.io/v1", "kind": "Lamp",
		"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	}}
}

func discovers(_ context.Context, config *rest.Config) {
	client := discovery.NewDiscoveryClientForConfigOrDie(config)
	check(got(client.ServerVersion()).Major == "1", "version")
	_, resources, err := client.ServerGroupsAndResources()
	must(err)
	names := []string{}
	for _, list := range resources {
		for _, resource := range list.APIResources {
			names = append(names, list.GroupVersion+" "+resource.Name)
		}
	}
	for _, wanted := range []string{"v1 configmaps", "house.example.io/v1 lamps", "house.example.io/v1 lamps/status", "house.example.io/v1 lamps/scale", "example.io/v2 widgets"} {
		check(slices.Contains(names, wanted), wanted, " is not in ", names)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	mapping := got(mapper.RESTMapping(schema.GroupKind{Group: "house.example.io", Kind: "Lamp"}))
	check(mapping.Resource == lamps && mapping.Scope.Name() == meta.RESTScopeNameNamespace, mapping)
	check(got(mapper.KindFor(schema.GroupVersionResource{Resource: "widgets"})).Version == "v2", "preferred version")
	_, err = mapper.RESTMapping(schema.GroupKind{Group: "house.example.io", Kind: "Nothing"})
	check(meta.IsNoMatchError(err), err)
	paths := got(client.OpenAPIV3().Paths())
	document := got(paths["apis/house.example.io/v1"].Schema("application/json"))
	check(json.Valid(document) && len(document) > 1000, "OpenAPI v3")
	// Asked for in protobuf alone.
	check(got(client.OpenAPISchema()).Swagger == "2.0", "OpenAPI v2")
}

func typed(ctx context.Context, config *rest.Config) {
	// As controllers of Kubernetes are set up: protobuf where it is spoken, JSON otherwise.
	binary := rest.CopyConfig(config)
	binary.ContentType = "application/vnd.kubernetes.protobuf"
	binary.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	alone := rest.CopyConfig(binary)
	alone.AcceptContentTypes = "application/vnd.kubernetes.protobuf"
	for index, config := range []*rest.Config{config, binary, alone} {
		client := kubernetes.NewForConfigOrDie(config)
		maps := client.CoreV1().ConfigMaps(namespace)
		made := got(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "map-"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{}))
		made.Data["c"] = "d"
		updated := got(maps.Update(ctx, made, metav1.UpdateOptions{}))
		_, err := maps.Update(ctx, made, metav1.UpdateOptions{})
		check(apierrors.IsConflict(err), err)
		same := got(maps.Update(ctx, updated, metav1.UpdateOptions{}))
		check(same.ResourceVersion == updated.ResourceVersion, "an update without a change")
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: made.Name}}, metav1.CreateOptions{})
		check(apierrors.IsAlreadyExists(err), err)
		patched := got(maps.Patch(ctx, made.Name, types.StrategicMergePatchType, []byte(`{"data":{"c":null}}`), metav1.PatchOptions{}))
		check(len(patched.Data) == 1, patched.Data)
		uid := types.UID("another")
		err = maps.Delete(ctx, made.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		check(apierrors.IsConflict(err), err)
		watch := got(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: patched.ResourceVersion}))
		must(maps.Delete(ctx, made.Name, metav1.DeleteOptions{}))
		_, err = maps.Get(ctx, made.Name, metav1.GetOptions{})
		check(apierrors.IsNotFound(err), err)
		event := <-watch.ResultChan()
		watch.Stop()
		check(event.Type == "DELETED" && event.Object.(*corev1.ConfigMap).Data["a"] == "b", event)
		states(ctx, client, fmt.Sprint("states-", index))
	}
	client := kubernetes.NewForConfigOrDie(config)
	records(ctx, client)
	permits(ctx, client)
}

// Statuses of kinds whose controllers are other people's, by the subresource; every field of them comes back.
func states(ctx context.Context, client kubernetes.Interface, name string) {
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	meta := metav1.ObjectMeta{Name: name}
	space := got(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{}))
	space.Status.Conditions = []corev1.NamespaceCondition{{Type: "Ready", Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: "Made", Message: "it is there"}}
	got(client.CoreV1().Namespaces().UpdateStatus(ctx, space, metav1.UpdateOptions{}))
	spaces := got(client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}))
	check(len(spaces.Items) == 1 && equality.Semantic.DeepEqual(spaces.Items[0].Status, space.Status), spaces.Items)
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	got(policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{"CREATE"}, Rule: admissionv1.Rule{APIGroups: []string{"none.example.io"}, APIVersions: []string{"v1"}, Resources: []string{"nothing"}}}}}},
		Validations: []admissionv1.Validation{{Expression: "true"}},
	}}, metav1.CreateOptions{}))
	conditions := []metav1.Condition{{Type: "Checked", Status: metav1.ConditionTrue, LastTransitionTime: now, Reason: "Checked"}}
	// The server writes this status, too.
	must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		policy := got(policies.Get(ctx, name, metav1.GetOptions{}))
		policy.Status.Conditions = conditions
		_, err := policies.UpdateStatus(ctx, policy, metav1.UpdateOptions{})
		return err
	}))
	checked := got(policies.Get(ctx, name, metav1.GetOptions{}))
	check(equality.Semantic.DeepEqual(checked.Status.Conditions, conditions), checked.Status)
	migrations := client.StoragemigrationV1beta1().StorageVersionMigrations()
	migration := got(migrations.Create(ctx, &storagemigrationv1beta1.StorageVersionMigration{ObjectMeta: meta, Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{
		Resource: metav1.GroupResource{Group: "none.example.io", Resource: "nothing"}}}, metav1.CreateOptions{}))
	check(migration.Spec.Resource.Resource == "nothing", migration.Spec)
}

// Kinds with lists in which empty texts count, and selectors that count when they are empty.
func permits(ctx context.Context, client kubernetes.Interface) {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"", "house.example.io"}, Resources: []string{"secrets"}}}}
	made := got(client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}))
	check(equality.Semantic.DeepEqual(made.Rules, role.Rules), made.Rules)
	anything := &metav1.LabelSelector{}
	rule := admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{"CREATE"}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "check"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{NamespaceSelector: anything, ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}},
		Validations:      []admissionv1.Validation{{Expression: "object.metadata.name != 'x'"}},
	}}
	kept := got(client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}))
	rules := kept.Spec.MatchConstraints.ResourceRules
	check(len(rules) == 1 && rules[0].Resources[0] == "secrets" && rules[0].APIGroups[0] == "" && rules[0].Operations[0] == "CREATE", kept.Spec)
	bound := got(client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "check"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "check", ValidationActions: []admissionv1.ValidationAction{admissionv1.Warn}},
	}, metav1.CreateOptions{}))
	check(bound.Spec.PolicyName == "check", bound.Spec)
	none, url := admissionv1.SideEffectClassNone, "https://hooks.example.io/check"
	hooks := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "check"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "check.example.io", SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, Rules: []admissionv1.RuleWithOperations{rule},
		ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"never": "there"}},
	}}}
	hooked := got(client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, hooks, metav1.CreateOptions{}))
	check(len(hooked.Webhooks) == 1 && *hooked.Webhooks[0].ClientConfig.URL == url, hooked.Webhooks)
}

// Events by the recorder that controllers use; the second one of a kind counts up the first.
func records(ctx context.Context, client kubernetes.Interface) {
	about := got(client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "about"}}, metav1.CreateOptions{}))
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "check"})
	recorder.Event(about, corev1.EventTypeNormal, "Checked", "all is well")
	recorder.Event(about, corev1.EventTypeNormal, "Checked", "all is well")
	until("the event was counted twice", func() bool {
		events := got(client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=about,reason=Checked"}))
		return len(events.Items) == 1 && events.Items[0].Count == 2
	})
	broadcaster.Shutdown()
}

func dynamically(ctx context.Context, config *rest.Config) {
	client := dynamic.NewForConfigOrDie(config).Resource(lamps).Namespace(namespace)
	made := got(client.Create(ctx, lamp("a", map[string]any{"watts": int64(5)}), metav1.CreateOptions{}))
	colour, _, _ := unstructured.NestedString(made.Object, "spec", "colour")
	check(colour == "white" && made.GetGeneration() == 1, made)
	_, err := client.Create(ctx, lamp("b", map[string]any{"watts": int64(-1)}), metav1.CreateOptions{})
	check(apierrors.IsInvalid(err) && apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid), err)
	_, err = client.Create(ctx, lamp("b", map[string]any{"wats": int64(1)}), metav1.CreateOptions{FieldValidation: "Strict"})
	check(apierrors.IsBadRequest(err) && strings.Contains(err.Error(), `unknown field "spec.wats"`), err)
	must(unstructured.SetNestedField(made.Object, "On", "status", "phase"))
	status := got(client.UpdateStatus(ctx, made, metav1.UpdateOptions{}))
	check(status.GetGeneration() == 1, "a status is no generation")
	patched := got(client.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/status/phase","value":"On"},{"op":"replace","path":"/spec/watts","value":6}]`), metav1.PatchOptions{}))
	check(patched.GetGeneration() == 2, patched)
	scale := got(client.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale"))
	check(scale.GetKind() == "Scale", scale)
	for index := range 12 {
		got(client.Create(ctx, lamp(fmt.Sprintf("page-%02d", index), map[string]any{}), metav1.CreateOptions{}))
	}
	lister := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	lister.PageSize = 5
	count := 0
	must(lister.EachListItem(ctx, metav1.ListOptions{}, func(runtime.Object) error { count++; return nil }))
	check(count == 13, count, " in pages")
	white := got(client.List(ctx, metav1.ListOptions{FieldSelector: "spec.colour=white", Limit: 2}))
	check(len(white.Items) == 2 && white.GetContinue() != "", white)
	partial := got(metadata.NewForConfigOrDie(config).Resource(lamps).Namespace(namespace).List(ctx, metav1.ListOptions{}))
	check(len(partial.Items) == 13 && partial.Items[0].Name == "a", partial)
	must(client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	check(len(got(client.List(ctx, metav1.ListOptions{})).Items) == 0, "the collection was deleted")
}

func applies(ctx context.Context, config *rest.Config) {
	client := dynamic.NewForConfigOrDie(config).Resource(lamps).Namespace(namespace)
	room := func(name string) []any { return []any{map[string]any{"name": name}} }
	got(client.Apply(ctx, "s", lamp("s", map[string]any{"watts": int64(5), "rooms": room("hall")}), metav1.ApplyOptions{FieldManager: "one"}))
	both := got(client.Apply(ctx, "s", lamp("s", map[string]any{"rooms": room("attic")}), metav1.ApplyOptions{FieldManager: "two"}))
	rooms, _, _ := unstructured.NestedSlice(both.Object, "spec", "rooms")
	check(len(rooms) == 2 && len(both.GetManagedFields()) == 2, both)
	_, err := client.Apply(ctx, "s", lamp("s", map[string]any{"watts": int64(9)}), metav1.ApplyOptions{FieldManager: "two"})
	check(apierrors.IsConflict(err) && apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict), err)
	forced := got(client.Apply(ctx, "s", lamp("s", map[string]any{"watts": int64(9)}), metav1.ApplyOptions{FieldManager: "two", Force: true}))
	again := got(client.Apply(ctx, "s", lamp("s", map[string]any{"watts": int64(9)}), metav1.ApplyOptions{FieldManager: "two", Force: true}))
	check(forced.GetResourceVersion() == again.GetResourceVersion(), "an apply without a change")
	reported := lamp("s", nil)
	delete(reported.Object, "spec")
	reported.Object["status"] = map[string]any{"phase": "On"}
	done := got(client.ApplyStatus(ctx, "s", reported, metav1.ApplyOptions{FieldManager: "reporter"}))
	phase, _, _ := unstructured.NestedString(done.Object, "status", "phase")
	check(phase == "On", done)
	must(client.Delete(ctx, "s", metav1.DeleteOptions{}))
}

// An informer, which lists through its watch, sees what was there and every change after it.
func informs(ctx context.Context, config *rest.Config) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	everything := dynamic.NewForConfigOrDie(config)
	client := everything.Resource(lamps).Namespace(namespace)
	got(client.Create(ctx, lamp("before", map[string]any{}), metav1.CreateOptions{}))
	factory := dynamicinformer.NewDynamicSharedInformerFactory(everything, 0)
	informer := factory.ForResource(lamps)
	var lock sync.Mutex
	seen := []string{}
	note := func(kind string, object any) {
		lock.Lock()
		defer lock.Unlock()
		seen = append(seen, kind+" "+told(object).GetName())
	}
	got(informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note("add", object) },
		UpdateFunc: func(_, object any) { note("update", object) },
		DeleteFunc: func(object any) { note("delete", object) },
	}))
	factory.Start(ctx.Done())
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		check(synced, "synced")
	}
	got(informer.Lister().ByNamespace(namespace).Get("before"))
	got(client.Create(ctx, lamp("after", map[string]any{}), metav1.CreateOptions{}))
	got(client.Patch(ctx, "after", types.MergePatchType, []byte(`{"spec":{"watts":1}}`), metav1.PatchOptions{}))
	must(client.Delete(ctx, "after", metav1.DeleteOptions{}))
	must(client.Delete(ctx, "before", metav1.DeleteOptions{}))
	wanted := []string{"add before", "add after", "update after", "delete after", "delete before"}
	until("the informer saw everything", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(seen) >= len(wanted)
	})
	check(slices.Equal(seen, wanted), seen)
}

// A bound API in two versions: what one writes, the other reads.
func versions(ctx context.Context, config *rest.Config) {
	widgets := func(version string) dynamic.ResourceInterface {
		resource := schema.GroupVersionResource{Group: "example.io", Version: version, Resource: "widgets"}
		return dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(namespace)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.io/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"firstName": "Bob"},
	}}
	got(widgets("v1").Create(ctx, object, metav1.CreateOptions{}))
	got(widgets("v2").Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"more":"kept"}}`), metav1.PatchOptions{}))
	got(widgets("v1").Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"firstName":"Eve"}}`), metav1.PatchOptions{}))
	spec := got(json.Marshal(got(widgets("v2").Get(ctx, "a", metav1.GetOptions{})).Object["spec"]))
	check(string(spec) == `{"more":"kept","name":{"first":"Eve"}}`, string(spec))
}

// Two candidates: one leads; when it steps down, the other does.
func elects(ctx context.Context, config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	leads := make(chan string, 2)
	candidate := func(name string) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		lock := got(resourcelock.New(resourcelock.LeasesResourceLock, namespace, "leader", client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name}))
		go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads <- name }, OnStoppedLeading: func() {}},
		})
		return cancel
	}
	stepDown := candidate("one")
	check(<-leads == "one", "the first leads")
	defer candidate("two")()
	// In the pause between two renewals: one that is under way would outrun the release.
	time.Sleep(100 * time.Millisecond)
	stepDown()
	check(<-leads == "two", "then the second")
}
