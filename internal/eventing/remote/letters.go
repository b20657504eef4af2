package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"k8s.io/client-go/rest"
)

// APIPort is that of the controller's API, on the loopback of its pods.
const APIPort = 8085

// mostAnswer bounds an answer that is read whole, and mostLine a line of one that is not.
const (
	mostAnswer = 16 << 20
	mostLine   = 1 << 20
)

// queryOf is a filter as the API reads it.
func queryOf(f wire.Filter) url.Values {
	values := url.Values{}
	set := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	set("namespace", f.Namespace)
	set("subscription", f.Subscription)
	set("type", f.Type)
	set("answer", f.Answer)
	for name, at := range map[string]time.Time{"after": f.After, "before": f.Before} {
		if !at.IsZero() {
			values.Set(name, at.UTC().Format(time.RFC3339))
		}
	}
	return values
}

// page is a part of a list.
type page struct {
	Items []wire.Letter `json:"items"`
	// Continue asks for the next page. It is a text, or a number; none or 0 is the last page.
	Continue json.RawMessage `json:"continue"`
	Total    int             `json:"total"`
}

func (p *page) next() string {
	token := strings.Trim(string(p.Continue), `"`)
	if token == "0" || token == "null" {
		return ""
	}
	return token
}

// RefusedError is an answer of the API that is no success.
type RefusedError struct {
	Status int
	Text   string
	// Leader is the pod to ask instead, with the status 421.
	Leader string
}

func (e *RefusedError) Error() string { return e.Text }

// InterruptedError says that the work has ended before its end. What is left stays a dead letter.
type InterruptedError struct{ Err error }

func (e *InterruptedError) Error() string {
	if e.Err == nil {
		return "the controller has ended the work before its end, as when it is restarted"
	}
	return e.Err.Error()
}

// Unwrap is for errors.Is and errors.As.
func (e *InterruptedError) Unwrap() error { return e.Err }

// Letters is the API of a controller. It knows who asks by the credentials of the kubeconfig.
type Letters struct {
	base *url.URL
	http *http.Client
}

// NewLetters returns the API at an address, https://<host>:<port>. Its certificate is signed by
// nobody: certificate is its SHA-256 in hexadecimal, and any other one is refused, before the
// credentials are sent.
func NewLetters(cfg *rest.Config, address, certificate string) (*Letters, error) {
	if cfg.Impersonate.UserName != "" {
		return nil, errors.New("the kubeconfig asks to act as somebody else (as: ...), which the controller does not know. Use the credentials of that account")
	}
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("%q is no address such as https://127.0.0.1:%d", address, APIPort)
	}
	client, err := pinned(cfg, certificate, "the controller that leads")
	if err != nil {
		return nil, err
	}
	return &Letters{base: base, http: client}, nil
}

// pinned is a client that has the credentials of a kubeconfig, for a program whose certificate is
// signed by nobody.
func pinned(cfg *rest.Config, certificate, program string) (*http.Client, error) {
	config, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	config = config.Clone()
	config.RootCAs, config.ServerName, config.NextProtos = nil, "", nil
	config.MinVersion = tls.VersionTLS13
	config.InsecureSkipVerify = true //nolint:gosec // VerifyConnection compares the certificate with the one that is expected
	config.VerifyConnection = func(s tls.ConnectionState) error { return verify(s, certificate, program) }
	own, err := rest.HTTPWrappersForConfig(cfg, &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: false})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: own, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

func verify(s tls.ConnectionState, certificate, program string) error {
	if len(s.PeerCertificates) == 0 {
		return fmt.Errorf("%s shows no certificate", program)
	}
	sum := sha256.Sum256(s.PeerCertificates[0].Raw)
	if is := hex.EncodeToString(sum[:]); !strings.EqualFold(is, certificate) {
		return fmt.Errorf("who answers is not %s: its certificate has the SHA-256 %s, and the expected one is %s. If it has just started, try again", program, is, certificate)
	}
	return nil
}

