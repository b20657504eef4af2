package standin

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// URL is the legacy endpoint of an Application, for clients.
func (p *EventPath) URL(app string) string { return p.services.URL + "/front/" + app + "/v1/events" }

// OldURL is where an event-service of 1.10 runs, for pods that hand on to it.
func (p *EventPath) OldURL(app string) string { return p.services.URL + "/old/" + app }

// AdapterURL is that of the adapter of an Application's HTTPSource: what
// http://<application>.kyma-integration is in a cluster.
func (p *EventPath) AdapterURL(app string) string { return p.services.URL + "/adapter/" + app }

// OnMesh is for Wait: the Application's event-service is on the mesh, and no pod of
// the former one is left.
func (p *EventPath) OnMesh(app string) bool {
	for _, obj := range p.pods.informer.GetStore().List() {
		pod := obj.(*unstructured.Unstructured)
		if pod.GetNamespace() == IntegrationNamespace && pod.GetLabels()["app"] == app+"-event-service" && !onMesh(pod) {
			return false
		}
	}
	return p.Serving(app)
}

// Serving is for Wait: the Application has an endpoint.
func (p *EventPath) Serving(app string) bool {
	return len(p.endpoints(IntegrationNamespace, "app", app+"-event-service")) > 0
}

// front is the Service of an Application's event-service: it stays, whichever pod
// is behind it.
func (p *EventPath) front(w http.ResponseWriter, r *http.Request, app string) {
	backend := ""
	if pod := p.endpoint(IntegrationNamespace, "app", app+"-event-service"); pod != nil {
		backend = p.services.URL + "/old/" + app
		if onMesh(pod) {
			if backend = p.options.Address(pod.GetUID()); backend != "" {
				backend += "/" + app
			}
		}
	}
	to, err := url.Parse(backend + "/v1/events")
	if backend == "" || err != nil {
		http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
		return
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = to.Scheme, to.Host, to.Path
			r.Out.Host = to.Host
		},
		Transport: p.transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			p.log("%s: %v", app, err)
			http.Error(w, "upstream connect error", http.StatusServiceUnavailable)
		},
	}
	proxy.ServeHTTP(w, r)
}

// serve is every service of the path, by the first part of its URL.
func (p *EventPath) serve(w http.ResponseWriter, r *http.Request) {
	part, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	app, _, _ := strings.Cut(rest, "/")
	switch part {
	case "front":
		p.front(w, r, app)
	case "old":
		p.oldEventService(w, r, app)
	case "publisher":
		p.publisher(w, r)
	case "adapter":
		p.adapter(w, r, app)
	default:
		http.NotFound(w, r)
	}
}

// oldEvent is an event as 1.10's event-service sends it on.
type oldEvent struct {
	Source  string          `json:"source-id"`
	Type    string          `json:"event-type"`
	Version string          `json:"event-type-version"`
	ID      string          `json:"event-id,omitempty"`
	Time    string          `json:"event-time"`
	Data    json.RawMessage `json:"data"`
}

// oldEventService is that of 1.10, for events that are right.
func (p *EventPath) oldEventService(w http.ResponseWriter, r *http.Request, app string) {
	var event oldEvent
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil || event.Type == "" || event.Version == "" || event.Data == nil {
		http.Error(w, `{"status":400,"type":"bad_payload_syntax"}`, http.StatusBadRequest)
		return
	}
	event.Source = app
	raw, err := json.Marshal(event)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, p.services.URL+"/publisher/v1/events", bytes.NewReader(raw))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		// A transport error is plain text.
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// publisher is event-publish-service.
func (p *EventPath) publisher(w http.ResponseWriter, r *http.Request) {
	if p.endpoint(SystemNamespace, "app.kubernetes.io/name", "event-publish-service") == nil {
		panic(http.ErrAbortHandler) // there is no pod that would answer
	}
	var event oldEvent
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		http.Error(w, `{"status":400}`, http.StatusBadRequest)
		return
	}
	if event.ID == "" {
		event.ID = uuid.NewString()
	}
	status := "published"
	channel := p.channelFor(event.Source, event.Type, event.Version)
	switch {
	case channel == nil:
		status = "ignored_channel_missing"
	case !isReady(channel):
		status = "ignored_channel_not_ready"
	default:
		header := http.Header{"Content-Type": {"application/json"}}
		for name, value := range map[string]string{
			"source": event.Source, "type": event.Type, "eventtypeversion": event.Version, "id": event.ID, "time": event.Time, "specversion": "0.3",
		} {
			header.Set("Ce-"+name, value)
		}
		if err := p.publish(channel.GetName()+"."+channel.GetNamespace(), message{header, event.Data}); err != nil {
			http.Error(w, `{"status":500,"type":"internal_server_error"}`, http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"event-id": event.ID, "status": status, "reason": ""})
}

// adapter is that of an HTTPSource.
func (p *EventPath) adapter(w http.ResponseWriter, r *http.Request, app string) {
	source := p.sources.get(IntegrationNamespace + "/" + app)
	if source == nil || !isReady(source) {
		http.NotFound(w, r) // there is no route
		return
	}
	if r.Header.Get("Ce-Specversion") != "1.0" {
		http.Error(w, "unsupported cloudevents version", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p.channels.get(IntegrationNamespace+"/"+app) == nil {
		http.Error(w, "no such host", http.StatusBadGateway)
		return
	}
	header := http.Header{"Content-Type": r.Header["Content-Type"]}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Ce-") {
			header[name] = values
		}
	}
	header.Set("Ce-Source", app)
	if err := p.publish(app+"."+IntegrationNamespace, message{header, body}); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}
