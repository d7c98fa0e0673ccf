//go:build linux

package agent

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// readState reads a job's state file. A missing file has its own error code,
// because the job's folder may have been removed by "plx prune".
func readState(f jobfolder.Folder) (protocol.State, error) {
	s, err := f.ReadState()
	if errors.Is(err, os.ErrNotExist) {
		return s, &protocol.Failure{Code: protocol.CodeForgotten, Text: fmt.Sprintf("nothing of job %s is left on this host", f.Job())}
	}
	return s, err
}

// printLogs is "agent logs JOB FOLDER". It reads a logs.Request, one line of
// JSON, from standard input and prints the output of the tasks.
func printLogs(ctx context.Context, args []string, std streams) error {
	f, err := jobfolder.Of(args[0], args[1])
	if err != nil {
		return err
	}
	var req logs.Request
	if err := json.NewDecoder(io.LimitReader(std.in, protocol.MaxMessage)).Decode(&req); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	_, unread := readState(f)
	if unread != nil && !errors.Is(unread, jobfolder.ErrDamaged) {
		return unread
	}
	return cmp.Or(logs.Serve(ctx, f.Logs(), req, ended(f), std.out), unread)
}

// ended returns a function that reports whether the job has ended on this
// host, so that its logs no longer grow. That function reads the state file at
// most every 100 ms.
func ended(f jobfolder.Folder) func() bool {
	var looked time.Time
	over := false
	return func() bool {
		if over || time.Since(looked) < 100*time.Millisecond {
			return over
		}
		looked = time.Now()
		s, err := f.ReadState()
		over = errors.Is(err, os.ErrNotExist) || err == nil && jobfolder.Current(s).Phase == protocol.Over || f.StateAbandoned()
		return over
	}
}

// checkNameFree returns an error if another running job of this home folder
// saves checkpoints under the same name. Each job would resume from the other
// job's checkpoints and delete them. The caller must have written the new
// job's state file before. If two jobs start at once, at least one of them
// then finds the other.
func checkNameFree(ctx context.Context, job, name string) error {
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
		if life := jobfolder.LifeOf(s); life == jobfolder.Living || life == jobfolder.Unknown && agentReachable(ctx, f, s) {
			return &protocol.Failure{Code: protocol.CodeTaken, Text: fmt.Sprintf("job %s runs here under the same name, %s: end it with plx stop %s, or launch with another --name",
				s.Job, name, s.Job)}
		}
	}
	return nil
}

// answerTime is the timeout of the connection attempt in agentReachable.
const answerTime = 10 * time.Second

// agentReachable reports whether the agent of a job runs on another machine
// that shares this home folder. It dials the agent, which must prove that it
// knows the secret in the job's folder. An agent deletes that secret when it
// ends.
func agentReachable(ctx context.Context, f jobfolder.Folder, s protocol.State) bool {
	text, err := bounded.ReadFile(f.Secret(), bounded.Words)
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
	conn.Close() // the connection was only a test
	return true
}
