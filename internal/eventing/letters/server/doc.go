// Package server serves an API to list, redeliver and delete dead letters over HTTPS, with the
// permissions that the user has in Kubernetes.
package server
