// Package decide makes the decisions of the eventing operator: it derives the next actions and the
// status from the observed state.
//
// It has no client and no clock. The operator reads an observed.World, passes it to Rules, carries
// out the result, and reads again. No step is stored: the next World shows what was done.
package decide
