package launcher

import (
	"context"
	"os"

	"github.com/plx-run/plx/launcher/agent"
)

// Agent runs this process as an agent, as "plx agent ARGS" on a host, and
// returns its exit status.
func Agent(args []string) int {
	return agent.Main(context.Background(), args, os.Stdin, os.Stdout, os.Stderr)
}
