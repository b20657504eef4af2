package process

import (
	"fmt"
	"net"
)

// FreePorts returns ports of loopback that differ, and that nobody listens on now.
func FreePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("cannot find a free port: %w", err)
		}
		defer func() { _ = l.Close() }() // all at the end, so that none is found twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
