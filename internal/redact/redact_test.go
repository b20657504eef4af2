package redact

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestURL holds what is shown of an address. It fails on the commit before: what did
// not parse was quoted as it was, and the values of a query were shown.
func TestURL(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		// What people need.
		"http://fn.shop:8080/orders": "http://fn.shop:8080/orders",
		"HTTP://fn.shop":             "http://fn.shop",
		"http://fn.shop/a%2Fb":       "http://fn.shop/a%2Fb",
		"http://[fd00::1]:8080/x":    "http://[fd00::1]:8080/x",
		"http://fn.shop/@scope/x":    "http://fn.shop/@scope/x",
		// What nobody else should read.
		"http://user:hunter2@fn.shop/":          "http://fn.shop/",
		"http://hunter2@fn.shop/":               "http://fn.shop/",
		"http://fn.shop/?code=hunter2":          "http://fn.shop/?code=…",
		"http://fn.shop/?a=hunter2&key=hunter2": "http://fn.shop/?a=…&key=…",
		"http://fn.shop/?hunter2":               "http://fn.shop/?…",
		"http://fn.shop/?hunter2==&a=":          "http://fn.shop/?…&…",
		"http://fn.shop/?a=hunter2;b":           "http://fn.shop/?a=…;…",
		"http://fn.shop/?":                      "http://fn.shop/?",
		"http://fn.shop/#hunter2":               "http://fn.shop/#…",
		// Nobody knows where the password is.
		"http://user:hunter2%zz@fn.shop/": NotAURL,
		"http://user:hunter2@fn shop/":    NotAURL,
		"http://user:hun/ter2@fn.shop/":   NotAURL,
		"http://user:12/hunter2@fn.shop/": "http://…",
		"http://user:12?hunter2@fn.shop/": "http://…",
		"user:hunter2@fn.shop":            NotAURL,
		"hunter2@fn.shop":                 NotAURL,
		"http://[::1":                     NotAURL,
		"http:hunter2":                    NotAURL,
		"http:///hunter2":                 NotAURL,
	} {
		if diff := cmp.Diff(want, URL(in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

func TestURLs(t *testing.T) {
	for in, want := range map[string]string{
		"nothing to do": "nothing to do",
		"look at http://fn.shop/x, or http://fn.shop/y.":      "look at http://fn.shop/x, or http://fn.shop/y.",
		"events go to http://a:b@fn.shop/x?code=c, and stay":  "events go to http://fn.shop/x?code=…, and stay",
		`dial "nats://me:hunter2@nats:4222": refused`:         `dial "nats://nats:4222": refused`,
		"(https://a:hunter2%zz@x/y) does not answer":          "(" + NotAURL + ") does not answer",
		"http://default-broker.<namespace>":                   "http://default-broker.<namespace>",
		`{"uri": "http://fn.shop/?key=hunter2", "a": "b"}`:    `{"uri": "http://fn.shop/?key=…", "a": "b"}`,
		`\"http://fn.shop/?key=hunter2\" in a string of JSON`: `\"http://fn.shop/?key=…\" in a string of JSON`,
	} {
		if diff := cmp.Diff(want, URLs(in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

// FuzzURL: whatever a URL is made of, its user, password and values are not shown.
func FuzzURL(f *testing.F) {
	f.Add("user", "hunter2", "fn.shop", "/x", "code", "c0de")
	f.Add("", "%zz", "fn", "@/", "=", "&")
	f.Add("a:b", "/?#@", "[::1]:8080", "", "", "")
	f.Fuzz(func(t *testing.T, user, password, host, path, key, value string) {
		// What stands for itself must be found again, and nowhere else.
		const secret = "Qx7"
		for _, part := range []string{user, password, host, path, key, value} {
			if strings.Contains(part, secret) || strings.Contains(url.PathEscape(part), secret) {
				t.Skip()
			}
		}
		// The raw form stands for people who do not escape.
		for _, in := range []string{
			"http://" + url.PathEscape(user) + ":" + url.PathEscape(password+secret) + "@fn.shop/" + url.PathEscape(path),
			"http://fn.shop/" + url.PathEscape(path) + "?" + url.QueryEscape(key) + "=" + url.QueryEscape(value) + secret,
			"http://fn.shop/?" + url.QueryEscape(key) + "=" + secret + "&" + url.QueryEscape(value) + "=" + secret,
			"http://user:" + secret + strings.Map(keep, password) + "@fn.shop/",
			"http://fn.shop/#" + value + secret,
		} {
			if got := URL(in); strings.Contains(got, secret) {
				t.Errorf("%q is shown as %q", in, got)
			}
			if got := Text("it said " + in); !strings.ContainsAny(in, " \t\r\n\v\f\"'`<>\\") && strings.Contains(got, secret) {
				t.Errorf("%q is shown as %q", in, got)
			}
		}
	})
}

// keep leaves out what ends a URL in a text, or an authority.
func keep(r rune) rune {
	if r <= ' ' || strings.ContainsRune("\"'`<>\\/?#@", r) || r > 126 {
		return -1
	}
	return r
}

const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		// Secrets.
		"Authorization: Bearer s3cr3tvalue":  "Authorization: Bearer REDACTED",
		"basic dXNlcjpwYXNz rest":            "basic REDACTED rest",
		"it said " + token + " there":        "it said REDACTED there",
		"dial nats://me:s3cr3t@nats:4222":    "dial nats://nats:4222",
		"https://token123@github.com/x":      "https://github.com/x",
		"http://x/y?token=abc&a=b":           "http://x/y?token=REDACTED&a=…",
		"--db-password hunter2 --port 8080":  "--db-password REDACTED --port 8080",
		`--db-password "a b" x`:              "--db-password REDACTED x",
		`args: ["--api-key", "hunter2"]`:     `args: ["--api-key", "REDACTED"]`,
		"--password=abc --user=me":           "--password=REDACTED --user=me",
		"DB_PASSWORD=abc":                    "DB_PASSWORD=REDACTED",
		"password: abc":                      "password: REDACTED",
		`{"client_secret": "abc", "a": "b"}`: `{"client_secret": "REDACTED", "a": "b"}`,
		"x\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\ny": "x\nREDACTED\ny",
		"cut off -----BEGIN CERTIFICATE-----\nMII":                                  "cut off REDACTED",
		// What a ticket needs.
		"http://default-broker.shop.svc.cluster.local/":                  "http://default-broker.shop.svc.cluster.local/",
		"Secret kyma-system/eventmesh-migration-trigger-sync-r1-0000":    "Secret kyma-system/eventmesh-migration-trigger-sync-r1-0000",
		"--eventMeshURL=http://commerce.kyma-integration":                "--eventMeshURL=http://commerce.kyma-integration",
		"--use-token --verbose":                                          "--use-token --verbose",
		"default-token-abc12 not found":                                  "default-token-abc12 not found",
		"2 tokens were counted":                                          "2 tokens were counted",
		"Ready=False: NatssChannel is not bound at 2020-04-01T22:15:00Z": "Ready=False: NatssChannel is not bound at 2020-04-01T22:15:00Z",
	} {
		if diff := cmp.Diff(want, Text(in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

func TestObject(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"Secret": {
			`{kind: Secret, metadata: {name: a}, data: {a: c2VjcmV0}, stringData: {b: plain}, type: Opaque}`,
			`{kind: Secret, metadata: {name: a}, data: {a: REDACTED}, stringData: {b: REDACTED}, type: Opaque}`,
		},
		"Environment": {
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, env: [{name: DB, value: x}, {name: SINK_URI, value: "http://s"}, {name: REF, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}`,
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, env: [{name: DB, value: REDACTED}, {name: SINK_URI, value: "http://s"}, {name: REF, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}`,
		},
		"Arguments": {
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{args: ["--password=x", "--port=8080"]}]}}`,
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{args: ["--password=REDACTED", "--port=8080"]}]}}`,
		},
		"Parameters": {
			`{kind: ServiceInstance, metadata: {name: a}, spec: {parameters: {color: blue, dbUrl: hunter2, username: hunter2, deep: {n: 7, on: true}}, parametersFrom: [{secretKeyRef: {name: s, key: k}}]}}`,
			`{kind: ServiceInstance, metadata: {name: a}, spec: {parameters: REDACTED, parametersFrom: [{secretKeyRef: {name: s, key: k}}]}}`,
		},
		"ArgumentsInTwo": {
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{args: ["--db-password", x, "--token", "--port", "8080"]}]}}`,
			`{kind: Pod, metadata: {name: a}, spec: {containers: [{args: ["--db-password", REDACTED, "--token", "--port", "8080"]}]}}`,
		},
		"WholeObjects": {
			`{kind: A, metadata: {name: a, annotations: {copy: '{"spec": {"p": "hunter2"}}', yaml: "spec:\n  p: hunter2", list: "[hunter2]", plain: hello, api-token: hunter2}}, spec: {template: {metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"p": "hunter2"}'}}}}}`,
			`{kind: A, metadata: {name: a, annotations: {copy: REDACTED, yaml: REDACTED, list: REDACTED, plain: hello, api-token: REDACTED}}, spec: {template: {metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: REDACTED}}}}}`,
		},
		"Endpoints": {
			`{kind: Subscription, metadata: {name: a}, spec: {endpoint: "http://me:hunter2@fn.shop/x?code=hunter2"}}`,
			`{kind: Subscription, metadata: {name: a}, spec: {endpoint: "http://fn.shop/x?code=…"}}`,
		},
		"Names": {
			`{kind: ServiceBinding, metadata: {name: a, annotations: {note: "token=x"}}, spec: {secretName: s, instanceRef: {name: i}, credentials: {user: u, password: p}}}`,
			`{kind: ServiceBinding, metadata: {name: a, annotations: {note: "token=REDACTED"}}, spec: {secretName: s, instanceRef: {name: i}, credentials: {user: REDACTED, password: REDACTED}}}`,
		},
		"Room": {
			`{kind: A, metadata: {name: a, managedFields: [{manager: m}], annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}}`,
			`{kind: A, metadata: {name: a}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := object(t, tc.in)
			before := in.DeepCopy()
			if diff := cmp.Diff(object(t, tc.want).Object, Object(in).Object); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the object itself was changed:\n%s", diff)
			}
		})
	}
}
