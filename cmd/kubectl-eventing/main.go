// Command kubectl-eventing shows how eventing is in a cluster, and helps when events do not flow.
// On the PATH it is "kubectl eventing".
//
// # What it does
//
//	kubectl eventing status         how eventing is, in one screen, the worst first
//	kubectl eventing subscriptions  which events wait, and what the sinks answer
//	kubectl eventing dead-letters   events that were given up: see, deliver again, delete
//	kubectl eventing send           a test event, and who wants it
//	kubectl eventing explain ID     what a condition, a state or an exit code means
//	kubectl eventing check          whether eventing can be installed
//	kubectl eventing take-over      from Kyma's own eventing to this one, and back
//	kubectl eventing diagnose       one archive for a support ticket, without secrets
//
// # What it changes
//
// Only dead-letters redeliver, dead-letters delete, take-over run, take-over undo and send change
// something, and only what they say. Everything else reads, with the rights of the person who calls
// it.
package main

import (
	"os"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
)

func main() { os.Exit(execute(frame.OS(), os.Stdin, rest.InClusterConfig)) }
