package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// mostSubjects bounds what is asked about the subjects of a stream: NATS answers with all of
	// them.
	mostSubjects = 10_000
	// account is that of the programs: charts/eventing/charts/nats/templates/_nats.conf.tpl.
	account = "EVENTING"
	// mostSampled bounds how many of them are looked at for the size of their events: each answer
	// has an event.
	mostSampled = 20
)

// Volume is what a NATS server of ours says of its volume, in the limits of the account:
// cmd/internal/nats-server/volume.go.
type Volume struct {
	// Refuses: no event is taken, so that there is room to delete.
	Refuses bool
	// Percent is how full the volume is; 0 if that is unknown.
	Percent int
	// NotWritable: no file can be created in it.
	NotWritable bool
}

// notWritable is said in the place of how full the volume is.
const notWritable = 101

// Room reads what the server says of its volume. A server of another image says nothing.
func Room(of *jetstream.AccountInfo) Volume {
	v := Volume{Refuses: of.Limits.MaxStore == 0, NotWritable: of.Limits.MemoryMaxStreamBytes == notWritable}
	if percent := of.Limits.MemoryMaxStreamBytes; percent > 0 && percent <= 100 {
		v.Percent = int(percent)
	}
	return v
}

// RefusesAt asks one server, by its name, whether it has closed its volume. Each server does so by
// itself. It needs a connection of the system account.
func RefusesAt(ctx context.Context, system *nats.Conn, server string) (bool, error) {
	question, err := json.Marshal(map[string]any{"server_name": server, "exact_match": true, "account": account, "accounts": true})
	if err != nil {
		return false, err
	}
	message, err := system.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.JSZ", question)
	if err != nil {
		return false, err
	}
	var answer struct {
		Data struct {
			Accounts []struct {
				// MaxStore is the limit of the account; none is -1, as a number without a sign.
				MaxStore *uint64 `json:"reserved_storage"`
			} `json:"account_details"`
		} `json:"data"`
	}
	if err := json.Unmarshal(message.Data, &answer); err != nil {
		return false, err
	}
	if found := answer.Data.Accounts; len(found) != 1 || found[0].MaxStore == nil {
		return false, fmt.Errorf("NATS server %s does not say the limits of the account %s", server, account)
	}
	return *answer.Data.Accounts[0].MaxStore == 0, nil
}

// Full are the subjects of which the stream takes no more events, because it holds as many as it
// may of one subject. It asks only if it holds so many at all.
func Full(ctx context.Context, s jetstream.Stream) (full []string, err error) {
	info := s.CachedInfo()
	most := info.Config.MaxMsgsPerSubject
	if most <= 0 || info.State.Msgs < uint64(most) {
		return nil, nil
	}
	counts, err := Counts(ctx, s)
	for subject, n := range counts {
		if n >= uint64(most) {
			full = append(full, subject)
		}
	}
	slices.Sort(full)
	return full, err
}

// Counts are how many events the stream holds of each subject; nil if it has too many subjects.
func Counts(ctx context.Context, s jetstream.Stream) (map[string]uint64, error) {
	if s.CachedInfo().State.NumSubjects > mostSubjects {
		return nil, nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}

// Sizes are about how many bytes one event takes of those subjects that have the most events: as
// many as the last one of each.
func Sizes(ctx context.Context, s jetstream.Stream, counts map[string]uint64) (map[string]uint64, error) {
	sizes := map[string]uint64{}
	subjects := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for _, subject := range subjects[:min(len(subjects), mostSampled)] {
		last, err := s.GetLastMsgForSubject(ctx, subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // it has been taken
			continue
		case err != nil:
			return nil, err
		}
		n := len(subject) + len(last.Data)
		for key, values := range last.Header {
			for _, value := range values {
				n += len(key) + len(value) + len(": \r\n")
			}
		}
		sizes[subject] = uint64(n) //nolint:gosec // never negative
	}
	return sizes, nil
}
