package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// restartGrace is how long a request waits for a broker that is restarting. In a cluster the pod is
// ready when the broker is; here one follows the other at some distance.
const restartGrace = time.Second

type (
	catalogClass struct {
		ID          string         `json:"id"`
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Bindable    bool           `json:"bindable"`
		Tags        []string       `json:"tags"`
		Metadata    map[string]any `json:"metadata"`
		Plans       []catalogPlan  `json:"plans"`
	}
	catalogPlan struct {
		ID          string         `json:"id"`
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Bindable    *bool          `json:"bindable,omitempty"`
		Metadata    map[string]any `json:"metadata"`
	}
)

// service is one of an Application, as the broker reads it.
type service struct {
	app, id, name, displayName, gateway string
	events, api                         bool
}

// services of all Applications.
func (b *ApplicationBroker) services() []service {
	var out []service
	for _, obj := range b.applications.informer.GetStore().List() {
		app := obj.(*unstructured.Unstructured)
		list, _, _ := unstructured.NestedSlice(app.Object, "spec", "services")
		for _, item := range list {
			u := &unstructured.Unstructured{Object: item.(map[string]any)}
			s := service{app: app.GetName(), id: text(u, "id"), name: text(u, "name"), displayName: text(u, "displayName")}
			entries, _, _ := unstructured.NestedSlice(u.Object, "entries")
			for _, item := range entries {
				entry := &unstructured.Unstructured{Object: item.(map[string]any)}
				switch text(entry, "type") {
				case "API":
					s.api, s.gateway = true, text(entry, "gatewayUrl")
				case "Events":
					s.events = true
				}
			}
			out = append(out, s)
		}
	}
	return out
}

// enabled says whether the namespace may use the service.
func (b *ApplicationBroker) enabled(namespace string, s service) bool {
	mapping := b.mappings.get(namespace + "/" + s.app)
	if mapping == nil {
		return false
	}
	list, found, _ := unstructured.NestedSlice(mapping.Object, "spec", "services")
	return !found || slices.ContainsFunc(list, func(item any) bool { return item.(map[string]any)["id"] == s.id })
}

// catalog of a namespace.
func (b *ApplicationBroker) catalog(namespace string) []catalogClass {
	classes := []catalogClass{}
	byApp := map[string]int{}
	for _, s := range b.services() {
		if !b.enabled(namespace, s) {
			continue
		}
		if !b.opts.APIPackages {
			classes = append(classes, catalogClass{
				ID: s.id, Name: s.name, Description: "Service " + s.name, Bindable: s.api, Tags: []string{},
				Metadata: map[string]any{"displayName": s.displayName, "applicationServiceId": s.id, "labels": map[string]any{"provisionOnlyOnce": "true"}},
				Plans: []catalogPlan{{
					ID: s.id + "-plan", Name: "default", Description: "Default plan", Metadata: map[string]any{"displayName": "Default"},
				}},
			})
			continue
		}
		i, known := byApp[s.app]
		if !known {
			i = len(classes)
			byApp[s.app] = i
			classes = append(classes, catalogClass{
				ID: text(b.applications.get(s.app), "spec", "compassMetadata", "applicationId"), Name: s.app,
				Description: "Application " + s.app, Bindable: true, Tags: []string{}, Metadata: map[string]any{"displayName": s.app},
			})
		}
		classes[i].Plans = append(classes[i].Plans, catalogPlan{
			ID: s.id, Name: s.name, Description: "Service " + s.name, Bindable: new(s.api), Metadata: map[string]any{"displayName": s.displayName},
		})
	}
	return classes
}

// find returns the service that class and plan of a request stand for.
func (b *ApplicationBroker) find(class, plan string) (service, error) {
	id := class
	if b.opts.APIPackages {
		id = plan
	}
	for _, s := range b.services() {
		if s.id == id {
			return s, nil
		}
	}
	return service{}, fmt.Errorf("cannot find service with ID [%s]", id)
}

// osbError is an answer other than success.
type osbError struct {
	status  int
	message string
}

