//go:build !linux

package natsserver

import "testing"

func (s *Server) mount(size int64) {
	s.t.Helper()
	if size == 0 {
		return
	}
	Mount(s.t, "", size)
}

// Mount is for Linux: elsewhere the test is skipped.
func Mount(t testing.TB, _ string, _ int64) {
	t.Helper()
	t.Skip("a volume of its own can be mounted only on Linux")
}

// Remount is for Linux.
func (s *Server) Remount(string) {}

func (s *Server) format(int64) {
	s.t.Helper()
	s.t.Skip("a disk of its own can be mounted only on Linux")
}

// FailDisk is for Linux.
func (s *Server) FailDisk() {}

// RepairDisk is for Linux.
func (s *Server) RepairDisk() {}
