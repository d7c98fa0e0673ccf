package peers

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// proofTime is the time limit of a proof in package cluster.
const proofTime = 10 * time.Second

func TestNoticesLogOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var want []string
		s := &notices{config: Config{Logf: j.logf}, one: "1 %s", many: "%d %s"}
		knock := func(n int) {
			for i := range n {
				s.note(fmt.Sprint("10.77.1.", i+1))
			}
		}
		check := func(more ...string) {
			t.Helper()
			synctest.Wait()
			want = append(want, more...)
			if got := j.at(0); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		knock(38)
		check("1 10.77.1.1")
		time.Sleep(noticeEvery - time.Millisecond)
		check()
		time.Sleep(time.Millisecond)
		check("37 10.77.1.38")
		time.Sleep(time.Hour) // no event happens in this hour
		check()
		knock(2)
		check("1 10.77.1.1")
		s.end()
		knock(2)
		time.Sleep(time.Hour)
		check()
	})
}

func TestUnprovedReturnsReadableText(t *testing.T) {
	for _, err := range []error{
		cluster.ErrProof, io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, net.ErrClosed,
		&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
		&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
	} {
		if text := unproved(err); !strings.Contains(text, "prove the job's secret") && !strings.Contains(text, "proved the job's secret") ||
			strings.Contains(text, "tcp") || strings.Contains(text, "EOF") {
			t.Errorf("%v: %q", err, text)
		}
	}
}

func TestUnauthenticatedConnectionsAreLoggedOnce(t *testing.T) {
	l, addr, journal := open(t)
	l.Handle("owner", echo)
	for i := range 20 {
		conn := dialPlain(t, addr)
		conn.Write([]byte([]string{
			"GET / HTTP/1.1\r\nHost: nobody.example\r\n\r\n",
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\xff", 600),
			"plx-peer-1\n\x00\x00" + strings.Repeat("n", 96), // a message with two empty names
			"plx-peer-1\n\xff" + strings.Repeat("/", 700),
		}[i%4])) // an error does not matter: the listener may close the connection during the write
		hungUpAfterAll(t, conn)
	}
	wantServed(t, dial(t, configOf(worker(0)), addr, "owner"), worker(0))
	if got := journal.at(slog.LevelDebug); len(got) != 20 {
		t.Errorf("%d refusals, want 20: %q", len(got), got)
	}
	if got := journal.at(slog.LevelInfo); len(got) != 1 || len(journal.at(slog.LevelWarn)) != 0 ||
		got[0] != "refused a connection that did not prove the job's secret, from 127.0.0.1" {
		t.Errorf("told %q and %q", got, journal.at(slog.LevelWarn))
	}
}

// A task may close a connection during its proof, for example when a save has
// failed on another task. That is no attack and must not be logged at level
// Info.
func TestTaskThatGivesUpItsProofIsNotLogged(t *testing.T) {
	_, addr, journal := open(t)
	hello := "plx-peer-1\n\x0eworker:1/owner\x0aps:0/owner" + strings.Repeat("c", 32)
	for said := range len(hello) + 1 {
		conn := dialPlain(t, addr)
		conn.Write([]byte(hello[:said]))
		if said == len(hello) { // all is sent, so read the acceptor's nonce before closing
			if _, err := io.ReadFull(conn, make([]byte, 32)); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close()
	}
	eventually(t, "all are over", func() bool { return len(journal.at(slog.LevelDebug)) > len(hello) })
	if got := journal.at(slog.LevelInfo); len(got) != 0 {
		t.Errorf("told %q", got)
	}
}

// hungUpAfterAll reads the acceptor's nonce, if it sends one, and fails the
// test unless the acceptor then closes the connection.
func hungUpAfterAll(t *testing.T, conn net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, conn)
	if n > 32 || err != nil && strings.Contains(err.Error(), "timeout") {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	conn.Close()
}

// More silent connections than the limit must not keep a task out for long.
// Its Dial retries if its connection was closed.
func TestSilentConnectionsDoNotBlockATask(t *testing.T) {
	l, addr, _ := open(t)
	l.Handle("owner", echo)
	for range 600 {
		if conn, err := net.Dial("tcp", addr); err == nil { // an error means that the listener has refused the connection
			defer conn.Close()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), proofTime/2)
	defer cancel()
	conn, err := Dial(ctx, configOf(worker(0)), ps0, addr, "owner")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wantServed(t, conn, worker(0))
}

func TestSlowProofTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, said := range []string{"", "plx-peer-1\n", "plx-peer-1\n\x0eworker:1/owner\x0aps:0/owner"} {
			here, there := net.Pipe()
			var saying sync.WaitGroup
			saying.Go(func() {
				for b := range []byte(said) {
					time.Sleep(time.Second / 2)
					if _, err := there.Write([]byte{said[b]}); err != nil {
						return
					}
				}
			})
			began := time.Now()
			_, _, err := configOf(ps0).gate().Accept(t.Context(), here)
			if took := time.Since(began); err == nil || took != proofTime {
				t.Errorf("%q: %v after %v", said, err, took)
			}
			here.Close()
			there.Close()
			saying.Wait()
		}
	})
}

// FuzzProve sends arbitrary bytes as a dialler without the secret, which must
// never be accepted.
func FuzzProve(f *testing.F) {
	f.Add([]byte("plx-peer-1\n\x0eworker:1/owner\x0aps:0/owner" + strings.Repeat("c", 64)))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: nobody.example\r\n\r\n"))
	f.Add([]byte("plx-peer-1\n\xff" + strings.Repeat("/", 255)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, stream []byte) {
		here, there := net.Pipe()
		done := make(chan bool)
		go func() { io.Copy(io.Discard, there); close(done) }()
		go func() { there.Write(stream); there.Close() }()
		if _, name, err := configOf(ps0).gate().Accept(t.Context(), here); err == nil {
			t.Errorf("%q came without the secret", name)
		}
		here.Close()
		<-done
	})
}
