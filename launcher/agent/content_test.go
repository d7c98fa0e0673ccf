//go:build linux

package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/tree/store"
	"github.com/plx-run/plx/launcher/protocol"
)

// stream is like pipe, but sends the input and receives the output at the same
// time.
func (l *line) stream(do protocol.Method, want any, in io.Reader, out io.Writer) error {
	l.t.Helper()
	l.asked++
	id := l.asked
	l.send(protocol.Message{Call: &protocol.Call{ID: id, Do: do, In: encode(l.t, want)}})
	go func() {
		piece := make([]byte, 1000)
		for {
			n, err := in.Read(piece)
			if err == nil {
				err = l.conn.Send(protocol.Message{Order: &protocol.Order{ID: id, Data: piece[:n]}})
			}
			if err != nil {
				_ = l.conn.Send(protocol.Message{Order: &protocol.Order{ID: id}}) // if this fails, the call does not end and the test fails
				return
			}
		}
	}()
	var failed error
	r := l.wait("Reply", func(m protocol.Message) bool {
		if m.Piece != nil && failed == nil {
			_, failed = out.Write(m.Piece.Data)
		}
		return m.Reply != nil
	}).Reply
	if r.Err != nil {
		return r.Err
	}
	return failed
}

// put returns the function that tree.Send calls for this host.
func (l *line) put(want protocol.Put) tree.Put {
	return func(_ context.Context, in io.Reader, out io.Writer) error {
		return l.stream(protocol.DoPut, want, in, out)
	}
}

// give sends a folder.
func (l *line) give(want protocol.Put, f *tree.Folder) error {
	l.t.Helper()
	return tree.Send(l.t.Context(), []tree.Target{{Name: "gpu01", Put: l.put(want)}}, f, tree.SendOptions{})
}

