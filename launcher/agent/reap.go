//go:build linux

package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
)

// reapTime bounds a reap.
const reapTime = 10 * time.Second

// reapJob kills the processes that are marked with the job and the host's folder, and their
// descendants, those of the scope that a detached job has, which no process leaves, and the job's
// watchdog, which is not marked. Of a dead agent it records that it is dead and what else may be left, and
// deletes the secret. It is for jobs of which watchdog and supervisor may both be dead.
func reapJob(f jobfolder.Folder) error {
	before, _ := f.ReadState() // without one, the watchdog ends with its supervisor
	left, err := process.Sweep(func() ([]process.Process, error) {
		all, err := process.OfJob(f.Job(), f.Name())
		if before.Watchdog != 0 && before.Machine == jobfolder.Machine() {
			scope, unread := process.InScope(watchdog.Scope(f.Job(), before.Watchdog))
			all, err = append(all, scope...), errors.Join(err, unread)
		}
		if w, gone := process.Read(before.Watchdog); gone == nil && w.Start == before.WatchdogStart && before.Machine == jobfolder.Machine() {
			all = append(all, w)
		}
		return all, err
	}, reapTime)
	if err != nil {
		return fmt.Errorf("reap job %s: %w", f.Job(), err)
	}
	if len(left) > 0 {
		err = fmt.Errorf("reap job %s: processes %v did not end when killed", f.Job(), left)
	}
	s, unread := f.ReadState()
	if unread != nil || jobfolder.LifeOf(s) != jobfolder.Dead {
		return err
	}
	err = errors.Join(err, f.RemoveSecret())
	if s.Phase != protocol.Over {
		s = jobfolder.Settled(s)
		s.Unkillable = left
		err = errors.Join(err, f.WriteState(s))
	}
	return err
}
