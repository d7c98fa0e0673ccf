//go:build linux

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// printLogs is "agent logs JOB FOLDER": it reads a logs.Request, one line of JSON,
// and prints the output of the tasks.
func printLogs(ctx context.Context, f jobfolder.Folder, std streams) error {
	line, err := bufio.NewReader(io.LimitReader(std.in, protocol.MaxMessage)).ReadBytes('\n')
	if err != nil && len(line) == 0 {
		return fmt.Errorf("read the log request: %w", err)
	}
	var req logs.Request
	if err := json.Unmarshal(line, &req); err != nil {
		return fmt.Errorf("read the log request: %w", err)
	}
	if _, err := readState(f); err != nil {
		return err
	}
	return logs.Serve(ctx, f.Logs(), req, ended(f), std.out)
}

// ended returns a function that reports whether the job's part on this host has
// ended, so that nobody writes to its logs any more. The function reads the state at
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
		over = errors.Is(err, os.ErrNotExist) || err == nil && jobfolder.Settled(s).Phase == protocol.Over
		return over
	}
}
