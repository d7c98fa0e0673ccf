package fetch

import (
	"context"
	"os"
	"testing"

	"github.com/plx-run/plx/launcher/agent"
)

// TestMain lets the test binary also run as an agent.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
