package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// serveLogs is "agent logs JOB FOLDER": a logs.Request comes in as one line of
// JSON, and the spools go out.
func serveLogs(ctx context.Context, args []string, std streams) error {
	if len(args) != 2 {
		return usage("logs: want a job and a folder")
	}
	f, err := folderOf(args[0], args[1])
	if err != nil {
		return err
	}
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
	return logs.Serve(ctx, f.logs(), req, ended(f), std.out)
}

// ended returns a function that reports whether nothing is written to the
// spools any more. It looks at most every 100 ms.
func ended(f folder) func() bool {
	var looked time.Time
	over := false
	return func() bool {
		if over || time.Since(looked) < 100*time.Millisecond {
			return over
		}
		looked = time.Now()
		s, err := readState(f)
		over = err != nil || s.Phase == protocol.Over || alive(s) == dead
		return over
	}
}

// printState is "agent state JOB FOLDER".
func printState(_ context.Context, args []string, std streams) error {
	if len(args) != 2 {
		return usage("state: want a job and a folder")
	}
	f, err := folderOf(args[0], args[1])
	if err != nil {
		return err
	}
	s, err := readState(f)
	if err != nil {
		return err
	}
	return json.NewEncoder(std.out).Encode(settled(s))
}

// printJobs is "agent jobs": the states of this host's jobs, a line of JSON
// each. Other hosts that share the home have their own.
func printJobs(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("jobs takes no arguments")
	}
	all, err := states()
	if err != nil {
		return err
	}
	here, _, _ := strings.Cut(machine(), " ")
	out := json.NewEncoder(std.out)
	for _, s := range all {
		if host, _, _ := strings.Cut(s.Machine, " "); host != here {
			continue
		}
		if err := out.Encode(settled(s)); err != nil {
			return err
		}
	}
	return nil
}
