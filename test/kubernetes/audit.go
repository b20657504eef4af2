package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// ErrNoAudit says that this cluster's audit log is out of reach, because EVENTMESH_TEST_KUBECONFIG
// named it: tests that count requests skip.
var ErrNoAudit = errors.New("the audit log of this cluster cannot be read: unset " + KubeconfigEnv + " to use an own one")

// Request is a request the API server has answered; a watch counts from its first answer on.
type Request struct {
	// Verb is the API's: get, list, watch, create, update, patch, delete, deletecollection; for a
	// path that is no resource the HTTP method in lower case.
	Verb string
	// Resource is "group/resource", in the core group "resource" alone, and empty for a path that
	// is no resource, such as discovery.
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	UserAgent   string
	User        string
	URI         string
	Code        int
	// Received and Completed are the server's times. Completed of a watch is when it began to
	// answer.
	Received, Completed time.Time
}

// String is a request on one line, for messages of tests.
func (r Request) String() string {
	return fmt.Sprintf("%s %s (%d)", r.Verb, r.URI, r.Code)
}

// Mark is a moment in the audit log.
type Mark int64

// Mark returns the present moment: every request answered before is earlier, every one sent from
// now on is later.
func (c *ControlPlane) Mark(ctx context.Context) (Mark, error) {
	if c.AuditLog == "" {
		return 0, ErrNoAudit
	}
	// Earlier entries of the log are skipped: there may be many.
	info, err := os.Stat(c.AuditLog)
	if err != nil {
		return 0, fmt.Errorf("cannot read audit log: %w", err)
	}
	return c.scan(ctx, info.Size(), func([]byte) error { return nil })
}

// Requests returns the requests answered between the mark and now that the filter admits (nil
// admits all), in the order of their answers. Those of Mark and Requests themselves are never among
// them.
func (c *ControlPlane) Requests(ctx context.Context, since Mark, filter func(Request) bool) ([]Request, error) {
	var requests []Request
	_, err := c.scan(ctx, int64(since), func(line []byte) error {
		request, counts, err := parse(line)
		if err == nil && counts && (filter == nil || filter(request)) {
			requests = append(requests, request)
		}
		return err
	})
	return requests, err
}

// IsWrite says whether a request was to change something. Asking for one's own permissions is a
// create in the API, but changes nothing.
func IsWrite(r Request) bool {
	switch r.Verb {
	case "create":
		return !slices.Contains([]string{
			"authorization.k8s.io/selfsubjectaccessreviews", "authorization.k8s.io/selfsubjectrulesreviews", "authentication.k8s.io/selfsubjectreviews",
		}, r.Resource)
	case "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// By admits the requests whose user agent begins with the prefix.
func By(userAgentPrefix string) func(Request) bool {
	return func(r Request) bool { return strings.HasPrefix(r.UserAgent, userAgentPrefix) }
}

// All admits what every one of the filters admits.
func All(filters ...func(Request) bool) func(Request) bool {
	return func(r Request) bool {
		for _, filter := range filters {
			if !filter(r) {
				return false
			}
		}
		return true
	}
}

// sentinelAgent begins the user agent of the requests that mark a place in the log.
const sentinelAgent = userAgent + "-sentinel/"

// scan hands over the lines from an offset up to those of a request of its own, sent now, and
// returns the offset behind it. The server writes a line before it finishes an answer, so that
// everything answered by now stands before it.
func (c *ControlPlane) scan(ctx context.Context, from int64, line func([]byte) error) (Mark, error) {
	if c.AuditLog == "" {
		return 0, ErrNoAudit
	}
	agent := sentinelAgent + string(uuid.NewUUID())
	if err := c.sentinel(ctx, agent); err != nil {
		return 0, fmt.Errorf("cannot mark audit log: %w", err)
	}
	f, err := os.Open(c.AuditLog)
	if err != nil {
		return 0, fmt.Errorf("cannot read audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, fmt.Errorf("cannot read audit log: %w", err)
	}
	reader := bufio.NewReaderSize(f, 1<<18)
	offset := from
	for deadline := time.Now().Add(10 * time.Second); ; {
		read, err := readLine(ctx, reader, deadline)
		if err != nil {
			return 0, fmt.Errorf("cannot read audit log: %w", err)
		}
		offset += int64(len(read))
		switch {
		case bytes.Contains(read, []byte(agent)):
			return Mark(offset), nil
		case bytes.Contains(read, []byte(sentinelAgent)):
		default:
			if err := line(read); err != nil {
				return 0, fmt.Errorf("cannot read audit log: %w", err)
			}
		}
	}
}

// readLine reads a whole line, and waits for the rest of one that is being written.
func readLine(ctx context.Context, reader *bufio.Reader, deadline time.Time) ([]byte, error) {
	var line []byte
	for {
		part, err := reader.ReadBytes('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, io.EOF):
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case time.Now().After(deadline):
			return nil, errors.New("the request that marks its end is not in it")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// sentinel sends a request that is found again by its user agent.
func (c *ControlPlane) sentinel(ctx context.Context, agent string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.config.Host+"/version", nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", agent)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// event is what is read of an audit.k8s.io/v1 Event; its own package would bring the API server's
// library along.
type event struct {
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ImpersonatedUser *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time `json:"stageTimestamp"`
}

// parse reads a line of the log. A watch has two: one when it begins, which counts, and one when it
// ends, which may be long after the mark its test is interested in.
func parse(line []byte) (_ Request, counts bool, _ error) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return Request{}, false, fmt.Errorf("cannot parse %q: %w", line, err)
	}
	r := Request{
		Verb:        e.Verb,
		Resource:    e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace,
		Name:        e.ObjectRef.Name,
		UserAgent:   e.UserAgent,
		User:        e.User.Username,
		URI:         e.RequestURI,
		Code:        e.ResponseStatus.Code,
		Received:    e.RequestReceivedTimestamp,
		Completed:   e.StageTimestamp,
	}
	if e.ObjectRef.APIGroup != "" {
		r.Resource = e.ObjectRef.APIGroup + "/" + e.ObjectRef.Resource
	}
	if e.ImpersonatedUser != nil {
		r.User = e.ImpersonatedUser.Username
	}
	begun := e.Stage == "ResponseStarted"
	return r, begun == (e.Verb == "watch"), nil
}
