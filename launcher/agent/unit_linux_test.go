package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestShare(t *testing.T) {
	cores := []int{0, 1, 2, 3, 8, 9, 10}
	for _, test := range []struct {
		cores []int
		i, n  int
		want  []int
	}{
		{cores, 0, 1, cores}, {cores, 0, 2, []int{0, 1, 2}}, {cores, 1, 2, []int{3, 8, 9, 10}},
		{cores, 6, 7, []int{10}}, {cores[:2], 0, 5, []int{0}}, {cores[:2], 3, 5, []int{1}},
		{nil, 0, 1, nil}, {cores, 2, 2, nil},
	} {
		if got := share(test.cores, test.i, test.n); !slices.Equal(got, test.want) {
			t.Errorf("share(%v, %d, %d) = %v, want %v", test.cores, test.i, test.n, got, test.want)
		}
	}
	for n := 1; n <= len(cores); n++ { // disjoint and complete
		var all []int
		for i := range n {
			all = append(all, share(cores, i, n)...)
		}
		if !slices.Equal(all, cores) {
			t.Errorf("%d workers share %v as %v", n, cores, all)
		}
	}
}

func TestLease(t *testing.T) {
	for _, test := range []struct {
		length, grace, age time.Duration
		over               bool
		left               time.Duration
	}{
		{30 * time.Second, 10 * time.Second, 19 * time.Second, false, 0},
		{30 * time.Second, 10 * time.Second, 20 * time.Second, true, 8 * time.Second},
		{30 * time.Second, time.Minute, 15 * time.Second, true, 13 * time.Second}, // grace is at most half
		{30 * time.Second, 0, 27 * time.Second, false, 0},
		{30 * time.Second, 0, 28 * time.Second, true, 0},
		{30 * time.Second, 10 * time.Second, time.Hour, true, 0}, // the machine was suspended
		{0, time.Second, time.Hour, false, 0},
	} {
		now := time.Duration(1234)
		l := newLease(test.length, test.grace, func() time.Duration { return now })
		now += test.age
		if left, over := l.left(); left != test.left || over != test.over {
			t.Errorf("%+v: %s, %v", test, left, over)
		}
		l.renew("", 0)
		if _, over := l.left(); over {
			t.Errorf("%+v: over after it was renewed", test)
		}
	}
}

func TestParseStat(t *testing.T) {
	tail := " 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 %s 0 99 12345 7"
	for name, test := range map[string]struct {
		text string
		want process
		bad  bool
	}{
		"plain":           {"7 (sh) S" + fmt.Sprintf(tail, "1"), process{7, 1, 3, 99, false}, false},
		"name with )":     {"7 (a) Z 5 (b)) S" + fmt.Sprintf(tail, "1"), process{7, 1, 3, 99, false}, false},
		"zombie":          {"7 (sh) Z" + fmt.Sprintf(tail, "1"), process{7, 1, 3, 99, true}, false},
		"thread lives on": {"7 (sh) Z" + fmt.Sprintf(tail, "3"), process{7, 1, 3, 99, false}, false},
		"short":           {"7 (sh) S 1 2", process{}, true},
		"empty":           {"", process{}, true},
		"no number":       {"7 (sh) S x 2 3 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 99 1", process{}, true},
	} {
		if got, err := parseStat(7, []byte(test.text)); got != test.want || (err != nil) != test.bad {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	own, err := readProcess(os.Getpid())
	if err != nil || own.parent != os.Getppid() || own.start == 0 || own.zombie {
		t.Errorf("this process: %+v, %v", own, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sh) S 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 12345"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parseStat(1, text); err != nil && p != (process{}) {
			t.Errorf("%+v with %v", p, err)
		}
	})
}

