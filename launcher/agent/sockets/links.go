//go:build linux

package sockets

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
)

// Links lists the host's network interfaces and their addresses.
func Links() ([]protocol.Interface, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	list := []protocol.Interface{}
	for _, link := range links {
		one := protocol.Interface{Name: link.Name, Up: link.Flags&net.FlagUp != 0, Running: link.Flags&net.FlagRunning != 0,
			Loopback: link.Flags&net.FlagLoopback != 0, MTU: link.MTU, Speed: speed("/sys/class/net", link.Name)}
		addrs, err := link.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", link.Name, err)
		}
		for _, a := range addrs {
			one.Addrs = append(one.Addrs, a.String())
		}
		list = append(list, one)
	}
	return list, nil
}

// speed returns the speed of a network interface's hardware in Mbit/s. It
// returns 0 if the interface is virtual or its driver does not report a speed.
// root is /sys/class/net, or a test's folder.
func speed(root, name string) int {
	if _, err := os.Stat(filepath.Join(root, name, "device")); err != nil {
		return 0 // skip an interface without hardware, such as a bridge or tunnel: it reports a meaningless speed
	}
	text, err := os.ReadFile(filepath.Join(root, name, "speed"))
	if err != nil {
		return 0 // the interface is down
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
