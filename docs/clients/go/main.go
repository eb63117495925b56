// Onboards a tenant: creates a workspace for a provider and one for the tenant, publishes an API in
// the first, binds it in the second, and watches the rollout until the tenant serves it.
//
//	go run . 127.0.0.1:6443 .insula/pki lamps.json acme
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/structpb"

	admin "insula/onboard/admin"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// isServed returns true once all bindings are served by a release. It ends the program if another
// release has taken its place, or its rollout has stopped.
func isServed(release string, rollout *admin.Rollout) bool {
	if rollout.GetRelease() != release {
		must(0, fmt.Errorf("release %s has taken the place of %s", rollout.GetRelease(), release))
	}
	switch reason := rollout.GetReason(); reason {
	case "Complete":
		// A rollout does not wait for a binding that was never served. This example does.
		return rollout.GetUnbound() == 0
	case "Progressing":
		return false
	default:
		return must(false, fmt.Errorf("release %s: %s: %s", release, reason, rollout.GetMessage()))
	}
}

func main() {
	address, pki, definition, tenant := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	file := func(name string) string { return filepath.Join(pki, name) }
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile(file("ca.crt"))))
	own := must(tls.LoadX509KeyPair(file("kcp-admin.crt"), file("kcp-admin.key")))
	secure := credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}})
	conn := must(grpc.NewClient(address, grpc.WithTransportCredentials(secure)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	workspaces, apis := admin.NewWorkspaceServiceClient(conn), admin.NewApiServiceClient(conn)
	create := func(name string) string {
		request := &admin.CreateWorkspaceRequest{Name: name, Wait: true}
		return must(workspaces.CreateWorkspace(ctx, request)).Workspace.Path
	}
	provider, path := create(tenant+"-provider"), create(tenant)
	manifest := &structpb.Struct{}
	must(0, manifest.UnmarshalJSON(must(os.ReadFile(definition))))
	publish := &admin.PublishApiRequest{Workspace: provider, Manifests: []*structpb.Struct{manifest}}
	published := must(apis.PublishApi(ctx, publish)).Export
	export, release := published.Name, published.GetRollout().GetRelease()
	must(apis.BindApi(ctx, &admin.BindApiRequest{Workspace: path, ExportWorkspace: provider, Export: export}))
	of := &admin.GetExportRequest{Workspace: provider, Export: export}
	for !isServed(release, must(apis.GetExport(ctx, of)).Export.GetRollout()) {
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Printf("%s serves %s of %s\n", path, export, provider)
}
