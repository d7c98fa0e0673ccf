//go:build linux

package process

import (
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
)

// fake returns a process that cannot be signalled, because its start time
// matches no process.
func fake(pid int) Process { return Process{PID: pid, Start: ^uint64(0)} }

// A process that first appears in the second listing is stopped too.
func TestStopAllListsUntilNothingIsNew(t *testing.T) {
	listings := [][]Process{{fake(10)}, {fake(10), fake(11)}, {fake(10), fake(11)}, {fake(12)}}
	calls := 0
	living, err := stopAll(func() ([]Process, error) { calls++; return listings[calls-1], nil })
	if err != nil || calls != 3 || !slices.Equal(living, listings[2]) {
		t.Errorf("%v after %d listings: %v", living, calls, err)
	}
}

func sleeper(t *testing.T, children *Children) *Child {
	t.Helper()
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}} // the child is killed when the test ends
	child, err := children.Start("/bin/sleep", []string{"sleep", "1000"}, attr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func TestSweepListsAgainAfterKilling(t *testing.T) {
	children, err := NewChildren()
	if err != nil {
		t.Fatal(err)
	}
	first, second := sleeper(t, children), sleeper(t, children)
	shown := first
	left, err := Sweep(func() ([]Process, error) {
		p, err := Read(shown.PID)
		if shown == first && (err != nil || p.Zombie) {
			<-first.Done()
			shown = second // as if the first process had started the second before it was stopped
			p, err = Read(shown.PID)
		}
		if err != nil {
			return nil, nil
		}
		return []Process{p}, nil
	}, patience.Limit)
	if err != nil || len(left) > 0 {
		t.Fatalf("left %v: %v", left, err)
	}
	for _, child := range []*Child{first, second} {
		if <-child.Done(); child.Status().Signal() != unix.SIGKILL {
			t.Errorf("ended with %v", child.Status())
		}
	}
	third := sleeper(t, children)
	if left, err := children.Clear(patience.Limit); err != nil || len(left) > 0 || !third.Over() {
		t.Errorf("cleared: left %v, over %v: %v", left, third.Over(), err)
	}
	children.Close()
}
