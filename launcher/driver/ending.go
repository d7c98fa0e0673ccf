package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// endMargin is added to the grace for an agent to end itself.
const endMargin = 15 * time.Second

// end sends every agent the verdict and waits, bounded, until their streams end:
// then nothing of the job is left on their hosts.
func (d *driver) end(ctx context.Context) (protocol.Verdict, error) {
	d.sendEnd()
	limit := time.NewTimer(max(d.grace+endMargin, d.opts.Lease))
	defer limit.Stop()
	for _, c := range d.contacts {
		for waiting := true; waiting; {
			select {
			case <-c.over:
				waiting = false
			case e := <-d.events:
				d.late(e)
			case ask := <-d.opts.Stop:
				d.hurry(ask)
			case <-limit.C:
				return *d.verdict, d.unended()
			case <-ctx.Done():
				return *d.verdict, ctx.Err()
			}
		}
	}
	return *d.verdict, d.unended()
}

func (d *driver) sendEnd() {
	for _, c := range d.contacts {
		c.finish(protocol.Message{End: &protocol.End{Grace: d.grace, Verdict: *d.verdict}})
	}
}

// late passes on what an agent reports while it ends.
func (d *driver) late(e jobstate.Event) {
	if h, ok := e.(jobstate.Heard); ok && h.Message.Notice != "" {
		d.opts.Observer.Noted(fmt.Sprintf("host %s: %s", d.contacts[h.Host].host.Name, h.Message.Notice))
	}
}

// hurry takes grace away from agents that are ending.
func (d *driver) hurry(ask jobstate.StopAsked) {
	if ask.Grace < d.grace {
		d.grace = ask.Grace
		d.sendEnd()
	}
}

// UnendedError is a host that could not be told to end, or has not reported its end.
// The error of Run joins one for each such host.
type UnendedError struct {
	Index int // into the hosts of Run, those that joined follow
	Host  string
	Cause error
}

func (e *UnendedError) Error() string {
	return fmt.Sprintf("host %s: not seen to end: %v; what may run there ends with its lease", e.Host, e.Cause)
}

func (e *UnendedError) Unwrap() error { return e.Cause }

// unended names the hosts where something of the job may be left.
func (d *driver) unended() error {
	var errs []error
	for i, c := range d.contacts {
		switch err := c.outcome(); {
		case err != nil && d.left[i]:
			d.opts.Observer.Noted(fmt.Sprintf("host %s, which has left the job, was not seen to end: %v", c.host.Name, err))
		case err != nil:
			errs = append(errs, &UnendedError{Index: i, Host: c.host.Name, Cause: err})
		}
	}
	return errors.Join(errs...)
}
