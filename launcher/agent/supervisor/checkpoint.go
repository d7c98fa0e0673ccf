//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// checkpoint tracks the driver's latest request to save a checkpoint. The
// chief (worker 0) saves it. The driver gets exactly one reply to each
// request: from the chief, or from the supervisor if the chief cannot reply.
type checkpoint struct {
	*parts
	chief   *task                   // task to which the request was made; nil before the first request to a chief on this host
	request int                     // number of the driver's last request (protocol.Checkpoint); 0 for the save before a stop
	asked   bool                    // true once the request is in the chief's message queue or was sent
	answer  *cluster.ControlMessage // reply sent to the driver, from the chief or the supervisor; nil before it was sent
}

// ask sends a checkpoint request to the chief, at most once for each request
// number. chief is nil if that task does not run on this host.
func (c *checkpoint) ask(chief *task, m protocol.Checkpoint) {
	if chief != nil && (c.chief != chief || c.request != m.Request) {
		c.chief, c.request, c.asked, c.answer = chief, m.Request, false, nil
	}
	switch {
	case c.record.ending(): // the job is ending, so the driver gets the verdict instead of a reply
	case chief == nil || chief.running == nil:
		c.refuse(m, fmt.Sprintf("%s does not run on this host", cluster.Chief))
	case c.answer != nil:
		c.sessions.sendToDriver(chief.wrap(*c.answer))
	case c.asked: // the chief will reply
	case chief.exit != nil:
		c.refuse(m, fmt.Sprintf("%s has ended", chief.Task))
	case !chief.report.native:
		c.refuse(m, "the program does not use plx's trainer, so it cannot be asked for a checkpoint; it may save one on SIGTERM")
	default:
		c.asked = true
		ask := cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request}
		if m.Hold != nil {
			ask.Hold, ask.Workers, ask.Leaving = true, m.Hold.Workers, strings.Join(m.Hold.Leaving, " ")
		}
		if !chief.send(ask) {
			c.unsent(chief, ask, errors.New("the program does not read its control channel"))
		}
	}
}

// resume sends the chief (worker 0) a message to continue training, if the
// chief has paused after a checkpoint. No reply is needed: if the chief does
// not read the message, its heartbeats show that it is paused.
func (c *checkpoint) resume(chief *task, request int) {
	if chief == nil || !chief.alive() || !chief.report.native {
		return
	}
	chief.send(cluster.ControlMessage{Kind: cluster.Resume, Request: request})
}

// unsent is called if the message m could not be sent to the chief. If m is a
// checkpoint request, unsent replies to the driver, because the chief will
// never do so. It ignores other messages.
func (c *checkpoint) unsent(t *task, m cluster.ControlMessage, err error) {
	if m.Kind == cluster.Checkpoint {
		c.answered(t, cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: err.Error()})
	}
}

// answered forwards the chief's first reply to the current request to the
// driver. It drops reports of checkpoints that a task saves without a request.
func (c *checkpoint) answered(t *task, m cluster.ControlMessage) {
	if c.chief != t || !c.asked || c.answer != nil || c.request != m.Request {
		return
	}
	c.answer = &m
	c.sessions.sendToDriver(t.wrap(m))
}

// refuse tells the driver why the chief cannot save a checkpoint.
func (c *checkpoint) refuse(m protocol.Checkpoint, cause string) {
	c.sessions.sendToDriver(protocol.Message{TaskReport: &protocol.TaskMessage{Task: cluster.Chief, Generation: c.record.Generation,
		Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: cause}}})
}
