//go:build linux

package agent

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/plx-run/plx/launcher/agent/gpulock"
	"github.com/plx-run/plx/launcher/protocol"
)

// A process that holds GPUs for an agent is killed: they are free, and an agent that was told
// to take them over books them itself.
func TestGPUHolderKilled(t *testing.T) {
	h := newHost(t, 1, "wait")
	gpu := protocol.Claim{Device: "GPU-" + h.spec.Job}
	h.spec.Claims, h.spec.Ticket = []protocol.Claim{gpu}, "1"
	holder := h.command("gpus")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Wait() // killed
	defer holder.Process.Kill()
	var answer protocol.BookingAnswer
	err = json.NewEncoder(in).Encode(protocol.Booking{Ask: protocol.BookingTake, Ticket: "1", Claims: h.spec.Claims})
	if err == nil {
		err = json.NewDecoder(out).Decode(&answer)
	}
	if err != nil || answer.Cause != "" || answer.Socket == "" {
		t.Fatalf("%+v, %v", answer, err)
	}
	taken := func() bool {
		locks, err := gpulock.Take(h.spec.Claims, "1")
		gpulock.Release(locks)
		held := (*gpulock.Held)(nil)
		return errors.As(err, &held)
	}
	if !taken() {
		t.Error("the process holds no lock")
	}
	holder.Process.Kill()
	holder.Wait() // killed
	if taken() {
		t.Error("the lock is still held after the process was killed")
	}
	h.spec.Booked = answer.Socket
	l, _ := h.launch()
	if !taken() {
		t.Error("the agent has no lock")
	}
	l.end(h, 0)
	if taken() {
		t.Error("the lock is still held after the job")
	}
}
