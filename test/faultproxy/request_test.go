package faultproxy

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClassify(t *testing.T) {
	type want struct {
		Text      string
		Writes    bool
		Continues bool
		Renews    bool
	}
	cases := map[string]struct {
		reason string
		method string
		url    string
		body   string
		want   want
	}{
		"CoreNamespaced": {
			reason: "The core group has no group segment.",
			method: http.MethodGet, url: "/api/v1/namespaces/kyma-system/secrets/x",
			want: want{Text: "get secrets kyma-system/x"},
		},
		"GroupNamespaced": {
			reason: "Resources of other groups are told apart by their group.",
			method: http.MethodPatch, url: "/apis/sources.kyma-project.io/v1alpha1/namespaces/kyma-integration/httpsources/x",
			want: want{Text: "patch httpsources.sources.kyma-project.io kyma-integration/x", Writes: true},
		},
		"CreateNamedByBody": {
			reason: "A create names its object in the body only.",
			method: http.MethodPost, url: "/api/v1/namespaces/n/configmaps", body: `{"metadata":{"name":"x"}}`,
			want: want{Text: "create configmaps n/x", Writes: true},
		},
		"CreateInUnknownEncoding": {
			reason: "A body that is no JSON leaves the name unknown and is still a write.",
			method: http.MethodPost, url: "/api/v1/namespaces/n/configmaps", body: "k8s\x00…",
			want: want{Text: "create configmaps in n", Writes: true},
		},
		"ClusterScoped": {
			reason: "Cluster-scoped objects have no namespace.",
			method: http.MethodPut, url: "/apis/applicationconnector.kyma-project.io/v1alpha1/applications/shop",
			want: want{Text: "update applications.applicationconnector.kyma-project.io shop", Writes: true},
		},
		"NamespaceItself": {
			reason: "A Namespace is an object, not the namespace of one.",
			method: http.MethodPatch, url: "/api/v1/namespaces/prod",
			want: want{Text: "patch namespaces prod", Writes: true},
		},
		"NamespaceSubresource": {
			reason: "finalize is a subresource of the Namespace, not a resource in it.",
			method: http.MethodPut, url: "/api/v1/namespaces/prod/finalize",
			want: want{Text: "update namespaces/finalize prod", Writes: true},
		},
		"Scale": {
			reason: "A write to a subresource is a write.",
			method: http.MethodPatch, url: "/apis/apps/v1/namespaces/kyma-system/deployments/d/scale",
			want: want{Text: "patch deployments.apps/scale kyma-system/d", Writes: true},
		},
		"DeleteCollection": {
			reason: "A delete without a name deletes all.",
			method: http.MethodDelete, url: "/api/v1/namespaces/n/secrets?labelSelector=a%3Db",
			want: want{Text: "deletecollection secrets in n", Writes: true},
		},
		"Watch": {
			reason: "A watch is a list with a parameter.",
			method: http.MethodGet, url: "/api/v1/secrets?watch=true&resourceVersion=7",
			want: want{Text: "watch secrets"},
		},
		"WatchAsOne": {
			reason: "The parameter is a bool in any spelling that Go clients use.",
			method: http.MethodGet, url: "/api/v1/secrets?watch=1",
			want: want{Text: "watch secrets"},
		},
		"FirstPage": {
			reason: "A first page goes on from nothing.",
			method: http.MethodGet, url: "/api/v1/secrets?limit=500",
			want: want{Text: "list secrets"},
		},
		"NextPage": {
			reason: "A continue token is what can expire.",
			method: http.MethodGet, url: "/api/v1/secrets?limit=500&continue=abc",
			want: want{Text: "list secrets", Continues: true},
		},
		"AccessReview": {
			reason: "An access review is created but changes nothing.",
			method: http.MethodPost, url: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			want: want{Text: "create selfsubjectaccessreviews.authorization.k8s.io"},
		},
		"DryRun": {
			reason: "A dry run changes nothing.",
			method: http.MethodPost, url: "/api/v1/namespaces/n/configmaps?dryRun=All", body: `{"metadata":{"name":"x"}}`,
			want: want{Text: "create configmaps n/x"},
		},
		"Renewal": {
			reason: "Who holds a Lease renews it later than he acquired it.",
			method: http.MethodPut, url: "/apis/coordination.k8s.io/v1/namespaces/n/leases/x", body: `{"spec":{"holderIdentity":"a","acquireTime":"1","renewTime":"2"}}`,
			want: want{Text: "update leases.coordination.k8s.io n/x", Writes: true, Renews: true},
		},
		"Acquisition": {
			reason: "Taking a Lease is no renewal.",
			method: http.MethodPut, url: "/apis/coordination.k8s.io/v1/namespaces/n/leases/x", body: `{"spec":{"holderIdentity":"a","acquireTime":"2","renewTime":"2"}}`,
			want: want{Text: "update leases.coordination.k8s.io n/x", Writes: true},
		},
		"Release": {
			reason: "Neither is giving it back.",
			method: http.MethodPut, url: "/apis/coordination.k8s.io/v1/namespaces/n/leases/x", body: `{"spec":{"holderIdentity":"","acquireTime":"1","renewTime":"2"}}`,
			want: want{Text: "update leases.coordination.k8s.io n/x", Writes: true},
		},
		"GroupDiscovery": {
			reason: "The resources of a group are no resource.",
			method: http.MethodGet, url: "/apis/apps/v1",
			want: want{Text: "get /apis/apps/v1"},
		},
		"CoreDiscovery": {
			reason: "The resources of the core group are no resource.",
			method: http.MethodGet, url: "/api/v1",
			want: want{Text: "get /api/v1"},
		},
		"Version": {
			reason: "Other paths are no resources.",
			method: http.MethodGet, url: "/version",
			want: want{Text: "get /version"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(tc.url)
			if err != nil {
				t.Fatal(err)
			}
			r := classify(tc.method, u, http.Header{}, []byte(tc.body))
			got := want{Text: r.String(), Writes: r.Writes(), Continues: r.Continues, Renews: r.Renews}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nclassify(%s %s): -want, +got:\n%s", tc.reason, tc.method, tc.url, diff)
			}
		})
	}
}
