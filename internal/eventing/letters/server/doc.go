// Package server lets people see dead letters, deliver them again and delete them, over HTTPS and
// with the rights that they have in Kubernetes.
package server
