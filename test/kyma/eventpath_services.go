package kyma

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// front is the Service of an Application's event-service: it stays, whichever
// pod is behind it.
type front struct {
	app string

	mu    sync.Mutex
	busy  sync.Mutex // one roll-out at a time
	proxy *httputil.ReverseProxy
	// mesh is the URL of the adapter if the pod is the mesh's.
	mesh string
	stop func()
}

// URL is the legacy endpoint of an Application, for clients.
func (p *EventPath) URL(app string) string { return p.services.URL + "/front/" + app + "/v1/events" }

// OnMesh is for Wait: the endpoint of the Application is the mesh's event-service.
func (p *EventPath) OnMesh(app string) bool {
	p.mu.Lock()
	f := p.fronts[app]
	p.mu.Unlock()
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mesh != ""
}

// Serving is for Wait: the Application has an endpoint.
func (p *EventPath) Serving(app string) bool {
	p.mu.Lock()
	f := p.fronts[app]
	p.mu.Unlock()
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proxy != nil
}

// deployment is the kubelet's and kube-proxy's part: the new pod is started, then
// it gets the requests, then the old one is ended.
func (p *EventPath) deployment(key string) {
	app, ok := strings.CutPrefix(key, IntegrationNamespace+"/")
	if app, ok = strings.CutSuffix(app, "-event-service"); !ok {
		return
	}
	p.mu.Lock()
	f := p.fronts[app]
	if f == nil {
		f = &front{app: app}
		p.fronts[app] = f
	}
	p.mu.Unlock()
	// The informer must not wait for a process that starts.
	p.running.Go(func() {
		f.busy.Lock()
		defer f.busy.Unlock()
		p.roll(f, false)
		p.tell(func() {})
	})
}

// Replace starts another pod of the Application's event-service, gives it the
// requests, and ends the one before, which may be dead.
func (p *EventPath) Replace(app string) {
	p.mu.Lock()
	f := p.fronts[app]
	p.mu.Unlock()
	if f == nil {
		return
	}
	f.busy.Lock()
	defer f.busy.Unlock()
	p.roll(f, true)
}

func (p *EventPath) roll(f *front, again bool) {
	d := p.deployments.get(IntegrationNamespace + "/" + f.app + "-event-service")
	if d == nil || p.ctx.Err() != nil {
		return
	}
	mesh := meshArgument(d)
	f.mu.Lock()
	same := f.proxy != nil && f.mesh == mesh
	former := f.stop
	f.mu.Unlock()
	if same && !again {
		return
	}
	backend, stop := p.services.URL+"/old/"+f.app, func() {}
	if mesh != "" {
		// The host of the argument is the adapter's name in the cluster.
		adapter := p.services.URL + "/adapter/" + f.app
		started, end, err := p.options.EventService(p.ctx, f.app, adapter)
		if err != nil {
			p.log("cannot start the event-service of %s: %v", f.app, err)
			return
		}
		backend, stop = started+"/"+f.app, end
	}
	to, err := url.Parse(backend + "/v1/events")
	if err != nil {
		p.log("%v", err)
		return
	}
	f.mu.Lock()
	f.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = to.Scheme, to.Host, to.Path
			r.Out.Host = to.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			p.log("%s: %v", f.app, err)
			http.Error(w, "upstream connect error", http.StatusServiceUnavailable)
		},
	}
	f.mesh, f.stop = mesh, stop
	f.mu.Unlock()
	if former != nil {
		former()
	}
}

func (f *front) end() {
	f.mu.Lock()
	stop := f.stop
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// serve is every service of the path, by the first part of its URL.
func (p *EventPath) serve(w http.ResponseWriter, r *http.Request) {
	part, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	app, _, _ := strings.Cut(rest, "/")
	switch part {
	case "front":
		p.mu.Lock()
		f := p.fronts[app]
		p.mu.Unlock()
		if f == nil {
			http.NotFound(w, r)
			return
		}
		f.mu.Lock()
		proxy := f.proxy
		f.mu.Unlock()
		if proxy == nil {
			http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
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
	resp, err := http.DefaultClient.Do(req)
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
	if !p.busRuns(Publisher) {
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
