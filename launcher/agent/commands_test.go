//go:build linux

package agent

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

func TestStartSaysWhatIsWrong(t *testing.T) {
	h := newHost(t, 1, "wait")
	for name, test := range map[string]struct {
		edit func(*protocol.Spec)
		want string
		code int
	}{
		"bad folder":  {func(s *protocol.Spec) { s.Folder = "../x" }, "not a valid name", codeFailed},
		"no secret":   {func(s *protocol.Spec) { s.Secret = nil }, "secret", codeFailed},
		"no archive":  {func(s *protocol.Spec) { s.Archives = []string{strings.Repeat("cd", 32)} }, "unpack", codeNoAgent},
		"not the sum": {func(s *protocol.Spec) { s.Archives = []string{"x"} }, "content hash", codeNoAgent},
		"no folder": {func(s *protocol.Spec) { s.Workdir = strings.Repeat("cd", 32) },
			"make the working directory: read the list of files", codeNoAgent},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1, "wait")
			test.edit(&h.spec)
			l := h.dial("start")
			l.send(protocol.Message{Spec: &h.spec})
			<-l.ended
			if l.code != test.code || !strings.Contains(l.stderr.String(), test.want) || strings.Count(l.stderr.String(), "\n") != 1 {
				t.Errorf("exit status %d, %q, want %q", l.code, l.stderr, test.want)
			}
		})
	}
	l, _ := h.start()
	again := h.dial("start")
	again.send(protocol.Message{Spec: &h.spec})
	<-again.ended
	if again.code != codeFailed || !strings.Contains(again.stderr.String(), "already has an agent") {
		t.Errorf("second start: exit status %d, %q", again.code, again.stderr)
	}
	l.end(h, 0)
}

func TestUnwritableHome(t *testing.T) {
	h := newHost(t, 1, "wait")
	file := h.home + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.home = file // a folder cannot be made below a file, not even by root
	l := h.dial("start")
	l.send(protocol.Message{Spec: &h.spec})
	<-l.ended
	if l.code != codeFailed || !strings.Contains(l.stderr.String(), file) {
		t.Errorf("exit status %d, %q", l.code, l.stderr)
	}
}

func TestJobsAndPrune(t *testing.T) {
	h := newHost(t, 1, "wait")
	over := newHost(t, 1, "exit", "0")
	over.home = h.home
	ol, _ := over.launch()
	ol.exits(1)
	ol.end(over, 0)
	h.spec.Archives = nil
	l, _ := h.launch()
	h.prints("worker-0.stdout", "ready")
	eventually(t, "both jobs are listed with their phases", func() bool { // an agent writes its state in the background
		out, _, _ := h.agent("jobs")
		phases := map[string]protocol.Phase{}
		for _, text := range strings.Split(strings.TrimSpace(out), "\n") {
			s := decode[protocol.State](t, text)
			phases[s.Job] = s.Phase
		}
		return len(phases) == 2 && phases[h.spec.Job] == protocol.Running && phases[over.spec.Job] == protocol.Over
	})
	used, unused := strings.Repeat("11", 32), strings.Repeat("22", 32)
	blobs := h.home + "/.plx/blobs/"
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, sum := range []string{used, unused} {
		if err := os.WriteFile(blobs+sum, make([]byte, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(h.folder().Blobs(), []byte(used+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cutOff := h.home + "/.plx/jobs/cut-off/gpu01/work" // made for a job that was never started
	if err := errors.Join(os.MkdirAll(cutOff, 0o700), os.WriteFile(cutOff+"/file", make([]byte, 1000), 0o600)); err != nil {
		t.Fatal(err)
	}
	spare := h.home + "/.plx/spares/gpu01--source" // made ahead for a job that was not launched
	if err := errors.Join(os.MkdirAll(spare+"/ready/tree", 0o700), os.WriteFile(spare+"/ready/tree/file", make([]byte, 1000), 0o600), os.WriteFile(spare+"/lock", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := h.agent("prune", "--older", "720h"); out != "" || code != 0 {
		t.Errorf("young things were pruned: %s%s", out, stderr)
	}
	planned, _, _ := h.agent("prune", "--older", "0s", "--dry-run")
	out, stderr, code := h.agent("prune", "--older", "0s")
	if planned != out {
		t.Errorf("planned\n%sdone\n%s", planned, out)
	}
	var removed []string
	for _, text := range strings.Split(strings.TrimSpace(out), "\n") {
		p := decode[protocol.Pruned](t, text)
		removed = append(removed, p.Path)
		if p.Bytes < 100 {
			t.Errorf("%+v", p)
		}
	}
	slices.Sort(removed)
	if want := []string{"blobs/" + unused, "jobs/cut-off/gpu01", fmt.Sprintf("jobs/%s/gpu01", over.spec.Job), "spares/gpu01--source"}; code != 0 || !slices.Equal(removed, want) {
		t.Errorf("pruned %v, want %v; %s", removed, want, stderr)
	}
	if _, err := os.Stat(h.folder().State()); err != nil {
		t.Error(err)
	}
	l.end(h, time.Second)
}

func TestArchivesAreUnpackedForEveryTask(t *testing.T) {
	h := newHost(t, 2)
	sum := strings.Repeat("ef", 32)
	packed(t, h, sum, "conf/a.txt", "hello")
	h.spec.Archives = []string{sum}
	h.spec.Command = protocol.Command{Name: "cat", Args: []protocol.Raw{"conf/a.txt"}}
	l, _ := h.launch()
	l.exits(2)
	for _, name := range []string{"worker-0.stdout", "worker-1.stdout"} {
		if got := h.spool(name); got != "hello" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if text, err := os.ReadFile(h.folder().Blobs()); err != nil || strings.TrimSpace(string(text)) != sum {
		t.Errorf("blobs in use: %q, %v", text, err)
	}
	l.end(h, 0)
}

// TestLongUnpackingIsNoSilence has an archive that can be read only when the launcher
// has heard twice that the agent is still being started.
func TestLongUnpackingIsNoSilence(t *testing.T) {
	h := newHost(t, 1)
	sum := strings.Repeat("ad", 32)
	packed(t, h, sum, "conf/a.txt", "hello")
	blob := filepath.Join(h.home, ".plx", "blobs", sum)
	content, err := os.ReadFile(blob)
	if err := errors.Join(err, os.Remove(blob), unix.Mkfifo(blob, 0o600)); err != nil {
		t.Fatal(err)
	}
	h.spec.Archives = []string{sum}
	l := h.dial("start")
	l.send(protocol.Message{Spec: &h.spec})
	t.Cleanup(func() { // a reader that still waits is let go
		if f, err := os.OpenFile(blob, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	})
	for range 2 {
		l.wait("Renewed", func(m protocol.Message) bool { return m.Renewed != nil })
	}
	if err := os.WriteFile(blob, content, 0); err != nil { // waits for the reader
		t.Fatal(err)
	}
	l.wait("State", func(m protocol.Message) bool { return m.State != nil })
	l.end(h, 0)
}

// packed makes a blob that is an archive of one file.
func packed(t *testing.T, h *testHost, sum, name, content string) {
	t.Helper()
	dir := filepath.Join(h.home, ".plx", "blobs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, sum))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, header := range []*tar.Header{
		{Name: filepath.Dir(name), Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))},
	} {
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}