func TestDescendants(t *testing.T) {
	list := []process{{pid: 1}, {pid: 10, parent: 1}, {pid: 11, parent: 10}, {pid: 12, parent: 11},
		{pid: 20, parent: 1}, {pid: 21, parent: 20}, {pid: 30, parent: 31}, {pid: 31, parent: 30}}
	got := pids(descendants(list, 10, func(p process) bool { return p.parent == 10 }))
	if slices.Sort(got); !slices.Equal(got, []int{11, 12}) {
		t.Errorf("below 10: %v", got)
	}
	got = pids(descendants(list, 11, func(p process) bool { return p.pid == 20 || p.pid == 30 }))
	if slices.Sort(got); !slices.Equal(got, []int{20, 21, 30, 31}) {
		t.Errorf("roots 20 and 30: %v", got)
	}
}

func pids(list []process) []int {
	var out []int
	for _, p := range list {
		out = append(out, p.pid)
	}
	return out
}

func TestEnvironmentOrder(t *testing.T) {
	login := []string{"PATH=/bin", "A=login", "SSH_CLIENT=x", "PLX_X=x", "A=again", "_=/usr/bin/env"}
	spec := protocol.Spec{Folder: "f", Env: []protocol.Raw{"A=user", "RANK=user", "PATH=/user", "PLX_BLAS=gonum", "PLX_RANK=9"}, Command: protocol.Command{Path: "/first"}}
	c := cluster.Contract{Job: "j", Task: cluster.Task{Role: cluster.PS}}
	env := taskEnviron(login, spec, c, "/work")
	for name, want := range map[string]string{"A": "user", "PATH": "/first:/user", "RANK": "user", "PWD": "/work",
		"PLX_BLAS": "gonum", "PLX_JOB": "j", "PLX_HOST_FOLDER": "f"} {
		if got, _ := lookup(env, name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"SSH_CLIENT", "PLX_X", "_", "PLX_RANK"} {
		if _, ok := lookup(env, name); ok {
			t.Errorf("%s has come through", name)
		}
	}
	if env := taskEnviron(nil, protocol.Spec{}, c, "/"); !slices.Contains(env, "PATH="+defaultPath) {
		t.Error("no PATH where the login gives none")
	}
}

// fullDisk takes room bytes and then none, until it is emptied.
type fullDisk struct {
	buf  bytes.Buffer
	room int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.buf.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func (d *fullDisk) Close() error { return nil }

func TestFullDiskCostsBytesNotTheTask(t *testing.T) {
	disk := &fullDisk{room: 4}
	var mu sync.Mutex
	var told []string
	o, fd, err := newOutput("worker:0 stdout", disk, func(s string) { mu.Lock(); defer mu.Unlock(); told = append(told, s) })
	if err != nil {
		t.Fatal(err)
	}
	o.keep([]byte("abcdef")) // as run calls it
	o.keep([]byte("ghi"))
	disk.room = 1000
	o.keep([]byte("jkl"))
	task := os.NewFile(uintptr(fd), "task")
	go o.run()
	if _, err := task.WriteString("mno"); err != nil {
		t.Error(err)
	}
	task.Close()
	<-o.done
	if err := o.close(time.Now()); err != nil {
		t.Error(err)
	}
	if got, want := disk.buf.String(), "abcd\nplx: 5 bytes are missing here: the disk was full\njklmno"; got != want {
		t.Errorf("spool %q, want %q", got, want)
	}
	if len(told) != 2 || !strings.Contains(told[0], "no space") || !strings.Contains(told[1], "5 bytes") {
		t.Errorf("told %q", told)
	}
	if got := o.lastLines(); got != "abcdefghijklmno" {
		t.Errorf("tail %q", got)
	}
}

// TestATurnWaitsForNobodyWhoIsTold has a stream that loses bytes turned to
// another spool while it tells of that: the supervisor, which turns it, does not
// listen meanwhile.
func TestATurnWaitsForNobodyWhoIsTold(t *testing.T) {
	telling, listen := make(chan string, 3), make(chan struct{})
	o, fd, err := newOutput("worker:0 stdout", &fullDisk{room: 4}, func(s string) { telling <- s; <-listen })
	if err != nil {
		t.Fatal(err)
	}
	task := os.NewFile(uintptr(fd), "task")
	go o.run()
	if _, err := task.WriteString("abcdef"); err != nil {
		t.Fatal(err)
	}
	if got := <-telling; !strings.Contains(got, "no space") {
		t.Errorf("told %q", got)
	}
	turned := make(chan error)
	go func() {
		before, err := o.turn("worker:1 stdout", func() (io.WriteCloser, error) { return &fullDisk{room: 100}, nil })
		if err != nil {
			t.Error(err)
		}
		turned <- before
	}()
	select {
	case before := <-turned:
		if before == nil || before.Error() != "worker:0 stdout: 2 bytes of output were lost" {
			t.Errorf("of the spool before: %v", before)
		}
	case <-time.After(10 * time.Second):
		t.Error("the turn waits for who is told")
	}
	close(listen)
	task.Close()
	<-o.done
	if err := o.close(time.Now()); err != nil || len(telling) > 0 {
		t.Errorf("%v, and it told %d times more", err, len(telling))
	}
}

func TestCloseEndsAReadThatGoesOn(t *testing.T) {
	o, fd, err := newOutput("worker:0 stdout", &fullDisk{room: 100}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	task := os.NewFile(uintptr(fd), "task") // still open for writing
	defer task.Close()
	go o.run()
	if err := o.close(time.Now()); err != nil {
		t.Error(err)
	}
}

func TestStrangersKeepNobodyOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	g := &gate{key: cluster.PeerKey(make([]byte, cluster.SecretSize), 0), self: "agent:0", limit: 3}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	results := make(chan error, 16)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { results <- g.prove(ctx, conn); conn.Close() })
		}
	}()
	for range 6 { // they say nothing
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for range 3 {
		if err := <-results; err == nil {
			t.Error("a stranger was let in")
		}
	}
	conn, err := dialPeer(ctx, g.key, "agent:1", protocol.Peer{Index: 0, Addr: ln.Addr().String()})
	if err != nil {
		t.Fatalf("kept out: %v", err)
	}
	conn.Close()
}

