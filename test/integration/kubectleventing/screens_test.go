package kubectleventing_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is printed into the document")

const document = "../../../docs/eventing/kubectl-eventing.md"

var screens = regexp.MustCompile("(?s)<!-- screen: ([^\n]*) -->\n```text\n(.*?)```\n")

// TestScreens: the document shows what the commands print.
func TestScreens(t *testing.T) {
	install(t, "Warning", `
  - {type: PodsReady, status: "False", reason: Degraded, message: "Pods are not ready: eventing-controller 1 of 2.", lastTransitionTime: "`+ago(9*time.Hour)+`"}`)
	put(t, `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: slow}, provisioner: example.com/x}`)
	subscription(t, "users", good, `{backlog: 0, repeating: 0}`)
	subscription(t, "orders", `{type: Sink delivering, status: "False", reason: Retrying, message: "the sink answers 503. Events wait, and are sent again", lastTransitionTime: "`+ago(12*time.Hour)+`"}`,
		`{backlog: 1204, oldest: "`+ago(12*time.Hour)+`", repeating: 50, deadLetters: 2}`)
	subscription(t, "bills", `{type: Subscription spec valid, status: "False", reason: Subscription spec has validation errors, message: "sink is in namespace \"office\": use a Service in the namespace of the Subscription, \"shop\"", lastTransitionTime: "`+ago(3*24*time.Hour)+`"}`)
	publisher := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer publisher.Close()
	letters := played(t, func(w http.ResponseWriter, q *http.Request) {
		const one, two = `"namespace":"shop","subscription":"orders","id":"4711","source":"commerce","type":"orders.created.v1","answer":"503","problem":"the sink answers 503","tries":96`, `"namespace":"shop","subscription":"orders","id":"4712","source":"commerce","type":"orders.created.v1","answer":"400","problem":"the sink answers 400","tries":12`
		if q.Method == http.MethodGet {
			fmt.Fprintf(w, `{"items":[{"sequence":17,%s,"stored":%q},{"sequence":18,%s,"stored":%q}],"total":2,"continue":""}`, one, ago(26*time.Hour), two, ago(25*time.Hour))
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		fmt.Fprintf(w, `{"sequence":17,"result":"delivered",%s}`+"\n", `"namespace":"shop","subscription":"orders","id":"4711"`)
		fmt.Fprintf(w, `{"sequence":18,"result":"refused","answer":"400","problem":"the sink answers 400",%s}`+"\n", `"namespace":"shop","subscription":"orders","id":"4712"`)
		fmt.Fprintln(w, `{"done":true,"total":2,"delivered":1,"refused":1,"left":1}`)
	})
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	changed := screens.ReplaceAllStringFunc(string(raw), func(block string) string {
		found++
		match := screens.FindStringSubmatch(block)
		args := strings.Fields(match[1])
		switch args[0] {
		case "dead-letters":
			args = append(args, letters...)
		case "send":
			args = append(args, "--publisher="+publisher.URL)
		}
		out := run(t, args...)
		text := strings.NewReplacer(cluster.Config().Host, "https://10.0.0.1", "context eventmesh, user admin", "context prod, user jane").Replace(out.stdout)
		text = regexp.MustCompile(`Kubernetes is v\S+`).ReplaceAllString(text, "Kubernetes is v1.36.3")
		if diff := cmp.Diff(match[2], text); diff != "" && !*update {
			t.Errorf("%s: %q (-document +printed), go test -update writes it:\n%s%s", document, match[1], diff, out.stderr)
		}
		return fmt.Sprintf("<!-- screen: %s -->\n```text\n%s```\n", match[1], text)
	})
	if found < 6 {
		t.Errorf("only %d screens in %s", found, document)
	}
	if *update {
		if err := os.WriteFile(document, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
