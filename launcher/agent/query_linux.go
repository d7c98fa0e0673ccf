package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
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
	if _, err := stateOf(f); err != nil {
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
		over = errors.Is(err, os.ErrNotExist) || err == nil && (s.Phase == protocol.Over || alive(s) == dead)
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
	s, err := stateOf(f)
	if err != nil {
		return err
	}
	return json.NewEncoder(std.out).Encode(settled(s))
}

// stateOf reads a job's state; one that is not there has an exit status of its
// own, for it may have been pruned.
func stateOf(f folder) (protocol.State, error) {
	s, err := readState(f)
	if errors.Is(err, os.ErrNotExist) {
		return s, coded{codeNoAgent, fmt.Errorf("nothing of job %s is left on this host", f.job())}
	}
	return s, err
}

// printJobs is "agent jobs": the states of this host's jobs, oldest first, a
// line of JSON each. Other hosts that share the home have their own.
func printJobs(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("jobs takes no arguments")
	}
	found, err := states()
	if err != nil {
		return err
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b protocol.State) int { return a.Started.Compare(b.Started) })
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
