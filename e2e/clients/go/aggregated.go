package main

// The kinds of k8s.io/sample-apiserver, whose server the workspace proxies to.

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
)

const binaryType = "application/vnd.kubernetes.protobuf"

var (
	alpha       = schema.GroupVersion{Group: "wardle.example.com", Version: "v1alpha1"}
	beta        = schema.GroupVersion{Group: "wardle.example.com", Version: "v1beta1"}
	flunders    = beta.WithResource("flunders")
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// Flunder as v1alpha1 has it.
type Flunder struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              FlunderSpec `json:"spec,omitempty"`
}

type FlunderSpec struct {
	Reference     string  `json:"reference,omitempty"`
	ReferenceType *string `json:"referenceType,omitempty"`
}

type FlunderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Flunder `json:"items"`
}

func (in *Flunder) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (in *FlunderList) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = slices.Clone(in.Items)
	return &out
}

// What client-gen makes of the group: it accepts protobuf, and JSON otherwise.
func wardle(config *rest.Config) (rest.Interface, runtime.ParameterCodec) {
	known := runtime.NewScheme()
	known.AddKnownTypes(alpha, &Flunder{}, &FlunderList{})
	metav1.AddToGroupVersion(known, alpha)
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"})
	own := rest.CopyConfig(config)
	own.GroupVersion, own.APIPath = &alpha, "/apis"
	own.AcceptContentTypes = binaryType + ",application/json"
	own.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(known, serializer.NewCodecFactory(known)).WithoutConversion()
	return got(rest.RESTClientFor(own)), runtime.NewParameterCodec(known)
}

func flunder(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": beta.String(), "kind": "Flunder", "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	}}
}

func discoversExtension(_ context.Context, config *rest.Config) {
	client := discovery.NewDiscoveryClientForConfigOrDie(config)
	// In one request, the aggregated form.
	groups, resources, failed, err := client.GroupsAndMaybeResources()
	must(err)
	check(len(failed) == 0 && resources[alpha] != nil && resources[beta] != nil, failed, resources)
	names := []string{}
	for _, resource := range resources[alpha].APIResources {
		names = append(names, resource.Name+" "+resource.Kind+" "+fmt.Sprint(resource.Namespaced))
	}
	slices.Sort(names)
	check(slices.Equal(names, []string{"fischers Fischer false", "flunders Flunder true"}), names)
	group := groups.Groups[slices.IndexFunc(groups.Groups, func(group metav1.APIGroup) bool { return group.Name == beta.Group })]
	check(group.PreferredVersion.Version == "v1beta1" && len(group.Versions) == 2, group)
	// Older clients ask for each group version.
	client.UseLegacyDiscovery = true
	list := got(client.ServerResourcesForGroupVersion(beta.String()))
	check(list.APIResources[0].Name == "flunders", list)
	_, _, err = client.ServerGroupsAndResources()
	must(err)
	client.UseLegacyDiscovery = false
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	mapping := got(mapper.RESTMapping(schema.GroupKind{Group: beta.Group, Kind: "Flunder"}))
	check(mapping.Resource == flunders && mapping.Scope.Name() == meta.RESTScopeNameNamespace, mapping)
	mapping = got(mapper.RESTMapping(schema.GroupKind{Group: beta.Group, Kind: "Fischer"}))
	check(mapping.Resource.Version == "v1alpha1" && mapping.Scope.Name() == meta.RESTScopeNameRoot, mapping)
	check(got(mapper.ResourceFor(schema.GroupVersionResource{Resource: "flunders"})) == flunders, "by its resource alone")
	// What kubectl explain and server-side apply read.
	document := got(got(client.OpenAPIV3().Paths())["apis/"+beta.String()].Schema("application/json"))
	check(strings.Contains(string(document), "mutually exclusive to the FischerReference"), string(document))
	found := false
	for _, definition := range got(client.OpenAPISchema()).Definitions.AdditionalProperties {
		found = found || strings.HasSuffix(definition.Name, "v1beta1.Flunder")
	}
	check(found, "OpenAPI v2, in protobuf")
}

