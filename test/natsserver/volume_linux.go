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

// Remount changes the volume of a server that StartOn has started: what tmpfs takes as options,
// such as size=<bytes> and nr_inodes=<number>.
func (s *Server) Remount(options string) {
	s.t.Helper()
	if err := syscall.Mount("tmpfs", filepath.Join(s.dir, "data"), "tmpfs", syscall.MS_REMOUNT, options); err != nil {
		s.t.Fatal(err)
	}
}
