package main

import (
	"context"
	"embed"
	"errors"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

//go:embed manifests
var manifests embed.FS

// apply applies all objects of a manifest.
func apply(ctx context.Context, cfg *rest.Config, manifest string) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	file, err := manifests.Open(manifest)
	if err != nil {
		return err
	}
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		mapping, err := mapper.RESTMapping(obj.GroupVersionKind().GroupKind(), obj.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		in := migration.Resource{GroupVersionResource: mapping.Resource}.In(client, obj.GetNamespace())
		if _, err := in.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "installer", Force: true}); err != nil {
			return err
		}
	}
}
