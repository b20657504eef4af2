package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

func TestClientGoLogs(t *testing.T) {
	for level, want := range map[string][]string{
		"debug": {"DEBUG client-go connecting", "DEBUG client-go the API is deprecated", "WARN client-go cannot watch: connection reset", "DEBUG client-go cannot read: reading: context canceled", "DEBUG client-go reconnecting"},
		"info":  {"WARN client-go cannot watch: connection reset"},
		"error": nil,
	} {
		t.Run(level, func(t *testing.T) {
			var b bytes.Buffer
			defer KlogTo(NewLogger(&b, LogSettings{Level: level}))()
			klog.InfoS("connecting")
			klog.Warning("the API is deprecated")
			klog.ErrorS(errors.New("connection reset"), "cannot watch")
			klog.ErrorS(fmt.Errorf("reading: %w", context.Canceled), "cannot read")
			klog.Background().V(4).Info("reconnecting")
			klog.Background().V(6).Info("far too much")

			var got []string
			for line := range strings.Lines(b.String()) {
				// Without the time, and the fields after the message.
				parts := strings.Split(strings.TrimSpace(line), "  ")
				got = append(got, strings.TrimSpace(strings.Join(parts[1:4], " ")))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("client-go's errors are repeated calls, no news for who asked for %s (-want +got):\n%s", level, diff)
			}
		})
	}
}

func TestMutedKeepsFields(t *testing.T) {
	var b bytes.Buffer
	defer KlogTo(NewLogger(&b, LogSettings{JSON: true, Level: "info"}).With(zap.String("a", "b")))()
	klog.Background().WithValues("c", "d").Error(nil, "cannot list")
	for _, want := range []string{`"level":"warn"`, `"a":"b"`, `"c":"d"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, &b)
		}
	}
}

// TestNothingSecretIsLogged: every line goes through the redactor, whatever it quotes.
// It fails on the commit before.
func TestNothingSecretIsLogged(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		var out bytes.Buffer
		log := NewLogger(&out, LogSettings{JSON: asJSON, Level: "info"})
		const address = "http://me:hunter2@fn.shop/?code=hunter2"
		log.Named("x").With(zap.String("with", address)).Info("posted to "+address, zap.String("uri", address), zap.Error(errors.New(address)), zap.Strings("all", []string{address}))
		if got := out.String(); strings.Contains(got, "hunter2") || strings.Count(got, "http://fn.shop/?code=…") != 5 {
			t.Errorf("JSON %t: %s", asJSON, got)
		}
	}
}
