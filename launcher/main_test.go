package launcher

import (
	"os"
	"testing"
)

// TestMain lets the test binary be an agent too.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		os.Exit(Agent(os.Args[2:]))
	}
	os.Exit(m.Run())
}
