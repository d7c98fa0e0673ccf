package depot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

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
	j, _, _, root := trained(t, patience)
	id := filepath.Base(filepath.Dir(files(t, root, "000000000001-*/manifest.json")[0]))
	if err := os.WriteFile(filepath.Join(root, "a", "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "a", "secret"), filepath.Join(root, "a", id, "link")); err != nil {
		t.Fatal(err)
	}
	conn := j.dial(worker(0), ps(0), readPurpose)
	say := func(m message) message {
		t.Helper()
		m.Kind = read
		if err := sendMessage(conn, m); err != nil {
			t.Fatal(err)
		}
		m, err := receiveMessage(conn, maxSmall)
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
		"absolute":       {ID: id, File: &checkpoint.File{Name: filepath.Join(root, "a", "secret")}, Length: 1},
		"nothing":        {ID: id, File: &checkpoint.File{}, Length: 1},
		"not there":      {ID: id, File: &checkpoint.File{Name: "ps-7.safetensors"}, Length: 1},
		"past the end":   {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Offset: 1 << 40, Length: 1},
		"over the end":   {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Offset: 1, Length: 10 << 20},
		"before":         {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Offset: -1, Length: 2},
		"less than none": {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Length: -1},
		"too much":       {ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Length: maxRead + 1},
	} {
		if m := say(m); m.Err == "" || m.Length != 0 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := say(message{ID: id, File: &checkpoint.File{Name: "ps-0.safetensors"}, Length: 8}); m.Err != "" || m.Length != 8 {
		t.Errorf("its own: %+v", m)
	}
	b := make([]byte, 8)
	if n, err := receiveChunk(conn, 0, b); err != nil || n != 8 {
		t.Errorf("%d, %v", n, err)
	}
	j.end()
}

// A task writes its own file, and only while it is to.
func TestCopiesOutsideAreRefused(t *testing.T) {
	j, w, d, root := trained(t, patience)
	j.expect(w, 2, d)
	eventually(t, "the save has begun", func() bool { return strings.HasPrefix(j.depots[ps(0)].busy(), "000000000002") })
	id := j.depots[ps(0)].busy()
	before := tree(t, root)
	file := func(name string) *checkpoint.File { return &checkpoint.File{Name: name, Size: 1} }
	for name, m := range map[string]message{
		"another task's": {Kind: copied, ID: id, File: file("worker-0.safetensors")},
		"a path":         {Kind: copied, ID: id, File: file("../worker-1.safetensors")},
		"the manifest":   {Kind: copied, ID: id, File: file("manifest.json")},
		"no size":        {Kind: copied, ID: id, File: &checkpoint.File{Name: "worker-1.safetensors", Size: -1}},
		"no file":        {Kind: copied, ID: id},
		"no copy":        {Kind: read, ID: id, File: file("worker-1.safetensors")},
	} {
		if err := j.bring(m); err == nil || !strings.Contains(err.Error(), "or of a file that is not worker:1's") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := tree(t, root); !slices.Equal(got, before) {
		t.Errorf("%q, before %q", got, before)
	}
	if err := j.bring(message{Kind: copied, ID: id, File: file("worker-1.safetensors")}); err != nil {
		t.Errorf("its own: %v", err)
	}
	j.kill()
}

// bring has worker:1 bring ps:0 a copy of one byte.
func (j *testJob) bring(m message) error {
	j.t.Helper()
	conn := j.dial(worker(1), ps(0), copyPurpose)
	defer conn.Close()
	err := sendMessage(conn, m)
	if err == nil {
		err = conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk}, Payload: []byte("x")})
	}
	if err != nil {
		return err
	}
	m, err = receiveMessage(conn, maxSmall)
	if err == nil && m.Err != "" {
		err = errors.New(m.Err)
	}
	return err
}

