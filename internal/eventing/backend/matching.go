package backend

import (
	"errors"
	"strings"
)

// FormerPrefix begins the types of events as they were named by Kyma's first eventing, and still
// are by Subscriptions with typeMatching exact: sap.kyma.custom.<application>.<event>.<version>.
const FormerPrefix = "sap.kyma.custom"

// formerSource is the source of events that are named so.
const formerSource = "kyma"

// IsFormer tells whether a type is named as by Kyma's first eventing.
func IsFormer(eventType string) bool { return strings.HasPrefix(eventType, FormerPrefix+".") }

// Matched returns which events a type of a Subscription means: their source, "" for any, and their
// type. With typeMatching exact, the type is the whole name of the events, and the source of the
// Subscription says nothing: "<source>.<type>", or a type that begins with FormerPrefix, of any
// source. docs/decisions/1441-typematching-exact.md.
func Matched(exact bool, source, eventType string) (ofSource, ofType string) {
	switch {
	case !exact:
		return source, eventType
	case IsFormer(eventType):
		return "", eventType
	}
	ofSource, ofType, _ = strings.Cut(eventType, ".")
	return ofSource, ofType
}

// Former returns how Kyma's first eventing named an event of an Application. false: it had no name
// for it, because nothing is left of a part of it.
func Former(application, event, version string) (source, eventType string, ok bool) {
	parts := append(append([]string{application}, combined(strings.Split(event, "."))...), version)
	for i := range parts {
		parts[i] = alphanumeric(parts[i])
		if parts[i] == "" {
			return "", "", false
		}
	}
	return formerSource, FormerPrefix + "." + strings.Join(parts, "."), true
}

// CleanFormer returns the type of a CloudEvent that is named so in the form in which Subscriptions
// name it: application, business object, operation and version of letters and digits alone.
func CleanFormer(eventType string) (string, error) {
	parts := strings.Split(strings.TrimPrefix(eventType, FormerPrefix+"."), ".")
	if len(parts) < 4 {
		return "", errors.New("a type that begins with " + FormerPrefix + " continues with application, business object, operation and version")
	}
	last := len(parts) - 1
	_, clean, ok := Former(parts[0], strings.Join(parts[1:last], "."), parts[last])
	if !ok {
		return "", errors.New("a part of the type has no letter and no digit")
	}
	return clean, nil
}

// FormerOf returns the application that a type is of which begins with FormerPrefix, as it is
// written there.
func FormerOf(eventType string) (application string) {
	application, _, _ = strings.Cut(strings.TrimPrefix(eventType, FormerPrefix+"."), ".")
	return application
}

// OfApplication returns a type that CleanFormer has returned as one of another application; "" if
// nothing is left of its name.
func OfApplication(eventType, application string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(eventType, FormerPrefix+"."), ".")
	if application = alphanumeric(application); application == "" {
		return ""
	}
	return FormerPrefix + "." + application + "." + rest
}

// FormerApplication is what the types of an Application begin with, as Former names them.
func FormerApplication(application string) string {
	return FormerPrefix + "." + alphanumeric(application)
}

// combined makes at most two parts of an event's name: all but the last one are one.
func combined(parts []string) []string {
	if last := len(parts) - 1; last > 1 {
		return []string{strings.Join(parts[:last], ""), parts[last]}
	}
	return parts
}

func alphanumeric(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
}
