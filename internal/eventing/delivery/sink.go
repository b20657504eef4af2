package delivery

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Sink is where the events of a Subscription go: a Service in the namespace of the Subscription.
type Sink struct {
	Namespace, Service string
	url                *url.URL
}

// clusterDomain ends the host of each sink.
const clusterDomain = "svc.cluster.local"

// ParseSink reads the sink of a Subscription in a namespace. A sink that is not a Service of that
// namespace is refused: with the controller's place in the network, the Subscription would reach
// what its author cannot.
func ParseSink(namespace, text string) (Sink, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return Sink{}, fmt.Errorf("sink is no URL") // the error of url repeats the text, whatever that is
	case u.Scheme != "http" && u.Scheme != "https":
		return Sink{}, fmt.Errorf("sink must begin with http:// or https://")
	case u.User != nil || u.Opaque != "" || u.Fragment != "":
		return Sink{}, fmt.Errorf("sink must be http(s)://<service>.<namespace>.%s[:port][/path]", clusterDomain)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return Sink{}, fmt.Errorf("sink has the port %q: use a number from 1 to 65535", port)
		}
	}
	labels := strings.SplitN(u.Hostname(), ".", 3)
	if len(labels) != 3 || labels[0] == "" || labels[2] != clusterDomain {
		return Sink{}, fmt.Errorf("sink must be http(s)://<service>.<namespace>.%s[:port][/path]", clusterDomain)
	}
	if labels[1] != namespace {
		return Sink{}, fmt.Errorf("sink is in namespace %q: use a Service in the namespace of the Subscription, %q", labels[1], namespace)
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return Sink{Namespace: namespace, Service: labels[0], url: u}, nil
}