func TestCopiesForOtherSavesAreRefused(t *testing.T) {
	j, _, _, root := trained(t, impatience)
	eventually(t, "the save is over", func() bool { return j.depots[ps(0)].busy() == "" })
	before := tree(t, root)
	for _, id := range []string{checkpoint.NewID(2, 0), "..", filepath.Base(filepath.Dir(files(t, root, "*/manifest.json")[0]))} {
		err := j.bring(message{Kind: copied, ID: id, File: &checkpoint.File{Name: "worker-1.safetensors", Size: 1}})
		if err == nil || !strings.Contains(err.Error(), "is not being saved here") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if got := tree(t, root); !slices.Equal(got, before) {
		t.Errorf("%q, before %q", got, before)
	}
	j.end()
}

// What a buddy has in the end must be what was sent.
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

// A report counts for the task that it comes from, once, and for this save.
func TestReportsAreChecked(t *testing.T) {
	buddy := worker(2)
	file := func(task, name string) *checkpoint.File { return &checkpoint.File{Task: task, Name: name} }
	for name, test := range map[string]struct {
		r    report
		want string // "": good
	}{
		"good":           {report{File: file("ps:0", "ps-0.safetensors"), Copy: true}, ""},
		"nothing":        {report{}, ""},
		"failed":         {report{Err: "no space"}, "ps:0 on there: no space"},
		"another's file": {report{File: file("ps:0", "ps-1.safetensors"), Copy: true}, "want \"ps-0"},
		"another's name": {report{File: file("ps:1", "ps-0.safetensors"), Copy: true}, "want \"ps-0"},
		"no copy":        {report{File: file("ps:0", "ps-0.safetensors")}, "second copy false"},
	} {
		c := &chief{config: Config{Host: func(cluster.Task) string { return "there" }}}
		s := c.newSave(Expected{Owners: []cluster.Task{ps(0)}})
		s.buddies[ps(0)] = &buddy
		c.take(s, &member{task: worker(1)}, &report{Err: "not asked"})
		c.take(s, &member{task: ps(0)}, &report{State: true, Err: "not asked"})
		if s.complete() {
			t.Fatalf("%s: complete before", name)
		}
		c.take(s, &member{task: ps(0)}, &test.r)
		c.take(s, &member{task: ps(0)}, &report{Err: "again"})
		if !s.complete() || (s.err == nil) != (test.want == "") || s.err != nil && !strings.Contains(s.err.Error(), test.want) {
			t.Errorf("%s: %t, %v", name, s.complete(), s.err)
		}
	}
}

// Names of variables never collide with what lies beside others.
func TestNamesOfTensorsAreFree(t *testing.T) {
	w := newTwin(rand.New(rand.NewPCG(1, 1)), optimizer.Adam)
	d := w.declare(rand.New(rand.NewPCG(1, 1)), []cluster.Task{ps(0)}, "")
	for i, name := range []string{"x", "x/slot.0", "__metadata__", "x/slot.0/slot.1", "x/rows", "x", "x/rows~"} {
		d.Variables[i].Name = name
	}
	c := content{names: map[string]bool{"__metadata__": true}}
	for i := range d.Variables {
		c.add(d.Variables[i], w.kept(w.whole(i)), "ps-0.safetensors")
	}
	seen := map[string]bool{"__metadata__": true}
	for _, tensor := range c.tensors {
		if seen[tensor.Name] {
			t.Errorf("%q twice", tensor.Name)
		}
		seen[tensor.Name] = true
	}
	if c.parts[0].Tensor != "x" {
		t.Errorf("the first is called %q", c.parts[0].Tensor)
	}
}

func FuzzMessage(f *testing.F) {
	buddy := worker(3)
	for _, m := range []message{
		{Kind: hello, Token: "t", Holding: []announced{{ID: "x", Manifest: "y", Files: map[string]int64{"a": 1}}}},
		{Kind: chosen, Body: []byte("{}"), Holders: map[string][]cluster.Task{"a": {ps(0)}}},
		{Kind: begin, ID: "i", Step: 3, Wanted: &wanted{Pieces: true, Buddy: &buddy}},
		{Kind: reported, Report: &report{File: &checkpoint.File{Name: "n"}, Parts: []checkpoint.Part{{Rows: -1}}}},
	} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{255, 255, 255, 255, '{'})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := back.encode()
		if err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("%+v came back as %+v: %v", m, back, err)
		}
	})
}

