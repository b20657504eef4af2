package natsserver

import (
	"fmt"
	"path/filepath"
	"syscall"
)

// mount makes the data of the server a volume in memory.
func (s *Server) mount(size int64) {
	s.t.Helper()
	data := filepath.Join(s.dir, "data")
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		s.t.Skipf("a volume of its own cannot be mounted: %v. Run the test as root", err)
	}
	s.t.Cleanup(func() {
		if err := syscall.Unmount(data, syscall.MNT_DETACH); err != nil {
			s.t.Error(err)
		}
	})
}
