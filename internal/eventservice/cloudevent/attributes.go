package cloudevent

import (
	"net/http"
	"slices"
	"strings"
)

// reserved are attributes that come from the body, or from us: a header, or an
// extension, must not say something else.
var reserved = map[string]bool{
	"id": true, "source": true, "type": true, "time": true, "specversion": true, "data": true, "database64": true,
	"datacontenttype": true, "datacontentencoding": true, "schemaurl": true,
	VersionExtension: true, SourceExtension: true,
	// Names that the Event Bus used for the same.
	"eventid": true, "eventtype": true, "eventtime": true, "cloudeventsversion": true,
}

// The extensions by which Triggers select, and which subscribers of 1.11 see.
const (
	VersionExtension = "eventtypeversion"
	SourceExtension  = "sourceid"
)

// Printable says whether a header carries a text unchanged: printable ASCII without
// spaces.
var Printable = OnlyOf(func(c byte) bool { return '!' <= c && c <= '~' })

// validExtension is a name of CloudEvents 1.0.
var validExtension = OnlyOf(func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' })

// OnlyOf returns what tells whether a text has allowed bytes only, and any at all. It is
// the expression ^[...]+$, in a tenth of the time of package regexp.
func OnlyOf(allowed func(byte) bool) func(string) bool {
	var set [256]bool
	for c := range set {
		set[c] = allowed(byte(c))
	}
	return func(text string) bool {
		for i := range len(text) {
			if !set[text[i]] {
				return false
			}
		}
		return text != ""
	}
}

// ValidName says whether an attribute may be called so.
func ValidName(name string) bool { return validExtension(name) }

// MayPass says whether an attribute of the client's goes with the event: any that
// is nobody else's. Knative's own (knativebrokerttl: how often the event may be
// handed on) are the mesh's to set: with one of them a client could have its
// event dropped.
func MayPass(name string) bool {
	return validExtension(name) && !others(name)
}

// others says whether an attribute is not the client's to set with a header.
func others(name string) bool { return reserved[name] || strings.HasPrefix(name, "knative") }

// AddHeaders adds what the client said in ce-* headers. What is in the body
// wins: that is what the API documents.
func (e *Event) AddHeaders(header http.Header) {
	var keys []string
	for key, values := range header {
		if len(key) > 3 && strings.EqualFold(key[:3], "ce-") && len(values) > 0 && values[0] != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys) // the same event always loses the same ones if there are too many
	for _, key := range keys {
		if name := strings.ToLower(key[3:]); !others(name) && !e.addHeader(name, header[key][0]) {
			e.LeftOut = append(e.LeftOut, "ce-"+name)
		}
	}
}

// addHeader returns false if an attribute cannot go with the event.
func (e *Event) addHeader(name, value string) bool {
	switch {
	case !validExtension(name):
		return false
	case name == "subject":
		return e.subject != "" || e.SetSubject(value)
	case name == "dataschema":
		return e.dataSchema != "" || e.SetSchema(value)
	}
	if _, ok := e.extensions[name]; ok {
		return true
	}
	return e.SetExtension(name, value)
}
