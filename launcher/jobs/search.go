package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// search puts records together from what the hosts know, for a machine that did not
// launch the jobs. It reports hosts that are out of reach. That is an error only if the
// other hosts know no job.
func search(ctx context.Context, reach hosts.Reach, printer *console.Printer) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	set, err := hosts.Open(ctx, reach, printer)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	defer set.Close() // nothing was written
	found := make([][]protocol.State, len(set.Hosts))
	err = set.Each(ctx, func(ctx context.Context, i int, h *hosts.Host) (err error) {
		found[i], err = states(ctx, h, printer)
		return err
	})
	if rs := assemble(set, found); err == nil || len(rs) > 0 && context.Cause(ctx) == nil {
		if err != nil {
			printer.Error(err)
		}
		return rs, nil
	}
	return nil, err
}

// states returns the states of all jobs that the host has a folder of. It reports and
// leaves out a state that cannot be read.
func states(ctx context.Context, h *hosts.Host, printer *console.Printer) ([]protocol.State, error) {
	const script = `for f in "$HOME"/.plx/jobs/*/*/state.json; do if [ -r "$f" ]; then printf '%s\t' "$f"; tr -d '\n' <"$f"; echo; fi; done`
	var stdout bytes.Buffer
	if err := h.Run(ctx, script, nil, &stdout, nil); err != nil {
		return nil, fmt.Errorf("look for jobs: %w", err)
	}
	var states []protocol.State
	for line := range strings.Lines(stdout.String()) {
		path, text, _ := strings.Cut(line, "\t")
		var s protocol.State
		if json.Unmarshal([]byte(text), &s) != nil || !hosts.IsSafe(s.Job) || !hosts.IsSafe(s.Folder) || !hosts.IsBlob(s.Binary) {
			printer.Printf("host %s: %s is not a job's state, it is left out", h.Name(), path)
			continue
		}
		states = append(states, s)
	}
	return states, nil
}

// assemble makes one record of each job from the states of its hosts. Hosts that share
// a home see the folders of each other: each counts for its own folder only.
func assemble(set *hosts.Set, found [][]protocol.State) []Record {
	jobs := map[string]*Record{}
	chief := map[string]int{} // by job: generation in which the chief was found
	for i, states := range found {
		for _, s := range states {
			if s.Folder != set.Hosts[i].JobFolder() {
				continue
			}
			r := jobs[s.Job]
			if r == nil {
				r = &Record{Job: s.Job, Name: s.Name, Created: s.Started, Detached: s.Detached, Grace: DefaultGrace, Lease: s.Lease, Checkpoints: s.Checkpoints, found: true}
				jobs[s.Job] = r
			}
			h := HostRecord{Line: set.Hosts[i].Resource.String(), Folder: s.Folder, Binary: s.Binary}
			for task := range s.Tasks {
				h.Tasks = append(h.Tasks, task)
				if task == "worker:0" && s.Generation >= chief[s.Job] { // a host that was left out has an older state
					r.Chief, r.Verdict, chief[s.Job] = len(r.Hosts), s.Verdict, s.Generation
				}
			}
			r.Restarts = r.Restarts || s.Generation > 0
			slices.Sort(h.Tasks)
			r.Hosts = append(r.Hosts, h)
		}
	}
	var rs []Record
	for _, r := range jobs {
		rs = append(rs, *r)
	}
	slices.SortFunc(rs, func(a, b Record) int { return a.Created.Compare(b.Created) })
	return rs
}
