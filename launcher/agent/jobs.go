//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// printState is "agent state JOB FOLDER".
func printState(_ context.Context, f jobfolder.Folder, std streams) error {
	s, err := readState(f)
	if err != nil {
		return err
	}
	return json.NewEncoder(std.out).Encode(jobfolder.Settled(s))
}

// readState reads a job's state. A missing one has an exit status of its own,
// because the job may have been pruned.
func readState(f jobfolder.Folder) (protocol.State, error) {
	s, err := f.ReadState()
	if errors.Is(err, os.ErrNotExist) {
		return s, coded{codeNoAgent, fmt.Errorf("nothing of job %s is left on this host", f.Job())}
	}
	return s, err
}

// printJobs is "agent jobs": it prints the states of this host's jobs, oldest first,
// each as a line of JSON. It leaves out jobs of other hosts that share the home.
func printJobs(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("jobs takes no arguments")
	}
	found, err := jobfolder.States()
	if err != nil {
		return err
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b protocol.State) int { return a.Started.Compare(b.Started) })
	out := json.NewEncoder(std.out)
	for _, s := range all {
		if host, _, _ := strings.Cut(s.Machine, " "); host != jobfolder.Host() {
			continue
		}
		if err := out.Encode(jobfolder.Settled(s)); err != nil {
			return err
		}
	}
	return nil
}
