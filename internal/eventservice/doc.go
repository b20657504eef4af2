// Package eventservice is the server of an Application's legacy event API on the event mesh. It
// accepts events in the formats of Kyma 1.10 and 1.11, and posts each to the Application's
// HTTPSource adapter as a CloudEvent 1.0.
//
// The routes, checks, limits and error bodies are those of the event-service that it replaces
// (docs/migration/domain.md §3). Decisions 0801 and 0804 describe the differences, which fix
// errors, and the reasons.
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
// Every request that was read gets an answer in JSON. If the adapter is down, slow, or resets the
// connection, the answer is a 5xx with Retry-After. 200 means that the adapter has accepted the
// event. An event may reach the adapter twice, with the same id, because a request is repeated when
// a kept connection breaks. Memory and concurrency are bounded: idle connections are closed in
// favor of new ones, and requests beyond the limits are refused with 503 and Retry-After. At
// shutdown, every accepted connection gets its answer.
package eventservice
