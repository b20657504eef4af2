//go:build slow

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/samplecluster"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestScreen: what the real program prints fits the screen of a person: 30 lines on the sample, and
// 40 on a cluster of 327 Applications with 2,017 Kyma Subscriptions.
func TestScreen(t *testing.T) {
	var c samplecluster.Cluster
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(t.Context(), samplecluster.Options{Starting: standin.AdapterNeverReady, NATS: true}); err != nil {
		t.Fatal(err)
	}
	program := process.BuildPlain(t, "./cmd/eventmesh-migrate")
	prints := func(what string, most int) {
		t.Helper()
		for command, code := range map[string]int{"check": 0, "plan": 0, "verify": 6} {
			p := process.Run(t, process.Program{Binary: program, Args: []string{command}, Env: []string{"KUBECONFIG=" + c.Kubeconfig, "PATH=" + os.Getenv("PATH")}})
			if got := p.Wait(); got != code {
				t.Errorf("%s, %s: exit code %d, want %d\n%s", what, command, got, code, p.Stderr())
			}
			lines := strings.Count(p.Stdout(), "\n")
			t.Logf("%s, %s: %d lines\n%s", what, command, lines, p.Stdout())
			if lines > most {
				t.Errorf("%s, %s: %d lines, more than %d", what, command, lines, most)
			}
			if !strings.Contains(p.Stdout(), "\nNext: ") {
				t.Errorf("%s, %s: no next command", what, command)
			}
		}
	}
	prints("27 Applications", 30)
	if err := standin.Load(t.Context(), c.Admin, spaces()...); err != nil {
		t.Fatal(err)
	}
	if err := standin.Load(t.Context(), c.Admin, crowd()...); err != nil {
		t.Fatal(err)
	}
	// Kinds that no stand-in loads.
	unlimited := rest.CopyConfig(c.Admin)
	unlimited.QPS = -1
	client, err := dynamic.NewForConfig(unlimited)
	if err != nil {
		t.Fatal(err)
	}
	create := func(resource schema.GroupVersionResource, u *unstructured.Unstructured) {
		t.Helper()
		if _, err := client.Resource(resource).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range applications {
		if i%10 > 0 { // the namespaces of the others have no link
			create(samplecluster.Knative("messaging", "subscriptions"), standin.Link("v1alpha1", crowded(i), team(i), fmt.Sprintf("brokersub-crowd-%03d", i)))
		}
	}
	for i := range subscriptions {
		sub := standin.KymaSubscription(team(i), fmt.Sprintf("sub-%04d", i), crowded(i), fmt.Sprintf("object.changed-%d", i/applications))
		unstructured.RemoveNestedField(sub.Object, "spec", "include_subscription_name_header")
		create(standin.KymaSubscriptions, sub)
	}
	prints("327 Applications", 40)
}

const teams, applications, subscriptions = 100, 300, 2000

func crowded(i int) string { return fmt.Sprintf("app-%03d", i%applications) }

func team(i int) string { return fmt.Sprintf("team-%03d", i%teams) }

func spaces() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range teams {
		all = append(all, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": team(i)}}})
	}
	return all
}

// crowd are Applications of every kind that fills a report: a third has its HTTPSource, a third
// needs one, and for a third it would collide with the release. Each is used in one namespace, by
// several Kyma Subscriptions; of every tenth the link is missing.
func crowd() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range applications {
		all = append(all, standin.Application(crowded(i), false), standin.EventService(crowded(i), false),
			standin.TillerRelease(crowded(i), standin.IntegrationNamespace, 1, "DEPLOYED", standin.ApplicationManifest(crowded(i), i%3 < 2)))
		if i%3 == 0 {
			all = append(all, standin.HTTPSource(crowded(i)))
		}
		all = append(all, standin.EventActivation(team(i), crowded(i)+"-events", crowded(i)))
	}
	return all
}
