package launcher

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/protocol"
)

// newRecord returns the part of a record that the configuration decides.
func newRecord(cfg Config) *jobs.Record {
	return &jobs.Record{Name: cfg.Name, Program: filepath.Base(cfg.Program), Detached: cfg.Detach, Embedded: len(cfg.Hosts) == 0,
		Launcher: os.Getpid(), Grace: cfg.Grace, Lease: cfg.Lease, Restarts: cfg.Restarts.Max > 0, Saves: saves(cfg.Args)}
}

// saves reports whether the program is told to make checkpoints.
func saves(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-ckpt-dir" || name == "--ckpt-dir"
	})
}

func hostRecord(a *hosts.AgentHost, tasks []protocol.TaskSpec) jobs.HostRecord {
	h := jobs.HostRecord{Line: a.Resource.String(), Folder: a.Folder, Binary: a.Binary}
	for _, t := range tasks {
		h.Tasks = append(h.Tasks, t.Task.String())
	}
	return h
}
