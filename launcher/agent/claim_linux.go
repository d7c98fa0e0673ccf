package agent

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// printClaim is "agent claim NAME": it tells before a launch what claim would.
func printClaim(ctx context.Context, args []string, _ streams) error {
	if len(args) != 1 || args[0] == "" {
		return usage("claim: want a name of checkpoints")
	}
	return claim(ctx, "", args[0])
}

// claim refuses a job whose checkpoints another running job keeps in this home:
// each would go on from the other's and remove them. The newcomer's own state
// is written before, so that of two that come at once one at least sees the
// other.
func claim(ctx context.Context, job, name string) error {
	if _, err := checkpointsOf(name); err != nil || name == "" {
		return err
	}
	all, err := states()
	if err != nil {
		return err
	}
	for f, s := range all {
		if s.Job == job || s.Checkpoints != name || s.Phase == protocol.Over {
			continue
		}
		if life := alive(s); life == living || life == unknown && answers(ctx, f, s) {
			return coded{codeTaken, fmt.Errorf("job %s runs here and keeps its checkpoints under the same name, %s: end it with plx stop %s, or launch with another --name",
				s.Job, name, s.Job)}
		}
	}
	return nil
}

// answers reports whether an agent that is not of this machine, but shares its
// home, is there: it proves the secret that lies in its folder until it ends.
func answers(ctx context.Context, f folder, s protocol.State) bool {
	text, err := os.ReadFile(f.secret())
	if err != nil {
		return false
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	conn, err := dialPeer(ctx, cluster.PeerKey(secret, 0), agentName(s.HostIndex), protocol.Peer{Index: s.HostIndex, Addr: s.Addr})
	if err != nil {
		return false
	}
	conn.Close() // it has proved itself
	return true
}
