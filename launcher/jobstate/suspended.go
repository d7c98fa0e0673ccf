package jobstate

import (
	"fmt"
	"time"
)

// suspendedTimer ends when hosts that were lost because the driver did not run have been found lost.
const suspendedTimer Timer = "suspended"

// excuse returns the failure to blame instead of f if the driver did not run for a while:
// hosts end their tasks when they do not hear the driver for a lease, and are no culprits. A
// task that failed by itself stays the culprit.
func (v view) excuse(f failure) failure {
	own := f.task != nil && !f.exit.Told && f.exit.LostPeer == ""
	if v.suspended <= 0 || own || f.hang != nil {
		return f
	}
	who := "plx was suspended for %s (it was stopped, or its machine slept)"
	if seat := v.seat(); seat != nil {
		who = "host " + seat.name() + ", which drives the job, was suspended for %s"
	}
	reason := fmt.Sprintf(who+", and hosts end their tasks within %s (--lease) after they last heard it: %s", v.suspended.Round(time.Second), v.plan.Lease, f.reason)
	return failure{host: f.host, reason: reason, exit: failureOfHost(f.host, "").exit, excused: true}
}

// seat is the host that drives a detached job; nil: plx does.
func (v view) seat() *host {
	for _, h := range v.hosts {
		if h.plan.Drives {
			return h
		}
	}
	return nil
}
