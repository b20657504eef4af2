package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// throughNATS sends an event as the publisher, and gets it as the controller. A user that the
// server does not know is refused, and so is what the publisher may not do.
func throughNATS(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	publisher, err := connected(ctx, url, "publisher", []byte(os.Getenv("PUBLISHER")))
	if err != nil {
		return err
	}
	defer publisher.Close()
	controller, err := connected(ctx, url, "controller", []byte(os.Getenv("CONTROLLER")))
	if err != nil {
		return err
	}
	defer controller.Close()
	consumers, err := jetstream.New(controller)
	if err != nil {
		return err
	}
	events, err := jetstream.New(publisher)
	if err != nil {
		return err
	}
	config := stream.Consumer("shop", "orders", []string{backend.Filter("commerce", "order.created.v1")}, false)
	consumer, err := consumers.CreateConsumer(ctx, backend.Stream, config)
	if err != nil {
		return fmt.Errorf("cannot create a consumer: %w", err)
	}
	if _, err := events.Publish(ctx, backend.Subject("commerce", "order.created.v1"), []byte("an order")); err != nil {
		return fmt.Errorf("cannot publish: %w", err)
	}
	message, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
	if err != nil {
		return fmt.Errorf("cannot consume: %w", err)
	}
	if err := message.DoubleAck(ctx); err != nil {
		return fmt.Errorf("cannot acknowledge: %w", err)
	}
	fmt.Printf("consumed %q\n", message.Data())
	if err := consumers.DeleteConsumer(ctx, backend.Stream, config.Durable); err != nil {
		return fmt.Errorf("cannot delete the consumer: %w", err)
	}

	if err := publisher.Publish("$JS.API.STREAM.DELETE."+backend.Stream, nil); err != nil {
		return err
	}
	if err := publisher.FlushWithContext(ctx); err != nil {
		return err
	}
	if !errors.Is(publisher.LastError(), nats.ErrPermissionViolation) {
		return fmt.Errorf("the publisher may delete the stream: %w", publisher.LastError())
	}
	seed, err := natsutil.NewUser()
	if err != nil {
		return err
	}
	wrong, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	if c, err := connected(wrong, url, "publisher", seed); err == nil {
		c.Close()
		return errors.New("a user with another key is let in")
	} else if !errors.Is(err, nats.ErrAuthorization) {
		return fmt.Errorf("a user with another key is not refused for its key: %w", err)
	}
	fmt.Println("wrong credentials are refused")
	return nil
}

// connected returns a connection that is established, or why it is not.
func connected(ctx context.Context, url, user string, seed []byte) (*nats.Conn, error) {
	problems := make(chan error, 64)
	note := func(_ *nats.Conn, err error) {
		select {
		case problems <- err:
		default:
		}
	}
	c, err := natsutil.Connect(url, natsutil.Account{Name: "e2e-" + user, Seed: seed, CA: []byte(os.Getenv("CA")), Inbox: "_INBOX." + user}, nats.ReconnectErrHandler(note))
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !c.IsConnected() {
		select {
		case err := <-problems:
			if errors.Is(err, nats.ErrAuthorization) {
				c.Close()
				return nil, fmt.Errorf("cannot connect to %s as %s: %w", url, user, err)
			}
		case <-ctx.Done():
			err := c.LastError()
			c.Close()
			return nil, fmt.Errorf("cannot connect to %s as %s: %w", url, user, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
	return c, nil
}
