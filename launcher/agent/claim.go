//go:build linux

package agent

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// printClaim is "agent claim NAME": it fails if a new job could not keep checkpoints
// under the name.
func printClaim(ctx context.Context, args []string, _ streams) error {
	if len(args) != 1 || args[0] == "" {
		return usage("claim: want a name of checkpoints")
	}
	return claim(ctx, "", args[0])
}

// claim refuses a job if another running job of this home keeps checkpoints under
// the same name: each would resume from the other's and remove them. The caller
// writes the state of the new job before, so that of two jobs that start at once at
// least one sees the other.
func claim(ctx context.Context, job, name string) error {
	if _, err := jobfolder.Checkpoints(name); err != nil || name == "" {
		return err
	}
	all, err := jobfolder.States()
	if err != nil {
		return err
	}
	for f, s := range all {
		if s.Job == job || s.Checkpoints != name || s.Phase == protocol.Over {
			continue
		}
		if life := jobfolder.LifeOf(s); life == jobfolder.Living || life == jobfolder.Unknown && answers(ctx, f, s) {
			return coded{codeTaken, fmt.Errorf("job %s runs here and keeps its checkpoints under the same name, %s: end it with plx stop %s, or launch with another --name",
				s.Job, name, s.Job)}
		}
	}
	return nil
}

// answerTime bounds answers.
const answerTime = 10 * time.Second

// answers reports whether the agent of another machine that shares this home runs.
// If so, it proves the secret in its folder, which it deletes when it ends.
func answers(ctx context.Context, f jobfolder.Folder, s protocol.State) bool {
	text, err := os.ReadFile(f.Secret())
	if err != nil {
		return false
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	self := sockets.Identity{Secret: secret, HostIndex: s.HostIndex}
	conn, err := self.Dial(ctx, protocol.Peer{Index: s.HostIndex, Addr: s.Addr})
	if err != nil {
		return false
	}
	conn.Close() // the proof was all that was wanted
	return true
}
