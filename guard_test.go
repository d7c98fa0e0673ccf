package main

import (
	"os"
	"testing"
)

// TestMain refuses to run as an agent. A launch copies its own executable to
// the hosts, which is the test binary here; each agent would run all tests
// again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(1)
	}
	os.Exit(m.Run())
}