func TestAlarmOnlyMovesForward(t *testing.T) {
	rang := make(chan string, 2)
	var a alarm
	a.set(time.Hour, func() { rang <- "first" })
	a.set(2*time.Hour, func() { rang <- "later" })
	a.set(time.Millisecond, func() { rang <- "sooner" })
	if got := <-rang; got != "sooner" {
		t.Errorf("rang %s", got)
	}
	a.stop()
}

func TestStatesOfOtherMachines(t *testing.T) {
	own, _ := readProcess(os.Getpid())
	here := protocol.State{Phase: protocol.Running, Machine: machine(), Supervisor: own.pid, SupervisorStart: own.start}
	name, rest, _ := strings.Cut(machine(), " ")
	for what, test := range map[string]struct {
		edit func(*protocol.State)
		want life
	}{
		"here":           {func(*protocol.State) {}, living},
		"pid used again": {func(s *protocol.State) { s.SupervisorStart++ }, dead},
		"shared home":    {func(s *protocol.State) { s.Machine = "other " + rest }, unknown},
		"over, shared":   {func(s *protocol.State) { s.Machine = "other " + rest; s.Phase = protocol.Over }, dead},
		"restarted":      {func(s *protocol.State) { s.Machine = name + " 1234 pid:[1]" }, dead},
	} {
		s := here
		test.edit(&s)
		if got := alive(s); got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
}

// Right after a network was mended a peer may still count as unreachable.
func TestReachAsksAgain(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH}
	for _, c := range []struct {
		errs []error
		want error
		asks int
	}{
		{[]error{nil}, nil, 1},
		{[]error{refused, refused, nil}, nil, 3},
		{[]error{refused, unix.ECONNREFUSED, nil}, unix.ECONNREFUSED, 2},
		{[]error{context.DeadlineExceeded, nil}, context.DeadlineExceeded, 1},
	} {
		asked := 0
		err := reach(func(context.Context) (net.Conn, error) {
			asked++
			ours, theirs := net.Pipe()
			theirs.Close()
			return ours, c.errs[asked-1]
		})
		if !errors.Is(err, c.want) || asked != c.asks {
			t.Errorf("%v: %v after %d, want %v after %d", c.errs, err, asked, c.want, c.asks)
		}
	}
}
