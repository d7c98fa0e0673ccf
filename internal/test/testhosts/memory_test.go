package testhosts

import (
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOutOfMemory(t *testing.T) {
	require(t)
	victim, bystander := exec.Command("sleep", "1003"), exec.Command("sleep", "1004")
	for _, cmd := range []*exec.Cmd{victim, bystander} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) // it may have ended
	}
	ended := make(chan error, 1)
	go func() { ended <- victim.Wait() }()
	err := OutOfMemory(victim.Process.Pid)
	if errors.Is(err, ErrNoMemoryGroups) {
		t.Log(err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var status *exec.ExitError
	if err := <-ended; !errors.As(err, &status) || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another process: %v", err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/plx-testhosts-*", "/sys/fs/cgroup/memory/plx-testhosts-*", "/dev/shm/plx-testhosts-*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	}
	if err := OutOfMemory(1 << 30); err == nil {
		t.Error("a process that is not there was killed")
	}
}
