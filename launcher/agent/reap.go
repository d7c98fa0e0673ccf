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

// reapTime is how long reapJob repeats killing processes.
const reapTime = 10 * time.Second

// reapJob kills what is left of a job on this host; the job's watchdog and
// supervisor may both be dead. It kills the watchdog, the processes whose
// environment names the job, the processes in a detached job's systemd scope,
// and all their descendants. If the agent is dead, reapJob also deletes the
// job's secret, and records in the state file that the agent has ended and
// which processes it could not kill.
func reapJob(f jobfolder.Folder) error {
	before, _ := f.ReadState() // without a state file, the watchdog's pid is unknown; the watchdog then ends because its supervisor is killed
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
		s = jobfolder.Current(s)
		s.Unkillable = left
		err = errors.Join(err, f.WriteState(s))
	}
	return err
}
