//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// reaped is what "agent reap" prints, as JSON.
type reaped struct {
	Killed     int   `json:"killed"`               // number of processes
	Unkillable []int `json:"unkillable,omitempty"` // pids that outlived SIGKILL
}

// reapTime bounds a reap.
const reapTime = 10 * time.Second

// reap is "agent reap JOB [FOLDER]": it kills the processes that are marked with the
// job, and their descendants. The launcher runs it if watchdog and supervisor are
// both dead.
func reap(_ context.Context, args []string, std streams) error {
	if len(args) != 1 && len(args) != 2 {
		return usage("reap: want a job and perhaps a folder")
	}
	job, name := args[0], ""
	if len(args) == 2 {
		name = args[1]
	}
	if err := jobfolder.CheckName(job); err != nil {
		return err
	}
	killed, left, err := process.Sweep(func() ([]process.Process, error) { return process.OfJob(job, name) }, reapTime)
	if err != nil {
		return fmt.Errorf("reap job %s: %w", job, err)
	}
	if err := recordDead(job, name, left); err != nil {
		return err
	}
	if err := json.NewEncoder(std.out).Encode(reaped{Killed: killed, Unkillable: left}); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("reap job %s: processes %v did not end when killed", job, left)
	}
	return nil
}

// recordDead records in the states of dead agents that they are dead, and deletes
// their secrets. left are the processes that could not be killed.
func recordDead(job, name string, left []int) error {
	all, err := jobfolder.States()
	if err != nil {
		return err
	}
	var errs []error
	for f, s := range all {
		if f.Job() != job || name != "" && f.Name() != name || jobfolder.LifeOf(s) != jobfolder.Dead {
			continue
		}
		errs = append(errs, f.RemoveSecret())
		if s.Phase != protocol.Over {
			s = jobfolder.Settled(s)
			s.Unkillable = left
			errs = append(errs, f.WriteState(s))
		}
	}
	return errors.Join(errs...)
}
