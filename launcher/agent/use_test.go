//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/protocol"
)

// smi installs a fake nvidia-smi that lists two GPUs, and returns a function
// that counts its calls.
func smi(t *testing.T) (asked func() int) {
	t.Helper()
	folder := t.TempDir()
	text, err := os.ReadFile("../../gpuprobe/testdata/nvidia-smi")
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(folder, "asked")
	facts := filepath.Join(folder, "facts")
	for path, content := range map[string]string{
		filepath.Join(folder, "real-smi"): string(text),
		facts: "mode ok\ndriver 570.124.06\n" +
			"gpu 0|GPU-aaaa|NVIDIA H200|00000000:3B:00.0|143771|2048|97|Default|Disabled|9.0|61|412.56\n" +
			"gpu 1|GPU-bbbb|NVIDIA H200|00000000:86:00.0|143771|1|[N/A]|Default|Disabled|9.0\n" +
			"app GPU-aaaa|7|python|500\napp GPU-bbbb|7|[Not Found]|500\n",
		filepath.Join(folder, "nvidia-smi"): "#!/bin/sh\ncase $1 in --query-gpu=*) echo x >>" + note + " ;; esac\nPLX_FAKE_GPUS=" + facts + ` exec real-smi "$@"` + "\n",
	} {
		if err := executable.Write(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	return func() int {
		lines, err := os.ReadFile(note)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return len(lines) / len("x\n")
	}
}

// checkUse checks what an agent reports about a host with the GPUs of smi, the
// second of which owner uses.
func checkUse(t *testing.T, use *protocol.HostUse, owner string) {
	t.Helper()
	if use.CPUs == 0 || use.MemoryTotal == 0 || use.Every != protocol.SampleEvery || use.Trouble != "" {
		t.Errorf("%+v", use)
	}
	if s := use.Samples[0]; s.Memory <= 0 || s.Memory > use.MemoryTotal || s.CPU < 0 || s.CPU > float32(use.CPUs) {
		t.Errorf("sample %+v of %+v", s, use)
	}
	first := protocol.GPUUse{Index: 0, Name: "NVIDIA H200", Percent: 97, MemoryUsed: 2048 << 20, MemoryTotal: 143771 << 20, Temperature: 61, Power: 412.56, Owner: use.GPUs[0].Owner}
	second := protocol.GPUUse{Index: 1, Name: "NVIDIA H200", Percent: -1, MemoryUsed: 1 << 20, MemoryTotal: 143771 << 20, Temperature: -1, Power: -1, Owner: owner}
	if len(use.GPUs) != 2 || use.GPUs[0] != first || use.GPUs[1] != second {
		t.Errorf("got %+v\nwant %+v, %+v", use.GPUs, first, second)
	}
}

// A Look request with Host on a running job returns the use of its host.
// nvidia-smi does not run before the first request.
func TestLookReportsTheUseOfTheHost(t *testing.T) {
	asked := smi(t)
	h := newHost(t, 1, "wait")
	h.spec.Tasks[0].Claims = []protocol.Claim{{Device: "GPU-bbbb"}}
	l, _ := h.launch()
	h.prints("worker-0.stdout", "ready")
	look := func(host bool) *protocol.HostUse {
		l.send(protocol.Message{Look: &protocol.ActivityRequest{ID: 1, Waits: true, Host: host}})
		return l.wait("Seen", func(m protocol.Message) bool { return m.Seen != nil }).Seen.Host
	}
	if use := look(false); use != nil || asked() > 0 {
		t.Errorf("although nobody has asked for it: %+v, nvidia-smi was asked %d times", use, asked())
	}
	var use *protocol.HostUse
	eventually(t, "the agent tells of its host", func() bool {
		use = look(true)
		return use != nil && len(use.Samples) > 0 && len(use.GPUs) > 0
	})
	checkUse(t, use, "worker:0")
	l.end(h, time.Second)
}

// An agent without a job reports the use of its host from the first request
// on.
func TestUseOfAHostWithoutAJob(t *testing.T) {
	smi(t)
	h := newHost(t, 1)
	l := h.dial("start")
	use := call[protocol.HostUse](l, protocol.DoUse, none{})
	if len(use.Samples) != 1 || use.Samples[0].GPU != -1 {
		t.Errorf("the first answer %+v", use)
	}
	eventually(t, "the agent tells of the GPUs", func() bool {
		use = call[protocol.HostUse](l, protocol.DoUse, none{})
		return len(use.GPUs) > 0
	})
	checkUse(t, &use, "pid 7")
	l.conn.Close()
	<-l.ended
	if l.code != 0 || l.stderr.Len() > 0 {
		t.Errorf("exit status %d, %q", l.code, l.stderr)
	}
}
