package kymaeventing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// operator is one run of eventing-manager. It delivers itself.
type operator struct {
	*Kyma
	client    dynamic.Interface
	conn      *nats.Conn
	js        nats.JetStreamContext
	swept     bool
	delivered map[string]*nats.Subscription // by consumer
	sinks     sync.Map                      // URL by namespace/name
	refused   map[string]string             // resourceVersion of Subscriptions, by namespace/name
}

func (o *operator) close() {
	if o.conn != nil {
		o.conn.Close()
	}
}

func (o *operator) reconcile(ctx context.Context) error {
	of := o.client.Resource(eventings).Namespace(namespace)
	e, err := of.Get(ctx, eventing, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if e.GetDeletionTimestamp() != nil {
		return o.deleted(ctx, e)
	}
	if !slices.Contains(e.GetFinalizers(), finalizer) {
		e.SetFinalizers(append(e.GetFinalizers(), finalizer))
		e.Object["spec"] = only(e.Object["spec"], spec)
		if e, err = of.Update(ctx, e, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if _, err := o.client.Resource(definitions).Get(ctx, NATSKind, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return o.deletePublisher(ctx)
	} else if err != nil {
		return err
	}
	if err := o.connect(); err != nil {
		return err
	}
	// The address of NATS, for the publisher and for its own consumers, is made of the object.
	if list, err := o.client.Resource(natsObjects).Namespace(namespace).List(ctx, metav1.ListOptions{}); err != nil {
		return err
	} else if len(list.Items) == 0 {
		return errors.New("NATS is not found")
	}
	if err := o.applyPublisher(ctx, e); err != nil {
		return err
	}
	if err := o.subscribeAll(ctx); err != nil {
		return err
	}
	return o.eventingStatus(ctx, e)
}

// spec are the fields of an Eventing that it knows; nil is all that is in one.
var spec = map[string]any{
	"annotations": nil, "labels": nil, "logging": map[string]any{"logLevel": nil},
	"publisher": map[string]any{"replicas": map[string]any{"min": nil, "max": nil}, "resources": nil},
	"backend": map[string]any{"type": nil, "config": map[string]any{
		"natsStreamStorageType": nil, "natsStreamReplicas": nil, "natsStreamMaxSize": nil, "natsMaxMsgsPerTopic": nil, "eventMeshSecret": nil, "eventTypePrefix": nil, "domain": nil,
	}},
}

// only is what an update has of an object: what it does not know is not there.
func only(of any, known map[string]any) any {
	fields, ok := of.(map[string]any)
	if !ok || known == nil {
		return of
	}
	kept := map[string]any{}
	for name, value := range fields {
		if inner, ok := known[name]; ok {
			below, _ := inner.(map[string]any)
			kept[name] = only(value, below)
		}
	}
	return kept
}

// deleted is blocked by Subscriptions, which are served, and let go when they are deleted, until
// none is left. Then there is no consumer left to be deleted.
func (o *operator) deleted(ctx context.Context, e *unstructured.Unstructured) error {
	if !slices.Contains(e.GetFinalizers(), finalizer) {
		return nil
	}
	all, err := o.client.Resource(subscriptions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(all.Items) > 0 {
		if err := o.connect(); err != nil {
			return err
		}
		return o.subscribeAll(ctx)
	}
	for _, gvr := range []schema.GroupVersionResource{clusterRoles, clusterBindings} {
		if err := o.client.Resource(gvr).Delete(ctx, publisher, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	e.SetFinalizers(slices.DeleteFunc(e.GetFinalizers(), func(f string) bool { return f == finalizer }))
	_, err = o.client.Resource(eventings).Namespace(namespace).Update(ctx, e, metav1.UpdateOptions{})
	return err
}

func (o *operator) connect() (err error) {
	if o.conn != nil && o.conn.IsConnected() {
		return nil
	}
	if o.conn == nil {
		if o.conn, err = nats.Connect(o.options.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.Name("Kyma Controller")); err != nil {
			return err
		}
		if o.js, err = o.conn.JetStream(); err != nil {
			return err
		}
	}
	if _, err = o.js.StreamInfo(stream); errors.Is(err, nats.ErrStreamNotFound) {
		_, err = o.js.AddStream(&nats.StreamConfig{
			Name: stream, Subjects: []string{"kyma.>"}, Retention: nats.InterestPolicy, Discard: nats.DiscardNew, MaxBytes: 700 << 20, MaxMsgs: -1, MaxMsgsPerSubject: 1000000,
		})
	}
	return err
}

// applyPublisher applies everything of the publisher, again and again: what somebody else has
// changed of it is as before.
func (o *operator) applyPublisher(ctx context.Context, e *unstructured.Unstructured) error {
	meta := func(name string, cluster bool) map[string]any {
		m := map[string]any{"name": name, "labels": labels(), "ownerReferences": []any{map[string]any{
			"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Eventing", "name": eventing, "uid": string(e.GetUID()), "controller": true, "blockOwnerDeletion": true,
		}}}
		if !cluster {
			m["namespace"] = namespace
		}
		return m
	}
	service := func(name, port string, number, target int64) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": meta(name, false), "spec": map[string]any{
			"selector": labels(), "ports": []any{map[string]any{"name": port, "protocol": "TCP", "port": number, "targetPort": target}},
		}}
	}
	replicas := func(field string) int64 {
		n, _, _ := unstructured.NestedInt64(e.Object, "spec", "publisher", "replicas", field)
		return max(n, 1)
	}
	all := []map[string]any{
		{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(publisher, false), "spec": map[string]any{ // no replicas
			"selector": map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/instance": eventing, "app.kubernetes.io/name": publisher, "kyma-project.io/dashboard": eventing}},
			"template": map[string]any{"metadata": map[string]any{"labels": labels(), "name": publisher}, "spec": map[string]any{
				"serviceAccountName": publisher, "terminationGracePeriodSeconds": int64(30),
				"containers": []any{map[string]any{
					"name": publisher, "image": PublisherImage + ":1",
					"ports":          []any{map[string]any{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}},
					"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/readyz", "port": int64(8080), "scheme": "HTTP"}, "failureThreshold": int64(3)},
				}},
			}},
		}},
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(publisher, false)},
		// The garbage collector takes no owner of an object outside of namespaces that is inside of
		// one.
		{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta(publisher, true), "rules": rules(publisherRules)},
		{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta(publisher, true),
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": publisher},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": publisher, "namespace": namespace}}},
		service(publisher, "http-client", 80, 8080),
		service(publisher+"-metrics", "http-metrics", 80, 9090),
		service(publisher+"-health", "http-status", 15020, 15020),
		{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta(publisher, false), "spec": map[string]any{
			"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": publisher}, "minReplicas": replicas("min"), "maxReplicas": replicas("max"),
			"metrics": []any{map[string]any{"type": "Resource", "resource": map[string]any{"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(60)}}}},
		}},
	}
	for _, object := range all {
		u := &unstructured.Unstructured{Object: object}
		if _, err := o.client.Resource(resourceOf(u)).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: managerName, Force: true}); err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

