//go:build linux

package agent

import (
	"reflect"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// The chief pauses at a checkpoint, resumes, and gets another request. Only a
// reply to the last request counts.
func TestChiefPausesAtACheckpointAndResumes(t *testing.T) {
	h, l, _ := ready(t, "native", "hold=7", "save=9", "stop", "finished")
	l.send(protocol.Message{Checkpoint: &protocol.Checkpoint{Request: 3, Hold: &protocol.Hold{Workers: 4, Leaving: []string{"worker:1", "ps:1"}}}})
	said := func() cluster.ControlMessage {
		return l.wait("Said checkpoint", func(m protocol.Message) bool {
			return m.TaskReport != nil && m.TaskReport.Message.Kind == cluster.Checkpoint
		}).TaskReport.Message
	}
	want := cluster.ControlMessage{Kind: cluster.Checkpoint, Request: 3, Hold: true, Workers: 4, Leaving: "worker:1 ps:1", Step: 7}
	if got := said(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	l.send(protocol.Message{Checkpoint: &protocol.Checkpoint{Request: 3, Resume: true}})
	h.prints("worker-0.stdout", "resumed") // the next request must not overtake the resume message
	l.send(protocol.Message{Checkpoint: &protocol.Checkpoint{Request: 4}})
	want = cluster.ControlMessage{Kind: cluster.Checkpoint, Request: 4, Step: 9}
	if got := said(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	l.end(h, time.Minute)
}

// A visitor can get the Spec. The agent forwards a visitor's scale request to
// the driver, and the reply to the visitor.
func TestScaleRequestOfAVisitorIsForwarded(t *testing.T) {
	h, l, _ := ready(t, "wait")
	v, _ := h.attach(false)
	v.send(protocol.Message{SpecAsk: true})
	spec := v.wait("Spec", func(m protocol.Message) bool { return m.Spec != nil }).Spec
	if spec.Job != h.spec.Job || !reflect.DeepEqual(spec.Secret, h.spec.Secret) || !reflect.DeepEqual(spec.Env, h.spec.Env) {
		t.Errorf("%+v, want that of the job", spec)
	}
	scale := protocol.Scale{ID: "x", Known: 1, Leave: []int{0}}
	v.send(protocol.Message{Scale: &scale})
	if got := l.wait("Scale", func(m protocol.Message) bool { return m.Scale != nil }).Scale; !reflect.DeepEqual(*got, scale) {
		t.Errorf("%+v, want %+v", got, scale)
	}
	l.send(protocol.Message{Scaled: &protocol.Scaled{ID: "x", Cause: "no"}})
	if got := v.wait("Scaled", func(m protocol.Message) bool { return m.Scaled != nil }).Scaled; got.ID != "x" || got.Cause != "no" {
		t.Errorf("%+v", got)
	}
	l.send(protocol.Message{SpecAsk: true}) // a driver knows it
	l.end(h, 0)
}
