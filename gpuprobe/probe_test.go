package gpuprobe

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
)

// shell is a Runner that runs the script on this host with the shell at path.
type shell struct{ path string }

func (s shell) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	c := exec.CommandContext(ctx, s.path, "-c", command)
	c.Stdin, c.Stdout, c.Stderr = stdin, stdout, stderr
	c.WaitDelay = 5 * time.Second
	return c.Run()
}

// probe does the same as Probe, with the folder root in place of the host's /.
func probe(ctx context.Context, r Runner, root string, o Options) (Report, error) {
	answer, err := ask(ctx, r, root, o)
	return answer.Report(), err
}

// machine creates a folder that replaces a host's /, with a fake nvidia-smi
// that reports facts. If facts is empty, there is no nvidia-smi.
func machine(t *testing.T, facts string) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, "proc/meminfo", "MemTotal:  2097152 kB\nMemFree: 1 kB\n")
	write(t, root, "proc/cpuinfo", "model name\t: Test CPU\n")
	if facts == "" {
		return root
	}
	tool, err := os.ReadFile("testdata/nvidia-smi")
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, "usr/bin/nvidia-smi", string(tool))
	write(t, root, "facts", facts)
	t.Setenv("PLX_FAKE_GPUS", filepath.Join(root, "facts"))
	return root
}

func write(t *testing.T, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := executable.Write(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// shells returns those shells that hosts usually have and this machine has
// too; at least sh.
func shells(t *testing.T) map[string]shell {
	found := map[string]shell{}
	for _, name := range []string{"sh", "dash", "bash", "ash", "ksh", "mksh"} {
		if path, err := exec.LookPath(name); err == nil {
			found[name] = shell{path}
		}
	}
	if len(found) == 0 {
		t.Fatal("no shell")
	}
	return found
}

const twoGPUs = `mode ok
driver 570.124.06
cuda 12.8
gpu 0|GPU-aaaa|NVIDIA H200, special|00000000:3B:00.0|143771|2048|12|Default|Disabled|9.0
gpu 1|GPU-bbbb|NVIDIA H200|00000000:86:00.0|143771|1|0|Default|Enabled|9.0
mig 1|0|3g.71gb|MIG-cccc
`

func TestScriptOnAHostWithGPUs(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	// nvidia-smi lists a process in a MIG device with the UUID of the MIG
	// device or of the GPU.
	root := machine(t, twoGPUs+"app MIG-cccc|"+pid+"|python, mine|500\napp GPU-bbbb|"+pid+"|python, mine|500\n")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, "proc/"+pid+"/status", string(status))
	for name, sh := range shells(t) {
		r, err := probe(t.Context(), sh, root, Options{ToolTime: patience.Limit})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.GPUTool != ToolSMI || r.GPUError != "" || len(r.GPUs) != 2 || r.Driver != "570.124.06" || r.CUDA != "12.8" || r.MemoryMiB != 2048 || r.CPUs < 1 || r.CPUModel != "Test CPU" {
			t.Fatalf("%s: %+v", name, r)
		}
		a, b := r.GPUs[0], r.GPUs[1]
		if a.Name != "NVIDIA H200, special" || a.UUID != "GPU-aaaa" || a.ComputeCapability != "9.0" || a.MemoryUsedMiB != 2048 || !a.Busy || len(a.Processes) != 0 {
			t.Errorf("%s: first GPU %+v", name, a)
		}
		if len(b.MIG) != 1 || b.MIG[0].Profile != "3g.71gb" || len(b.Processes) != 2 || b.Processes[0] != b.Processes[1] || b.Processes[0].User != me.Username || b.Processes[0].Name != "python, mine" {
			t.Errorf("%s: second GPU %+v", name, b)
		}
	}
}

func TestScriptOnOtherHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	info := "Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-dddd\nBus Location: \t 0000:70:00.0\n"
	for _, c := range []struct {
		name, facts string
		proc        bool
		tool        Tool
		gpus        int
		error       string
	}{
		{"no GPU", "", false, ToolNone, 0, ""},
		{"no tool", "", true, ToolProc, 1, ""},
		{"mismatch", "mode mismatch\ndriver 550.144.03\n", true, ToolBroken, 1, "status 18: Failed to initialize NVML: Driver/library version mismatch; NVML library version: 550.144"},
		{"tool without driver", "mode nodriver\n", false, ToolNone, 0, ""},
		{"no devices", "mode nodevices\n", false, ToolSMI, 0, ""},
		{"driver before 450", strings.ReplaceAll(twoGPUs, "mode ok", "mode old"), false, ToolSMI, 2, ""},
		{"driver before 510", strings.ReplaceAll(twoGPUs, "mode ok", "mode nocap"), false, ToolSMI, 2, ""},
		{"lost", strings.ReplaceAll(twoGPUs, "mode ok", "mode lost"), true, ToolSMI, 2, "status 15"},
	} {
		for name, sh := range shells(t) {
			t.Run(c.name+" in "+name, func(t *testing.T) {
				root := machine(t, c.facts)
				if c.proc {
					write(t, root, "proc/driver/nvidia/gpus/0000:70:00.0/information", info)
				}
				r, err := probe(t.Context(), sh, root, Options{ToolTime: patience.Limit})
				if err != nil {
					t.Fatal(err)
				}
				if r.GPUTool != c.tool || len(r.GPUs) != c.gpus || !strings.Contains(r.GPUError, c.error) || c.error == "" && r.GPUError != "" {
					t.Errorf("tool %q, GPUs %+v, error %q", r.GPUTool, r.GPUs, r.GPUError)
				}
				old := strings.HasPrefix(c.name, "driver before")
				if len(r.GPUs) > 1 && (r.GPUs[0].ComputeCapability == "") != old || old && r.CUDA != "12.8" {
					t.Errorf("capability %q, CUDA %q", r.GPUs[0].ComputeCapability, r.CUDA)
				}
			})
		}
	}
}

