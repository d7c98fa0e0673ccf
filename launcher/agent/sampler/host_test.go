//go:build linux

package sampler

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
)

// A Host keeps the samples of the last 15 minutes, and no older ones.
func TestHostKeepsSamplesOf15Minutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, quit := NewHost(noTool), make(chan struct{})
		defer close(quit)
		go h.Run(quit)
		use := h.Use(nil)
		if use.CPUs == 0 || use.MemoryTotal == 0 || use.Every != protocol.SampleEvery || use.Trouble != "" || len(use.Samples) != 0 {
			t.Errorf("at first %+v", use)
		}
		time.Sleep(time.Second)
		if n := len(h.Use(nil).Samples); n != 1 {
			t.Errorf("%d samples after a second", n)
		}
		time.Sleep(time.Minute)
		if n := len(h.Use(nil).Samples); n != 13 {
			t.Errorf("%d samples after a minute", n)
		}
		time.Sleep(20 * time.Minute)
		use = h.Use(nil)
		if n := len(use.Samples); n != protocol.MaxSamples {
			t.Errorf("%d samples after 20 minutes", n)
		}
		if s := use.Samples[0]; s.Memory <= 0 || s.Memory > use.MemoryTotal || s.GPU != -1 {
			t.Errorf("a sample %+v", s)
		}
	})
}

func noTool(context.Context, string, int64) ([]byte, int, error) {
	return nil, gpuprobe.NoTool, nil
}

// tool stands for a GPU tool, such as nvidia-smi, that takes some time.
type tool struct {
	took   time.Duration
	out    string
	status int
	err    error
	asked  []time.Time
}

func (s *tool) shell(ctx context.Context, _ string, _ int64) ([]byte, int, error) {
	s.asked = append(s.asked, time.Now())
	select {
	case <-time.After(s.took):
		return []byte(s.out), s.status, s.err
	case <-ctx.Done():
		return nil, -1, context.Cause(ctx)
	}
}

const twoUsed = "61, 412.5, 0, GPU-a, 00000000:3B:00.0, 570.1, 1000, 200, 97, Default, H200\n[N/A], [N/A], 1, GPU-b, 00000000:3C:00.0, 570.1, [N/A], [N/A], [N/A], Default, H200\n"

// The GPU tool is called only while clients call Use, and for less than one
// hundredth of the time.
func TestGPUToolIsCalledRarely(t *testing.T) {
	for name, c := range map[string]struct {
		tool    tool
		asked   int // number of calls in 10 minutes, in which a client calls Use each second
		gpus    int
		trouble string
	}{
		"quick tool":    {tool{took: 10 * time.Millisecond, out: twoUsed}, 100, 2, ""},
		"slow tool":     {tool{took: 2 * time.Second, out: twoUsed}, 3, 2, ""},
		"no tool":       {tool{status: gpuprobe.NoTool}, 1, 0, ""},
		"no driver":     {tool{status: 1, out: "NVIDIA-SMI has failed\nmore"}, 1, 0, "query the use of GPUs: NVIDIA-SMI has failed"},
		"one GPU fails": {tool{took: 10 * time.Millisecond, status: 1, out: twoUsed + "Unable to determine the device handle\n"}, 100, 2, "query the use of GPUs: Unable to"},
		"tool hangs":    {tool{took: time.Hour}, 1, 0, "query the use of GPUs: no answer within 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.tool
				h, quit := NewHost(s.shell), make(chan struct{})
				defer h.Close()
				defer close(quit)
				go h.Run(quit)
				time.Sleep(time.Minute)
				if n := len(s.asked); n > 0 {
					t.Errorf("asked %d times while nobody looked", n)
				}
				var use protocol.HostUse
				for range 600 {
					use = h.Use(map[string]string{"GPU-b": "worker:3"})
					time.Sleep(time.Second)
				}
				if n := len(s.asked); n < c.asked-2 || n > c.asked+2 || c.asked == 1 && n != 1 {
					t.Errorf("asked %d times in 10 minutes, want %d", n, c.asked)
				}
				if len(use.GPUs) != c.gpus || !strings.HasPrefix(use.Trouble, c.trouble) || c.trouble == "" && use.Trouble != "" {
					t.Errorf("GPUs %+v, trouble %q", use.GPUs, use.Trouble)
				}
				busy := float32(-1)
				if c.gpus > 0 {
					busy = 0.97
				}
				if got := use.Samples[len(use.Samples)-1].GPU; got != busy {
					t.Errorf("%v GPUs are busy, want %v", got, busy)
				}
				n := len(s.asked)
				time.Sleep(15 * time.Minute)
				if len(s.asked) > n {
					t.Errorf("asked %d times after nobody looked any more", len(s.asked)-n)
				}
				use = h.Use(nil)
				if got := use.Samples[len(use.Samples)-1].GPU; got != -1 || len(use.GPUs) > 0 {
					t.Errorf("15 minutes later %v GPUs are busy of %+v", got, use.GPUs)
				}
			})
		})
	}
}