// lone is the depot of a job of one task that has a save under way.
func lone(t testing.TB, dir string, silence time.Duration) *Depot {
	t.Helper()
	d, err := Open(t.Context(), Config{Peers: peers.Config{Self: cluster.Chief}, Dir: dir, Silence: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Whatever one side says, the other neither breaks nor leaves its folder.
func FuzzConversation(f *testing.F) {
	add := func(all ...message) {
		var b []byte
		for _, m := range all {
			one, err := m.encode()
			if err != nil {
				f.Fatal(err)
			}
			b = append(append(b, byte(len(one)), byte(len(one)>>8)), one...)
		}
		f.Add(b)
	}
	id := "000000000002-g0-00000001"
	add(message{Kind: begin, ID: id, Step: 2, Wanted: &wanted{Pieces: true, State: true}}, message{Kind: abandon, ID: id, Remove: true})
	add(message{Kind: look, Tokens: []string{"a", "../b"}}, message{Kind: verify, ID: id, File: &checkpoint.File{Name: "../x"}})
	add(message{Kind: fetch, ID: ".."}, message{Kind: retain, Keep: -4}, message{Kind: commit, ID: id, Body: []byte("x")}, message{Kind: bye})
	add(message{Kind: chosen, Body: []byte("x")}, message{Kind: chosen})
	add(message{Kind: reported}, message{Kind: reported, ID: id, Report: &report{}}, message{Kind: answer, Number: 7}, message{Kind: leave}, message{Kind: restored})
	root := f.TempDir()
	secret := filepath.Join(root, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := lone(t, filepath.Join(root, "depot"), patience)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stranger := &member{task: worker(1), out: newMailbox(), gone: newTurn(), questions: map[uint64]chan message{}}
		for len(b) > 2 {
			n := min(int(b[0])|int(b[1])<<8, len(b)-2)
			m, err := decode(b[2 : 2+n])
			b = b[2+n:]
			if err == nil {
				d.hear(ctx, m) // an error ends a conversation, here it goes on
				d.chief.hear(stranger, m)
			}
		}
		cancel()
		d.Close()
		if all, err := filepath.Glob(filepath.Join(root, "*")); err != nil || !reflect.DeepEqual(all, []string{filepath.Join(root, "depot"), secret}) {
			t.Fatalf("%q, %v", all, err)
		}
	})
}

// Bytes of any kind on a connection for files end it, or are answered.
func FuzzFileFrames(f *testing.F) {
	frame := func(k wire.Kind, offset byte, payload []byte) []byte {
		near, far := net.Pipe()
		conn := wire.NewConn(near, 0, time.Hour)
		go func() {
			conn.Send(wire.Frame{Header: wire.Header{Kind: k, Offset: uint64(offset)}, Payload: payload}) // what came is seen
			conn.Close()
		}()
		b := make([]byte, wire.HeaderSize+len(payload))
		if _, err := far.Read(b[:wire.HeaderSize]); err != nil {
			f.Fatal(err)
		}
		for at := wire.HeaderSize; at < len(b); {
			n, err := far.Read(b[at:])
			if err != nil {
				f.Fatal(err)
			}
			at += n
		}
		return b
	}
	said := func(m message) []byte {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	id := "000000000002-g0-00000001"
	f.Add(frame(wire.Message, 0, said(message{Kind: read, ID: id, File: &checkpoint.File{Name: "x"}, Length: 3})))
	f.Add(append(frame(wire.Message, 0, said(message{Kind: copied, ID: id, File: &checkpoint.File{Name: "worker-0.safetensors", Size: 3}})),
		frame(wire.Chunk, 0, []byte("abc"))...))
	f.Add(append(frame(wire.Message, 0, said(message{Kind: copied, ID: id, File: &checkpoint.File{Name: "worker-0.safetensors", Size: 3}})),
		frame(wire.Chunk, 1, []byte("abcd"))...))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		d := lone(t, filepath.Join(root, "depot"), 50*time.Millisecond) // for saves that are not under way
		defer d.Close()
		if err := d.begin(t.Context(), message{ID: id, Wanted: &wanted{}}); err != nil {
			t.Fatal(err)
		}
		for _, serve := range []func(peers.Peer){d.serveReads, d.receiveCopy} {
			near, far := net.Pipe()
			go io.Copy(io.Discard, near) // what is answered is not the matter
			go func() {
				near.Write(b) // until the other end has had enough
				near.Close()
			}()
			serve(peers.Peer{Task: cluster.Chief, Conn: far})
		}
		if all, err := filepath.Glob(filepath.Join(root, "*")); err != nil || len(all) != 1 {
			t.Fatalf("%q, %v", all, err)
		}
		all, err := os.ReadDir(filepath.Join(root, "depot"))
		for _, e := range all {
			if e.Name() != id {
				err = errors.Join(err, errors.New(e.Name()))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
