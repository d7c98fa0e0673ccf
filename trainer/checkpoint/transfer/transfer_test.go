package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	patience = 30 * time.Second // for what ought to happen at once
	id       = "000000000002-g0-00000001"
)

var (
	ps0     = cluster.Task{Role: cluster.PS}
	worker0 = cluster.Task{Role: cluster.Worker}
)

// one accepts copies of one file of one checkpoint.
type one struct{ id, file string }

func (o one) Join(_ context.Context, _ cluster.Task, id, file string) (func(), error) {
	if id != o.id || file != o.file {
		return nil, errors.New("not accepted")
	}
	return func() {}, nil
}

func config(self cluster.Task) peers.Config {
	return peers.Config{Self: self, Key: cluster.PeerKey([]byte("secret"), 0), Workers: 1, Servers: 1}
}

// serve is ps:0 with a folder, in which a checkpoint has one file.
func serve(t testing.TB, silence time.Duration) (f *Files, root string, spec cluster.Spec) {
	t.Helper()
	root = t.TempDir()
	folder, err := checkpoint.OpenFolder(filepath.Join(root, "folder"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := folder.Write(id, "ps-0.safetensors", func(w io.Writer) error { _, err := w.Write([]byte("0123456789")); return err }); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spec.Set(ps0, ln.Addr().String())
	listener, life := peers.Listen(ln, config(ps0)), lifetime.New()
	f = New(Config{Peers: config(ps0), Cluster: spec, Folder: folder, Silence: silence, Saves: one{id, "worker-0.safetensors"},
		Name: cluster.Task.String, Hook: func(string) error { return nil }}, life)
	f.Serve(listener)
	t.Cleanup(func() {
		life.End()
		listener.Close()
	})
	return f, root, spec
}

// dial has worker:0 come to ps:0.
func dial(t testing.TB, spec cluster.Spec, purpose string) *peers.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := peers.Open(ctx, config(worker0), ps0, spec.Addr(ps0), purpose, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// tree lists all files below a folder.
func tree(t testing.TB, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A task reads what is in checkpoints and nothing else.
func TestReadsOutsideAreRefused(t *testing.T) {
	_, root, spec := serve(t, patience)
	folder := filepath.Join(root, "folder")
	if err := os.WriteFile(filepath.Join(folder, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "secret"), filepath.Join(folder, id, "link")); err != nil {
		t.Fatal(err)
	}
	s := dial(t, spec, readPurpose)
	ask := func(m message) message {
		t.Helper()
		m.Kind = read
		if err := send(s, m); err != nil {
			t.Fatal(err)
		}
		m, err := receive(s)
		if err != nil || m.Kind != bytesOf {
			t.Fatalf("%v, %v", m, err)
		}
		return m
	}
	for name, m := range map[string]message{
		"above":          {ID: id, File: &checkpoint.File{Name: "../secret"}, Length: 1},
		"of no folder":   {ID: "..", File: &checkpoint.File{Name: "secret"}, Length: 1},
		"of the folder":  {ID: ".", File: &checkpoint.File{Name: "secret"}, Length: 1},
		"a link":         {ID: id, File: &checkpoint.File{Name: "link"}, Length: 1},
		"absolute":       {ID: id, File: &checkpoint.File{Name: filepath.Join(folder, "secret")}, Length: 1},
		"nothing":        {ID: id, File: &checkpoint.File{}, Length: 1},
		"not there":      {ID: id, File: &checkpoint.File{Name: "ps-7.safetensors"}, Length: 1},
		"past the end":   {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Offset: 1 << 40, Length: 1},
		"over the end":   {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Offset: 1, Length: 10},
		"before":         {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Offset: -1, Length: 2},
		"less than none": {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Length: -1},
		"too much":       {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Length: maxRead + 1},
	} {
		if m := ask(m); m.Err == "" || m.Length != 0 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := ask(message{ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Offset: 2, Length: 8}); m.Err != "" || m.Length != 8 {
		t.Errorf("its own: %+v", m)
	}
	b := make([]byte, 8)
	if n, err := receiveChunk(s, 2, b); err != nil || string(b[:n]) != "23456789" {
		t.Errorf("%q, %v", b, err)
	}
}

// bring has worker:0 bring ps:0 a copy of one byte.
func bring(t *testing.T, spec cluster.Spec, m message, offset uint64) error {
	s := dial(t, spec, copyPurpose)
	defer s.Close()
	err := send(s, m)
	if err == nil {
		err = s.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk, Offset: offset}, Payload: []byte("x")})
	}
	if err != nil {
		return err
	}
	if m, err = receive(s); err == nil && m.Err != "" {
		err = errors.New(m.Err)
	}
	return err
}

// A task writes what is accepted, and only there.
func TestCopiesOutsideAreRefused(t *testing.T) {
	_, root, spec := serve(t, patience)
	before := tree(t, root)
	file := func(name string) *checkpoint.File { return &checkpoint.File{Name: name, Size: 1} }
	for name, test := range map[string]struct {
		m      message
		offset uint64
		want   string
	}{
		"another file":       {message{Kind: copied, ID: id, File: file("ps-0.safetensors")}, 0, "not accepted"},
		"a path":             {message{Kind: copied, ID: id, File: file("../worker-0.safetensors")}, 0, "not accepted"},
		"another checkpoint": {message{Kind: copied, ID: "..", File: file("worker-0.safetensors")}, 0, "not accepted"},
		"no size":            {message{Kind: copied, ID: id, File: &checkpoint.File{Name: "worker-0.safetensors", Size: -1}}, 0, "unexpected"},
		"no file":            {message{Kind: copied, ID: id}, 0, "unexpected"},
		"no copy":            {message{Kind: read, ID: id, File: file("worker-0.safetensors")}, 0, "unexpected"},
		"a chunk elsewhere":  {message{Kind: copied, ID: id, File: file("worker-0.safetensors")}, 1, "want a chunk from 0 on"},
	} {
		if err := bring(t, spec, test.m, test.offset); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if got := tree(t, root); !slices.Equal(got, before) {
		t.Errorf("%q, before %q", got, before)
	}
	if err := bring(t, spec, message{Kind: copied, ID: id, File: file("worker-0.safetensors")}, 0); err != nil {
		t.Errorf("its own: %v", err)
	}
}

// What a task has in the end must be what was sent.
func TestSame(t *testing.T) {
	file := checkpoint.File{Name: "a", Size: 3, Sum: "abc"}
	for name, test := range map[string]struct {
		m    message
		good bool
	}{
		"same":       {message{Kind: stored, File: &checkpoint.File{Size: 3, Sum: "abc"}}, true},
		"shorter":    {message{Kind: stored, File: &checkpoint.File{Size: 2, Sum: "abc"}}, false},
		"other":      {message{Kind: stored, File: &checkpoint.File{Size: 3, Sum: "abd"}}, false},
		"no file":    {message{Kind: stored}, false},
		"other kind": {message{Kind: bytesOf, File: &file}, false},
	} {
		if err := same(file, test.m); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Bytes of any kind on a connection for files end it, or are answered.
func FuzzFileFrames(f *testing.F) {
	frame := func(h wire.Header, payload string) string {
		b := make([]byte, 0, wire.HeaderSize+len(payload))
		near, far := net.Pipe()
		conn := wire.NewConn(near, 0, time.Hour)
		go func() {
			conn.Send(wire.Frame{Header: h, Payload: []byte(payload)}) // what came is seen
			conn.Close()
		}()
		for len(b) < cap(b) {
			n, err := far.Read(b[len(b):cap(b)])
			if err != nil {
				f.Fatal(err)
			}
			b = b[:len(b)+n]
		}
		return string(b)
	}
	said := func(kind, name string) string {
		return frame(wire.Header{Kind: wire.Message}, fmt.Sprintf(`{"kind":%q,"id":%q,"file":{"name":%q,"size":3},"length":3}`, kind, id, name))
	}
	f.Add(said("read", "ps-0.safetensors"))
	f.Add(said("copy", "worker-0.safetensors") + frame(wire.Header{Kind: wire.Chunk}, "abc"))
	f.Add(said("copy", "worker-0.safetensors") + frame(wire.Header{Kind: wire.Chunk, Offset: 1}, "abcd"))
	files, root, _ := serve(f, 50*time.Millisecond)
	f.Fuzz(func(t *testing.T, b string) {
		for _, serve := range []func(peers.Peer){files.serveReads, files.receiveCopy} {
			near, far := net.Pipe()
			go io.Copy(io.Discard, near) // what is answered is not the matter
			go func() {
				near.Write([]byte(b)) // until the other end has had enough
				near.Close()
			}()
			serve(peers.Peer{Task: worker0, Conn: far})
		}
		for _, path := range tree(t, root) {
			switch name := filepath.Base(path); {
			case path == root, name == "folder", name == id, name == "ps-0.safetensors", name == "worker-0.safetensors":
			default:
				t.Fatalf("wrote %s", path)
			}
		}
	})
}