// After Keep, a Host appends its use to the history, and the use of its GPUs
// if the job has any.
func TestHostAddsToHistory(t *testing.T) {
	for _, gpus := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := tool{took: 10 * time.Millisecond, out: twoUsed}
			h, quit := NewHost(s.shell), make(chan struct{})
			defer h.Close()
			defer close(quit)
			var before metrics.History
			before.Add(time.Now(), metrics.Sample{{Name: metrics.CPU, Number: 0.25}})
			h.Keep(before, gpus)
			go h.Run(quit)
			time.Sleep(time.Minute + time.Second)
			var kept metrics.History
			if err := kept.UnmarshalBinary(h.Encoded()); err != nil {
				t.Fatal(err)
			}
			cpu := kept.Points(metrics.CPU)
			if len(cpu) != 14 || cpu[0].Last != 0.25 || cpu[13].Time.Sub(cpu[12].Time) != time.Second {
				t.Errorf("processors: %v", cpu)
			}
			for name, want := range map[string]int{metrics.CPUs: 13, metrics.Memory: 13, metrics.Received: 13, metrics.Sent: 13} {
				if n := len(kept.Points(name)); n != want {
					t.Errorf("%d points of %s, want %d", n, name, want)
				}
			}
			busy, unknown := kept.Points("gpu_percent_0"), kept.Points("gpu_percent_1")
			if gpus != (len(busy) > 10) || gpus && busy[0].Last != 97 || len(unknown) > 0 || gpus != (len(s.asked) > 4) {
				t.Errorf("GPUs %v: %v and %v, asked %d times", gpus, busy, unknown, len(s.asked))
			}
			if again := h.Encoded(); again != nil {
				t.Error("a history that has not grown was encoded again")
			}
		})
	}
}

func TestGPUUse(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	own := os.Getpid()
	text := twoUsed + fmt.Sprintf("GPU-a, %d, 20, /usr/bin/python3 -c import torch, os\nGPU-a, 7, 20, [Not Found]\nGPU-b, 7, 20, [Not Found]\n", own)
	s := tool{out: text}
	h := NewHost(s.shell)
	h.gpus.ask(time.Minute)
	want := []protocol.GPUUse{
		{Index: 0, Name: "H200", Percent: 97, MemoryUsed: 200 << 20, MemoryTotal: 1000 << 20, Temperature: 61, Power: 412.5, Owner: fmt.Sprintf("%s python3 (pid %d) and 1 more", me.Username, own)},
		{Index: 1, Name: "H200", Percent: -1, MemoryUsed: -1, MemoryTotal: -1, Temperature: -1, Power: -1, Owner: "pid 7"},
	}
	for _, c := range []struct{ reserved, first, second string }{{"", want[0].Owner, "pid 7"}, {"GPU-a", "worker:3", "pid 7"}, {"GPU-b", want[0].Owner, "worker:3"}} {
		got := h.Use(map[string]string{c.reserved: "worker:3"}).GPUs
		want[0].Owner, want[1].Owner = c.first, c.second
		if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

// Close kills a running GPU tool.
func TestCloseEndsGPUTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool{took: time.Hour}
		h := NewHost(s.shell)
		h.Use(nil)
		synctest.Wait()
		began := time.Now()
		h.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("closed after %v", took)
		}
		time.Sleep(time.Minute)
		h.Use(nil)
		synctest.Wait()
		if n := len(s.asked); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// A script runs in a process group of its own, so that all its processes are
// killed.
func TestExecuteKillsProcessGroup(t *testing.T) {
	out, status, err := execute(t.Context(), "echo one; echo two >&2; exit 3", 100)
	if string(out) != "one\n" || status != 3 || err != nil {
		t.Errorf("%q, status %d, %v", out, status, err)
	}
	if out, status, err = execute(t.Context(), "exec yes", 10); string(out) != "y\ny\ny\ny\ny\n" || status != -1 || err != nil {
		t.Errorf("%q, status %d, %v", out, status, err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errNoTool)
	defer cancel()
	began := time.Now()
	if _, _, err := execute(ctx, "sleep 600 & sleep 600", 100); err != errNoTool || time.Since(began) > time.Minute {
		t.Errorf("a script that does not end: %v after %v", err, time.Since(began))
	}
}
