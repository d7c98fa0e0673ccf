//go:build linux

package agent

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/gpulock"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
)

// newSetUpHost returns a host on which --setup has changed the umask and
// resource limits, and whose job uses a GPU.
func newSetUpHost(t *testing.T, args ...string) (h *testHost, gpu protocol.Claim) {
	t.Helper()
	h = newHost(t, 1, args...)
	gpu = protocol.Claim{Device: "GPU-" + h.spec.Job}
	h.spec.Claims, h.spec.Ticket = []protocol.Claim{gpu}, "1"
	h.spec.Command.SetupDone = true
	mask := 0o27
	changed := jobfolder.Setup{Mask: &mask, Limits: []jobfolder.Limit{
		{Resource: unix.RLIMIT_CORE},
		{Resource: unix.RLIMIT_NOFILE, Soft: 64, Hard: 64}, // lower than the descriptor numbers of the GPU locks
	}}
	if err := os.MkdirAll(string(h.folder()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.folder().WriteSetup(changed); err != nil {
		t.Fatal(err)
	}
	return h, gpu
}

// A task inherits all its descriptors even if --setup has lowered the limit of
// open files.
func TestDescriptorsAfterSetup(t *testing.T) {
	h, _ := newSetUpHost(t, "echo")
	l, _ := h.launch()
	l.exits(1)
	l.end(h, 0)
	const firstLock = 100
	s := decode[seen](t, h.spool("worker-0.stdout"))
	if want := []int{0, 1, 2, program.ListenFD, program.ControlFD, firstLock}; !slices.Equal(s.FDs, want) {
		t.Errorf("inherited descriptors %v, want %v", s.FDs, want)
	}
}

// A task of plx's trainer with limits changed by --setup reaches its agent.
// Its GPU is free only after the job.
func TestTrainerAfterSetup(t *testing.T) {
	h, gpu := newSetUpHost(t, "native", "beat=3", "stop", "finished")
	l, _ := h.launch()
	h.prints("worker-0.stdout", "ready")
	_, err := gpulock.Take([]protocol.Claim{gpu}, "1")
	if held := (*gpulock.Held)(nil); !errors.As(err, &held) || held.Holder.Job != h.spec.Job {
		t.Errorf("while the job runs: %v", err)
	}
	l.send(protocol.Message{Stop: &protocol.Stop{Grace: h.spec.Grace}})
	if e := l.exits(1)[worker(0)]; e.Code != 0 || !e.Native {
		t.Errorf("%+v, printed %q", e, strings.TrimSpace(h.spool("worker-0.stdout")))
	}
	l.end(h, 0)
	locks, err := gpulock.Take([]protocol.Claim{gpu}, "1")
	if err != nil {
		t.Error(err)
	}
	gpulock.Release(locks)
}
