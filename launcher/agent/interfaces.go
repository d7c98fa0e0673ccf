//go:build linux

package agent

import (
	"context"
	"encoding/json"

	"github.com/plx-run/plx/launcher/agent/checkup"
	"github.com/plx-run/plx/launcher/agent/sockets"
)

// printInterfaces prints the host's network interfaces as a JSON list.
func printInterfaces(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("interfaces takes no arguments")
	}
	list, err := sockets.Links()
	if err != nil {
		return err
	}
	return json.NewEncoder(std.out).Encode(list)
}

// doctor is "agent doctor".
func doctor(ctx context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("doctor takes no arguments")
	}
	return checkup.Run(ctx, std.in, std.out)
}
