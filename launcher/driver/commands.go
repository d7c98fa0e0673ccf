package driver

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

func (d *driver) carryOut(commands []jobstate.Command) {
	for _, command := range commands {
		switch command := command.(type) {
		case jobstate.Send:
			if stop := command.Message.Stop; stop != nil {
				d.grace = min(d.grace, stop.Grace)
			}
			d.contacts[command.Host].out.send(command.Message)
		case jobstate.SetTimer:
			d.timers.set(command)
		case jobstate.Note:
			d.opts.Observer.Noted(command.Text)
		case jobstate.Enter:
			d.opts.Observer.Entered(command.Phase)
		case jobstate.Lay:
			d.opts.Observer.Laid(command.Generation, command.Hosts)
		case jobstate.Join:
			d.join(command)
		case jobstate.Leave:
			d.left[command.Host] = true
			d.contacts[command.Host].finish(protocol.Message{End: &protocol.End{Verdict: protocol.Verdict{Reason: "the job goes on without this host"}}})
		case jobstate.Holding:
			d.held = time.Now().Add(-command.For)
		case jobstate.Answer:
			d.answer(command)
		case jobstate.Conclude:
			d.verdict = &command.Verdict
		}
	}
}

// join begins to look after a host that the job may go on with.
func (d *driver) join(j jobstate.Join) {
	h := Host{Name: j.Joining.Host, Agent: unreachable{}}
	if d.opts.Join != nil {
		h = d.opts.Join(j.Host, j.Joining)
	}
	d.contact(j.Host, h)
}

// unreachable is a host for which there is no Options.Join.
type unreachable struct{}

func (unreachable) Dial(context.Context) (*protocol.Conn, error) {
	return nil, fmt.Errorf("%w: it cannot be reached from here", ErrNoAgent)
}

// answer tells the visitor that asked for other hosts, and the user, what came of
// it.
func (d *driver) answer(a jobstate.Answer) {
	scaled := a.Scaled
	if scaled.To > 0 && scaled.Cause == "" {
		scaled = scaled.After(time.Since(d.held))
		d.opts.Observer.Noted(scaled.String())
	}
	d.contacts[a.Host].out.send(protocol.Message{Scaled: &scaled})
}
