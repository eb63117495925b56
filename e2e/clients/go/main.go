// The Go clients against a workspace: client-go, managers of controller-runtime and of multicluster-runtime.
//
// KUBECONFIG leads to a workspace of its own, where the widgets of two versions are bound; the first argument is the definition of lamps.
// With the second argument "aggregated" the workspace has the APIServices of an extension server with the kinds of k8s.io/sample-apiserver.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The longest that anything is waited for.
// A client whose revision is said to be too new asks ten times, four seconds apart, before it lists anew.
const patience = 90 * time.Second

func main() {
	klog.LogToStderr(false)
	ctrl.SetLogger(klog.Background())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS = -1
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	type step struct {
		name string
		run  func(context.Context, *rest.Config)
	}
	if len(os.Args) > 2 && os.Args[2] == "aggregated" {
		for _, step := range []step{
			{"discovery", discoversExtension}, {"typed", typedExtension}, {"watch", resumes}, {"apply", appliesExtension}, {"recovery", recovers},
		} {
			step.run(ctx, config)
			fmt.Println(step.name, "passed")
		}
		return
	}
	install(config, os.Args[1])
	steps := []step{
		{"discovery", discovers}, {"typed", typed}, {"dynamic", dynamically}, {"apply", applies}, {"informer", informs},
		{"versions", versions}, {"election", elects}, {"manager", manages}, {"views", provides}, {"tenants", reconcilesTenants},
	}
	for _, step := range steps {
		step.run(ctx, config)
		fmt.Println(step.name, "passed")
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

func check(holds bool, about ...any) {
	if !holds {
		panic(fmt.Sprint(about...))
	}
}

// until asks until the answer is yes.
func until(what string, ask func() bool) {
	for deadline := time.Now().Add(patience); !ask(); time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(deadline), "waited in vain until ", what)
	}
}
