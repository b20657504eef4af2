// Package observed defines what one look of the eventing operator has read, live, and what follows
// from that alone.
//
// It has no client and makes no decision: the operator fills a World, and decide reads it.
package observed
