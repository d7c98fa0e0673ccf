package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// reapTime bounds a reap.
const reapTime = 10 * time.Second

// reap is "agent reap JOB [FOLDER]": it kills what bears the job's mark, and
// what that has started, where guardian and supervisor can no longer.
func reap(_ context.Context, args []string, std streams) error {
	if len(args) != 1 && len(args) != 2 {
		return usage("reap: want a job and perhaps a folder")
	}
	job, name := args[0], ""
	if len(args) == 2 {
		name = args[1]
	}
	if err := checkElement(job); err != nil {
		return err
	}
	killed, left, err := sweep(func() ([]process, error) { return marked(job, name) }, reapTime)
	if err != nil {
		return fmt.Errorf("reap job %s: %w", job, err)
	}
	if err := bury(job, name, left); err != nil {
		return err
	}
	if err := json.NewEncoder(std.out).Encode(Reaped{Killed: killed, Unkillable: left}); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("reap job %s: processes %v did not end when killed", job, left)
	}
	return nil
}

// marked lists the processes of this user that belong to a job, on one of the
// hosts of this machine or, with no name, on all.
func marked(job, name string) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	return descendants(all, self, func(p process) bool {
		return p.pid != self && ours(p.pid) && bears(p.pid, job, name)
	}), nil
}

// ours reports whether a process runs as this user.
func ours(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func bears(pid int, job, name string) bool {
	env, err := environment(pid)
	if err != nil {
		return false
	}
	of := slices.Contains(env, markTask+"="+job) || slices.Contains(env, markAgent+"="+job)
	return of && (name == "" || slices.Contains(env, markFolder+"="+name))
}

// bury makes the states of agents that are gone say so, and deletes the job's
// secrets.
func bury(job, name string, left []int) error {
	all, err := states()
	if err != nil {
		return err
	}
	var errs []error
	for f, s := range all {
		if f.job() != job || name != "" && f.name() != name || alive(s) != dead {
			continue
		}
		if err := os.Remove(f.secret()); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		if s.Phase == protocol.Over {
			continue
		}
		s = settled(s)
		s.Unkillable = left
		errs = append(errs, writeState(f, s))
	}
	return errors.Join(errs...)
}
