package cluster

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// opened is an open file with a text in it.
func opened(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A descriptor comes with its own message, whatever stands before and behind,
// and with one that does not fit into the socket's buffer at once.
func TestSocketComesWithItsMessage(t *testing.T) {
	agent, task := controls(t)
	task.most = maxBegin
	long := &Next{Environ: [][]byte{[]byte("A=" + strings.Repeat("\xff", 600<<10))}, Dir: []byte("/home/u")}
	sent := make(chan error, 1)
	go func() {
		sent <- errors.Join(
			agent.Send(ControlMessage{Kind: Regroup}),
			agent.SendSocket(ControlMessage{Kind: Begin, Next: long}, int(opened(t, "one").Fd())),
			agent.Send(ControlMessage{Kind: Stop}),
			agent.SendSocket(ControlMessage{Kind: Begin}, int(opened(t, "two").Fd())))
	}()
	for _, want := range []struct {
		kind ControlKind
		text string
	}{{Regroup, ""}, {Begin, "one"}, {Stop, ""}, {Begin, "two"}} {
		m, file, err := task.ReceiveSocket()
		if err != nil || m.Kind != want.kind || (file != nil) != (want.text != "") {
			t.Fatalf("got %s, %v, %v, want %+v", m.Kind, file, err, want)
		}
		if file == nil {
			continue
		}
		text, err := io.ReadAll(file)
		if err != nil || string(text) != want.text {
			t.Errorf("%q, %v, want %q", text, err, want.text)
		}
		if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_GETFD, 0); errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v: a child would inherit it", flags, errno)
		}
		file.Close()
		if m.Next != nil && (string(m.Next.Environ[0]) != string(long.Environ[0]) || string(m.Next.Dir) != "/home/u") {
			t.Error("the message is another")
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// What nobody asked for is closed, as are all but one of a message's.
func TestOtherDescriptorsAreClosed(t *testing.T) {
	agent, task := controls(t)
	before := descriptors(t)
	pipe := func() (r *os.File, fd int) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close() // the message carries a copy
		if err := agent.SendSocket(ControlMessage{Kind: Begin}, int(w.Fd())); err != nil {
			t.Fatal(err)
		}
		return r, int(w.Fd())
	}
	r, _ := pipe()
	if m, err := task.Receive(); err != nil || m.Kind != Begin {
		t.Fatalf("%+v, %v", m, err)
	}
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d, %v: somebody holds the other end", n, err)
	}
	r.Close()
	f := opened(t, "x")
	rights := syscall.UnixRights(int(f.Fd()), int(f.Fd()), int(f.Fd()))
	if err := agent.send(ControlMessage{Kind: Begin}, rights); err != nil {
		t.Fatal(err)
	}
	_, file, err := task.ReceiveSocket()
	if err != nil || file == nil {
		t.Fatalf("%v, %v", file, err)
	}
	file.Close()
	f.Close()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// A descriptor that comes with nonsense is closed with it.
func TestDescriptorOfNoMessage(t *testing.T) {
	agent, task := controls(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, err := agent.conn.(*net.UnixConn).WriteMsgUnix([]byte{9, 0, 0, 0, 'n', 'o', ' ', 'm'}, syscall.UnixRights(int(w.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	w.Close()
	agent.Close()
	if m, file, err := task.ReceiveSocket(); err == nil || file != nil {
		t.Errorf("%+v, %v, %v", m, file, err)
	}
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d, %v: somebody holds the other end", n, err)
	}
}
