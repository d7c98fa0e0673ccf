package main

import (
	"os"
	"testing"
)

// TestMain refuses to be an agent. A launch copies the program that runs it to its
// hosts, which is this test here: each of its agents would run all tests again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(1)
	}
	os.Exit(m.Run())
}
