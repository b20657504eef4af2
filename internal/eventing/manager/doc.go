// Package manager is the eventing operator: it installs what an Eventing asks for, watches it, repairs it, and removes it.
package manager
