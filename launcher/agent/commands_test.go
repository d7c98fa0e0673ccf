//go:build linux

package agent

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/tree/store"
	"github.com/plx-run/plx/launcher/protocol"
)

func TestStartReportsBadInput(t *testing.T) {
	h := newHost(t, 1, "wait")
	for name, test := range map[string]struct {
		edit func(*protocol.Spec)
		want string
		code int
	}{
		"bad folder":  {func(s *protocol.Spec) { s.Folder = "../x" }, "not a valid name", codeFailed},
		"no secret":   {func(s *protocol.Spec) { s.Secret = nil }, "secret", codeFailed},
		"no files":    {func(s *protocol.Spec) { s.Copied = strings.Repeat("cd", 32) }, "make the folder of worker:0: read the list of files", codeNoAgent},
		"not the sum": {func(s *protocol.Spec) { s.Copied = "x" }, "content hash", codeNoAgent},
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

func TestStartFailsInAnUnwritableHome(t *testing.T) {
	h := newHost(t, 1, "wait")
	file := h.home + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.home = file // a file as HOME: even root cannot create a folder below it
	l := h.dial("start")
	l.send(protocol.Message{Spec: &h.spec})
	<-l.ended
	if l.code != codeFailed || !strings.Contains(l.stderr.String(), file) {
		t.Errorf("exit status %d, %q", l.code, l.stderr)
	}
}

func TestPrune(t *testing.T) {
	h := newHost(t, 1, "wait")
	over := newHost(t, 1, "exit", "0")
	over.home = h.home
	ol, _ := over.launch()
	ol.exits(1)
	ol.end(over, 0)
	l, _ := h.launch()
	h.prints("worker-0.stdout", "ready")
	eventually(t, "the jobs have their phases", func() bool { // agents write their state files in the background
		running, err := h.folder().ReadState()
		ended, failed := over.folder().ReadState()
		return err == nil && failed == nil && running.Phase == protocol.Running && ended.Phase == protocol.Over
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
	cutOff := h.home + "/.plx/jobs/cut-off/gpu01/work" // working directory of a job that was never started
	if err := errors.Join(os.MkdirAll(cutOff, 0o700), os.WriteFile(cutOff+"/file", make([]byte, 1000), 0o600)); err != nil {
		t.Fatal(err)
	}
	spare := h.home + "/.plx/spares/gpu01--source" // of an earlier plx
	if err := errors.Join(os.MkdirAll(spare+"/ready/tree", 0o700), os.WriteFile(spare+"/ready/tree/file", make([]byte, 1000), 0o600), os.WriteFile(spare+"/lock", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	asker := h.dial("start")
	pruned := func(want protocol.PruneRequest) []protocol.Pruned {
		answer := call[protocol.PruneAnswer](asker, protocol.DoPrune, want)
		if answer.Failed != "" {
			t.Error(answer.Failed)
		}
		return answer.Items
	}
	if items := pruned(protocol.PruneRequest{Older: 720 * time.Hour}); len(items) > 0 {
		t.Errorf("young things were pruned: %+v", items)
	}
	if r := asker.call(protocol.DoPrune, protocol.PruneRequest{Older: -1}); r.Err == nil {
		t.Error("a negative age was taken")
	}
	planned := pruned(protocol.PruneRequest{Dry: true})
	items := pruned(protocol.PruneRequest{})
	if !slices.Equal(planned, items) {
		t.Errorf("planned\n%+v\ndone\n%+v", planned, items)
	}
	var removed []string
	for _, p := range items {
		removed = append(removed, p.Path)
		if p.Bytes < 100 {
			t.Errorf("%+v", p)
		}
	}
	slices.Sort(removed)
	if want := []string{"blobs/" + unused, "jobs/cut-off/gpu01", fmt.Sprintf("jobs/%s/gpu01", over.spec.Job), "spares/gpu01--source"}; !slices.Equal(removed, want) {
		t.Errorf("pruned %v, want %v", removed, want)
	}
	if _, err := os.Stat(h.folder().State()); err != nil {
		t.Error(err)
	}
	l.end(h, time.Second)
}

func TestEveryTaskGetsTheCopiedFiles(t *testing.T) {
	h := newHost(t, 2)
	h.spec.Copied, _ = copied(t, h, "conf/a.txt", "hello")
	h.spec.Command = protocol.Command{Name: "cat", Args: []protocol.Raw{"conf/a.txt"}}
	l, _ := h.launch()
	l.exits(2)
	for _, name := range []string{"worker-0.stdout", "worker-1.stdout"} {
		if got := h.spool(name); got != "hello" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if text, err := os.ReadFile(filepath.Join(string(h.folder()), "manifests")); err != nil || strings.TrimSpace(string(text)) != h.spec.Copied {
		t.Errorf("manifests in use: %q, %v", text, err)
	}
	l.end(h, 0)
}

// The list of files can be read only after the launcher has received two
// messages that the agent is still starting.
func TestLauncherGetsKeepalivesDuringALongCopy(t *testing.T) {
	h := newHost(t, 1)
	sum, list := copied(t, h, "conf/a.txt", "hello")
	content, err := os.ReadFile(list)
	if err := errors.Join(err, os.Remove(list), unix.Mkfifo(list, 0o600)); err != nil {
		t.Fatal(err)
	}
	h.spec.Copied = sum
	l := h.dial("start")
	l.send(protocol.Message{Spec: &h.spec})
	t.Cleanup(func() { // unblock a reader that still waits
		if f, err := os.OpenFile(list, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	})
	for range 2 {
		l.wait("Renewed", func(m protocol.Message) bool { return m.Renewed != nil })
	}
	if err := os.WriteFile(list, content, 0); err != nil { // waits for the reader
		t.Fatal(err)
	}
	l.wait("State", func(m protocol.Message) bool { return m.State != nil })
	l.end(h, 0)
}

// copied stores a folder with one file, and returns the manifest's checksum
// and path.
func copied(t *testing.T, h *testHost, name, content string) (sum, list string) {
	t.Helper()
	m := tree.Manifest{Entries: []tree.Entry{
		{Path: filepath.Dir(name), Kind: tree.Directory, Mode: 0o755},
		{Path: name, Kind: tree.File, Mode: 0o644, Size: int64(len(content)), Sum: sha256.Sum256([]byte(content))},
	}}
	files := store.Open(filepath.Join(h.home, ".plx", "files"))
	for _, text := range []string{string(m.Encode()), content} {
		file := files.Path(sha256.Sum256([]byte(text)))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return m.ID().String(), files.Path(m.ID())
}
