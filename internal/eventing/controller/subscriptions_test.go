package controller

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// TestDeleteConsumer: a process whose cache is late deletes what was made for a Subscription that
// is gone, while there is another one of that name. On a979837 it deleted the consumer of that one,
// and with it the events that it had not delivered.
func TestDeleteConsumer(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: backend.Stream, Subjects: []string{"a.>"}}); err != nil {
		t.Fatal(err)
	}
	to, err := connection.Over(conn)
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{log: zap.NewNop(), lock: &fence.Fence{}, connection: to, made: map[types.NamespacedName]made{}, purges: &purges{connection: to, filters: map[string]bool{}}}
	key := types.NamespacedName{Namespace: "default", Name: "orders"}
	for _, tc := range []struct {
		reason string
		of     string // the UID that the consumer has
		uid    types.UID
		stays  bool
	}{
		{"its own", "1", "1", false},
		{"that of a later Subscription", "2", "1", true},
		{"there is no Subscription of this name", "2", "", false},
		{"made before consumers had a UID", "", "1", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			want := stream.Consumer(key.Namespace, key.Name, []string{"a.b"}, false)
			want.Metadata = map[string]string{stream.UIDKey: tc.of}
			if _, err := js.CreateOrUpdateConsumer(t.Context(), backend.Stream, want); err != nil {
				t.Fatal(err)
			}
			clear(c.purges.filters)
			if err := c.deleteConsumer(t.Context(), key, tc.uid); err != nil {
				t.Fatal(err)
			}
			_, err := js.Consumer(t.Context(), backend.Stream, want.Durable)
			if stays := err == nil; stays != tc.stays || c.purges.filters["a.b"] == tc.stays {
				t.Errorf("it stays: %v; purged later: %v", err, c.purges.filters)
			}
			if err := js.DeleteConsumer(t.Context(), backend.Stream, want.Durable); (err == nil) != tc.stays {
				t.Fatal(err)
			}
		})
	}
	if err := c.deleteConsumer(t.Context(), key, "1"); err != nil {
		t.Errorf("there is none: %v", err)
	}
}
