//go:build linux

package sampler

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// TestGPUUseMakesTaskBusy measures an idle process, with scripts in place of
// nvidia-smi. It takes 20 samples, as if they were one second apart.
func TestGPUUseMakesTaskBusy(t *testing.T) {
	for name, c := range map[string]struct {
		tool    string
		busy    bool
		trouble int // samples with an error
	}{
		"used":                {`echo "$P 0, GPU-other, $M 0, D, n"; echo "$P 1, GPU-mine, $M 37, D, n"`, true, 0},
		"idle":                {`echo "$P 0, GPU-mine, $M 0, D, n"; echo "$P 1, GPU-other, $M 100, D, n"`, false, 0},
		"use is not reported": {`echo "$P 0, GPU-mine, $M [N/A], D, n"`, false, 0},
		"tool fails":          {`echo "no driver"; exit 9`, false, 1},
		// On a host with AMD GPUs, rocm-smi is used although nvidia-smi exists
		// and finds no GPU.
		"used AMD GPU": {`exec rocm-smi`, true, 0},
		"tool hangs":   {`exec sleep 600`, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			asked := filepath.Join(folder, "asked")
			if err := os.WriteFile(filepath.Join(folder, "nvidia-smi"), []byte("#!/bin/sh\nP='50, 90.5,' M='00000000:01:00.0, 570.1, 100, 1,'\ncase $1 in *apps*) exit;; esac\necho x >>"+asked+"\n"+c.tool+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			rocm := "#!/bin/sh\n" + `[ $# != 0 ] && echo '{"card0": {"Unique ID": "0x9", "GPU use (%)": "37"}}'` + "\n"
			if strings.Contains(c.tool, "rocm-smi") {
				if err := os.WriteFile(filepath.Join(folder, "rocm-smi"), []byte(rocm), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
			task, pid := cluster.Task{Role: cluster.Worker}, sleeper(t)
			s, now := New(8*time.Second, NewHost(nil)), time.Unix(1000, 0)
			trouble := 0
			for range 20 {
				now = now.Add(time.Second)
				if err := s.Take([]Target{{Task: task, PID: pid, GPUs: []string{"GPU-mine", "GPU-0000000000000009"}}}, now); err != nil {
					trouble++
				}
			}
			if trouble != c.trouble {
				t.Errorf("%d samples had trouble, want %d", trouble, c.trouble)
			}
			a := s.Activities(now)[task]
			if a.IOIdle < 18*time.Second || (a.Idle < 6*time.Second) != c.busy {
				t.Errorf("still for %v, quiet for %v", a.Idle, a.IOIdle)
			}
			if lines, err := os.ReadFile(asked); err != nil || c.busy && len(lines) > 5*len("x\n") {
				t.Errorf("nvidia-smi was asked %d times, error %v", len(lines)/2, err)
			}
		})
	}
}

func TestGPUsAreNotQueriedForActiveTasks(t *testing.T) {
	pid := sleeper(t)
	t.Setenv("PATH", "/nowhere")
	s, now := New(8*time.Second, NewHost(nil)), time.Unix(1000, 0)
	for step := range int64(20) {
		if err := s.Take([]Target{{PID: pid, Step: step, GPUs: []string{"GPU-mine"}}}, now); err != nil {
			t.Fatalf("nvidia-smi was asked although the task moves: %v", err)
		}
		now = now.Add(time.Second)
	}
}

// sleeper starts a process that only sleeps.
func sleeper(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // it was killed
	})
	return cmd.Process.Pid
}
