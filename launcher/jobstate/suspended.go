package jobstate

import (
	"fmt"
	"time"
)

// suspendedTimer expires when the driver must have noticed all hosts that were
// lost because it was suspended itself.
const suspendedTimer Timer = "suspended"

// excuse returns f, or a failure to blame instead of f if the driver process
// was suspended. In that time hosts stop their tasks because the driver does
// not renew their leases, so these hosts are not at fault. A task that failed
// on its own stays the culprit.
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

// driverHost returns the host whose agent drives a detached job. It returns nil if
// the launcher drives the job.
func (v view) driverHost() *host {
	for _, h := range v.hosts {
		if h.plan.Drives {
			return h
		}
	}
	return nil
}
