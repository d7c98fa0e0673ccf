//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// checkpoint is what the chief was asked to save. Each request of the driver gets
// exactly one answer: the chief's, or the supervisor's if the chief cannot answer.
type checkpoint struct {
	*parts
	chief   *task                   // the task that the fields below are about; nil: no chief of this host was asked
	request int                     // Request of the last protocol.Checkpoint; 0 for a save before a stop
	asked   bool                    // the request was queued for the chief
	answer  *cluster.ControlMessage // the chief's answer, or the supervisor's in its place; nil: none yet
}

// ask asks the chief to save, once for each request. chief is nil if it does not
// run on this host.
func (c *checkpoint) ask(chief *task, m protocol.Checkpoint) {
	if chief != nil && (c.chief != chief || c.request != m.Request) {
		c.chief, c.request, c.asked, c.answer = chief, m.Request, false, nil
	}
	switch {
	case c.record.ending(): // the verdict says all
	case chief == nil || chief.running == nil:
		c.refuse(m, fmt.Sprintf("%s does not run on this host", cluster.Chief))
	case c.answer != nil:
		c.sessions.tell(chief.said(*c.answer))
	case c.asked: // the answer is coming
	case chief.exit != nil:
		c.refuse(m, fmt.Sprintf("%s has ended", chief.Task))
	case !chief.report.native:
		c.refuse(m, "the program does not know of checkpoints of plx's trainer; it may save on SIGTERM")
	default:
		c.asked = true
		ask := cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request}
		if m.Hold != nil {
			ask.Hold, ask.Workers, ask.Leaving = true, m.Hold.Workers, strings.Join(m.Hold.Leaving, " ")
		}
		if !chief.send(ask) {
			c.unsent(chief, ask, errors.New("it does not listen"))
		}
	}
}

// resume lets a chief that holds its steps go on. If the chief does not read that,
// its heartbeats show it.
func (c *checkpoint) resume(chief *task, request int) {
	if chief == nil || !chief.alive() || !chief.report.native {
		return
	}
	chief.send(cluster.ControlMessage{Kind: cluster.Resume, Request: request})
}

// unsent takes a message that could not be sent to a task: a request gets no other answer.
func (c *checkpoint) unsent(t *task, m cluster.ControlMessage, err error) {
	if m.Kind == cluster.Checkpoint {
		c.answered(t, cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: err.Error()})
	}
}

// answered passes on the first answer to the last request. A task that saves on
// its own reports that too, and nobody has asked for it.
func (c *checkpoint) answered(t *task, m cluster.ControlMessage) {
	if c.chief != t || !c.asked || c.answer != nil || c.request != m.Request {
		return
	}
	c.answer = &m
	c.sessions.tell(t.said(m))
}

// refuse answers for a chief that cannot.
func (c *checkpoint) refuse(m protocol.Checkpoint, cause string) {
	c.sessions.tell(protocol.Message{Said: &protocol.Said{Task: cluster.Chief, Generation: c.record.Generation,
		Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: cause}}})
}
