// Package publisher stores the events of clients in the stream of NATS, or posts them to the Broker
// of the mesh. It is the sender behind the server of package eventservice.
//
// An event is accepted when JetStream has stored it, or has reported it as a duplicate. On the mesh
// it is accepted when the Broker has answered with success, which means that each sink has accepted
// it. In all other cases the answer tells the client whether the event may have been accepted, and
// when to send it again. The publisher does not retry, neither later nor at another backend.
//
//	the event                       the message
//	source, type                    the subject (backend.Subject)
//	source, id, type, the data      Nats-Msg-Id (backend.MessageID): an event that is sent again is stored once
//	each attribute                  the header ce-<attribute>, with the same value
//	the content type of the data    the header content-type; left out if the client has not said it
//	the data                        the body, byte for byte
//	headers of a trace              headers of the same name, in lower case
//
// The mesh gets the same event in the binary mode of HTTP.
//
// An event of the legacy API is also published under its former name, and an event of an
// Application with the label application-type also under that label:
// docs/decisions/1441-typematching-exact.md.
//
// The publisher follows the ConfigMap <prefix>-backends. It refuses every event until it has read
// the ConfigMap, and while the ConfigMap does not accept its backend. The last ConfigMap stays
// valid while the API server cannot be reached.
package publisher
