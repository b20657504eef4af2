//go:build !linux

package natsserver

func (s *Server) mount(int64) {
	s.t.Helper()
	s.t.Skip("a volume of its own can be mounted only on Linux")
}

// Remount is for Linux.
func (s *Server) Remount(string) {}