func typedExtension(ctx context.Context, config *rest.Config) {
	client, parameters := wardle(config)
	at := func(request *rest.Request) *rest.Request { return request.Namespace(namespace).Resource("flunders") }
	first := &Flunder{ObjectMeta: metav1.ObjectMeta{Name: "my-first-flunder", Labels: map[string]string{"sample-label": "true"}}}
	made := &Flunder{}
	must(at(client.Post()).Body(first).Do(ctx).Into(made))
	check(made.UID != "" && made.Spec.ReferenceType == nil, made)
	made.Spec.Reference = "another"
	updated := &Flunder{}
	must(at(client.Put()).Name(made.Name).Body(made).Do(ctx).Into(updated))
	check(*updated.Spec.ReferenceType == "Flunder", "the default of v1alpha1")
	err := at(client.Put()).Name(made.Name).Body(made).Do(ctx).Error()
	check(apierrors.IsConflict(err), err)
	hub := got(dynamic.NewForConfigOrDie(config).Resource(flunders).Namespace(namespace).Get(ctx, made.Name, metav1.GetOptions{}))
	reference, _, _ := unstructured.NestedString(hub.Object, "spec", "flunderReference")
	check(reference == "another", hub)
	err = at(client.Post()).Body(first).Do(ctx).Error()
	check(apierrors.IsAlreadyExists(err), err)
	err = at(client.Get()).Name("absent").Do(ctx).Error()
	check(apierrors.IsNotFound(err), err)
	list := &FlunderList{}
	must(at(client.Get()).VersionedParams(&metav1.ListOptions{LabelSelector: "sample-label=true"}, parameters).Do(ctx).Into(list))
	check(len(list.Items) == 1 && list.Items[0].Spec.Reference == "another" && list.ResourceVersion != "", list)
	patched := &Flunder{}
	must(at(client.Patch(types.MergePatchType)).Name(made.Name).Body([]byte(`{"spec":{"referenceType":"Fischer"}}`)).Do(ctx).Into(patched))
	check(patched.Spec.Reference == "another" && *patched.Spec.ReferenceType == "Fischer", patched)
	// Protobuf alone is not to be had, as of definitions; kinds of Kubernetes speak it beside.
	answer := at(client.Get()).Name(made.Name).SetHeader("Accept", binaryType).Do(ctx)
	check(apierrors.IsNotAcceptable(answer.Error()), answer.Error())
	binary := rest.CopyConfig(config)
	binary.ContentType = binaryType
	got(kubernetes.NewForConfigOrDie(binary).CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "beside"}}, metav1.CreateOptions{}))
	// A kind without a namespace.
	fischers := dynamic.NewForConfigOrDie(config).Resource(alpha.WithResource("fischers"))
	fischer := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": alpha.String(), "kind": "Fischer", "metadata": map[string]any{"name": "strict"}, "disallowedFlunders": []any{"badname"},
	}}
	names, _, _ := unstructured.NestedStringSlice(got(fischers.Create(ctx, fischer, metav1.CreateOptions{})).Object, "disallowedFlunders")
	check(slices.Equal(names, []string{"badname"}), names)
	must(fischers.Delete(ctx, "strict", metav1.DeleteOptions{}))
	must(at(client.Delete()).Name(made.Name).Do(ctx).Error())
}

// A watch that ends and is resumed misses nothing and repeats nothing.
func resumes(ctx context.Context, config *rest.Config) {
	client := dynamic.NewForConfigOrDie(config).Resource(flunders).Namespace(namespace)
	next := func(watching watch.Interface) string {
		event, open := <-watching.ResultChan()
		check(open, "the watch ended")
		return string(event.Type) + " " + event.Object.(*unstructured.Unstructured).GetName()
	}
	list := got(client.List(ctx, metav1.ListOptions{}))
	watching := got(client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}))
	one := got(client.Create(ctx, flunder("one", map[string]any{}), metav1.CreateOptions{}))
	seen := next(watching)
	check(seen == "ADDED one", seen)
	watching.Stop()
	got(client.Create(ctx, flunder("two", map[string]any{}), metav1.CreateOptions{}))
	must(client.Delete(ctx, "one", metav1.DeleteOptions{}))
	watching = got(client.Watch(ctx, metav1.ListOptions{ResourceVersion: one.GetResourceVersion(), AllowWatchBookmarks: true}))
	defer watching.Stop()
	for _, wanted := range []string{"ADDED two", "DELETED one"} {
		seen := next(watching)
		check(seen == wanted, seen)
	}
	event := <-watching.ResultChan()
	check(event.Type == watch.Bookmark, event)
	must(client.Delete(ctx, "two", metav1.DeleteOptions{}))
}

