package hosts

import (
	"context"
	"errors"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/protocol"
)

// tooMuch returns a HostUse with values that no agent of this version sends.
func tooMuch() protocol.HostUse {
	use := protocol.HostUse{CPUs: 4, Samples: make([]protocol.Sample, protocol.MaxSamples+2), GPUs: make([]protocol.GPUUse, protocol.MaxGPUs+1)}
	use.Samples[protocol.MaxSamples+1].CPU = 3
	return use
}

func checkBounded(t *testing.T, use protocol.HostUse) {
	t.Helper()
	if use.CPUs != 4 || len(use.Samples) != protocol.MaxSamples || use.Samples[protocol.MaxSamples-1].CPU != 3 || len(use.GPUs) != protocol.MaxGPUs {
		t.Errorf("%d processors, %d samples, %d GPUs", use.CPUs, len(use.Samples), len(use.GPUs))
	}
}

// All calls of Use go to one agent, which keeps the samples.
func TestUse(t *testing.T) {
	f := &fronted{facts: factsHere, pipes: map[protocol.Method]protocol.Handler{
		protocol.DoUse: protocol.Handle(func(context.Context, struct{}) (protocol.HostUse, error) { return tooMuch(), nil }),
	}}
	a := &AgentHost{Host: f.host(t), Binary: envsync.BlobPath(agentBlob.Sum)}
	for range 2 {
		use, err := a.Use(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checkBounded(t, use)
	}
	if n := f.begun.Load(); n != 1 {
		t.Errorf("%d agents were started", n)
	}
	f.pipes = nil // like an agent that does not know this request
	a.Release()
	if _, err := a.Use(t.Context()); err == nil || err.Error() != `read its utilization: this version of plx does not know the request "use"` {
		t.Errorf("%v", err)
	}
}

// A Visitor polls repeatedly over one connection, and returns the newest
// state.
func TestVisitor(t *testing.T) {
	var looks []protocol.ActivityRequest
	f := &fronted{facts: factsHere}
	f.visit = func(conn *protocol.Conn) {
		for {
			m, err := conn.Receive()
			if err != nil || m.Look == nil {
				return
			}
			looks = append(looks, *m.Look)
			if len(looks) == 3 {
				continue // do not reply to this request
			}
			use := tooMuch()
			if err := errors.Join(
				conn.Send(protocol.Message{State: &protocol.State{Generation: len(looks)}}),
				conn.Send(protocol.Message{Seen: &protocol.ActivityReport{ID: m.Look.ID - 1}}), // a late reply to an earlier request
				conn.Send(protocol.Message{Notice: "hello"}),
				conn.Send(protocol.Message{Seen: &protocol.ActivityReport{ID: m.Look.ID, Host: &use}}),
			); err != nil {
				t.Error(err)
			}
		}
	}
	a := &AgentHost{Host: f.host(t), Job: "j", Folder: "h1", Binary: envsync.BlobPath(agentBlob.Sum)}
	v, err := a.Visitor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for i := range 2 {
		state, seen, err := v.Poll(t.Context(), protocol.ActivityRequest{Waits: true, Host: true})
		if err != nil || seen.Host == nil || state.Generation != i+1 {
			t.Fatalf("%+v, %+v, %v", state, seen, err)
		}
		checkBounded(t, *seen.Host)
	}
	late := errors.New("it took too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	if _, _, err := v.Poll(ctx, protocol.ActivityRequest{}); err != late {
		t.Errorf("%v", err)
	}
	if n := f.begun.Load(); n != 1 {
		t.Errorf("%d agents were started", n)
	}
}
