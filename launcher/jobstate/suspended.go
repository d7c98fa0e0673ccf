package jobstate

import (
	"fmt"
	"time"
)

// suspendedTimer runs after the driver (the process that controls the job) was
// suspended. When it expires, the driver must have noticed all hosts that were
// lost because of the suspension.
const suspendedTimer Timer = "suspended"

// excuse returns the failure to count in place of f. While the driver (the
// process that controls the job) was suspended, it did not renew leases, so
// hosts stopped their tasks. Then excuse returns a failure that blames the
// suspension, not the host. It returns f itself if the driver was not
// suspended, or if a task failed on its own.
func (v view) excuse(f failure) failure {
	own := f.task != nil && !f.exit.StopRequested && f.exit.LostPeer == ""
	if v.suspended <= 0 || own || f.hang != nil {
		return f
	}
	who := "plx was suspended for %s (it was stopped, or its machine slept)"
	if driving := v.driverHost(); driving != nil {
		who = "host " + driving.name() + ", which drives the job, was suspended for %s"
	}
	reason := fmt.Sprintf(who+", and hosts end their tasks within %s (--lease) after they last heard it: %s", v.suspended.Round(time.Second), v.plan.Lease, f.reason)
	return failure{host: f.host, reason: reason, exit: failureOfHost(f.host, "").exit, excused: true}
}

// driverHost returns the host whose agent drives (controls) a detached job. It
// returns nil if the launcher drives the job.
func (v view) driverHost() *host {
	for _, h := range v.hosts {
		if h.plan.Drives {
			return h
		}
	}
	return nil
}
