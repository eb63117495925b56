package main

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

const met = "met-in"

// provider engages each cluster whose binding an export's view shows, and lets it go with the binding.
type provider struct {
	clusters.Clusters[cluster.Cluster]
	config *rest.Config
	view   string
}

// followed is where a reflector puts what it sees: bindings of all clusters may have one name, so that they are told apart by both.
type followed struct {
	toolscache.Store
	engage, leave func(multicluster.ClusterName)
}

func clusterOf(object any) multicluster.ClusterName {
	return multicluster.ClusterName(object.(client.Object).GetAnnotations()[clusterAnnotation])
}

func (f *followed) Add(object any) error {
	f.engage(clusterOf(object))
	return f.Store.Add(object)
}

func (f *followed) Delete(object any) error {
	f.leave(clusterOf(object))
	return f.Store.Delete(object)
}

func (f *followed) Replace(objects []any, revision string) error {
	for _, object := range objects {
		f.engage(clusterOf(object))
	}
	return f.Store.Replace(objects, revision)
}

// Start follows the bindings of all clusters until the context ends.
func (p *provider) Start(ctx context.Context, aware multicluster.Aware) error {
	bindings := schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}
	all, err := dynamic.NewForConfig(at(p.config, p.view, "*"))
	if err != nil {
		return err
	}
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return all.Resource(bindings).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return all.Resource(bindings).Watch(ctx, options)
		},
	}
	key := func(object any) (string, error) {
		return clusterOf(object).String() + "/" + object.(client.Object).GetName(), nil
	}
	engage := func(name multicluster.ClusterName) {
		one := got(cluster.New(at(p.config, p.view, name.String())))
		// It waits until the cluster's cache is filled.
		go func() {
			if err := p.AddOrReplace(ctx, name, one, aware); ctx.Err() == nil {
				must(err)
			}
		}()
	}
	into := &followed{Store: toolscache.NewStore(key), engage: engage, leave: p.Remove}
	toolscache.NewReflector(source, kind("apis.kcp.io", "v1alpha2", "APIBinding"), into, 0).RunWithContext(ctx)
	return nil
}

// reconcilesTenants runs a controller of multicluster-runtime while tenants come and go.
func reconcilesTenants(ctx context.Context, config *rest.Config) {
	found := &provider{Clusters: clusters.New[cluster.Cluster](), config: config, view: viewOf(ctx, config, "widgets")}
	options := ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}}
	manager := got(mcmanager.New(config, found, options))
	reconcile := func(ctx context.Context, request mcreconcile.Request) (ctrl.Result, error) {
		tenant, err := manager.GetCluster(ctx, request.ClusterName)
		if err != nil {
			return ctrl.Result{}, err
		}
		widget := kind("example.io", "v2", "Widget")
		if err := tenant.GetClient().Get(ctx, request.NamespacedName, widget); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		before := client.MergeFrom(widget.DeepCopy())
		widget.SetLabels(map[string]string{met: request.ClusterName.String()})
		return ctrl.Result{}, client.IgnoreNotFound(tenant.GetClient().Patch(ctx, widget, before))
	}
	must(mcbuilder.ControllerManagedBy(manager).
		Named("widgets").
		For(kind("example.io", "v2", "Widget")).
		Complete(mcreconcile.Func(reconcile)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if err := manager.Start(ctx); !errors.Is(err, context.Canceled) {
			must(err)
		}
	}()

	// Tenants that are there, one that comes, one that goes and one that comes then.
	isMet(ctx, joins(ctx, config, "north"), "early")
	south := joins(ctx, config, "south")
	isMet(ctx, south, "first")
	leaves(ctx, config, found, "north")
	isMet(ctx, south, "second")
	isMet(ctx, joins(ctx, config, "west"), "late")
}

// joins makes a workspace below the provider's that binds the widgets.
func joins(ctx context.Context, config *rest.Config, name string) client.Client {
	own := got(client.New(config, client.Options{}))
	workspace := kind("tenancy.kcp.io", "v1alpha1", "Workspace")
	workspace.SetName(name)
	must(own.Create(ctx, workspace))
	until("the workspace is ready", func() bool {
		must(own.Get(ctx, client.ObjectKeyFromObject(workspace), workspace))
		phase, _, _ := unstructured.NestedString(workspace.Object, "status", "phase")
		return phase == "Ready"
	})
	tenant := rest.CopyConfig(config)
	tenant.Host += ":" + name
	its := got(client.New(tenant, client.Options{}))
	binding := kind("apis.kcp.io", "v1alpha2", "APIBinding")
	binding.SetName("widgets")
	_, path, _ := strings.Cut(config.Host, "/clusters/")
	must(unstructured.SetNestedField(binding.Object, path, "spec", "reference", "export", "path"))
	must(unstructured.SetNestedField(binding.Object, "widgets", "spec", "reference", "export", "name"))
	must(its.Create(ctx, binding))
	until("the widgets are bound", func() bool {
		must(its.Get(ctx, client.ObjectKeyFromObject(binding), binding))
		phase, _, _ := unstructured.NestedString(binding.Object, "status", "phase")
		return phase == "Bound"
	})
	return its
}

// isMet makes a widget in the older version, and waits until the controller, which knows the newer one, has met it in its cluster.
func isMet(ctx context.Context, tenant client.Client, name string) {
	widget := kind("example.io", "v1", "Widget")
	widget.SetNamespace(metav1.NamespaceDefault)
	widget.SetName(name)
	must(unstructured.SetNestedField(widget.Object, "Ada", "spec", "firstName"))
	must(tenant.Create(ctx, widget))
	until("the controller has met the widget", func() bool {
		must(tenant.Get(ctx, client.ObjectKeyFromObject(widget), widget))
		where := widget.GetLabels()[met]
		check(where == "" || where == widget.GetAnnotations()[clusterAnnotation], "met in ", where)
		return where != ""
	})
	first, _, _ := unstructured.NestedString(widget.Object, "spec", "firstName")
	check(first == "Ada", "its fields are as they were")
}

// leaves deletes a tenant's workspace, and waits until the provider has let it go.
func leaves(ctx context.Context, config *rest.Config, found *provider, name string) {
	own := got(client.New(config, client.Options{}))
	workspace := kind("tenancy.kcp.io", "v1alpha1", "Workspace")
	must(own.Get(ctx, client.ObjectKey{Name: name}, workspace))
	its, _, _ := unstructured.NestedString(workspace.Object, "spec", "cluster")
	check(its != "", "a workspace names its cluster")
	must(own.Delete(ctx, workspace))
	until("its cluster is let go", func() bool {
		_, err := found.Get(ctx, multicluster.ClusterName(its))
		return errors.Is(err, multicluster.ErrClusterNotFound)
	})
	until("it is gone", func() bool {
		return apierrors.IsNotFound(own.Get(ctx, client.ObjectKey{Name: name}, workspace))
	})
}
