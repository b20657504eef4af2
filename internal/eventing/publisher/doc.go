// Package publisher stores the events of clients in the stream of NATS, or posts them to the Broker
// of the mesh. It is the sender behind the server of package eventservice.
//
// An event is taken when JetStream has stored it, or has said that it knows the event already. On
// the mesh it is taken when the Broker has answered with success, which means that each sink took
// it. Everything else is an answer to the client that says whether the event may have been taken,
// and when to send it again. Nothing is sent later, and nothing is tried at another backend.
//
//	the event                       the message
//	source, type                    the subject (backend.Subject)
//	source, id, type, the data      Nats-Msg-Id (backend.MessageID): an event that is sent again is stored once
//	each attribute                  the header ce-<attribute>, with the same value
//	the content type of the data    the header content-type; left out if the client has not said it
//	the data                        the body, byte for byte
//	headers of a trace              headers of the same name, in lower case
//
// To the mesh goes the same event in the binary mode of HTTP.
//
// An event of the legacy API is published by its former name, too, and one of an Application with
// the label application-type by that label: docs/decisions/1441-typematching-exact.md.
//
// The publisher follows the ConfigMap <prefix>-backends. It refuses every event while its own
// backend is not accepted there, and as long as it has not read the ConfigMap. What it has read
// stays valid while the API server cannot be reached.
package publisher
