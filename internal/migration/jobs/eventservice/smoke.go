package eventservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

const (
	// smokeTimeout bounds what one event-service is asked. Its own limit is 10s, but
	// it answers this request without asking anybody.
	smokeTimeout = 10 * time.Second
	// dialTimeout bounds one attempt to connect: until the nodes have learnt of it, a
	// Service leads also to a pod that has just gone, and nobody answers there.
	dialTimeout = 2 * time.Second
	// dialPause comes after an attempt that was refused at once.
	dialPause = 250 * time.Millisecond
	// smokes are under way at once.
	smokes = 8
	// externalPort is that of the event-service's API for Applications.
	externalPort = 8081
)

// smoke posts to each Application's event-service a request that it must refuse,
// and tells what else happened. Findings are in the order of the Applications.
func smoke(ctx context.Context, transport http.RoundTripper, namespace string, applications []string) []migration.Finding {
	results := make([]*migration.Finding, len(applications))
	slots := make(chan struct{}, smokes)
	var all sync.WaitGroup
	for i, app := range applications {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() == nil {
				results[i] = smokeOne(ctx, transport, namespace, app)
			}
		})
	}
	all.Wait()
	findings := []migration.Finding{}
	answered := 0
	for _, f := range results {
		if f != nil {
			findings = append(findings, *f)
		} else {
			answered++
		}
	}
	return append(findings, migration.Finding{
		ID: "smoke-answered", Severity: migration.Info,
		Problem: fmt.Sprintf("%d of %d event-services answered a legacy request as they must", answered, len(applications)),
	})
}

// smokeOne returns what is wrong, nil if nothing is.
func smokeOne(ctx context.Context, transport http.RoundTripper, namespace, app string) *migration.Finding {
	ctx, cancel := context.WithTimeout(ctx, smokeTimeout)
	defer cancel()
	url := fmt.Sprintf("http://%s.%s:%d/%s/v1/events", kyma.EventServiceName(app), namespace, externalPort, app)
	finding := func(id string, severity migration.Severity, problem, note, command string) *migration.Finding {
		return &migration.Finding{
			ID: id, Severity: severity, Object: "Deployment " + namespace + "/" + kyma.EventServiceName(app),
			Problem: fmt.Sprintf("POST %s: %s", url, problem), Note: note, Command: command,
		}
	}
	const outside = "mTLS accepts only clients in the mesh. Run this job in the mesh, or send an event through the gateway."
	resp, err := connectAndPost(ctx, transport, url)
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unknown):
		return finding("smoke-unreachable", migration.Warning, "not reachable from here: "+err.Error(), "Run the job with --smoke in the cluster. Names of Services are known only there.", "")
	case notConnected(err):
		return finding("smoke-unreachable", migration.Warning, "not reachable from here: "+err.Error(),
			"No pod of its Service accepts connections from here. Check its endpoints, and each NetworkPolicy.",
			migration.Kubectl(namespace, "get", "endpoints,networkpolicies"))
	case err != nil:
		return finding("smoke-unreachable", migration.Warning, "not reachable from outside the mesh: "+err.Error(), outside, "")
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	var answer struct {
		Type string `json:"type"`
	}
	refusal := json.Unmarshal(body, &answer) == nil && answer.Type == "validation_violation"
	switch {
	case resp.StatusCode == http.StatusBadRequest && refusal:
		return nil
	case resp.StatusCode == http.StatusForbidden,
		resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(resp.Header.Get("Server"), "envoy"):
		return finding("smoke-unreachable", migration.Warning, "not reachable from outside the mesh: "+resp.Status, outside, "")
	}
	return finding("smoke-wrong-answer", migration.Error, fmt.Sprintf("answered %s, not 400 with validation_violation: %.200q", resp.Status, body),
		"Its log may say why.", migration.Kubectl(namespace, "logs", "deployment/"+kyma.EventServiceName(app), "-c", kyma.EventServiceName(app)))
}

// connectAndPost posts a request that the event-service must refuse: without an
// event type it does not pass the first check, whatever the version. What is not
// connected is tried again until ctx ends, since nothing was sent.
func connectAndPost(ctx context.Context, transport http.RoundTripper, url string) (*http.Response, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		// The transport itself: no redirect is followed.
		resp, err := transport.RoundTrip(req)
		if !notConnected(err) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(dialPause):
		}
	}
}

// notConnected says whether there was no connection, and it is not for the name.
func notConnected(err error) bool {
	var unknown *net.DNSError
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !errors.As(err, &unknown)
}