// The script stops waiting for a tool that hangs, and kills it. If SIGKILL
// cannot end the tool, the tool keeps the output open, but the probe still
// returns: it ends the Runner soon after the script's last line.
func TestScriptStopsHangingTool(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, mode := range []string{"hang", "stuck"} {
		for name, sh := range shells(t) {
			t.Run(mode+" in "+name, func(t *testing.T) {
				root := machine(t, "mode "+mode+"\n")
				write(t, root, "proc/driver/nvidia/gpus/0000:70:00.0/information", "Model: NVIDIA L4\nGPU UUID: GPU-dddd\n")
				start := time.Now()
				r, err := probe(t.Context(), sh, root, Options{ToolTime: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > patience.Limit/2 { // well below the 90 s for which the stuck process lives
					t.Errorf("took %v", took)
				}
				if r.GPUTool != ToolHung || len(r.GPUs) != 1 || r.GPUs[0].UUID != "GPU-dddd" || r.GPUError != "nvidia-smi did not answer within 1s" {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// The probe waits for a slow tool and calls Options.Slow meanwhile. The report
// has the devices that the host's environment selects.
func TestProbeWaitsForSlowTool(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	root := machine(t, twoGPUs)
	tool := filepath.Join(root, "usr/bin/nvidia-smi")
	if err := os.Rename(tool, tool+".quick"); err != nil {
		t.Fatal(err)
	}
	told := filepath.Join(root, "told")
	// The fake tool waits until the probe has called Options.Slow.
	write(t, root, "usr/bin/nvidia-smi", "#!/bin/sh\nwhile [ ! -e '"+told+"' ]; do sleep 0.05; done\nexec '"+tool+".quick' \"$@\"\n")
	t.Setenv("CUDA_VISIBLE_DEVICES", "1,0")
	calls := 0
	slow := func() {
		calls++
		if err := os.WriteFile(told, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	r, err := probe(t.Context(), shells(t)["sh"], root, Options{ToolTime: patience.Limit, Slow: slow, slowAfter: time.Millisecond})
	if err != nil || r.GPUTool != ToolSMI || len(r.GPUs) != 2 || r.GPUError != "" || r.Visible != "1,0" {
		t.Errorf("%+v, %v", r, err)
	}
	if calls != 1 {
		t.Errorf("slow was called %d times", calls)
	}
	quick := func() { t.Error("a quick tool counts as slow") }
	if _, err := probe(t.Context(), shells(t)["sh"], root, Options{ToolTime: patience.Limit, Slow: quick, slowAfter: patience.Limit}); err != nil {
		t.Error(err)
	}
}

// When a tool ends within its time limit, the script also ends the clock that
// it started for the limit.
func TestScriptLeavesNoProcess(t *testing.T) {
	word := "PLX_TEST_WORD=" + strconv.Itoa(os.Getpid()) + strconv.FormatInt(time.Now().UnixNano(), 36)
	name, value, _ := strings.Cut(word, "=")
	root := machine(t, twoGPUs)
	for shellName, sh := range shells(t) {
		t.Setenv(name, value)
		if _, err := probe(t.Context(), sh, root, Options{ToolTime: patience.Limit}); err != nil {
			t.Fatal(err)
		}
		os.Unsetenv(name)
		deadline := time.Now().Add(patience.Limit / 2) // the kill is asynchronous; without it the clock would run for all of patience.Limit
		for {
			left := withEnvironment(t, word)
			if len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: processes %v are left", shellName, left)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// However soon a program ends, its clock is gone before the script continues.
func TestLimitedKillsClock(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	functions, _, found := strings.Cut(script, "\n# owners:")
	if !found {
		t.Fatal("the script has changed")
	}
	word := "PLX_TEST_WORD=" + strconv.Itoa(os.Getpid()) + strconv.FormatInt(time.Now().UnixNano(), 36)
	name, value, _ := strings.Cut(word, "=")
	for shellName, sh := range shells(t) {
		for _, tool := range []string{"true", "sh -c 'exit 3'", "sh -c 'kill -9 $$'"} {
			t.Setenv(name, value)
			var out strings.Builder
			loop := "\nmark=m i=0\nwhile [ $i -lt 40 ]; do i=$((i + 1)); limited 30 " + tool + "; done\n"
			err := sh.Run(t.Context(), functions+loop, nil, &out, io.Discard)
			os.Unsetenv(name)
			if err != nil || strings.Count(out.String(), "m end ") != 40 || strings.Contains(out.String(), "late") {
				t.Errorf("%s: %s: %v:\n%s", shellName, tool, err, out.String())
			}
			if left := withEnvironment(t, word); len(left) != 0 {
				t.Fatalf("%s: %s: processes %v are left", shellName, tool, left)
			}
		}
	}
}

func withEnvironment(t *testing.T, word string) (pids []string) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(environ), word) { // ignore errors: a process may end while its environment is read
			pids = append(pids, strings.Split(file, "/")[2])
		}
	}
	return pids
}

type runnerFunc func(ctx context.Context, stdout, stderr io.Writer) error

func (f runnerFunc) Run(ctx context.Context, _ string, _ io.Reader, stdout, stderr io.Writer) error {
	return f(ctx, stdout, stderr)
}

func TestProbeErrors(t *testing.T) {
	gone := errors.New("connection lost")
	for _, c := range []struct {
		name string
		run  runnerFunc
		want string
	}{
		{"lost", func(context.Context, io.Writer, io.Writer) error { return gone }, "probe: connection lost"},
		{"nologin", func(_ context.Context, _, stderr io.Writer) error {
			_, err := io.WriteString(stderr, "This account is\x1b[31m not available\n")
			return err
		}, "probe: the host's shell ended early: This account is [31m not available"},
		{"silent", func(context.Context, io.Writer, io.Writer) error { return nil }, "probe: the host's shell ended early"},
		{"endless", func(_ context.Context, stdout, _ io.Writer) error {
			for range 100 {
				if _, err := stdout.Write(make([]byte, 64<<10)); err != nil {
					return err
				}
			}
			return nil
		}, "probe: the host's shell ended early"},
	} {
		if _, err := Probe(t.Context(), c.run, Options{}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Probe(ctx, runnerFunc(func(ctx context.Context, _, _ io.Writer) error { <-ctx.Done(); return ctx.Err() }), Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "a b", `'`, `$(x)'"\`} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q came out as %q: %v", s, out, err)
		}
	}
}
