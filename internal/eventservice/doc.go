// Package eventservice is the server of an Application's legacy event API on the
// event mesh: it takes events as Kyma 1.10 and 1.11 took them, and posts each to
// the Application's HTTPSource adapter as a CloudEvent 1.0.
//
// The routes, checks, limits and error bodies are those of the event-service it
// replaces (docs/migration/domain.md §3); where that one was wrong, decisions 0801 and 0804 say
// what is done instead, and why.
//
//	POST /{application}/v1/events             one event: event-type, event-type-version, event-id, event-time, data
//	POST /{application}/v2/events             one event in the JSON of CloudEvents 0.3
//	GET  /{application}/v1/events/subscribed  the events that have subscribers
//	GET  /v1/health
//
// # What an event becomes
//
//	event-id, id                        ce-id; a new UUID if v1 has none
//	event-type, type                    ce-type
//	event-type-version, eventtypeversion  ce-eventtypeversion
//	event-time, time                    ce-time, in UTC
//	--sourceId                          ce-source and ce-sourceid
//	data                                the body, byte for byte; datacontenttype application/json,
//	                                    or that of v2, if it is none of CloudEvents' own formats
//
// # Its promises
//
// A request that was read is answered, with JSON, whatever the adapter does: if
// the adapter is down, slow or resets, with a 5xx and Retry-After. 200 means that
// the adapter has taken the event. An event may reach the adapter twice (a kept
// connection that broke is tried again), then with the same id. Memory and
// concurrency are bounded: connections that do nothing make room for others, and
// what is beyond the bounds is refused with 503 and Retry-After. At the end, every
// connection that was accepted has its answer.
package eventservice
