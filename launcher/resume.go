package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/envsync"
)

// checkpointName is the name under which the job keeps its checkpoints on its
// hosts. Jobs of before there were any say nothing of it.
func (r record) checkpointName() string { return cmp.Or(r.Checkpoints, r.Name, r.Job) }

// resume decides under which name the job keeps its checkpoints: that of the
// job to resume, else its own. The user is told where there may be some to go
// on from; what is there the hosts know, and the chief says it.
func (l *launch) resume(ctx context.Context) error {
	if l.cfg.Resume == "" {
		l.checkpoints = l.cfg.Name // without one it is the job's id
		return l.sayUsed()
	}
	r, err := Query{Job: l.cfg.Resume, Reach: l.cfg.Reach}.find(ctx, false, l.voice)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	if l.checkpoints = r.checkpointName(); !jobName.MatchString(l.checkpoints) {
		return fmt.Errorf("--resume: job %s keeps its checkpoints under %q, which is no name", r.Job, l.checkpoints)
	}
	l.voice.say("resume job %s: this one goes on from what checkpoints its hosts have under the name %s", r.Job, l.checkpoints)
	return nil
}

// sayUsed tells of a job that has used the name before.
func (l *launch) sayUsed() error {
	if l.checkpoints == "" {
		return nil
	}
	rs, err := loadRecords()
	if err != nil {
		return err
	}
	for i := len(rs) - 1; i >= 0; i-- {
		if rs[i].checkpointName() == l.checkpoints {
			l.voice.say("job %s had the name %s too: this one goes on from what checkpoints the hosts have under it", rs[i].Job, l.checkpoints)
			return nil
		}
	}
	return nil
}

// nameTaken is the exit status of "agent claim" where a running job has the name.
const nameTaken = 5

// checkName asks every host whether a running job keeps its checkpoints under
// the same name. Agents look again when they start, but then it is late.
func (l *launch) checkName(ctx context.Context) error {
	if l.checkpoints == "" {
		return nil // to be the job's id
	}
	used := &fleet{remotes: l.used()}
	return used.each(ctx, func(ctx context.Context, r *remote) error {
		s := station{remote: r, binary: envsync.BlobPath(l.cargo.agents[r.platform()].Sum)}
		stderr := tail{limit: 4 << 10}
		err := s.Run(ctx, s.command("claim "+l.checkpoints), nil, nil, &stderr)
		if exitStatus(err) == nameTaken {
			return errors.New(strings.TrimPrefix(strings.TrimSpace(stderr.String()), "plx agent: "))
		}
		if err != nil {
			return fmt.Errorf("look for jobs: %w", explain(err, stderr.String()))
		}
		return nil
	})
}

// saves reports whether a program is told to make checkpoints.
func saves(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-ckpt-dir" || name == "--ckpt-dir"
	})
}

// goOn says what to do about a job that has ended before its work was done.
func goOn(job string) string {
	return fmt.Sprintf("plx launch --resume %s goes on from its newest checkpoint", job)
}

// resumable adds that to an error of a job that made checkpoints.
func (j *job) resumable(err error) error {
	if !j.Saves {
		return err
	}
	return &hinted{err, goOn(j.Job)}
}
