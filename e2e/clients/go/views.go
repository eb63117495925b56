package main

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const clusterAnnotation = "kcp.io/cluster"

func kind(group, version, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: name})
	return object
}

// at is the configuration for one cluster of a view, or for all of them.
func at(config *rest.Config, view, cluster string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = view + "/clusters/" + cluster
	return config
}

// register has the clusters that a provider has met: one engages with its binding.
type register struct {
	lock    sync.Mutex
	engaged map[string]bool
}

func (c *register) set(object any, engaged bool) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.engaged[object.(client.Object).GetAnnotations()[clusterAnnotation]] = engaged
}

func (c *register) any() string {
	c.lock.Lock()
	defer c.lock.Unlock()
	for name, engaged := range c.engaged {
		if engaged {
			return name
		}
	}
	return ""
}

// viewOf is where an export's provider finds its tenants.
func viewOf(ctx context.Context, config *rest.Config, export string) string {
	slices := schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}
	own := got(dynamic.NewForConfig(config))
	view := ""
	until("the address of the view is published", func() bool {
		slice := got(own.Resource(slices).Get(ctx, export, metav1.GetOptions{}))
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		if len(endpoints) == 1 {
			view = endpoints[0].(map[string]any)["url"].(string)
		}
		return view != ""
	})
	return view
}

// provides works as a provider does: one cache of controller-runtime over all clusters, and a client for each.
func provides(ctx context.Context, config *rest.Config) {
	view := viewOf(ctx, config, "widgets")
	all := got(cache.New(at(config, view, "*"), cache.Options{}))
	known := &register{engaged: map[string]bool{}}
	bindings := got(all.GetInformer(ctx, kind("apis.kcp.io", "v1alpha1", "APIBinding"), cache.BlockUntilSynced(false)))
	got(bindings.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { known.set(object, true) },
		DeleteFunc: func(object any) { known.set(object, false) },
	}))
	var lock sync.Mutex
	seen := map[string]string{}
	note := func(object any) {
		lock.Lock()
		defer lock.Unlock()
		widget := object.(*unstructured.Unstructured)
		first, _, _ := unstructured.NestedString(widget.Object, "spec", "name", "first")
		seen[widget.GetAnnotations()[clusterAnnotation]+"/"+widget.GetName()] = first
	}
	widgets := got(all.GetInformer(ctx, kind("example.io", "v2", "Widget"), cache.BlockUntilSynced(false)))
	got(widgets.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(_, object any) { note(object) },
		DeleteFunc: func(any) {
			lock.Lock()
			defer lock.Unlock()
			clear(seen)
		},
	}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { must(all.Start(ctx)) }()
	check(all.WaitForCacheSync(ctx), "the caches are filled")
	until("a cluster is engaged", func() bool { return known.any() != "" })

	cluster := known.any()
	one := got(client.New(at(config, view, cluster), client.Options{}))
	widget := kind("example.io", "v1", "Widget")
	widget.SetNamespace("default")
	widget.SetName("provided")
	must(unstructured.SetNestedField(widget.Object, "Ada", "spec", "firstName"))
	must(one.Create(ctx, widget))
	is := func(first string, there bool) func() bool {
		return func() bool {
			lock.Lock()
			defer lock.Unlock()
			value, found := seen[cluster+"/provided"]
			return found == there && value == first
		}
	}
	until("the cache of all clusters has it, in its own version", is("Ada", true))
	before := widget.DeepCopy()
	must(unstructured.SetNestedField(widget.Object, "Bea", "spec", "firstName"))
	must(one.Patch(ctx, widget, client.MergeFrom(before)))
	until("it is changed there", is("Bea", true))
	must(one.Delete(ctx, widget))
	until("it is gone there", is("", false))
}