func (e *osbError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return &osbError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// errGone is the answer to a request for an unknown operation.
var errGone = &osbError{status: http.StatusGone}

// osbVersion is the only one that the broker answers, versionHeader says which one is
// asked for.
const (
	osbVersion    = "2.13"
	versionHeader = "X-Broker-API-Version"
)

// request is one of Service Catalog.
type request struct {
	namespace, instance, binding, class, plan, operation string
	parameters                                           map[string]any
}

func (b *ApplicationBroker) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern, operation string, do func(context.Context, *memory, request) (int, any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, operation, do) })
	}
	const instance = "/{namespace}/v2/service_instances/{instance}"
	const binding = instance + "/service_bindings/{binding}"
	handle("GET /{namespace}/v2/catalog", "catalog", func(_ context.Context, _ *memory, r request) (int, any, error) {
		return http.StatusOK, map[string]any{"services": b.catalog(r.namespace)}, nil
	})
	handle("PUT "+instance, "provision", b.provision)
	handle("DELETE "+instance, "deprovision", b.deprovision)
	handle("GET "+instance+"/last_operation", "last_operation", b.lastOperation)
	handle("PUT "+binding, "bind", b.bind)
	handle("DELETE "+binding, "unbind", func(context.Context, *memory, request) (int, any, error) { return http.StatusGone, struct{}{}, nil })
	return mux
}

func (b *ApplicationBroker) serve(w http.ResponseWriter, r *http.Request, operation string, do func(context.Context, *memory, request) (int, any, error)) {
	var m *memory
	grace, cancel := context.WithTimeout(r.Context(), restartGrace)
	defer cancel()
	if b.await(grace, func() bool { m = b.memory(); return m != nil }) != nil {
		panic(http.ErrAbortHandler) // the connection ends, as that to a Service without pods does
	}
	req := request{namespace: r.PathValue("namespace"), instance: r.PathValue("instance"), binding: r.PathValue("binding")}
	query := r.URL.Query()
	req.class, req.plan, req.operation = query.Get("service_id"), query.Get("plan_id"), query.Get("operation")
	status, answer, err := 0, any(nil), error(nil)
	if r.Method == http.MethodPut {
		var body struct {
			Service    string         `json:"service_id"`
			Plan       string         `json:"plan_id"`
			Parameters map[string]any `json:"parameters"`
		}
		if err = json.NewDecoder(r.Body).Decode(&body); err != nil {
			err = badRequest("%v", err)
		}
		req.class, req.plan, req.parameters = body.Service, body.Plan, body.Parameters
	}
	if (operation == "provision" || operation == "deprovision") && query.Get("accepts_incomplete") != "true" {
		err = &osbError{http.StatusUnprocessableEntity, "AsyncRequired"}
	}
	if got := r.Header.Get(versionHeader); got != osbVersion {
		err = &osbError{http.StatusPreconditionFailed, fmt.Sprintf("%s is %q; it must be %s", versionHeader, got, osbVersion)}
	}
	if err == nil {
		status, answer, err = do(r.Context(), m, req)
	}
	if err != nil {
		status, answer = http.StatusInternalServerError, map[string]string{"description": err.Error()}
		var osb *osbError
		if errors.As(err, &osb) {
			status = osb.status
		}
	}
	// A pod that was killed meanwhile answers nobody.
	if m.ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	b.state.Lock()
	b.calls = append(b.calls, BrokerCall{Operation: operation, Namespace: req.namespace, Instance: req.instance, Status: status, At: time.Now()})
	b.state.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (b *ApplicationBroker) lastOperation(_ context.Context, m *memory, r request) (int, any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range slices.Backward(m.operations[r.instance]) {
		if r.operation == "" || op.id == r.operation {
			return http.StatusOK, map[string]any{"state": op.state, "description": op.description}, nil
		}
	}
	return 0, nil, errGone
}

func (b *ApplicationBroker) bind(_ context.Context, _ *memory, r request) (int, any, error) {
	if len(r.parameters) > 0 && !b.opts.APIPackages {
		return 0, nil, badRequest("application-broker does not support configuration options for the service binding")
	}
	s, err := b.find(r.class, r.plan)
	if err != nil {
		return 0, nil, badRequest("cannot get Application: %v", err)
	}
	if b.has(FailBind, r.namespace, s.id) {
		return 0, nil, badRequest("cannot get credentials from applications: injected")
	}
	return http.StatusCreated, map[string]any{"credentials": map[string]any{"GATEWAY_URL": s.gateway}}, nil
}
