// Package decide has the decisions of the eventing operator: from what was observed follows what to
// do next, and what the status says.
//
// It has no client and no clock. The operator reads a World, asks Rules what follows from it, does
// that, and reads again. No step is stored: what was done is seen in the next World.
package decide