func appliesExtension(ctx context.Context, config *rest.Config) {
	client := dynamic.NewForConfigOrDie(config).Resource(flunders).Namespace(namespace)
	refers := func(to string) *unstructured.Unstructured {
		return flunder("applied", map[string]any{"flunderReference": to, "referenceType": "Flunder"})
	}
	got(client.Apply(ctx, "applied", refers("a"), metav1.ApplyOptions{FieldManager: "one"}))
	_, err := client.Apply(ctx, "applied", refers("b"), metav1.ApplyOptions{FieldManager: "two"})
	check(apierrors.IsConflict(err) && apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict), err)
	forced := got(client.Apply(ctx, "applied", refers("b"), metav1.ApplyOptions{FieldManager: "two", Force: true}))
	check(len(forced.GetManagedFields()) == 2, forced)
	_, err = client.Apply(ctx, "wrong", flunder("wrong", map[string]any{"flunderReference": "a", "fischerReference": "b"}), metav1.ApplyOptions{FieldManager: "one"})
	check(apierrors.IsInvalid(err) && strings.Contains(err.Error(), "cannot be set with flunderReference at the same time"), err)
	_, err = client.Create(ctx, flunder("wrong", map[string]any{"refers": "a"}), metav1.CreateOptions{FieldValidation: "Strict"})
	check(apierrors.IsBadRequest(err) && strings.Contains(err.Error(), `unknown field "spec.refers"`), err)
	must(client.Delete(ctx, "applied", metav1.DeleteOptions{}))
}

// told is the object that an informer's event is about: one that went while the informer could not watch is told as its
// last known state.
func told(object any) *unstructured.Unstructured {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	return object.(*unstructured.Unstructured)
}

// requests keeps what a client asked and was answered, to be printed if a check fails.
type requests struct {
	http.RoundTripper
	lock  sync.Mutex
	asked []string
}

func (kept *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := kept.RoundTripper.RoundTrip(request)
	told := fmt.Sprint(err)
	if err == nil {
		told = answer.Status
	}
	kept.lock.Lock()
	defer kept.lock.Unlock()
	kept.asked = append(kept.asked, fmt.Sprint(time.Now().Format("05.000 "), request.Method, " ", request.URL.RequestURI(), ": ", told))
	return answer, err
}

func (kept *requests) printOnPanic() {
	if why := recover(); why != nil {
		kept.lock.Lock()
		fmt.Println(strings.Join(kept.asked, "\n"))
		panic(why)
	}
}

// An informer survives that its server is away: requests fail with 503, and what happens after the return is seen.
func recovers(ctx context.Context, config *rest.Config) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kept := &requests{}
	defer kept.printOnPanic()
	config = rest.CopyConfig(config)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		kept.RoundTripper = inner
		return kept
	})
	everything := dynamic.NewForConfigOrDie(config)
	client := everything.Resource(flunders).Namespace(namespace)
	got(client.Create(ctx, flunder("before", map[string]any{}), metav1.CreateOptions{}))
	factory := dynamicinformer.NewDynamicSharedInformerFactory(everything, 0)
	informer := factory.ForResource(flunders)
	var lock sync.Mutex
	seen := []string{}
	note := func(kind string, object any) {
		lock.Lock()
		defer lock.Unlock()
		seen = append(seen, kind+" "+told(object).GetName())
	}
	got(informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note("add", object) },
		DeleteFunc: func(object any) { note("delete", object) },
	}))
	must(informer.Informer().SetWatchErrorHandler(func(*cache.Reflector, error) {}))
	factory.Start(ctx.Done())
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		check(synced, "synced")
	}
	services := everything.Resource(apiServices)
	service := beta.Version + "." + beta.Group
	here := got(services.Get(ctx, service, metav1.GetOptions{})).GetAnnotations()["insula.io/url"]
	move := func(url string, available string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"insula.io/url":%q}}}`, url)
		got(services.Patch(ctx, service, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
		until("the APIService is "+available, func() bool {
			conditions, _, _ := unstructured.NestedSlice(got(services.Get(ctx, service, metav1.GetOptions{})).Object, "status", "conditions")
			return conditions[0].(map[string]any)["status"] == available
		})
	}
	move("https://127.0.0.1:1", "False")
	_, err := client.List(ctx, metav1.ListOptions{})
	check(apierrors.IsServiceUnavailable(err), err)
	_, err = client.Create(ctx, flunder("never", map[string]any{}), metav1.CreateOptions{})
	check(apierrors.IsServiceUnavailable(err), err)
	_, _, err = discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	failed, is := discovery.GroupDiscoveryFailedErrorGroups(err)
	check(is && len(failed) == 1 && failed[beta] != nil, err)
	// The other version has a server of its own, as far as the workspace knows.
	got(everything.Resource(alpha.WithResource("flunders")).Namespace(namespace).Get(ctx, "before", metav1.GetOptions{}))
	move(here, "True")
	got(client.Create(ctx, flunder("after", map[string]any{}), metav1.CreateOptions{}))
	must(client.Delete(ctx, "before", metav1.DeleteOptions{}))
	until("the informer saw what came after", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(seen) >= 3
	})
	slices.Sort(seen)
	check(slices.Equal(seen, []string{"add after", "add before", "delete before"}), seen)
	must(client.Delete(ctx, "after", metav1.DeleteOptions{}))
}
