//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"

	"github.com/plx-run/plx/launcher/protocol"
)

// printInterfaces prints the host's network interfaces as a JSON list.
func printInterfaces(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("interfaces takes no arguments")
	}
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	list := []protocol.Interface{}
	for _, link := range links {
		one := protocol.Interface{Name: link.Name, Up: link.Flags&net.FlagUp != 0, Running: link.Flags&net.FlagRunning != 0,
			Loopback: link.Flags&net.FlagLoopback != 0}
		addrs, err := link.Addrs()
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", link.Name, err)
		}
		for _, a := range addrs {
			one.Addrs = append(one.Addrs, a.String())
		}
		list = append(list, one)
	}
	return json.NewEncoder(std.out).Encode(list)
}
