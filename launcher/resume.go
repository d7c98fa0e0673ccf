package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
)

// checkpointName returns the name of the job's checkpoints: that of the job to resume,
// else the user's name for this one, else "" for the job's id. It tells the user if
// hosts may have checkpoints of that name already.
func (l *launch) checkpointName(ctx context.Context) (string, error) {
	if l.cfg.Resume == "" {
		return l.cfg.Name, l.reportUse(l.cfg.Name)
	}
	r, err := jobs.Query{Job: l.cfg.Resume, Reach: l.cfg.Reach}.Find(ctx, false, l.printer)
	if err != nil {
		return "", fmt.Errorf("--resume: %w", err)
	}
	name := r.CheckpointName()
	if !jobName.MatchString(name) {
		return "", fmt.Errorf("--resume: job %s keeps its checkpoints under %q, which is no name", r.Job, name)
	}
	l.printer.Printf("resume job %s: this job resumes from the checkpoints that its hosts have under the name %s", r.Job, name)
	return name, nil
}

// reportUse reports the newest job that used the name before.
func (l *launch) reportUse(name string) error {
	if name == "" {
		return nil
	}
	rs, err := jobs.Records()
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(rs) {
		if r.CheckpointName() == name {
			l.printer.Printf("job %s had the name %s too: this job resumes from the checkpoints that hosts have under it", r.Job, name)
			return nil
		}
	}
	return nil
}

// nameTaken is the exit status of "agent claim" if a running job has the name.
const nameTaken = 5

// checkName asks every host whether a running job has checkpoints of the same name.
// Agents check it too when they start, but then the job has begun.
func (l *launch) checkName(ctx context.Context) error {
	if l.checkpoints == "" {
		return nil // to be the job's id
	}
	used := &hosts.Set{Hosts: l.used()}
	return used.Each(ctx, func(ctx context.Context, _ int, h *hosts.Host) error {
		a := hosts.AgentHost{Host: h, Binary: l.artifacts.AgentPath(h.Facts.Platform)}
		err := a.Call(ctx, "claim "+l.checkpoints, nil, nil)
		var said *hosts.ScriptError
		if hosts.ExitStatus(err) == nameTaken && errors.As(err, &said) {
			return errors.New(strings.TrimPrefix(said.Stderr, "plx agent: "))
		}
		if err != nil {
			return fmt.Errorf("look for jobs: %w", err)
		}
		return nil
	})
}
