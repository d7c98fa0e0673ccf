package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	id = "000000000002-g0-00000001"
)

var (
	ps0     = cluster.Task{Role: cluster.PS}
	worker0 = cluster.Task{Role: cluster.Worker}
)

func config(self cluster.Task) peers.Config {
	return peers.Config{Self: self, Key: cluster.PeerKey([]byte("secret"), 0), Workers: 1, Servers: 1}
}

// serve returns the Files of ps:0, with one file of one checkpoint in its
// folder.
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
	f = New(Config{Peers: config(ps0), Cluster: spec, Folder: folder, Silence: silence,
		Name: cluster.Task.String, Hook: func(string) error { return nil }}, life)
	f.Serve(listener)
	t.Cleanup(func() {
		life.End()
		listener.Close()
	})
	return f, root, spec
}

// dial connects worker:0 to ps:0.
func dial(t testing.TB, spec cluster.Spec, purpose string) *peers.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	s, err := peers.Open(ctx, config(worker0), ps0, spec.Addr(ps0), purpose, patience.Limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// tree lists all files below the folder root.
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

// Other tasks can read files of checkpoints and no other files.
func TestReadsOutsideCheckpointsAreRefused(t *testing.T) {
	_, root, spec := serve(t, patience.Limit)
	folder := filepath.Join(root, "folder")
	if err := os.WriteFile(filepath.Join(folder, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "secret"), filepath.Join(folder, id, "link")); err != nil {
		t.Fatal(err)
	}
	s := dial(t, spec, purpose)
	ask := func(q request) (answer request) {
		t.Helper()
		err := s.SendJSON(wire.Message, q, maxMessage)
		if err == nil {
			err = s.NextJSON(wire.Message, &answer, maxMessage)
		}
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for name, q := range map[string]request{
		"above":          {ID: id, File: "../secret", Length: 1},
		"of no folder":   {ID: "..", File: "secret", Length: 1},
		"of the folder":  {ID: ".", File: "secret", Length: 1},
		"a link":         {ID: id, File: "link", Length: 1},
		"absolute":       {ID: id, File: filepath.Join(folder, "secret"), Length: 1},
		"nothing":        {ID: id, Length: 1},
		"not there":      {ID: id, File: "ps-7.safetensors", Length: 1},
		"past the end":   {ID: id, File: "ps-0.safetensors", Offset: 1 << 40, Length: 1},
		"over the end":   {ID: id, File: "ps-0.safetensors", Offset: 1, Length: 10},
		"before":         {ID: id, File: "ps-0.safetensors", Offset: -1, Length: 2},
		"less than none": {ID: id, File: "ps-0.safetensors", Length: -1},
		"too much":       {ID: id, File: "ps-0.safetensors", Length: math.MaxInt64},
		"all of it":      {ID: id, File: "ps-0.safetensors", Offset: math.MaxInt64, Length: math.MaxInt64},
	} {
		if answer := ask(q); answer.Err == "" || answer.Length != 0 {
			t.Errorf("%s: %+v", name, answer)
		}
	}
	if answer := ask(request{ID: id, File: "ps-0.safetensors", Offset: 2, Length: 8}); answer.Err != "" || answer.Length != 8 {
		t.Errorf("its own: %+v", answer)
	}
	b := make([]byte, 8)
	if h, err := s.Next(); err != nil || h.Kind != wire.Chunk || h.Offset != 2 || h.Length != 8 || s.Payload(b) != nil || string(b) != "23456789" {
		t.Errorf("%v, %q, %v", h, b, err)
	}
}

// Fetch writes the whole file unchanged, or returns an error.
func TestFetchReturnsWholeFileOrError(t *testing.T) {
	f, _, _ := serve(t, patience.Limit)
	var b bytes.Buffer
	whole := checkpoint.File{Name: "ps-0.safetensors", Size: 10}
	if err := f.Fetch(t.Context(), id, whole, ps0, &b); err != nil || b.String() != "0123456789" {
		t.Errorf("%q, %v", b.String(), err)
	}
	for name, file := range map[string]checkpoint.File{
		"too long": {Name: "ps-0.safetensors", Size: 11}, "none": {Name: "ps-1.safetensors", Size: 1}, "a path": {Name: "../ps-0.safetensors", Size: 1},
	} {
		if err := f.Fetch(t.Context(), id, file, ps0, io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := f.Fetch(ctx, id, whole, ps0, io.Discard); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

// A response that does not match its request is an error.
func TestInvalidResponsesAreRefused(t *testing.T) {
	chunk := func(offset uint64, payload string) wire.Frame {
		return wire.Frame{Header: wire.Header{Kind: wire.Chunk, Offset: offset}, Payload: []byte(payload)}
	}
	said := func(text string) wire.Frame {
		return wire.Frame{Header: wire.Header{Kind: wire.Message}, Payload: []byte(text)}
	}
	for want, frames := range map[string][]wire.Frame{
		"want a chunk from 0 on": {said(`{"length":3}`), chunk(1, "abc")},
		"want a chunk from 2 on": {said(`{"length":3}`), chunk(0, "ab"), chunk(2, "cd")},
		"an answer of 4 bytes":   {said(`{"length":4}`), chunk(0, "abcd")},
		"no room":                {said(`{"error":"no room"}`)},
		"unexpected":             {chunk(0, "abc")},
	} {
		near, far := net.Pipe()
		go func() {
			conn := wire.NewConn(near, 0, patience.Limit)
			conn.Send(frames...) // what came is seen
			conn.Close()
		}()
		go io.Copy(io.Discard, near) // the request
		s := peers.NewSession(peers.Peer{Task: ps0, Conn: far}, 0, patience.Limit)
		w := newWatch(s, patience.Limit)
		if err := ask(s, w, request{Length: 3}, make([]byte, 3)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		w.stop()
		s.Close()
	}
}

// Arbitrary bytes on a connection for files are answered or end it, and write
// no files.
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
	said := func(name string) string {
		return frame(wire.Header{Kind: wire.Message}, fmt.Sprintf(`{"id":%q,"file":%q,"length":3}`, id, name))
	}
	f.Add(said("ps-0.safetensors"))
	f.Add(said("worker-0.safetensors") + frame(wire.Header{Kind: wire.Chunk}, "abc"))
	f.Add(said("../ps-0.safetensors") + said("ps-0.safetensors"))
	files, root, _ := serve(f, 50*time.Millisecond)
	f.Fuzz(func(t *testing.T, b string) {
		near, far := net.Pipe()
		go io.Copy(io.Discard, near) // discard the answers
		go func() {
			near.Write([]byte(b)) // until the server closes the connection
			near.Close()
		}()
		files.serve(peers.Peer{Task: worker0, Conn: far})
		for _, path := range tree(t, root) {
			switch name := filepath.Base(path); {
			case path == root, name == "folder", name == id, name == "ps-0.safetensors":
			default:
				t.Fatalf("wrote %s", path)
			}
		}
	})
}
