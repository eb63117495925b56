package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "house.example.io/check"

// Lamp is a custom resource as a project with controller-runtime declares it.
type Lamp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Watts  int64  `json:"watts,omitempty"`
		Colour string `json:"colour,omitempty"`
	} `json:"spec,omitempty"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status,omitempty"`
}

// LampList is a list of them.
type LampList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Lamp `json:"items"`
}

// DeepCopyObject copies by way of JSON, which is enough for a check.
func (lamp *Lamp) DeepCopyObject() runtime.Object { return copied(lamp, &Lamp{}) }

// DeepCopyObject copies by way of JSON, which is enough for a check.
func (list *LampList) DeepCopyObject() runtime.Object { return copied(list, &LampList{}) }

func copied[T runtime.Object](from, into T) T {
	must(json.Unmarshal(got(json.Marshal(from)), into))
	return into
}

// reconciler keeps a ConfigMap for each lamp, says so in its status, and holds a lamp that goes until it has seen it go.
type reconciler struct {
	client.Client
	scheme     *runtime.Scheme
	runs, gone atomic.Int64
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.runs.Add(1)
	lamp := &Lamp{}
	if err := r.Get(ctx, request.NamespacedName, lamp); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !lamp.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(lamp, finalizer) {
			r.gone.Add(1)
			return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, lamp))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(lamp, finalizer) {
		if err := r.Update(ctx, lamp); err != nil {
			return ctrl.Result{}, err
		}
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: lamp.Name + "-settings", Namespace: lamp.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, settings, func() error {
		settings.Data = map[string]string{"watts": fmt.Sprint(lamp.Spec.Watts)}
		return controllerutil.SetControllerReference(lamp, settings, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := client.MergeFrom(lamp.DeepCopyObject().(*Lamp))
	lamp.Status.Phase = "Lit"
	return ctrl.Result{}, r.Status().Patch(ctx, lamp, before)
}

func manages(ctx context.Context, config *rest.Config) {
	ctx, cancel := context.WithCancel(ctx)
	known := runtime.NewScheme()
	must(scheme.AddToScheme(known))
	version := schema.GroupVersion{Group: lamps.Group, Version: lamps.Version}
	known.AddKnownTypes(version, &Lamp{}, &LampList{})
	metav1.AddToGroupVersion(known, version)
	manager := got(ctrl.NewManager(config, ctrl.Options{
		Scheme: known, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "manager", LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
	}))
	must(manager.GetFieldIndexer().IndexField(ctx, &Lamp{}, "colour", func(object client.Object) []string {
		return []string{object.(*Lamp).Spec.Colour}
	}))
	work := &reconciler{Client: manager.GetClient(), scheme: known}
	must(ctrl.NewControllerManagedBy(manager).For(&Lamp{}).Owns(&corev1.ConfigMap{}).Complete(work))
	stopped := make(chan error)
	go func() { stopped <- manager.Start(ctx) }()
	direct := got(client.New(config, client.Options{Scheme: known}))
	lives(ctx, direct, manager.GetClient(), work)
	cancel()
	must(<-stopped)
}

// The life of a lamp, and what its controller makes of it.
func lives(ctx context.Context, direct, cached client.Client, work *reconciler) {
	lamp := &Lamp{ObjectMeta: metav1.ObjectMeta{Name: "managed", Namespace: namespace}}
	lamp.Spec.Watts = 5
	must(direct.Create(ctx, lamp))
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "managed-settings", Namespace: namespace}}
	watts := func(wanted string) func() bool {
		return func() bool {
			err := direct.Get(ctx, client.ObjectKeyFromObject(settings), settings)
			return err == nil && settings.Data["watts"] == wanted
		}
	}
	until("the controller made the settings", watts("5"))
	until("the status says so", func() bool {
		must(direct.Get(ctx, client.ObjectKeyFromObject(lamp), lamp))
		return lamp.Status.Phase == "Lit"
	})
	lamp.Spec.Watts = 6
	must(direct.Update(ctx, lamp))
	until("the settings follow", watts("6"))
	settings.Data["watts"] = "0"
	must(direct.Update(ctx, settings))
	until("the settings are put right", watts("6"))
	metadataAndIndexes(ctx, direct, cached)
	// A controller at rest is asked nothing: its own writes that change nothing are no events.
	runs := work.runs.Load()
	until("it rests", func() bool {
		before := runs
		time.Sleep(500 * time.Millisecond)
		runs = work.runs.Load()
		return runs == before
	})
	check(runs < 30, "reconciled ", runs, " times")
	must(direct.Delete(ctx, lamp))
	until("the lamp went through its finalizer", func() bool {
		return errors.IsNotFound(direct.Get(ctx, client.ObjectKeyFromObject(lamp), lamp))
	})
	check(work.gone.Load() > 0, "the finalizer was passed over")
	until("what it owned went after it", func() bool {
		return errors.IsNotFound(direct.Get(ctx, client.ObjectKeyFromObject(settings), settings))
	})
}

func metadataAndIndexes(ctx context.Context, direct, cached client.Client) {
	until("the index has it", func() bool {
		found := &LampList{}
		must(cached.List(ctx, found, client.InNamespace(namespace), client.MatchingFields{"colour": "white"}))
		return len(found.Items) == 1
	})
	selected := &LampList{}
	must(direct.List(ctx, selected, client.InNamespace(namespace), client.MatchingFields{"spec.colour": "red"}))
	check(len(selected.Items) == 0, "a field selector of the server")
	about := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "house.example.io/v1", Kind: "LampList"}}
	// The cache watches metadata alone, in a watch of its own.
	must(cached.List(ctx, about, client.InNamespace(namespace)))
	check(len(about.Items) == 1 && about.Items[0].Finalizers[0] == finalizer, about.Items)
	label := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "house.example.io/v1", Kind: "Lamp"}, ObjectMeta: about.Items[0].ObjectMeta}
	before := label.DeepCopy()
	label.Labels = map[string]string{"checked": "yes"}
	must(direct.Patch(ctx, label, client.MergeFrom(before)))
	must(direct.List(ctx, selected, client.MatchingLabels{"checked": "yes"}))
	check(len(selected.Items) == 1, "a label selector")
	applied := client.ApplyConfigurationFromUnstructured(lamp("managed", map[string]any{"colour": "red"}))
	must(direct.Apply(ctx, applied, client.FieldOwner("painter"), client.ForceOwnership))
	must(direct.List(ctx, selected, client.InNamespace(namespace), client.MatchingFields{"spec.colour": "red"}))
	check(len(selected.Items) == 1, "applied")
}
