package stream

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// DeadLetters is the stream of events that were given up. A full one refuses more, so that they
// wait where they are: NATS discards nothing but what is older than an administrator wants to keep
// it.
func DeadLetters(c operatorv1alpha1.BackendConfig, size int64) jetstream.StreamConfig {
	want := Config(c, "", true)
	delete(want.Metadata, epochKey) // it outlives them
	want.Name, want.Subjects = backend.DeadLetters, []string{backend.DeadLetterSubjects}
	want.Retention, want.MaxBytes, want.MaxMsgsPerSubject, want.DiscardNewPerSubject = jetstream.LimitsPolicy, size, -1, false
	want.MaxAge = c.DeadLetterMaxAge.Duration
	return want
}

// Ours tells whether the operator has created a stream.
func Ours(c jetstream.StreamConfig) bool { return c.Metadata[managedBy] == backend.Operator }

// JudgeDeadLetters is what the condition NoDeadLetters says: its reason, its message, and whether
// there is little room for more.
func JudgeDeadLetters(info *jetstream.StreamInfo) (reason, message string, narrow bool) {
	const largest = 1 << 20
	if info.State.Msgs == 0 {
		return operatorv1alpha1.ReasonNoDeadLetters, "", false
	}
	reason, more := operatorv1alpha1.ReasonDeadLetters, ""
	percent := min(100, Percent(info.State.Bytes, info.Config.MaxBytes))
	switch left := info.Config.MaxBytes - int64(info.State.Bytes); { //nolint:gosec // less than 2^63
	case left < largest:
		reason, more = operatorv1alpha1.ReasonDeadLettersFull, " There is no room for more: other events that sinks refuse wait in the stream of events."
	case percent >= FullPercent:
		more = fmt.Sprintf(" Their stream is %d %% full.", percent)
	}
	return reason, Kept(info) + more + " Next: kubectl eventing dead-letters list --all-namespaces", more != ""
}

// Kept says how many dead letters there are, and until when the oldest is kept.
func Kept(info *jetstream.StreamInfo) string {
	text := fmt.Sprintf("%d events that sinks did not take are stored as dead letters", info.State.Msgs)
	if age := info.Config.MaxAge; age > 0 {
		text += fmt.Sprintf(", the oldest until %s", info.State.FirstTime.Add(age).UTC().Format(time.RFC3339))
	}
	return text + "."
}

// Status is what the status of the Eventing says of the streams, but for the servers. letters is
// nil without dead letters.
func Status(events, letters *jetstream.StreamInfo) *operatorv1alpha1.NATSStatus {
	status := &operatorv1alpha1.NATSStatus{
		Messages: int64(events.State.Msgs), Bytes: int64(events.State.Bytes), Storage: operatorv1alpha1.StorageFile, //nolint:gosec // neither reaches 2^63
	}
	if events.Config.Storage == jetstream.MemoryStorage {
		status.Storage = operatorv1alpha1.StorageMemory
	}
	if letters != nil && Ours(letters.Config) {
		status.DeadLetters = int64(letters.State.Msgs) //nolint:gosec // it does not reach 2^63
	}
	return status
}