// deletePublisher deletes all of the publisher, with the Service that clients know.
func (o *operator) deletePublisher(ctx context.Context) error {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	autoscalers := schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	for _, of := range []struct {
		gvr  schema.GroupVersionResource
		name string
	}{{deployments, publisher}, {accounts, publisher}, {autoscalers, publisher}, {services, publisher}, {services, publisher + "-metrics"}, {services, publisher + "-health"}} {
		if err := o.client.Resource(of.gvr).Namespace(namespace).Delete(ctx, of.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// rules are those of a ClusterRole, as an object that is applied has them.
func rules(all []rbacv1.PolicyRule) (list []any) {
	texts := func(all []string) (list []any) {
		for _, text := range all {
			list = append(list, text)
		}
		return list
	}
	for _, r := range all {
		list = append(list, map[string]any{"apiGroups": texts(r.APIGroups), "resources": texts(r.Resources), "verbs": texts(r.Verbs)})
	}
	return list
}

func resourceOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	if u.GetKind() == "NATS" { // the plural of which is no rule's
		return natsObjects
	}
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	return gvr
}

// subscribeAll has a bound push consumer for each type of each Subscription.
func (o *operator) subscribeAll(ctx context.Context) error {
	list, err := o.client.Resource(subscriptions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if !o.swept { // once, when the subscription manager starts
		if err := o.sweep(list.Items); err != nil {
			return err
		}
		o.swept = true
	}
	services, err := o.client.Resource(services).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for i := range services.Items {
		there[services.Items[i].GetName()+"."+services.Items[i].GetNamespace()] = true
	}
	for i := range list.Items {
		if err := o.subscribe(ctx, &list.Items[i], there); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes consumers that nobody listens to and that no Subscription has.
func (o *operator) sweep(all []unstructured.Unstructured) error {
	used := map[string]bool{}
	for i := range all {
		_, _, subjects := asks(&all[i])
		for _, s := range subjects {
			used[consumerOf(all[i].GetNamespace(), all[i].GetName(), s)] = true
		}
	}
	for c := range o.js.Consumers(stream) {
		if !c.PushBound && !used[c.Name] {
			if err := o.js.DeleteConsumer(stream, c.Name); err != nil && !errors.Is(err, nats.ErrConsumerNotFound) {
				return err
			}
		}
	}
	return nil
}

func (o *operator) subscribe(ctx context.Context, sub *unstructured.Unstructured, services map[string]bool) error {
	of, key := o.client.Resource(subscriptions).Namespace(sub.GetNamespace()), sub.GetNamespace()+"/"+sub.GetName()
	types, clean, subjects := asks(sub)
	if sub.GetDeletionTimestamp() != nil {
		for _, s := range subjects {
			name := consumerOf(sub.GetNamespace(), sub.GetName(), s)
			delete(o.delivered, name)
			if err := o.js.DeleteConsumer(stream, name); err != nil && !errors.Is(err, nats.ErrConsumerNotFound) {
				return err
			}
		}
		sub.SetFinalizers(slices.DeleteFunc(sub.GetFinalizers(), func(f string) bool { return f == subFinalizer }))
		_, err := of.Update(ctx, sub, metav1.UpdateOptions{})
		return ignoreRace(err)
	}
	if !slices.Contains(sub.GetFinalizers(), subFinalizer) {
		sub.SetFinalizers(append(sub.GetFinalizers(), subFinalizer))
		_, err := of.Update(ctx, sub, metav1.UpdateOptions{})
		return ignoreRace(err)
	}
	sink, _, _ := unstructured.NestedString(sub.Object, "spec", "sink")
	if o.refused[key] == sub.GetResourceVersion() {
		return nil // it is looked at again when it has changed
	}
	if why := invalidSink(sink, sub.GetNamespace(), services); why != "" {
		o.refused[key] = sub.GetResourceVersion()
		return o.invalid(ctx, sub, subjects, why)
	}
	o.sinks.Store(key, sink)
	var named []any
	var cleaned []any
	for i, subject := range subjects {
		name := consumerOf(sub.GetNamespace(), sub.GetName(), subject)
		named = append(named, map[string]any{"originalType": types[i], "consumerName": name})
		cleaned = append(cleaned, map[string]any{"originalType": types[i], "cleanType": clean[i]})
		if err := o.bind(key, name, subject); err != nil {
			return err
		}
	}
	return o.subscriptionStatus(ctx, sub, named, cleaned)
}

// invalidSink says why a sink is refused: it is a Service in the namespace of the Subscription that
// exists.
func invalidSink(sink, namespace string, services map[string]bool) string {
	u, err := url.ParseRequestURI(sink)
	if err != nil {
		return "it is no URI"
	}
	service, host, _ := strings.Cut(u.Hostname(), ".")
	switch {
	case host != namespace+".svc.cluster.local":
		return "it is in another namespace, or outside the cluster"
	case !services[service+"."+namespace]:
		return "service " + service + "." + namespace + " not found in the cluster"
	}
	return ""
}

// invalid stops to listen, leaves the consumers, and takes everything from the status.
func (o *operator) invalid(ctx context.Context, sub *unstructured.Unstructured, subjects []string, why string) error {
	for _, s := range subjects {
		name := consumerOf(sub.GetNamespace(), sub.GetName(), s)
		if is := o.delivered[name]; is != nil && is.IsValid() {
			if err := is.Unsubscribe(); err != nil {
				return err
			}
		}
		delete(o.delivered, name)
	}
	return o.writeStatus(ctx, sub, map[string]any{
		"ready": false, "types": []any{}, "backend": map[string]any{},
		"conditions": []any{map[string]any{"type": "Subscription spec valid", "status": "False", "reason": "Subscription spec has validation errors", "message": "Subscription validation failed: Sink validation failed: " + why, "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	})
}

func (o *operator) bind(key, name, subject string) error {
	if is := o.delivered[name]; is != nil && is.IsValid() {
		return nil
	}
	info, err := o.js.ConsumerInfo(stream, name)
	if errors.Is(err, nats.ErrConsumerNotFound) {
		info, err = o.js.AddConsumer(stream, &nats.ConsumerConfig{
			Durable: name, Description: key + "/" + subject, DeliverPolicy: nats.DeliverNewPolicy, FlowControl: true, MaxAckPending: maxAckPending,
			AckPolicy: nats.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: maxDeliver, FilterSubject: subject, ReplayPolicy: nats.ReplayInstantPolicy,
			DeliverSubject: nats.NewInbox(), Heartbeat: heartbeat,
		})
	}
	if err != nil {
		return err
	}
	if info.PushBound {
		return fmt.Errorf("somebody listens to consumer %s already", name) // asked again later
	}
	is, err := o.js.Subscribe(subject, func(m *nats.Msg) { go o.deliver(key, m) },
		nats.Durable(name), nats.ManualAck(), nats.AckExplicit(), nats.IdleHeartbeat(heartbeat), nats.EnableFlowControl(), nats.DeliverNew(),
		nats.MaxAckPending(maxAckPending), nats.MaxDeliver(maxDeliver), nats.AckWait(ackWait), nats.Bind(stream, name))
	if err == nil {
		o.delivered[name] = is
	}
	return err
}

// sinkClient finds the sinks of a test, which are on this machine. It keeps few connections.
var sinkClient = &http.Client{Transport: &http.Transport{MaxIdleConns: 50, MaxConnsPerHost: 50, MaxIdleConnsPerHost: 50, IdleConnTimeout: 10 * time.Second, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
}}}

// deliver posts an event to its sink in binary mode.
func (o *operator) deliver(key string, m *nats.Msg) {
	var e map[string]json.RawMessage
	sink, ok := o.sinks.Load(key)
	if err := json.Unmarshal(m.Data, &e); err != nil || !ok {
		return // neither acknowledged nor refused: it comes again after AckWait
	}
	text := func(name string) (s string) {
		_ = json.Unmarshal(e[name], &s)
		return s
	}
	data := []byte(e["data"])
	if !strings.Contains(text("datacontenttype"), "json") {
		data = []byte(text("data"))
	}
	q, err := http.NewRequest(http.MethodPost, sink.(string), strings.NewReader(string(data)))
	if err != nil {
		return
	}
	for name := range e {
		if name != "data" && name != "datacontenttype" && name != "type" {
			q.Header.Set("Ce-"+name, text(name))
		}
	}
	q.Header.Set("Ce-Type", text("originaltype"))
	q.Header.Set("Content-Type", text("datacontenttype"))
	res, err := sinkClient.Do(q)
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
		_ = res.Body.Close()
	}
	if err != nil || res.StatusCode >= 300 {
		_ = m.NakWithDelay(o.options.NakDelay)
		return
	}
	_ = m.Ack()
}

// subscriptionStatus replaces the whole status, if something of it differs.
func (o *operator) subscriptionStatus(ctx context.Context, sub *unstructured.Unstructured, named, cleaned []any) error {
	return o.writeStatus(ctx, sub, map[string]any{
		"ready": true, "types": cleaned, "backend": map[string]any{"types": named},
		"conditions": []any{map[string]any{
			"type": "Subscription spec valid", "status": "True", "reason": "Subscription spec has no validation errors", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}, map[string]any{"type": "Subscription active", "status": "True", "reason": "NATS Subscription active", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	})
}

// writeStatus writes its own fields; conditions of other types stay.
func (o *operator) writeStatus(ctx context.Context, sub *unstructured.Unstructured, want map[string]any) error {
	is, _, _ := unstructured.NestedMap(sub.Object, "status")
	if valid, _ := want["ready"].(bool); valid { // otherwise, it removes all
		want["conditions"] = withOthers(is["conditions"], want["conditions"].([]any))
	}
	if same(is, want) {
		return nil
	}
	sub.Object["status"] = want
	_, err := o.client.Resource(subscriptions).Namespace(sub.GetNamespace()).UpdateStatus(ctx, sub, metav1.UpdateOptions{})
	return ignoreRace(err)
}

func (o *operator) eventingStatus(ctx context.Context, e *unstructured.Unstructured) error {
	d, err := o.client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(namespace).Get(ctx, publisher, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ready, _, _ := unstructured.NestedInt64(d.Object, "status", "availableReplicas")
	state := "Ready"
	if wanted, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas"); ready < wanted || wanted == 0 {
		state = "Processing"
	}
	sum := fnv.New32()
	_, _ = fmt.Fprint(sum, e.Object["spec"])
	want := map[string]any{
		"activeBackend": "NATS", "specHash": int64(sum.Sum32()), "state": state, "publisherService": publisher + "." + namespace,
		"conditions": []any{map[string]any{"type": "BackendAvailable", "status": "True", "reason": "NATSAvailable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}
	is, _, _ := unstructured.NestedMap(e.Object, "status")
	want["conditions"] = withOthers(is["conditions"], want["conditions"].([]any))
	if same(is, want) {
		return nil
	}
	e.Object["status"] = want
	_, err = o.client.Resource(eventings).Namespace(namespace).UpdateStatus(ctx, e, metav1.UpdateOptions{})
	return ignoreRace(err)
}

// withOthers adds conditions whose types are not its own.
func withOthers(is any, own []any) []any {
	all := slices.Clone(own)
	former, _ := is.([]any)
	for _, c := range former {
		of := func(c any) any { return c.(map[string]any)["type"] }
		if !slices.ContainsFunc(own, func(o any) bool { return of(o) == of(c) }) {
			all = append(all, c)
		}
	}
	return all
}

func same(a, b map[string]any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// ignoreRace: a conflict, or an object that is gone, is reconciled again.
func ignoreRace(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// publishing is the HTTP side of the publisher: binary mode, and structured.
func publishing(js nats.JetStreamContext, conn *nats.Conn) http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	mux.HandleFunc("/healthz", ok)
	mux.HandleFunc("/readyz", ok)
	mux.HandleFunc("POST /publish", func(w http.ResponseWriter, r *http.Request) {
		e, err := eventOf(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !conn.IsConnected() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		subject := subjectOf(e["source"].(string), e["type"].(string))
		e["originaltype"], e["type"] = e["type"], subject
		data, err := json.Marshal(e)
		if err == nil {
			_, err = js.PublishMsg(&nats.Msg{Subject: subject, Data: data, Header: nats.Header{"ce-id": {e["id"].(string)}}})
		}
		switch {
		case errors.Is(err, nats.ErrNoStreamResponse):
			w.WriteHeader(http.StatusGatewayTimeout)
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	return mux
}

const maxBody = 64 << 10

// eventOf reads a CloudEvent.
func eventOf(w http.ResponseWriter, r *http.Request) (map[string]any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	e := map[string]any{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/cloudevents+json") {
		err = json.Unmarshal(body, &e)
	} else {
		for name := range r.Header {
			if attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
				e[attribute] = r.Header.Get(name)
			}
		}
		e["datacontenttype"] = r.Header.Get("Content-Type")
		if e["data"] = any(string(body)); strings.Contains(r.Header.Get("Content-Type"), "json") {
			e["data"] = json.RawMessage(body)
		}
	}
	for _, name := range []string{"id", "source", "type", "specversion"} {
		if s, _ := e[name].(string); s == "" {
			return nil, fmt.Errorf("%s: must be a non-empty string", name)
		}
	}
	return e, err
}