// List hands over all dead letters that a filter chooses, at most a number of them (0: all), page
// by page. It returns how many there are.
func (l *Letters) List(ctx context.Context, f wire.Filter, most int, each func(wire.Letter) error) (total int, err error) {
	query, told := queryOf(f), 0
	query.Set("limit", "500")
	for {
		var p page
		if err := l.read(ctx, "/v1/dead-letters", query, &p); err != nil {
			return total, err
		}
		total = max(total, p.Total, told+len(p.Items))
		for i := range p.Items {
			if most > 0 && told == most {
				return total, nil
			}
			told++
			if err := each(p.Items[i]); err != nil {
				return total, err
			}
		}
		if p.next() == "" || most > 0 && told == most {
			return total, nil
		}
		query.Set("continue", p.next())
	}
}

// Show returns a dead letter.
func (l *Letters) Show(ctx context.Context, sequence uint64, payload bool) (*wire.Shown, error) {
	query := url.Values{}
	if payload {
		query.Set("payload", "true")
	}
	s := &wire.Shown{}
	if err := l.read(ctx, "/v1/dead-letters/"+strconv.FormatUint(sequence, 10), query, s); err != nil {
		return nil, err
	}
	return s, nil
}

// What can be done with dead letters.
const (
	Redeliver = "redeliver"
	Delete    = "delete"
)

// Work does something with all dead letters that a filter chooses, and tells of each as it is done.
// Without a summary it was interrupted, and the error says so.
func (l *Letters) Work(ctx context.Context, what string, f wire.Filter, each func(wire.Done)) (*wire.Summary, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	res, err := l.ask(ctx, http.MethodPost, "/v1/dead-letters/"+what, nil, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, mostLine)
	for lines.Scan() {
		var sum wire.Summary
		var one wire.Done
		if err := errors.Join(json.Unmarshal(lines.Bytes(), &sum), json.Unmarshal(lines.Bytes(), &one)); err != nil {
			return nil, &InterruptedError{fmt.Errorf("cannot understand the answer of the controller: %w", err)}
		}
		if sum.Done {
			return &sum, nil
		}
		each(one)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, &InterruptedError{lines.Err()}
}

// Watch returns the deliveries of an event from now on. The channel is closed when the context
// ends, or the controller does.
func (l *Letters) Watch(ctx context.Context, source, id string) (<-chan wire.Delivery, error) {
	res, err := l.ask(ctx, http.MethodGet, "/v1/deliveries", url.Values{"source": {source}, "id": {id}}, nil) //nolint:bodyclose // by who reads it, below
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, mostLine)
	if !lines.Scan() { // the first line says that it watches
		_ = res.Body.Close()
		return nil, fmt.Errorf("the controller does not watch the event: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	seen := make(chan wire.Delivery)
	go func() {
		defer close(seen)
		defer func() { _ = res.Body.Close() }()
		for lines.Scan() {
			var d wire.Delivery
			if json.Unmarshal(lines.Bytes(), &d) != nil {
				return
			}
			select {
			case seen <- d:
			case <-ctx.Done():
				return
			}
		}
	}()
	return seen, nil
}

func (l *Letters) read(ctx context.Context, path string, query url.Values, into any) error {
	res, err := l.ask(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(res.Body, mostAnswer)).Decode(into); err != nil {
		return fmt.Errorf("cannot understand the answer of the controller: %w", err)
	}
	return nil
}

// ask returns an answer that is a success.
func (l *Letters) ask(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	at := l.base.JoinPath(path)
	at.RawQuery = query.Encode()
	q, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	res, err := l.http.Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("cannot ask the controller: %w", err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what was read is told
	var answer struct{ Error, Leader string }
	if json.Unmarshal(raw, &answer) != nil || answer.Error == "" && answer.Leader == "" {
		answer.Error = fmt.Sprintf("the controller answers %s", res.Status)
	}
	return nil, &RefusedError{res.StatusCode, answer.Error, answer.Leader}
}