// folderOf creates a folder with the given files (content by name) and scans
// it.
func folderOf(t *testing.T, files map[string]string) *tree.Folder {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := tree.Scan(t.Context(), dir, tree.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// written returns a manifest in the format in which it is sent.
func written(t *testing.T, m tree.Manifest) string {
	t.Helper()
	var text strings.Builder
	if err := m.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A folder that was sent to an agent can be read back, and becomes a job's
// working directory. The same agent process answers all calls.
func TestPutAndGet(t *testing.T) {
	h := newHost(t, 1)
	l := h.dial("start")
	f := folderOf(t, map[string]string{"train.py": "print(1)\n", "data/big": strings.Repeat("0123456789abcdef", 1<<15), "data/empty": ""})
	files := store.Open(filepath.Join(h.home, ".plx", "files"))
	if files.Contains(f.ID()) {
		t.Fatal("it is there")
	}
	for range 2 { // the second time the folder is cached already
		if err := l.give(protocol.Put{}, f); err != nil || !files.Contains(f.ID()) {
			t.Errorf("%v, or it is not there", err)
		}
	}
	if _, err := os.Stat(string(h.folder())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder of no job: %v", err)
	}
	if err := l.give(protocol.Put{Job: h.spec.Job, Folder: h.spec.Folder}, f); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(h.folder().Work(), "train.py")); err != nil || string(text) != "print(1)\n" {
		t.Errorf("the working directory: %q, %v", text, err)
	}
	get := func(manifest string) func(context.Context, io.Writer) error {
		return func(_ context.Context, out io.Writer) error {
			return l.stream(protocol.DoGet, protocol.Get{Manifest: manifest}, strings.NewReader(""), out)
		}
	}
	dir := t.TempDir()
	back, err := tree.Download(t.Context(), get(f.ID().String()), f.ID(), dir)
	if err != nil || back.ID() != f.ID() {
		t.Errorf("%v", err)
	}
	for manifest, want := range map[string]string{"": "content hash", "../../x": "content hash", strings.Repeat("cd", 32): "no such file"} {
		if _, err := tree.Download(t.Context(), get(manifest), f.ID(), t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("get %q: %v, want %q", manifest, err, want)
		}
	}
}

// A program that was sent becomes a blob. If it is sent again, no content is
// transferred.
func TestPutProgram(t *testing.T) {
	h := newHost(t, 1)
	l := h.dial("start")
	f := folderOf(t, map[string]string{"program": strings.Repeat("#!/bin/sh\n", 10_000)})
	program, _ := f.Find("program")
	if err := os.Mkdir(filepath.Join(h.home, ".plx", "blobs"), 0o700); err != nil { // there the agent is
		t.Fatal(err)
	}
	for i := range 2 {
		sent := false
		told := tree.SendOptions{Progress: func(string, string, int64, int64) { sent = true }}
		target := tree.Target{Name: "gpu01", Put: l.put(protocol.Put{Program: true})}
		if err := tree.Send(t.Context(), []tree.Target{target}, f, told); err != nil || sent != (i == 0) {
			t.Errorf("%v, sent it: %v", err, sent)
		}
		info, err := os.Stat(filepath.Join(h.home, ".plx", "blobs", program.Sum.String()))
		if err != nil || info.Size() != program.Size || info.Mode().Perm()&0o100 == 0 {
			t.Errorf("the blob: %+v, %v", info, err)
		}
	}
	two := folderOf(t, map[string]string{"a": "a", "b": "b"})
	if err := l.give(protocol.Put{Program: true}, two); err == nil || !strings.Contains(err.Error(), "want exactly one file") {
		t.Errorf("two programs: %v", err)
	}
}

// The agent refuses input that is no folder, has paths outside of it, or names
// no job. It continues to answer calls.
func TestPutRefusesInvalidInput(t *testing.T) {
	h := newHost(t, 1)
	l := h.dial("start")
	f := folderOf(t, map[string]string{"a": "content"})
	list := written(t, f.Manifest)
	out := func(name string) string {
		return written(t, tree.Manifest{Entries: []tree.Entry{{Path: name, Kind: tree.File, Mode: 0o644}}})
	}
	named := protocol.Put{Job: h.spec.Job, Folder: h.spec.Folder}
	for name, c := range map[string]struct {
		want protocol.Put
		in   []string
		says string
	}{
		"nothing":                 {named, nil, ""},
		"no list of files":        {named, []string{"hello\n"}, ""},
		"half a list":             {named, []string{list[:len(list)/2]}, ""},
		"a list, and no files":    {named, []string{list}, ""},
		"a list, and no part":     {protocol.Put{Program: true}, []string{list}, ""},
		"a list of no such files": {named, []string{list, "these are no files"}, ""},
		"a name that leads out":   {named, []string{out("../x")}, ""},
		"an absolute name":        {named, []string{out("/etc/x")}, ""},
		"a job that leads out":    {protocol.Put{Job: "../x", Folder: "gpu01"}, []string{list}, "not a valid name"},
		"a folder that leads out": {protocol.Put{Job: h.spec.Job, Folder: ".."}, []string{list}, "not a valid name"},
		"no folder":               {protocol.Put{Job: h.spec.Job}, []string{list}, "not a valid name"},
	} {
		if out, err := l.pipe(protocol.DoPut, c.want, c.in...); err == nil || !strings.Contains(err.Text, c.says) || strings.HasSuffix(out, tree.DoneReply) {
			t.Errorf("%s: %q, %v, want %q", name, out, err, c.says)
		}
	}
	if store.Open(filepath.Join(h.home, ".plx", "files")).Contains(f.ID()) {
		t.Error("it has what was not sent")
	}
	if err := l.give(protocol.Put{}, f); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.folder().Work()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a working directory was made: %v", err)
	}
}

// If the caller disconnects while an agent receives files, the agent ends and
// stores no partial files.
func TestPutEndsWhenTheCallerDisconnects(t *testing.T) {
	h := newHost(t, 1)
	l := h.dial("start")
	f := folderOf(t, map[string]string{"a": "content"})
	l.send(protocol.Message{Call: &protocol.Call{ID: 1, Do: protocol.DoPut, In: encode(t, protocol.Put{})}})
	l.send(protocol.Message{Order: &protocol.Order{ID: 1, Data: []byte(written(t, f.Manifest))}})
	l.wait("what it lacks", func(m protocol.Message) bool { return m.Piece != nil })
	l.conn.Close()
	l.closed()
	<-l.ended
	if store.Open(filepath.Join(h.home, ".plx", "files")).Contains(f.ID()) {
		t.Error("it has what was not sent")
	}
}

// An agent lists outputs, sends them from an offset, counts them, and records
// which were fetched. It sends no other file.
func TestOutputs(t *testing.T) {
	h := newHost(t, 1)
	t.Setenv("HOME", h.home)
	f := left(t, h.spec.Job, protocol.Output{Pattern: "*.pt"})
	if f != h.folder() {
		t.Fatalf("%s, want %s", f, h.folder())
	}
	own := filepath.Join(f.Tasks(), "worker-0")
	if err := errors.Join(os.WriteFile(filepath.Join(own, "log"), []byte("four"), 0o600), os.WriteFile(filepath.Join(own, "../secret"), nil, 0o600),
		os.Symlink("../secret", filepath.Join(own, "link.pt"))); err != nil {
		t.Fatal(err)
	}
	l := h.dial("start")
	ask := func(want protocol.FetchRequest) (string, *protocol.Failure) {
		if want.HostJob == (protocol.HostJob{}) {
			want.HostJob = h.named()
		}
		return l.pipe(protocol.DoFetch, want)
	}
	list, err := ask(protocol.FetchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var model protocol.HostOutput
	for line := range strings.Lines(list) {
		switch o := decode[protocol.HostOutput](t, line); {
		case o.Name == "model.pt" && o.Damage == "":
			model = o
		case o.Name != "link.pt" || o.Damage == "":
			t.Errorf("listed %+v", o)
		}
	}
	if model.Place != "worker-0" || model.Size != 7 || model.Sum != sumOf("weights") {
		t.Errorf("%+v", model)
	}
	for offset, want := range map[int64]string{0: "weights", 2: "ights", 7: "", 100: ""} {
		if text, err := ask(protocol.FetchRequest{Place: "worker-0", Name: "model.pt", Offset: offset}); text != want || err != nil {
			t.Errorf("from %d: %q, %v", offset, text, err)
		}
	}
	made := protocol.Wanted{Made: true}
	if text, err := ask(protocol.FetchRequest{Wanted: made, Place: "worker-0", Name: "log"}); text != "four" || err != nil {
		t.Errorf("a file that no output names: %q, %v", text, err)
	}
	for _, w := range []protocol.FetchRequest{{Place: "worker-0", Name: "model.pt", Offset: -1}, {Place: "worker-0", Name: "log"}, {Place: "worker-0", Name: "none.pt"},
		{Wanted: made, Place: "worker-0", Name: "../secret"}, {Wanted: made, Place: "worker-0", Name: "/etc/passwd"}, {Wanted: made, Place: "worker-0", Name: "link.pt"},
		{Wanted: made, Place: "..", Name: "state.json"}, {Wanted: made, Place: "worker-7", Name: "model.pt"}, {Wanted: made, Place: "", Name: "model.pt"},
		{HostJob: protocol.HostJob{Job: "..", Folder: "gpu01"}}, {HostJob: protocol.HostJob{Job: h.spec.Job, Folder: "../" + h.spec.Folder}}, {HostJob: protocol.HostJob{Job: "never", Folder: "gpu01"}}} {
		if text, err := ask(w); text != "" || err == nil || err.Text == "" {
			t.Errorf("%+v: %q, %v", w, text, err)
		}
	}
	printed := protocol.FetchRequest{Place: protocol.LogsPlace, Name: "worker-0.stdout"}
	if err := errors.Join(os.MkdirAll(f.Logs(), 0o700), os.WriteFile(filepath.Join(f.Logs(), printed.Name), []byte("a line\n"), 0o600),
		os.WriteFile(filepath.Join(f.Logs(), "worker-0.stderr"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if text, err := ask(protocol.FetchRequest{}); err != nil || !strings.Contains(text, "{\"place\":\"logs\",\"name\":\"worker-0.stdout\",\"size\":7,\"modified\":0,\"sum\":\""+sumOf("a line\n")+"\"}\n") || strings.Contains(text, "stderr") {
		t.Errorf("with logs: %q, %v", text, err)
	}
	if text, err := ask(protocol.FetchRequest{Wanted: protocol.Wanted{Patterns: []string{"none"}}}); err != nil || text != "" {
		t.Errorf("with a pattern: %q, %v", text, err)
	}
	for bounds, want := range map[[2]int64]string{{0, 0}: "a line\n", {2, 0}: "line\n", {2, 4}: "li", {7, 7}: "", {100, 0}: ""} {
		printed.Offset, printed.Size = bounds[0], bounds[1]
		if text, err := ask(printed); text != want || err != nil {
			t.Errorf("bytes %d of a log: %q, %v", bounds, text, err)
		}
	}
	for _, name := range []string{"worker-1.stdout", "../state.json", "worker-0.stdout.index", "/etc/passwd"} {
		if text, err := ask(protocol.FetchRequest{Place: protocol.LogsPlace, Name: name}); text != "" || err == nil {
			t.Errorf("log %s: %q, %v", name, text, err)
		}
	}
	if text, err := ask(protocol.FetchRequest{Count: true}); err != nil || decode[protocol.FileCounts](t, text) != (protocol.FileCounts{Files: 1, Bytes: 4, Named: 1}) {
		t.Errorf("the count: %q, %v", text, err)
	}
	if text, err := ask(protocol.FetchRequest{Fetched: []protocol.HostOutput{model}}); text != "" || err != nil {
		t.Errorf("the note: %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(string(f), "fetched.json")); err != nil || !strings.Contains(string(text), "model.pt") {
		t.Errorf("noted %s, %v", text, err)
	}
}
