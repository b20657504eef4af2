// Package seeds has bodies for the tests of the legacy API and of its server.
package seeds

import (
	"encoding/json"
	"strings"
)

// Bodies are those of v1 and v2 that once were, or might be, read in two ways.
func Bodies() (v1, v2 []string) {
	const valid = `{"event-type":"a","event-type-version":"v1","event-id":"31109198-4d69-4ae0-972d-76117f3748c8","event-time":"2018-11-02T22:08:41Z","data":{"a":1}}`
	const validV2 = `{"type":"a","eventtypeversion":"v1","id":"31109198-4d69-4ae0-972d-76117f3748c8","time":"2018-11-02T22:08:41Z","specversion":"0.3","data":"AA==","datacontentencoding":"base64"}`
	const other = `{"specversion":"1.0","id":"not a uuid","source":"other","type":"b c","eventtypeversion":"v9","sourceid":"other","knativebrokerttl":"0","data":{}}`
	both := []string{
		"", " ", "null", "[]", `"a"`, "{", strings.Repeat("[", 60000), strings.Repeat(`{"data":`, 5000), other, "[" + other + "]",
	}
	v1 = append([]string{
		valid, valid + valid, valid[:40], strings.Replace(valid, `{"a":1}`, "\"\xff\\ud800\"", 1), strings.Replace(valid, `{"a":1}`, other, 1),
		strings.Replace(valid, "2018-11-02T22:08:41Z", "0000-01-01T00:00:00+23:59", 1), strings.Replace(valid, "2018-11-02T22:08:41Z", "9999-12-31T23:59:59-23:59", 1),
		strings.Replace(valid, "2018-11-02T22:08:41Z", "0001-01-01T00:00:00Z", 1),
		strings.Replace(valid, `"a"`, `"a\r\nce-id: 2"`, 1), strings.Replace(valid, `"v1"`, `"`+strings.Repeat("9", 300)+`"`, 1),
		strings.Replace(valid, `"event-type":"a"`, `"event-type":"b","Event-Type":"a","EVENT-TYPE":null`, 1),
		strings.Replace(valid, `"event-type"`, `"event\u002dtype"`, 1), strings.Replace(valid, `"event-id"`, `"event-ıd":"x","event-id"`, 1),
		strings.Replace(valid, `"event-type"`, `"Event-Type"`, 1),
	}, both...)
	v2 = append([]string{
		validV2, strings.Replace(validV2, `"data"`, `"x":"y\n","subject":"\u0000","data"`, 1), strings.Replace(validV2, `"data"`, `"x":1.50,"y":true,"z":[],"n":null,"Q":"q","data"`, 1),
		strings.Replace(validV2, `"id"`, `"ID":"x","id"`, 1), strings.Replace(validV2, `"id"`, `"ID"`, 1), strings.Replace(validV2, `"data"`, `"x":"1","\u0078":"2","data"`, 1),
		strings.Replace(validV2, `"data"`, `"subject":5,"schemaurl":{},"datacontenttype":[],"data"`, 1),
	}, both...)
	for _, contentType := range []string{
		"application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8", "application/cloudevents-batch+json", "application/cloudevents", "text/plain",
		"text/plain; x=application/cloudevents+json", "application/json, application/cloudevents+json", "garbage", "; x", "text/plain\r\nce-id: 2", "Application/JSON",
	} {
		raw, err := json.Marshal(contentType)
		if err != nil {
			panic(err)
		}
		with := strings.Replace(validV2, `"datacontentencoding":"base64"`, `"datacontenttype":`+string(raw), 1)
		v2 = append(v2, with, strings.Replace(with, `"AA=="`, other, 1), strings.Replace(with, `"AA=="`, "["+other+"]", 1))
	}
	return v1, v2
}
